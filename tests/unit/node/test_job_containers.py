"""Finding the directory of a container that lives with its job."""

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, send_fds, socket
from threading import Thread

import pytest

from container_engine.base.errors import LaunchError
from container_engine.base.files import write_private
from container_engine.node.job_containers.directory import names_here, remove
from container_engine.node.job_containers.enter import (
    JobContainer,
    Running,
    enter,
    ignored,
    made_of,
)
from container_engine.node.node_plan import ImageFile, NodePlan, node_plan
from container_engine.node.plan_json import to_json
from container_engine.node.plan_types import KeptContainer


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a directory whose path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as directory:
        yield Path(directory)


NODE = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURMD_NODENAME": "n1"}


def plan(
    directory: Path, mode: str = "auto", image: str = "/i.sqsh"
) -> tuple[KeptContainer, NodePlan]:
    wanted = KeptContainer(name="a", key="0" * 16, directory=str(directory))
    wanted["mode"] = mode  # type: ignore[typeddict-item]
    images = [ImageFile(path=image, name="", digest="")]
    return wanted, NodePlan(kept=wanted, images=images, start_timeout_s=0.2)


def entered(
    directory: Path, mode: str = "auto", image: str = "/i.sqsh", node: Mapping[str, str] = NODE
) -> JobContainer:
    return enter(*plan(directory, mode, image), node)


def place(directory: Path) -> Path:
    return directory / f"ce-kept-{os.geteuid()}" / "7.n1" / ("0" * 16)


def test_the_first_step_makes_a_directory_that_only_its_user_can_enter(short: Path) -> None:
    os.close(entered(short).lock)
    found = place(short)
    assert (found / "image").read_text() == "/i.sqsh"
    for directory in (found, *list(found.parents)[:2]):
        assert directory.stat().st_mode & 0o777 == 0o700


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["boot", "image", "files", "name"])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_fifo, "not a regular file"),
        (_huge, "larger than 16 MiB"),
        (_directory, "Is a directory"),
        (lambda path: (path.unlink(), path.symlink_to("/dev/zero")), "Too many levels of symbolic"),
    ],
)
def test_a_record_that_is_no_file_ends_the_step_at_once(
    short: Path, name: str, damage: Callable[[Path], object], why: str
) -> None:
    image = short / "i.sqsh"
    image.touch()
    first = entered(short, image=str(image))
    first.records.note([str(image)])
    os.close(first.lock)
    damage(place(short) / name)
    if name == "name":  # only lists of names need it
        assert names_here(str(short), "7", "n1") == {}
        return
    with pytest.raises(LaunchError) as refused:
        entered(short, image=str(image))
    assert f"its record {place(short)}/{name} is damaged: {why}" in refused.value.message
    assert refused.value.see == "container-name"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("boot", b"\xff\x00\x01"),
        *(("files", text) for text in (b"\xff\x00", b"{}x", b"[]", b"[" * 100_000, b'{"a')),
    ],
)
def test_a_record_of_other_bytes_is_an_error_and_removes_nothing(
    short: Path, name: str, text: bytes
) -> None:
    os.close(entered(short).lock)
    written = place(short) / "precious"
    written.touch()
    (place(short) / name).write_bytes(text)
    with pytest.raises(LaunchError, match=f"its record .*/{name} is damaged"):
        entered(short)
    assert written.exists()


def test_a_later_step_goes_on_in_the_same_directory(short: Path) -> None:
    first = entered(short)
    os.close(first.lock)
    (place(short) / "door.0.ab").touch()
    second = entered(short)
    os.close(second.lock)
    assert second.directory == first.directory
    assert second.control_socket != first.control_socket
    assert not isinstance(second, Running)
    assert not list(place(short).glob("door.*"))
    assert [path.name for path in sorted(place(short).glob("started.*"))] == [
        "started.0",
        "started.1",
    ]
    assert second.begun == [f"{second.directory}/begun.1"]


