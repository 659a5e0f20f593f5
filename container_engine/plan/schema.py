"""`python -m container_engine.plan.schema [DIRECTORY]` writes plan.json and config.json."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from container_engine.plan.model import LaunchPlan
from container_engine.schemas import write
from container_engine.site.model import SiteConfig

if TYPE_CHECKING:
    from pydantic import BaseModel

MODELS: dict[str, type[BaseModel]] = {"plan.json": LaunchPlan, "config.json": SiteConfig}

if __name__ == "__main__":
    write(MODELS, sys.argv[1:])
