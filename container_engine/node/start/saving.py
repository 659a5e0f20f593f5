"""Pack a container into an image at the end of its step, for `--container-save`.

The launcher stays until the plugin closes its side of the socket, which it does when the last task
of the node has ended, and before it ends the session (spank_plugin/plugin/session_end.c).
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError
from container_engine.node import protocol
from container_engine.node.slurm_step import node_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping

_NODE = "%N"
# which Slurm replaces in the names of output files: jobs, and steps, would write the same image
_OTHER_PATTERNS = ("%A", "%a", "%J", "%j", "%n", "%s", "%t", "%u", "%x")
_SEE = "container-save"
_LONGEST = 8 * 1024
_CANCELLED = (
    "--container-save: nothing was saved: a task was ended by SIGTERM, "
    "as by scancel or a time limit\n"
    "ce: hint: to save the container before the end of its step, use ce save\n"
    f"ce: see: ce help {_SEE}"
)
# endings of the files beside an image (images/image_files.py)
_BESIDE = (".json", ".sha256")


def target(path: str, where: str, node: Mapping[str, str]) -> str:
    """Return the path of the image to be made, for which `where` asks.

    Raise LaunchError if it cannot be written.
    """
    try:
        return _checked(path, node)
    except ValueError as error:
        reason, hint = error.args
        raise LaunchError(reason, hint, _SEE, where=where) from None


def _checked(path: str, node: Mapping[str, str]) -> str:
    """Return the path on this node. Raise ValueError with a reason and a hint."""
    count = node.get("SLURM_STEP_NUM_NODES") or node.get("SLURM_NNODES", "1")
    if count != "1" and _NODE not in path:
        message = f"{count} nodes would write the same image '{path}'"
        raise ValueError(
            message, f"write {_NODE} in its name, for the name of the node, or use -N1"
        )
    if literal := [pattern for pattern in _OTHER_PATTERNS if pattern in path]:
        message = f"{literal[0]} in '{path}' would stay as it is: only {_NODE} is replaced"
        hint = "let the script write the number into the name: $SLURM_JOB_ID, $SLURM_ARRAY_TASK_ID"
        raise ValueError(message, hint)
    path = path.replace(_NODE, node_name(node))
    directory = os.path.dirname(path)
    if os.path.isdir(path):
        raise ValueError(f"'{path}' is a directory", "name a file in it")
    if lack := _lack(directory):
        name = node_name(node) or os.uname().nodename
        raise ValueError(
            f"'{directory}' {lack} on node {name}", "create the directory, or choose another one"
        )
    if not os.access(directory, os.W_OK):
        raise ValueError(f"you cannot write to '{directory}'", "choose another directory")
    for one in (path, *(f"{path}{suffix}" for suffix in _BESIDE)):
        if _is_fixed(one, directory):
            raise ValueError(f"'{one}' belongs to another user", "choose another file")
    return path


def _lack(directory: str) -> str:
    """Return why the directory cannot be used; "" if it exists."""
    try:
        mode = os.stat(directory).st_mode
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be reached ({error.strerror})"
    return "" if stat.S_ISDIR(mode) else "is not a directory"


def _is_fixed(path: str, directory: str) -> bool:
    """Check whether a sticky directory, such as /tmp, keeps this user from replacing the file."""
    try:
        owner, above = os.lstat(path).st_uid, os.stat(directory)
    except OSError:
        return False
    return bool(above.st_mode & stat.S_ISVTX) and os.geteuid() not in (0, owner, above.st_uid)


def at_the_end(
    reply: socket, path: str, mount_ns: int, node: Mapping[str, str], libexec: str
) -> None:
    """Wait for the end of the tasks, save the container to `path`, and answer the plugin.

    `mount_ns` is a descriptor of the container's mount namespace. If SIGTERM has ended a task,
    nothing is saved: what the container holds may be incomplete, and would replace a complete file.
    """
    import subprocess

    namespace = os.readlink(f"/proc/self/fd/{mount_ns}")
    if reply.recv(1):
        reply.send(f"{protocol.CE_ANSWER_FAILED}{_CANCELLED}".encode())
        return
    step = f"{node.get('SLURM_JOB_ID', '')}.{node.get('SLURM_STEP_ID', '')}"
    options = ["--here", f"--namespace={namespace}", "--force", "--quiet"]
    argv = [os.path.normpath(f"{libexec}/../../bin/ce"), "save", *options, step, path]
    env = {name: value for name, value in node.items() if not name.startswith("LD_")}
    env.setdefault("PATH", os.environ["PATH"])
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    text = f"{protocol.CE_ANSWER_SAVED}{os.fsdecode(done.stdout.strip())}"
    if done.returncode:
        said = os.fsdecode(done.stderr.strip()).removeprefix("ce: error: ")
        said += "" if "\n" in said else f"\nce: see: ce help {_SEE}"
        text = f"{protocol.CE_ANSWER_FAILED}--container-save: {said}"
    reply.send(text.encode("utf-8", "surrogateescape")[:_LONGEST])
