"""`apptainer` and `singularity`, as workflow tools call them, on top of `ce`.

The container has what Apptainer gives it: the host's variables, home, /tmp and the current
directory, a file system that is read-only, and the options over these. Of other commands and
options, what to do instead is said in one line.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from container_engine.base import sif
from container_engine.base.errors import CeError, UserError
from container_engine.base.files import with_given_umask
from container_engine.base.process import reason
from container_engine.base.text_layout import block
from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.images import squashfs
from container_engine.images.image_files import settle
from container_engine.images.resolve import configuration
from container_engine.node.node_plan import NodePlan, read_plan
from container_engine.printing import interrupts, messages, output
from container_engine.submit import context as contexts
from container_engine.submit import plan_output

if TYPE_CHECKING:
    from container_engine.node.plan_types import EnvEntry

# what tools ask for is that of this version
_VERSION = "1.4.0"
_FAILED = 255
_SCHEMES = ("docker", "oras")
_PREFIXES = ("SINGULARITYENV_", "APPTAINERENV_")  # the last one wins
_OF_ITSELF = ("SINGULARITY_", "APPTAINER_", *_PREFIXES)
_YES = ("1", "true", "yes", "y", "on")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy")
# PATH is the image's inside; programs of the engine need it
_ALWAYS_PASSED = {"TERM", "PATH", *_PROXIES, *map(str.upper, _PROXIES)}
# directories of the host that never hide those of the image because somebody works there
_OF_THE_IMAGE = ("/", *(f"/{name}" for name in ("bin", "etc", "mnt", "opt", "sbin", "usr", "var")))
_RUN = 'for f in /.singularity.d/env/{}.sh; do [ -f "$f" ] && . "$f"; done; '
_LONGER_PATH = 'PATH="${PREPEND_PATH:+$PREPEND_PATH:}$PATH${APPEND_PATH:+:$APPEND_PATH}"; '
_SHELL = (
    "/bin/sh",
    "-c",
    'command -v bash >/dev/null && exec bash --norc "$@"; exec sh "$@"',
    "sh",
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RUNSCRIPT = "/.singularity.d/runscript"

_RIGHTS = "a container never has more rights than you"
_IMPORT = "ce import SOURCE IMAGE.sqsh makes an image of an archive or a directory"
_INSTEAD = {
    "cache": "ce gc removes unused images",
    "capability": _RIGHTS,
    "checkpoint": "programs write their own checkpoints",
    "delete": "ce rmi removes an image of the store",
    "instance": "services run as steps of a job: ce help one-container",
    "key": "the site decides which keys count (policy.sif_keys)",
    "keyserver": "the site decides which keys count (policy.sif_keys)",
    "oci": "ce run starts an OCI image",
    "overlay": "ce save keeps what a container has written",
    "plugin": "hooks extend containers: ce hooks",
    "push": "ce push IMAGE REGISTRY/NAME:TAG, after ce import for a SIF file",
    "registry": "ce login REGISTRY logs in",
    "remote": "ce login REGISTRY logs in",
    "search": "the web pages of the registry",
    "sif": "ce inspect shows an image",
    "sign": "Apptainer itself signs SIF files",
    "test": "apptainer exec IMAGE /.singularity.d/test",
    "verify": "ce inspect FILE, where the site has keys (policy.sif_keys)",
}
_SWITCHES = (
    *("-e --cleanenv", "-c --contain", "-C --containall", "-f --fakeroot", "-i --ipc", "-p --pid"),
    *("-n --net", "--uts", "--nv", "--rocm", "--no-home", "--writable-tmpfs"),
)
_WITH_VALUE = ("-H --home", "--pwd --cwd", "-W --workdir", "--network", "-s --shell")
_LISTS = ("-B --bind", "--mount", "-S --scratch", "--env", "--env-file", "--no-mount")
# what is so anyway
_ACCEPTED = (
    *("-u --userns", "--no-eval", "--no-privs", "--no-init", "--no-umask", "--disable-cache"),
    *("--no-https --nohttps", "--unsquash", "--sharens", "--nvccli", "--underlay"),
)
_NOT_WRITTEN = "an image never changes: --writable-tmpfs, and ce save keeps what was written"
_REFUSED = {
    "--add-caps": _RIGHTS,
    "--app": "name the program of the app",
    "--apply-cgroups": "srun limits what a step uses",
    "--dns": "the container has the host's network",
    "--hostname": "the container has the host's name",
    "-o --overlay": "ce save keeps what a container has written, and --bind brings directories",
    "--security": "the site decides",
}
_REFUSED_SWITCHES = {
    "--allow-setuid": _RIGHTS,
    "--keep-privs": _RIGHTS,
    "--dmtcp-launch": "programs write their own checkpoints",
    "-w --writable": _NOT_WRITTEN,
}


def main(ce: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run `apptainer ARGUMENTS`, with `ce` for the command of that name; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("HOME", os.path.expanduser("~"))
    with interrupts.interruptible():
        try:
            return _run(words, ce)
        except CeError as error:
            interrupts.raise_again()
            messages.say(messages.of_error(error))
        except OSError as error:
            where = str(error.filename or "apptainer")
            messages.say(messages.of_error(UserError(reason(error), where=where)))
    return _FAILED


def _run(words: Sequence[str], ce: Callable[[Sequence[str]], int]) -> int:
    found = _parser().parse_args(words)
    if found.version:
        output.line(f"apptainer version {_VERSION}+container-engine")
    elif found.verb == "version":
        output.line(_VERSION)
    elif found.verb in _INSTEAD:
        raise UserError(f"apptainer {found.verb}: not offered", _INSTEAD[found.verb])
    elif found.verb == "inspect":
        return ce(["inspect", _path(found.image) or found.image])
    elif found.verb in {"pull", "build"}:
        return _get(found, ce)
    elif found.verb is None:
        raise UserError("apptainer: no command is given", "apptainer exec IMAGE COMMAND")
    else:
        _start(found)
    return 0


# ---- images ------------------------------------------------------------------------------------


def _path(image: str) -> str:
    """Return the absolute path of an image file, "" for what is none. Raise UserError."""
    scheme, there, _name = image.partition("://")
    if there and scheme not in _SCHEMES:
        raise _unknown(image)
    if there:
        return ""
    if os.path.isdir(image):
        raise UserError("a directory", f"ce import ./DIRECTORY NAME: {_IMPORT}", name=image)
    return os.path.abspath(image)


def _unknown(image: str) -> UserError:
    hint = "the same image from a registry: docker://…, oras://…; or a SIF file"
    return UserError(
        "only docker://, oras:// and files are read", hint, "image-reference", name=image
    )


def _get(found: argparse.Namespace, ce: Callable[[Sequence[str]], int]) -> int:
    """Write a SIF file, which tools may rename: all that is known of the image is in it.

    Return the exit code. Raise CeError or OSError.
    """
    target, words = _target(found)
    if os.path.lexists(target) and not found.force:
        raise UserError("exists", "--force replaces it", name=target)
    from container_engine.build.container_archive import draft_directory  # no start needs it

    limit = contexts.site_config(contexts.of_this_process(None)).import_timeout_s
    with draft_directory(os.path.dirname(target), limit) as work:
        made = f"{work}/made.sif"
        with contextlib.redirect_stdout(io.StringIO()):  # a path that is gone at the end
            if ce(["import", "--quiet", "-o", made, *words]):
                return _FAILED
        if squashfs.place(made).start == 0:  # of an image's layers
            known = json.loads(configuration([made], os.environ))
            config = json.dumps(known["config"]).encode()
            sif.write(f"{work}/image.sif", made, config, known.get("architecture", ""))
            made = f"{work}/image.sif"
        settle(made, target, replaces=found.force)
    return 0


def _target(found: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the file to write, and the words for `ce import` that get it. Raise UserError."""
    targets, source = found.words[:-1], found.words[-1]
    scheme, _colon, rest = source.partition(":")
    if scheme == "docker-archive" and found.verb == "build":
        source = f"{scheme}:{os.path.abspath(rest.removeprefix('//'))}"
    elif source.partition("://")[0] not in _SCHEMES:
        if found.verb == "build":
            raise UserError(
                f"apptainer build: {source}", f"write a Dockerfile: ce build; {_IMPORT}"
            )
        raise _unknown(source)
    name = found.name or (targets[0] if targets else "")
    if not name:
        name = re.sub(r"[:@]", "_", rest.rpartition("/")[2])
        name = f"{name if '_' in name else f'{name}_latest'}.sif"
    options = [f"--arch={found.arch}"] if found.arch else []
    return os.path.abspath(os.path.join(found.dir or "", name)), [*options, "--", source]


