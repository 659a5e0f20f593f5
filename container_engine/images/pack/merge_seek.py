"""Merge the layers of an image into one tar stream, without unpacking any of them to disk.

Each layer is read twice: once to find what is visible in the end, once for the contents. Owners
become root; device nodes and extended attributes that only root may set are left out. They would
have no effect in a container, which has a single user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from container_engine.images.budget import Account
from container_engine.images.pack import layers, tar_header
from container_engine.images.pack.layers import Layer
from container_engine.images.pack.merge_rules import Paths, Tree, Visible
from container_engine.images.pack.tar_header import Entry
from container_engine.images.pack.tar_stream import Out


def write_merged(
    stack: Sequence[Layer], out: Out, env: Mapping[str, str], account: Account
) -> None:
    """Merge layers, the lowest first, and write them as a tar archive to `out`.

    `env` is the environment for zstd. Raise UserError for a damaged layer, or for more than
    `account` allows.
    """
    visible = _visible(stack, env, account)
    for path, directory in visible.directories:
        entry = Entry(path, tar_header.DIRECTORY, directory.mode, directory.mtime, 0, b"")
        out.write(tar_header.header(entry._replace(xattrs=directory.xattrs)))
    for layer, contents in zip(stack, visible.contents, strict=True):
        if contents:
            _copy(layer, contents, out, env)
    out.write(tar_header.END)


def _visible(stack: Sequence[Layer], env: Mapping[str, str], account: Account) -> Visible:
    tree = Tree()
    for layer in stack:
        tree.next_layer()
        with layers.entries(layer, env, account) as reader:
            for index, entry in enumerate(reader):
                _add(tree, index, entry)
    return tree.visible()


def _add(tree: Tree, index: int, entry: Entry) -> None:
    if entry.kind == tar_header.DIRECTORY:
        tree.add_directory(entry.name, entry.mode, entry.mtime, entry.xattrs)
    elif entry.kind == tar_header.HARD_LINK:
        tree.add_hard_link(entry.name, entry.link)
    else:
        target = entry.link if entry.kind == tar_header.SYMLINK else None
        tree.add_content(entry.name, index, target)


def _copy(layer: Layer, contents: Paths, out: Out, env: Mapping[str, str]) -> None:
    """Write the visible entries of one layer, which have been counted."""
    with layers.entries(layer, env) as reader:
        for index, entry in enumerate(reader):
            paths = contents.get(index)
            if not paths or entry.kind in tar_header.DEVICES:
                continue
            out.write(tar_header.header(entry._replace(name=paths[0])))
            reader.copy(out)
            for other in paths[1:]:
                shared = Entry(other, tar_header.HARD_LINK, 0, 0, 0, paths[0])
                out.write(tar_header.header(shared))
