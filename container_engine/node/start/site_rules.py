"""Apply the rules of this node's configuration to images and mounts, whatever the plan contains.

The submit host has applied them already, but the plan it made is a file or a variable of the user's
by the time it arrives. So the launcher reads the rules again on the node, in the same files and in
the same way as container_engine/site/load.py. A site without such a rule only pays for reading the
files. Planning calls the same functions, to refuse earlier (plan/build.py, given them by
submit/read_site.py).
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.description import NodeMount

IMAGES_ONLY, DIGESTS, SOURCES = "site_images_only", "image_digests", "mount_sources"
REGISTRIES, SIGNED, _SIGNERS = "image_registries", "signed_images_only", "signature_policy"
RULES = (IMAGES_ONLY, DIGESTS, SOURCES, REGISTRIES, SIGNED)
_SYSTEM = "/etc/container-engine"
# directories that make an image what it is: other content mounted there would change its programs
_OF_IMAGE = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr")
_DIGEST_LENGTH = len("sha256-") + 64
_NAMES = ".names"  # images/image_files.py
_MOST = 1 << 16


class Rules:
    """The rules that apply on a node; `where` has the file of each rule that a file sets."""

    def __init__(
        self, policy: Mapping[str, Any], stores: Sequence[str], where: Mapping[str, str]
    ) -> None:
        # any value that is not false turns the rule on
        self._is_images_only = policy.get(IMAGES_ONLY, False) is not False
        self._is_signed_only = policy.get(SIGNED, False) is not False
        self._signers = policy.get(_SIGNERS, "")
        self._registries = _strings(policy, REGISTRIES, where)
        self._digests = _strings(policy, DIGESTS, where)
        self._sources = _strings(policy, SOURCES, where)
        self._stores = stores
        self._where = where

    @property
    def restricts_images(self) -> bool:
        """True if images must come from the site's stores: there, file names have the digests."""
        return self._is_images_only or bool(self._digests)

    def image_refusal(self, path: str) -> str:
        """Return why the site of this node refuses an image file; "" if it does not."""
        return self._place_refusal(path) or self.name_refusal(path)

    def name_refusal(self, path: str) -> str:
        """Return why the names recorded beside an image do not satisfy the site; "" if they do.

        The rules are about registries and signatures.
        """
        if not (self._registries or self._is_signed_only):
            return ""
        names = _names(path)
        if self._registries and not any(map(self._is_from_registry, names)):
            known = ", ".join(f"'{name}'" for name in names) or "unknown"
            patterns = ", ".join(f"'{pattern}'" for pattern in self._registries)
            why = f"'{path}' does not come from {patterns}; recorded origin: {known}"
            return self._refusal(REGISTRIES, why)
        if self._is_signed_only and not self._is_accepted(names):
            why = f"policy.{_SIGNERS} has not accepted '{path}'; ce pull asks it again"
            return self._refusal(SIGNED, why)
        return ""

    def _is_accepted(self, names: Mapping[str, str]) -> bool:
        judge = _hash_of(self._signers)
        return judge != "" and judge in names.values()

    def _is_from_registry(self, name: str) -> bool:
        from fnmatch import fnmatchcase

        repository = name.partition("@")[0]
        head, slash, last = repository.rpartition("/")
        repository = f"{head}{slash}{last.partition(':')[0]}"
        return any(
            fnmatchcase(one, form)
            for pattern in self._registries
            for one in (name, repository)
            for form in (pattern, f"{pattern.rstrip('/')}/*")
        )

    def _place_refusal(self, path: str) -> str:
        if not self.restricts_images:
            return ""
        rule = IMAGES_ONLY if self._is_images_only else DIGESTS
        if not any(_is_in(path, store) for store in self._stores):
            known = ", ".join(f"'{store}'" for store in self._stores) or "it has none"
            why = f"'{path}' is not an image of the site's stores ({known})"
            return self._refusal(rule, f"{why} that only the site can change")
        if self._digests and _digest_of(path) not in self._digests:
            return self._refusal(DIGESTS, f"'{path}' is not one of the listed images")
        return ""

    def mount_refusal(self, kind: str, source: str, target: str, *, of_hook: bool = False) -> str:
        """Return why the site refuses a mount with literal strings; "" if it does not.

        The rule `mount_sources` lets hooks mount any source that only root can change.
        """
        if kind == "squashfs" and (refusal := self.image_refusal(source)):
            return refusal
        if kind != "squashfs" and self.restricts_images and _is_of_image(target):
            why = "a tmpfs belongs to neither" if kind == "tmpfs" else _distrust(source)
            if why:
                rule = IMAGES_ONLY if self._is_images_only else DIGESTS
                text = f"mount destination '{target}' is reserved for the image and the site: {why}"
                return self._refusal(rule, text)
        if not self._sources or kind == "tmpfs" or self._is_source(source):
            return ""
        if of_hook and not _distrust(source):
            return ""
        patterns = ", ".join(f"'{pattern}'" for pattern in self._sources)
        return self._refusal(SOURCES, f"'{source}' matches none of {patterns}")

    def place_refusal(self, planned: Sequence[NodeMount], places: Sequence[str]) -> str:
        """Return why the site refuses mounts that are not at their targets; "" if it does not.

        `places` are the container's mount points. A symlink in the image, or in a directory that
        the user mounts, could lead a mount into the image's own directories.
        """
        if not self.restricts_images:
            return ""
        left = list(places)
        for mount in planned:
            if mount.target in left:
                left.remove(mount.target)
            elif mount.kind == "tmpfs" or (mount.kind == "bind" and _distrust(mount.source)):
                rule = IMAGES_ONLY if self._is_images_only else DIGESTS
                text = f"mount destination '{mount.target}' leads elsewhere through a symlink"
                return self._refusal(rule, f"{text}: name the path that it leads to")
        return ""

    def _is_source(self, path: str) -> bool:
        """Check whether the real path matches a pattern, itself or as a path below a match."""
        from fnmatch import fnmatchcase

        real = os.path.realpath(path)
        # a site's /scratch may be a symlink
        places = [place for p in self._sources for place in (p, os.path.realpath(p))]
        return any(
            fnmatchcase(real, place.rstrip("/")) or fnmatchcase(real, f"{place.rstrip('/')}/*")
            for place in places
        )

    def _refusal(self, rule: str, why: str) -> str:
        return f"{_place(self._where, rule)}: policy.{rule}: {why}"


