"""Give NVIDIA's MPS directories for its pipes and logs that no other step can see."""

from __future__ import annotations

from container_engine.node.container.description import NodeMount
from container_engine.node.container.environment import edf_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse

# must match the variables in hooks/nvidia_cuda_mps/hook.toml
_DIRECTORY = "/opt/oci-hooks/nvidia_cuda_mps"


def prepare(hook: HookUse, plan: NodePlan, node: Mapping[str, str], edits: HookEdits) -> None:
    own = edf_settings(plan.env, node).get("CUDA_MPS_PIPE_DIRECTORY")
    if own:
        _share(hook["name"], own, edits)
    for name in ("pipe", "log"):
        options = ("mode=0700", "size=256m")
        edits.mounts.append(NodeMount("tmpfs", "tmpfs", f"{_DIRECTORY}/{name}", options))


def _share(name: str, directory: str, edits: HookEdits) -> None:
    """Accept the daemon of the user or of another step for the directory, and do not stop it."""
    for service in edits.services:
        if service.get("hook") == name:
            service.update(ready=f"{directory}/control", stop=[])
