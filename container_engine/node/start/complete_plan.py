"""Complete the plan of an image that only nodes have, with the settings that come with the image.

Imported only for such a plan.
"""

from __future__ import annotations

import json
import subprocess

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import check_image
from container_engine.node.plan_json import image_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from container_engine.node.plan_types import LaunchPlan

_TIMEOUT_S = 120


def with_image(plan: LaunchPlan, libexec: str) -> list[str]:
    """Fill the image's variables, digest and working directory into the plan; return warnings.

    A working directory of the EDF stays. Raise LaunchError if this node lacks the file or cannot
    read it.
    """
    [path] = image_paths(plan)
    check_image(path)
    found = _read(path, libexec)
    warnings: list[str] = found.pop("notices")
    workdir = found.pop("workdir")
    image = plan["image"]
    image["env"], image["source"], image["content"] = (
        found[key] for key in ("env", "source", "content")
    )
    if workdir and plan["workdir_from"] == "default":
        plan["workdir"], plan["workdir_from"] = workdir, "the image"
    return warnings


def _read(path: str, libexec: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [f"{libexec}/describe_image", path],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"its environment cannot be read: {error}"
        raise LaunchError(why, see="image-damaged", kind="image", name=path) from None
    if done.returncode != 0:
        reason, hint, see = (found.get(key) for key in ("reason", "hint", "see"))
        raise LaunchError(str(reason), hint and str(hint), str(see or ""))
    return found
