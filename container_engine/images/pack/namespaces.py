"""Namespaces for one program, in which the user is root and which end with who started it."""

from __future__ import annotations

# whoever kills us ends the program, too; --kill-child: and with it whatever it has left running
OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"),
)
