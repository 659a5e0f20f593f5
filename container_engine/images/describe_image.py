"""Print the description of a SquashFS file that the submit host does not have, for the launcher.

It is a program of its own, because the launcher imports no models and rarely needs this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from container_engine.base.errors import CeError
from container_engine.images.resolve import from_file

# unsquashfs is a program of the node's system, whatever PATH the job has
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def main(argv: Sequence[str]) -> int:
    """Print `env`, `workdir`, `content`, `source` and `notices` of the file `argv[0]` as JSON.

    An error is printed in the same way, as `reason`, `hint` and `see`; the exit code is then 1.
    """
    path = argv[0]
    try:
        found = from_file(path, path, _ENVIRONMENT)
    except CeError as error:
        sys.stdout.write(json.dumps({"reason": str(error), "hint": error.hint, "see": error.see}))
        return 1
    image = {name: getattr(found.image, name) for name in ("env", "workdir", "content", "source")}
    sys.stdout.write(json.dumps({**image, "notices": found.notices}))
    return 0
