"""Import images by name as SquashFS files into a store; no layer is unpacked to disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import CeError, SiteError, UserError
from container_engine.base.files import FreshDirectory, sha256
from container_engine.base.process import reason
from container_engine.base.text_layout import size_text
from container_engine.images import free_space
from container_engine.images.fetch.enroot_logins import logged_in
from container_engine.images.fetch.registry import Fetched, Remote, Skopeo, check_place, doubt
from container_engine.images.image_files import (
    install,
    install_stored,
    note_name,
    recorded_names,
    refuse_changed,
)
from container_engine.images.policy import Rules
from container_engine.images.reference import Imported, Pull, plain_name
from container_engine.images.resolve import Stored
from container_engine.images.store.lease import Holder, Lease, held
from container_engine.site.model import Policy

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from container_engine.images.importing.convert import Maker, Place
    from container_engine.images.listener import Listener
    from container_engine.images.pack.form import Form
    from container_engine.images.store.store import Known, Ref, Store, Stores

_RETRY_S = 300  # after a failed look-up, launches do not ask the registry again for so long
_ATTEMPTS = 2
_SPARE = 1.15  # an image is about as large as its compressed layers


class _Import(NamedTuple):
    """One import: `maker` makes `image` for the architecture `arch` from `remote`, its source."""

    maker: Maker
    image: Imported
    remote: Remote
    arch: str


class Limits(NamedTuple):
    """Limits in seconds: for an import, for a request to a registry, for the age of its answer."""

    import_s: float
    look_up_s: float
    max_age_s: float


class Importer:
    """An importer of images. `env` is the user's, for skopeo; `user` is shown to waiters.

    `form` tells what the files are like, and `program` which program of the site makes them, "" for
    none; they are called only if one is made.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        user: str,
        limits: Limits,
        listener: Listener,
        rules: Rules | None = None,
        form: Callable[[], Form] | None = None,
        program: Callable[[], str] = lambda: "",
    ) -> None:
        self._program = program
        self._form = form
        self._user, self._limits, self._listener = user, limits, listener
        self._rules = rules or Rules(Policy(), "")
        policy = self._rules.policy.signature_policy
        self._skopeo = Skopeo(env, limits.look_up_s, limits.import_s, policy, listener.say)

    def say(self, message: str) -> None:
        self._listener.say(message)

    def obtain(self, image: Imported, stores: Stores, pull: Pull = Pull.AGE) -> Stored:
        """Return the image of this name, imported if need be.

        Raise CeError; then nothing has changed.
        """
        found = stores.find(image)
        if found is not None and self._is_good(image, found, pull):
            return self._answer(image, found, pull)
        if pull == Pull.NEVER and found is not None:
            why = f"'{image.name}' was imported before it, and pull = never"
            raise self._rules.refusal("signature_policy", why)
        if pull == Pull.NEVER:
            raise UserError(
                "not in a store", "ce pull gets it", "image-not-in-store", name=image.name
            )
        own = stores.own
        if own is None:
            raise UserError(
                "in no store of the site, and EDF_IMAGESTORE=void keeps nothing",
                "ce import -o FILE.sqsh IMAGE makes a file that an environment can name",
                "image-not-in-store",
                name=image.name,
            )
        try:
            return self._look_up(image, stores, own, pull, found)
        except OSError as error:
            raise free_space.unusable(own.root, error) from None

    def to_file(self, image: Imported, path: str, arch: str, *, replaces: bool) -> str:
        """Write `path` and the configuration beside it; return the digest. Raise CeError."""
        directory = os.path.dirname(path)
        try:
            with (
                tempfile.TemporaryDirectory(prefix=".ce-import-", dir=directory) as work,
                self._made_for(image) as maker,
            ):
                remote = maker.skopeo.look_up(image, arch)
                self._rules.admit_size(image.name, remote.size)
                place = maker.place(work, os.path.join(work, "blobs"))
                place = place._replace(keeps_sif=path.endswith(".sif"))
                _check_room(directory, remote, place)
                fetched = self._build(_Import(maker, image, remote, arch), (), place)
                install(os.path.join(work, "image"), fetched.config, path, replaces=replaces)
        except OSError as error:
            raise free_space.unusable(directory, error) from None
        return remote.digest

    @contextlib.contextmanager
    def _made_for(self, image: Imported) -> Iterator[Maker]:
        """Yield the maker with the login for the image's registry."""
        # not imported by launches whose image is there already
        from container_engine.images.importing.convert import Maker
        from container_engine.images.pack.form import USUAL
        from container_engine.images.pack.pack import Packer

        skopeo = self._skopeo
        form = self._form() if self._form else USUAL
        packer = Packer(skopeo.env, self._limits.import_s, self._rules.budget(), form)
        with logged_in(image, skopeo.env) as env:
            yield Maker(skopeo._replace(env=env), packer, self._rules, self._program())

    def _judge(self) -> str:
        """Return the hash of the site's signature policy, "" for none. Raise SiteError."""
        policy = self._skopeo.policy
        try:
            return sha256(policy) if policy else ""
        except OSError as error:
            raise SiteError(reason(error), see="site-configuration", where=policy) from None

    def _is_judged(self, found: Known) -> bool:
        """Check whether the site's current signature policy, if any, has accepted this name.

        Images from this host, and those in the site's own stores, need not be accepted.
        """
        judge = self._judge()
        if not judge or not found.is_own or found.ref.origin != "":
            return True
        # nodes know only what is recorded beside the image
        is_noted = judge in recorded_names(found.path).values()
        wanted = self._rules.policy.signed_images_only
        return found.ref.judged == judge and (is_noted or not wanted)

    def _is_good(self, image: Imported, found: Known, pull: Pull) -> bool:
        if not self._is_judged(found):
            return False
        if image.digest is not None or pull in {Pull.MISSING, Pull.NEVER}:
            return True
        if found.ref.origin and not image.origin:
            return True  # no registry has it
        # in its own stores the site decides what names stand for
        is_young = not found.is_own or time.time() < self._not_after(found.ref)
        return pull == Pull.AGE and is_young

    def _not_after(self, ref: Ref) -> float:
        return max(ref.checked + self._limits.max_age_s, ref.tried + _RETRY_S if ref.tried else 0)

    def _answer(self, image: Imported, found: Known, pull: Pull) -> Stored:
        ref = found.ref
        is_tag = image.digest is None and not ref.origin
        ends = found.is_own and is_tag and pull == Pull.AGE
        notices: tuple[str, ...] = ()
        if ref.tried > ref.checked and ends:
            notices = (_could_not_ask(image, ref, "its registry was out of reach just now"),)
        not_after = self._not_after(ref) if ends else 0
        if pull == Pull.ALWAYS and is_tag:
            not_after = ref.checked  # in the past: each launch must look the name up
        return Stored(found.path, ref.digest, found.ref_path, not_after, notices, ref.origin)

    def _look_up(
        self, image: Imported, stores: Stores, own: Store, pull: Pull, before: Known | None
    ) -> Stored:
        """Look the name up under its lock, and import the image if need be.

        `before` is what the stores knew of the name when it was requested.
        """
        with (
            self._held(own.lock(image), image) as lease,
            self._made_for(image) as maker,
        ):
            if lease.replaced:
                self._take_over(image)
            found = stores.find(image)
            if found is None or _is_as_before(found, before) or not self._is_judged(found):
                try:
                    remote = maker.skopeo.look_up(image, own.arch)
                except CeError as error:
                    if found is None or pull != Pull.AGE or not self._is_judged(found):
                        raise
                    return self._make_do(image, own, found, error)
                self._rules.admit_size(image.name, remote.size)
                found = self._imported(_Import(maker, image, remote, own.arch), stores, own, lease)
        if found is None:
            message = "removed from the store while it was imported"
            raise UserError(message, see="image-not-in-store", name=image.name)
        return self._answer(image, found, pull)

    def _held(self, lock: str, image: Imported) -> AbstractContextManager[Lease]:
        wait = Waiting(image.name, self._listener)
        return held(lock, self._user, self._limits.import_s, wait.tell, what=image.name)

    def _take_over(self, image: Imported) -> None:
        self._listener.say(f"{image.name}: its importer has died, this process takes over")

    def _imported(self, wanted: _Import, stores: Stores, own: Store, lease: Lease) -> Known | None:
        """Import the image if it is missing, and record its name.

        If it is removed meanwhile, import it once more; return None if it is removed again.
        """
        image, remote = wanted.image, wanted.remote
        judge, before = self._judge(), stores.find(image)
        is_judged = before is not None and (before.ref.digest, before.ref.judged) == (
            remote.digest,
            judge,
        )
        for _attempt in range(_ATTEMPTS):
            if stores.holding(remote.digest) is None:
                is_judged = self._import(wanted, own, lease)
            elif own.has(remote.digest):
                refuse_changed(image.name, own.image(remote.digest))
            if judge and not is_judged and not image.is_ours:
                self._ask_policy(wanted, own, lease)
            # only a name with a digest has to prove what it stands for
            index = "" if image.digest is None else remote.index_text.decode()
            own.write_ref(image, remote.digest, judged=judge, index=index)
            if own.has(remote.digest):
                accepted = "" if image.is_ours else judge
                note_name(own.image(remote.digest), plain_name(image), accepted)
            found = stores.find(image)
            if found is not None:
                return found
        return None

    def _make_do(self, image: Imported, own: Store, found: Known, error: CeError) -> Stored:
        """Return the result of an earlier look-up, and record that this one failed."""
        ref = found.ref
        own.write_ref(image, ref.digest, ref.checked, time.time(), ref.judged, ref.index_text)
        notice = _could_not_ask(image, ref, error.about(image.name))
        not_after = time.time() + _RETRY_S
        return Stored(found.path, ref.digest, own.ref(image), not_after, (notice,))

    def _ask_policy(self, wanted: _Import, own: Store, lease: Lease) -> None:
        """Raise CeError if the site's signature policy refuses an image that is in a store.

        skopeo checks the policy only when it copies: layers that were removed are fetched again.
        """
        copy = wanted.maker.skopeo.copy
        with FreshDirectory(own.work(lease.holder.token)) as work:
            copy(wanted.image, wanted.remote, work, own.blobs, lambda _done: None)

    def _import(self, wanted: _Import, own: Store, lease: Lease) -> bool:
        """Make the image unless the store has it; return whether it was made and so judged."""
        digest = wanted.remote.digest
        own.explain()
        with self._held(own.build_lock(digest), wanted.image) as building:
            if building.replaced and not lease.replaced:
                self._take_over(wanted.image)
            for token in building.replaced:
                shutil.rmtree(own.work(os.path.basename(token)), ignore_errors=True)
            if own.has(digest):
                return False  # another process has just imported it, maybe under another name
            try:
                self._make(wanted, own, (lease, building))
            except (CeError, OSError):
                # after a long pause another process may have taken over and removed our work
                if building.is_held() or not own.has(digest):
                    raise
                return False
        return True

    def _make(self, wanted: _Import, own: Store, leases: Sequence[Lease]) -> None:
        remote = wanted.remote
        with FreshDirectory(own.work(leases[-1].holder.token)) as work:
            place = wanted.maker.place(work, own.blobs)
            _check_room(own.root, remote, place)
            fetched = self._build(wanted, leases, place)
            path = own.image(remote.digest)
            install_stored(place.made, fetched.config, path, remote.manifest)

    def _build(self, wanted: _Import, leases: Sequence[Lease], place: Place) -> Fetched:
        """Write `place.made`, complete and checked."""
        image, remote = wanted.image, wanted.remote
        began, name = time.monotonic(), image.name

        def far(doing: str, done: int) -> None:
            for lease in leases:
                lease.progress = f"{doing} {100 * done // max(remote.size, 1)} %"
            self._listener.far(name, doing, done, remote.size)

        try:
            fetched = wanted.maker.make(image, remote, wanted.arch, place, far)
        except SiteError as error:
            if error.see == "program-slow":
                raise self._too_slow(image, error) from None
            raise
        unsaid = doubt(image, fetched.config, wanted.arch)
        if unsaid:
            self._listener.say(unsaid)
        size, took = os.path.getsize(place.made), time.monotonic() - began
        self._listener.say(f"{name}: imported, {size_text(size)} in {took:.1f} s")
        return fetched

    def _too_slow(self, image: Imported, error: SiteError) -> SiteError:
        program = os.path.basename(error.where)
        limit = f"{self._limits.import_s:g} s, the site's import_timeout_s ({program} is running)"
        hint = "try again: layers already downloaded are kept"
        return SiteError(f"not imported within {limit}", hint, error.see, name=image.name)


