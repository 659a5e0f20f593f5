"""The error of a failed build, from what Podman 4.3 and 5.4 printed."""

import pytest

from container_engine.base.process import CommandError
from container_engine.build.failure import Output, failure

_RECIPE = """\
FROM docker.io/a/b:1 AS base
RUN make
FROM base
COPY nothing /
RUN make
USER noone
"""
_COPY = 'Error: building at STEP "COPY nothing /": checking on sources under "/c": copier: stat: '
_PULL = "Error: creating build container: initializing source docker://docker.io/a/b:1: "
_PING = 'pinging container registry docker.io: Get "https://docker.io/v2/": dial tcp 127.0.0.1:1: '


def _heard(text: str) -> Output:
    output = Output()
    output.feed(text.encode())
    return output


@pytest.mark.parametrize(
    ("text", "status", "message", "hint"),
    [
        (
            f'[2/2] STEP 2/4: COPY nothing /\n{_COPY}"/nothing": no such file or directory\n',
            125,
            "D:4: COPY nothing /: checking on sources under",
            "COPY and ADD read below",
        ),
        (
            f'[2/2] STEP 2/4: COPY nothing /\n{_COPY}"/<<EOF": no such file or directory\n',
            125,
            "D:4: COPY nothing /: checking on sources under",
            "this Podman knows no here-documents",
        ),
        (
            '[2/2] STEP 2/4: COPY nothing /\nError: building at STEP "COPY nothing /": no items'
            ' matching glob "/c/nothing" copied (1 filtered out using /c/.dockerignore): no such'
            " file or directory\n",
            125,
            'D:4: COPY nothing /: no items matching glob "/c/nothing" copied (1 filtered out',
            "COPY and ADD read below the directory that ce build is given, less what .dockerignore",
        ),
        (
            '[2/2] STEP 2/4: COPY nothing /\nError: building at STEP "COPY nothing /": COPY only'
            " supports the --chmod=<permissions> --chown=<uid:gid> and the --from=<image|stage>"
            " flags\n",
            125,
            "D:4: COPY nothing /: COPY only supports the --chmod=<permissions>",
            "this Podman does not know the option: remove it (--link changes no file)",
        ),
        (
            "[1/2] STEP 2/2: RUN make\ncc x\nx.c: error: no\nmake: *** [x] Error 2\n"
            "subprocess exited with status 2\nsubprocess exited with status 2\n"
            'Error: building at STEP "RUN make": exit status 2\n',
            2,
            "D:2: RUN make: exit code 2: make: *** [x] Error 2",
            None,
        ),
        (
            "[2/2] STEP 3/4: RUN make\n 10%\r 50%\rReading package lists...\r\n"
            "\x1b[31mE: Unable to locate package x\x1b[0m\nsome advice\n"
            'Error: building at STEP "RUN make": while running runtime: exit status 100\n',
            100,
            "D:5: RUN make: exit code 100: E: Unable to locate package x",
            "is its name right, and does the same RUN line begin with apt-get update?",
        ),
        (
            "[2/2] STEP 3/4: RUN make\n/bin/sh: 1: make: not found\nbye\n"
            'Error: building at STEP "RUN make": while running runtime: exit status 127\n',
            127,
            "D:5: RUN make: exit code 127: /bin/sh: 1: make: not found",
            "the image has no such program at this line",
        ),
        (
            "[2/2] STEP 3/4: RUN make\nbash: line 1: make: command not found\n"
            'Error: building at STEP "RUN make": exit status 127\n',
            127,
            "D:5: RUN make: exit code 127: bash: line 1: make: command not found",
            "the image has no such program at this line",
        ),
        (
            "[2/2] STEP 3/4: RUN make\nall done\n"
            'Error: building at STEP "RUN make": exit status 1\n',
            1,
            "D:5: RUN make: exit code 1 after 'all done'",
            None,
        ),
        (
            "[2/2] STEP 3/4: RUN make\nsubprocess exited on killed\n"
            'subprocess exited with status 1\nError: building at STEP "RUN make": exit status 1\n',
            1,
            "D:5: RUN make: killed (SIGKILL)",
            "memory has probably run out",
        ),
        (
            "[2/2] STEP 3/4: RUN make\nprocess failed to start with error: fork/exec /bin/sh: no"
            " such file or directoryprocess exited with error: exec: not startedsubprocess exited"
            ' with status 1\nError: building at STEP "RUN make": exit status 1\n',
            1,
            "D:5: RUN make: exit code 1: /bin/sh: no such file or directory",
            "RUN needs a shell, which this image lacks",
        ),
        (
            "[2/2] STEP 3/4: RUN make\nError: internal error: history lists 1 non-empty layers,"
            " but we have 2 layers on disk\n",
            125,
            "D:5: RUN make: internal error: history lists 1 non-empty layers, but we have 2 layers"
            " on disk",
            "this Podman builds on no image without a history: ce import -o base.sqsh IMAGE",
        ),
        (
            f"[1/2] STEP 1/2: FROM docker.io/a/b:1 AS base\n{_PULL}{_PING}connection refused\n",
            125,
            "D:1: FROM docker.io/a/b:1 AS base: docker.io cannot be reached: connection refused",
            None,
        ),
        (
            f"[1/2] STEP 1/2: FROM docker.io/a/b:1 AS base\n{_PULL}reading manifest 1: unauthorized"
            ": authentication required\n",
            125,
            "D:1: FROM docker.io/a/b:1 AS base: reading manifest 1: unauthorized",
            "ce login docker.io",
        ),
        (
            "Error: parsing main Dockerfile: /c/D: USER requires exactly one argument\n",
            125,
            "D:6: USER requires exactly one argument",
            None,
        ),
        (
            "Error: writing blob: processing tar file(write /x: no space left on device)\n",
            125,
            "D: writing blob: processing tar file(write /x: no space left on device)",
            "builds work in TMPDIR",
        ),
    ],
)
def test_the_error_has_line_instruction_reason_and_remedy(
    text: str, status: int, message: str, hint: str | None
) -> None:
    error = failure("D", _RECIPE, _heard(text), CommandError(["podman"], status, text), {})
    assert error.message.startswith(message)
    assert (error.hint or "").startswith(hint or "")
    assert bool(error.hint) == bool(hint)


