"""Describe a container that lives with its job, for the step that starts or joins it."""

from __future__ import annotations

import os

from container_engine.node import protocol
from container_engine.node.kept.records import Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.node.container.description import Operation
    from container_engine.node.plan_types import KeptContainer

# in a guard's answer, the name of the descriptor of the container's root; the others are images
_ROOT = "."


class KeptOnNode:
    """The directory of a container that this step starts; `lock` is held exclusively.

    `door` is the path of the socket at which the guard will admit later steps. `begun` are files
    for the guard to make when the engine has written its own files. The guard enters the user
    namespace `guards_ns` unless it is -1, and inherits `passed`.
    """

    guards_ns = -1

    def __init__(self, wanted: KeptContainer, directory: str, lock: int, door: str) -> None:
        self.wanted, self.directory, self.lock, self.door = wanted, directory, lock, door
        self.records = Records(directory, wanted)
        self.begun: list[str] = []

    @property
    def passed(self) -> list[int]:
        return [self.lock]

    def again(self, _server: str, _root: str) -> list[Operation]:
        """Return the operations that reuse another step's mounts of the images: none here."""
        return []

    def close(self) -> None:
        """Close the descriptors that the guard has inherited."""
        os.close(self.lock)

    def operation(self) -> Operation:
        """Return the operation with which the guard admits later steps."""
        return ("keep", [str(self.lock), self.door])


class Running(KeptOnNode):
    """A container that runs, as another step's guard has handed it over.

    `lock` is shared; it is -1 for a container that ends with another step, which admits no more.
    `guards_ns` is the user namespace of that guard, `environment` the environment of the
    container's first process.
    """

    def __init__(
        self, kept: KeptOnNode, fds: Sequence[int], named: Sequence[tuple[str, int]]
    ) -> None:
        super().__init__(kept.wanted, kept.directory, kept.lock, kept.door)
        self.guards_ns, *self._container = fds
        self._images = [pair for pair in named if pair[0] != _ROOT]
        self._root = next((fd for name, fd in named if name == _ROOT), -1)
        # opened again, because other steps share the descriptor's position
        with open(f"/proc/self/fd/{self._container[protocol.CE_AT_ENVIRONMENT]}", "rb") as file:
            self.environment = file.read()
        self.warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> list[int]:
        found = (self.lock, *self._container, *(device for _image, device in self._images))
        return [fd for fd in (*found, self._root) if fd >= 0]

    @property
    def images(self) -> list[str]:
        """The paths of the images that this step's guard serves, too."""
        return [image for image, _device in self._images]

    @property
    def shares_files(self) -> bool:
        """True if another container can be started over the same files."""
        return self._root >= 0

    @property
    def unshared(self) -> set[str]:
        """The kinds of the container's own namespaces."""
        links = (os.readlink(f"/proc/self/fd/{fd}") for fd in self._container)
        return {link.partition(":")[0] for link in links}

    def again(self, server: str, root: str) -> list[Operation]:
        return [*self._served(server), ("root-again", [str(self._root), root])]

    def _served(self, server: str) -> list[Operation]:
        return [("fuse-again", [server, image, str(device)]) for image, device in self._images]

    def operations(
        self, server: str, mounted: Sequence[str], workdir: str, directories: Sequence[str]
    ) -> list[Operation]:
        """Return the operations with which a guard joins.

        It mounts the directories `mounted` of the step, makes `directories` in the container, and
        checks the tasks' working directory.
        """
        mount_ns = str(self._container[1])
        keep = [self.operation()] if self.lock >= 0 else []
        return [
            *keep,
            *self._served(server),
            *(("bind-inside", [mount_ns, path]) for path in mounted),
            ("root-inside", [mount_ns, workdir, *directories]),
            ("joined", [*map(str, self._container)]),
        ]

    def close(self) -> None:
        for fd in (self.guards_ns, *self.passed):
            os.close(fd)
