"""Programs that a hook runs in the container for as long as it lives."""

from __future__ import annotations

from container_engine.launch.failure import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Place:
    """Where services run. The descriptors belong to the caller."""

    def __init__(
        self,
        user_ns: int,
        mount_ns: int,
        guard: int,
        *,
        workdir: str,
        environment: Mapping[str, str],
        libexec: str,
        timeout_s: float,
    ) -> None:
        self.user_ns, self.mount_ns, self.guard = user_ns, mount_ns, guard
        self.workdir = workdir
        self.environment = environment
        self.libexec = libexec
        self.timeout_s = timeout_s


def start(services: Sequence[Mapping[str, Any]], place: Place) -> dict[str, str | None]:
    """Starts them in their order. Returns variables for the tasks. Raises LaunchError."""
    del place
    raise LaunchError(f"hook {services[0]['hook']}: services cannot be run yet")
