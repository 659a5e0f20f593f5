"""`ce build CONTEXT`: build an image from a Containerfile into the store."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence

from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text, warning_text
from container_engine.build.builder import Builder, Recipe
from container_engine.build.containerfile_lines import (
    From,
    entrypoint_of,
    has,
    without_effect,
)
from container_engine.build.inputs import read, recipe_of, refuse_missing
from container_engine.cli.command_line.options import add_arch
from container_engine.compat.foreign import add_foreign_of_builds, refuse_foreign
from container_engine.images.free_space import unusable
from container_engine.images.reference import (
    LOCAL_REGISTRY,
    FileImage,
    LocalImage,
    Pull,
    canonical_name,
    local_name,
)
from container_engine.images.store.inventory import items
from container_engine.images.store.store import Known, Stores
from container_engine.printing import messages, output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import load_effective
from container_engine.submit.image_names import image_named, is_environment, with_similar_hint
from container_engine.submit.stores import importer, own_store, rules, stores


def configure(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument(
        "context", metavar="CONTEXT", help="the build context: the directory that COPY reads from"
    )
    source.required = False  # execute has a better message if it is missing
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="default: the CONTEXT's Containerfile or Dockerfile"
    )
    parser.add_argument(
        "-t",
        "--tag",
        metavar="NAME",
        help="the name that environments use; default: localhost/ and the directory's name",
    )
    parser.add_argument(
        "--build-arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="for ARG lines; NAME alone takes the value from the environment",
    )
    parser.add_argument(
        "--secret",
        metavar="id=NAME,src=FILE",
        action="append",
        default=[],
        help="a secret for the steps that ask for it; env=VARIABLE in place of src=FILE",
    )
    parser.add_argument("--target", metavar="STAGE", default="", help="build this stage only")
    parser.add_argument(
        "--no-cache", action="store_true", help="rebuild everything, also if nothing has changed"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_arch(parser)
    add_foreign_of_builds(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if (refused := refuse_foreign(arguments)) != 0:
        return refused
    if arguments.context is None:
        hint = f"for the directory you are in: ce {' '.join(arguments.words)} ."
        return messages.refuse("build: CONTEXT is missing, the directory of the build", hint)
    settings = site_config(context).for_arch(arguments.arch)
    own_store(context, settings)  # refuses if the user has no store to build into
    recipe, froms = recipe_of(arguments, context, settings)
    name = arguments.tag or local_name(FileImage(recipe.context, os.path.realpath(recipe.context)))
    try:
        made_of = recipe.digest(context.env)
        image = LocalImage(name, "oci", "", called=canonical_name(name), made_of=made_of)
    except OSError as error:
        raise unusable(recipe.context, error) from None
    rules(context, settings).admit_local(image)
    try:
        refuse_missing(froms, recipe)
        output.line(_image(image, recipe, arguments, context, settings))
    except UserError as error:
        raise _with_base_hint(error, froms, context, settings) from None
    if not arguments.quiet:
        messages.say_use(arguments.tag or name.removesuffix(":latest"))
    return 0


def _image(
    image: LocalImage,
    recipe: Recipe,
    arguments: argparse.Namespace,
    context: Context,
    settings: SiteConfig,
) -> str:
    """Return the path of the image, reusing an earlier build if nothing has changed."""
    places = stores(context, settings)
    source = importer(context, settings, quiet=arguments.quiet)
    known = places.find(image)
    if known is not None and known.ref.origin == image.made_of and not arguments.no_cache:
        source.say(f"{image.name}: nothing has changed since it was built (--no-cache builds it)")
        return known.path
    policy = settings.policy.signature_policy
    limit = settings.import_timeout_s
    builder = Builder(context.env, context.uid, os.getegid(), limit, policy)
    with tempfile.TemporaryDirectory(prefix="ce-build-") as work:
        layout = os.path.join(work, "oci")
        warning = builder.build(
            recipe, image.made_of, layout, fresh=arguments.no_cache, quiet=arguments.quiet
        )
        messages.say(warning_text(warning) if warning else "")
        path = source.obtain(image._replace(place=layout), places, Pull.ALWAYS).path
    if not arguments.quiet:
        left = left_behind(known, places, image.name)
        for line in (*left, *effects(read(recipe.containerfile), arguments.target)):
            messages.say_progress(line)
    return path


def left_behind(before: Known | None, places: Stores, name: str) -> list[str]:
    """Return, in words, that the image that had this name stays in the user's store."""
    if before is None or not before.is_own or places.own is None:
        return []
    item = next((one for one in items(places.own.root) if one.path == before.path), None)
    if item is None or item.names:
        return []
    return [f"the former {name} ({size_text(item.size)}) stays in the store until ce gc removes it"]


def effects(containerfile: str, target: str) -> list[str]:
    """Return, in words, what is recorded in the image `target` and has no effect in a launch."""
    lines = []
    unused = without_effect(containerfile)
    if unused:
        have = "has" if len(unused) == 1 else "have"
        lines.append(
            f"{', '.join(unused)} {have} no effect in containers of a job; ENV and WORKDIR have"
            " (ce help dockerfile)"
        )
    if has(containerfile, "ONBUILD"):
        lines.append("ONBUILD is not kept in the image: write its lines where FROM names the image")
    command = None if target else entrypoint_of(containerfile)
    if command:
        lines.append(
            f"ENTRYPOINT is not run by itself: name its program, {command} …; for a wrapper that"
            ' ends with exec "$@": entrypoint = true'
        )
    return lines


def _with_base_hint(
    error: UserError, froms: Sequence[From], context: Context, settings: SiteConfig
) -> UserError:
    """Return the error of a build; at a name, with a hint if its image has another name here."""
    one = next((one for one in froms if error.where.endswith(f":{one.line}")), None)
    if one is None or not error.key.startswith(one.before):
        return error
    name, settings = one.name, settings.for_arch(one.platform.removeprefix("linux/"))
    plain = name.removeprefix(f"{LOCAL_REGISTRY}/")
    image = image_named(plain, context, settings)
    if image is not None and image != name:
        error.hint = f"'{name}' is not here, but '{image}' is: {one.before}{image}"
    elif is_environment(name, context, settings):
        edf = load_effective(name, context).edf
        its = f": FROM {edf.image}" if edf is not None and edf.image else ""
        error.hint = f"'{name}' is an environment; FROM takes an image{its}"
    else:
        return with_similar_hint(error, name, context, settings)
    return error