class Waiting:
    """Messages about the holder that an import waits for: at once, then from time to time."""

    def __init__(self, name: str, listener: Listener) -> None:
        self._name, self._listener = name, listener
        self._next = 0.0

    def tell(self, holder: Holder, waited: float) -> None:
        if waited < self._next:
            return
        self._next = max(waited, 2.0) * 2 if waited < 60 else waited + 60
        far = f", {holder.progress}" if holder.progress else ""
        since = f"; waiting for {waited:.0f} s" if waited >= 1 else ""
        self._listener.say(f"{self._name}: being imported by {holder}{far}{since}")


def _is_as_before(found: Known, before: Known | None) -> bool:
    """Check that no other process has looked the name up while this one waited.

    Clocks of different hosts are not compared.
    """
    if before is None:
        return False
    return (found.ref.digest, found.ref.checked) == (before.ref.digest, before.ref.checked)


def _could_not_ask(image: Imported, ref: Ref, why: str) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(ref.checked))
    return f"'{image.name}': used as it was on {day}, looking for a newer one failed: {why}"


def _check_room(directory: str, remote: Remote, place: Place) -> None:
    """Check the place before anything is downloaded, and its free space as far as it is known."""
    check_place(place.work)
    there = sum(blob.size for blob in remote.blobs if place.has(blob))
    free_space.check(directory, int(remote.size * (1 + _SPARE)) - there)
