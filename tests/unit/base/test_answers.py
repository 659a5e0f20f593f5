"""An answer is given again only to the same request, while all that was asked is as it was.

Each test asks both readers: this one, and that of the programs in C (answer_reader.c).
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine import __version__
from container_engine.base import answers, files
from container_engine.base.answers import SLOTS, Variables, without_record
from tests.c_header import SPANK_PLUGIN, constants

_RESULT = b"re\0sult"
_READER = ("answers", "fields", "io")


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", 0)


class Place:
    """A directory of answers, and the request of a user."""

    def __init__(self, reader: Path, directory: Path) -> None:
        self._reader, self.directory = reader, directory / "mine/answers"
        self.file = directory / "file"
        self.file.write_text("content")
        self.words = b"a\0plan"
        self.witnesses = self.asked("f", "s")

    def asked(self, *kinds: str) -> dict[str, str]:
        return {f"{kind}{self.file}": answers.state(f"{kind}{self.file}") for kind in kinds}

    def write(self, result: bytes = _RESULT, most: int = 8, **more: str) -> bool:
        request = answers.request_of("/p", self.words)
        here = files.open_place(str(self.directory))
        return answers.write(here, request, {**self.witnesses, **more}, result, most)

    def read(self, **variables: str) -> bytes | None:
        """Return the result that ce-guard would find, as this module does but for variables."""
        env = {"PATH": os.defpath, **variables}
        words = self.words.replace(b"\0", b"/").decode()
        argv: list[str] = [str(self._reader), str(self.directory), "/p", words]
        done = subprocess.run(argv, env=env, capture_output=True, check=False, timeout=10)
        assert done.returncode in (0, 1), done.stderr
        found = answers.read(str(self.directory), answers.request_of("/p", self.words))
        result = None if done.returncode else done.stdout
        if not variables:
            assert (found and found[1]) == result
        return result

    @property
    def answer(self) -> Path:
        [found] = self.directory.iterdir()
        return found


@pytest.fixture(scope="session")
def answer_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the reader in C into a program of its own."""
    program = tmp_path_factory.mktemp("build") / "answer_reader"
    sources = (SPANK_PLUGIN / f"common/{name}.c" for name in _READER)
    version = f'-DCE_VERSION="{__version__}"'
    gcc = ["gcc", "-std=gnu11", "-g", version, f"-I{SPANK_PLUGIN}", "-o", str(program)]
    own = str(Path(__file__).with_name("answer_reader.c"))
    subprocess.run([*gcc, own, *sources], check=True)
    return program


@pytest.fixture
def place(answer_reader: Path, tmp_path: Path) -> Place:
    return Place(answer_reader, tmp_path)


def test_the_same_request_gets_the_result(place: Place) -> None:
    assert place.read() is None
    assert place.write()
    assert place.read() == _RESULT
    assert place.answer.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", "fspedoric")
def test_both_programs_find_the_same_state(place: Place, kind: str) -> None:
    link = place.file.with_name("link")
    link.symlink_to("file")
    nowhere = place.file.with_name("nowhere")
    nowhere.symlink_to("not there")
    os.mkfifo(pipe := place.file.with_name("pipe"))
    # other programs change the times of a shared device
    other = Path("/dev/null") if kind == "d" else pipe
    for path in (place.file, link, nowhere, place.file / "x", place.file.parent, other):
        question = f"{kind}{path}"
        if kind == "c" and path != place.file:
            continue
        place.witnesses = {question: answers.state(question)}
        assert place.write()
        assert place.read() == _RESULT, question
        place.witnesses[question] += " "
        assert place.write()
        assert place.read() is None, question


class Changes:
    """Changes of a file, with the kinds of witnesses that are no longer true then."""

    @staticmethod
    def content(file: Path) -> str:
        file.write_text("contents")
        return "fsic"

    @staticmethod
    def content_of_the_same_size(file: Path) -> str:
        file.write_text("CONTENT")
        return "fsic"

    @staticmethod
    def content_with_the_size_and_time_that_it_had(file: Path) -> str:
        """`cp --preserve=timestamps` over a file changes its time of change alone."""
        found = file.stat()
        file.write_text("CONTENT")
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        return "fsc"

    @staticmethod
    def rename_of_a_copy(file: Path) -> str:
        shutil.copy2(file, file.with_name("new"))
        file.with_name("new").rename(file)
        return "fsipd"

    @staticmethod
    def mode(file: Path) -> str:
        file.chmod(0o606)
        return "fsod"

    @staticmethod
    def owner(file: Path) -> str:
        os.chown(file, 65534, 65534)
        return "fso"

    @staticmethod
    def link_to_it(file: Path) -> str:
        file.rename(file.with_name("other"))
        file.symlink_to("other")
        return "fsrc"

    @staticmethod
    def removal(file: Path) -> str:
        file.unlink()
        return "fspedoric"

    @staticmethod
    def directory(file: Path) -> str:
        file.unlink()
        file.mkdir()
        return "fspedoic"


