"""Errors of one node, and of its tasks, each provoked for real: n2 differs, n1 does not."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, Cluster, sandbox
from tests.slurm.error_block import ErrorBlock, Provoked, changed_on, mounted_on
from tests.slurm.forge import Forge
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.slurm_configurations import disturbing, line_of, own_stack, plugins_on

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture
def empty(shared: Path) -> str:
    (shared / "empty").mkdir()
    return str(shared / "empty")


@pytest.fixture
def not_a_program(shared: Path) -> str:
    path = shared / "nothing"
    path.write_text("")
    path.chmod(0o644)
    return str(path)


# ---- parts that one node lacks ---------------------------------------------------------------


def _only_on(node: str) -> tuple[str, ...]:
    """Return options for one node, as the other node's tasks would run."""
    return ("-w", node, "-n3")


def test_a_store_that_is_not_mounted_on_one_node(
    cluster: Cluster, provoked: Provoked, n2: str, empty: str
) -> None:
    images = provoked.shared / "images"
    images.mkdir()
    image = images / "x.sqsh"
    image.write_bytes(cluster.image("busybox").read_bytes())
    edf = provoked.edf(f'image = "{image}"\n', None)
    with mounted_on(n2, empty, str(images)):
        done = cluster.srun(
            "-N2", "-n4", f"--environment={edf}", "sh", "-c", "echo $SLURMD_NODENAME"
        )
    assert done.stdout == "n1\nn1\n"
    ErrorBlock(done, "image-not-on-node", str(image), node=n2)


def test_an_image_that_is_cut_short_on_one_node(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    image, cut = provoked.shared / "x.sqsh", provoked.shared / "cut.sqsh"
    image.write_bytes(cluster.image("busybox").read_bytes())
    cut.write_bytes(image.read_bytes()[:100_000])
    edf = provoked.edf(f'image = "{image}"\n', None)
    with mounted_on(n2, str(cut), str(image)):
        ErrorBlock(provoked.srun(edf, *_only_on(n2)), "image-damaged", "cut short", node=n2)


def test_a_node_without_fuse(provoked: Provoked, n2: str, not_a_program: str) -> None:
    Path(not_a_program).chmod(0o600)
    with mounted_on(n2, not_a_program, "/dev/fuse"):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "fuse-unavailable", "/dev/fuse", node=n2)


def test_a_node_whose_fuse_is_no_device(provoked: Provoked, n2: str) -> None:
    with mounted_on(n2, "/dev/null", "/dev/fuse"):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "fuse-unavailable", node=n2)


@pytest.mark.parametrize("program", ["crun", "ce-image"])
def test_a_node_without_a_program(
    cluster: Cluster, provoked: Provoked, n2: str, not_a_program: str, program: str
) -> None:
    places = (cluster.prefix / "libexec/container-engine", "/usr/bin", "/usr/local/bin")
    place = next(p for p in (f"{place}/{program}" for place in places) if os.path.exists(p))
    edf = provoked.edf('annotations.com.ce.start = "crun"')  # Podman words its error otherwise
    with mounted_on(n2, not_a_program, place):
        done = provoked.srun(edf, *_only_on(n2))
    ErrorBlock(done, "program-missing", program, node=n2).details(program, "Permission denied")


@pytest.mark.parametrize("instead", ["missing", "hanging"])
def test_a_node_whose_ce_advise_says_nothing_starts_tasks_and_refuses_commands(
    cluster: Cluster, demo: str, n2: str, not_a_program: str, shared: Path, instead: str
) -> None:
    place = f"{cluster.prefix}/libexec/container-engine/ce-advise"
    if instead == "hanging":
        source = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
        not_a_program = str(shared / "hangs")
        build = ["gcc", "-static", "-x", "c", "-", "-o", not_a_program]
        subprocess.run(build, input=source, text=True, check=True)
    srun = ("-w", n2, f"--environment={demo}")
    env = {"JAVA_HOME": "/no/such/java"}
    warned = cluster.srun(*srun, "true", env=env)
    assert "JAVA_HOME='/no/such/java' of your shell" in warned.stderr
    with mounted_on(n2, not_a_program, place):
        done = cluster.srun(*srun, "true", env=env)
        refused = cluster.srun(*srun, "no-such-command")
    assert (done.returncode, done.stderr) == (0, "")
    assert refused.returncode == 127
    assert f"ce: error: {n2}: no-such-command: command not found in the container" in refused.stderr


