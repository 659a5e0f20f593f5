"""Collects the problems of one file, so that a single run reports them all."""

from __future__ import annotations

from container_engine.base.errors import CeError
from container_engine.base.toml_positions import Path, Positions
from container_engine.edf.model import Origin, Problem, Severity

MAX_PROBLEMS = 100
_MAX_TEXT = 1000


class Report:
    """The problems at paths such as ("mounts", 1), each with its line and a readable key."""

    def __init__(self, file: str, positions: Positions) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._positions = positions

    @property
    def is_full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self.problems) >= MAX_PROBLEMS

    def origin(self, path: Path) -> Origin:
        return Origin(self.file, self._positions.line(path))

    def error(self, path: Path, message: str, hint: str | None = None, see: str = "") -> None:
        problem = self.origin(path).error(clip(key_text(path)), clip(message), hint, see)
        self.problems.append(problem)

    def warning(self, path: Path, message: str, hint: str | None = None) -> None:
        problem = self.origin(path).warning(clip(key_text(path)), clip(message), hint)
        self.problems.append(problem)

    def unknown(self, path: Path, message: str, hint: str | None = None) -> None:
        """Add a warning whose message already names the key."""
        problem = self.origin(path).warning("", clip(message), hint, "edf-unknown-key")
        self.problems.append(problem)

    def failure(self, path: Path, error: CeError) -> None:
        self.error(path, error.message, error.hint, error.see)

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems by line; the last one counts those beyond MAX_PROBLEMS."""
        problems = sorted(self.problems, key=lambda problem: problem.line)
        kept, others = problems[:MAX_PROBLEMS], problems[MAX_PROBLEMS:]
        if others:
            is_error = any(problem.severity == "error" for problem in others)
            message = f"{len(others)} more problems"
            severity: Severity = "error" if is_error else "warning"
            kept.append(Problem(severity, self.file, 0, "", message))
        return tuple(kept)


def clip(text: str) -> str:
    """Return the text, cut off if it is too long to be read."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def key_text(path: Path) -> str:
    """Return the path as a user writes it: `mounts[1]`, `env.HOME`, `annotations."a b"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{_key_part(part)}"
    return text


def _key_part(part: str) -> str:
    plain = part.isascii() and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
    return part if plain else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
