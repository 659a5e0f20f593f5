"""NVIDIA's MPS on a node: directories for its pipes and logs that no other step can see."""

from __future__ import annotations

from container_engine.launch.podman import Bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from container_engine.launch.hooks.edits import HookEdits

# as in the variables of hooks/nvidia_cuda_mps/hook.toml
_DIRECTORY = "/opt/oci-hooks/nvidia_cuda_mps"


def prepare(
    hook: Mapping[str, Any], plan: Mapping[str, Any], node: Mapping[str, str], edits: HookEdits
) -> None:
    del hook, plan, node
    for name in ("pipe", "log"):
        options = ("mode=0700", "size=256m")
        edits.binds.append(Bind("tmpfs", "tmpfs", f"{_DIRECTORY}/{name}", options))
