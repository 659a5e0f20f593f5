"""Checks of the site's configuration, and of its OCI hooks and CDI files, on this host.

Its values are of the right type, but may be such as cannot work. A file for the nodes may be
missing on the host where this runs: that is a note, not a fault. A short hash of the configuration
compares hosts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import LaunchError
from container_engine.base.process import reason
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.toml_positions import Fault
from container_engine.images.policy import first_match
from container_engine.node.devices.cdi import Directory, Registry
from container_engine.node.hooks.oci_hooks import OciHooks
from container_engine.node.start.site_rules import RULES
from container_engine.oci.architecture import architecture_named

if TYPE_CHECKING:
    from container_engine.site.load import Configuration
    from container_engine.site.model import Policy, SiteConfig


class SiteFiles(NamedTuple):
    """The number of hooks or devices found, or the fault for which a launch refuses all."""

    kind: str
    number: int
    fault: Fault | None


def site_files(settings: SiteConfig) -> Iterator[SiteFiles]:
    """Yield the OCI hooks, then the CDI devices. A missing directory counts as empty."""
    yield _read(
        "OCI hooks",
        lambda: len(OciHooks(settings.hooks_dirs, ()).hooks),
        "correct it, or take the file away: until then no container starts on this host",
    )
    places = [Directory(path, is_users=False) for path in settings.cdi_dirs]
    yield _read(
        "CDI devices",
        lambda: len(Registry(places).names()),
        "correct it, or take the file away: until then no launch on this host gets a CDI device",
    )


def _read(kind: str, count: Callable[[], int], remedy: str) -> SiteFiles:
    try:
        return SiteFiles(kind, count(), None)
    except LaunchError as failure:
        return SiteFiles(
            kind, 0, Fault(failure.name or failure.where or kind, failure.reason, remedy)
        )


_LENGTH = 12


def hash_of_settings(config: SiteConfig) -> str:
    """Return a text with the hash of all settings; it does not depend on how files write them."""
    is_default = config == type(config)()
    return f"{'defaults' if is_default else 'can be read'}, content {_short_hash(config.as_dict())}"


def hash_of_rules(config: SiteConfig) -> str:
    """Return a text with the hash of the rules that nodes apply and of what they refer to."""
    policy = config.policy.as_dict()
    if not any(policy[rule] for rule in RULES):
        return "none for images and mounts"
    found = {name: policy[name] for name in (*RULES, "signature_policy")}
    content = _short_hash({**found, "image_stores": list(config.image_stores)})
    return f"for images and mounts, content {content}"


def _short_hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_LENGTH]


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST_AND_PATH = re.compile(r"[^/\s][^\s]*")
# the names of processors in images (GOARCH)
_OF_IMAGES = ("amd64", "arm64", "386", "arm", "loong64", "ppc64le", "riscv64", "s390x")
_SCHEME = "://"
_ON_NODES = "not on this host; it must be there on the nodes"


def look_at_values(config: Configuration) -> tuple[list[Fault], list[Fault]]:
    """Return faults of the configuration, and notes on what only other hosts can tell.

    Values of a wrong type are already left out.
    """
    looker = _Look(config)
    looker.policy(config.settings.policy)
    looker.programs()
    looker.places()
    looker.records()
    looker.words()
    return looker.faults, looker.notes


def _why_no_name(pattern: str) -> str:
    """Return why no repository can match the pattern, "" if one can."""
    head, slash, last = pattern.partition("@")[0].rpartition("/")
    repository = f"{head}{slash}{last.partition(':')[0]}"
    if "[" not in pattern and repository != repository.lower():
        return "names have no capitals before their tag"
    return ""


class _Look:
    def __init__(self, config: Configuration) -> None:
        self._config = config
        self._settings = config.settings
        self.faults: list[Fault] = []
        self.notes: list[Fault] = []

    def policy(self, policy: Policy) -> None:
        stores = self._settings.image_stores
        for key in ("site_images_only", "image_digests"):
            if getattr(policy, key) and not stores:
                self._fault(f"policy.{key}", "without image_stores every image is refused")
        if policy.signed_images_only and not policy.signature_policy:
            text = "without signature_policy every image is refused"
            self._fault("policy.signed_images_only", text)
        for key in ("image_registries", "allowed_images", "denied_images"):
            self._names(f"policy.{key}", getattr(policy, key), is_file=key != "image_registries")
        for pattern in policy.allowed_images:
            if denied := first_match(policy.denied_images, (pattern,)):
                text = f"'{pattern}' is never allowed: '{denied}' of denied_images covers it"
                self._fault("policy.allowed_images", text)
        for pattern in policy.mount_sources:
            if not pattern.startswith(("/", "*", "[", "?")):
                self._fault("policy.mount_sources", f"'{pattern}' never matches an absolute path")
        if policy.signature_policy and os.access(policy.signature_policy, os.R_OK):
            self._signers(policy.signature_policy)
        self._keyring(policy.sif_keys)

    def _names(self, key: str, patterns: tuple[str, ...], *, is_file: bool) -> None:
        """Report patterns that no image's name can match; patterns of files, `/…`, are skipped."""
        for pattern in patterns:
            if is_file and pattern.startswith("/"):
                continue
            # image_registries is compared with hosts in lower case, the others with any spelling
            why = _why_no_name(pattern.partition("/")[2] if is_file else pattern)
            if "," in pattern:
                why = "a name has no comma; write each pattern as its own string"
            elif _SCHEME in pattern or not _HOST_AND_PATH.fullmatch(pattern):
                why = "it is written without a scheme or spaces"
            if why:
                text = (
                    f"'{pattern}' never matches the name of an image;"
                    " write for example registry.example/project"
                )
                self._fault(key, f"{text}: {why}")

    def _signers(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
        except (OSError, ValueError) as error:
            content, why = None, reason(error) if isinstance(error, OSError) else str(error)
        else:
            why = "no 'default'"
        if not isinstance(content, dict) or "default" not in content:
            text = f"'{path}' is not a containers-policy.json(5): {why}"
            self._fault("policy.signature_policy", text)

    def _keyring(self, path: str) -> None:
        if not path or not os.access(path, os.R_OK):
            return
        with open(path, "rb") as file:
            if file.read(5) == b"-----":
                text = f"'{path}' is armored, gpg --dearmor makes a keyring of it"
                self._fault("policy.sif_keys", text)

    def programs(self) -> None:
        settings = self._settings
        chosen = {"podman": settings.podman, "runtime": settings.runtime}
        if settings.tracking_tool:
            chosen["tracking_tool"] = settings.tracking_tool[0]
        for key, path in chosen.items():
            if not path:
                continue
            if not path.startswith("/"):
                self._fault(key, f"'{path}' is not an absolute path")
                continue
            try:
                mode = os.stat(path).st_mode
            except OSError:
                self._note(key, f"'{path}': {_ON_NODES}")
                continue
            if not (stat.S_ISREG(mode) and os.access(path, os.X_OK)):
                self._fault(key, f"'{path}': not a program that can be run")

        layout = settings.store_layout
        if layout and not any("{file}" in word or "{directory}" in word for word in layout):
            self._fault("store_layout", "neither {file} nor {directory} is among its arguments")

    def records(self) -> None:
        path = self._settings.starts_file
        if path and not path.startswith("/"):
            self._fault("starts_file", f"'{path}' is not an absolute path")

    def places(self) -> None:
        settings = self._settings
        for key in ("trace_dir", "passing_dir", "kept_dir"):
            path = getattr(settings, key)
            if path and not path.startswith(("/", "~/")):
                self._fault(key, f"'{path}' is not an absolute path")
            elif path.startswith("/"):
                self._there(key, path)
        for path in settings.cdi_dirs if self._is_set("cdi_dirs") else ():
            if not path.startswith("/"):
                self._fault("cdi_dirs", f"'{path}' is not an absolute path")
            else:
                self._there("cdi_dirs", path)
        if settings.user_cdi_dir.startswith("/"):
            text = f"'{settings.user_cdi_dir}' must be below the users' homes, as .config/cdi"
            self._fault("user_cdi_dir", text)
        for key in ("mounts", "devices"):
            for index, text in enumerate(getattr(settings, key)):
                source = text.partition(":")[0]
                if source.startswith("/") and "$" not in source:
                    self._there(f"{key}[{index}]", source)

    def words(self) -> None:
        settings = self._settings
        known = settings.image_architecture
        if known and architecture_named(known) not in _OF_IMAGES:
            meant = "amd64" if known == "x86" else nearest(known, _OF_IMAGES)
            text = f"unknown architecture '{known}'{did_you_mean(meant)}"
            self._fault("image_architecture", text)
        size = settings.tmpfs_size
        number = int(size.rstrip("%kmgKMG"))
        if number == 0:
            self._fault("tmpfs_size", f"'{size}': nothing could be written")
        elif size.endswith("%") and number > 100:
            self._fault("tmpfs_size", f"'{size}' is more than the memory of a node")
        for name in settings.env:
            if name and "=" not in name and not _NAME.fullmatch(name):
                self._fault(f"env.{name}", "shells do not pass on a variable of this name")

    def _is_set(self, key: str) -> bool:
        return key in self._config.origins

    def _there(self, key: str, path: str) -> None:
        if not os.path.exists(path):
            self._note(key, f"'{path}': {_ON_NODES}")

    def _fault(self, key: str, message: str) -> None:
        self._add(self.faults, key, message)

    def _note(self, key: str, message: str) -> None:
        self._add(self.notes, key, message)

    def _add(self, found: list[Fault], key: str, message: str) -> None:
        if self._is_set(key):  # a default is the engine's own
            found.append(Fault(self._config.origins[key], message, key=key))