def test_a_node_without_a_library(provoked: Provoked, n2: str, not_a_program: str) -> None:
    library = subprocess.run(
        "ldconfig -p | grep -o '/.*/libsquashfs.so.1$'",
        shell=True,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with mounted_on(n2, not_a_program, library):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "program-missing", "ce-image", node=n2).details("libsquashfs.so.1")


def test_a_node_without_the_podman_that_the_site_wants(
    provoked: Provoked, n2: str, not_a_program: str
) -> None:
    edf = provoked.edf('annotations.com.ce.start = "podman"')
    with mounted_on(n2, not_a_program, "/usr/bin/podman"):
        done = provoked.srun(edf, *_only_on(n2))
    ErrorBlock(done, "program-missing", "Podman", node=n2)
    with mounted_on(n2, not_a_program, "/usr/bin/crun"):
        done = provoked.srun(edf, *_only_on(n2))
    # Podman reports the program or the pipe to it, whichever fails first.
    ErrorBlock(done, "creation-failed", "Podman cannot start the container: ", node=n2)


def test_a_node_without_the_engine(
    cluster: Cluster, provoked: Provoked, n2: str, not_a_program: str
) -> None:
    guard = str(cluster.prefix / "libexec/container-engine/ce-guard")
    with mounted_on(n2, not_a_program, guard):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    cause = f"cannot start the launcher: {guard}: Permission denied"
    ErrorBlock(done, "plugin-configuration", cause, node=n2)


def test_a_node_without_the_interpreter_of_the_launcher_names_it(
    cluster: Cluster, provoked: Provoked, n2: str, shared: Path
) -> None:
    installed = cluster.prefix / "libexec/container-engine/launcher"
    first, end, rest = installed.read_text().partition("\n")
    python, gone = first.removeprefix("#!").split()[0], shared / "python3"
    gone.symlink_to("/gone/python3.11")
    launcher = shared / "launcher"
    launcher.write_text(f"{first.replace(python, str(gone))}{end}{rest}")
    launcher.chmod(0o755)
    with mounted_on(n2, str(launcher), str(installed)):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    reason = f"it needs '{gone}', a link to '/gone/python3.11', which does not exist"
    cause = f"cannot start the launcher: {installed}: {reason}"
    ErrorBlock(done, "plugin-configuration", cause, node=n2)


def test_a_node_without_python_joins_containers_that_run_and_starts_none(
    cluster: Cluster, provoked: Provoked, n2: str, not_a_program: str, shared: Path
) -> None:
    launcher = str(cluster.prefix / "libexec/container-engine/launcher")
    srun = f"srun -n1 --overlap --environment={provoked.edf('')} --container-mounts={shared}"
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    same = f"{srun} --container-name=j"
    script = (
        f"{same} sh -c 'touch /mine {shared}/up; {wait.format(f'{shared}/over')}' &\n"
        f"{wait.format(f'{shared}/broken')}\n"
        f"{same} ls /mine\n"
        f"{same} sh -c 'echo $CE_CONTAINER_NAME'\n"
        f"{same}:exec ls /mine; code=$?\n"
        f"touch {shared}/over; wait; exit $code\n"
    )
    with started(cluster, "salloc", "--quiet", "-w", n2, "-N1", "sh", "-c", script) as job:
        until("the first step", (shared / "up").exists, 60)
        # before it ends, that step's launcher stores what later steps need
        until("its launcher's end", lambda: not _lives(launcher), 60)
        with mounted_on(n2, not_a_program, launcher):
            (shared / "broken").touch()
            done = job.wait(120)
    assert done.stdout.splitlines() == ["/mine", "j"], done.stderr
    cause = f"cannot start the launcher: {launcher}: Permission denied"
    ErrorBlock(done, "plugin-configuration", cause, node=n2)


def _lives(program: str) -> bool:
    return any(p.lives and program in p.command for p in procfs.processes())


