"""`python -m container_engine.images.schema [DIRECTORY]` writes lock.json."""

from __future__ import annotations

import sys

from container_engine.images.lock import Lock
from container_engine.schemas import write

MODELS = {"lock.json": Lock}

if __name__ == "__main__":
    write(MODELS, sys.argv[1:])
