"""Name the directory of a node in which this user's memos for later starts are.

A memo is right for one node and boot only, so none is in the home: that is a file server's, which
hundreds of nodes would write to at one time, and whose quota counts files. /var/tmp stays where a
job has a /tmp of its own. Where another user has made the directory first, nothing is remembered.
"""

from __future__ import annotations

import os

# spank_plugin/node/memo_dir.h has the same
_TEMPORARY = "/var/tmp"


def place(kind: str) -> str:
    """Return the directory of one kind of memos."""
    return f"{_TEMPORARY}/ce-memos-{os.geteuid()}/{kind}"
