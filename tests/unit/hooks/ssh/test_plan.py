"""Files that are accepted as a public key."""

import pytest

from ce_ssh.plan import judge
from container_engine.plan.hooks import SECRET
from container_engine.submit import plan_output
from container_engine.submit.prepare import in_parts

BLOB = "AAAAC3NzaC1lZDI1NTE5AAAAIEYlR/1leMZ/tnNZ1pHLTCwKAastzVEBflRVxX4d+X5U"
KEY = f"ssh-ed25519 {BLOB}"
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize("text", [KEY, f"{KEY} me@laptop\n", f"# mine\n\n{KEY}\r\n"])
def test_a_public_key_is_taken_without_its_comment(text: str) -> None:
    assert judge("/k.pub", text.encode()).line == KEY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no key, expected one public key"),
        (f"{KEY}\n{KEY}\n", "has 2 keys, expected one public key"),
        (PRIVATE, "contains a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", "contains a private key"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "is not a public key that the server understands"),
        (f"command=x {KEY}", "is not a public key that the server understands"),
        ("ssh-ed25519", "what follows ssh-ed25519 is damaged"),
        (f"ssh-ed25519 {BLOB[:-30]}", "what follows ssh-ed25519 is damaged"),
        (f"ssh-rsa {BLOB}", "what follows ssh-rsa is damaged"),
        ("\udcff\udcfe", "is not a public key that the server understands"),
    ],
)
def test_an_invalid_public_key_is_refused_with_the_reason(text: str, message: str) -> None:
    judged = judge("/k", text.encode("utf-8", "surrogateescape"))
    assert judged.line is None
    assert judged.message == f"'/k' {message}" or judged.message.endswith(message)


def test_each_launch_gets_a_secret_of_its_own_and_other_plans_stay_as_they_are() -> None:
    parts = in_parts(f'{{"parameters":{{"secret":"{SECRET}"}},"b":"{SECRET}"}}')
    assert parts == ['{"parameters":{"secret":"', f'"}},"b":"{SECRET}"}}']
    first, second = plan_output.with_secret(parts), plan_output.with_secret(parts)
    assert first != second
    assert plan_output.with_secret(in_parts('{"env":"@new@"}')) == '{"env":"@new@"}'
