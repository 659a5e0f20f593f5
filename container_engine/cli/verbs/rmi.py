"""`ce rmi IMAGE`: remove an image from the user's store."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text
from container_engine.images.free_space import unusable
from container_engine.images.reference import (
    FileImage,
    Imported,
    RegistryImage,
    familiar,
    parse_source,
)
from container_engine.images.store import inventory
from container_engine.images.store.inventory import InUse
from container_engine.printing import output
from container_engine.submit.context import Context, site_config
from container_engine.submit.image_names import candidates, similar_image
from container_engine.submit.stores import own_store

_PREFIX, _SHORTEST = "sha256:", 12
_FORCE = "--force removes it under its tasks"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="a name, or 12 or more digits of a digest"
    )
    parser.add_argument("-f", "--force", action="store_true", help="even if running jobs use it")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root = own_store(context, site_config(context)).root
    removal = _Removal(
        root,
        inventory.NOTHING
        if arguments.force
        else inventory.used_by_jobs(root, context.env, context.uid),
    )
    try:
        # all are looked up before any is removed, so that a wrong name changes nothing
        chosen = [removal.chosen(name, context) for name in arguments.images]
        removal.check(chosen)
        for one in chosen:
            removal.remove(one)
    except OSError as error:
        raise unusable(root, error) from None
    return 0


class _Chosen(NamedTuple):
    """Hold the images that an argument of the command stands for.

    If `name` is set, only that name is removed, and each image of which it is the last one.
    """

    argument: str
    items: tuple[inventory.Item, ...]
    name: str = ""


class _Removal(NamedTuple):
    """The removal of images from the store `root`, except for those that jobs use."""

    root: str
    used: InUse

    def chosen(self, argument: str, context: Context) -> _Chosen:
        """Return what an argument stands for. Raise UserError, OSError."""
        found = inventory.items(self.root)
        matching = _by_digest(argument, found)
        if matching:
            return _Chosen(argument, tuple(matching))
        image = parse_source(argument, context.cwd)
        there = [name for item in found for name in item.names]
        if isinstance(image, RegistryImage):
            meanings = candidates(image, context)
            image = next((one for one in meanings if one.canonical in there), image)
        known: list[inventory.Item] = []
        if not isinstance(image, FileImage):
            known = [item for item in found if image.canonical in item.names]
        if isinstance(image, FileImage) or not known:
            others = sorted(name for name in there if name.startswith(_repository(image)))
            shown = ", ".join(map(familiar, others))
            similar = None if others else similar_image(argument, there, context)
            instead = f"did you mean '{similar}'?" if similar else "ce images lists what is there"
            hint = f"there is {shown}" if others else instead
            raise UserError(f"not in {self.root}", hint, name=argument)
        return _Chosen(argument, tuple(known), image.canonical)

    def check(self, chosen: Sequence[_Chosen]) -> None:
        """Raise UserError if a job uses an image that would be removed."""
        names = {one.name for one in chosen}
        for one in chosen:
            for item in one.items:
                goes = not one.name or names.issuperset(item.names)
                why = self.used.why_not(item.path) if goes else None
                if why is not None:
                    raise self._refusal(why, item, one.argument)

    def remove(self, chosen: _Chosen) -> None:
        """Remove the images, or only their name if they have others. Raise UserError, OSError."""
        wanted = {item.path for item in chosen.items}
        # listed again: an argument before this one may have removed another name
        for item in inventory.items(self.root):
            if item.path in wanted:
                self._remove_item(chosen, item)

    def _remove_item(self, chosen: _Chosen, item: inventory.Item) -> None:
        if chosen.name and not {chosen.name}.issuperset(item.names):
            inventory.forget(self.root, chosen.name, item.arch)
            return
        why = inventory.remove(self.root, item, self.used)
        if why is not None:
            raise self._refusal(why, item, chosen.argument)
        output.line(f"removed {item.path} ({size_text(item.size)})")

    def _refusal(self, why: str, item: inventory.Item, argument: str) -> UserError:
        probably_over = f"if none of your jobs runs in it: ce rmi --force {shlex.quote(argument)}"
        hint = probably_over if self.used.is_probably_over(item.path) else _FORCE
        return UserError(why, hint, name=argument)


def _by_digest(name: str, found: Sequence[inventory.Item]) -> list[inventory.Item]:
    """Return the image of this digest for each architecture.

    Raise UserError if several digests match.
    """
    digits = name.removeprefix(_PREFIX)
    if len(digits) < (1 if name.startswith(_PREFIX) else _SHORTEST):
        return []  # too short for a digest: 'decade' is a name
    matching = [one for one in found if one.digest.removeprefix(_PREFIX).startswith(digits)]
    digests = sorted({one.digest for one in matching})
    if len(digests) > 1:
        message = f"{len(digests)} digests begin with this: {', '.join(digests)}"
        raise UserError(message, "write more of its digits", name=name)
    return matching


def _repository(image: FileImage | Imported) -> str:
    return f"{image.registry}/{image.repository}:" if isinstance(image, RegistryImage) else "-"
