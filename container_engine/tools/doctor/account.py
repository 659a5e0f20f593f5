"""Checks the calling user's account, and reports which parts of it containers can do without."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping

from container_engine.tools.doctor.finding import Finding, ok, warning


def look(uid: int, env: Mapping[str, str]) -> Iterator[Finding]:
    yield _identity(uid)
    yield _subordinate_ids()
    yield _runtime_directory(uid, env)


def _identity(uid: int) -> Finding:
    if uid == 0:
        remedy = "run it as an ordinary user too: what users may do differs"
        return warning("user", "root", remedy)
    try:
        return ok("user", f"{pwd.getpwuid(uid).pw_name} ({uid})")
    except KeyError:
        remedy = "jobs run, with a made-up name; is the directory service (sssd, nslcd) up?"
        return warning("user", f"{uid} has no name on this host", remedy)


def _subordinate_ids() -> Finding:
    return ok("subordinate ids", "/etc/subuid and /etc/subgid are not needed")


def _runtime_directory(uid: int, env: Mapping[str, str]) -> Finding:
    directory = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    there = "there, " if os.path.isdir(directory) else ""
    return ok("runtime directory", f"{directory}: {there}not needed")
