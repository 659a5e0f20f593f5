"""The keys (ed25519, RFC 8032) of one job's ssh servers and clients, from the job's secret.

Every node of a job derives the same two pairs, so no key is ever sent or stored. The ssh programs
sign; this module only computes the public half of a pair, once per start.
"""

from __future__ import annotations

from binascii import b2a_base64
from hashlib import sha256, sha512

TYPE_CHECKING = False
if TYPE_CHECKING:
    Point = tuple[int, int, int, int]

_KIND = b"ssh-ed25519"
_PRIME = 2**255 - 19
_D = -121665 * pow(121666, _PRIME - 2, _PRIME) % _PRIME
_BASE_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202
_BASE_Y = 4 * pow(5, _PRIME - 2, _PRIME) % _PRIME
_LINE = 70


class Pair:
    """An ed25519 key pair; `seed` is the private half."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self.public = _public(seed)


def derive(secret: str, purpose: str) -> Pair:
    """Return the key pair for one purpose; no pair for another purpose reveals it."""
    return Pair(sha256(f"container-engine ssh {purpose} {secret}".encode()).digest())


def public_line(pair: Pair) -> str:
    """Return the line for authorized_keys and, after the host names, for known_hosts."""
    return f"{_KIND.decode()} {_base64(_public_blob(pair))}"


def dropbear_file(pair: Pair) -> bytes:
    """Return the private key in the format of Dropbear's server."""
    return _string(_KIND) + _string(pair.seed + pair.public)


def openssh_file(pair: Pair, comment: str) -> bytes:
    """Return the private key for OpenSSH's client, without a passphrase (PROTOCOL.key)."""
    check = pair.public[:4] * 2
    private = check + _string(_KIND) + _string(pair.public) + _string(pair.seed + pair.public)
    private += _string(comment.encode())
    private += bytes(range(1, 1 + -len(private) % 8))
    blob = b"openssh-key-v1\0" + _string(b"none") + _string(b"none") + _string(b"")
    blob += (1).to_bytes(4, "big") + _string(_public_blob(pair)) + _string(private)
    text = _base64(blob)
    lines = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    name = "OPENSSH PRIVATE KEY"
    return "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""]).encode()


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _public_blob(pair: Pair) -> bytes:
    return _string(_KIND) + _string(pair.public)


def _public(seed: bytes) -> bytes:
    scalar = int.from_bytes(sha512(seed).digest()[:32], "little")
    scalar = scalar & ((1 << 254) - 8) | 1 << 254
    x, y, z, _t = _times(scalar)
    inverse = pow(z, _PRIME - 2, _PRIME)
    x, y = x * inverse % _PRIME, y * inverse % _PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _times(scalar: int) -> Point:
    """Return the base point times `scalar`, in extended coordinates."""
    total: Point = (0, 1, 1, 0)
    step: Point = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _PRIME)
    while scalar:
        if scalar & 1:
            total = _add(total, step)
        step = _add(step, step)
        scalar >>= 1
    return total


def _add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _PRIME
    b = (p[1] + p[0]) * (q[1] + q[0]) % _PRIME
    c = 2 * p[3] * q[3] * _D % _PRIME
    d = 2 * p[2] * q[2] % _PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _PRIME, g * h % _PRIME, f * g % _PRIME, e * h % _PRIME
