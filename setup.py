"""Adds the catalog of hooks to a wheel, whose environment then knows their annotations.

All else is in pyproject.toml. `make install` builds without this file, and replaces hooks at once.
"""

from pathlib import Path

from setuptools import setup

FILES = sorted(Path("hooks").glob("*/hook.toml"))
setup(data_files=[(f"share/container-engine/{file.parent}", [str(file)]) for file in FILES])
