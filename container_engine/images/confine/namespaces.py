"""A command prefix for namespaces in which the user is root, and which end with their creator.

Not in cage.py, whose import takes 15 ms: every plan at a site with a scanner needs this alone.
"""

from __future__ import annotations

# the program ends when this process is killed; --kill-child ends its remaining children, too
OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"),
)
