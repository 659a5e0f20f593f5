"""Checks which annotations trigger the site's OCI hooks, as far as this host sees their files."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def asked(key: str, directories: Sequence[str], probed: list[str]) -> bool:
    """Check whether a hook of these directories runs for the annotation `key`.

    If this host cannot tell, return True as well. Add the paths that the answer depends on to
    `probed`.
    """
    for directory in directories:
        probed.append(directory)
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
        except OSError:
            return True
        paths = [os.path.join(directory, name) for name in names]
        probed += paths
        if any(_asks(path, key) for path in paths):
            return True
    return False


def _asks(path: str, key: str) -> bool:
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read())
        patterns = content.get("when", {}).get("annotations", {})
        return any(re.search(pattern, key) for pattern in patterns)
    except (OSError, ValueError, AttributeError, re.error):
        return True
