"""`ce doctor`: check whether containers can run here, and print remedies if not."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from container_engine.cli.printing import output
from container_engine.doctor import (
    account,
    cluster,
    installation,
    kernel,
    programs,
    site_content,
    site_values,
    storage,
    trial,
)
from container_engine.doctor.finding import Finding, State, failed, ok, warning
from container_engine.doctor.site_files import site_files
from container_engine.errors import CeError, UserError
from container_engine.faults.block import remedy_of_site
from container_engine.process import reason
from container_engine.site.lines import located
from container_engine.submit.site import site_config, with_faults
from container_engine.submit.stores import stores
from container_engine.text_layout import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.doctor.cluster import Folded
    from container_engine.site import SiteConfig
    from container_engine.submit.context import Context

# column width for the names of the checks on one host
_WIDTH = 17
_STATES = max(map(len, State))
_COLOURS = {State.OK: "32", State.WARNING: "33", State.FAILED: "31;1"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Looks at what containers need on this host, and starts one. Each line is ok, warning or"
        " failed; the last two have a remedy. The exit code is 1 if anything failed."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--node", action="store_true", help="only what a compute node needs, on this host"
    )
    where.add_argument(
        "--all-nodes",
        action="store_true",
        help="on all nodes of the allocation, else of the cluster, through srun",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--lines", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "srun", metavar="OPTION", nargs="*", help="with --all-nodes: options of srun, after --"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.all_nodes:
        return _all_nodes(arguments, context)
    if arguments.srun:
        hint = "srun -w NODE ce doctor --node looks at another node; options are for --all-nodes"
        raise UserError(f"doctor: '{arguments.srun[0]}': this looks at this host only", hint)
    looked = look(context, whole=not arguments.node)
    if arguments.lines or arguments.json:
        findings = [*looked]
        if arguments.json:
            output.document(_document(findings))
        else:
            output.text(cluster.to_lines(findings))
        return _code(findings)
    return _code([*_told(looked, context)])


def look(context: Context, *, whole: bool) -> Iterator[Finding]:
    """Check this host; with `whole` also what a host needs where users submit."""
    settings, configuration = _settings(context)
    yield from _node(context, settings, configuration, is_node=not whole)
    if whole:
        yield from _submit(context, settings)


def _told(findings: Iterator[Finding], context: Context) -> Iterator[Finding]:
    """Print and yield each finding as soon as it is known, since some checks are slow."""
    for finding in findings:
        _say([cluster.Folded(finding, ())], context, _WIDTH)
        sys.stdout.flush()
        yield finding


def _node(
    context: Context, settings: SiteConfig, configuration: Finding, *, is_node: bool
) -> Iterator[Finding]:
    prefix = Path(context.prefix)
    yield from account.look(context.uid, context.env)
    yield from kernel.look(Path("/"))
    chosen = {"podman": settings.podman, "crun": settings.runtime}
    yield from programs.look(context.env, site=chosen, is_crun_enough=settings.start == "crun")
    yield from installation.look(prefix, context.env)
    limit_s = settings.start_timeout_s
    yield from installation.look_at_slurm(prefix, context.env, limit_s, is_node=is_node)
    yield configuration
    yield ok("rules", site_content.rules(settings))
    yield from _files(settings)
    yield from storage.look_at_sites(settings.image_stores)
    yield trial.start(f"{prefix}/bin/ce", context.env, settings.image_stores)


def _submit(context: Context, settings: SiteConfig) -> Iterator[Finding]:
    yield from programs.look_for_imports(context.env)
    known = stores(context, settings)
    if known.own is None:
        yield ok("image store", "none: EDF_IMAGESTORE is void")
        return
    yield from storage.look(known.own.root, context.env)


def _settings(context: Context) -> tuple[SiteConfig, Finding]:
    """Return the site's configuration, or the defaults if it cannot be read, and a finding."""
    try:
        settings = site_config(context)
    except CeError as error:
        from container_engine.site import SiteConfig

        remedy = remedy_of_site(error.see, error.hint) or "correct it: no container starts"
        return SiteConfig(), failed("configuration", str(error), remedy)
    configuration = with_faults(context)
    checked = site_values.look(configuration)
    if wrong := [*checked.faults, *checked.notes]:
        remedy = "ce config check here names all of it, with lines"
        return settings, warning("configuration", located(wrong[0], configuration.origins), remedy)
    return settings, ok("configuration", site_content.settings(settings))


def _files(settings: SiteConfig) -> Iterator[Finding]:
    for kind, number, fault in site_files(settings):
        if fault is not None:
            yield failed(kind, str(fault), fault.hint or "correct it")
        elif kind == "OCI hooks":
            yield from map(_hooks, settings.hooks_dirs)
        elif number:
            yield ok(kind, f"{number} in {', '.join(settings.cdi_dirs)}")


def _hooks(directory: str) -> Finding:
    """Check a directory of OCI hooks.

    A launch accepts an empty one, but a site that configures a directory expects hooks in it.
    """
    try:
        count = sum(name.endswith(".json") for name in os.listdir(directory))
    except OSError as error:
        text = f"{directory}: {reason(error)}"
        return failed("OCI hooks", text, "make it, or correct hooks_dirs")
    if not count:
        return warning("OCI hooks", f"{directory} has none", "is its content installed here?")
    return ok("OCI hooks", f"{directory}: {count}")


def _all_nodes(arguments: argparse.Namespace, context: Context) -> int:
    groups, absent = cluster.groups(context.env)
    names = [name for group in groups for name in group.names]
    ce = f"{context.prefix}/bin/ce"
    answers, busy = cluster.ask(groups, ce, arguments.srun, context.env)
    folded = [*absent, *busy, *cluster.fold(answers)]
    settings, _configuration = _settings(context)
    folded += cluster.unlike(folded, ok("rules", site_content.rules(settings)))
    findings = [entry.finding for entry in folded]
    if arguments.json:
        document = [{"nodes": entry.nodes, **entry.finding._asdict()} for entry in folded]
        output.document({"version": 1, "asked": names, "findings": document})
    else:
        bad = [entry for entry in folded if entry.finding.state is not State.OK]
        _say([*cluster.differing(folded), *bad], context)
        fine = [answer.node for answer in answers if _code(answer.findings) == 0]
        asked = cluster.hostlist(names, context.env)
        output.line(f"asked: {asked}; {len(fine)} of {len(names)} can start containers")
    return _code(findings) or int(not answers)


def _document(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "version": 1,
        "host": os.uname().nodename,
        "findings": [finding._asdict() for finding in findings],
    }


def _code(findings: Sequence[Finding]) -> int:
    return int(any(finding.state is State.FAILED for finding in findings))


def _say(folded: Sequence[Folded], context: Context, width: int = 0) -> None:
    """Print findings, with the names of checks in at least `width` columns."""
    colourful = sys.stdout.isatty() and not context.env.get("NO_COLOR")
    rows, colours = [], []
    for finding, nodes in folded:
        where = f"{cluster.hostlist(nodes, context.env)}: " if nodes else ""
        check = f"{finding.check:<{width}}"
        rows.append((f"{finding.state:<{_STATES}}", check, f"{where}{finding.message}"))
        colours.append(_COLOURS[finding.state] if colourful else "")
        if finding.remedy:
            rows.append(("", "", f"remedy: {finding.remedy}"))
            colours.append("")
    indent = _STATES + 4 + max((len(check) for _state, check, _text in rows), default=0)
    for row, colour in zip(aligned(rows) if rows else (), colours, strict=True):
        output.folded(row, indent, colour, _STATES)
