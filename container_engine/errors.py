"""The errors that are shown to the user, split by the party that can fix them.

Library code raises them; only the command line prints them and chooses an exit code. Every program
that must start quickly imports this module, so it imports nothing.
"""


class CeError(Exception):
    """A failure with a one-line message for the user.

    `message` says where, what and why ("file:line: key: what, why"), in lower case and without a
    full stop; `hint` says what to do about it. No code may match on either text. `see` is its code
    in the catalogue (`container_engine.faults`); `details` is all that the failed program printed.
    `also` holds lines of the same kind as the message, for further obstacles.
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
    """A mistake in what the user wrote or requested."""


class SiteError(CeError):
    """A fault of the site's installation or configuration: an administrator must act."""


class InternalError(CeError):
    """A fault of the Container Engine itself."""
