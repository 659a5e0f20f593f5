"""Search of an environment by name, and the error if it is not found."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.edf.locate import NotFoundError, SourceError, locate, read_source, search_path
from tests.unit.edf.cases import load_edf, seen, write


def found(name: str, cwd: Path, **env: str) -> str | None:
    edf = load_edf(name, cwd=cwd, **env).edf
    return None if edf is None else edf.files[-1]


def test_a_path_is_relative_to_the_calling_process(tmp_path: Path) -> None:
    here = write(tmp_path, "a/x.toml", "")
    plain = write(tmp_path, "a/plain", "")
    for name, expected in {
        str(here): here,
        "./x.toml": here,
        "x.toml": here,
        "../a/x.toml": here,
        "./plain": plain,
    }.items():
        assert found(name, tmp_path / "a") == str(expected)


def test_a_name_that_no_shell_expanded_begins_in_the_home_directory(tmp_path: Path) -> None:
    own = write(tmp_path, "own/x.toml", "")
    plain = write(tmp_path, "own/plain", "")
    home = f"{tmp_path}/own"
    assert found("~/x.toml", tmp_path, HOME=home) == str(own)
    assert found("~/plain", tmp_path, HOME=home) == str(plain)
    assert found("~/${NAME:-x}.toml", tmp_path, HOME=home) == str(own)
    # in a file, where no shell would expand it, `~` is not the home
    base = write(tmp_path, "base.toml", 'base_environment = ["~/x.toml"]\n')
    loaded = load_edf(base, cwd=tmp_path, HOME=home)
    assert seen(loaded, tmp_path) == (
        "ce: error: base.toml:1: base_environment[0]: no such file: '~/x.toml'\n"
        "ce: hint: '~' is not expanded, write ${HOME}\n"
    )


def test_a_name_is_looked_for_in_the_users_then_in_the_sites_directory() -> None:
    assert search_path({"HOME": "/home/me"}, ("/etc/edf", "/apps/edf")) == (
        "/home/me/.edf",
        "/etc/edf",
        "/apps/edf",
    )
    assert search_path({}, ("/etc/edf", "/apps/edf")) == ("/etc/edf", "/apps/edf")
    with_path = {"HOME": "/home/me", "EDF_PATH": "/a::/b"}
    assert search_path(with_path, ("/etc/edf", "/apps/edf")) == (
        "/a",
        "/b",
        "/etc/edf",
        "/apps/edf",
    )


def test_the_first_directory_of_the_search_path_wins(tmp_path: Path) -> None:
    first = write(tmp_path, "1/x.toml", "")
    write(tmp_path, "2/x.toml", "")
    second = write(tmp_path, "2/group/.y.toml", "")
    path = f"{tmp_path}/1:{tmp_path}/2"
    assert found("x", tmp_path, EDF_PATH=path) == str(first)
    assert found("group/.y", tmp_path, EDF_PATH=path) == str(second)
    assert found("${NAME:-x}", tmp_path, EDF_PATH=path) == str(first)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize("name", ["x", "group/x"])
def test_a_searched_directory_that_everybody_may_write_has_files_of_trusted_users_only(
    tmp_path: Path, name: str
) -> None:
    """A file that is given by its path is the user's own choice."""
    file = write(tmp_path, f"edfs/{name}.toml", "")
    place, mine, other = tmp_path / "edfs", 61_001, 61_002
    put = place / name.partition("/")[0] if "/" in name else file
    os.chown(put, other, other)
    assert found(name, tmp_path, EDF_PATH=str(place)) == str(file)
    place.chmod(0o1777)
    loaded = load_edf(name, cwd=tmp_path, EDF_PATH=str(place))
    assert loaded.edf is None
    said = f"{put}: owned by user {other}, in a directory that everybody may write"
    assert said in seen(loaded, tmp_path / "none")
    assert found(str(file), tmp_path, EDF_PATH=str(place)) == str(file)
    os.chown(place, other, other)
    assert found(name, tmp_path, EDF_PATH=str(place)) == str(file)
    os.chown(place, mine, mine)
    os.chown(put, 0, 0)
    assert found(name, tmp_path, EDF_PATH=str(place)) == str(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_of_a_searched_directory_that_everybody_may_write_a_users_own_files_count_and_roots() -> (
    None
):
    user, owner, other = 61_001, 61_002, 61_003
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        file = Path(place, "x.toml")
        file.touch()
        os.chmod(place, 0o1777)
        os.chown(place, owner, owner)
        for uid in (0, user, owner, other):
            os.chown(file, uid, uid)
            refused = pytest.raises(UserError, match=f"owned by user {other}")
            os.seteuid(user)
            try:
                with refused if uid == other else contextlib.nullcontext():
                    locate("x", "/", (place,), {})
            finally:
                os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize("name", ["x", "group/x"])
def test_a_file_that_another_user_puts_there_after_it_was_found_is_not_read(
    tmp_path: Path, name: str
) -> None:
    file, place = write(tmp_path, f"edfs/{name}.toml", 'image = "a"\n'), tmp_path / "edfs"
    place.chmod(0o777)
    located = locate(name, "/", (str(place),), {})
    assert read_source(*located) == 'image = "a"\n'
    put = place / name.partition("/")[0] if "/" in name else file
    put.rename(tmp_path / "away")
    write(tmp_path, f"edfs/{name}.toml", 'image = "theirs"\n')
    os.chown(put, 61_002, 61_002)
    with pytest.raises(SourceError, match="owned by user 61002") as caught:
        read_source(*located)
    assert caught.value.see == "untrusted-file"
    put.rename(tmp_path / "theirs")
    put.symlink_to(tmp_path / "away")
    assert read_source(*located) == 'image = "a"\n'


def test_a_name_with_dots_in_a_searched_directory_that_is_a_link_is_found(tmp_path: Path) -> None:
    file = write(tmp_path, "real/deep/edfs/x.toml", "")
    write(tmp_path, "real/deep/edfs/group/y.toml", "")
    (tmp_path / "link").symlink_to(file.parent)
    assert found("group/../x", tmp_path, EDF_PATH=str(tmp_path / "link")) == str(file)


def test_a_file_that_goes_while_its_owner_is_looked_at_is_not_found(tmp_path: Path) -> None:
    file = write(tmp_path, "edfs/x.toml", "")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            file.touch()
            file.unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _round in range(3000):
            with contextlib.suppress(NotFoundError):
                assert locate("x", str(tmp_path), (str(file.parent),), {})[0] == str(file)
    finally:
        done.set()
        other.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_the_owner_of_a_link_in_such_a_directory_counts_not_that_of_its_target(
    tmp_path: Path,
) -> None:
    target, place = write(tmp_path, "mine/secret.toml", ""), tmp_path / "edfs"
    place.mkdir()
    place.chmod(0o1777)
    (place / "x.toml").symlink_to(target)
    assert found("x", tmp_path, EDF_PATH=str(place)) == str(place / "x.toml")
    os.chown(place / "x.toml", 61_002, 61_002, follow_symlinks=False)
    assert found("x", tmp_path, EDF_PATH=str(place)) is None


def test_all_searched_paths_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "2/x.toml", 'base_environment = "./base.toml"\n')
    loaded = load_edf("x", cwd=tmp_path, EDF_PATH=f"{tmp_path}/1:{tmp_path}/2")
    written = ("1/x.toml", "2/x.toml", "./base.toml", "base.toml")
    expected = [f"{tmp_path}/{name}" for name in written]
    assert list(loaded.probed) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torhc", "torhc: no environment 'torhc' in {edf}, /nonexistent/etc/edf\n"
                  "ce: hint: did you mean 'torch'?\n"),
        ("none", "none: no environment 'none' in {edf}, /nonexistent/etc/edf\n"),
        ("group/yy", "group/yy: no environment 'group/yy' in {edf}, /nonexistent/etc/edf\n"
                     "ce: hint: did you mean 'group/yyy'?\n"),
        ("local", "local: no environment 'local' in {edf}, /nonexistent/etc/edf\n"
                  "ce: hint: did you mean './local.toml'?\n"),
        ("torch.toml", "torch.toml: no such file: '{cwd}/torch.toml'\n"
                       "ce: hint: write 'torch', without '.toml', to search for it\n"),
        ("./local", "./local: no such file: '{cwd}/local'\n"
                    "ce: hint: did you mean './local.toml'?\n"),
        ("./loca.toml", "./loca.toml: no such file: '{cwd}/loca.toml'\n"
                        "ce: hint: did you mean './local.toml'?\n"),
        # A common ending does not make names alike.
        ("./loop.toml", "./loop.toml: no such file: '{cwd}/loop.toml'\n"),
        ("./~/x.toml", "./~/x.toml: no such file: '{cwd}/~/x.toml'\n"
                       "ce: hint: '~' is not expanded, write ${{HOME}}\n"),
        ("~bob/x.toml", "~bob/x.toml: no such file: '{cwd}/~bob/x.toml'\n"
                        "ce: hint: '~bob' is not expanded, write the path of that directory\n"),
        ("~bob/x", "~bob/x: no environment '~bob/x' in {edf}, /nonexistent/etc/edf\n"
                   "ce: hint: '~bob' is not expanded, write the path of that directory\n"),
        ("~/x.toml", "~/x.toml: no such file: '/home/user/x.toml'\n"),
        ("local.toml/x.toml", "local.toml/x.toml: no such file: '{cwd}/local.toml/x.toml'\n"),
        ("", "the name of the environment is empty\n"
             "ce: hint: is a variable set to nothing, CE_ENVIRONMENT perhaps?\n"),
        ("ubuntu:24.04",
         "ubuntu:24.04: no environment 'ubuntu:24.04' in {edf}, /nonexistent/etc/edf\n"
         "ce: hint: for an image write an environment first: ce init NAME --image ubuntu:24.04\n"),
        ("a:\n", "a:\\n: no environment 'a:\\n' in {edf}, /nonexistent/etc/edf\n"
                "ce: hint: for an image write an environment first: ce init NAME --image a:\\n\n"),
        ("a\0b", "a\\x00b: no environment 'a\\x00b' in {edf}, /nonexistent/etc/edf "
                 "({edf}: embedded null byte) (/nonexistent/etc/edf: embedded null byte)\n"),
        ("run.py", "run.py: no environment 'run.py' in {edf}, /nonexistent/etc/edf\n"
                   "ce: hint: the name is missing: --environment=NAME run.py\n"),
        ("a\nb", "a\\nb: no environment 'a\\nb' in {edf}, /nonexistent/etc/edf\n"),
        ("$NOPE", "$NOPE: variable 'NOPE' is not defined\n"
                  "ce: hint: export NOPE before the launch, or write ${{NOPE:-default}}\n"),
        ("$SLURM_X", "$SLURM_X: the name of an environment cannot depend on 'SLURM_X'\n"),
        ("$(x)", "$(x): command substitution '$(x)' is not supported in an EDF\n"
                 "ce: hint: run the command before the launch, export its output as a variable "
                 "and use that here; a literal '$(' is written '$$('\n"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_explained(tmp_path: Path, name: str, said: str) -> None:
    edf, cwd = tmp_path / "edf", tmp_path / "cwd"
    for file in ("edf/torch.toml", "edf/group/yyy.toml", "cwd/local.toml", "cwd/run.py"):
        write(tmp_path, file, "")
    text = seen(load_edf(name, cwd=cwd, EDF_PATH=str(edf)), Path("/nowhere"))
    assert text == "ce: error: " + said.format(edf=edf, cwd=cwd)


def test_what_is_not_a_text_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "dir.toml").mkdir()
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "notepad.toml").write_bytes('image = "x"\n'.encode("utf-16"))
    (tmp_path / "x.sqsh").write_bytes(b"hsqs" + bytes(92))
    write(tmp_path, "big.toml", "#" * (1 << 20) + "\n")
    write(tmp_path, "limit.toml", "#" * (1 << 20))
    for name, said in {
        "dir.toml": "is a directory, not an EDF\nce: hint: use a regular file",
        "fifo.toml": "is a pipe or a device, not an EDF\nce: hint: use a regular file",
        "big.toml": "is larger than 1 MiB, the limit for an EDF",
        "x.sqsh": "is an image, not an EDF\n"
        "ce: hint: 'ce init NAME --image FILE' writes an environment for it",
        "/dev/zero": "is a pipe or a device, not an EDF\nce: hint: use a regular file",
    }.items():
        path = tmp_path / name
        expected = f"ce: error: {path}: {said.format(path=path)}\n"
        assert seen(load_edf(path), Path("/nowhere")) == expected
    assert seen(load_edf(tmp_path / "limit.toml"), tmp_path) == ""
    assert seen(load_edf(tmp_path / "notepad.toml"), tmp_path) == (
        "ce: error: notepad.toml:1: is UTF-16, not UTF-8\nce: hint: save it as UTF-8\n"
    )


