"""Choose a port for a step, the same on all of its nodes, as ce-guard does (step_answers.c)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Below Linux's range of ephemeral ports, so that a port is rarely in use. All have as many digits.
# They must match spank_plugin/guard/step_answers.h.
FIRST, COUNT = 20000, 10000
STEPS_APART = 16
_IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID")


def of_step(node: Mapping[str, str]) -> str:
    """Return a port that differs for most other steps."""
    numbers = [node.get(name, "0") for name in _IDS]
    job, step = (int(number) if number.isdecimal() else 0 for number in numbers)
    return str(FIRST + (job * STEPS_APART + step) % COUNT)


def next_step(node: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the step after this one. Raise ValueError, KeyError without IDs."""
    job, step = (int(node[name]) for name in _IDS)
    return {**node, _IDS[0]: str(job), _IDS[1]: str(step + 1)}


class Places:
    """The bytes of some texts that are the value of a variable with the port."""

    def __init__(self, texts: Mapping[str, bytes], variable: str, port: str) -> None:
        """Find them. Each text has a letter, and each place is that letter and an offset."""
        self._texts, self._size = texts, len(port)
        self.found: list[str] = []
        wanted = f"{variable}={port}".encode()
        for letter, text in texts.items():
            at = text.find(wanted)
            while port and at >= 0:
                self.found.append(f"{letter}{at + len(wanted) - self._size}")
                at = text.find(wanted, at + 1)

    def with_port(self, port: str) -> dict[str, bytes]:
        """Return the texts with another port of as many digits."""
        texts = {letter: bytearray(text) for letter, text in self._texts.items()}
        for place in self.found:
            at = int(place[1:])
            texts[place[0]][at : at + self._size] = port.encode()
        return {letter: bytes(text) for letter, text in texts.items()}
