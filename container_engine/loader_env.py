"""The variables that choose code of Python's or of its libraries, which ce-start keeps from Python.

`-I` alone does not do it: PYTHONEXECUTABLE and __PYVENV_LAUNCHER__ still choose the standard
library, GCONV_PATH what glibc converts text with, and OPENSSL_CONF what hashlib loads. The
variables belong to the job: environments may expand them and tasks may need them. The programs that
the engine itself runs must not get them.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# the same ones are in spank_plugin/start/start.c
_CHOOSING_CODE = ("LD_", "PYTHON", "__PYVENV_LAUNCHER__", "GCONV_PATH", "OPENSSL_")
_HELD = "CE_HELD_"
_SET_ASIDE = tuple(_HELD + prefix for prefix in _CHOOSING_CODE)


def take_back() -> None:
    """Restore the names of the variables in os.environ, for what is read or executed from it.

    The C library's environment stays without them: OpenSSL asks for its own only when it is used.
    """
    for name in [name for name in os.environ if name.startswith(_SET_ASIDE)]:
        own = name.removeprefix(_HELD)
        os.environ[own] = os.environ.pop(name)
        os.unsetenv(own)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` without them, for system programs, which a user's library could break."""
    return {name: value for name, value in env.items() if not name.startswith(_CHOOSING_CODE)}
