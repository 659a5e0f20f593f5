"""The errors that are shown to the user, split by the party that can fix them.

Library code raises them; only the command line and the node's report print them and choose an exit
code. Every program that must start quickly imports this module, so it imports nothing.
"""

# exit codes of srun, `ce run` and `ce exec` in place of the command's (CE_EXIT_* in C, error.h):
# it has not run, because its container did not start; it cannot be executed; there is none
EXIT_ENGINE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127
_PRINTED = "; it printed: "


def with_output(message: str, printed: str) -> str:
    """Return the message, followed by what a program printed if that is anything."""
    return f"{message}{_PRINTED}{printed}" if printed else message


def without_output(message: str) -> str:
    """Return the message without what a program printed, which may differ on each node."""
    return message.partition(_PRINTED)[0]


class CeError(Exception):
    """A failure with a one-line message for the user: "where: key: kind 'name': reason".

    `reason` says what is wrong, in lower case and without a full stop. The other parts are "" where
    there is none: `where` is a file, one of its lines, an option or a program; `key` is a setting
    there; `name` is what the user named, of the given `kind`. `hint` says what to do about it.
    Code reads these fields, never the message. `see` is the error's code in the catalogue
    (`container_engine.faults`); `details` is all that the failed program printed. `also` holds
    lines of the same kind as the message, for further obstacles.
    """

    def __init__(  # noqa: PLR0913  # the parts of a message
        self,
        reason: str,
        hint: str | None = None,
        see: str = "",
        *,
        where: str = "",
        key: str = "",
        kind: str = "",
        name: str | None = None,
        details: str = "",
        also: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.see = see
        self.where = where
        self.key = key
        self.kind = kind
        self.name = name
        self.details = details
        self.also = also

    @property
    def message(self) -> str:
        """Return the error in one line."""
        subject = self.kind if self.name is None else f"{self.kind} '{self.name}'".lstrip()
        return ": ".join(filter(None, (self.where, self.key, subject, self.reason)))

    def about(self, name: str) -> str:
        """Return the message for a line that begins with the name already."""
        is_known = self.name == name and not (self.where or self.key or self.kind)
        return self.reason if is_known else self.message

    def at(self, where: str) -> "CeError":
        """Put `where` before the error's own place, and return the error."""
        self.where = f"{where}: {self.where}" if self.where else where
        return self

    def __str__(self) -> str:
        return self.message


class UserError(CeError):
    """A mistake in what the user wrote or requested."""


class SiteError(CeError):
    """A fault of the site's installation or configuration: an administrator must act."""


class InternalError(CeError):
    """A fault of the Container Engine itself."""


class LaunchError(CeError):
    """A container that could not be started on its node."""
