"""The keys of an EDF that have one value, of which that of the upper file wins.

Files are read, merged, explained and rendered by this table. A new key also needs its field in
`Document`, `Layer` and `Edf`, the last with an origin: `tests/unit/edf/test_plain_keys.py` says
what is missing.
"""

from __future__ import annotations

from typing import Literal

# How the value is read: true or false, a path in the container, or text that has no deferred part.
Kind = Literal["switch", "directory", "text"]

PLAIN: dict[str, Kind] = {
    "description": "text",
    "entrypoint": "switch",
    "workdir": "directory",
    "writable": "switch",
}
