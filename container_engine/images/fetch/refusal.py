"""Say in plain words why skopeo, or Podman, could not get an image. Pure.

A proxy is found as the libraries of both find it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from container_engine.base.errors import CeError, UserError
from container_engine.base.process import CommandError
from container_engine.faults.catalogue import FAULTS
from container_engine.images.reference import LOCAL_REGISTRY, FileImage, Imported, RegistryImage


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
    return any(_is_named(host.lower(), bare, address, word) for word in words if word)


def _is_named(
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


_FATAL = re.compile(r'level=fatal msg="(.*)"')
LIMIT = r"too ?many ?requests|\b429\b"
LIMITED = re.compile(LIMIT, re.IGNORECASE)
# skopeo (1.9) knows SHA-512 only of the first manifest, and of layers that it shows as streams
UNCOMPARED = (
    r"does not match (?:expected|provided manifest digest) sha512:|blob sha512:\w+, blob with"
)
_UNCOMPARED = re.compile(UNCOMPARED)
# skopeo (1.20) compares the manifest itself
_OTHER_MANIFEST = re.compile(r"does not match provided manifest digest (sha256:\w+)")
TELL_REGISTRY = "nothing of it was kept; tell those who run the registry, or its mirror"
# the words of a registry about its limit, less the steps that led to them
_LIMIT_WORDS = re.compile(r"toomanyrequests: (.*)")
_REJECTED = re.compile(r"source image rejected|rejected by policy", re.IGNORECASE)
_CODES = tuple(
    (re.compile(words, re.IGNORECASE), code)
    for words, code in (
        (_REJECTED.pattern, "image-policy"),
        (LIMIT, "registry-limit"),
        (r"unauthorized|authentication required|\b40[13]\b|denied|forbidden", "registry-login"),
        (r"x509|\btls: ", "registry-unreachable"),
        (r"unknown|not found|\b404\b", "image-unknown"),
        (r"no space left|quota", "store-full"),
        (r"unsupported", "image-format"),
    )
)
# A misleading beginning of messages: the name has been parsed and is not at fault. The first part
# is from Podman, whose builds use the libraries of skopeo.
_PREAMBLE = re.compile(
    r"^(?:Error |creating build container: |unable to copy from source \S+: )*"
    r'(?:parsing image name|initializing source|initializing destination) "?[^" ]*"?: '
    # where a push has come to
    r"|^(?:(?:writing blob|uploading manifest \S+ to \S+|trying to reuse blob \S+ at destination"
    r"|checking whether a blob \S+ exists in \S+"
    r"|initiating layer upload to \S+ in \S+): )+"
)
# an error of Go's HTTP client, which names its steps before the cause
_ASKED = re.compile(r'(?:Get|Head|Post) "?(https?)://([^/" ]+)[^ "]*"?: (.*)')
_STEPS = re.compile(r"(proxyconnect|dial) tcp\b.*: (.*)")
# a proxy's answer over plain HTTP, which looks like the registry's
_LOGIN_WANTED = re.compile(r"\b407\b|proxy authentication required", re.IGNORECASE)
_DISTRUSTED = "certificate signed by unknown authority"
_MISNAMED = re.compile(r"cannot validate certificate for|certificate is (not )?valid for")
_CLIENTS = re.compile(r"tls: (certificate required|bad certificate)|missing key .*client certif")
_PLAIN_HTTP = "server gave HTTP response to HTTPS client"


def skopeos_words(error: CommandError) -> str:
    """Return skopeo's last message without the log's format."""
    found = _FATAL.findall(error.stderr)
    text: str = found[-1] if found else error.message
    return text.replace('\\"', '"').replace("\\n", "; ")


def explained(
    text: str, image: Imported | FileImage, env: Mapping[str, str]
) -> tuple[str, str, str | None]:
    """Return a message of skopeo or Podman in plainer words, the error's code, and a hint.

    `env` is that of the program: it tells the proxy.
    """
    text = _PREAMBLE.sub("", text)
    if _UNCOMPARED.search(text):
        message = "a part of it is named by SHA-512, where skopeo knows only SHA-256"
        return message, "image-format", "have it pushed by a tool that names them by SHA-256"
    asked = image if isinstance(image, RegistryImage) else None
    if asked and (other := _OTHER_MANIFEST.search(text)):
        message = f"the registry answers with another manifest where {other[1]} was asked for"
        return message, "image-damaged", TELL_REGISTRY
    if (found := unreached(text, asked.registry if asked else "", env)) is not None:
        message, see, hint = found
        return message, see, hint or (_hint(asked, message, see) if asked else None)
    see = next((code for pattern, code in _CODES if pattern.search(text)), "")
    if asked is None:
        return text, see or "image-format", None
    if see == "registry-limit":
        return _limit(asked, text), see, None
    see = see or "registry-unreachable"
    return text, see, _hint(asked, text, see)


def unreached(
    text: str, registry: str, env: Mapping[str, str]
) -> tuple[str, str, str | None] | None:
    """Return what `explained` does if no answer came from a registry; None if one came.

    `registry` is the one that was asked, where the text does not name it; "" for none.
    """
    asked = _ASKED.search(text)
    if asked is not None:
        scheme, host, why = asked.groups()
    elif registry and _LOGIN_WANTED.search(text):
        scheme, host, why = "http", registry, "Proxy Authentication Required"
    else:
        return None
    steps = _STEPS.fullmatch(why)
    is_proxys = _is_proxys(scheme, why) if steps is None else steps[1] == "proxyconnect"
    proxy = proxy_of(scheme, host, env)
    if steps is None and proxy is None and not is_proxys:
        return None
    why = why if steps is None else steps[2]
    through = proxy.words if proxy else " through the proxy" * is_proxys
    hint = None
    if proxy is not None and trust_hint(host, why) is None:
        hint = proxy.login_hint if _LOGIN_WANTED.search(why) else proxy.hint(host)
    return f"{host} cannot be reached{through}: {why}", "registry-unreachable", hint


def _is_proxys(scheme: str, why: str) -> bool:
    """Return whether `why` is the answer of a proxy that opens no connection to a host.

    Go shows of such an answer the words of its status alone.
    """
    return bool(_LOGIN_WANTED.search(why)) or (
        scheme == "https" and any(why == status.phrase for status in HTTPStatus)
    )


def _limit(image: RegistryImage, text: str) -> str:
    said = _LIMIT_WORDS.search(text)
    own = f": {said[1]}" if said else " (HTTP 429)"
    return f"{image.registry} allows no more requests for now{own}"


def limited(image: RegistryImage) -> UserError:
    """Return the error for a registry that allows no more requests for now."""
    return UserError(_limit(image, ""), see="registry-limit", name=image.name)


def trust_hint(registry: str, text: str) -> str | None:
    """Return what helps against a failure of certificates, None for any other text."""
    own = f"~/.config/containers/certs.d/{registry}"
    if _DISTRUSTED in text:
        return (
            "this host does not trust the registry's certificate: put that of its authority (PEM)"
            f" into {own}/ca.crt, or name a file with it in SSL_CERT_FILE"
        )
    if _MISNAMED.search(text):
        return "the registry's certificate is another host's: is the registry's name right?"
    if "certificate has expired" in text:
        return "is this host's clock right? else tell those who run the registry"
    if _CLIENTS.search(text):
        return f"the registry wants a certificate of yours: {own}/client.cert and client.key"
    return None


def _hint(image: RegistryImage, text: str, see: str) -> str | None:
    if see == "registry-login":
        return f"ce login {image.registry}"
    if _PLAIN_HTTP in text:
        return (
            "this registry speaks plain HTTP: write [[registry]], location ="
            f' "{image.registry}" and insecure = true on three lines of'
            " ~/.config/containers/registries.conf"
        )
    if (hint := trust_hint(image.registry, text)) is not None:
        return hint
    if image.short and see == "registry-unreachable":
        return f"{FAULTS[see].remedy}. If you meant an image of this host: ce images"
    if image.registry == LOCAL_REGISTRY and see == "registry-unreachable":
        other = image.repository
        return (
            "nothing was imported or built here under this name; ce images lists the names:"
            f" '{other}' is not the same as '{LOCAL_REGISTRY}/{other}'"
        )
    return None


def refusal(image: Imported, error: CommandError, policy: str, env: Mapping[str, str]) -> CeError:
    """Return an error with skopeo's last message, without the log's format and the preamble."""
    text, see, hint = explained(skopeos_words(error), image, env)
    if policy and _REJECTED.search(text):
        hint = f"the site's policy.signature_policy is {policy}"
    return UserError(text, hint, see, details=error.details, name=image.name)
