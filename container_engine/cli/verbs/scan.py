"""`ce scan NAME`: print the verdict of the site's scanner on an image."""

from __future__ import annotations

import argparse
import time

from container_engine.base.errors import SiteError
from container_engine.cli.command_line.options import add_pull
from container_engine.images.scanning import Scanner, Verdict, cache_directory
from container_engine.printing import messages, output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context, site_config
from container_engine.submit.image import image_named_or_of, subject
from container_engine.submit.stores import rules


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an environment, or an image")
    parser.add_argument("--again", action="store_true", help="ignore the cached result")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_pull(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Print the scanner's report to stdout. Return 0 for a good image, else 1."""
    settings = site_config(context)
    wanted = rules(context, settings)
    if not wanted.policy.scanner:
        where = wanted.source or "the site's configuration"
        raise SiteError("the site has no scanner", where=where, key="policy.scanner")
    asking = context.with_pull(arguments.pull)
    found = image_named_or_of(arguments.name, asking, _of_any_place(settings))
    scanner = Scanner(wanted, cache_directory(context.env), context.env, context.libexec)
    asked = subject(found.image.name, found)
    verdict = None if arguments.again else scanner.recall(asked, time.time())
    if verdict is None:
        if not arguments.json:
            messages.say_progress(f"{asked.name}: scanning it with {wanted.policy.scanner[0]}")
        verdict = scanner.scan(asked)
    if arguments.json:
        good = verdict.is_good
        output.document({**asked._asdict(), "good": good, **verdict._asdict()})
    else:
        output.text(verdict.report)
        output.line(f"{asked.name}: {_judgement(verdict, wanted.policy.scanner_verdict)}")
    return 0 if verdict.is_good else 1


def _of_any_place(settings: SiteConfig) -> SiteConfig:
    """Return settings that admit images from anywhere.

    An administrator has images scanned before adding them to the site's stores.
    """
    policy = settings.policy.model_copy(update={"site_images_only": False})
    return settings.model_copy(update={"policy": policy})


def _judgement(verdict: Verdict, policy: str) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(verdict.when))
    if verdict.is_good:
        return f"passed, {verdict.program[0]} on {day}"
    status = "not finished" if verdict.status is None else f"exit code {verdict.status}"
    launches = "launches are refused" if policy == "block" else "launches warn"
    return f"failed, {verdict.program[0]} on {day} ({status}); {launches}"
