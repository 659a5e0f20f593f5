"""The loader's variables (`LD_*`), which ce-start sets aside so that they do not reach Python.

They belong to the job: environments may expand them and tasks may need them. The programs that the
engine itself runs must not get them.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LOADER, _HELD = "LD_", "CE_HELD_"


def take_back() -> None:
    """Restore the names of the variables in this process, whose loader has already run."""
    for name in [name for name in os.environ if name.startswith(_HELD + _LOADER)]:
        os.environ[name.removeprefix(_HELD)] = os.environ.pop(name)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` without them, for system programs, which a user's library could break."""
    return {name: value for name, value in env.items() if not name.startswith(_LOADER)}
