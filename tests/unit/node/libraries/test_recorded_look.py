"""A look into an image is recorded if the next look would certainly find the same."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from container_engine.base import answers, files
from container_engine.node.libraries import recorded_look
from container_engine.node.libraries.search import Host
from container_engine.node.libraries.trees import ImageTree, Tree
from tests.recorded import parsed, write

_DONE = [("root-bind", "/node/lib", "/root", "/lib/x")]


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", 0)


class Software:
    """Two releases of a node's software with the same library, and a link to the one in use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.answers = str(directory / "ce-answers-1/libraries")
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

    def record(self, tree: Tree, content: bytes = b"", request: str = "{}") -> None:
        changes = [("/etc/cache", content)] if content else []
        recorded_look.record(self.request, request, tree.asked, changes, _DONE)

    def recall(self, text: str = "{}") -> object:
        return recorded_look.recall(self.request, text)

    def is_known(self) -> bool:
        return self.recall() is not None

    @property
    def request(self) -> dict[str, object]:
        return {"answers": self.answers, "root": "/root", "prefix": "/p", "ids": answers.own_ids()}

    @property
    def answer(self) -> Path:
        [file] = Path(self.answers).iterdir()
        return file

    @property
    def files(self) -> Path:
        """Return the directory of what was written into images."""
        return Path(self.answers).with_name("files")

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
    "has": lambda tree, path: tree.has(path),
    "names": lambda tree, path: tree.names(os.path.dirname(path)),
}


@pytest.mark.parametrize("how", _ASKING)
def test_what_has_not_changed_is_known(software: Software, how: str) -> None:
    tree = Tree()
    _ASKING[how](tree, software.library)
    software.record(tree)
    assert software.recall() == (
        [("root-bind", ["/node/lib", "/root", "/lib/x"])],
        [*answers.installation(), *tree.asked],
    )


@pytest.mark.parametrize("how", _ASKING)
def test_a_link_that_leads_to_another_name_of_the_same_file_is_noticed(
    software: Software, how: str
) -> None:
    """Releases may share a file by hard links and differ in its dependencies beside it."""
    tree = Tree()
    _ASKING[how](tree, software.library)
    software.record(tree)
    assert software.is_known()
    software.use("2")
    assert not software.is_known()


def test_what_changes_while_it_is_looked_at_is_not_recorded(software: Software) -> None:
    (Path(software.library).parent.parent / "2/libx.so.1").unlink()
    (Path(software.library).parent.parent / "2/libx.so.1").write_text("y")
    time.sleep(0.01)
    tree = Tree()
    assert tree.content(software.library, 100) == b"x"
    software.use("2")
    software.record(tree)
    assert not software.is_known()


def test_a_symlink_that_leads_nowhere_is_noticed(software: Software) -> None:
    """A pattern finds such a link, and as a library it cannot be read."""
    missing = software.current / "liby.so.1"
    tree = Tree()
    assert not tree.has(str(missing))
    software.record(tree)
    assert software.is_known()
    missing.symlink_to("nowhere")
    assert not software.is_known()
    tree = Tree()
    assert tree.has(str(missing))
    software.record(tree)
    assert software.is_known()
    missing.unlink()
    assert not software.is_known()


def test_what_has_another_path_of_the_kernel_is_not_recorded(software: Software) -> None:
    (software.current / "net").symlink_to("/sys/class/net")
    tree = Tree()
    tree.names(str(software.current / "net"))
    software.record(tree)
    assert not software.is_known()


@pytest.mark.parametrize("place", ["/dev/shm", "/sys/class", "/proc/self"])
def test_files_in_kernel_file_systems_and_shared_memory_are_not_recorded(
    software: Software, place: str
) -> None:
    tree = Tree()
    tree.has(f"{place}/not-there")
    software.record(tree)
    assert not software.is_known()