def of_node(libexec: str) -> Rules | None:
    """Return the rules of this node's configuration; None if it has none. Raise LaunchError."""
    texts = _texts(_directories(libexec))
    if not any(rule.encode() in text for _file, text in texts for rule in RULES):
        return None
    return _wanted(texts)


def places(libexec: str) -> list[str]:
    """Return all paths that decide which configuration this node has. Raise LaunchError."""
    return [
        path
        for directory in _directories(libexec)
        for path in (f"{directory}/config.toml", f"{directory}/conf.d", *_files(directory))
    ]


def _directories(libexec: str) -> tuple[str, str]:
    prefix = os.path.dirname(os.path.dirname(libexec))
    return (f"{prefix}/etc/container-engine", _SYSTEM)


def check(path: str, rules: Rules | None) -> None:
    """Raise LaunchError for an image that the site of this node refuses."""
    if rules is not None and (refusal := rules.image_refusal(path)):
        raise LaunchError(refusal, see="image-policy")


def check_mounts(
    planned: Sequence[NodeMount], all_of_them: Sequence[NodeMount], rules: Rules | None
) -> None:
    """Raise LaunchError for the first mount that the site refuses.

    `planned` are the mounts of the environment and the site; `all_of_them` adds those of hooks.
    """
    if rules is None:
        return
    for mount in all_of_them:
        if refusal := rules.mount_refusal(
            mount.kind, mount.source, mount.target, of_hook=mount not in planned
        ):
            raise LaunchError(refusal, see="mount-policy")


def check_places(planned: Sequence[NodeMount], mounted: int, rules: Rules | None) -> None:
    """Raise LaunchError if a mount is not at its destination, on a site that restricts images.

    `mounted` is the descriptor of the mountinfo of the container's first process.
    """
    if rules is None or not rules.restricts_images:
        return
    from container_engine.base.mounts import mounts

    places = [mount.place for mount in mounts(mounted)]
    if refusal := rules.place_refusal(planned, places):
        raise LaunchError(refusal, see="mount-policy")


