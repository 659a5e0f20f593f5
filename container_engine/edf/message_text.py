"""Messages as text, one line each: "ce: error: …", "ce: warning: …", "ce: hint: …". Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.edf.model import Problem


def of_problems(problems: Sequence[Problem]) -> str:
    return "".join(map(of_problem, problems))


def of_problem(problem: Problem) -> str:
    return block(problem.severity, str(problem), problem.hint, problem.excerpt)


def of_advice(problem: Problem) -> str:
    """Return advice for stdout: the line itself, and the hint below it."""
    hint = f"    {one_line(problem.hint)}\n" if problem.hint else ""
    return f"{one_line(str(problem))}\n{hint}"


def of_warning(message: str) -> str:
    return block("warning", message, None)


def block(kind: str, message: str, hint: str | None, excerpt: str | None = None) -> str:
    text = f"ce: {kind}: {one_line(message)}\n"
    if excerpt:
        text += "".join(f"    {line}\n" for line in excerpt.splitlines())
    if hint:
        text += f"ce: hint: {one_line(hint)}\n"
    return text


def one_line(text: str) -> str:
    """Escape line ends and other control characters: a user's file must not fake a message."""
    return "".join(c if c.isprintable() or c == " " else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