# A loss of power may also leave a file without what was written last.
@pytest.mark.parametrize("recorded", ["0b1c9a52-1f0e-4f7c-9d0a-3c2b1a000000", "", "\0" * 36])
def test_a_job_that_comes_back_to_a_node_after_a_reboot_begins_anew(
    short: Path, recorded: str
) -> None:
    first = entered(short)
    os.close(first.lock)
    for name in ("changes", "work"):
        (place(short) / name / "secret").mkdir(parents=True)
        (place(short) / name).chmod(0)
    (place(short) / "boot").write_text(recorded)
    second = entered(short, "create", "/other.sqsh")
    os.close(second.lock)
    kept = {path.name for path in place(short).iterdir()}
    assert kept.isdisjoint({"changes", "work"})
    assert (place(short) / "image").read_text() == "/other.sqsh"


@pytest.mark.parametrize("node", ["n2", "n1"])
def test_another_node_or_job_has_another_one(short: Path, node: str) -> None:
    first = entered(short)
    job = "7" if node == "n2" else "8"
    other = entered(short, node={**NODE, "SLURMD_NODENAME": node, "SLURM_JOB_ID": job})
    assert other.directory != first.directory
    os.close(first.lock)
    os.close(other.lock)


@pytest.mark.parametrize(
    ("mode", "image", "reason"),
    [
        ("create", "/i.sqsh", "this job has it on this node already"),
        ("exec", "/i.sqsh", "no step of this job runs in it on this node"),
        ("auto", "/other.sqsh", "this job made it from '/i.sqsh', and this step asks for '/other"),
    ],
)
def test_an_existing_container_must_fit_the_step(
    short: Path, mode: str, image: str, reason: str
) -> None:
    os.close(entered(short).lock)
    with pytest.raises(LaunchError) as caught:
        entered(short, mode, image)
    assert caught.value.message.startswith(f"container 'a': {reason}")


def test_one_that_runs_is_not_created(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    with pytest.raises(LaunchError, match="it runs already in another step"):
        entered(short, "create")
    os.close(first.lock)


MOUNT = {"kind": "bind", "source": "/tmp", "target": "/t", "options": [], "from": "e.toml:2"}
MADE = {
    "mounts": [MOUNT],
    "devices": [{"name": "/dev/fuse", "cdi": False, "from": "e.toml:3"}],
    "writable": True,
    "writable_from": "--container-writable",
    "startup": [],
    "annotations": {"com.ce.root_remap": "true", "com.ce.container_name": "a"},
    "annotations_from": {"com.ce.root_remap": "--container-remap-root"},
}


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        (MADE, []),
        ({"writable": False, "annotations": {"com.ce.container_name": "a:exec"}}, []),
        ({"mounts": [{**MOUNT, "from": "--container-mounts"}]}, []),
        (
            {"mounts": [{**MOUNT, "target": "/u", "from": "--container-mounts"}, MOUNT]},
            ["--container-mounts (/u)"],
        ),
        ({"devices": [{"name": "/dev/kvm", "cdi": False, "from": "x:1"}]}, ["x:1 (/dev/kvm)"]),
        ({"startup": [{"line": [{"var": "A"}], "from": "x:2"}]}, ["x:2"]),
        (
            {
                "annotations": {"com.ce.root_remap": "false"},
                "annotations_from": {"com.ce.root_remap": "--no-container-remap-root"},
            },
            ["--no-container-remap-root (com.ce.root_remap)"],
        ),
    ],
)
def test_a_joining_step_is_warned_only_of_what_the_running_container_lacks(
    asked: Mapping[str, object], lacks: Sequence[str]
) -> None:
    assert list(ignored(made_of(node_plan(MADE)), node_plan(asked))) == lacks