def _texts(directories: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the files of the first directory that has any, with their content.

    Raise LaunchError for a directory or file that cannot be read.
    """
    for directory in directories:
        found = [(file, _read(file)) for file in _files(directory)]
        if found:
            return [(file, text) for file, text in found if text is not None]
    return []


def _files(directory: str) -> Iterator[str]:
    main, drop_ins = f"{directory}/config.toml", f"{directory}/conf.d"
    if os.path.lexists(main):
        yield main
    try:
        names = sorted(os.listdir(drop_ins))
    except FileNotFoundError:
        return
    except OSError as error:
        raise LaunchError(f"{error.strerror}", see="site-configuration", where=drop_ins) from None
    for name in names:
        if name.endswith(".toml") and not name.startswith("."):
            yield f"{drop_ins}/{name}"


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.readall()
    except FileNotFoundError:
        return None  # removed in the meantime
    except OSError as error:
        raise LaunchError(f"{error.strerror}", see="site-configuration", where=file) from None


def _wanted(texts: Sequence[tuple[str, bytes]]) -> Rules:
    """Return the rules of the files; for each key the last file's value wins. Raise LaunchError."""
    import tomllib  # 10 ms, only for sites with such a rule

    policy: dict[str, Any] = {}
    where: dict[str, str] = {}
    stores: tuple[str, ...] = ()
    for file, text in texts:
        try:
            content = tomllib.loads(text.decode())
        except ValueError as error:
            raise _not_toml(file, str(error)) from None
        found = content.get("policy", {})
        policy.update(found)
        where.update(dict.fromkeys(found, file))
        stores = tuple(content.get("image_stores", stores))
    return Rules(policy, stores, where)


def _not_toml(file: str, error: str) -> LaunchError:
    """Return the error for a file that is not TOML, with the line that its parser gives."""
    text, at, position = error.partition(" (at line ")
    line, _comma, column = position.partition(", ")
    where = f"{file}:{line}" if at and line.isdigit() else file
    message = f"{text} (at {column}" if where != file else error
    return LaunchError(f"not valid TOML: {message}", see="site-configuration", where=where)


def _place(where: Mapping[str, str], rule: str) -> str:
    """Return FILE:LINE of a rule; the file is read again, for an error only."""
    from container_engine.base.toml_positions import place_of

    return place_of(where[rule], ("policy", rule)) if rule in where else "default"


def _strings(policy: Mapping[str, Any], rule: str, where: Mapping[str, str]) -> Sequence[str]:
    found: Sequence[str] = policy.get(rule, ())
    if isinstance(found, (list, tuple)) and all(isinstance(item, str) for item in found):
        return found
    message = f"policy.{rule}: expected an array of strings"
    raise LaunchError(message, see="site-configuration", where=_place(where, rule))


def _names(path: str) -> dict[str, str]:
    """Return the names of an image with the hashes of the policies that accepted them.

    Return {} if the file beside the image belongs neither to root nor to the image's owner, or if
    everybody can write it.
    """
    from container_engine.base.files import read_regular

    try:
        of_image = os.stat(path).st_uid

        def judge(found: os.stat_result) -> None:
            if found.st_uid not in (0, of_image) or found.st_mode & stat.S_IWOTH:
                raise PermissionError

        text = read_regular(path + _NAMES, _MOST, judge)
    except OSError:
        return {}
    pairs = (line.split(" ") for line in text.decode("utf-8", "replace").splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _hash_of(policy: object) -> str:
    """Return the SHA-256 of the file `policy`, "" without one. Raise LaunchError."""
    import hashlib

    if not isinstance(policy, str) or not policy:
        return ""
    try:
        with open(policy, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        why = f"{error.strerror}"
        raise LaunchError(why, see="site-configuration", where=policy) from None


def _digest_of(path: str) -> str:
    """Return the digest in the name of a store's file, sha256-…; "" for other names."""
    name = os.path.basename(path)
    is_digest = name.startswith("sha256-") and name[_DIGEST_LENGTH : _DIGEST_LENGTH + 1] == "-"
    return f"sha256:{name[7:_DIGEST_LENGTH]}" if is_digest else ""


def _is_of_image(target: str) -> bool:
    """Check whether the destination is one of the image's own directories, or below one."""
    return any(target == place or target.startswith(f"{place}/") for place in _OF_IMAGE)


def _distrust(path: str) -> str:
    from container_engine.base.files import distrust

    try:
        found = distrust(path)
    except OSError as error:
        found = path, str(error.strerror), ""
    return f"'{found[0]}': {found[1]}" if found else ""


def _is_in(path: str, store: str) -> bool:
    """Check that `path` is below `store`, without `..` or symlinks.

    If this user is not root, neither the user nor everybody may be able to change the file or a
    directory on the way.
    """
    rest = path.removeprefix(f"{store.rstrip('/')}/")
    if rest == path:
        return False
    root = os.path.realpath(store)
    if os.path.realpath(path) != f"{root}/{rest}":
        return False
    way, uid = [root], os.getuid()
    for part in rest.split("/"):
        way.append(f"{way[-1]}/{part}")
    try:
        return all(uid == 0 or _is_foreign(place, uid) for place in way)
    except OSError:
        return False


def _is_foreign(path: str, uid: int) -> bool:
    found = os.lstat(path)
    is_anybodys = found.st_mode & stat.S_IWOTH
    return found.st_uid != uid and not is_anybodys and not os.access(path, os.W_OK)
