"""Output of `ce ssh-config` for a computer that is not part of the cluster."""

import socket

import pytest

from ce_ssh.verb_ssh_config import this_host


@pytest.mark.parametrize(
    ("resolved", "expected"),
    [
        ("login1.example.org", "login1.example.org"),
        ("localhost", socket.gethostname()),
        ("localhost.localdomain", socket.gethostname()),
    ],
)
def test_a_host_that_calls_itself_localhost_is_no_way_for_others(
    monkeypatch: pytest.MonkeyPatch, resolved: str, expected: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: resolved)
    assert this_host() == expected
