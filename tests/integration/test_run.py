"""`ce run` behaves as the command: exit code, signals, streams, terminal."""

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import termios
import time
from pathlib import Path
from typing import Self

import pytest

from tests.integration.engine import Engine
from tests.integration.leftovers import command_line, processes, until

# ---- exit codes and signals ------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 125, 255])
def test_the_exit_code_is_the_commands_own(engine: Engine, code: int) -> None:
    done = engine.run(engine.edf(), "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_the_environment_may_be_named_as_for_srun(engine: Engine) -> None:
    ce, *_rest = engine.argv(edf := engine.edf())
    words = [ce, "run", f"--environment={edf}", "sh", "-c", "echo $1; exit 3", "--", "--pull"]
    with engine.popen(words) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (3, "--pull\n", "")


def _output(engine: Engine, *words: str) -> str:
    with engine.popen(list(words)) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def test_options_of_pyxis_stand_in_place_of_a_file(engine: Engine) -> None:
    ce, *_rest = engine.argv(engine.edf())
    data = engine.scratch / "data"
    data.write_text("mounted")
    options = (f"--container-image={engine.image('busybox')}", f"--container-mounts={data}:/x/y")
    script = "cat /x/y; touch /new 2>/dev/null || echo ' read-only'"
    assert _output(engine, ce, "run", *options, "sh", "-c", script) == "mounted read-only\n"
    writable = ("--container-writable", "--container-remap-root")
    script = "touch /new; id -u; echo $HOME"
    assert _output(engine, ce, "run", *options, *writable, "sh", "-c", script) == "0\n/root\n"


def test_the_command_enroot_starts_an_image_by_its_name(engine: Engine) -> None:
    enroot = str(engine.prefix / "libexec/container-engine/compat/enroot")
    create = (enroot, "create", "-f", "-n", "tool", str(engine.image("busybox")))
    assert _output(engine, *create) == ""
    assert "tool\n" in _output(engine, enroot, "list")
    start = (enroot, "start", "--rw", "-e", "A=1", "tool", "sh", "-c", "touch /new && echo $A")
    assert _output(engine, *start) == "1\n"
    assert _output(engine, enroot, "remove", "-f", "tool") == ""


def test_a_command_that_does_not_exist_is_127(engine: Engine) -> None:
    done = engine.run(engine.edf(), "no-such-command")
    assert done.returncode == 127
    cause, hint, see = done.stderr.splitlines()
    assert cause == "ce: error: no-such-command: command not found in the container"
    assert hint.startswith("ce: hint: commands are looked up in the image")
    assert see == "ce: see: ce help command-not-found"


@pytest.mark.parametrize(
    ("command", "why"),
    [("/etc/os-release", "it has no permission to be executed"), ("/etc", "it is a directory")],
)
def test_a_command_that_cannot_be_executed_is_126(engine: Engine, command: str, why: str) -> None:
    done = engine.run(engine.edf(), command)
    assert done.returncode == 126
    assert done.stderr.startswith(
        f"ce: error: {command}: cannot be executed in the container: {why}\nce: hint: "
    )


def test_a_container_that_cannot_be_had_is_125(engine: Engine) -> None:
    edf = engine.edf(image=Path("/no/such/image.sqsh"))
    assert "/no/such/image.sqsh" in engine.refusal(edf)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_death_by_signal_is_seen_as_such(engine: Engine, number: signal.Signals) -> None:
    done = engine.run(engine.edf(), "sh", "-c", f"kill -{number} $$")
    assert done.returncode == -number


def test_a_signal_from_outside_reaches_the_command(engine: Engine) -> None:
    script = 'trap "echo heard; exit 5" USR1; echo ready; while :; do sleep 0.1; done'
    with engine.start(engine.edf(), "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == "heard\n"
    assert process.returncode == 5


def test_a_container_ends_with_its_command_even_by_kill_9(engine: Engine) -> None:
    # The fixture checks that nothing is left.
    with engine.start(engine.edf(), "sh", "-c", "echo ready; sleep 1000") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.stdout.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("ending", ["exit 4", "kill -9 $$"])
def test_what_a_command_leaves_running_ends_with_it(engine: Engine, ending: str) -> None:
    """A process that outlived the command would have lost its image."""
    script = f"setsid sleep 1234 > /dev/null 2>&1 & sleep 1234 > /dev/null 2>&1 & {ending}"
    done = engine.run(engine.edf(), "sh", "-c", script)
    assert done.returncode == (4 if ending == "exit 4" else -signal.SIGKILL)

    def all_gone() -> bool:
        return "sleep 1234" not in map(str.strip, map(command_line, processes(engine.user.uid)))

    assert until(all_gone)


def test_what_runs_beside_the_container_lives_on(engine: Engine) -> None:
    with engine.popen(["sleep", "1000"]) as other:
        assert engine.run(engine.edf(), "true").returncode == 0
        assert other.poll() is None
        other.kill()


def test_a_command_has_no_child_that_it_did_not_make(engine: Engine) -> None:
    script = "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')"
    assert engine.output(engine.edf(image="demo"), "python3", "-c", script) == "none\n"


# ---- streams ---------------------------------------------------------------------------------


def test_input_and_output_are_the_callers(engine: Engine) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))
    assert engine.output(engine.edf(), "cat", given=text) == text