# ---- containers --------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A container: pyxis's options for it, the variables of its command, and its devices."""

    options: list[str]
    env: dict[str, str]
    given: dict[str, str]
    devices: list[str]


def _start(found: argparse.Namespace) -> NoReturn:
    """Become the command in its container. Raise CeError."""
    from container_engine.node.start.without_slurm import run_in_container

    path = _path(found.image)
    scripts = _shell_files(path)
    wanted = wanted_of(found, path or found.image, os.environ, os.getcwd())
    context = contexts.of_this_process(None)
    options = PyxisOptions(wanted.options)
    notices, _head, text = plan_output.plan_of(None, context, None, options)
    if not found.quiet:
        lines = notices.splitlines(keepends=True)
        messages.say("".join(line for line in lines if _RUN_HERE not in line))
    plan = read_plan(text)
    # the engine's own programs must not see them, nor a cached plan have their values
    given: list[EnvEntry] = [
        {"name": name, "value": value, "from": "--env"} for name, value in wanted.given.items()
    ]
    devices = [*plan.devices_if_there, *wanted.devices]
    plan = plan.but(devices_if_there=devices, env=[*plan.env, *given])
    command = _command(found, plan, has_runscript=bool(scripts))
    if prelude := _prelude(wanted.given, scripts):
        command = ["/bin/sh", "-c", f'{prelude}exec "$@"', "sh", *command]
    with_given_umask()
    os.environ.clear()
    os.environ.update(wanted.env)
    run_in_container(plan, command, context.libexec)


