"""When a registry is asked for a name of which a store has the image."""

from __future__ import annotations

import enum


class Pull(enum.StrEnum):
    """The rule for looking a name up in its registry although a store has its image."""

    AGE = "age"
    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"
