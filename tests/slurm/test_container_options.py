"""The options and variables of pyxis on srun's command line, and CE_ENVIRONMENT."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, causes
from tests.slurm.error_block import mounted_on
from tests.slurm.site import site_on
from tests.slurm.slurm_configurations import line_of, own_stack


def srun(
    cluster: Cluster, *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return cluster.run(["srun", *words], env=env, cwd=cwd)


def image_of(cluster: Cluster) -> str:
    return f"--container-image={cluster.image('demo')}"


def test_help_has_the_mark_by_which_tools_look_for_pyxis(cluster: Cluster) -> None:
    shown = cluster.run(["srun", "--help"]).stdout
    assert "--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH" in shown
    assert re.search(r"--container-name=NAME +\[pyxis\]", shown)
    assert re.search(r"--container-unshare=NS\[,NS\.\.\.\]\s+\[pyxis\]", shown)
    assert shown.count("[pyxis]") == 16


def test_a_step_runs_in_an_image_without_a_file(cluster: Cluster) -> None:
    data = cluster.write("mounted\n")
    script = "cat /data/x; cat /etc/hostname; touch /new || echo kept out; pwd"
    done = srun(
        cluster,
        *("-N2", image_of(cluster), f"--container-mounts={data}:/data/x:ro"),
        *("--container-workdir=/tmp", "sh", "-c", script),
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.split("\n"))
    assert lines.count("mounted") == lines.count("kept out") == lines.count("/tmp") == 2
    done = srun(cluster, image_of(cluster), "--container-writable", "touch", "/new")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_home_is_there_on_request_and_root_has_it_as_his(cluster: Cluster) -> None:
    mark = cluster.home() / "mark"
    mark.touch()
    script = "cd && pwd && id -u && ls mark 2>&1"
    done = srun(cluster, image_of(cluster), "sh", "-c", script)
    assert "No such file" in done.stdout
    done = srun(cluster, image_of(cluster), "--container-mount-home", "sh", "-c", script)
    assert done.stdout.splitlines()[::2] == [str(cluster.home()), "mark"], done.stderr
    both = ("--container-mount-home", "--container-remap-root")
    done = srun(cluster, image_of(cluster), *both, "sh", "-c", script)
    assert done.stdout.splitlines() == ["/root", "0", "mark"], done.stderr
    mark.unlink()


def test_an_option_counts_before_the_environment(cluster: Cluster) -> None:
    edf = cluster.edf('workdir = "/"\n[env]\nA = "file"\n')
    words = (f"--environment={edf}", "--container-workdir=/tmp", "--container-env=A")
    done = srun(cluster, *words, "sh", "-c", "pwd; echo $A", env={"A": "host"})
    assert done.stdout.splitlines() == ["/tmp", "host"], done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--container-name=x/y"], "--container-name: annotations.com.ce.container_name: expected"),
        (["--container-save="], "--container-save: its value is empty"),
        (["--container-unshare=net,x"], "--container-unshare: unknown namespace 'x'"),
        (["--container-mounts=/a:/b:r0"], "--container-mounts: '/a:/b:r0': unknown flag 'r0'"),
    ],
)
@pytest.mark.parametrize("command", ["srun", "salloc", "sbatch"])
def test_what_cannot_be_done_is_refused_at_submit(
    cluster: Cluster, command: str, words: list[str], message: str
) -> None:
    script = ["--wrap=true"] if command == "sbatch" else ["true"]
    done = cluster.run([command, image_of(cluster), *words, *script])
    assert done.returncode == 125
    (cause,) = causes(done)
    assert cause.startswith(f"ce: error: {message}")


_NAMESPACES = [f"/proc/self/ns/{name}" for name in ("net", "ipc", "uts", "pid")]


@pytest.mark.parametrize("start", ["crun", "podman"])
def test_tasks_share_namespaces_of_their_containers_own(cluster: Cluster, start: str) -> None:
    edf = cluster.edf(f'[annotations]\n"com.ce.start" = "{start}"\n', image="demo")
    script = f"readlink {' '.join(_NAMESPACES)}; stat -fc %T /dev/mqueue; (</dev/tcp/127.0.0.1/1)"
    words = [f"--environment={edf}", "--container-unshare=net,ipc,uts,pid"]
    done = srun(cluster, "-n3", *words, "bash", "-c", script)
    assert done.stderr.count("/1: Connection refused") == 3, done.stderr
    of_node = {os.readlink(path) for path in _NAMESPACES}
    found = set(done.stdout.split())
    assert len(found) == 5
    assert not found & of_node
    done = srun(cluster, f"--environment={edf}", "readlink", *_NAMESPACES)
    assert set(done.stdout.split()) == of_node


@pytest.mark.parametrize("start", ["crun", "podman"])
def test_a_node_that_covers_parts_of_sys_shows_its_network_and_that_is_told(
    cluster: Cluster, n2: str, start: str
) -> None:
    edf = cluster.edf(f'[annotations]\n"com.ce.start" = "{start}"\n"com.ce.unshare" = "net"\n')
    words = ("-w", n2, f"--environment={edf}", "ls", "/sys/class/net")
    with mounted_on(n2, str(cluster.scratch), "/sys/firmware"):
        for _once_more in range(2):
            done = cluster.srun(*words)
            assert done.returncode == 0
            assert f"{n2}: com.ce.unshare: /sys still shows the node's network: " in done.stderr
    done = cluster.srun(*words)
    assert (done.stdout, done.stderr) == ("lo\n", "")


def test_startup_steps_have_the_namespaces_of_the_tasks(cluster: Cluster) -> None:
    path = "/proc/self/ns/net"
    edf = cluster.edf(
        f'startup = ["export NET=$$(readlink {path})"]\n[annotations]\n"com.ce.unshare" = "net"\n'
    )
    done = srun(cluster, f"--environment={edf}", "sh", "-c", f'echo "$NET"; readlink {path}')
    first, second = done.stdout.split()
    assert first == second != os.readlink(path)


def test_options_without_a_container_are_refused(cluster: Cluster) -> None:
    done = srun(cluster, "--container-mounts=/tmp", "true")
    assert done.returncode == 125
    assert causes(done) == ["ce: error: --container-mounts: there is no container to apply it to"]
    assert "ce: see: ce help container-option" in done.stderr.splitlines()


def test_a_source_that_a_node_lacks_is_reported_unless_it_may_be_missing(cluster: Cluster) -> None:
    mounts = "--container-mounts=/nowhere/x:/x"
    done = srun(cluster, image_of(cluster), mounts, "true")
    assert done.returncode == 125
    assert "--container-mounts: mount source '/nowhere/x': does not exist" in done.stderr
    done = srun(cluster, image_of(cluster), f"{mounts}:nofail", "ls", "/x")
    assert "No such file" in done.stderr
    assert "ce: error" not in done.stderr


def test_a_source_with_a_colon_and_a_comma_in_its_path_is_mounted(
    cluster: Cluster, shared: Path
) -> None:
    place = shared / "a:b,c"
    place.mkdir()
    (place / "f").write_text("in it\n")
    mounts = f"{shared}/a\\:b\\,c:/x\\:y:ro,{shared}:/z"
    script = "cat /x:y/f; ls -d /z/a:b,c"
    for words, env in (
        ([image_of(cluster), f"--container-mounts={mounts}"], {}),
        ([image_of(cluster)], {"PYXIS_CONTAINER_MOUNTS": mounts}),
    ):
        done = srun(cluster, "-N1", *words, "sh", "-c", script, env=env)
        assert done.stdout == "in it\n/z/a:b,c\n", done.stderr


def test_variables_of_pyxis_ask_for_a_container(cluster: Cluster) -> None:
    env = {
        "PYXIS_CONTAINER_IMAGE": str(cluster.image("demo")),
        "PYXIS_CONTAINER_WORKDIR": "/tmp",
        "PYXIS_CONTAINER_WRITABLE": "1",
    }
    script = "touch /new && pwd"
    done = srun(cluster, "sh", "-c", script, env=env)
    assert (done.returncode, done.stdout) == (0, "/tmp\n"), done.stderr
    done = srun(cluster, "true", env={"PYXIS_CONTAINER_NAME": "never-made"})
    assert done.returncode == 125
    (cause,) = causes(done)
    none = "this job has no container 'never-made' to continue"
    assert cause == f"ce: error: PYXIS_CONTAINER_NAME: {none}"
    done = srun(cluster, "pwd", env={"PYXIS_CONTAINER_WORKDIR": "/tmp"})
    assert done.stdout == f"{cluster.home()}\n"


def test_variables_that_name_what_the_container_lacks_are_reported_in_one_line(
    cluster: Cluster, shared: Path
) -> None:
    env = {"PYTHONHOME": "/apps/python", "JAVA_HOME": str(shared), "R_HOME": "/usr"}
    step = ["-N2", "-n4", "--overcommit", image_of(cluster)]
    done = srun(cluster, *step, "true", env=env)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "of your shell" in line]
    assert f"PYTHONHOME='/apps/python', JAVA_HOME='{shared}' of your shell" in line
    assert "R_HOME" not in line
    done = srun(cluster, *step, f"--container-mounts={shared}", "true", env=env)
    assert "PYTHONHOME='/apps/python' of your shell" in done.stderr
    edf = cluster.edf('[env]\nPYTHONHOME = ""\nJAVA_HOME = "/mine"\n')
    assert srun(cluster, f"--environment={edf}", "true", env=env).stderr == ""
    for option, is_reported in (("--pty", True), ("--label", False)):
        command = f"SHELL=/apps/zsh srun -N1 {option} {image_of(cluster)} true"
        done = cluster.run(["script", "-qec", command, "/dev/null"])
        assert ("SHELL='/apps/zsh' of your shell" in done.stdout) == is_reported, done.stdout


def test_nothing_where_a_container_is_to_be_named_is_refused(
    cluster: Cluster, shared: Path
) -> None:
    ran, script = shared / "ran", cluster.write("#!/bin/sh\nexit 0\n", mode=0o755)
    touch = ["touch", str(ran)]
    image, say = image_of(cluster), "its value is empty"
    for words, env, said in (
        (["srun", "--container-image=", *touch], {}, f"--container-image: {say}"),
        (["srun", image, "--container-image=", *touch], {}, f"--container-image: {say}"),
        (["srun", "--container-image=", "--container-name=k", *touch], {}, "--container-image"),
        (["srun", *touch], {"PYXIS_CONTAINER_IMAGE": ""}, f"PYXIS_CONTAINER_IMAGE: {say}"),
        (["srun", *touch], {"PYXIS_CONTAINER_NAME": ""}, f"PYXIS_CONTAINER_NAME: {say}"),
        (["srun", *touch], {"CE_ENVIRONMENT": ""}, "the name of the environment is empty"),
        (["sbatch", str(script)], {"CE_ENVIRONMENT": ""}, "the name of the environment is empty"),
        (["sbatch", "--container-image=", str(script)], {}, f"--container-image: {say}"),
        (["salloc", *touch], {"PYXIS_CONTAINER_IMAGE": ""}, f"PYXIS_CONTAINER_IMAGE: {say}"),
        (["ce", "run", "--container-image", "", "--", *touch], {}, f"--container-image: {say}"),
    ):
        path = f"{cluster.prefix}/bin:/usr/bin:/bin"
        done = cluster.run(words, env={"PATH": path, **env})
        assert done.returncode == 125, (words, done.stderr)
        (cause,) = causes(done)
        assert cause.startswith(f"ce: error: {said}"), words
        assert not ran.exists()


def test_a_variable_set_to_nothing_counts_for_nothing_beside_an_option(
    cluster: Cluster, demo: str
) -> None:
    env = {"PYXIS_CONTAINER_IMAGE": "", "CE_ENVIRONMENT": ""}
    command = ["sh", "-c", "echo ${CE_IMAGE:+inside}"]
    done = srun(cluster, image_of(cluster), *command, env={"PYXIS_CONTAINER_IMAGE": ""})
    assert done.stdout == "inside\n", done.stderr
    done = srun(cluster, f"--environment={demo}", *command, env={"CE_ENVIRONMENT": ""})
    assert done.stdout == "inside\n", done.stderr
    done = srun(cluster, *command, env=env | {"CE_INHERIT": "no"})
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_a_step_leaves_the_image_of_its_job_by_words_that_say_so(cluster: Cluster) -> None:
    command = "sh -c 'echo ${CE_IMAGE:+inside}'"
    script = (
        f"srun {command}; CE_INHERIT=no srun {command};srun --container-image= {command} || echo $?"
    )
    done = cluster.run(["salloc", image_of(cluster), "sh", "-c", script])
    assert done.stdout == "inside\n\n125\n", done.stderr


def test_ce_environment_is_for_tools_that_can_pass_nothing(cluster: Cluster, demo: str) -> None:
    script = "touch /new && echo inside"
    done = srun(cluster, "-N2", "sh", "-c", script, env={"CE_ENVIRONMENT": demo})
    assert done.stdout == "inside\n" * 2, done.stderr
    other = cluster.edf('workdir = "/tmp"\n')
    words = [f"--environment={other}", "pwd"]
    assert srun(cluster, *words, env={"CE_ENVIRONMENT": demo}).stdout == "/tmp\n"
    done = srun(cluster, "true", env={"CE_ENVIRONMENT": "nowhere"})
    assert done.returncode == 125
    assert "no environment 'nowhere'" in causes(done)[0]


def test_steps_of_a_job_have_its_options(cluster: Cluster) -> None:
    words = [image_of(cluster), "--container-workdir=/tmp", "--container-writable"]
    script = "srun sh -c 'touch /new && pwd'; srun --container-workdir=/etc pwd"
    done = cluster.run(["salloc", *words, "sh", "-c", script])
    assert done.stdout == "/tmp\n/etc\n", done.stderr


# ---- beside pyxis


def pyxis(directory: Path) -> Path:
    """Build a plugin that has the name and options of pyxis."""
    source = directory / "pyxis.c"
    source.write_text(
        "#include <slurm/spank.h>\nSPANK_PLUGIN(pyxis, 1)\n"
        "static int take(int v, const char *a, int r) { (void)v, (void)a, (void)r; return 0; }\n"
        "static struct spank_option options[] = {\n"
        '\t{ "container-image", "IMAGE", "[pyxis] the real one", 1, 0, take },\n'
        '\t{ "container-mounts", "SRC", "[pyxis] the real one", 1, 0, take },\n'
        '\t{ "container-writable", 0, "[pyxis] the real one", 0, 0, take } };\n'
        "int slurm_spank_init(spank_t s, int c, char **v)\n"
        "{ (void)c, (void)v; for (int i = 0; i < 3; i++) spank_option_register(s, &options[i]);\n"
        "  return 0; }\n"
    )
    plugin = directory / "spank_pyxis.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plugin, source], check=True)
    return plugin


@pytest.mark.parametrize("is_first", [True, False])
def test_beside_pyxis_its_options_are_its_own(
    cluster: Cluster, demo: str, shared: Path, is_first: bool
) -> None:
    other = f"required {pyxis(shared)}"
    own = f"{line_of(cluster)} prefix={cluster.prefix} pyxis=on"
    env = own_stack(cluster, shared, *((other, own) if is_first else (own, other)))
    shown = srun(cluster, "--help", env=env)
    assert shown.stdout.count("[pyxis]") == 3
    assert "provided by both" not in shown.stderr + shown.stdout
    done = srun(cluster, f"--environment={demo}", "pwd", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    sentence = (
        "asks pyxis for a container, and --environment or CE_ENVIRONMENT asks another plugin:"
        " a step has only one"
    )
    for words, more, what in (
        (["--container-image=x"], {}, "--container-image"),
        (["-N", "1", "--container-image", "x"], {}, "--container-image"),
        (["--container-im=x"], {}, "--container-image"),
        ([], {"PYXIS_CONTAINER_IMAGE": "x"}, "PYXIS_CONTAINER_IMAGE"),
        ([], {"PYXIS_CONTAINER_NAME": "x"}, "PYXIS_CONTAINER_NAME"),
    ):
        done = srun(cluster, f"--environment={demo}", *words, "true", env=env | more)
        assert done.returncode == 125
        assert causes(done) == [f"ce: error: {what} {sentence}"]
        assert done.stderr.splitlines()[-1] == "ce: see: ce help pyxis-too"
    for words in (["--container-mounts=/a:/b"], ["-N1", "--container-writable"]):
        done = srun(cluster, f"--environment={demo}", *words, "true", env=env)
        assert done.returncode == 125
        option = words[-1].partition("=")[0]
        assert causes(done) == [
            f"ce: error: {option} is an option of pyxis here, which has no effect on the container"
            " of --environment or CE_ENVIRONMENT"
        ]
    script = shared / "script"
    script.write_text(f"#!/bin/sh\n#SBATCH --environment={demo}\n#SBATCH --container-image=x\n")
    assert causes(cluster.run(["sbatch", str(script)], env=env)) == [
        f"ce: error: --container-image {sentence}"
    ]
    words = [f"--environment={demo}", "echo", "--container-image=x"]
    assert srun(cluster, *words, env=env).stdout == "--container-image=x\n"


@pytest.fixture
def nodes_image(cluster: Cluster) -> Iterator[str]:
    """Yield an image with variables and a working directory that n2 alone has."""
    source = cluster.scratch / "of-n2"
    source.mkdir()
    shutil.copy(cluster.image("demo"), source / "own.sqsh")
    run = {"Env": ["OF_IMAGE=x y", "PATH=/usr/bin:/bin"], "WorkingDir": "/usr"}
    (source / "own.sqsh.json").write_text(json.dumps({"config": run}))
    with mounted_on("n2", str(source), "/mnt"):
        yield "/mnt/own.sqsh"
    shutil.rmtree(source)


def test_an_image_that_only_nodes_have_brings_what_it_says_of_itself(
    cluster: Cluster, nodes_image: str
) -> None:
    words = (f"--container-image={nodes_image}", "sh", "-c", 'echo "$OF_IMAGE"; pwd')
    done = srun(cluster, "-wn2", "-n2", *words)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["/usr", "/usr", "x y", "x y"]
    notice = f"this host has no '{nodes_image}': each node looks for it"
    assert done.stderr == f"ce: warning: --container-image: {notice}\n"
    done = srun(cluster, "-wn1", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert causes(done) == [f"ce: error: n1: image '{nodes_image}': No such file or directory"]


def test_an_environment_counts_before_an_image_that_only_nodes_have(
    cluster: Cluster, nodes_image: str
) -> None:
    edf = cluster.edf('workdir = "/tmp"\n[env]\nOF_IMAGE = "own"\n')
    words = (f"--environment={edf}", f"--container-image={nodes_image}")
    done = srun(cluster, "-wn2", *words, "sh", "-c", "echo $OF_IMAGE; pwd")
    assert done.stdout.splitlines() == ["own", "/tmp"], done.stderr


def test_a_damaged_image_that_only_nodes_have_is_refused(
    cluster: Cluster, nodes_image: str
) -> None:
    beside = cluster.scratch / "of-n2/own.sqsh.json"
    beside.write_text("{")
    done = srun(cluster, "-wn2", f"--container-image={nodes_image}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert cause.startswith(f"ce: error: n2: {nodes_image}.json: ")


def test_a_mistyped_image_is_not_left_to_the_nodes(cluster: Cluster) -> None:
    image = cluster.image("demo")
    done = srun(cluster, f"--container-image={str(image).replace('demo', 'dmeo')}", "true")
    assert done.returncode == 125
    assert f"ce: hint: did you mean '{image}'?" in done.stderr


def test_an_image_that_only_nodes_have_passes_no_rule_and_runs_no_entrypoint_unseen(
    cluster: Cluster, nodes_image: str
) -> None:
    words = ("-wn2", f"--container-image={nodes_image}")
    done = srun(cluster, *words, "--container-entrypoint", "true")
    assert done.returncode == 125
    assert "and its entrypoint is read where you submit" in done.stderr
    with site_on(cluster) as site:
        site.configure('[policy]\ndenied_images = ["/other"]\n')
        done = srun(cluster, *words, "true")
    assert done.returncode == 125
    assert "and the site has rules for images" in done.stderr
