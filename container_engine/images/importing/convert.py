"""Convert an image into a SquashFS file, packed during the download where possible."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import CeError, UserError
from container_engine.base.model import MisfitError
from container_engine.images import squashfs
from container_engine.images.fetch.registry import (
    Fetched,
    Remote,
    Skopeo,
    Wanted,
    check_platform,
    small_blob,
)
from container_engine.images.fetch.streaming import Arrival, BrokenOffError
from container_engine.images.importing import file_system
from container_engine.images.pack import layers
from container_engine.images.reference import Imported, RegistryImage
from container_engine.oci.image import Config

if TYPE_CHECKING:
    from container_engine.images.pack.pack import Packer
    from container_engine.images.policy import Rules


Far = Callable[[str, int], None]


class Place(NamedTuple):
    """The paths of a conversion: `work` is private, `layers` keeps blobs, `made` is the result.

    `keeps_sif` says that this is a SIF file where the registry has one.
    """

    work: str
    layers: str
    made: str
    keeps_sif: bool = False

    def has(self, blob: Wanted) -> bool:
        return os.path.exists(self.path(blob))

    def path(self, blob: Wanted) -> str:
        return os.path.join(self.layers, blob.place)


class Maker(NamedTuple):
    skopeo: Skopeo
    packer: Packer
    rules: Rules
    program: str = ""  # the site's, which makes files of images

    @staticmethod
    def place(work: str, layers: str) -> Place:
        return Place(work, layers, os.path.join(work, "image"))

    def make(self, image: Imported, remote: Remote, arch: str, place: Place, far: Far) -> Fetched:
        """Write the image to `place.made`; `far` is called with the activity and the bytes done.

        Raise CeError or OSError.
        """
        if remote.is_sif:
            return self._make_of_sif(image, remote, arch, place, far)
        if isinstance(image, RegistryImage) and self.program:
            return self._make_by_program(image, remote, arch, place, far)
        if isinstance(image, RegistryImage):
            with contextlib.suppress(BrokenOffError):
                self._make_arriving(image, remote, arch, place, far)
                # all blobs are there: this adds the configuration and checks policy.json
                fetched = self.skopeo.copy(
                    image, remote, place.work, place.layers, lambda _done: None
                )
                check_platform(image, fetched.config, arch)
                return fetched
        doing = "downloading" if isinstance(image, RegistryImage) else "copying"
        fetched = self.skopeo.copy(
            image, remote, place.work, place.layers, lambda done: far(doing, done)
        )
        check_platform(image, fetched.config, arch)
        contents = _contents(image, fetched.config, len(fetched.layers))
        stack = list(map(layers.LayerFile, fetched.layers, contents))
        self._pack(stack, fetched.size, place, partial(far, "packing"))
        return fetched

    def _make_by_program(
        self, image: RegistryImage, remote: Remote, arch: str, place: Place, far: Far
    ) -> Fetched:
        from container_engine.images.importing.site_importer import SiteImporter  # few have one

        config = self.skopeo.configuration(image, remote)
        check_platform(image, config, arch)
        squashfs.judge_config(config, image.name)

        def copied(done: int, _size: int) -> None:
            far("copying", done)

        uri = f"docker://{image.registry}#{image.repository}@{remote.source.rpartition('@')[2]}"
        program = SiteImporter(self.program, self.skopeo.env, self.packer)
        program.make(uri, arch, place.made, copied)
        return Fetched(config, (), remote.size)

    def _make_of_sif(
        self, image: Imported, remote: Remote, arch: str, place: Place, far: Far
    ) -> Fetched:
        def downloaded(done: int) -> None:
            far("downloading", done)

        kept = [place.path(blob) for blob in remote.blobs if place.has(blob)]
        fetched = self.skopeo.copy(image, remote, place.work, place.layers, downloaded)
        layers.Verification(kept).finish()  # skopeo takes them as they are
        [file] = fetched.layers
        try:
            if squashfs.place(file).start == 0:
                raise UserError("a SquashFS file, its registry says SIF", see="image-format")
            file_system.check(file, arch, self.skopeo.env)
            if key := self.rules.signer(image.name, file, self.skopeo.env):
                self.skopeo.say(f"{image.name}: signed by {key}")
            facts = squashfs.config_from_files(file, self.skopeo.env)
            if place.keeps_sif:
                os.rename(file, place.made)
            else:
                file_system.copy(
                    file, place.made, self.packer, lambda done, _size: far("copying", done)
                )
        except UserError as error:
            error.name = image.name  # nobody knows the file
            raise
        if facts.other:
            self.skopeo.say(f"{image.name}: {squashfs.left_to_a_shell(facts.other)}")
        return fetched._replace(config=file_system.document(facts, arch))

    def _make_arriving(
        self, image: RegistryImage, remote: Remote, arch: str, place: Place, far: Far
    ) -> None:
        """Pack the layers while they arrive. Raise BrokenOffError if streaming fails."""
        wanted = [blob for blob in _in_order(remote) if not place.has(blob)]
        skopeo = self.skopeo
        # a silent registry must not delay the import beyond its overall limit
        silence_s = min(skopeo.look_up_s, skopeo.copy_s)
        arrival = Arrival(remote.source, skopeo.env, place.layers, place.work, silence_s)
        contents: Sequence[str] = [""] * len(remote.blobs)
        try:
            arrival.start(wanted)
            if remote.config is not None:
                if remote.config in wanted:
                    arrival.layer(remote.config).whole()
                config = small_blob(place.path(remote.config))
                check_platform(image, config, arch)
                contents = _contents(image, config, len(remote.blobs))
            stack = [
                arrival.layer(blob, content)
                if blob in wanted
                else layers.LayerFile(place.path(blob), content)
                for blob, content in zip(remote.blobs, contents, strict=True)
            ]
            try:
                packed = _arriving(arrival, remote, wanted, far)
                self._pack(stack, remote.size, place, packed)
            except CeError as error:
                if arrival.full is not None:
                    raise arrival.full from None
                if arrival.is_whole or not isinstance(error, UserError):
                    raise
                raise BrokenOffError from None  # the blobs that arrived may be damaged
            except FileNotFoundError:
                raise BrokenOffError from None  # another process has just removed a blob
            except BrokenOffError:
                if arrival.full is not None:
                    raise arrival.full from None
                raise
        finally:
            arrival.close()

    def _pack(
        self,
        stack: Sequence[layers.Layer],
        size: int,
        place: Place,
        packed: Callable[[int], None],
    ) -> None:
        """Write `place.made` from layers of `size` bytes; `packed` gets the bytes done."""
        done = 0

        def on_read(size: int) -> None:
            nonlocal done
            done += size
            packed(done)

        for layer in stack:
            # a new time keeps the blob from cleanup; in a group's store only its owner can set it
            with contextlib.suppress(OSError):
                os.utime(layer.path)
        self.packer.pack(stack, size, place.made, on_read)


def _contents(image: Imported, config: bytes, count: int) -> Sequence[str]:
    """Return the digests that a configuration states for its layers' uncompressed content.

    They are empty if it does not speak of them at all. Raise UserError unless they are `count`, and
    for a configuration with which no container could start.
    """
    squashfs.judge_config(config, image.name)
    try:
        rootfs = Config.of_json(config).rootfs
    except MisfitError as error:
        raise UserError(
            f"its configuration: {error}", see="image-format", name=image.name
        ) from None
    stated = None if rootfs is None else rootfs.diff_ids
    if stated is None:
        return [""] * count
    if len(stated) != count:
        raise UserError(
            f"its manifest lists {count} layers, and its configuration {len(stated)}",
            squashfs.MADE_SO,
            "image-damaged",
            name=image.name,
        )
    return stated


def _arriving(
    arrival: Arrival, remote: Remote, wanted: Sequence[Wanted], far: Far
) -> Callable[[int], None]:
    """Return a function that reports the bytes that have arrived, and once all have, those packed.

    Layers are packed in order, several arrive at once: the bytes packed would say little about the
    time left.
    """
    kept = remote.size - sum(blob.size for blob in remote.blobs if blob in wanted)

    def packed(done: int) -> None:
        if arrival.is_whole:
            far("packing", done)
        else:
            # limited, because the configuration has arrived, too
            far("downloading", min(kept + arrival.size, remote.size))

    return packed


def _in_order(remote: Remote) -> list[Wanted]:
    """Return the blobs in the order of need, each once."""
    config = () if remote.config is None else (remote.config,)
    return list(dict.fromkeys((*config, *reversed(remote.blobs))))
