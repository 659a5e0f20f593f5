"""The output of a failed program, as one line."""

import os
import resource
import subprocess
import sys
import termios

import pytest

from container_engine.base.errors import SiteError
from container_engine.base.process import CommandError, merged, output


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo some; echo 'sh: error: no such node' >&2; exit 3", "sh: error: no such node"),
        ("echo 'no such node' >&2; exit 3", "sh: no such node"),
        ("exit 3", "sh: exit code 3"),
        ("kill -9 $$", "sh: ended by signal 9"),
    ],
)
def test_the_message_of_a_failed_program_has_its_name_once(script: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        output(["sh", "-c", script], os.environ, 10)
    assert caught.value.message == message


def test_a_program_of_the_system_does_not_get_the_loaders_variables_of_the_job() -> None:
    own = {"LD_PRELOAD": "/none.so", "LD_LIBRARY_PATH": "/none", "PYTHONPATH": "/none"}
    printed = output(["env"], {**os.environ, **own, "OLD_LD_X": "kept"}, 10).decode()
    assert "OLD_LD_X=kept" in printed
    assert not [line for line in printed.splitlines() if line.startswith(("LD_", "PYTHON"))]


def test_a_program_whose_messages_have_no_place_is_not_started() -> None:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, usual[1]))
    try:
        with pytest.raises(SiteError, match="cannot start true: too many open") as caught:
            output(["true"], {}, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert caught.value.see == "limit-reached"
    assert "ulimit -n" in (caught.value.hint or "")


@pytest.mark.parametrize("is_shown", [True, False])
def test_the_output_of_a_build_is_heard_as_one_stream_and_ends_the_error(
    capfd: pytest.CaptureFixture[str], *, is_shown: bool
) -> None:
    heard: list[bytes] = []
    script = "echo one; echo two >&2; test -t 2 && echo terminal; echo 'Error: three' >&2; exit 3"
    with pytest.raises(CommandError) as caught:
        merged(["sh", "-c", script], os.environ, 10, heard.append, is_shown=is_shown)
    text = "one\ntwo\nError: three\n"
    assert b"".join(heard).decode() == text
    assert capfd.readouterr().err == (text if is_shown else "")
    assert (caught.value.status, caught.value.complaint) == (3, "three")
    assert caught.value.details.endswith(text)


def test_a_program_shown_on_a_terminal_has_one() -> None:
    reader, writer = os.openpty()
    code = (
        "import os; from container_engine.base.process import merged;"
        "merged(['sh', '-c', 'test -t 1 && test -t 2 && stty size <&2 && echo both'],"
        " os.environ, 10, lambda _: None, is_shown=True)"
    )
    termios.tcsetwinsize(writer, (7, 99))
    done = subprocess.run([sys.executable, "-c", code], stderr=writer, check=False)
    assert (done.returncode, os.read(reader, 100)) == (0, b"7 99\r\nboth\r\n")
    os.close(reader)
    os.close(writer)
