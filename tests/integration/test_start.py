"""Stages between Podman and the command: entrypoints, hooks, start-up, the end."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from container_engine.node.container import podman
from container_engine.node.container.description import INIT_PATH, Paths
from tests.integration.engine import Engine
from tests.integration.leftovers import comm, command_line, processes, until

# ---- entrypoint ------------------------------------------------------------------------------


def with_entrypoint(engine: Engine, script: str, extra: str = "") -> Path:
    """Write an EDF whose image has this script as its entrypoint."""
    tree = engine.scratch / "tree"
    busybox = engine.scratch / "busybox"
    argv = [
        "unsquashfs",
        "-quiet",
        "-no-progress",
        "-d",
        str(busybox),
        str(engine.image("busybox")),
    ]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    busybox.rename(tree)
    (tree / "entry.sh").write_text(f"#!/bin/sh\n{script}\n")
    (tree / "entry.sh").chmod(0o755)
    image = engine.scratch / "entry.sqsh"
    argv = ["mksquashfs", str(tree), str(image), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    config = {"Entrypoint": ["/entry.sh", "a word"], "Env": ["PATH=/bin", "FROM_IMAGE=image"]}
    image.with_name(f"{image.name}.json").write_text(json.dumps({"config": config}))
    return engine.edf(f"entrypoint = true\n{extra}", image)


def test_the_command_has_what_the_entrypoint_exported(engine: Engine) -> None:
    script = 'word=$1; shift; export MADE="by $word" FROM_IMAGE=changed; exec "$@"'
    edf = with_entrypoint(engine, script)
    printed = engine.output(edf, "sh", "-c", 'echo "$MADE|$FROM_IMAGE|$0"', "sh")
    assert printed == "by a word|changed|sh\n"


def test_the_entrypoint_sees_the_edfs_environment_and_has_the_last_word(engine: Engine) -> None:
    script = 'shift; export SEEN="$MINE" MINE=its; exec "$@"'
    edf = with_entrypoint(engine, script, '[env]\nMINE = "edf"')
    assert engine.output(edf, "sh", "-c", 'echo "$SEEN|$MINE"') == "edf|its\n"


def test_what_the_entrypoint_unsets_is_gone(engine: Engine) -> None:
    edf = with_entrypoint(
        engine, 'shift; unset MINE; exec "$@"', '[env]\nMINE = "edf"\nOTHER = "edf"'
    )
    assert engine.output(edf, "sh", "-c", "echo ${MINE-none} $OTHER") == "none edf\n"


def test_what_the_entrypoint_prints_is_shown_where_the_edf_asks_for_it(engine: Engine) -> None:
    script = 'shift; echo "hello, $FROM_IMAGE"; echo careful >&2; exec "$@"'
    loud = "[annotations]\ncom.pyxis.entrypoint_log = true"
    said = engine.output(with_entrypoint(engine, script, loud), "echo", "the command")
    assert said == "hello, image\ncareful\nthe command\n"


def test_what_the_entrypoint_prints_is_silent_otherwise(engine: Engine) -> None:
    edf = with_entrypoint(engine, 'shift; echo hello; exec "$@"')
    assert engine.output(edf, "echo", "the command") == "the command\n"


def test_an_entrypoint_is_not_run_unless_the_edf_says_so(engine: Engine) -> None:
    edf = with_entrypoint(engine, "exit 3")
    edf.write_text(edf.read_text().replace("entrypoint = true", ""))
    assert engine.output(edf, "echo", "works") == "works\n"


def test_an_entrypoint_that_fails_ends_the_start(engine: Engine) -> None:
    message = engine.refusal(with_entrypoint(engine, "echo no >&2; exit 3"))
    assert "the image's entrypoint ended instead of executing its arguments: " in message
    assert "(no)" in message


def test_an_entrypoint_that_is_missing_is_named(engine: Engine) -> None:
    image = engine.linked_image({"Entrypoint": ["/no/such/entry"], "Env": ["PATH=/bin"]})
    message = engine.refusal(engine.edf("entrypoint = true", image))
    assert "/no/such/entry" in message


@pytest.mark.parametrize("way", ["crun", "podman"])
@pytest.mark.parametrize(
    ("workdir", "found"), [("/bin", "/bin"), ("/not/there", "/not/there"), ("w", "/w"), ("/", "/")]
)
def test_an_entrypoint_starts_in_the_images_working_directory(
    engine: Engine, way: str, workdir: str, found: str
) -> None:
    """Tasks start where the EDF says."""
    program = "./sh" if workdir == "/bin" else "/bin/sh"
    entrypoint = [program, "-c", 'export AT="$(pwd)"; exec "$@"', "entry"]
    config = {"Entrypoint": entrypoint, "WorkingDir": workdir, "Env": ["PATH=/bin"]}
    image = engine.linked_image(config)
    edf = engine.edf(f'entrypoint = true\nworkdir = "/etc"\n{_started_by(way)}', image)
    assert engine.output(edf, "sh", "-c", 'echo "$AT $(pwd)"') == f"{found} /etc\n"


@pytest.mark.parametrize("way", ["crun", "podman"])
@pytest.mark.parametrize(("flag", "has_it"), [("", False), (":ro", False), (":ro", True)])
def test_the_images_working_directory_is_not_made_in_what_is_mounted(
    engine: Engine, way: str, flag: str, *, has_it: bool
) -> None:
    mounted = engine.scratch / "mounted"
    (mounted / "app" if has_it else mounted).mkdir(parents=True)
    mounted.chmod(0o777)
    entrypoint = ["/bin/sh", "-c", 'export AT="$(pwd)"; exec "$@"', "entry"]
    config = {"Entrypoint": entrypoint, "WorkingDir": "/mnt/app", "Env": ["PATH=/bin"]}
    settings = f'entrypoint = true\nworkdir = "/etc"\nmounts = ["{mounted}:/mnt{flag}"]'
    edf = engine.edf(f"{settings}\n{_started_by(way)}", engine.linked_image(config))
    assert engine.output(edf, "sh", "-c", "echo $AT") == f"{'/mnt/app' if has_it else '/'}\n"
    assert [path.name for path in mounted.iterdir()] == ["app"] * has_it


@pytest.mark.parametrize("way", ["crun", "podman"])
def test_an_entrypoint_that_is_not_below_the_working_directory_is_answered(
    engine: Engine, way: str
) -> None:
    config = {"Entrypoint": ["./entry.sh"], "WorkingDir": "/bin", "Env": ["PATH=/bin"]}
    message = engine.refusal(
        engine.edf(f"entrypoint = true\n{_started_by(way)}", engine.linked_image(config))
    )
    assert message.endswith("(./entry.sh: No such file or directory, started in /bin)")


def _started_by(way: str) -> str:
    return f'[annotations]\n"com.ce.start" = "{way}"'


def test_an_entrypoint_that_never_goes_on_is_given_up(engine: Engine) -> None:
    edf = with_entrypoint(engine, "sleep 1000")
    message = engine.with_site("start_timeout_s = 2").refusal(edf)
    assert message == "the container did not start within 2 s"


def test_pipes_in_an_entrypoint_end_as_usual(engine: Engine) -> None:
    # If SIGPIPE were ignored, yes would complain instead of being killed.
    script = (
        '{ yes; echo $? >/code; } | head -1 >/dev/null; export CODE=$(cat /code); shift; exec "$@"'
    )
    edf = with_entrypoint(engine, script)
    assert engine.output(edf, "sh", "-c", "echo $CODE") == "141\n"


# ---- annotations and hooks -------------------------------------------------------------------


def dumped_config(engine: Engine, hooks: Path, text: str) -> Mapping[str, object]:
    """Return a container's OCI configuration, copied by a hook that runs before the start."""
    copy = engine.scratch / "config.json"
    copy.touch()
    copy.chmod(0o666)
    script = hooks / "hook.sh"
    script.write_text(
        "#!/usr/bin/python3\nimport json, shutil, sys\n"
        """bundle = json.load(sys.stdin)["bundle"]\n"""
        f'shutil.copyfile(f"{{bundle}}/config.json", "{copy}")\n'
    )
    script.chmod(0o755)
    hook = {
        "version": "1.0.0",
        "hook": {"path": str(script)},
        "when": {"always": True},
        "stages": ["prestart"],
    }
    (hooks / "dump.json").write_text(json.dumps(hook))
    site = engine.with_site(f'hooks_dirs = ["{hooks}"]')
    assert site.output(engine.edf(text), "echo", "works") == "works\n"
    config: Mapping[str, object] = json.loads(copy.read_text())
    return config


