"""Decide whether an OCI hook applies to a container, by Podman's rules. Pure."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.oci.runtime import When


def applies(when: When, annotations: Mapping[str, str], command: str) -> bool:
    """Decide as Podman does: a hook applies if it has conditions and all of them hold.

    If true, `hasBindMounts` holds, because every container has bind mounts.
    """
    conditions = []
    if "always" in when:
        conditions.append(bool(when["always"]))
    if "hasBindMounts" in when:
        conditions.append(bool(when["hasBindMounts"]))
    for key, value in when.get("annotations", {}).items():
        pairs = annotations.items()
        conditions.append(any(re.search(key, k) and re.search(value, v) for k, v in pairs))
    if when.get("commands"):
        conditions.append(any(re.search(pattern, command) for pattern in when["commands"]))
    return bool(conditions) and all(conditions)
