"""The ssh hook's keys, records and ports, without a container."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.launch.hooks import sshkeys, sshrecord
from container_engine.launch.hooks.listening import is_free, listens

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
    assert sshkeys.Pair(bytes.fromhex(secret)).public.hex() == public


def test_a_secret_gives_other_keys_for_other_purposes_and_steps() -> None:
    pairs = [sshkeys.derive(secret, use) for secret in "ab" for use in ("host", "user")]
    assert len({pair.public for pair in pairs}) == 4
    assert sshkeys.derive("a", "host").public == pairs[0].public


def test_openssh_and_dropbear_read_the_private_keys(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    pair = sshkeys.derive("x", "user")
    for name, tool, content in (
        ("openssh", "ssh-keygen", sshkeys.openssh_file(pair, "step")),
        ("dropbear", "dropbearkey", sshkeys.dropbear_file(pair)),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        file.chmod(0o600)
        argv = [need_tool(tool), "-y", "-f", str(file)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert sshkeys.public_line(pair) in done.stdout


def test_a_record_tells_all_and_one_that_is_cut_short_is_passed_over(tmp_path: Path) -> None:
    for step, node in (("7.0", "n1"), ("7.1", "n2"), ("70.0", "n3")):
        directory = f"{tmp_path}/{step}"
        assert sshrecord.prepare(directory)
        sshrecord.write(directory, node, "15264 host1 me /h/my keys/k.pub", "ssh-ed25519 AAAA")
    (tmp_path / "7.0" / "n9.port").write_text("")
    found = sshrecord.servers(str(tmp_path), "7")
    assert [(server.step, server.node) for server in found] == [("7.0", "n1"), ("7.1", "n2")]
    [server] = sshrecord.servers(str(tmp_path), "7.1")
    assert (server.port, server.address, server.user) == (15264, "host1", "me")
    assert (server.key_file, server.host_key) == ("/h/my keys/k.pub", "ssh-ed25519 AAAA")


def test_a_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    directory = f"{tmp_path}/7.0"
    sshrecord.prepare(directory)
    sshrecord.write(directory, "n1", "1 h u ", "ssh-ed25519 AAAA")
    modes = {path.stat().st_mode & 0o77 for path in (tmp_path / "7.0", *tmp_path.glob("7.0/*"))}
    assert modes == {0}


def test_a_port_is_free_only_where_nobody_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
        assert listens(os.getpid(), port)
        assert not listens(os.getppid(), port)
    assert is_free(port)
    assert not listens(os.getpid(), port)
