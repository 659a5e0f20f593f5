"""Complete the plan of an image that only nodes have, with the settings that come with the image.

Imported only for such a plan.
"""

from __future__ import annotations

import json
import subprocess

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import check_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from container_engine.node.node_plan import NodePlan

_TIMEOUT_S = 120


def with_image(plan: NodePlan, libexec: str) -> NodePlan:
    """Return the plan with the image's variables, digest, working directory and warnings.

    A working directory of the EDF stays. Raise LaunchError if this node lacks the file or cannot
    read it.
    """
    [image] = plan.images
    check_image(image.path)
    found = _read(image.path, libexec)
    if found["workdir"] and plan.workdir_from == "default":
        plan = plan.but(workdir=found["workdir"], workdir_from="the image")
    known = image.but(digest=image.digest or found["content"])
    return plan.but(images=[known], image_env=found["env"], notices=found["notices"])


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
