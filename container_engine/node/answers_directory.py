"""Name the node's directory for this user's recorded answers, which make later starts faster.

An answer is valid for one node and one boot only, so the home would be the wrong place: hundreds of
nodes would write to its file server at once, and quotas limit the number of files. /var/tmp is the
node's even for jobs that have a /tmp of their own. If another user has made the directory first,
nothing is remembered.
"""

from __future__ import annotations

import os

# must match spank_plugin/guard/step_answers.h
_TEMPORARY = "/var/tmp"


def place(kind: str) -> str:
    """Return the directory for one kind of answers, such as "starts"."""
    return f"{_TEMPORARY}/ce-answers-{os.geteuid()}/{kind}"
