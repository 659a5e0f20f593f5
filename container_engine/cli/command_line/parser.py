"""The command line of `ce`: one parser for all verbs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from container_engine import __version__
from container_engine.base.text_layout import block, wrap_lines
from container_engine.cli.command_line.verb_table import (
    VERBS,
    examples_of,
    hint_without_name,
    overview,
    verbs,
)
from container_engine.printing import messages, output

PROBLEM = 1


# Patterns of argparse's messages in Python 3.11 to 3.14, and the engine's words for them.
_PLAINER = (
    (r"the following arguments are required: VERB", "no verb is given"),
    (r"the following arguments are required: ([^,]*)", r"\1 is missing"),
    (r"the following arguments are required: (.*)", r"\1 are missing"),
    (r"argument \S+: invalid choice: (.*) \(choose from (.*)\)", r"\1 is not one of \2"),
    (r"argument (?:\S+/)?(\S+): expected (?:one|at least one) argument", r"\1 needs a value"),
    (r"argument (?:\S+/)?(\S+): invalid int value: (.*)", r"\1: \2 is not a whole number"),
    (r"argument (?:\S+/)?(\S+): invalid float value: (.*)", r"\1: \2 is not a number"),
    (
        r"argument (?:\S+/)?(\S+): not allowed with argument (?:\S+/)?(\S+)",
        r"either \1 or \2, not both",
    ),
    (r"argument (?:\S+/)?(\S+): (.*)", r"\1: \2"),
)
_TAG = re.compile(r"latest|v?\d[\w.-]*")
_CHOICES = re.compile(r"\(choose from .*\)$")


def _matches(message: str) -> Iterator[tuple[re.Match[str], str]]:
    for pattern, plain in _PLAINER:
        if (found := re.fullmatch(pattern, message, re.DOTALL)) is not None:
            yield found, plain


def _unmeasured(prog: str) -> argparse.HelpFormatter:
    """Return a formatter of fixed width for argparse's own checks, without an import to measure."""
    return argparse.HelpFormatter(prog, width=80)


