"""Hand the record of a step to the site's program, as JSON on its standard input.

Imported only where a site has such a program. It runs as the user, in the step, on its first node;
a launch never fails because of it.
"""

from __future__ import annotations

import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("HOME", "USER", "LOGNAME")
# the end of a short step waits for the launcher, and so for this
_WAIT_S = 2


def send(program: Sequence[str], record: bytes, node: Mapping[str, str]) -> None:
    """Start the program and wait for it for a short time, after which it goes on alone.

    Of the job's variables it gets only Slurm's, HOME, USER and LOGNAME.
    """
    own = {name: node[name] for name in node if name.startswith("SLURM") or name in _KEPT}
    quiet = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            program,
            env={**own, "PATH": _PATH},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
    except OSError:
        return
    try:
        child.communicate(record, _WAIT_S)
    except (OSError, subprocess.TimeoutExpired):
        child.returncode = 0  # Python would warn about a child that nobody has waited for
