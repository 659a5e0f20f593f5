"""`make recording`: record a session in a real terminal as docs/pictures/session.svg.

The input is below; the output is whatever the engine prints.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "session.svg"
COLUMNS, LINES = 100, 38
PROMPT = "\x1b[m$ "  # begins with an escape sequence with which no output ends
KEY_SECONDS, READ_SECONDS, LAST_SECONDS = 0.035, 1.6, 4.0
ANSWER_SECONDS = 30.0
SETTLE_SECONDS = 2.0  # until Slurm has ended the previous job; not recorded
EDF = """\
base_environment = "demo"
mount = ["${HOME}"]

[env]
GREETING = "hello from ${USER}"
"""
SESSION = (
    "cat ~/.edf/mine.toml",
    "ce validate mine",
    "sed -i 's/^mount /mounts /' ~/.edf/mine.toml; ce validate mine",
    "srun -N2 -n4 -l --environment=mine bash -c '. /etc/os-release; echo $GREETING, $PRETTY_NAME'",
    "srun -N2 --environment=mne hostname",
    "ce trace last",
)


class Terminal:
    """A shell of the sandbox's user behind a pseudo-terminal, and its output with times."""

    def __init__(self) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
            os.execv(
                ROOT / "sandbox" / "run", ["run", "bash", "--noprofile", "--norc", "--noediting"]
            )
        self.events: list[tuple[float, str]] = []
        # Seconds into the recording: measured while a command prints, fixed pauses between.
        self.clock = 0.0

    def show(self, text: str, seconds: float) -> None:
        self.events.append((self.clock, text))
        self.clock += seconds

    def read(self, until: str) -> Iterator[tuple[float, str]]:
        """Yield the output up to and including `until`, each piece with the seconds it took."""
        seen, last, end = "", time.monotonic(), time.monotonic() + ANSWER_SECONDS
        while not seen.endswith(until):
            ready, _, _ = select.select([self._fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise SystemExit(f"recording: error: no answer but {seen!r}")
            piece = os.read(self._fd, 65536).decode(errors="replace")
            seen += piece
            yield time.monotonic() - last, piece
            last = time.monotonic()

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def quietly(self, command: str) -> None:
        self.send(command + "\n")
        for _piece in self.read(PROMPT):
            pass

    def typed(self, command: str) -> None:
        for key in command:
            self.show(key, KEY_SECONDS)
        self.send(command + "\n")
        left = len(command) + 2  # the terminal echoes the input
        for seconds, piece in self.read(PROMPT):
            self.clock += seconds
            if left == len(command) + 2:
                self.show("\r\n", 0)
            shown, left = piece[left:], max(0, left - len(piece))
            self.show(shown, 0)
        self.clock += READ_SECONDS
        time.sleep(SETTLE_SECONDS)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGHUP)
        os.waitpid(self.pid, 0)


def record() -> str:
    """Return the session in version 2 of the asciicast format."""
    terminal = Terminal()
    terminal.send(f"stty cols {COLUMNS} rows {LINES}; cd; PS1=$'\\e[m$ '\n")
    for _piece in terminal.read(PROMPT):
        pass
    terminal.quietly(f"mkdir -p ~/.edf; printf %s '{EDF}' > ~/.edf/mine.toml; clear")
    terminal.show(PROMPT, 1)
    for command in SESSION:
        terminal.typed(command)
    terminal.show("", LAST_SECONDS)
    terminal.show("", 0)
    terminal.quietly("rm -f ~/.edf/mine.toml")
    terminal.close()
    head = {"version": 2, "width": COLUMNS, "height": LINES}
    lines = [head, *([round(moment, 3), "o", text] for moment, text in terminal.events)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def main() -> int:
    cast = ROOT / "build" / "session.cast"
    cast.parent.mkdir(exist_ok=True)
    cast.write_text(record(), encoding="utf-8")
    render = [sys.argv[1], "render", str(cast), str(PICTURE), "-t", "window_frame", "-m", "17"]
    code = subprocess.run(render, stdout=subprocess.DEVNULL).returncode
    if code == 0:
        PICTURE.write_text(once(PICTURE.read_text(encoding="utf-8")), encoding="utf-8")
    return code


def once(picture: str) -> str:
    """Return the picture so that it plays once; printed, or without motion, it is its end."""
    last = re.findall(r"translateY\((-?[0-9]+px)\)", picture)[-1]
    still = f"#screen_view {{ animation: none !important; transform: translateY({last}); }}"
    media = f"@media print, (prefers-reduced-motion: reduce) {{ {still} }}"
    playing = re.sub(r"(animation-iteration-count: ?)infinite", r"\g<1>1", picture)
    return re.sub(r"(@keyframes roll)", rf"{media}\n            \1", playing, count=1)


if __name__ == "__main__":
    sys.exit(main())
