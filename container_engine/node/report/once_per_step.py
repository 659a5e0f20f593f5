"""Print a message once per step, by the first node to report it."""

from __future__ import annotations

import os

from container_engine.base.private_files import fingerprint
from container_engine.node.report.trace import PLANNED, directory_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def claim_message(fd: int, node: Mapping[str, str], message: str) -> bool:
    """Claim the printing of a message; return False if another node of the step has done so.

    Of a thousand nodes only one prints it, but without a shared trace directory every node does.
    srun itself names every node that failed. spank_plugin/common/say.h does the same for tasks.
    """
    if fd < 0:
        return True
    # the time of planning distinguishes one srun from a later one with the same numbers
    said = f"{node.get(PLANNED, '')} {message}".encode("utf-8", "surrogateescape")
    try:
        directory = directory_of(fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(f"{directory}/said-{fingerprint(said)}", flags, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def alike(message: str, node: Mapping[str, str]) -> str:
    """Return the message without what differs between nodes: the node's name and all numbers."""
    import re

    own = re.escape(node.get("SLURMD_NODENAME") or os.uname().nodename)
    # only as a whole word: inside another word it is not the node's name, and equal on all nodes
    text = re.sub(rf"(?<![A-Za-z0-9]){own}(?![A-Za-z0-9])", "@", message)
    return re.sub(r"\d+", "0", text)