def _shell_files(path: str) -> str:
    """Return shell code that runs the shell files of Apptainer's in an image, "" without any."""
    if not path or not squashfs.has_shell_files(path, os.environ):
        return ""
    # what a registry's image has said is known, and no shell repeats its quotes
    is_known = squashfs.place(path).config[1] > 0
    return _RUN.format("9*") if is_known else f"PATH={squashfs.DEFAULT_PATH}; {_RUN.format('*')}"


def _prelude(given: Mapping[str, str], scripts: str) -> str:
    """Return the shell code that makes the environment of the command, "" for none.

    It has no values, as any user may read a command line.
    """
    code = scripts
    if scripts:
        kept = "".join(f"_ce_{name}=${name}; " for name in given)
        code = kept + code + "".join(f"export {name}=$_ce_{name}; " for name in given)
    if {"PREPEND_PATH", "APPEND_PATH"} & set(given):
        code += _LONGER_PATH
    return code


# in a notice that nobody runs it
_RUN_HERE = "/.singularity.d/env/90-environment.sh"


def _command(found: argparse.Namespace, plan: NodePlan, *, has_runscript: bool) -> list[str]:
    words: list[str] = found.command
    if found.verb == "shell":
        return [found.shell, *words] if found.shell else [*_SHELL, *words]
    if found.verb == "run" and has_runscript:
        return [_RUNSCRIPT, *words]
    if found.verb == "run":
        config = json.loads(configuration(plan.image_paths, os.environ))["config"]
        words = [*(config.get("Entrypoint") or ()), *(words or config.get("Cmd") or ())]
    if not words:
        raise UserError(f"apptainer {found.verb}: no command", "apptainer exec IMAGE COMMAND")
    return words


def wanted_of(found: argparse.Namespace, image: str, host: Mapping[str, str], cwd: str) -> Wanted:
    """Return what the options and variables of Apptainer mean. Raise UserError."""
    for name in ("nv", "rocm", "cleanenv", "contain", "containall", "no_home", "writable_tmpfs"):
        by_variable = (
            host.get(f"{prefix}_{name.upper()}", "") for prefix in ("APPTAINER", "SINGULARITY")
        )
        setattr(
            found, name, getattr(found, name) or any(one.lower() in _YES for one in by_variable)
        )
    found.contain |= found.containall
    found.cleanenv |= found.containall
    found.ipc |= found.containall
    found.pid |= found.containall
    places = _Places(found, host, cwd)
    given = given_variables(found, host)
    options = [f"--container-image={image}", "--no-container-entrypoint"]
    options.append(f"--container-workdir={places.workdir}")
    options.append(f"--container-{'writable' if found.writable_tmpfs else 'readonly'}")
    options += ["--container-remap-root"] if found.fakeroot else []
    options += [f"--container-mounts={one}" for one in places.mounts()]
    names = [name for name in ("ipc", "pid", "uts") if getattr(found, name)]
    if found.network not in {None, "none"}:
        raise UserError(f"--network {found.network}", "the host's network, or --net --network none")
    names += ["net"] if found.net and found.network == "none" else []
    options += [f"--container-unshare={','.join(names)}"] if names else []
    devices = ["nvidia.com/gpu=all"] if found.nv else []
    devices += ["amd.com/gpu=all"] if found.rocm else []
    return Wanted(options, _environment(found, image, host, places.home), given, devices)


