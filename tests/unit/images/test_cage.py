"""The cage of a program that reads other users' images on the submit host."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.process import CommandError
from container_engine.images.confine import cage
from container_engine.images.squashfs import unsquashfs
from tests.unit import squashfs

# prints a word for each attempt: "done", or the error
_PROBE = """
import ctypes, os, resource, signal, socket, subprocess, sys
where, victim = sys.argv[1], int(sys.argv[2])
def attempt(name, do):
    try:
        do()
    except (OSError, MemoryError) as error:
        print(name, type(error).__name__)
    else:
        print(name, "done")
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    if getattr(libc, function)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), function)
attempt("read", lambda: open(f"{where}/file").read())
attempt("write", lambda: os.open(f"{where}/file", os.O_WRONLY))
attempt("create", lambda: os.open(f"{where}/new", os.O_RDONLY | os.O_CREAT))
attempt("unlink", lambda: os.unlink(f"{where}/file"))
attempt("rename", lambda: os.rename(f"{where}/file", f"{where}/other"))
attempt("link", lambda: os.link(f"{where}/file", f"{where}/other"))
attempt("mkdir", lambda: os.mkdir(f"{where}/directory"))
attempt("chmod", lambda: os.chmod(f"{where}/file", 0o777))
attempt("truncate", lambda: os.truncate(f"{where}/file", 0))
attempt("xattr", lambda: os.setxattr(f"{where}/file", "user.a", b"b"))
attempt("socket", lambda: socket.socket(socket.AF_INET))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("kill", lambda: os.kill(victim, signal.SIGTERM))
attempt("tgkill", lambda: call("tgkill", victim, victim, signal.SIGTERM))
attempt("ptrace", lambda: call("ptrace", 16, victim, 0, 0))
attempt("namespaces", lambda: call("unshare", 0x10000000))
attempt("mount", lambda: call("mount", b"none", where.encode(), b"tmpfs", 0, 0))
attempt("memory", lambda: bytearray(5 << 30))
status = dict(line.split()[:2] for line in open("/proc/self/status") if len(line.split()) > 1)
print("privileges", status["NoNewPrivs:"], int(status["CapEff:"], 16) & ~4)
print("core", *resource.getrlimit(resource.RLIMIT_CORE))
print("child", subprocess.run(["true"]).returncode)
"""


@pytest.fixture
def victim() -> int:
    return os.getpid()


def test_in_the_cage_files_can_be_read_and_nothing_else_can_be_done(
    tmp_path: Path, victim: int
) -> None:
    (tmp_path / "file").write_text("content")
    argv = [sys.executable, "-I", "-c", _PROBE, str(tmp_path), str(victim)]
    done = subprocess.run(
        argv, preexec_fn=cage.Cage().close, capture_output=True, text=True, timeout=60
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said.pop("read") == "done", done.stderr
    assert said.pop("privileges") == "1 0"
    assert said.pop("core") == "0 0"
    assert said.pop("child") == "0"
    assert said.pop("memory") == "MemoryError"
    assert len(said) == 16
    assert {name for name, word in said.items() if word != "PermissionError"} == set(), said
    assert (tmp_path / "file").read_text() == "content"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_filter_of_each_machine_is_one_that_the_kernel_takes(machine: str) -> None:
    code = cage.program(machine)
    assert (len(code) % 8, len(code) // 8 <= 4096) == (0, True)


def test_images_are_read_in_the_cage(
    tmp_path: Path, need_tool: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tool("unsquashfs")
    image = squashfs.make(tmp_path / "i.sqsh", {"etc/rc": "content"})
    assert unsquashfs(["-cat"], str(image), ["etc/rc"], os.environ, 60) == b"content"
    assert b"/etc/rc" in unsquashfs(["-ll"], str(image), (), os.environ, 60)
    with pytest.raises(CommandError):
        unsquashfs(["-d", str(tmp_path / "unpacked")], str(image), (), os.environ, 60)
    assert not (tmp_path / "unpacked").exists()
    program = tmp_path / "bin/unsquashfs"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ngrep NoNewPrivs /proc/self/status\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert unsquashfs([], str(image), (), os.environ, 60).split() == [b"NoNewPrivs:", b"1"]
