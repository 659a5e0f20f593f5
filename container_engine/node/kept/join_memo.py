"""Remember how a step joined a kept container, for the next step with the same plan.

The next step starts no Python: ce-node reads the memo (spank_plugin/node/join_memo.h has the
format), and becomes the launcher if anything is in doubt. The memo has only what follows from the
plan and the container; ce-node itself finds out what differs between steps. The file is in the
container's directory, which is the user's alone, so that it can mislead nobody else. Tests compare
how the launcher and ce-node join.
"""

from __future__ import annotations

import os

from container_engine import __version__
from container_engine.base.private_files import memo_of, read_regular, write_private
from container_engine.edf.names import is_step
from container_engine.node.container import environment as env
from container_engine.node.container.description import SAVE
from container_engine.node.memo_fields import about_step, data, field, table
from container_engine.node.plan_json import parse_json, resolve
from container_engine.node.report import trace
from container_engine.node.report.secret_values import may_be_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from container_engine.node.plan_types import LaunchPlan

MAGIC = b"container-engine join memo 3\n"
_NAME = "join."
# the most memos of a container, each with a whole plan: if every step has a new one, none is used
_MOST = 16
_DEFERRED = '"var"'


def remember(text: str, plan: LaunchPlan, directory: str, block: bytes) -> None:
    """Write the memo of a step if the next one with this plan can do without Python.

    `text` is the plan as it arrived, `directory` the container's, `block` the environment of its
    first process. A memo that cannot be written is not an error.
    """
    if not _is_plain(text, plan):
        return
    try:
        earlier = [name for name in os.listdir(directory) if name.startswith(_NAME)]
        plan_text = os.fsencode(text)
        name = f"{_NAME}{len(plan_text)}"
        if name in earlier or len(earlier) < _MOST:
            memo = b"".join(_fields(text, plan, directory, block))
            write_private(directory, name, memo_of(MAGIC, memo))
    except (OSError, ValueError):
        return


def _is_plain(text: str, plan: LaunchPlan) -> bool:
    """Check that joining with this plan depends only on what ce-node can check."""
    kept, settings = plan.get("kept"), plan["settings"]
    return (
        kept is not None
        and kept["mode"] in ("auto", "exec")
        and not is_step(kept["name"])
        and _DEFERRED not in text
        and not settings.get("unshare")
        and not settings.get("tracking_tool")
        and SAVE not in plan.get("annotations", {})
        and not may_be_secret(trace.mount_texts(plan), plan, {})
    )


def _fields(text: str, plan: LaunchPlan, directory: str, block: bytes) -> Iterator[bytes]:
    files = _recorded(directory, "files")
    edf = env.edf_settings(plan, {})
    workdir = resolve(plan["workdir"], {}, plan["workdir_from"])
    records = env.encode_records(env.for_joined(plan, edf, env.parse_block(block), workdir))
    conditions = [
        word for hook in plan.get("hooks", ()) for word in hook.get("automatic_when") or ()
    ]
    yield from map(field, (__version__, text, directory))
    yield from map(field, (_recorded(directory, "image"), _recorded(directory, "made"), files))
    images: Mapping[str, str] = parse_json(files)
    yield from table([word for pair in images.items() for word in pair], 2)
    yield from map(data, (block, records))
    yield field(workdir)
    yield from about_step(plan, conditions, {})
    yield field("end")


def _recorded(directory: str, name: str) -> str:
    return os.fsdecode(read_regular(f"{directory}/{name}"))