_CHANGES = {name: c.__func__ for name, c in vars(Changes).items() if isinstance(c, staticmethod)}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
@pytest.mark.parametrize("kind", "fspedoric")
def test_a_change_makes_the_witnesses_false_that_are_about_it(
    place: Place, change: Callable[[Path], str], kind: str
) -> None:
    place.witnesses = place.asked(kind)
    assert place.write()
    before = place.file.stat().st_ctime_ns
    kinds = change(place.file)
    # a file system's clock may not have gone on since the file was made
    while place.file.exists() and place.file.stat().st_ctime_ns == before:
        change(place.file)
    assert (place.read() is None) == (kind in kinds)


@pytest.mark.parametrize(
    ("state", "variables", "is_right"),
    [
        ("=1", {"V": "1"}, True),
        ("=1", {"V": "2"}, False),
        ("=1", {}, False),
        ("=", {"V": ""}, True),
        ("+", {"V": ""}, True),
        ("+", {"V": "2"}, True),
        ("+", {}, False),
        ("-", {}, True),
        ("-", {"V": ""}, False),
    ],
)
def test_a_variable_is_a_witness(
    place: Place, state: str, variables: dict[str, str], *, is_right: bool
) -> None:
    place.write(vV=state)
    assert (place.read(X="", **variables) == _RESULT) == is_right


def test_an_answer_ends_at_its_time(place: Place) -> None:
    place.write(t=str(int(time.time()) + 1000))
    assert place.read() == _RESULT
    place.write(t=str(int(time.time()) - 1))
    assert place.read() is None


def test_answers_for_other_variables_do_not_overwrite_one_another(place: Place) -> None:
    """A job has steps of one task and of two in turn."""
    for number in (*range(SLOTS), *range(SLOTS)):
        place.write(b"%d" % number, vV=f"={number}")
    for number in range(SLOTS):
        assert place.read(V=str(number)) == b"%d" % number
    place.write(b"new", vV="=new")
    assert place.read(V="new") == b"new"
    assert place.read(V="0") is None
    assert place.read(V="3") == b"3"


def test_an_answer_that_is_wrong_now_makes_room(place: Place) -> None:
    place.write(b"old", vV="=1")
    place.file.write_text("new")
    place.witnesses = place.asked("f")
    place.write(b"new", vV="=1")
    assert len(list(place.directory.iterdir())) == 1
    assert place.read(V="1") == b"new"


def test_only_the_newest_answers_stay(place: Place) -> None:
    for number in range(12):
        place.words = b"%d" % number
        place.write()
    assert len(list(place.directory.iterdir())) == 8
    assert place.read() == _RESULT
    place.words = b"0"
    assert place.read() is None


@pytest.mark.parametrize("header", ["release", "prefix", "boot", "node", "user", "words"])
def test_an_answer_to_another_request_does_not_count(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, header: str
) -> None:
    place.write()
    right = place.answer
    with monkeypatch.context() as changed:
        if header == "boot":
            (tmp_path / "boot").write_text("another\n")
            changed.setattr(answers, "_BOOT", str(tmp_path / "boot"))
        if header == "release":
            changed.setattr(answers, "__version__", "another")
        if header == "user":
            changed.setattr(os, "getgroups", lambda: [0, 54321])
        words = b"another" if header == "words" else place.words
        request = answers.request_of(
            "/another" if header == "prefix" else "/p", words, everywhere=header == "node"
        )
        answers.write(files.open_place(str(place.directory)), request, {}, b"wrong", 8)
    [other] = [path for path in place.directory.iterdir() if path != right]
    assert place.read() == _RESULT
    # two requests may have equal names
    other.rename(right)
    assert place.read() is None


def test_an_answer_for_every_host_names_no_node() -> None:
    header = answers.request_of("/p", b"x", everywhere=True).split(b"\0")
    assert header[:3] == [__version__.encode(), b"/p", b""]


@pytest.mark.parametrize("fault", ["owner", "group", "others", "link", "fifo", "directory", "long"])
def test_an_answer_is_only_taken_from_the_users_own_file(place: Place, fault: str) -> None:
    place.write()
    file, aside = place.answer, place.directory.with_name("aside")
    modes = {"group": 0o620, "others": 0o602}
    if fault == "owner":
        os.chown(file, 65534, 65534)
    elif fault == "long":
        with file.open("ab") as longer:
            longer.truncate(answers.LONGEST + 1)
    elif fault in modes:
        file.chmod(modes[fault])
    else:
        file.rename(aside)
    if fault == "link":
        file.symlink_to(aside)
    if fault == "fifo":
        os.mkfifo(file, 0o600)
    if fault == "directory":
        file.mkdir(0o700)
    assert place.read() is None