def test_annotations_reach_the_runtime_unchanged(engine: Engine, hooks: Path) -> None:
    values = {
        "com.example.plain": "value",
        "com.example.comma": "a,b",
        "com.example.equals": "a=b",
        "com.example.quotes": "\"double\" 'single'",
        "com.example.newline": "first\nsecond",
        "com.example.empty": "",
    }
    lines = "\n".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items())
    config = dumped_config(engine, hooks, f"[annotations]\n{lines}\ncom.example.number = 7")
    annotations = config["annotations"]
    assert isinstance(annotations, dict)
    wanted = {**values, "com.example.number": "7"}
    assert {name: annotations.get(name) for name in wanted} == wanted


def test_the_runtime_is_asked_for_no_more_than_the_design_says(engine: Engine, hooks: Path) -> None:
    config = dumped_config(engine, hooks, "")
    linux, process = config["linux"], config["process"]
    assert isinstance(linux, dict)
    assert isinstance(process, dict)
    kinds = {namespace["type"] for namespace in linux["namespaces"]}
    assert kinds == {"pid", "user", "mount"}
    assert "seccomp" not in linux
    assert process["args"] == [INIT_PATH]
    assert (process["user"]["uid"], process["user"]["gid"]) == (engine.user.uid, engine.user.gid)


