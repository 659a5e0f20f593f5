"""Two file systems in one process: the node's and the image's."""

from __future__ import annotations

import os

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class NodeOnly:
    """Where there is no image: every path is the node's."""

    def enter_node(self) -> None:
        pass


class Roots:
    """Which of the two a path means is whichever was entered last; the node's at first.

    In the image, links mean what they mean in the container, and none leads out: the kernel follows
    them below a root of its own. This process has that right in the session's user namespace, and
    with it the way back, through a descriptor of the other root.
    """

    def __init__(self, image: str) -> None:
        self._node = os.open("/", _DIRECTORY)
        self._image = os.open(image, _DIRECTORY)
        self._current = self._node

    def enter_node(self) -> None:
        self._enter(self._node)

    def enter_image(self) -> None:
        self._enter(self._image)

    def _enter(self, root: int) -> None:
        if self._current != root:
            os.fchdir(root)
            os.chroot(".")
            self._current = root
