"""`ce version`: print the version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine import __version__
from container_engine.cli import output

if TYPE_CHECKING:
    import argparse

    from container_engine.submit.context import Context


def configure(_parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def execute(_arguments: argparse.Namespace, _context: Context) -> int:
    output.line(f"ce {__version__}")
    return 0