def test_stdout_and_stderr_stay_apart(engine: Engine) -> None:
    done = engine.run(engine.edf(), "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_a_reader_that_goes_away_ends_the_command_by_sigpipe(engine: Engine) -> None:
    with engine.start(engine.edf(), "yes") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "y\n"
        process.stdout.close()
    assert process.returncode == -signal.SIGPIPE


def test_nothing_of_the_session_holds_the_callers_pipe_open(engine: Engine) -> None:
    # A helper that held the other end of the pipe would block `read` after the command's end.
    with engine.start(engine.edf(), "sh", "-c", "exec >&-; sleep 0.2") as process:
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_the_command_gets_no_descriptors_but_the_three(engine: Engine) -> None:
    listed = engine.output(engine.edf(), "ls", "/proc/self/fd").split()
    assert len(listed) == 4, listed  # the fourth is that of ls


def test_arguments_arrive_byte_by_byte(engine: Engine) -> None:
    words = ["a b", "", "new\nline", "ä", '"quo\'ted"', "$HOME", "--", "-x", "*", "a=b"]
    printed = engine.output(engine.edf(), "sh", "-c", 'printf "[%s]" "$@"', "sh", *words)
    assert printed == "".join(f"[{word}]" for word in words)


# ---- a terminal ------------------------------------------------------------------------------


class Screen:
    """A user at a terminal."""

    def __init__(self, engine: Engine, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 80)
        os.fchown(slave, engine.user.uid, -1)
        self.process = engine.popen(words, {"TERM": "dumb"}, slave)
        os.close(slave)
        self.shown = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], deadline - time.monotonic())
            assert ready, f"no {text!r} in {self.shown!r}"
            try:
                self.shown += os.read(self.master, 4096).decode()
            except OSError:  # all processes have closed it
                raise AssertionError(f"no {text!r} in {self.shown!r}") from None
        self.shown = self.shown.partition(text)[2]

    def end(self) -> int:
        return self.process.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_unused: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def _inside(engine: Engine, image: str, *command: str) -> Screen:
    return Screen(engine, *engine.argv(engine.edf(image=image), *command))


def test_a_shell_at_a_terminal_has_it(engine: Engine) -> None:
    with _inside(engine, "demo", "bash", "--norc", "-i") as screen:
        screen.type("test -t 0 && test -t 1 && test -t 2 && echo is-a-$((40 + 2))\n")
        screen.wait_for("is-a-42")
        screen.type("stty size\n")
        screen.wait_for("24 80")
        screen.resize(50, 133)
        screen.type("stty size; tty\n")
        screen.wait_for("50 133")
        screen.wait_for("/dev/pts/")
        screen.type("exit 7\n")
        assert screen.end() == 7


@pytest.mark.parametrize("verb", ["run", "shell"])
def test_without_a_command_a_terminal_gets_a_shell_in_the_container(
    engine: Engine, verb: str
) -> None:
    edf = engine.edf(image="demo")
    with Screen(engine, engine.argv(edf)[0], verb, str(edf)) as screen:
        screen.type("head -1 /etc/os-release; exit 7\n")
        screen.wait_for("Container Engine demo")
        assert screen.end() == 7


def test_an_image_alone_is_an_environment(engine: Engine) -> None:
    ce, image = engine.argv(engine.edf())[0], str(engine.image("busybox"))
    with engine.popen(
        [ce, "run", "--image", image, "--", "sh", "-c", "echo $1", "-", "-v"]
    ) as done:
        out, err = done.communicate(timeout=60)
    assert (done.returncode, out, err) == (0, "-v\n", "")


def test_ctrl_c_ends_the_command_and_not_the_shell_around_it(engine: Engine) -> None:
    script = "trap 'echo interrupted; exit 4' INT; echo ready; while :; do sleep 0.1; done"
    with _inside(engine, "busybox", "sh", "-c", script) as screen:
        screen.wait_for("ready")
        screen.type("\x03")
        screen.wait_for("interrupted")
        assert screen.end() == 4


def test_ctrl_c_ends_a_command_that_does_not_mind_it(engine: Engine) -> None:
    with _inside(engine, "busybox", "sh", "-c", "echo ready; exec sleep 1000") as screen:
        screen.wait_for("ready")
        screen.type("\x03")
        assert screen.end() == -signal.SIGINT


def test_ctrl_z_stops_the_command_and_its_container_waits(engine: Engine) -> None:
    with _inside(engine, "demo", "bash", "--norc", "-i") as screen:
        # In pieces, because the terminal echoes what is typed. The script starts no programs: a job
        # may be stopped between vfork and execve, and then its shell, which waits for that, is not
        # stopped.
        job = 'echo wa""iting; exec sed -u s/ask/go""ing/'
        screen.type(f"sh -c '{job}'\n")
        screen.wait_for("waiting")
        screen.type("\x1a")
        screen.wait_for("Stopped")
        screen.type("fg\nask\n")
        screen.wait_for("going")
        screen.type("\x03")
        screen.wait_for("$ ")
        screen.type("exit 6\n")
        assert screen.end() == 6


def test_a_container_with_processes_of_its_own_shares_the_terminal(engine: Engine) -> None:
    edf = engine.edf('[annotations.com.ce]\nunshare = "pid"', "demo")
    run = shlex.join(engine.argv(edf))
    with Screen(engine, "bash", "--norc", "--noediting", "-i") as screen:
        # what is typed is echoed: no text that is waited for is part of it
        screen.type(f"bash -c '{run} true; read x; echo after-$x'\nit\n")
        screen.wait_for("after-it")
        screen.type(f"{run} seq 9 | bash -c 'cat >/dev/null; read x </dev/tty; echo pager-$x'\n")
        screen.type("down\n")
        screen.wait_for("pager-down")
        screen.type(f'{run} sed -u s/ask/go""ing/ | cat\nask\n')
        screen.wait_for("going")
        screen.type("\x1a")
        screen.wait_for("Stopped")
        screen.type("fg\nask\n")
        screen.wait_for("going")
        screen.type("\x04exit 6\n")
        assert screen.end() == 6