def test_a_hook_that_fails_ends_the_start(engine: Engine, hooks: Path) -> None:
    hook = {
        "version": "1.0.0",
        "hook": {"path": "/bin/false"},
        "when": {"always": True},
        "stages": ["prestart"],
    }
    (hooks / "bad.json").write_text(json.dumps(hook))
    message = engine.with_site(f'hooks_dirs = ["{hooks}"]').refusal(engine.edf())
    assert "hook" in message


# ---- Podman's internals ----------------------------------------------------------------------


def test_podman_believes_that_it_is_in_its_user_namespace() -> None:
    """`_CONTAINERS_*` are Podman's internals; this checks those that we need.

    Without them Podman would make a namespace of its own through newuidmap and /etc/subuid. If this
    fails with a new version of Podman, adapt `program_environment` in node/container/podman.py.
    """
    paths = Paths("/nowhere", "/nowhere")
    variables = {
        name: value
        for name, value in podman.program_environment(paths, 1000, 1000).items()
        if name.startswith("_CONTAINERS")
    }
    assert set(variables) == {
        "_CONTAINERS_USERNS_CONFIGURED",
        "_CONTAINERS_ROOTLESS_UID",
        "_CONTAINERS_ROOTLESS_GID",
    }
    program = shutil.which("podman")
    assert program is not None, "podman is not installed (make deps)"
    binary = Path(program).read_bytes()
    assert not [name for name in variables if name.encode() not in binary]


def test_podman_makes_no_pause_process_and_no_files_of_its_own(stranger: Engine) -> None:
    assert stranger.output(stranger.edf(), "echo", "works") == "works\n"
    assert list(stranger.user.home.rglob("*")) in ([], _cache(stranger))
    assert not Path(f"/run/user/{stranger.user.uid}").exists()


def _cache(engine: Engine) -> list[Path]:
    """Return all files below the home, those of the engine's cache last."""
    return sorted(engine.user.home.rglob("*"), key=lambda path: "container-engine" in str(path))


