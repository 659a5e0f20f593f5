"""`python3 headers.py NAME`: print a header that the C programs are built with.

`help` has the remedies of the catalogue of errors, `fakeroot_code` the filter that builds of images
use. Standard library only, because it runs with the Python that builds a package.
"""

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from container_engine.faults.catalogue import FAULTS
from container_engine.images.confine import fakeroot


def help_() -> str:
    """Return a macro for each code: the lines below an error, for `below` of struct ce_error."""
    lines = "".join(
        f"#define CE_HELP_{code.replace('-', '_').upper()}"
        f' "ce: hint: {_escaped(fault.remedy)}\\nce: see: ce help {code}"\n'
        for code, fault in FAULTS.items()
    )
    return f"#pragma once\n\n{lines}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def fakeroot_code() -> str:
    """Return the instructions of the filter for each architecture."""
    begin, parts = "#if", []
    for machine in fakeroot.MACHINES:
        code = ", ".join(
            f"{{ 0x{code:02x}, {yes}, {no}, 0x{value:08x} }}"
            for code, yes, no, value in struct.iter_unpack("HBBI", fakeroot.program(machine))
        )
        parts.append(f"{begin} defined(__{machine}__)\n#define CE_FAKEROOT_CODE {code}\n")
        begin = "#elif"
    return f"#pragma once\n\n{''.join(parts)}#endif\n"


if __name__ == "__main__":
    print(end={"help": help_, "fakeroot_code": fakeroot_code}[sys.argv[1]]())
