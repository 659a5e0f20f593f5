"""The ssh hook's keys, records and ports, without a container."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ce_ssh import keys, record
from ce_ssh.ports import address_of, claim, is_free, listeners
from container_engine.base.errors import LaunchError
from container_engine.node import job_secret as secret

# RFC 8032, 7.1: secret and public key
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    ),
]


@pytest.mark.parametrize(("secret", "public"), VECTORS)
def test_a_public_key_is_that_of_the_standard(secret: str, public: str) -> None:
    assert keys.Pair(bytes.fromhex(secret)).public.hex() == public


def test_a_secret_gives_other_keys_for_other_purposes_and_steps() -> None:
    pairs = [keys.derive(secret, use) for secret in "ab" for use in ("host", "user")]
    assert len({pair.public for pair in pairs}) == 4
    assert keys.derive("a", "host").public == pairs[0].public


def test_openssh_and_dropbear_read_the_private_keys(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    pair = keys.derive("x", "user")
    for name, tool, content in (
        ("openssh", "ssh-keygen", keys.openssh_file(pair, "step")),
        ("dropbear", "dropbearkey", keys.dropbear_file(pair)),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        file.chmod(0o600)
        argv = [need_tool(tool), "-y", "-f", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert keys.public_line(pair) in done.stdout


def test_a_record_tells_all_and_one_that_is_cut_short_is_passed_over(tmp_path: Path) -> None:
    steps = (("7", "10", "n1"), ("7", "0", "n1"), ("7", "1", "n2"), ("70", "0", "n3"))
    for job, step, node in steps:
        directory = f"{tmp_path}/{job}/{step}"
        assert record.prepare(directory, node)
        record.write(directory, node, "15264 host1 me /h/my keys/k.pub", "ssh-ed25519 AAAA")
    (tmp_path / "7/0/n9.port").write_text("")
    found = record.servers(str(tmp_path), "7")
    assert [(server.step, server.node) for server in found] == [
        ("7.0", "n1"),
        ("7.1", "n2"),
        ("7.10", "n1"),
    ]
    [server] = record.servers(str(tmp_path), "7.1")
    assert (server.port, server.address, server.user) == (15264, "host1", "me")
    assert (server.key_file, server.host_key) == ("/h/my keys/k.pub", "ssh-ed25519 AAAA")


def test_what_a_node_left_in_an_earlier_run_of_its_job_is_no_server(tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2"}
    for node, more in (("n1", {}), ("n2", {"SLURM_RESTART_COUNT": "1"})):
        directory = f"{tmp_path}/{record.of_step(step | more)}"
        assert record.prepare(directory, node)
        record.write(directory, node, "1 h u ", "ssh-ed25519 AAAA")
    for wanted in ("7", "7.2"):
        [server] = record.servers(str(tmp_path), wanted)
        assert (server.step, server.node) == ("7.2", "n2")


def test_a_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    directory = f"{tmp_path}/7/0"
    record.prepare(directory, "n1")
    record.write(directory, "n1", "1 h u ", "ssh-ed25519 AAAA")
    modes = {path.stat().st_mode & 0o77 for path in (tmp_path / "7").rglob("*")}
    assert modes | {(tmp_path / "7").stat().st_mode & 0o77} == {0}


def _remove(paths: Sequence[str]) -> None:
    """Remove paths as ce-reaper does."""
    for path in paths:
        with suppress(OSError):
            Path(path).rmdir() if Path(path).is_dir() else Path(path).unlink()


def test_a_node_that_ends_leaves_the_directory_to_one_that_still_starts(tmp_path: Path) -> None:
    directory = f"{tmp_path}/7/0"
    for node in ("n1", "n2"):
        assert record.prepare(directory, node)
    record.write(directory, "n1", "1 h u ", "ssh-ed25519 AAAA")
    _remove(record.leftovers(directory, "n1"))
    record.write(directory, "n2", "2 h u ", "ssh-ed25519 AAAA")
    assert [server.node for server in record.servers(str(tmp_path), "7")] == ["n2"]
    _remove(record.leftovers(directory, "n2"))
    assert list(tmp_path.iterdir()) == []


# ---- the secret ------------------------------------------------------------------------------


def _secret(home: Path, **job: str) -> str:
    return secret.of_job({f"SLURM_{k}": v for k, v in job.items()}, str(home), "this launch's")


def test_the_steps_of_a_job_have_one_secret_and_other_jobs_and_users_another(
    tmp_path: Path,
) -> None:
    mine, yours = tmp_path / "me", tmp_path / "you"
    first = _secret(mine, JOB_ID="7", STEP_ID="0")
    assert _secret(mine, JOB_ID="7", STEP_ID="1") == first
    assert _secret(mine, JOB_ID="9", HET_JOB_ID="7") == first
    assert len({first, _secret(mine, JOB_ID="8"), _secret(yours, JOB_ID="7")}) == 3
    kept = mine / secret.PLACE
    assert (kept.stat().st_mode & 0o777, len(kept.read_bytes())) == (0o600, 32)
    assert list(kept.parent.iterdir()) == [kept]


def test_nodes_that_start_at_once_make_one_secret(tmp_path: Path) -> None:
    with ProcessPoolExecutor(8) as pool:
        made = set(pool.map(partial(_secret, JOB_ID="7"), [tmp_path] * 64))
    assert len(made) == 1


def test_without_a_job_or_a_home_a_launch_has_its_own_secret(tmp_path: Path) -> None:
    assert _secret(tmp_path) == "this launch's"
    assert _secret(Path("/proc/none"), JOB_ID="7") == "this launch's"
    assert list(tmp_path.iterdir()) == []


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _secret(tmp_path, JOB_ID="7")
    kept = tmp_path / secret.PLACE
    kept.chmod(0o640)
    with pytest.raises(LaunchError) as failure:
        _secret(tmp_path, JOB_ID="7")
    assert str(failure.value) == f"'{kept}' must be a file of 32 bytes that only you can read"
    assert failure.value.hint == "remove the file; the next start makes a new one"


# ---- ports -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "address"), [("lo", "127.0.0.1"), ("10.1.2.3", "10.1.2.3"), ("fe80::1", "fe80::1")]
)
def test_a_server_listens_at_an_address_or_at_that_of_an_interface(
    where: str, address: str
) -> None:
    assert address_of(where) == address


def test_an_interface_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="No such device"):
        address_of("absent0")


def test_a_port_is_free_only_where_nobody_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
        assert listeners(os.getpid, port) == (True, False)
        assert listeners(os.getppid, port) == (False, True)
    assert is_free(port)
    assert listeners(os.getpid, port) == (False, False)


def test_a_server_with_half_of_a_port_is_told_from_one_that_has_it_all() -> None:
    """Two servers run at once: one listens for IPv4, the other for IPv6."""
    with socket.socket() as half:
        half.bind(("127.0.0.1", 0))
        half.listen()
        port = half.getsockname()[1]
        listen = (
            "import socket, sys; s = socket.socket(socket.AF_INET6);"
            f" s.setsockopt(41, 26, 1); s.bind(('::1', {port})); s.listen();"
            " print(flush=True); sys.stdin.read()"
        )
        words = [sys.executable, "-c", listen]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"\n"
            assert listeners(os.getpid, port) == (True, True)
            assert listeners(lambda: other.pid, port) == (True, True)
            other.communicate()
        assert listeners(os.getpid, port) == (True, False)


def test_a_port_is_claimed_by_one_launch_at_a_time() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    first = claim(port)
    assert first is not None
    assert claim(port) is None
    again = claim(port + 1)
    assert again is not None
    again.close()
    first.close()
    last = claim(port)
    assert last is not None
    last.close()


def test_records_that_others_may_write_lead_nobody_astray(tmp_path: Path) -> None:
    """With a cache in /tmp another user could redirect the user's own logins."""
    directory = tmp_path / "7/0"
    assert record.prepare(str(directory), "n1")
    record.write(str(directory), "n1", "15264 evil.example me /k", "ssh-ed25519 AAAA")
    assert len(record.servers(str(tmp_path), "7")) == 1
    for path in (directory, directory.parent):
        path.chmod(0o777)
        assert record.servers(str(tmp_path), "7") == []
        assert not record.prepare(str(directory), "n1")
        path.chmod(0o700)
    (tmp_path / "8").symlink_to(directory.parent)
    assert record.servers(str(tmp_path), "8") == []
    assert not record.prepare(str(tmp_path / "8/0"), "n1")


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path: Path) -> None:
    precious, directory = tmp_path / "precious", tmp_path / "7/0"
    precious.write_text("keep")
    directory.mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o700)
    (directory / "n1.port.new").symlink_to(precious)
    assert not record.prepare(str(directory), "n1")
    with pytest.raises(OSError, match="symbolic links"):
        record.write(str(directory), "n1", "15264 here me /k", "ssh-ed25519 AAAA")
    assert precious.read_text() == "keep"
