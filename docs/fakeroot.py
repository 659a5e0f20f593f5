"""`make generated`: write the C programs' copy of the filter that builds of images use."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from container_engine.images.confine import fakeroot  # noqa: E402 - found through sys.path

HEADER = ROOT / "spank_plugin/common/fakeroot_code.h"


def header() -> str:
    """Return the header, which has the filter's instructions for each architecture."""
    begin, parts = "#if", []
    for machine in fakeroot.MACHINES:
        lines = "".join(
            f"\t{{ 0x{code:02x}, {yes}, {no}, 0x{value:08x} }},\n"
            for code, yes, no, value in struct.iter_unpack("HBBI", fakeroot.program(machine))
        )
        parts.append(f"{begin} defined(__{machine}__)\n#define CE_FAKEROOT_CODE \\\n")
        parts.append("".join(f"{line} \\\n" for line in lines.splitlines())[: -len(" \\\n")] + "\n")
        begin = "#elif"
    return (
        "/* The filter of container_engine/images/confine/fakeroot.py."
        " Made by docs/fakeroot.py. */\n"
        "#pragma once\n\n"
        f"{''.join(parts)}#endif\n"
    )


def main() -> int:
    HEADER.write_text(header(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
