"""The packages of test_debuggers.py, downloaded before the tests, which have no network."""

import sys
from pathlib import Path

from ce_sandbox import packages

PACKAGES = ["gdb", "linux-perf"]

if __name__ == "__main__":
    packages.closure(PACKAGES, Path(sys.argv[1]))
