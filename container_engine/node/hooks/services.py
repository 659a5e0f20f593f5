"""Run hooks' programs in the container for as long as it lives, beside its tasks.

They join the container as tasks do, and are in the host's PID namespace unless the container has
its own. ce-reaper (spank_plugin/programs/reaper.c) is started before the first of them, and
ends them with the container, however the container ends.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, SOCK_SEQPACKET, socket, socketpair

from container_engine.base import reaper
from container_engine.node.container.description import INIT_PATH
from container_engine.node.container.guard import memory_file
from container_engine.node.container.specification import encode
from container_engine.node.inside.programs import Place, Process, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    from container_engine.node.container.description import Operation

    class Server(Protocol):
        """A service that needs code. A hook's code puts it into the key `server` of a service."""

        variables: Mapping[str, str | None]

        def start(self, place: Place) -> None: ...

        def leftovers(self) -> Sequence[str]:
            """Return the files to remove with the container, and directories to remove if empty."""
            ...

        def publish(self, place: Place) -> None:
            """Publish the tasks' environment: the start-up steps are done, so it is final."""
            ...


_EXIT_STEP_MS = 10
# kill every process in the container; left out where other steps of the job may be in it
KILL: Operation = ("kill", ["all"])


def start(services: Sequence[Mapping[str, Any]], place: Place, done: int) -> socket:
    """Start the services in their order and wait until each is ready.

    The process that ends them holds the descriptor `done` until it has finished. Return the
    guard's end of a socket to it. Raise LaunchError; services that have been started end with the
    session then.
    """
    end = _end_with_container(services, place, done)
    for service in services:
        server: Server | None = service.get("server")
        if server is not None:
            server.start(place)
        else:
            _start(service, place)
    return end


def publish(services: Sequence[Mapping[str, Any]], place: Place) -> None:
    """Notify the services that `place` now has the environment of the tasks."""
    for server in _servers(services):
        server.publish(place)


def variables(services: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the changes of the started services to the environment of the tasks."""
    found: dict[str, str | None] = {}
    for server in _servers(services):
        found |= server.variables
    return found


def leftovers(services: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the files to remove with the container, and directories to remove if empty."""
    return [path for server in _servers(services) for path in server.leftovers()]


def _servers(services: Sequence[Mapping[str, Any]]) -> list[Server]:
    return [service["server"] for service in services if service.get("server") is not None]


def remove_leftovers(services: Sequence[Mapping[str, Any]]) -> None:
    """Remove leftovers of a container that was not started, as ce-reaper does at the end."""
    for path in leftovers(services):
        try:
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        except OSError:
            continue


def _start(service: Mapping[str, Any], place: Place) -> None:
    """Start a service that is described by data and wait until it is ready.

    A service puts itself into the background, unless `ready` names a path that exists once it is
    ready. Raise LaunchError if it fails, but not if its output says that it already runs.
    """
    what = f"hook {service['hook']}: service '{service['name']}'"
    process = Process(place, service["command"])
    code = _ready(process, service["ready"], place) if service["ready"] else None
    if not service["ready"]:
        code = process.exit_code(place.timeout_s)
    printed = process.output()
    runs_already = bool(code and service["running"]) and service["running"] in printed
    if code != 0 and not runs_already:
        process.kill()
        process.let_go()
        raise failure(what, code, printed, place.timeout_s)
    process.let_go()


def _ready(process: Process, path: str, place: Place) -> int | None:
    """Return 0 when the path exists in the container, or the program's exit code if it failed.

    Return None if neither happens within the time limit of a start.
    """
    looking = Process(place, [INIT_PATH, "--await", path], workdir="/")
    left_ms = place.timeout_s * 1000
    found: int | None = None
    while found is None and left_ms > 0:
        failed = process.exit_code(0)
        if failed:
            found = failed
            break
        found = looking.exit_code(_EXIT_STEP_MS / 1000)
        left_ms -= _EXIT_STEP_MS
    looking.kill()
    looking.let_go()
    return found


def at_the_end(
    steps: Sequence[Operation], guard: int, mount_ns: int, done: int, libexec: str
) -> None:
    """Start a process that runs these operations of ce-reaper when the container has ended.

    The process holds the descriptor `done` until they have run. Raise LaunchError.
    """
    specification = memory_file("ce-services", encode(steps))
    reaper.start(libexec, "services", (guard, mount_ns, -1, specification, done))
    os.close(specification)


def _end_with_container(services: Sequence[Mapping[str, Any]], place: Place, done: int) -> socket:
    """Start the process that ends the services with the container, and return as `start` does."""
    steps: list[Operation] = [
        ("stop", place.inside(service["stop"])) for service in services if service.get("stop")
    ]
    steps += [] if place.is_kept else [KILL]
    steps += [("remove", [path]) for path in leftovers(services)]
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    specification = memory_file("ce-services", encode(steps))
    passed = (place.guard, place.mount_ns, theirs.fileno(), specification, done)
    reaper.start(place.libexec, "services", passed, environment=place.environment)
    os.close(specification)
    theirs.close()
    return ours
