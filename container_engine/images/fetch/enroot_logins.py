"""Read the logins that users keep for enroot in ~/.config/enroot/.credentials, a netrc file.

They are used if Podman has no login, or if a reference names the user (user@registry#image). A
password is passed to skopeo in memory that only its user can read, never in an argument, a variable
or a file on disk, which would remain if this process were killed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.images.reference import Imported, RegistryImage

_AUTH_FILE = "REGISTRY_AUTH_FILE"
# token servers, under whose names enroot looks for logins
_ASKED_BY_ENROOT = {
    "docker.io": ("auth.docker.io", "registry-1.docker.io", "index.docker.io"),
    "nvcr.io": ("authn.nvidia.com",),
    "registry.gitlab.com": ("gitlab.com",),
}
# the original name of Docker Hub, which auth.json uses
_DOCKER = "https://index.docker.io/v1/"


class Login(NamedTuple):
    machine: str
    user: str
    password: str


@contextlib.contextmanager
def logged_in(image: Imported, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield the environment in which skopeo has the login for this image. Raise UserError."""
    login = _login(image, env) if isinstance(image, RegistryImage) else None
    if login is None or not isinstance(image, RegistryImage):
        yield env
        return
    secret = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    with open(os.memfd_create("ce-auth"), "w", encoding="ascii") as file:
        json.dump({"auths": {image.registry: {"auth": secret}}}, file)
        file.flush()
        # child processes of the same user may open it there while this process lives
        yield {**env, _AUTH_FILE: f"/proc/{os.getpid()}/fd/{file.fileno()}"}


def has_login(image: RegistryImage, env: Mapping[str, str]) -> bool:
    """Return whether skopeo has a login for the image's registry, with what `logged_in` yields."""
    return bool([*_podmans(image.registry, env)])


def _names(registry: str) -> Iterator[str]:
    """Yield the names by which a login may be for a registry: with the port, and without.

    On loopback each port may be another user's server, so a login without a port is for none.
    """
    host, colon, _port = registry.partition(":")
    yield registry
    if colon and host != "localhost" and not host.startswith(("127.", "[")):
        yield host


def _login(image: RegistryImage, env: Mapping[str, str]) -> Login | None:
    known = [*_podmans(image.registry, env)]
    if known and image.user in {None, *known}:
        return None  # skopeo finds the login itself
    path = _file(env)
    others = _ASKED_BY_ENROOT.get(image.registry, ())
    machines = (*_names(image.registry), *others)
    fitting = [
        login
        for login in _read(path)
        if login.machine in machines and image.user in {None, login.user}
    ]
    if not fitting and image.user is not None:
        raise UserError(
            f"no password of '{image.user}' for {image.registry} is known",
            f"podman login -u '{image.user}' {image.registry}, or a line in {path}",
            "registry-login",
            name=image.name,
        )
    # a login for the registry itself takes precedence over those for other hosts
    return min(fitting, key=lambda login: machines.index(login.machine), default=None)


def _file(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "/")
    config = env.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return os.path.join(env.get("ENROOT_CONFIG_PATH") or f"{config}/enroot", ".credentials")


def _read(path: str) -> list[Login]:
    """Return the logins in the file, or none if there is no file. Raise UserError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(reason(error), see="registry-login", where=path) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserError(
            "others may read the passwords in it", f"chmod 600 {path}", "registry-login", where=path
        )
    return _parse(path, text)


def _parse(path: str, text: str) -> list[Login]:
    logins: list[Login] = []
    lines = (line for line in enumerate(text.splitlines(), 1) if not line[1].startswith("#"))
    words = [(number, word) for number, line in lines for word in line.split()]
    for (number, key), (_line, value) in zip(words[::2], [*words[1::2], (0, "")], strict=False):
        if key == "machine" and value:
            logins.append(Login(value, "", ""))
        elif key in {"login", "password"} and value and logins:
            field = {"login": "user", "password": "password"}[key]
            logins[-1] = logins[-1]._replace(**{field: value})
        elif key != "account":
            raise UserError(
                "not 'machine NAME login USER password WORD'",
                "commands like $(aws …) are not run: podman login has credential helpers",
                "registry-login",
                where=f"{path}:{number}",
            )
    return logins


def _podmans(registry: str, env: Mapping[str, str]) -> Iterator[str | None]:
    """Yield the users that Podman, skopeo or Docker know for a registry, None for a hidden one."""
    for path in auth_files(env):
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            entries, helpers = said.get("auths") or {}, said.get("credHelpers") or {}
        except (OSError, ValueError, AttributeError):
            continue  # skopeo reports what is wrong with it
        names = {registry, _DOCKER} if registry == "docker.io" else {registry}
        if said.get("credsStore") or names & helpers.keys():
            yield None
        for name in entries:
            # an entry may be for a part of a registry
            if name in names or name.partition("/")[0] == registry:
                yield _user_of(entries[name])


def _user_of(entry: object) -> str | None:
    try:
        secret = entry["auth"]  # type: ignore[index]
        return base64.b64decode(secret).decode().partition(":")[0] or None
    except (KeyError, TypeError, ValueError):
        return None


def auth_files(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the files in which Podman and skopeo look for logins; earlier ones take precedence."""
    if env.get(_AUTH_FILE):
        yield env[_AUTH_FILE]
        return
    if env.get("XDG_RUNTIME_DIR"):
        yield f"{env['XDG_RUNTIME_DIR']}/containers/auth.json"
    else:
        yield f"/run/containers/{os.getuid()}/auth.json"
    home = env.get("HOME", "/")
    yield f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/containers/auth.json"
    yield f"{env.get('DOCKER_CONFIG') or f'{home}/.docker'}/config.json"
