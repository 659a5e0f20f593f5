"""`make generated`: write the schemas in edf_schemas from the models of all formats."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from container_engine.base.model import schema_text  # noqa: E402
from container_engine.cli.verbs.schema import models  # noqa: E402 - found through sys.path

if __name__ == "__main__":
    for name, model in models().items():
        (ROOT / "edf_schemas" / f"{name}.json").write_text(schema_text(model), encoding="utf-8")