# ---- the session -----------------------------------------------------------------------------


def test_three_helpers_and_a_reaper_stay_beside_the_command(engine: Engine) -> None:
    before = {path.name for path in processes(engine.user.uid)}
    with engine.start(engine.edf(), "sh", "-c", "echo ready; read answer") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def helpers() -> list[str]:
            new = [p for p in processes(engine.user.uid) if p.name not in before]
            return [command_line(p) for p in new if p.name != str(process.pid)]

        # crun, or Podman, may not have ended yet
        assert until(lambda: len(helpers()) == 4 + sum("conmon" in h for h in helpers())), helpers()
        assert sum("/ce-reaper processes " in line for line in helpers()) == 1
        process.communicate("\n", 20)


@pytest.mark.parametrize("name", ["ce-image", ".ce-init", "ce-guard"])
def test_when_a_part_of_the_session_dies_nothing_is_left_of_it(engine: Engine, name: str) -> None:
    with engine.start(engine.edf(), "sh", "-c", "echo ready; read answer") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        parts = [path for path in processes(engine.user.uid) if comm(path) == name]
        assert parts, f"no process {name}"
        for path in parts:
            os.kill(int(path.name), 9)
        # also a command that reads nothing of the image; if it has not read all of its own program
        # yet, the kernel may be first
        by_kernel = {signal.SIGBUS} if name == "ce-image" else set()
        assert -process.wait(20) in {signal.SIGKILL, *by_kernel}
        assert process.communicate() == ("", "")


def test_what_a_command_leaves_running_is_ended_before_its_image(engine: Engine) -> None:
    """A script would go on with its next command if the image were gone, and programs fail."""
    place = engine.scratch / "place"
    place.mkdir()
    place.chmod(0o777)
    edf = engine.edf(f'mounts = ["{place}:/mine"]')
    script = '(while :; do /bin/true || echo "$?" >>/mine/lost; done) & exit 4'
    for _ in range(8):
        assert engine.run(edf, "sh", "-c", script).returncode == 4
    assert not (place / "lost").exists()


def test_two_containers_of_a_user_do_not_meet(engine: Engine) -> None:
    edf = engine.edf()
    script = "echo $$ > /mine; echo ready; read answer; cat /mine"
    with engine.start(edf, "sh", "-c", script) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        assert engine.output(edf, "sh", "-c", "ls /mine 2>/dev/null || echo none") == "none\n"
        assert first.communicate("\n", 20)[0] == f"{first.pid}\n"


def test_an_environment_without_a_container_runs_on_the_host(engine: Engine) -> None:
    edf = engine.scratch / "host.toml"
    edf.write_text('image = ""\n')
    done = engine.run(edf, "sh", "-c", "grep -c ce-busybox /etc/os-release; exit 3")
    assert done.returncode == 3
    assert done.stdout == "0\n"
    assert "host" in done.stderr


# ---- start-up --------------------------------------------------------------------------------


@pytest.mark.parametrize("image", ["debian", "busybox"])
def test_a_start_up_step_may_end_the_steps_and_what_was_exported_counts(
    engine: Engine, image: str
) -> None:
    steps = '["export A=1", "[ $$A = 2 ] || exit 0", "export A=3"]'
    edf = engine.edf(f"startup = {steps}\n", image)
    assert engine.output(edf, "sh", "-c", 'echo "$A ${PATH:+with a path}"') == "1 with a path\n"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("exec true", "start-up steps ended before the last one: does one of them call exec?"),
        ("true;" * 30_000, "start-up steps have 150"),
    ],
    ids=["exec", "long"],
)
def test_steps_that_cannot_hand_on_their_environment_start_no_command(
    engine: Engine, step: str, said: str
) -> None:
    edf = engine.edf(f'startup = ["{step}"]\n', "debian")
    done = engine.run(edf, "echo", "ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{edf}:2: {said}" in done.stderr
