"""The loader's variables (`LD_*`), which ce-start put aside so that they do not reach Python.

They are the job's: environments may expand them and tasks may want them. They are not for the
programs that the engine itself runs.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LOADER, _HELD = "LD_", "CE_HELD_"


def take_back() -> None:
    """Give this process the variables under their own names; the loader has read its own by now."""
    for name in [name for name in os.environ if name.startswith(_HELD + _LOADER)]:
        os.environ[name.removeprefix(_HELD)] = os.environ.pop(name)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """For programs of the system, which a library of the user's could break."""
    return {name: value for name, value in env.items() if not name.startswith(_LOADER)}