def test_a_line_that_has_apt_get_update_is_not_asked_for_it() -> None:
    line = "RUN apt-get -qq update && apt-get install -y nosuch"
    said = _heard(f"STEP 2/2: {line}\nE: Unable to locate package nosuch\n")
    error = failure("D", f"FROM a\n{line}\n", said, CommandError(["podman"], 100, ""), {})
    assert error.message == f"D:2: {line}: exit code 100: E: Unable to locate package nosuch"
    assert error.hint == "is its name right, and does the image's release have this package?"


def test_a_step_is_counted_without_the_lines_that_were_added() -> None:
    added = ["FROM a", "ENV APT_CONFIG=/dev/shm/container-engine-apt.conf", "RUN make"]
    steps = [*added, f"ENV CE_INPUTS={'a' * 64}", "RUN --mount=source=x make", "RUN make"]
    output = _heard("".join(f"STEP {n}/6: {step}\n" for n, step in enumerate(steps, start=1)))
    assert (output.step, output.number) == ("RUN make", 4)


def test_the_last_step_is_found_in_output_that_arrives_in_any_pieces() -> None:
    output = Output()
    for piece in (
        b"[1/2] STEP 1/2: FROM a\nnoise STEP 9/9: x\n[2/2] ST",
        b"EP 2/3: RUN ma",
        b"ke\n",
    ):
        output.feed(piece)
    output.feed(b"a program's output without an end")
    assert (output.step, output.number) == ("RUN make", 2)
