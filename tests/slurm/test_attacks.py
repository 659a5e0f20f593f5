"""Images and environments made to do harm: they affect nothing but their own container."""

import json
import os
import pwd
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster, causes
from tests.slurm.forge import Forge

pytestmark = pytest.mark.usefixtures("tidy")

_EVIL = """
#include <fcntl.h>
#include <unistd.h>
static void __attribute__((constructor)) run(void)
{
	close(open(MARKER, O_WRONLY | O_CREAT, 0666));
}
"""

# Python would run this codec to print a traceback's line from a file with `coding: evil`.
_CODEC = """
import os
for fd in range(64):
    try:
        os.fchdir(fd)
        os.chroot(".")
        open(MARKER, "w")
    except OSError:
        pass
os._exit(0)
"""
_NEW_CACHE = b"glibc-ld.so.cache1.1"


@pytest.fixture
def evil(shared: Path) -> tuple[Path, Path]:
    """Build a library on the host for everybody to load; return it and the file that it makes."""
    marker, source, library = shared / "ran", shared / "evil.c", shared / "evil.so"
    source.write_text(_EVIL)
    argv = ["gcc", "-shared", "-fPIC", f'-DMARKER="{marker}"', "-o", str(library), str(source)]
    subprocess.run(argv, check=True)
    return library, marker


def test_devices_and_setuid_programs_in_an_image_give_nothing(forge: Forge) -> None:
    shutil.copyfile(forge.root / "bin/busybox", forge.root / "bin/busybox-suid")
    image = forge.image("zero c 666 0 0 1 5", "disk b 666 0 0 8 0", "bin/busybox-suid m 4755 0 0")
    script = "head -c1 /zero; head -c1 /disk; mknod /new c 1 5; ls -l $0; $0 id -u"
    done = forge.srun(image, "sh", "-c", script, "/bin/busybox-suid")
    said = [line.rpartition(": ")[2] for line in done.stderr.splitlines()]
    assert said == ["Permission denied", "Permission denied", "Operation not permitted"]
    mode, uid = done.stdout.split()[0], done.stdout.split()[-1]
    assert (mode, uid) == ("-rwsr-xr-x", str(pwd.getpwnam(ALICE).pw_uid))


def test_attributes_of_an_overlay_in_an_image_lead_nowhere_and_disturb_no_write(
    forge: Forge,
) -> None:
    """An overlay's upper directory that root has packed as an image has such attributes."""
    for name, value in (
        ("trusted.overlay.opaque", b"y"),
        ("trusted.overlay.redirect", b"/../../.."),
        ("user.overlay.opaque", b"y"),
        ("user.overlay.redirect", b"/../../.."),
    ):
        os.setxattr(forge.root / "etc", name, value)
    done = forge.srun(
        forge.image(), "sh", "-c", "echo x > /etc/new && cat /etc/new && ls / | grep -c ."
    )
    plain = forge.srun(forge.cluster.image("busybox"), "sh", "-c", "echo x; ls / | grep -c .")
    assert (done.stdout, done.stderr) == (plain.stdout, "")


def test_links_of_an_image_change_no_file_of_the_users(forge: Forge, shared: Path) -> None:
    """The links replace everything that a start creates, mounts over or writes."""
    precious = shared / "precious"
    precious.mkdir(mode=0o777)
    precious.chmod(0o777)
    names = ("passwd", "group", "hosts", "resolv.conf", "ld.so.cache", "file")
    for name in names:
        (precious / name).write_text("keep\n")
        (precious / name).chmod(0o666)
    for name in names[:-1]:
        forge.link(f"etc/{name}", precious / name)
    forge.link("place", precious / "file")
    forge.link("directory", precious)
    forge.link("up", f"../../../../../../../../{precious}")
    edf = (
        'mounts = ["/etc/hostname:/place", "/etc:/directory/made", "/etc:/up/made"]\n'
        'workdir = "/"\n[env]\nHOME = "/directory/home"\n'
    )
    done = forge.srun(forge.image(), "sh", "-c", "echo ran", edf=edf)
    assert {path.name: path.read_text() for path in precious.iterdir()} == dict.fromkeys(
        names, "keep\n"
    )
    assert done.stdout == "ran\n" or len(causes(done)) == 1, done.stderr


@pytest.mark.parametrize("how", ["edf", "image", "preload"])
def test_a_library_that_a_container_preloads_is_not_loaded_on_the_node(
    forge: Forge, evil: tuple[Path, Path], how: str
) -> None:
    """A path in the container, such as /tmp/x.so, may be anybody's file on the node."""
    library, marker = evil
    run: dict[str, object] = {"Env": [f"LD_PRELOAD={library}"]} if how == "image" else {}
    if how == "preload":
        forge.put("etc/ld.so.preload", f"{library}\n")
    edf = 'startup = ["true"]\n'
    edf += f'[env]\nLD_PRELOAD = "{library}"\n' if how == "edf" else ""
    done = forge.srun(forge.image(run=run), "sh", "-c", "echo $LD_PRELOAD; echo ran", edf=edf)
    assert done.stdout.splitlines()[-1:] == ["ran"], done.stderr
    assert not marker.exists()


