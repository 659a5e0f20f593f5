"""The rules for when a registry is asked about a name whose image is in a store."""

from __future__ import annotations

import enum


class Pull(enum.StrEnum):
    """The rule for looking a name up in its registry although a store has its image."""

    AGE = "age"
    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"
