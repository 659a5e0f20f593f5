"""Let apt-get work in the only user of a build, without a trace in the image.

apt-get becomes the user `_apt` for its downloads, checks that it has, and gives up if not. A
variable names a configuration file that turns this off. The file is in the build's /dev/shm, which
is in no layer. An added line of each stage sets the variable, and `leave_out` removes the variable
and the line from the image's configuration. Podman's --env would not do: it has no effect on the
first step of a stage.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

# smallroot.sh writes the file
VARIABLE = "APT_CONFIG=/dev/shm/container-engine-apt.conf"
LINE = f"ENV {VARIABLE}"


def leave_out(layout: str) -> None:
    """Remove the variable from the configuration of the image in an OCI layout. Raise OSError."""
    index = _read(f"{layout}/index.json")
    for entry in index["manifests"]:
        manifest = _read(_blob(layout, entry))
        config = _read(_blob(layout, manifest["config"]))
        own = config.get("config", {})
        kept = [variable for variable in own.get("Env") or () if variable != VARIABLE]
        if kept == (own.get("Env") or []):
            continue
        own["Env"] = kept
        config["history"] = [past for past in config.get("history") or () if not _is_line(past)]
        manifest["config"] = _written(layout, manifest["config"], config)
        entry.update(_written(layout, entry, manifest))
    with open(f"{layout}/index.json", "w", encoding="utf-8") as file:
        json.dump(index, file)


def _is_line(past: Mapping[str, Any]) -> bool:
    """Check whether `LINE` made this entry of an image's history. It makes no layer."""
    return bool(past.get("empty_layer")) and str(past.get("created_by", "")).endswith(LINE)


def _blob(layout: str, descriptor: Mapping[str, Any]) -> str:
    return os.path.join(layout, "blobs", *descriptor["digest"].split(":"))


def _read(path: str) -> Any:  # noqa: ANN401  # JSON has any type
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _written(layout: str, old: Mapping[str, Any], document: object) -> dict[str, Any]:
    """Write a document in place of another one and return its descriptor."""
    content = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    new = {**old, "digest": digest, "size": len(content)}
    os.unlink(_blob(layout, old))
    with open(_blob(layout, new), "wb") as file:
        file.write(content)
    return new