@pytest.mark.parametrize(
    "nested",
    [
        "squeue",
        "srun --overlap -n1 env",
        "srun --overlap -n1 --environment={demo} env",
        "sbatch -Q --wait -o /dev/null --wrap env",
    ],
    ids=["query", "a step on the host", "a step in another image", "a job"],
)
def test_a_library_that_an_image_preloads_is_not_loaded_by_programs_of_the_host(
    forge: Forge, evil: tuple[Path, Path], nested: str
) -> None:
    """Neither by Slurm's in the container, nor by what they start on the host."""
    library, marker = evil
    edf = f'mounts = ["{library.parent}"]\n[annotations]\ncom.hooks.slurm.enabled = "true"\n'
    image = forge.image(run={"Env": [f"LD_PRELOAD={library}"]})
    other = library.with_name("other.sqsh")
    other.write_bytes(forge.cluster.image("demo").read_bytes())
    command = nested.format(demo=forge.cluster.edf(f'image = "{other}"\n', image=None))
    script = f'test "$LD_PRELOAD" = {library} && {command} >/dev/null && echo ran'
    done = forge.srun(image, "sh", "-c", script, edf=edf)
    assert done.stdout == "ran\n", done.stderr
    assert not marker.exists()


def _libc(version: str) -> bytes:
    """Return a C library that claims to be of this version."""
    made = f"GLIBC_{'7' * len(version.encode())}"
    argv = ["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", "libc.so.6"]
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "map")
        script.write_text(f"{made} {{ global: one; local: *; }};")
        source = b"int one(void) { return 1; }"
        options = [f"-Wl,--version-script={script}", "-Wl,-soname,libc.so.6"]
        subprocess.run([*argv, *options], input=source, cwd=directory, check=True)
        content = Path(directory, "libc.so.6").read_bytes()
    return content.replace(made.encode(), f"GLIBC_{version}".encode())


_LIBC = f"lib/{os.uname().machine}-linux-gnu/libc.so.6"
_BROKEN: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a cache that ends in its head": (
        "etc/ld.so.cache",
        lambda: b"ld.so-1.7.0\0" + bytes(4) + _NEW_CACHE,
    ),
    "a version that is no number": (_LIBC, lambda: _libc("2.2\N{SUPERSCRIPT TWO}")),
    "a version of many digits": (_LIBC, lambda: _libc("2." + "1" * 5000)),
}


@pytest.mark.parametrize("what", _BROKEN)
def test_broken_files_that_a_hook_reads_run_nothing_of_the_image(forge: Forge, what: str) -> None:
    """Python opens the source of a failing line, and imports the codec that it names."""
    prefix, marker = forge.cluster.prefix, forge.directory / "ran"
    code = "import encodings; print(encodings.__path__[0])"
    argv = [str(prefix / "libexec/python3"), "-ISE", "-c", code]
    codecs = subprocess.run(argv, check=True, text=True, capture_output=True).stdout.strip()
    forge.put(f"{codecs.lstrip('/')}/evil.py", f"MARKER = {str(marker)!r}\n{_CODEC}")
    sources = [prefix / "libexec/container-engine/inject"]
    for room in ("hooks", "libraries"):
        sources += prefix.glob(f"lib/python3*/site-packages/container_engine/node/{room}/*.py")
    assert len(sources) > 10
    for source in sources:
        forge.put(str(source).lstrip("/"), "# -*- coding: evil -*-\n" * 2)
    path, content = _BROKEN[what]
    forge.put(path, content())
    name = forge.cluster.edf(f'image = "{forge.image()}"\n', image=None)
    done = forge.cluster.srun(
        "-n2", "-w", "n1", "--mpi=pmi2", f"--environment={name}", "echo", "ran"
    )
    assert not marker.exists()
    assert done.stdout.splitlines() == ["ran"] * 2, done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr


def test_no_name_of_a_variable_in_an_image_reaches_what_slurm_says(forge: Forge) -> None:
    run: dict[str, object] = {
        "Env": ["SLURM_PROCID=7", "=SLURM_PROCID=SLURM_JOB_ID", "A=1\nSLURM_PROCID=8", "B\n=2"]
    }
    script = 'echo "$SLURM_PROCID|$A"'
    done = forge.srun(forge.image(run=run), "sh", "-c", script, tasks=2)
    assert sorted(done.stdout.splitlines()) == ["0|1", "1|1", *["SLURM_PROCID=8"] * 2], done.stderr


@pytest.mark.parametrize("way", ["srun", "ce run"])
def test_the_directory_that_an_image_names_is_one_line_of_a_message(forge: Forge, way: str) -> None:
    # below a file, so that nothing can make it
    image = forge.image(run={"WorkingDir": "/bin/busybox/\x1b]0;title\x07\nce: hint: run this"})
    if way == "srun":
        done = forge.srun(image, "true")
    else:
        name = forge.cluster.edf(f'image = "{image}"\n', image=None)
        done = forge.cluster.run([str(forge.cluster.prefix / "bin/ce"), "run", name, "--", "true"])
    assert done.returncode == 125
    assert len(causes(done)) == 1, done.stderr
    assert "/bin/busybox" in causes(done)[0]
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr
    assert "\nce: hint: run this" not in done.stderr


