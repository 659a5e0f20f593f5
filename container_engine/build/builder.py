"""Build an image from a Containerfile with Podman, in namespaces and a storage of its own.

Only one user exists there, as in the containers of a launch, so no subordinate ids are needed; see
`fakeroot.py` for what that would break. All processes end with the build. The storage stays, so
that the next build can reuse the steps of this one.

The steps run programs of an image in a mere chroot, which they have no privilege to leave. Even
outside of it only those files of the user can be seen that the build needs; see `smallroot.sh`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import pwd
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base import process
from container_engine.base.errors import SiteError, UserError
from container_engine.base.files import owner_fault, publish, read_regular, sha256
from container_engine.base.process import reason
from container_engine.base.secrecy import Secrecy, is_secret_name
from container_engine.build.containerfile_lines import (
    arguments_of,
    mounts_of,
    sources_of,
    stage_of,
    volumes_of,
    with_lines,
)
from container_engine.build.failure import Output, failure
from container_engine.build.layout import (
    APT_LINE,
    Base,
    inputs_line,
    leave_out_added,
    write_layout,
)
from container_engine.images import confine
from container_engine.images.confine.cage import OWN_NAMESPACES
from container_engine.images.fetch.enroot_logins import auth_files

CONTAINERFILES = ("Containerfile", "Dockerfile")
# Podman's working directory, for files that must not outlive its processes. It needs a path that is
# short and always the same: Podman is process 1 of its namespace.
_RUN = "/proc/1/cwd"
_RESULTS = f"{_RUN}/results"
_CONFINE = os.path.dirname(os.path.abspath(confine.__file__))
_SMALLROOT, _FAKEROOT = (os.path.join(_CONFINE, name) for name in ("smallroot.sh", "fakeroot.py"))
# with SYS_CHROOT a step could leave its chroot; the others have no use in the build's namespaces
_NO_CAPABILITIES = ("SYS_CHROOT", "MKNOD", "NET_RAW", "NET_BIND_SERVICE", "AUDIT_WRITE")
# Files that Podman reads: those below ~/.config/containers, except logins; those that variables
# name; and those to which links in /etc may lead.
_OWN_FILES = (
    *("registries.conf", "registries.conf.d", "policy.json", "certs.d", "storage.conf"),
    *("containers.conf", "containers.conf.d"),
)
_FILE_VARIABLES = (
    *("CONTAINERS_REGISTRIES_CONF", "CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE"),
    *("CONTAINERS_STORAGE_CONF", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_LINKED = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/ca-bundle.pem")
_WILD = re.compile(r"[*?\[\]\\]")  # in a pattern of a .dockerignore
_NAME = "localhost/ce-build"
_INFO_TIMEOUT_S = 60
_KEEPS_VOLUMES = [1, 37]  # of Buildah in Podman 5.2
_SHORTEST = 4  # characters: what is shorter is in too many words


class Recipe(NamedTuple):
    """The inputs of a build. `arguments` are NAME=VALUE, `bases` images of this host.

    `arch` is the image's architecture if it is not that of this host, else "".
    `text` is what Podman reads in place of the Containerfile, "" for the file itself. `secrets` are
    names with contents, which only a RUN line that asks for them may see. They are not in the
    digest: an image is the same with another password.
    """

    context: str
    containerfile: str
    arguments: tuple[str, ...] = ()
    target: str = ""
    bases: tuple[Base, ...] = ()
    text: str = ""
    secrets: tuple[tuple[str, str], ...] = ()
    arch: str = ""

    @property
    def shown(self) -> str:
        """Return the Containerfile's name in messages: relative to the context if it lies there."""
        name = os.path.relpath(self.containerfile, self.context)
        return self.containerfile if name.startswith("../") else name

    @property
    def whole(self) -> str:
        """Return the text that Podman reads; "" if the file can no longer be read."""
        with contextlib.suppress(OSError):
            return self.text or _text(self.containerfile)
        return self.text

    @property
    def ignores(self) -> str:
        """Return the file that says what to ignore, in Podman's order; "" if there is none."""
        beside = [f"{self.containerfile}{end}" for end in (".dockerignore", ".containerignore")]
        general = [f"{self.context}/{name}" for name in (".containerignore", ".dockerignore")]
        return next((path for path in (*beside, *general) if os.path.isfile(path)), "")

    def given(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the values of the arguments; a name alone has its value in `env`."""
        parts = (argument.partition("=") for argument in self.arguments)
        return {name: value if equals else env.get(name, "") for name, equals, value in parts}

    def digest(self, env: Mapping[str, str]) -> str:
        """Return the digest of everything that the build may use, except for downloads.

        `env` has the values of arguments that are names alone. Raise OSError.
        """
        whole = hashlib.sha256()
        bases = [f"{base.name} {base.tag}" for base in self.bases]
        given = [f"{one}={env[one]}" if one in env else one for one in self.arguments]
        ignores = [f"ignores {sha256(path)}"] if (path := self.ignores) else []
        parts = (sha256(self.containerfile), self.target, *sorted(given), *bases, *ignores)
        parts += (self.arch,) if self.arch else ()
        for part in parts:
            whole.update(f"{part}\0".encode("utf-8", "surrogateescape"))
        for line in _listed(self.context):
            whole.update(line.encode("utf-8", "surrogateescape"))
        return f"sha256:{whole.hexdigest()}"


class Builder(NamedTuple):
    """A builder of images. `env` leads to the user's registries.conf and logins.

    `policy` is the site's signature policy in place of the user's policy.json; "" for none.
    """

    env: Mapping[str, str]
    uid: int
    gid: int
    timeout_s: float
    policy: str = ""

    def build(self, recipe: Recipe, digest: str, layout: str, *, fresh: bool, quiet: bool) -> str:
        """Write the image as an OCI layout to the directory `layout`, which must not exist.

        `digest` is the recipe's: it keeps concurrent builds from using each other's image. Podman's
        output goes to stderr unless `quiet`. Return a warning, or "". Raise CeError.
        """
        podman = self._podman(recipe, os.path.dirname(layout))
        output = Output()
        name = f"{_NAME}:{digest.partition(':')[2]}"
        try:
            words = ["build", "--isolation=chroot", "--network=host", "--format=docker"]
            words += [f"--cap-drop=CAP_{name}" for name in _NO_CAPABILITIES]
            file = _file(recipe, digest, os.path.dirname(layout), self.env)
            words += ["--tag", name, "--file", file]
            arguments, secrets = self._arguments(recipe)
            words += arguments
            words += [f"--target={recipe.target}"] if recipe.target else []
            words += [f"--platform=linux/{recipe.arch}"] if recipe.arch else []
            words += ["--no-cache"] if fresh else []
            # Podman would ask a registry for images of this host, too
            words += ["--pull=always"] if fresh and not recipe.bases else []
            words += self._signers
            for base in recipe.bases:
                self._bring(podman, base, os.path.dirname(layout))
                words += [f"--build-context={base.name}=container-image://{base.tag}"]
            argv = [*podman, *words, recipe.context]
            env = self._environment() | secrets
            process.merged(argv, env, self.timeout_s, output.feed, is_shown=not quiet)
            save = ["save", "--quiet", "--format=oci-dir", "--output", layout, name]
            process.output([*podman, *save], self._environment(), self.timeout_s)
            return self._lost(recipe, leave_out_added(layout))
        except process.CommandError as error:
            refusal = failure(recipe.shown, recipe.whole, output, error, self.env)
            raise _without(recipe.secrets, refusal) from None
        except OSError as error:
            raise UserError(reason(error), see="store-unusable", name=layout) from None
        finally:
            _forget(recipe.secrets, f"{self._place(recipe)}/tmp", self.timeout_s)

    @staticmethod
    def _lost(recipe: Recipe, config: Mapping[str, Any]) -> str:
        """Return a warning if RUN lines ran with volumes of the image that their stage begins with.

        Podman discards what they wrote there (containers/buildah#4247).
        """
        stage = stage_of(recipe.whole, recipe.target)
        volumes, own = set(config.get("Volumes") or {}), volumes_of(recipe.whole)
        inherited = sorted(volumes - own) if len(volumes) > len(own) else []  # own may be $NAME
        version = (config.get("Labels") or {}).get("io.buildah.version", "")
        keeps = [int(part) for part in re.findall(r"\d+", version)[:2]] >= _KEEPS_VOLUMES
        if keeps or not inherited or not any(text.upper().startswith("RUN ") for text in stage):
            return ""
        return (
            f"{recipe.shown}: this Podman discards what RUN lines write below"
            f" {', '.join(inherited)}, a volume of the image in FROM; COPY does write there, and"
            " Podman 5.2 keeps it"
        )

    @property
    def _signers(self) -> list[str]:
        return [f"--signature-policy={self.policy}"] if self.policy else []

    def _bring(self, podman: Sequence[str], base: Base, results: str) -> None:
        """Copy an image of this host into the build's storage, unless it is there.

        Podman makes a name from the layout's path. Names have no capitals and do not end with `_`,
        so the path is not that of `results`, which may have both.
        """
        env = self._environment()
        word = base.tag.rpartition(":")[2]
        layout = f"{results}/{word}"
        try:
            process.output([*podman, "image", "exists", base.tag], env, self.timeout_s)
        except process.CommandError:
            write_layout(base, layout, self.env, self.timeout_s)
            pull = [*podman, "pull", "--quiet", *self._signers, f"oci:{_RESULTS}/{word}"]
            made = process.output(pull, env, self.timeout_s).decode().strip()
            process.output([*podman, "tag", made, base.tag], env, self.timeout_s)
            shutil.rmtree(layout)

    def _arguments(self, recipe: Recipe) -> tuple[list[str], dict[str, str]]:
        """Return options for Podman, and variables with the values of those that are secret.

        Any user may read a command line; Podman takes the value of a bare name from its
        environment. A variable that is set there already keeps its meaning for Podman. Podman 4.3
        copies the content of a variable to the build's /dev/shm for a step, 5.8 to TMPDIR; that of
        a file goes to its storage, and would stay there if the build is killed.
        """
        options, secrets = [], {}
        for argument in recipe.arguments:
            name, equals, value = argument.partition("=")
            if equals and is_secret_name(name) and name not in self._environment():
                secrets[name] = value
            options.append(f"--build-arg={name if name in secrets else argument}")
        for number, (name, content) in enumerate(recipe.secrets):
            variable = f"CE_BUILD_SECRET_{number}"
            secrets[variable] = content
            options.append(f"--secret=id={name},env={variable}")
        return options, secrets

    def _podman(self, recipe: Recipe, results: str) -> list[str]:
        """Return Podman's command line up to its subcommand."""
        place = self._place(recipe)
        directories = [*_programs(self.env), place, results, recipe.context]
        # outer directories first, because one may contain another
        shown = [*sorted(directories, key=len), "--", *self._files(recipe), "--"]
        seen = [results, *shown]
        return self._command(place, seen, self._driver(place, seen))

    def _place(self, recipe: Recipe) -> str:
        """Return the directory for the steps of builds for this architecture, created if need be.

        Podman reuses a step whatever architecture it was made for.
        """
        place = _private(cache_of(self.env, self.uid))
        return _private(f"{place}/{recipe.arch}") if recipe.arch else place

    @property
    def _podmans_login(self) -> str:
        """Return the file of `podman login`, whose directory the build replaces; "" if unused."""
        first, *_others = auth_files(self.env)
        return "" if self.env.get("REGISTRY_AUTH_FILE") else first

    def _files(self, recipe: Recipe) -> list[str]:
        """Return the further files, existing or not, that Podman may read."""
        home = self.env.get("HOME", "/")
        own = os.path.join(self.env.get("XDG_CONFIG_HOME") or f"{home}/.config", "containers")
        named = [self.env.get(variable, "") for variable in _FILE_VARIABLES]
        files = [recipe.containerfile, self.policy, *auth_files(self.env), *named, *_LINKED]
        files += [os.path.realpath(path) for path in files if path]
        files += [f"{own}/{name}" for name in _OWN_FILES]
        return [path for path in dict.fromkeys(files) if path.startswith("/")]

    def _command(self, place: str, seen: Sequence[str], driver: str) -> list[str]:
        return [
            *OWN_NAMESPACES,
            "--mount-proc",
            *("sh", _SMALLROOT),
            _private(f"{place}/run"),
            self._users(place),
            _private(f"{place}/tmp"),
            self._podmans_login,
            *seen,
            sys.executable,
            *("-I", "-S", _FAKEROOT),
            "podman",
            f"--root={place}/{driver}",
            f"--runroot={_RUN}/root",
            f"--tmpdir={_RUN}/tmp",
            f"--storage-driver={driver}",
            "--events-backend=none",
            "--cgroup-manager=cgroupfs",
        ]

    def _users(self, place: str) -> str:
        """Write an /etc/passwd for Podman and return its path.

        Podman looks the user up, and fails if the host has no name for them.
        """
        try:
            name = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            name = "user"
        entry = f"{name}:x:{self.uid}:{self.gid}::{self.env.get('HOME', '/')}:/bin/sh\n"
        publish(f"{place}/passwd", f"root:x:0:0::/root:/bin/sh\n{entry}".encode())
        return f"{place}/passwd"

    def _driver(self, place: str, seen: Sequence[str]) -> str:
        """Return the storage driver: overlay, or vfs where that does not work.

        vfs copies whole images. A driver that an earlier build has used is used again.
        """
        for driver in ("overlay", "vfs"):
            if os.path.isdir(f"{place}/{driver}"):
                return driver
        try:
            argv = [*self._command(place, seen, "overlay"), "info"]
            process.output(argv, self._environment(), _INFO_TIMEOUT_S)
        except process.CommandError:
            return "vfs"
        return "overlay"

    def _environment(self) -> dict[str, str]:
        """Return Podman's environment.

        The `_CONTAINERS_*` variables mean that Podman is in its user namespace already.
        """
        return {
            **self.env,
            "TMPDIR": "/var/tmp",
            "XDG_RUNTIME_DIR": f"{_RUN}/user",
            "_CONTAINERS_USERNS_CONFIGURED": "done",
            "_CONTAINERS_ROOTLESS_UID": str(self.uid),
            "_CONTAINERS_ROOTLESS_GID": str(self.gid),
        }


def _without(secrets: Sequence[tuple[str, str]], error: UserError) -> UserError:
    """Return the error, whose details go to a log, without secrets that a step has printed."""
    if secrets:
        lines = (line.strip() for _name, content in secrets for line in content.splitlines())
        secrecy = Secrecy(known=frozenset(line for line in lines if len(line) >= _SHORTEST))
        error.reason, error.details = secrecy.text(error.reason), secrecy.text(error.details)
    return error


def _forget(secrets: Sequence[tuple[str, str]], directory: str, limit_s: float) -> None:
    """Remove the copies of secrets that a killed Podman has left where it keeps temporary files.

    Those of other builds are recognized by their age: no build runs for longer than `limit_s`.
    """
    contents = {os.fsencode(content) for _name, content in secrets}
    names = os.listdir(directory) if os.path.isdir(directory) else ()
    for path in (f"{directory}/{name}" for name in names if name.startswith("buildah")):
        with contextlib.suppress(OSError):
            is_old = time.time() - os.lstat(path).st_mtime > limit_s
            if not os.path.isdir(path) and (is_old or read_regular(path) in contents):
                os.unlink(path)


def _file(recipe: Recipe, digest: str, directory: str, env: Mapping[str, str]) -> str:
    """Write the file for Podman, with added lines (layout.py), to `directory`; return its path.

    `digest` is the recipe's, `env` has the values of arguments that are names. Raise OSError.
    """
    path, whole = os.path.join(directory, "Containerfile"), recipe.whole
    before = _inputs_lines(recipe, whole, digest, env)
    _write(path, with_lines(whole, APT_LINE, before, recipe.target))
    if ignores := recipe.ignores:
        _write(f"{path}.dockerignore", _with_directories(_text(ignores), recipe.context))
    return path


def _inputs_lines(
    recipe: Recipe, whole: str, digest: str, env: Mapping[str, str]
) -> dict[int, str]:
    """Return the lines to add, by the number of the line of `whole` that each one comes before."""
    inputs: dict[int, str] = {}
    images = {one.name for one in sources_of(whole)}
    for mount in mounts_of(whole):
        if mount.image in images:  # one of a registry is as good as its name, as in FROM
            content = next((base.tag for base in recipe.bases if base.name == mount.image), "")
        else:
            content = (not mount.image and _content(recipe.context, mount.source)) or digest
        inputs[mount.line] = f"{inputs.get(mount.line, '')}{content}\0"
    given = {name: one for name, one in recipe.given(env).items() if not is_secret_name(name)}
    for line, names, common in arguments_of(whole):
        values = [f"{name}={given[name]}" for name in names if name in given]
        if values or common:
            inputs[line] = "\0".join((*values, common))
    return {line: inputs_line(content) for line, content in inputs.items()}


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def _with_directories(ignores: str, context: str) -> str:
    """Return the lines of a .dockerignore, and more exceptions for the directories of `context`.

    Podman passes over an ignored directory unless an exception begins with its path, as `!**/*.py`
    does not; Docker goes on. So a file that does not exist is excepted in each directory with names
    that an exception may match.
    """
    exceptions = [line.strip()[1:] for line in ignores.split("\n") if line.strip()[:1] == "!"]
    meant = {one.strip("/").rpartition("/")[2] for one in exceptions if _WILD.search(one)}
    found = []
    for where, names, files in os.walk(context) if meant else ():
        if any(fnmatch.fnmatchcase(name, one) for name in (*names, *files) for one in meant):
            found.append(f"!{os.path.relpath(where, context)}/.ce-no-such-file\n")
    # such a path may be no pattern, and would be a different one if it were quoted
    return "".join((ignores, "\n", *(one for one in found if not set(one) & {"[", "\\"})))


def _content(context: str, source: str) -> str:
    """Return a text that depends on a file or directory of the context, "" for anything else.

    Raise OSError.
    """
    root = os.path.realpath(context)
    path = os.path.realpath(f"{root}/{source}")
    if not f"{path}/".startswith(f"{root}/"):
        return ""
    if os.path.isfile(path):
        return f"{os.stat(path).st_mode} {sha256(path)}"
    return "".join(_listed(path)) if os.path.isdir(path) else ""


def _programs(env: Mapping[str, str]) -> list[str]:
    """Return the directories, outside of /usr, of the programs that run in the build's root."""
    podman = shutil.which("podman", path=env.get("PATH")) or "/usr/bin/podman"
    own = [sys.prefix, sys.base_prefix, _CONFINE, os.path.dirname(os.path.realpath(podman))]
    return [path for path in own if not path.startswith("/usr")]


def find_containerfile(context: str) -> str:
    """Return the path of the Containerfile in the context's directory. Raise UserError."""
    for name in CONTAINERFILES:
        path = os.path.join(context, name)
        if os.path.isfile(path):
            return path
    raise UserError(
        "there is no Containerfile or Dockerfile",
        "-f names it",
        "image-build",
        name=context,
    )


def cache_of(env: Mapping[str, str], uid: int) -> str:
    """Return the directory, whether it exists or not, in which builds keep their steps."""
    base = os.path.abspath(env.get("TMPDIR") or "/var/tmp")
    return os.path.join(base, f"ce-build-{uid}")


def _private(path: str) -> str:
    """Return a directory that only this user can write, created if need be.

    Raise UserError, or SiteError for a directory that others may write.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as error:
        raise UserError(reason(error), see="store-unusable", name=path) from None
    if not stat.S_ISDIR(found.st_mode) or owner_fault(path, found, {os.geteuid()}):
        raise SiteError(
            "not a directory that only you can write",
            "set TMPDIR to another place",
            "store-unusable",
            name=path,
        )
    return path


def _listed(directory: str) -> Iterator[str]:
    """Yield a line for each entry below a directory, in a fixed order. Raise OSError."""
    for where, names, files in os.walk(directory, onerror=_fail):
        names.sort()
        links = [name for name in names if os.path.islink(os.path.join(where, name))]
        yield f"{os.path.relpath(where, directory)} {os.stat(where).st_mode:o}\n"
        for name in sorted([*files, *links]):
            path = os.path.join(where, name)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                content: str | None = os.readlink(path)
            else:
                content = sha256(path) if stat.S_ISREG(found.st_mode) else ""
            yield f"{name} {found.st_mode:o} {content}\n"


def _fail(error: OSError) -> None:
    raise error
