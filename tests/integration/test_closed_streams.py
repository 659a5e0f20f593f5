"""Commands of a caller that has closed its standard input, output or error, as cron wrappers do."""

import re
import shlex

import pytest

from container_engine.cli.command_line.verb_table import verbs
from tests.integration.engine import Engine

CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
# usage errors, which each of the programs has in its main
_PROGRAMS = ("guard", "image", "enter", "join", "reaper", "user", "prolog")


def _codes(engine: Engine, commands: dict[str, str], streams: str) -> dict[str, int]:
    """Return the exit code of each command line of a shell, run with these redirections."""
    script = "exec 9>&1 >/dev/null 2>&1 </dev/null\n" + "".join(
        f"({line}) {streams}; echo {shlex.quote(name)} $? >&9\n" for name, line in commands.items()
    )
    with engine.popen(["sh", "-c", script], {"PATH": f"{engine.prefix}/bin:/usr/bin:/bin"}) as run:
        out, err = run.communicate(timeout=120)
    assert err == ""
    words = (line.rsplit(" ", 1) for line in out.splitlines())
    return {name: int(code) for name, code in words}


def _real(engine: Engine) -> dict[str, str]:
    """Return command lines that do something, by names."""
    demo, image = engine.edf(), engine.image("busybox")
    root = engine.scratch / "root"
    (root / "bin").mkdir(parents=True)
    enroot = f"{engine.prefix}/libexec/container-engine/compat/enroot"
    return {
        "run": f"ce run {demo} -- sh -c 'exit 7'",
        "run, which writes": f"ce run {demo} -- sh -c 'echo out; echo err >&2; exec cat'",
        "shell": f"ce shell {demo}",
        "validate": f"ce validate {demo}",
        "plan": f"ce plan {demo}",
        "images": "ce images",
        "import": f"ce import -f -o {engine.scratch}/imported.sqsh {root}",
        "import of nothing": f"ce import oci:{engine.scratch}/none",
        "exec": "ce exec 1 -- true",
        "planner": f"{engine.prefix}/libexec/container-engine/plan {demo}",
        "enroot create": f"{enroot} create -f -n one {image}",
        "enroot start": f"{enroot} start {image} sh -c 'exit 9'",
        "enroot list": f"{enroot} list",
        "enroot remove": f"{enroot} remove one",
    }


def test_help_of_every_verb_ends_as_with_its_streams_open(engine: Engine) -> None:
    enroot = f"{engine.prefix}/libexec/container-engine/compat/enroot"
    helps = {verb: f"ce {verb} --help" for verb in verbs()}
    helps |= {
        f"enroot {verb}": f"{enroot} {verb} --help"
        for verb in ("import", "create", "list", "exec", "remove", "export", "start", "version")
    }
    # each verb has each of the streams closed, one at a time
    for streams in CLOSED[:3]:
        assert _codes(engine, helps, streams) == dict.fromkeys(helps, 0), streams


def test_commands_end_with_the_code_that_they_have_with_open_streams(engine: Engine) -> None:
    commands = _real(engine)
    right = _codes(engine, commands, "")
    # a shell needs a terminal
    assert (right["run"], right["run, which writes"], right["shell"]) == (7, 0, 2)
    assert (right["validate"], right["import"], right["enroot start"]) == (0, 0, 9)
    for streams in CLOSED:
        assert _codes(engine, commands, streams) == right, streams


def test_a_container_gets_no_file_of_the_engine_as_a_stream(engine: Engine) -> None:
    named = engine.scratch / "named"
    edf = engine.edf(f'mounts = ["{engine.scratch}"]')
    script = f"readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 >{named}"
    for closed in CLOSED:
        _codes(engine, {"run": f"ce run {edf} -- sh -c {shlex.quote(script)}"}, closed)
        assert not re.search("memfd|socket", named.read_text()), closed


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_of_the_engine_ends_as_with_its_streams_open(engine: Engine, name: str) -> None:
    program = f"{engine.prefix}/libexec/container-engine/ce-{name}"
    right = _codes(engine, {name: program}, "")
    for streams in CLOSED:
        assert _codes(engine, {name: program}, streams) == right
