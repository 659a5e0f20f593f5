"""`python -m container_engine.catalog.schema [DIRECTORY]` writes hook.json."""

from __future__ import annotations

import sys

from container_engine.catalog.model import HookFile
from container_engine.schemas import write

MODELS = {"hook.json": HookFile}

if __name__ == "__main__":
    write(MODELS, sys.argv[1:])