def _environment(
    found: argparse.Namespace, image: str, host: Mapping[str, str], home: str
) -> dict[str, str]:
    """Return the variables of the host that the command gets."""
    env = {
        name: value
        for name, value in host.items()
        if not name.startswith(_OF_ITSELF) and name != "LD_LIBRARY_PATH"
    }
    if found.cleanenv:
        env = {name: value for name, value in env.items() if name in _ALWAYS_PASSED}
        env["LANG"] = "C"
    env["HOME"] = home
    for prefix in ("APPTAINER", "SINGULARITY"):
        env |= {f"{prefix}_CONTAINER": image, f"{prefix}_NAME": os.path.basename(image)}
    return env


def given_variables(found: argparse.Namespace, host: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that win over those of the image. Raise UserError or OSError."""
    given = {
        name.removeprefix(prefix): value
        for prefix in _PREFIXES
        for name, value in host.items()
        if name.startswith(prefix)
    }
    for file in found.env_file:
        try:
            with open(file, encoding="utf-8", errors="surrogateescape") as opened:
                lines = shlex.split(opened.read(), comments=True)
        except ValueError:
            raise UserError("a quote is not closed", name=file) from None
        given |= dict(_pairs(line for line in lines if "=" in line))
    for text in found.env:
        if "=" not in text:
            raise UserError(f"--env {text}", "NAME=VALUE[,NAME=VALUE]")
        given |= dict(_pairs(re.split(r",(?=\w+=)", text)))
    given.pop("HOME", None)
    return {name: value for name, value in given.items() if _NAME.fullmatch(name)}


def _pairs(texts: Sequence[str] | Iterator[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, _equals, value = text.partition("=")
        yield name, value


class _Places:
    """The directories of the host in a container, by their places there."""

    def __init__(self, found: argparse.Namespace, host: Mapping[str, str], cwd: str) -> None:
        source, _colon, place = (found.home or "").partition(":")
        source = os.path.abspath(source) if source else host["HOME"]
        self.home = place or source
        self._found: dict[str, tuple[str, str]] = {}
        self._tmpfs: list[str] = []
        skipped = {one for text in found.no_mount for one in text.split(",")}
        for name in ("/tmp", "/var/tmp"):
            self._add_temporary(name, found, skipped)
        if found.contain and not found.home and not found.no_home:
            self._tmpfs.append(self.home)
        elif (found.home or not found.no_home) and "home" not in skipped:
            self._add(source, self.home)
        is_here = not found.contain and cwd not in _OF_THE_IMAGE and "cwd" not in skipped
        if is_here:
            self._add(cwd, cwd)
        is_there = is_here or (cwd in _OF_THE_IMAGE and not found.contain)
        elsewhere = "/" if found.no_home else self.home
        self.workdir = found.pwd or (cwd if is_there else elsewhere)
        for text in [*_from_variables(host), *found.bind]:
            for one in filter(None, re.split(r"(?<!\\),", text)):
                self._bind(one)
        for text in found.mount:
            self._mount(text)
        self._tmpfs += [one for text in found.scratch for one in text.split(",")]

    def mounts(self) -> Iterator[str]:
        """Yield mounts as pyxis has them."""
        for place in self._tmpfs:
            if place not in self._found:
                yield f"tmpfs:{_escaped(place)}"
        for place, (source, flags) in self._found.items():
            yield f"{_escaped(source)}:{_escaped(place)}{flags}"

    def _add_temporary(self, name: str, found: argparse.Namespace, skipped: set[str]) -> None:
        if "tmp" in skipped:
            return
        if found.contain and found.workdir:
            source = os.path.join(os.path.abspath(found.workdir), name[1:].replace("/", "_"))
            os.makedirs(source, exist_ok=True)
            self._add(source, name)
        elif found.contain:
            self._tmpfs.append(name)
        else:
            self._add(name, name)

    def _add(self, source: str, place: str) -> None:
        if os.path.isdir(source):
            self._found[place] = (source, "")

    def _bind(self, text: str) -> None:
        source, place, flags = [*re.split(r"(?<!\\):", text), "", ""][:3]
        self._put(source, place, flags.split("+") if flags else [], text)

    def _mount(self, text: str) -> None:
        fields = dict(_pairs(next(csv.reader([text]), [])))
        if fields.get("type") != "bind":
            raise UserError(f"--mount {text}", "type=bind,source=DIR,destination=DIR[,readonly]")
        source = fields.get("source") or fields.get("src") or ""
        place = next(
            (fields[name] for name in ("destination", "dst", "target") if name in fields), ""
        )
        self._put(source, place, ["ro"] if {"ro", "readonly"} & set(fields) else [], text)

    def _put(self, source: str, place: str, flags: list[str], text: str) -> None:
        if not source or set(flags) - {"ro", "rw"}:
            raise UserError(f"--bind {text}", "SOURCE[:DESTINATION[:ro]]")
        source = re.sub(r"\\([:,])", r"\1", source)
        place = re.sub(r"\\([:,])", r"\1", place)
        flag = ":ro" if "ro" in flags else ""
        path = os.path.abspath(source)
        self._found[os.path.normpath(place or path)] = (path, flag)


def _from_variables(host: Mapping[str, str]) -> Iterator[str]:
    for prefix in ("SINGULARITY", "APPTAINER"):
        for name in ("BIND", "BINDPATH"):
            if text := host.get(f"{prefix}_{name}"):
                yield text


def _escaped(path: str) -> str:
    return re.sub(r"([:,\\])", r"\\\1", path)


# ---- the command line --------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        messages.say(block("error", f"{self.prog}: {message}", None))
        sys.exit(_FAILED)


class _Refusal(argparse.Action):
    def __call__(
        self, _parser: object, _found: object, _value: object, option: str | None = None
    ) -> NoReturn:
        raise UserError(f"apptainer {option}: not offered", str(self.const))


class _Accepted(argparse.Action):
    def __call__(self, *_found: object) -> None:
        """Change nothing."""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="apptainer", description="Apptainer's commands over ce.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-q", "--quiet", "-s", "--silent", action="store_true")
    for name in ("-d", "--debug", "-v", "--verbose", "--nocolor"):
        parser.add_argument(name, action=_Accepted, nargs=0)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", parser_class=_Parser)
    for name in ("exec", "run", "shell"):
        _add_options(verbs.add_parser(name, allow_abbrev=False))
    for name in ("pull", "build"):
        one = verbs.add_parser(name, allow_abbrev=False)
        one.add_argument("-F", "--force", action="store_true")
        one.add_argument("--name")
        one.add_argument("--dir")
        one.add_argument("--arch")
        for option in ("--disable-cache", "--no-https", "--nohttps", "-U", "--allow-unsigned"):
            one.add_argument(option, action=_Accepted, nargs=0)
        if name == "build":
            one.add_argument("-f", "--fakeroot", action=_Accepted, nargs=0)
        one.add_argument("words", nargs="+")
    verbs.add_parser("inspect", allow_abbrev=False).add_argument("image")
    verbs.add_parser("version")
    for name in _INSTEAD:
        verbs.add_parser(name, add_help=False, prefix_chars="\0").add_argument("rest", nargs="...")
    return parser


def _add_options(one: argparse.ArgumentParser) -> None:
    for names in _SWITCHES:
        one.add_argument(*names.split(), action="store_true")
    for names in _WITH_VALUE:
        one.add_argument(*names.split())
    for names in _LISTS:
        one.add_argument(*names.split(), action="append", default=[])
    for names in _ACCEPTED:
        one.add_argument(*names.split(), action=_Accepted, nargs=0)
    for names, instead in _REFUSED.items():
        one.add_argument(*names.split(), action=_Refusal, const=instead)
    for names, instead in _REFUSED_SWITCHES.items():
        one.add_argument(*names.split(), action=_Refusal, nargs=0, const=instead)
    one.add_argument("image")
    one.add_argument("command", nargs="...")
