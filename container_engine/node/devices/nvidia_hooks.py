"""The OCI hooks in the CDI files of NVIDIA's generator, nvidia-ctk: the engine does their work.

They would run in the container that crun is making, with a read-only root or another C library than
they expect, and each start would wait for them. The loader's cache and links are made by the look
into the image (libraries/inject.py). What the others prevent does not happen here: a user
namespace cannot make device nodes, and no mode of a device changes.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.edits import HookEdits

_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
_WITHOUT_WORK = (
    *("chmod", "disable-device-node-modification", "enable-cuda-compat"),
    "update-application-profile",
)


def replaced(hook: Mapping[str, Any], edits: HookEdits) -> bool:
    """Add what an OCI hook of NVIDIA's would do to `edits`; return False for all other hooks."""
    if os.path.basename(hook["path"]) not in _PROGRAMS:
        return False
    words = [word for word in hook.get("args", ())[1:] if word != "hook"]
    name = next((word for word in words if not word.startswith("-")), "")
    if name == "create-symlinks":
        for said in _values(words, "--link"):
            target, _colons, link = said.partition("::")
            edits.links.setdefault(os.path.normpath(f"/{link.lstrip('/')}"), target)
    elif name == "update-ldcache":
        edits.searched += [
            path for path in _values(words, "--folder") if path not in edits.searched
        ]
    else:
        return name in _WITHOUT_WORK
    return True


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values of an option that may be repeated, as `--x VALUE` or `--x=VALUE`."""
    for index, word in enumerate(words):
        if word == option:
            yield from words[index + 1 : index + 2]
        elif word.startswith(f"{option}="):
            yield word[len(option) + 1 :]
