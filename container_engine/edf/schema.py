"""`python -m container_engine.edf.schema [DIRECTORY]` writes edf.json."""

from __future__ import annotations

import sys

from container_engine.edf.document import Document
from container_engine.schemas import write

MODELS = {"edf.json": Document}

if __name__ == "__main__":
    write(MODELS, sys.argv[1:])