def test_a_node_whose_slurm_does_not_load_the_plugin(
    cluster: Cluster, demo: str, n2: str, shared: Path
) -> None:
    """Such a Slurm drops the option without a word, so the node must not get the plain command."""
    with plugins_on(cluster, n2, shared, "# nothing\n"):
        done = cluster.srun("-N2", f"--environment={demo}", "sh", "-c", "echo $SLURMD_NODENAME")
    assert done.stdout == "n1\n"
    assert done.returncode != 0
    for line in (
        "ce: error: this node's Slurm does not load the plugin of --environment;"
        " nothing was started",
        "ce: see: ce help plugin-configuration",
        "srun: error: n2: task 1: Exited with exit code 2",
    ):
        assert line in done.stderr.splitlines(), done.stderr


def test_a_program_of_many_on_a_node_whose_slurm_does_not_load_the_plugin(
    cluster: Cluster, demo: str, n2: str, shared: Path, not_a_program: str
) -> None:
    programs = cluster.write("0-3 sh -c 'echo $SLURMD_NODENAME'\n")
    srun = ("-N2", "-n4", f"--environment={demo}", "--multi-prog", str(programs))
    with plugins_on(cluster, n2, shared, "# nothing\n"):
        done = cluster.srun(*srun)
        with mounted_on(
            n2, not_a_program, str(cluster.prefix / "libexec/container-engine/ce-enter")
        ):
            bare = cluster.srun(*srun)
    assert done.stdout == bare.stdout == "n1\nn1\n"
    ErrorBlock(
        done,
        "plugin-configuration",
        "this node's Slurm does not load the plugin of --environment; nothing was started",
        node=n2,
    )
    assert "tasks 2-3: Exited with exit code 125" in done.stderr
    assert bare.returncode != 0


def test_a_user_whose_limit_of_open_files_is_too_low(cluster: Cluster, provoked: Provoked) -> None:
    """The error names the limit wherever it is reached; how many suffice depends on Slurm.

    The kernel also counts what the user's other programs send through sockets, here those of
    other sandboxes on this machine.
    """
    edf = provoked.edf("")
    ran: list[bool] = []
    for files in range(20, 34):
        limited = ["prlimit", f"--nofile={files}", "srun", "-N1", "--propagate=NOFILE"]
        done = cluster.run([*limited, f"--environment={edf}", "echo", "ran"])
        ran.append(done.returncode == 0)
        if ran[-1]:
            assert done.stdout == "ran\n"
            continue
        assert done.stdout == ""
        is_sent = "Too many references" in done.stderr
        block = ErrorBlock(done, "limit-reached", "oo many " if is_sent else "oo many open files")
        assert "ulimit" in block.parts["hint"]
        if is_sent:
            ran.pop()
    assert ran == sorted(ran)
    assert (ran[0], ran[-1]) == (False, True)