def _damaged(whole: bytes) -> Iterator[bytes]:
    yield from (whole[:length] for length in range(0, len(whole), 7))
    yield whole + b"\0"
    yield whole.replace(b"answer 1", b"answer 2")
    for byte in range(0, len(whole), 3):
        yield whole[:byte] + bytes([whole[byte] ^ 1 << byte % 8]) + whole[byte + 1 :]


def test_a_damaged_answer_is_never_used(place: Place) -> None:
    """A disk may do that, a loss of power, or an older engine."""
    place.write()
    whole = place.answer.read_bytes()
    for changed in _damaged(whole):
        place.answer.write_bytes(changed)
        assert place.read() is None, changed
    place.answer.write_bytes(whole)
    assert place.read() == _RESULT


def test_what_is_too_long_is_not_written(place: Place) -> None:
    assert not place.write(b"x" * answers.LONGEST)
    assert not [*place.directory.iterdir()]


@pytest.mark.parametrize("which", ["answers", "mine"])
@pytest.mark.parametrize("fault", ["owner", "mode", "link"])
def test_nothing_is_written_where_others_may_write(place: Place, fault: str, which: str) -> None:
    place.directory.mkdir(parents=True)
    place.directory.parent.chmod(0o700)
    place.directory.chmod(0o700)
    at = place.directory if which == "answers" else place.directory.parent
    if fault == "owner":
        os.chown(at, 65534, 65534)
    elif fault == "mode":
        at.chmod(0o701)
    else:
        at.rename(at.with_name("aside"))
        at.symlink_to("aside")
    with pytest.raises(OSError, match=r"alone|symbolic|directory"):
        place.write()


def test_a_witness_with_a_nul_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="NUL"):
        place.write(vV="=\0")
    for question in ("fx", "f", "", "f/\0"):
        with pytest.raises(ValueError, match="absolute"):
            answers.state(question)


def test_what_has_just_changed_cannot_be_checked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers.can_be_checked(place.witnesses)
    monkeypatch.setattr(files, "SETTLED_NS", 3_600_000_000_000)
    assert not answers.can_be_checked(place.asked("f"))
    assert not answers.can_be_checked(place.asked("s"))
    # a change of these is seen, however soon it comes
    assert answers.can_be_checked(place.asked("p", "e", "d", "o", "r", "c"))
    made = place.file.stat().st_ctime_ns
    assert answers.can_be_checked(place.witnesses, made + 3_600_000_000_001)


@pytest.mark.parametrize("path", ["/proc/self", "/sys/class", "/dev/fd/0", "/dev/pts/0", "link"])
def test_what_comes_and_goes_unseen_cannot_be_checked(place: Place, path: str) -> None:
    if path == "link":
        link = place.file.with_name("link")
        link.symlink_to("/sys/class")
        path = str(link)
    assert not any(answers.can_be_checked([f"{kind}{path}"]) for kind in "fpedor")


def test_each_of_the_engines_files_in_use_is_a_witness() -> None:
    found = answers.installation("s")
    assert f"s{answers.__file__}" in found
    assert f"s{files.__file__}" in found
    assert not [question for question in found if not question.endswith(".py")]


def test_looking_up_a_variable_is_recorded_however_it_is_done() -> None:
    node = dict.fromkeys("abcd", "1")
    variables = Variables(node, {"x": "aside"})
    assert (variables.get("a"), variables["b"], "c" in variables) == ("1", "1", True)
    assert (variables.get("e", "2"), "f" in variables) == ("2", False)
    assert variables.asked == {"va": "=1", "vb": "=1", "vc": "+", "ve": "-", "vf": "-"}
    assert (variables["c"], "a" in variables) == ("1", True)
    assert variables.asked == {"va": "=1", "vb": "=1", "vc": "=1", "ve": "-", "vf": "-"}
    assert without_record(variables).get("x") == "aside"
    assert without_record(node) is node
    assert len(variables.asked) == 5
    assert not variables.are_all


@pytest.mark.parametrize("look", [dict, list, len, lambda v: {**v}, lambda v: [*v.items()]])
def test_going_through_all_variables_is_recorded(look: Callable[[Variables], object]) -> None:
    variables = Variables({"a": "1"})
    look(variables)
    assert variables.are_all


def test_both_programs_have_the_same_limits() -> None:
    known = constants("common/answers.h")
    assert (known["CE_ANSWER_SLOTS"], known["CE_ANSWER_LONGEST"]) == (SLOTS, answers.LONGEST)
