"""Find the proxy of a connection as the libraries of skopeo and Podman do. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple


class Proxy(NamedTuple):
    """A proxy: the variable that names it, and its address without a user and password."""

    variable: str
    address: str

    @property
    def words(self) -> str:
        return f" through the proxy {self.address}"

    def hint(self, host: str) -> str:
        return (
            f"{self.variable} names the proxy: is it the right one? no_proxy={_bare(host)} asks"
            " without it"
        )

    @property
    def login_hint(self) -> str:
        scheme, _, rest = self.address.rpartition("://")
        return f"the proxy wants a login: {self.variable}={scheme or 'http'}://USER:PASSWORD@{rest}"


def proxy_of(scheme: str, host: str, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a request to `host`, which may have a port; None for none."""
    names = (f"{scheme.upper()}_PROXY", f"{scheme}_proxy")
    variable = next((name for name in names if env.get(name)), None)
    exempt = env.get("NO_PROXY") or env.get("no_proxy") or ""
    if variable is None or _is_exempt(host, exempt):
        return None
    scheme, _, rest = env[variable].rpartition("://")
    address = rest.rpartition("@")[2].partition("/")[0]
    return Proxy(variable, f"{scheme}://{address}" if scheme else address)


def way(scheme: str, host: str, env: Mapping[str, str]) -> str:
    """Return the words for the proxy of a request, "" for none."""
    proxy = proxy_of(scheme, host, env)
    return proxy.words if proxy else ""


def _bare(host: str) -> str:
    """Return a host without its port."""
    name, colon, port = host.rpartition(":")
    return name.strip("[]") if colon and port.isdigit() else host.strip("[]")


def _is_exempt(host: str, exempt: str) -> bool:
    bare = _bare(host).lower()
    address = _address(bare)
    if bare == "localhost" or (address is not None and address.is_loopback):
        return True
    words = [word.strip().lower() for word in exempt.split(",")]
    return any(_matches(host.lower(), bare, address, word) for word in words if word)


def _matches(
    host: str,
    bare: str,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
    word: str,
) -> bool:
    if word in {"*", host, bare}:
        return True
    if address is None:
        name = word.removeprefix("*")
        return (bare if _bare(name) == name else host).endswith(f".{name.removeprefix('.')}")
    try:
        return address in ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