def test_what_was_done_to_an_image_is_done_again_in_its_order(software: Software) -> None:
    changes: list[tuple[str, bytes | None]] = [("/etc/cache", b"abc"), ("/lib/old", None)]
    recorded_look.record(software.request, "{}", {}, changes, _DONE)
    assert software.recall() == (
        [
            ("root-copy", [str(software.file), "/root", "/etc/cache"]),
            ("root-remove", ["/root", "/lib/old"]),
            ("root-bind", ["/node/lib", "/root", "/lib/x"]),
        ],
        # a file that is named by its content may be young
        [*answers.installation(), f"p{software.file}"],
    )


def test_what_is_there_already_is_not_written_again(software: Software) -> None:
    software.record(Tree(), b"abc")
    before = software.file.stat().st_ino
    software.record(Tree(), b"abc", request="[]")
    assert software.file.stat().st_ino == before
    assert len([*Path(software.answers).iterdir()]) == 2


def test_only_the_youngest_answers_and_files_stay(software: Software) -> None:
    for number in range(70):
        software.record(Tree(), b"abc%d" % number, request=f"[{number}]")
    assert (len([*Path(software.answers).iterdir()]), len([*software.files.iterdir()])) == (16, 32)
    assert software.recall("[69]") is not None
    assert software.recall("[0]") is None


@pytest.mark.parametrize("fault", ["owner", "mode", "link"])
@pytest.mark.parametrize("which", ["the user's answers", "those of looks"])
def test_an_answer_is_only_taken_from_directories_of_the_users_alone(
    software: Software, fault: str, which: str
) -> None:
    """The first of them is in a directory in which everybody may create one."""
    software.record(Tree())
    assert software.is_known()
    place = Path(software.answers)
    if which == "the user's answers":
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
    assert recorded_look.recall({"answers": ""}, "{}") is None


@pytest.mark.parametrize(
    "operations",
    ["[[1]]", '["file"]', '[["file",1]]', '[["file",["x"]]]', '[["file","\\u0000"]]', "1", "[[]]"],
)
def test_an_answer_with_an_invalid_operation_is_not_used(
    software: Software, operations: str
) -> None:
    software.record(Tree())
    right = parsed(software.answer)
    for result in (right.result, operations.encode()):
        write(software.answer, right._replace(result=result))
        assert software.is_known() == (result == right.result)


def test_what_was_written_is_not_taken_from_a_file_with_other_content(software: Software) -> None:
    """After a loss of power a file may be empty, or have NULs."""
    for damaged in (b"", b"\0\0\0", b"abcd"):
        software.record(Tree(), b"abc")
        assert software.file.read_bytes() == b"abc"
        assert software.is_known()
        software.file.write_bytes(damaged)
        assert not software.is_known()
    software.record(Tree(), b"abc")
    assert software.file.read_bytes() == b"abc"


@pytest.mark.parametrize("fault", ["gone", "mode", "link"])
def test_what_was_written_is_only_taken_from_the_users_own_file(
    software: Software, fault: str
) -> None:
    software.record(Tree(), b"abc")
    file = software.file
    if fault == "mode":
        file.chmod(0o644)
    else:
        file.rename(file.parent.parent / "aside")
    if fault == "link":
        file.symlink_to(file.parent.parent / "aside")
    assert not software.is_known()
    software.record(Tree(), b"abc")
    assert software.is_known()
    assert (software.file.is_symlink(), software.file.stat().st_mode & 0o777) == (False, 0o600)


@pytest.mark.parametrize("text", ["[" * 1_000_000, "9" * 1_000_000, "{", "", "\xff"])
def test_an_answer_that_is_a_bomb_is_not_known(software: Software, text: str) -> None:
    software.record(Tree())
    write(software.answer, parsed(software.answer)._replace(result=text.encode("latin-1")))
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


def test_a_library_that_is_needed_by_a_relative_path_is_looked_for_and_not_recorded(
    software: Software,
) -> None:
    host = Host(62)
    assert host.read("beside/libx.so.1") is None
    software.record(host.tree)
    assert not (host.tree.is_certain and software.is_known())
