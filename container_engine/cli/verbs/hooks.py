"""`ce hooks list|show|check|test|explain`: inspect the hook catalog as a launch reads it."""

from __future__ import annotations

import argparse
import os
import sys

from container_engine.base import hook_code
from container_engine.base.errors import LaunchError, UserError
from container_engine.base.text_layout import nearest, warning_text
from container_engine.catalog.load import Hook
from container_engine.cli.verbs import hooks_check, hooks_test
from container_engine.node.node_plan import holds, read_plan
from container_engine.node.start.without_slurm import find
from container_engine.plan.model import HookUse
from container_engine.plan.site_context import Offer
from container_engine.printing import messages, output
from container_engine.printing.plan import only_in_some
from container_engine.submit.context import Context
from container_engine.submit.environment import offer_here
from container_engine.submit.prepare import prepare
from container_engine.tools.show_hook import show_hook, show_libraries, show_use


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = """\
list            all hooks of this site, and how each is enabled
show NAME       what a hook is for, what users may set, what it changes
check [DIR ...] is the catalog right? with DIR instead of the site's directories
test NAME       does this node have what the hook needs?
explain EDF     which hooks apply to an environment, why, what they change, and which libraries"""
    actions = ("list", "show", "check", "test", "explain")
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        default="list",
        choices=actions,
        help=f"{', '.join(actions)}; else list",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", default=[], help="a hook, directory or environment"
    )
    parser.add_argument("--json", action="store_true", help="list, check, explain: print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.action == "check":
        return hooks_check.check(arguments.names, context, as_json=arguments.json)
    if arguments.action == "list":
        return _list(context, as_json=arguments.json)
    (name,) = _only(arguments)
    if arguments.action == "explain":
        return _explain(name, context, as_json=arguments.json)
    offered = offer_here(context)
    hook = _named(name, offered)
    if arguments.action == "show":
        output.text(show_hook(hook, output.columns()))
        return 0
    return hooks_test.test(hook, offered, context)


def _only(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = arguments.names
    if len(names) != 1:
        what, lists = "hook", "ce hooks list shows the hooks"
        if arguments.action == "explain":
            what, lists = "environment", "ce list shows the environments"
        found = f"only one {what} at a time" if names else f"no {what} is given"
        hint = f"ce hooks {arguments.action} NAME; {lists}"
        raise UserError(f"hooks {arguments.action}: {found}", hint)
    return names


def _named(name: str, offered: Offer) -> Hook:
    hook = offered.hooks.get(name)
    if hook is None:
        meant = nearest(name, offered.hooks)
        hint = f"did you mean '{meant}'?" if meant else f"there are {', '.join(offered.hooks)}"
        raise UserError(f"hooks: there is no hook '{name}'", hint)
    return hook


def _list(context: Context, *, as_json: bool) -> int:
    hooks = sorted(offer_here(context).hooks.values())
    rows = [_row(hook, hook_code.directory(context.prefix)) for hook in hooks]
    if as_json:
        output.document({"hooks": rows})
        return 0
    states = ["off at this site" if row["turned_off"] else str(row["default"]) for row in rows]
    cells = zip(rows, states, strict=True)
    output.table([(str(r["name"]), s, str(r["from"]), str(r["summary"])) for r, s in cells])
    return 0


def _row(hook: Hook, built_in: str) -> dict[str, object]:
    own = hook.files[0].startswith(f"{built_in}/")
    changed = len(hook.files) > 1
    return {
        "name": hook.name,
        "default": hook.data.default,
        "turned_off": hook.data.turned_off,
        "release": hook.data.release,
        "from": ("changed" if changed else "built-in") if own else "site",
        "switch": hook.switch,
        "files": list(hook.files),
        "summary": hook.data.summary,
    }


def _explain(name: str, context: Context, *, as_json: bool) -> int:
    prepared = prepare(name, context)
    messages.say(prepared.notices)
    if prepared.plan is None:
        return 0
    try:
        found = find(read_plan(prepared.plan.to_json()), os.environ, context.libexec)
    except LaunchError as failure:
        raise failure.at("hooks explain") from None
    if as_json:
        output.document({"libraries": found.decisions, "warnings": found.warnings})
        return 0
    here = [use for use in prepared.plan.hooks if _applies(use)]
    elsewhere = [use for use in prepared.plan.hooks if not _applies(use)]
    columns = output.columns()
    text = "\n".join(show_use(use, columns) for use in here) or f"{name}: no hook applies\n"
    text += "".join(
        f"\nonly in some steps: {some}\n" for some in only_in_some(use.name for use in elsewhere)
    )
    text += show_libraries(found.decisions)
    output.text(text)
    sys.stdout.flush()
    messages.say("".join(map(warning_text, found.warnings)))
    return 0


def _applies(use: HookUse) -> bool:
    """Check whether a hook is not automatic, or one of its conditions holds in this environment."""
    return not use.automatic_when or any(holds(word, os.environ) for word in use.automatic_when)
