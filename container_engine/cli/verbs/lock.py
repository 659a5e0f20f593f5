"""`ce lock NAME…`: record exactly which image an environment stands for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from container_engine import __version__
from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text
from container_engine.edf.model import Edf
from container_engine.edf.names import lock_of
from container_engine.images import image_files, lock_file
from container_engine.images.reference import FileImage, RegistryImage, parse
from container_engine.images.store.store import architecture
from container_engine.printing import output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import declared, site_here
from container_engine.submit.image import environment_of
from container_engine.submit.image_names import meant
from container_engine.submit.stores import asking, rules, stores

_ARCHITECTURES = ("amd64", "arm64")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", metavar="NAME", nargs="+", help="an environment: a name or the path of a file"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; end with 1 where a lock is missing or the environment has moved on",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    settings = site_config(context)
    good = True
    made: list[_Result] = []
    for name in arguments.names:
        edf = environment_of(name, context, settings)
        if edf is None:
            hint = (
                f"ce list shows them, a path ends in .toml; an image: ce init NAME --image {name}"
            )
            raise UserError("no environment", hint, "environment-not-found", name=name)
        result = _check(edf, context) if arguments.check else _lock(edf, context, settings)
        good = good and not result.moved
        made.append(result)
        if not arguments.json:
            for line in result.lines():
                output.line(line)
    if arguments.json:
        listed = [result.as_json() for result in made]
        output.document({"locks": listed})
    return 0 if good else 1


class _Result(NamedTuple):
    """A lock file after `ce lock`: the images written, or what differs where it was checked."""

    path: str
    images: Sequence[tuple[str, lock_file.Pinned]]
    moved: Sequence[str] = ()

    def lines(self) -> list[str]:
        pinned = [
            f"{self.path}: {arch} {image.digest} ({size_text(image.size)})"
            for arch, image in self.images
        ]
        return pinned or [f"{self.path}: {'; '.join(self.moved) or 'up to date'}"]

    def as_json(self) -> dict[str, object]:
        images = [
            {"arch": arch, "digest": image.digest, "size": image.size}
            for arch, image in self.images
        ]
        return {"file": self.path, "images": images, "differences": list(self.moved)}


def _check(edf: Edf, context: Context) -> _Result:
    path = lock_of(edf.files[-1])
    found = lock_file.read(edf.files[-1])
    if found is None:
        return _Result(path, (), ["missing"])
    moved = lock_file.differences(found, declared(edf.name, context, site_here(context)))
    for part, (name, _origin) in zip(found.parts, edf.images, strict=False):
        image, pinned = parse(name, context.cwd), part.images.get("file")
        if (
            isinstance(image, FileImage)
            and pinned
            and lock_file.pin_file(image.path).digest != pinned.digest
        ):
            moved.append(f"the content of '{image.path}' has changed")
    return _Result(path, (), moved)


def _lock(edf: Edf, context: Context, settings: SiteConfig) -> _Result:
    now = declared(edf.name, context, site_here(context))
    base, *above = [
        _part(name, written, context, settings)
        for (name, _origin), written in zip(edf.images, now.images, strict=True)
    ]
    made = lock_file.Lock(
        version=1,
        engine=__version__,
        environment=now.environment,
        image=base.image,
        name=base.name,
        images=base.images,
        hooks=now.hooks,
        above=tuple(above),
    )
    path = lock_of(edf.files[-1])
    lock_file.write(path, made)
    return _Result(path, [pin for part in made.parts for pin in part.images.items()])


def _part(name: str, written: str, context: Context, settings: SiteConfig) -> lock_file.Part:
    image = parse(name, context.cwd)
    if isinstance(image, FileImage):
        pinned = lock_file.pin_file(image.path)
        image_files.note_digest(image.path, pinned.digest)
        return lock_file.Part(image=written, name="", images={"file": pinned})
    image = meant(image, context, settings).image
    rules(context, settings).admit(image)
    pins = _pinned(image, context, settings)
    return lock_file.Part(image=written, name=image.tagged, images=pins)


def _pinned(
    image: RegistryImage, context: Context, settings: SiteConfig
) -> dict[str, lock_file.Pinned]:
    """Return the image's digest and size for each architecture.

    They come from the registry now, whatever the store has, or from the store for a local import.
    """
    wanted = architecture(settings.image_architecture)
    known = stores(context, settings).find(image)
    if known is not None and known.ref.origin:
        return {
            wanted: lock_file.pin_file(known.path).model_copy(update={"digest": known.ref.digest})
        }
    archs = dict.fromkeys((wanted, *_ARCHITECTURES))
    with asking(image, context, settings) as registry:
        found = registry.platforms(image, tuple(archs))
    if not found:
        raise UserError(f"not available for {', '.join(archs)}", name=image.name)
    return {
        arch: lock_file.Pinned(digest=remote.digest, size=remote.size)
        for arch, remote in sorted(found.items())
    }