def test_a_nul_in_an_images_configuration_is_refused_at_submit(forge: Forge) -> None:
    marker = forge.directory / "ran"
    words = ["/bin/sh", f"x\0more\0{3}\0/bin/sh\0-c\0touch {marker}"]
    image = forge.image(run={"Entrypoint": words})
    done = forge.srun(image, "echo", "ran", edf="entrypoint = true\n")
    assert (done.returncode, done.stdout) == (125, "")
    assert "a NUL character in a variable, the entrypoint" in causes(done)[0]
    assert not marker.exists()


def test_huge_files_where_a_start_reads_fail_it_with_one_line(forge: Forge) -> None:
    forge.put("etc/passwd", b"x" * (20 << 20))
    done = forge.srun(forge.image(), "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert len(causes(done)) == 1, done.stderr
    assert "'/etc/passwd' in the image" in causes(done)[0]


@pytest.mark.parametrize("variables", [3500, 5000])
def test_a_huge_configuration_fails_with_one_line(forge: Forge, variables: int) -> None:
    run: dict[str, object] = {"Env": [f"V{number}={'x' * 1000}" for number in range(variables)]}
    done = forge.srun(forge.image(run=run), "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert len(causes(done)) == 1, done.stderr
    assert any(word in causes(done)[0] for word in ("too large", "too long", "larger than"))


def _damaged(image: Path, target: Path, seed: int) -> None:
    """Write a copy of the image whose tables at the end are damaged.

    With an odd seed, a pointer or count of the superblock is damaged, too.
    """
    source = random.Random(seed)
    data = bytearray(image.read_bytes())
    if seed % 2:
        # One of the superblock's pointers or counts.
        at = source.choice(range(4, 96, 4))
        data[at : at + 4] = source.choice([b"\xff" * 4, b"\0" * 4, source.randbytes(4)])
    for _ in range(source.randrange(1, 40)):
        # The tables are at the end.
        data[len(data) - 1 - source.randrange(min(20000, len(data)))] = source.randrange(256)
    target.write_bytes(data)


def test_crafted_images_run_or_fail_and_leave_nothing(cluster: Cluster, shared: Path) -> None:
    for seed in range(6):
        image = shared / f"crafted-{seed}.sqsh"
        _damaged(cluster.image("busybox"), image, seed)
        edf = cluster.edf(
            f'image = "{image}"\n[annotations]\n"com.ce.start_timeout_s" = "20"\n', image=None
        )
        done = cluster.srun("-w", "n1", f"--environment={edf}", "sh", "-c", "cat /etc/os-release")
        inside = "Container Engine test (busybox)" in done.stdout
        assert inside or done.returncode != 0, (seed, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (seed, done.stderr)


def test_a_value_with_lines_and_equals_signs_is_one_value(cluster: Cluster) -> None:
    value = "a\\nSLURM_PROCID=99\\n=SLURM_PROCID=SLURM_JOB_ID\\nLD_PRELOAD=/x"
    edf = cluster.edf(f'[env]\nV = "{value}"\n')
    script = "import os; print(repr(os.environ['V']), os.environ['SLURM_PROCID'])"
    done = cluster.srun(f"--environment={edf}", "python3", "-c", script)
    assert done.stdout == f"'{value}' 0\n", done.stderr


def test_a_forged_environment_of_srun_chooses_nothing(
    cluster: Cluster, demo: str, evil: tuple[Path, Path]
) -> None:
    """The variables are internal ones of the plugin and ce-join, and ones that Podman reads."""
    _library, marker = evil
    plan = json.dumps({"version": 1, "startup": [{"line": f"touch {marker}", "from": "x"}]})
    env = {
        "SLURM_CE_PLAN_PARTS": "1",
        "SLURM_CE_PLAN_0": plan,
        "CE_JOIN_CONTAINER": "0 0 0 -1 0 -1 -1 -1 -1 -1 -1 /",
        "CE_JOIN_COMMAND": f"/bin/touch {marker}",
        "TMPDIR": "/nowhere",
        "XDG_CACHE_HOME": "/nowhere",
        "CONTAINERS_STORAGE_CONF": "/nowhere",
        "_CONTAINERS_ROOTLESS_UID": "0",
    }
    done = cluster.srun(f"--environment={demo}", "cat", "/etc/os-release", env=env)
    assert "ID=ce-demo" in done.stdout, done.stderr
    assert not marker.exists()


def test_another_users_images_and_files_are_read_with_ones_own_rights_only(
    cluster: Cluster, shared: Path
) -> None:
    """The launcher runs as the user from its start: a root-only image or mount stays closed."""
    image = shared / "closed.sqsh"
    shutil.copyfile(cluster.image("busybox"), image)
    image.chmod(0o600)
    os.chown(image, 0, 0)
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    done = cluster.srun(f"--environment={edf}", "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert "permission denied" in causes(done)[0].lower()
