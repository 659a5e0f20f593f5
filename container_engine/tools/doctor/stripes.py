"""Check over how many servers of Lustre the images of a store are spread."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping

from container_engine.base.errors import CeError
from container_engine.base.process import output
from container_engine.tools.doctor.finding import Finding, ok, warning

_CHECK = "stripes"
_LUSTRE = 0x0BD00BD0  # LL_SUPER_MAGIC, which statfs(2) returns
_TIMEOUT_S = 10
_LARGE = 64 << 20  # bytes: with a progressive layout a smaller file has one stripe on purpose
# "8", "stripe_count:  8 stripe_size: …" or "lmm_stripe_count:  8", by version and options
_COUNT = re.compile(r"^\s*(?:\w*stripe_count:\s*)?(-?\d+)\b", re.MULTILINE)


def look(stores: Iterable[str], env: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding for each store on Lustre, if `lfs` is here; other file systems have none."""
    if shutil.which("lfs", path=env.get("PATH")) is None:
        return
    for root in filter(os.path.isdir, stores):
        subject = _what_nodes_read(root)
        try:
            if not is_lustre(output(["stat", "-f", "-c", "%t", subject], env, _TIMEOUT_S)):
                continue
            said = output(["lfs", "getstripe", "-c", "-d", subject], env, _TIMEOUT_S)
        except CeError as error:
            yield warning(_CHECK, f"{subject}: {error}", "lfs getstripe says more")
            continue
        count = stripe_count(said)
        if count == 1:
            text = f"{root}: {subject} has stripe count 1: one server sends it to all nodes"
            remedy = f"set store_layout, or lfs setstripe -c 8 {_of_drafts(root)}"
            yield warning(_CHECK, text, f"{remedy}; lfs migrate -c 8 FILE for images that exist")
        elif count is not None:
            yield ok(_CHECK, f"{subject}: {count if count > 0 else 'all'}")


def _what_nodes_read(root: str) -> str:
    """Return the largest image of a store, or the directory where new ones begin."""
    images = glob.glob(f"{glob.escape(root)}/images/*.sqsh")
    largest = max(images, key=os.path.getsize, default="")
    return largest if largest and os.path.getsize(largest) >= _LARGE else _of_drafts(root)


def _of_drafts(root: str) -> str:
    """Return the directory whose layout new images get if no program sets another."""
    return f"{root}/work" if os.path.isdir(f"{root}/work") else root


def is_lustre(said: bytes) -> bool:
    """Check whether `stat -f -c %t` has printed Lustre's number."""
    return said.strip().lower() == f"{_LUSTRE:x}".encode()


def stripe_count(said: bytes) -> int | None:
    """Return the last count that `lfs getstripe -c` has printed, -1 for all servers, else None."""
    found = _COUNT.findall(said.decode(errors="replace"))
    return int(found[-1]) if found else None