class Parser(argparse.ArgumentParser):
    """A parser that reports errors as all of `ce` does: one line and a hint.

    Options may come before, between and after the names of a verb. By itself, argparse accepts no
    further optional names once it meets an option after the first word.
    """

    _is_second_look = False

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # as argparse has them
        super().__init__(formatter_class=_unmeasured, **options)

    def parse_known_args(  # type: ignore[override]  # the overloads differ in the namespace only
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_second_look or not self._may_mix(args or ()):
            return super().parse_known_args(args, namespace)
        self._is_second_look = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_second_look = False

    def _may_mix(self, words: Sequence[str]) -> bool:
        """Check whether options may come between names.

        argparse does not support this if a command follows, and it drops a `--`.
        """
        takes_command = any(a.nargs in (argparse.PARSER, argparse.REMAINDER) for a in self._actions)
        return "--" not in words and not takes_command

    def error(self, message: str) -> NoReturn:
        said, hint = self._plain(message), f"'{self.prog} --help' shows how to use it"
        if said.endswith("missing"):
            hint = hint_without_name(self.prog.partition(" ")[2])
        self.refuse(said, hint)

    def _check_value(self, action: argparse.Action, value: str) -> None:
        """Refuse an unknown action, with a hint if it is known what was meant."""
        if action.dest == "action" and value not in (action.choices or ()):
            from container_engine.base.text_layout import nearest
            from container_engine.compat.foreign import FOREIGN_ACTIONS

            verb = self.prog.partition(" ")[2]
            known = FOREIGN_ACTIONS.get(verb, {})
            hint = known.get(value)
            if hint is None and (meant := nearest(value, action.choices or ())):
                hint = f"did you mean 'ce {verb} {meant}'?"
            if (hint := hint or known.get("")) is not None:
                self.refuse(f"{verb}: there is no action '{value}'", hint)
        super()._check_value(action, value)

    def _plain(self, message: str) -> str:
        """Reword an argparse message and put the verb's name first."""
        verb = self.prog.partition(" ")[2]
        # Python 3.12 and later leave the quotes out
        message = _CHOICES.sub(lambda names: names[0].replace("'", ""), message)
        said = next((found.expand(plain) for found, plain in _matches(message)), message)
        return f"{verb}: {said}" if verb else said

    def refuse(self, message: str, hint: str | None) -> NoReturn:
        """Report a wrong command line and exit."""
        messages.say(block("error", message, hint))
        sys.exit(messages.USAGE)

    def format_help(self) -> str:
        if self.formatter_class is _unmeasured:
            self.formatter_class = argparse.HelpFormatter
        text = super().format_help().replace("positional arguments:", "arguments:", 1)
        examples = examples_of(self.prog.partition(" ")[2])
        title = "example" if len(examples) == 1 else "examples"
        shown = "".join(f"  {example}\n" for example in examples)
        return f"{text}\n{title}:\n{shown}" if shown else text


class _Whole(Parser):
    def parse_args(  # type: ignore[override]  # the overloads differ in the namespace only
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> argparse.Namespace:
        """Parse all words, and keep them as `words`. Report an unknown option as the verb's."""
        given = list(args or ())
        first = next(iter(given), "")
        if first.startswith("-") and first.partition("=")[0] not in self._option_string_actions:
            self.error(_unknown(self, [first]))
        if first == "help" and given[1:2] not in ([], ["-h"], ["--help"], ["--"]):
            # words to search for are no options: docker run -it
            args = ["help", "--", *given[1:]]
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser = self if parsed.verb is None else of_verb(self, parsed.verb)
            if (meant := _meant(parsed, unknown)) is not None:
                parser.refuse(f"{parsed.verb}: {_unknown(parser, unknown)}", meant)
            parser.error(_unknown(parser, unknown))
        parsed.words = given
        return parsed

    def _check_value(self, action: argparse.Action, value: str) -> None:
        if action.dest == "verb" and value not in VERBS and value not in verbs():
            import shutil

            from container_engine.base.text_layout import did_you_mean, nearest
            from container_engine.compat.foreign import FOREIGN_VERBS

            if value in FOREIGN_VERBS:
                self.refuse(f"ce has no verb '{value}'", FOREIGN_VERBS[value])
            meant = nearest(value, verbs())
            if not meant and shutil.which(value):
                self.refuse(f"ce has no verb '{value}'", f"ce run NAME -- {value} runs the command")
            suggestion = did_you_mean(meant)
            raise argparse.ArgumentError(None, f"unknown verb '{value}'{suggestion}")
        super()._check_value(action, value)

    def format_help(self) -> str:
        formatter = argparse.HelpFormatter(self.prog)
        formatter.start_section("Options")
        formatter.add_arguments(a for a in self._actions if a.option_strings)
        formatter.end_section()
        return f"{wrap_lines(overview(), output.columns())}\n{formatter.format_help()}"


def _meant(parsed: argparse.Namespace, words: Sequence[str]) -> str | None:
    """Return a hint at what was meant by too many words, None if it is not known."""
    from container_engine.compat.foreign import FOREIGN_ACTIONS

    if any(word.startswith("-") for word in words):
        return None
    if parsed.verb == "pull":
        if ":" not in parsed.image and _TAG.fullmatch(words[0]):
            return f"a tag follows a colon: ce pull {parsed.image}:{words[0]}"
        return "one image at a time"
    known = FOREIGN_ACTIONS.get(parsed.verb, {})
    return known.get(words[0], known.get(""))


def _unknown(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Name the first option that the verb does not have, else the words that are too many."""
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return f"too many words: {' '.join(words)}"
    from container_engine.base.text_layout import nearest

    # without the dashes, which make any two short options similar
    known = [
        name.lstrip("-")
        for action in parser._actions  # noqa: SLF001
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
        if name.startswith("--")
    ]
    meant = nearest(option.lstrip("-"), known)
    return f"there is no option {option}" + (f", did you mean --{meant}?" if meant else "")


def help_of(verb: str) -> str:
    """Return what `ce VERB --help` prints."""
    return of_verb(build([verb]), verb).format_help()


def of_verb(whole: argparse.ArgumentParser, verb: str) -> Parser:
    """Return the parser of one of the verbs that `build` was given."""
    below = next(a for a in whole._actions if a.dest == "verb")  # noqa: SLF001
    parser: Parser = dict(below.choices or {})[verb]
    return parser


def build(chosen: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Return a parser of the `chosen` verbs, importing only their modules."""
    parser = _Whole(prog="ce")
    parser.add_argument("--version", action="version", version=f"ce {__version__}")
    parser.add_argument(
        "-v", "-V", action="version", version=f"ce {__version__}", help=argparse.SUPPRESS
    )
    parser.add_argument("--site", metavar="FILE", help=argparse.SUPPRESS)
    below = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    for name in dict.fromkeys(chosen):
        verb = VERBS[name] if name in VERBS else verbs()[name]
        description = f"{verb.help[0].upper()}{verb.help[1:]}."
        own = below.add_parser(name, help=verb.help, description=description)
        configure, execute = verb.load()
        own.set_defaults(execute=execute, failure=PROBLEM)
        configure(own)
    return parser