_IN_FLIGHT = """
import array, socket, sys
ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
many = array.array("i", [0] * 50)
ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_user_whose_programs_have_many_descriptors_on_their_way(
    cluster: Cluster, provoked: Provoked
) -> None:
    edf = provoked.edf("")
    with cluster.popen(["python3", "-c", _IN_FLIGHT]) as sender:
        assert sender.stdin is not None
        assert sender.line() == "sent\n"
        limited = ["prlimit", "--nofile=48", "srun", "-N1", "--propagate=NOFILE"]
        done = cluster.run([*limited, f"--environment={edf}", "echo", "ran"])
        sender.stdin.close()
    assert done.stdout == ""
    block = ErrorBlock(done, "limit-reached", "oo many references")
    assert "ulimit -n" in block.parts["hint"]


def test_a_node_with_another_version_of_the_engine(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    module = cluster.module("node/node_plan.py")
    other = provoked.shared / "node.py"
    other.write_text(module.read_text().replace("PLAN_VERSIONS = (1,)", "PLAN_VERSIONS = (99,)"))
    with mounted_on(n2, str(other), str(module)):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "engine-versions", "99", node=n2)


def test_a_mistake_of_ours_is_one_line_and_its_place_is_in_the_log(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    module = cluster.module("node/container/checks.py")
    broken = provoked.shared / "checks.py"
    text = module.read_text()
    assert "    return Resolved(" in text
    broken.write_text(text.replace("    return Resolved(", "    1 / 0\n    return Resolved(", 1))
    with mounted_on(n2, str(broken), str(module)):
        done = provoked.srun(provoked.edf('mounts = ["/tmp"]\n'), *_only_on(n2))
    block = ErrorBlock(done, "internal-error", "ZeroDivisionError", node=n2)
    block.details("Traceback", "checks.py")


def test_a_user_whom_one_node_does_not_know_has_a_container_there_all_the_same(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    # All of /etc: a mount over one file is gone when the machine replaces the file.
    shutil.copytree("/etc", etc := provoked.shared / "etc", symlinks=True)
    lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
    known = (line for line in lines if not line.startswith(f"{ALICE}:"))
    (etc / "passwd").write_text("".join(known))
    with mounted_on(n2, str(etc), "/etc"):
        done = cluster.srun("-w", n2, "-n3", f"--environment={provoked.edf('')}", "id", "-u")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(pwd.getpwnam(ALICE).pw_uid)] * 3


def test_a_home_that_cannot_be_written_on_one_node_does_not_matter(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    home = str(cluster.home())
    with changed_on(n2, ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", home], home):
        done = cluster.srun("-w", n2, "-n2", f"--environment={provoked.edf('')}", "echo", "fine")
    assert (done.returncode, done.stdout) == (0, "fine\n" * 2), done.stderr


def test_without_a_place_for_the_log_in_the_home_there_is_one_in_tmp(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    home = str(cluster.home())
    edf = provoked.edf('startup = ["echo why; false"]\n')
    with changed_on(n2, ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", home], home):
        done = provoked.srun(edf, *_only_on(n2))
    block = ErrorBlock(done, "startup-failed", "why", node=n2)
    assert block.parts["details"].startswith("/tmp/container-engine-")
    block.details("why")
    Path(block.parts["details"]).unlink()


def test_a_mount_source_that_one_node_lacks(provoked: Provoked, cluster: Cluster) -> None:
    (provoked.shared / "n1").mkdir()
    edf = provoked.edf(f'mounts = ["{provoked.shared}/${{SLURMD_NODENAME}}:/data"]\n')
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "true")
    ErrorBlock(done, "mount-source-missing", f"'{provoked.shared}/n2'", f"{edf}:2", node="n2")


def test_a_mount_of_what_the_user_may_not_read(provoked: Provoked) -> None:
    closed = provoked.shared / "closed"
    closed.mkdir(mode=0o700)
    done = provoked.srun(provoked.edf(f'mounts = ["{closed}/data:/data"]\n'))
    block = ErrorBlock(done, "mount-source-missing", "Permission denied")
    assert "ask its owner" in block.parts["hint"]


def test_a_node_without_user_namespaces(provoked: Provoked, n2: str) -> None:
    assert sandbox("node", "--chroot", n2).returncode == 0
    try:
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    finally:
        assert sandbox("node", "--again", n2).returncode == 0
        assert sandbox("node", n2, "true").returncode == 0
    ErrorBlock(done, "user-namespaces", "user namespaces are not permitted on this node", node=n2)


def test_a_node_without_room_for_another_user_namespace(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    """The start begins in a user namespace in which no other one can be made."""
    guard = cluster.prefix / "libexec/container-engine/ce-guard"
    libexec = provoked.shared / "libexec/container-engine"
    libexec.mkdir(parents=True)
    copy = Path(shutil.copy(guard, libexec))
    (libexec / "launcher").symlink_to(guard.parent / "launcher")
    limited = provoked.shared / "limited"
    limited.write_text(
        "#!/bin/sh\n"
        "limit='echo 0 > /proc/sys/user/max_user_namespaces'\n"
        f'exec unshare --user --map-root-user sh -c "$limit; exec {copy} \\"\\$@\\"" sh "$@"\n'
    )
    limited.chmod(0o755)
    with mounted_on(n2, str(limited), str(guard)):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "user-namespaces", "user.max_user_namespaces", node=n2)


def test_a_node_whose_proc_is_covered(provoked: Provoked, n2: str) -> None:
    with mounted_on(n2, "/dev/null", "/proc/uptime"):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "proc-covered", "refuses to mount /proc", node=n2)


def test_a_node_whose_crun_does_not_like_its_cgroups(
    provoked: Provoked, n2: str, not_a_program: str
) -> None:
    """A script prints the error that crun has on a node with hybrid cgroups."""
    Path(not_a_program).write_text(
        "#!/bin/sh\necho 'invalid configuration: cannot use unified on cgroup v1' >&2; exit 1\n"
    )
    Path(not_a_program).chmod(0o755)
    with mounted_on(n2, not_a_program, "/usr/bin/crun"):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "cgroups-hybrid", "hybrid cgroup hierarchy", node=n2)


def test_a_node_where_another_plugin_has_started_a_thread_in_the_task(
    cluster: Cluster, provoked: Provoked, n2: str
) -> None:
    plugin = disturbing(provoked.shared)
    before = (cluster.dir / "etc/plugstack.conf").read_text()
    with plugins_on(cluster, n2, provoked.shared, f"required {plugin} thread\n{before}"):
        done = provoked.srun(provoked.edf(""), *_only_on(n2))
    ErrorBlock(done, "task-join", "user namespace", node=n2)


def test_a_plan_that_another_plugin_has_taken_away(cluster: Cluster, provoked: Provoked) -> None:
    ours = f"{line_of(cluster)} prefix={cluster.prefix}"
    lines = (ours, f"required {disturbing(provoked.shared)} unset")
    conf = own_stack(cluster, provoked.shared, *lines)
    ErrorBlock(provoked.srun(provoked.edf(""), "-N1", "-n3", env=conf), "plan-not-arrived")


# ---- errors that all nodes have: printed once ------------------------------------------------

# name, text below the image's line, code, words of the error line
_TEXTS = [
    ("a mount", 'mounts = ["/nowhere:/x"]\n', "mount-source-missing", ("'/nowhere'", ":2")),
    ("per node", 'mounts = ["/no/${SLURMD_NODENAME}:/x"]\n', "mount-source-missing", ("/no/n",)),
    ("a squashfs", 'mounts = ["/etc/passwd:/x:sqsh"]\n', "mount-source-missing", ("SquashFS",)),
    ("a device", 'devices = ["/dev/no-such"]\n', "device-missing", ("'/dev/no-such'",)),
    ("no device", 'devices = ["/etc/passwd"]\n', "device-missing", ("is not a device",)),
    ("a CDI name", 'devices = ["nvidia.com/gpu=all"]\n', "cdi-device-unknown", ("nvidia.com",)),
    ("a variable", '[env]\nA = "${SLURM_NONE}"\n', "variable-on-node", ("SLURM_NONE", ":3")),
    ("a task's own", '[env]\nA = "${CUDA_VISIBLE_DEVICES}"\n', "variable-on-node", ("each task",)),
    ("a place", 'mounts = ["/tmp:/${SLURM_NONE:-proc}"]\n', "mount-destination", ("'/proc'",)),
    ("in /proc", 'mounts = ["/tmp:/proc/x"]\n', "mount-destination", ("only the kernel", ":2")),
    ("below a file", 'mounts = ["/tmp:/etc/passwd/x"]\n', "mount-destination", ("below a file",)),
    ("on another kind", 'mounts = ["/etc/passwd:/tmp"]\n', "mount-destination", ("crun", "`tmp`")),
    ("a workdir", 'workdir = "/nowhere"\n', "workdir-missing", (":2: workdir '/nowhere'",)),
    ("too little space", '[annotations]\n"com.ce.tmpfs_size" = "4k"\n', "container-space", ()),
    (
        "a start-up step",
        'startup = ["echo why >&2; exit 3"]\n',
        "startup-failed",
        ("why", "code 3"),
    ),
    ("no such step", 'startup = ["no-such-command"]\n', "startup-failed", ("no-such-command",)),
    (
        "a step that hangs",
        # The same limit applies to the steps before it, which are slow on a busy machine.
        'startup = ["sleep 100"]\n[annotations]\n"com.ce.start_timeout_s" = "10"\n',
        "startup-failed",
        ("not done within 10 s",),
    ),
]


@pytest.mark.parametrize(
    ("text", "code", "words"), [t[1:] for t in _TEXTS], ids=[t[0] for t in _TEXTS]
)
def test_what_all_nodes_lack_is_said_once(
    provoked: Provoked, text: str, code: str, words: tuple[str, ...]
) -> None:
    ErrorBlock(provoked.srun(provoked.edf(text)), code, *words)


def test_an_image_whose_etc_is_a_file(provoked: Provoked, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc").touch()
    image = provoked.shared / "x.sqsh"
    subprocess.run(["mksquashfs", tmp_path, image, "-quiet", "-no-progress"], check=True)
    done = provoked.srun(provoked.edf(f'image = "{image}"\n', None))
    ErrorBlock(done, "image-path", "'/etc/passwd' in the image: Not a directory")


def test_an_image_whose_passwd_is_a_pipe(forge: Forge) -> None:
    (forge.root / "etc/passwd").unlink()
    os.mkfifo(forge.root / "etc/passwd")
    words = "'/etc/passwd' in the image is not a regular file"
    ErrorBlock(forge.srun(forge.image(), "true"), "image-path", words)


def test_variables_that_are_too_much_for_one_process(provoked: Provoked) -> None:
    """Each file of the chain is small enough by itself."""
    base = ""
    for file in "ABC":
        many = "".join(f'{file}{number} = "{"x" * 120_000}"\n' for number in range(8))
        path = provoked.shared / f"{file}.toml"
        above = (
            f'base_environment = "{base}"\n'
            if base
            else f'image = "{provoked.cluster.image("busybox")}"\n'
        )
        path.write_text(f"{above}[env]\n{many}")
        base = str(path)
    ErrorBlock(provoked.srun(base), "environment-too-large", "2880")


def test_the_log_of_a_start_up_step_has_all_that_it_printed_but_no_secrets(
    provoked: Provoked,
) -> None:
    edf = provoked.edf(
        'startup = ["seq 1000; echo MY_TOKEN=abcdefghijkl; echo https://me:verysecret@x/; false"]\n'
    )
    text = ErrorBlock(provoked.srun(edf), "startup-failed").details("\n17\n", "\n999\n")
    assert "abcdefghijkl" not in text
    assert "verysecret" not in text


# name, command, code, words of the error line
_COMMANDS = [
    ("no such command", ("no-such-command",), "command-not-found", "no-such-command"),
    ("no such path", ("/bin/no-such",), "command-not-found", "/bin/no-such"),
    ("not executable", ("/etc/passwd",), "command-not-executable", "/etc/passwd"),
    ("a directory", ("/etc",), "command-not-executable", "/etc"),
]


@pytest.mark.parametrize(
    ("command", "code", "word"), [c[1:] for c in _COMMANDS], ids=[c[0] for c in _COMMANDS]
)
def test_a_command_that_cannot_be_run_is_said_once(
    provoked: Provoked, command: tuple[str, ...], code: str, word: str
) -> None:
    ErrorBlock(provoked.srun(provoked.edf(""), command=command), code, word)


def test_a_directory_that_is_gone(cluster: Cluster, demo: str, provoked: Provoked) -> None:
    """By ce run, as srun itself refuses such a directory before it calls any plugin."""
    here = f"mkdir {provoked.shared}/here && cd {provoked.shared}/here && rmdir ../here"
    done = cluster.run(["sh", "-c", f"{here} && exec ce run {demo} -- true"])
    ErrorBlock(done, "current-directory", "no such file or directory")


def test_ce_run_says_the_same(cluster: Cluster, provoked: Provoked) -> None:
    edf = provoked.edf("")
    ErrorBlock(cluster.run(["ce", "run", edf, "--", "none"]), "command-not-found", "none")
    edf = provoked.edf('mounts = ["/nowhere:/x"]\n')
    ErrorBlock(cluster.run(["ce", "run", edf, "--", "true"]), "mount-source-missing", "'/nowhere'")
    edf = provoked.edf('startup = ["echo why; false"]\n')
    done = cluster.run(["ce", "run", edf, "--", "true"])
    ErrorBlock(done, "startup-failed", "why").details("why")


def test_a_program_of_another_libc_cannot_be_executed(provoked: Provoked) -> None:
    """The program is this machine's /bin/true, which needs glibc, in an image with musl."""
    edf = provoked.edf('mounts = ["/bin/true:/bin/foreign"]\n', "musl")
    done = provoked.srun(edf, command=("/bin/foreign",))
    assert done.returncode != 0
    ErrorBlock(done, "command-not-executable", "/bin/foreign", exit_code=126)