def test_a_file_that_may_not_be_read_is_refused_in_one_line(somebody: Path) -> None:
    path = write(somebody, "secret.toml", "")
    path.chmod(0)
    with _as_nobody():
        text = seen(load_edf(path), somebody)
    assert text == "ce: error: secret.toml: cannot be read: permission denied\n"


def test_a_directory_that_may_not_be_entered_is_named(somebody: Path) -> None:
    (somebody / "edf").mkdir(mode=0)
    with _as_nobody():
        text = seen(load_edf("x", EDF_PATH=str(somebody / "edf")), somebody)
    assert text == (
        "ce: error: x: no environment 'x' in edf, /nonexistent/etc/edf (edf: permission denied)\n"
    )


def test_a_file_whose_reading_fails_is_refused_in_one_line() -> None:
    text = seen(load_edf("/proc/self/mem"), Path("/nowhere"))
    assert text == (
        "ce: error: /proc/self/mem: cannot be read: input/output error\n"
        "ce: hint: the file system reports an error there: try again, then ask its administrator\n"
    )


def test_a_link_to_itself_and_an_endless_name_are_no_matter_of_rights(tmp_path: Path) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    loop = "a symbolic link leads back to itself: ls -l shows where each one leads"
    for text in (
        seen(load_edf(tmp_path / "loop.toml"), tmp_path),
        seen(load_edf("loop", EDF_PATH=str(tmp_path)), tmp_path),
    ):
        assert "too many levels of symbolic links" in text
        assert text.endswith(f"\nce: hint: {loop}\n")
    long = seen(load_edf(f"/{'a' * 300}.toml"), tmp_path)
    assert long.endswith("ce: hint: check the name: no file can have one so long\n")


@pytest.fixture
def somebody() -> Iterator[Path]:
    """Yield a directory that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    """Drop root's rights, as root may read everything; any other user is left as is."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
