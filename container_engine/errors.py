"""The errors that reach a person, split by who can put them right.

Library code raises them, only the command line prints them and chooses an exit code. This module is
imported by every program that must start quickly, so it imports nothing.
"""


class CeError(Exception):
    """A failure with one line for the person who reads it.

    `message` says where, what and why ("file:line: key: what, why"), in lower case and without a
    full stop; `hint` says what to do about it. Nobody may match on either text. `see` is its code
    in the catalogue (`container_engine.faults`), `details` is all that was printed by who failed.
    `also` are lines of the same kind as the message, for what else stands in the way.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        see: str = "",
        *,
        details: str = "",
        also: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.see = see
        self.details = details
        self.also = also

    def __str__(self) -> str:
        return self.message


class UserError(CeError):
    """What the user wrote or asked for is at fault."""


class SiteError(CeError):
    """The site's installation or configuration is at fault: an administrator must act."""


class InternalError(CeError):
    """The Container Engine is at fault."""
