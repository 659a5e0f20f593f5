"""A look into an image is remembered if the next look would certainly find the same."""

import errno
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from container_engine.base import private_files
from container_engine.node.file_signatures import signature
from container_engine.node.libraries import inject_memo
from container_engine.node.libraries.host import Host
from container_engine.node.libraries.trees import ImageTree, Tree
from tests.memo_file import fields_of, rewrite, write_fields

_DONE = [("root-bind", "/node/lib", "/root", "/lib/x")]


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_files, "SETTLED_NS", 0)


class Software:
    """Two releases of a node's software with the same library, and a link to the one in use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.memos = str(directory / "ce-memos-1/libraries")
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

    def remember(self, tree: Tree, content: bytes = b"", request: str = "{}") -> None:
        changes = [("/etc/cache", content)] if content else []
        inject_memo.remember(
            {"memos": self.memos, "root": "/root"}, request, tree.asked, changes, _DONE
        )

    def is_known(self) -> bool:
        return inject_memo.recall(self.memos, "{}") is not None

    @property
    def memo(self) -> Path:
        [file] = Path(self.memos).iterdir()
        return file

    @property
    def text(self) -> str:
        """Return what the memo says, without its checksum."""
        return fields_of(self.memo).decode()

    @property
    def files(self) -> Path:
        """Return the directory of what was written into images."""
        return Path(self.memos).with_name("files")

    @property
    def file(self) -> Path:
        [file] = self.files.iterdir()
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
    assert inject_memo.recall(software.memos, "{}") == (
        [("root-bind", ["/node/lib", "/root", "/lib/x"])],
        [*tree.asked],
    )


@pytest.mark.parametrize("how", _ASKING)
def test_a_link_that_leads_to_another_name_of_the_same_file_is_noticed(
    software: Software, how: str
) -> None:
    """Releases may share a file by hard links and differ in its dependencies beside it."""
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
    """A pattern finds such a link, and as a library it cannot be read."""
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


@pytest.mark.parametrize("place", ["/dev/shm", "/sys/class", "/proc/self"])
def test_files_in_kernel_file_systems_and_shared_memory_are_not_remembered(
    software: Software, place: str
) -> None:
    tree = Tree()
    tree.exists(f"{place}/not-there")
    software.remember(tree)
    assert not software.is_known()


def test_recently_changed_files_are_not_remembered(
    software: Software, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "SETTLED_NS", 3_600_000_000_000)
    tree = Tree()
    tree.content(software.library, 100)
    software.remember(tree)
    assert not Path(software.memos).exists()
    software.remember(Tree())
    assert software.is_known()


@pytest.mark.parametrize("about", ["boot", "release", "request"])
def test_a_memo_from_another_boot_release_or_request_is_not_used(
    software: Software, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, about: str
) -> None:
    software.remember(Tree())
    assert software.is_known()
    if about == "boot":
        (tmp_path / "boot").write_text("another\n")
        monkeypatch.setattr(inject_memo, "_BOOT", str(tmp_path / "boot"))
    if about == "release":
        monkeypatch.setattr(inject_memo, "__version__", "another")
    if about == "request":
        # two requests may have equal checksums
        name = software.memo.name
        software.memo.unlink()
        software.remember(Tree(), request="[]")
        software.memo.rename(Path(software.memos) / name)
    assert not software.is_known()


def test_what_was_done_to_an_image_is_done_again_in_its_order(software: Software) -> None:
    changes: list[tuple[str, bytes | None]] = [("/etc/cache", b"abc"), ("/lib/old", None)]
    inject_memo.remember({"memos": software.memos, "root": "/root"}, "{}", {}, changes, _DONE)
    assert inject_memo.recall(software.memos, "{}") == (
        [
            ("root-copy", [str(software.file), "/root", "/etc/cache"]),
            ("root-remove", ["/root", "/lib/old"]),
            ("root-bind", ["/node/lib", "/root", "/lib/x"]),
        ],
        # a file that is named by its content may be young
        [f"p{software.file}"],
    )


def test_what_is_there_already_is_not_written_again(software: Software) -> None:
    software.remember(Tree(), b"abc")
    before = software.file.stat().st_ino
    software.remember(Tree(), b"abc", request="[]")
    assert software.file.stat().st_ino == before
    assert len([*Path(software.memos).iterdir()]) == 2


def test_only_the_youngest_memos_and_files_stay(software: Software) -> None:
    for number in range(70):
        software.remember(Tree(), b"abc%d" % number, request=f"[{number}]")
    assert (len([*Path(software.memos).iterdir()]), len([*software.files.iterdir()])) == (16, 32)
    assert inject_memo.recall(software.memos, "[69]") is not None
    assert inject_memo.recall(software.memos, "[0]") is None


def test_what_is_too_long_is_neither_written_nor_read(software: Software) -> None:
    long = [("root-bind", "/node/lib", "/root", "/" + "x" * (1 << 20))]
    inject_memo.remember({"memos": software.memos, "root": "/root"}, "{}", {}, [], long)
    assert not Path(software.memos).exists()
    software.remember(Tree())
    assert software.is_known()
    rewrite(software.memo, lambda text: text + b" " * (1 << 20))
    assert not software.is_known()


@pytest.mark.parametrize("fault", ["owner", "mode", "link", "pipe", "pipe with a memo"])
def test_a_memo_is_only_taken_from_the_users_own_file(software: Software, fault: str) -> None:
    software.remember(Tree())
    file = software.memo
    if fault == "owner":
        os.chown(file, 65534, 65534)
    elif fault == "mode":
        file.chmod(0o640)
    else:
        file.rename(file.parent.parent / "aside")
    if fault == "link":
        file.symlink_to(file.parent.parent / "aside")
    if fault.startswith("pipe"):
        os.mkfifo(file, 0o600)
    with ExitStack() as stack:
        if fault == "pipe with a memo":
            pipe = stack.enter_context(open(os.open(file, os.O_RDWR), "wb", buffering=0))
            pipe.write((file.parent.parent / "aside").read_bytes())
        assert not software.is_known()


@pytest.mark.parametrize("fault", ["owner", "mode", "link"])
@pytest.mark.parametrize("which", ["the user's memos", "those of looks"])
def test_a_memo_is_only_taken_from_directories_of_the_users_alone(
    software: Software, fault: str, which: str
) -> None:
    """The first of them is in a directory in which everybody may create one."""
    software.remember(Tree())
    assert software.is_known()
    place = Path(software.memos)
    if which == "the user's memos":
        place = place.parent
    if fault == "owner":
        os.chown(place, 65534, 65534)
    elif fault == "mode":
        place.chmod(0o701)
    else:
        place.rename(place.with_name("aside"))
        place.symlink_to("aside")
    assert not software.is_known()


def test_without_a_place_nothing_is_known() -> None:
    assert inject_memo.recall("", "{}") is None


@pytest.mark.parametrize(
    "operations",
    ["[[1]]", '["file"]', '[["file",1]]', '[["file",["x"]]]', '[["file","\\u0000"]]', "1", "[[]]"],
)
def test_a_memo_with_an_invalid_operation_is_not_used(software: Software, operations: str) -> None:
    software.remember(Tree())
    text = software.text
    changed = text[: text.index('"operations":')]
    for made_up in text, f'{changed}"operations":{operations}}}':
        write_fields(software.memo, made_up.encode())
        assert software.is_known() == (made_up == text)


def test_a_memo_with_a_flipped_bit_is_not_used(software: Software) -> None:
    """A disk may do that: the container would have another library, or the start fail."""
    tree = Tree()
    tree.content(software.library, 100)
    software.remember(tree, b"abc")
    whole = software.memo.read_bytes()
    for byte in range(len(whole)):
        changed = bytearray(whole)
        changed[byte] ^= 1 << byte % 8
        software.memo.write_bytes(changed)
        assert not software.is_known(), byte
    software.memo.write_bytes(whole)
    assert software.is_known()


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
    write_fields(software.memo, text.encode())
    assert not software.is_known()


@contextmanager
def _no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_failure_to_open_is_not_taken_for_a_missing_file(software: Software) -> None:
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
    for aspect in ("fx", "f", "", "f/\0"):
        with pytest.raises(ValueError, match="not an absolute path"):
            signature(aspect)