@pytest.mark.parametrize(
    "made", ["", "{", "[1]", "[" * 100_000, '{"mounts": [1]}', to_json({**MADE, "writable": False})]
)
def test_a_step_that_joins_a_read_only_container_is_warned(made: str) -> None:
    asked = {"writable": True, "writable_from": "--container-writable"}
    assert list(ignored(made, node_plan(asked))) == ["--container-writable (writable)"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (LOCK_EX, "another step of this job is still starting it"),
        (LOCK_SH, "does not respond"),
    ],
)
def test_a_start_that_is_never_done_is_not_awaited_for_ever(
    short: Path, how: int, reason: str
) -> None:
    first = entered(short)
    flock(first.lock, how)
    with pytest.raises(LaunchError, match=reason):
        entered(short)
    os.close(first.lock)


def test_a_guard_that_hangs_is_not_awaited_for_ever(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    with socket(AF_UNIX, SOCK_SEQPACKET) as hung:
        hung.bind(f"{place(short)}/door.0.aa")
        hung.listen()
        begun = time.monotonic()
        with pytest.raises(LaunchError, match="it runs in another step of this job, which"):
            entered(short)
        assert time.monotonic() - begun < 5
    os.close(first.lock)


def test_an_image_file_that_was_replaced_is_not_put_below_what_was_written(short: Path) -> None:
    """A later step's image server would read from the other file."""
    image = short / "i.sqsh"
    image.write_text("old")
    first = entered(short, image=str(image))
    first.records.note([str(image)])
    os.close(first.lock)
    os.close(entered(short, image=str(image)).lock)
    image.rename(short / "old")
    image.write_text("new")
    with pytest.raises(LaunchError, match=r"i\.sqsh' has been replaced since this job made it"):
        entered(short, image=str(image))


def test_files_of_a_running_container_that_were_replaced_are_not_served_again(short: Path) -> None:
    mounted = short / "m.sqsh"
    mounted.write_text("old")
    first = entered(short)
    first.records.note([str(mounted)])
    flock(first.lock, LOCK_SH)
    mounted.write_text("newer")
    with answering(place(short), mounted), pytest.raises(LaunchError, match=r"m\.sqsh' has been"):
        entered(short)
    os.close(first.lock)


def test_a_running_container_is_not_joined_for_another_image(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    with (
        answering(place(short), Path("/i.sqsh")),
        pytest.raises(
            LaunchError, match=r"made it from '/i\.sqsh', and this step asks for '/other"
        ),
    ):
        entered(short, image="/other.sqsh")
    os.close(first.lock)


def test_a_running_container_is_not_joined_for_namespaces_that_it_has_not(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    wanted, want = plan(short)
    want = want.but(unshare=["net"])
    with (
        answering(place(short), Path("/i.sqsh")),
        pytest.raises(LaunchError, match="not in a separate network namespace"),
    ):
        enter(wanted, want, NODE)
    os.close(first.lock)


def test_a_container_that_is_handed_over_in_part_is_not_joined(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    with (
        answering(place(short), Path("/i.sqsh"), whole=False),
        pytest.raises(LaunchError, match="which does not respond"),
    ):
        entered(short)
    os.close(first.lock)


@pytest.mark.parametrize(
    "packets",
    [
        [(b"\0", 0)],
        [(b"C", 0), (b"\0", 0)],
        [(b"C", 4), (b"\0", 0)],
        [(b"C", 5), (b"/i.sqsh", 0), (b"\0", 0)],
    ],
)
def test_an_invalid_answer_counts_as_no_response(
    short: Path, packets: Sequence[tuple[bytes, int]]
) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)

    def answer() -> None:
        visitor, _address = listener.accept()
        with visitor, open("/proc/self/environ") as file:
            for data, count in packets:
                with contextlib.suppress(BrokenPipeError):  # the visitor may have left
                    send_fds(visitor, [data], [file.fileno()] * count)

    with socket(AF_UNIX, SOCK_SEQPACKET) as listener:
        listener.bind(f"{place(short)}/door.0.aa")
        listener.listen()
        thread = Thread(target=answer)
        thread.start()
        with pytest.raises(LaunchError, match="which does not respond"):
            entered(short)
        thread.join(20)
    os.close(first.lock)


def test_a_running_container_is_joined(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    with answering(place(short), Path("/i.sqsh")):
        joined = entered(short)
    assert isinstance(joined, Running)
    assert joined.images == ["/i.sqsh"]
    for fd in (joined.guards_ns, *joined.passed, first.lock):
        os.close(fd)


@contextmanager
def answering(directory: Path, image: Path, *, whole: bool = True) -> Iterator[None]:
    """Answer one visitor as a guard that serves this image does."""

    def answer() -> None:
        visitor, _address = listener.accept()
        with visitor, open("/proc/self/environ") as file:
            send_fds(visitor, [b"C"], [file.fileno()] * 5)
            send_fds(visitor, [bytes(image)], [file.fileno()])
            if whole:
                visitor.send(b"\0")

    with socket(AF_UNIX, SOCK_SEQPACKET) as listener:
        listener.bind(f"{directory}/door.0.aa")
        listener.listen()
        thread = Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            thread.join(20)


def test_a_record_is_written_into_no_file_that_is_there(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that knows the random part of the draft's name gains nothing."""
    elsewhere = short / "elsewhere"
    monkeypatch.setattr(os, "urandom", bytes)
    (short / ".name.000000").symlink_to(elsewhere)
    with pytest.raises(FileExistsError):
        write_private(str(short), "name", b"text")
    assert not elsewhere.exists()
    assert not (short / "name").exists()


def test_a_full_disk_is_the_cause_and_leaves_no_half_of_a_record(small: Path) -> None:
    first = entered(small)
    os.close(first.lock)
    with contextlib.suppress(OSError):
        (small / "filler").write_bytes(b"x" * (1 << 20))
    long = f"/{'i' * 8000}.sqsh"
    with pytest.raises(LaunchError, match=r"cannot write below .*No space left on device"):
        entered(small, image=long, node={**NODE, "SLURM_JOB_ID": "8"})
    with pytest.raises(LaunchError, match="cannot write below"):
        first.records.note([str(small)] * 3)
    assert (place(small) / "image").read_text() == "/i.sqsh"


def test_a_disk_without_room_for_a_directory_is_reported_as_full(small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=1", small], check=True)
    with pytest.raises(LaunchError, match="No space left on device") as caught:
        entered(small)
    assert caught.value.hint == "make room on the node's disk, or ask the site for another kept_dir"


@pytest.fixture
def small(short: Path) -> Iterator[Path]:
    """Yield a directory with little room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", short], check=True)
    yield short
    subprocess.run(["umount", "-l", short], check=True)


def test_removing_one_that_runs_takes_its_name_only(short: Path) -> None:
    first = entered(short)
    flock(first.lock, LOCK_SH)
    job = (str(short), "7", "n1")
    assert names_here(*job) == {"a": str(place(short))}
    assert not remove(str(place(short)))
    assert remove(str(place(short)), force=True)
    assert names_here(*job) == {}
    second = entered(short, "create", "/other.sqsh")
    os.close(first.lock)
    os.close(second.lock)
    (place(short) / "changes").mkdir(mode=0)
    assert remove(str(place(short)))
    assert not place(short).exists()


def test_a_directory_that_others_may_enter_is_not_used(short: Path) -> None:
    (short / f"ce-kept-{os.geteuid()}").mkdir()
    with pytest.raises(LaunchError, match="not a directory that only you can write"):
        entered(short)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
@pytest.mark.parametrize("name", ["", "7.n1", f"7.n1/{'0' * 16}"])
def test_a_directory_of_another_user_is_not_used(short: Path, name: str) -> None:
    planted = short / f"ce-kept-{os.geteuid()}" / name
    planted.mkdir(mode=0o700, parents=True)
    for path in (place(short).parent, place(short).parent.parent):
        if path.exists():
            path.chmod(0o700)
    os.chown(planted, 61_001, 61_001)
    with pytest.raises(LaunchError, match="not a directory that only you can write"):
        entered(short)


def test_a_link_in_place_of_the_directory_is_not_followed(short: Path) -> None:
    (short / "mine").mkdir(mode=0o700)
    (short / f"ce-kept-{os.geteuid()}").symlink_to(short / "mine")
    with pytest.raises(LaunchError, match="not a directory that only you can write"):
        entered(short)


def _take(path: Path, kind: str) -> None:
    """Put something in the place of the user's directory, as another user could."""
    if kind == "link":
        (path.parent / "mine").mkdir(mode=0o700)
        path.symlink_to(path.parent / "mine")
    elif kind == "file":
        path.touch(mode=0o600)
    else:
        path.mkdir(mode=0o777 if kind == "open" else 0o700)
    if kind == "theirs":
        os.chown(path, 61_001, 61_001)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
@pytest.mark.parametrize("kind", ["theirs", "open", "link", "file"])
def test_where_another_user_has_taken_the_name_all_steps_use_one_that_nobody_can_guess(
    short: Path, tmp_path: Path, kind: str
) -> None:
    taken = place(short).parents[1]
    _take(taken, kind)
    (short / f"{taken.name}.0").mkdir()
    home = {"HOME": str(tmp_path)}
    first = entered(short, node=NODE | home)
    os.close(first.lock)
    assert re.fullmatch(rf"{taken}\.[0-9a-f]{{16}}/7\.n1/0+", first.directory)
    assert Path(first.directory).parents[1].stat().st_mode & 0o777 == 0o700
    assert names_here(str(short), "7", "n1") == {"a": first.directory}
    other = entered(short, node=NODE | home | {"SLURM_JOB_ID": "8"})
    os.close(other.lock)
    assert Path(other.directory).parents[1] != Path(first.directory).parents[1]
    elsewhere = short / "elsewhere"
    elsewhere.mkdir()
    _take(place(elsewhere).parents[1], kind)
    (tmp_path / "home").mkdir()
    same = entered(elsewhere, node=NODE | {"HOME": str(tmp_path / "home")})
    os.close(same.lock)
    # another user of the same job has another name
    assert Path(same.directory).parents[1].name != Path(first.directory).parents[1].name
    # now the other user gives the name back: the job's later steps stay where the first one was
    os.rename(taken, short / "away")
    for again in (NODE | home, NODE):
        later = entered(short, node=again)
        os.close(later.lock)
        assert later.directory == first.directory


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
@pytest.mark.parametrize("suffix", ["", ".0"])
def test_a_jobs_directory_that_another_user_can_move_is_not_the_jobs(
    short: Path, suffix: str
) -> None:
    taken = Path(f"{place(short).parents[1]}{suffix}")
    (taken / "7.n1" / ("0" * 16)).mkdir(parents=True, mode=0o700)
    (taken / "7.n1").chmod(0o700)
    (taken / "7.n1" / ("0" * 16) / "name").write_text("a")
    taken.chmod(0o777)
    assert names_here(str(short), "7", "n1") == {}
    taken.chmod(0o700)
    os.chown(taken, 61_001, 61_001)
    assert names_here(str(short), "7", "n1") == {}
    os.chown(taken, 0, 0)
    assert names_here(str(short), "7", "n1") == {"a": f"{taken}/7.n1/{'0' * 16}"}


def test_a_path_too_long_for_a_socket_is_refused(short: Path) -> None:
    long = short / ("d" * 100)
    long.mkdir()
    with pytest.raises(LaunchError, match="too long for a socket"):
        entered(long)


@pytest.mark.parametrize("node", [{}, {**NODE, "SLURM_JOB_ID": "../7"}])
def test_without_a_job_no_container_is_kept(short: Path, node: Mapping[str, str]) -> None:
    with pytest.raises(LaunchError, match="it lives with a job, and there is no job here"):
        entered(short, node=node)
