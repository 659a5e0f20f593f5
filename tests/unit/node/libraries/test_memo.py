"""A look into an image is remembered if the next one would certainly come to the same."""

import errno
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from container_engine import private_files
from container_engine.node.libraries import memo
from container_engine.node.libraries.host import Host
from container_engine.node.libraries.trees import ImageTree, Tree
from container_engine.node.looks import signature
from container_engine.node.plan_json import parse_json, to_json

_DONE = [("root-bind", "/node/lib", "/root", "/lib/x")]


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_files, "SETTLED_NS", 0)


class Software:
    """Two releases of a node's software with the same library, and a link to the one in use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.memos = str(directory / "home/.cache/container-engine/libraries/nodes/n1")
        for release in ("1", "2"):
            (directory / release).mkdir()
        (directory / "1/libx.so.1").write_text("x")
        os.link(directory / "1/libx.so.1", directory / "2/libx.so.1")
        self.current = directory / "current"
        self.library = str(self.current / "libx.so.1")
        self.use("1")

    def use(self, release: str) -> None:
        link = self._directory / "new"
        link.symlink_to(release)
        link.rename(self.current)

    def remember(self, tree: Tree, content: bytes = b"") -> None:
        changes = [("/etc/cache", content)] if content else []
        memo.remember({"memos": self.memos, "root": "/root"}, "{}", tree.asked, changes, _DONE)

    def is_known(self) -> bool:
        return memo.recall(self.memos, "{}") is not None

    @property
    def file(self) -> Path:
        """The file with what was written into an image."""
        [file] = (Path(self.memos).parent.parent / "files").iterdir()
        return file


@pytest.fixture
def software(tmp_path: Path) -> Software:
    return Software(tmp_path)


_ASKING: dict[str, Callable[[Tree, str], object]] = {
    "real": lambda tree, path: tree.real(path),
    "content": lambda tree, path: tree.content(path, 100),
    "exists": lambda tree, path: tree.exists(path),
    "names": lambda tree, path: tree.names(os.path.dirname(path)),
}


@pytest.mark.parametrize("how", _ASKING)
def test_what_has_not_changed_is_known(software: Software, how: str) -> None:
    tree = Tree()
    _ASKING[how](tree, software.library)
    software.remember(tree)
    assert memo.recall(software.memos, "{}") == (
        [("root-bind", ["/node/lib", "/root", "/lib/x"])],
        [*tree.asked],
    )


@pytest.mark.parametrize("how", _ASKING)
def test_a_link_that_leads_to_another_name_of_the_same_file_is_noticed(
    software: Software, how: str
) -> None:
    """Its dependencies are others, beside it: software is deployed with hard links."""
    tree = Tree()
    _ASKING[how](tree, software.library)
    software.remember(tree)
    assert software.is_known()
    software.use("2")
    assert not software.is_known()


def test_what_changes_while_it_is_looked_at_is_not_remembered(software: Software) -> None:
    (Path(software.library).parent.parent / "2/libx.so.1").unlink()
    (Path(software.library).parent.parent / "2/libx.so.1").write_text("y")
    time.sleep(0.01)
    tree = Tree()
    assert tree.content(software.library, 100) == b"x"
    software.use("2")
    software.remember(tree)
    assert not software.is_known()


def test_a_symlink_that_leads_nowhere_is_noticed(software: Software) -> None:
    """It exists for a pattern, and is a library that cannot be read."""
    missing = software.current / "liby.so.1"
    tree = Tree()
    assert not tree.exists(str(missing))
    software.remember(tree)
    assert software.is_known()
    missing.symlink_to("nowhere")
    assert not software.is_known()
    tree = Tree()
    assert tree.exists(str(missing))
    software.remember(tree)
    assert software.is_known()
    missing.unlink()
    assert not software.is_known()


def test_what_has_another_path_of_the_kernel_is_not_remembered(software: Software) -> None:
    (software.current / "net").symlink_to("/sys/class/net")
    tree = Tree()
    tree.names(str(software.current / "net"))
    software.remember(tree)
    assert not software.is_known()


def test_another_boot_is_not_known(software: Software) -> None:
    software.remember(Tree())
    assert software.is_known()
    [file] = Path(software.memos).iterdir()
    content = parse_json(file.read_text())
    content["about"]["boot"] = "another\n"
    file.write_text(to_json(content))
    assert not software.is_known()


@pytest.mark.parametrize(
    "operations",
    ["[[1]]", '["file"]', '[["file",1]]', '[["file",["x"]]]', '[["file","\\u0000"]]', "1", "[[]]"],
)
def test_what_is_no_operation_is_not_known(software: Software, operations: str) -> None:
    software.remember(Tree())
    [file] = Path(software.memos).iterdir()
    text = file.read_text()
    file.write_text(text[: text.index('"operations":')] + f'"operations":{operations}}}')
    assert not software.is_known()


def test_what_was_written_is_not_taken_from_a_file_with_other_content(software: Software) -> None:
    """After a loss of power a file may be empty, or have NULs."""
    for damaged in (b"", b"\0\0\0", b"abcd"):
        software.remember(Tree(), b"abc")
        assert software.file.read_bytes() == b"abc"
        assert software.is_known()
        software.file.write_bytes(damaged)
        assert not software.is_known()
    software.remember(Tree(), b"abc")
    assert software.file.read_bytes() == b"abc"


@pytest.mark.parametrize("fault", ["gone", "mode", "link"])
def test_what_was_written_is_only_taken_from_the_users_own_file(
    software: Software, fault: str
) -> None:
    software.remember(Tree(), b"abc")
    file = software.file
    if fault == "mode":
        file.chmod(0o644)
    else:
        file.rename(file.parent.parent / "aside")
    if fault == "link":
        file.symlink_to(file.parent.parent / "aside")
    assert not software.is_known()
    software.remember(Tree(), b"abc")
    assert software.is_known()
    assert (software.file.is_symlink(), software.file.stat().st_mode & 0o777) == (False, 0o600)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"about":' + "9" * 1_000_000 + "}", "{", ""])
def test_a_memo_that_is_a_bomb_is_not_known(software: Software, text: str) -> None:
    software.remember(Tree())
    [file] = Path(software.memos).iterdir()
    file.write_text(text)
    assert not software.is_known()


@contextmanager
def _no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_lack_that_is_no_files_is_not_taken_for_one(software: Software) -> None:
    """A step with few descriptors finds nothing, and the next one must look itself."""
    image = ImageTree(str(software.current.parent))
    host = Host(62)
    assert (image.content("/x", 100), host.read("/x")) == (b"", None)
    assert (image.is_certain, host.tree.is_certain) == (True, True)
    with _no_more_files():
        found = image.content("/1/libx.so.1", 100), host.read(software.library)
    assert found == (b"", None)
    assert (image.is_certain, host.tree.is_certain) == (False, False)


def test_a_library_that_is_needed_by_a_relative_path_is_looked_for_and_not_remembered(
    software: Software,
) -> None:
    host = Host(62)
    assert host.read("beside/libx.so.1") is None
    software.remember(host.tree)
    assert not (host.tree.is_certain and software.is_known())


def test_a_signature_is_of_an_absolute_path_only() -> None:
    assert signature("f/not/there") == f"errno {errno.ENOENT}"
    for look in ("fx", "f", "", "f/\0"):
        with pytest.raises(ValueError, match="not an absolute path"):
            signature(look)
