"""The variables that choose code for Python or its libraries to load; ce-start hides them from it.

Python's option `-I` is not enough: PYTHONEXECUTABLE and __PYVENV_LAUNCHER__ still choose the
standard library, GCONV_PATH the modules with which glibc converts text, and OPENSSL_CONF what
hashlib loads. The variables belong to the job: environments may expand them and tasks may need
them. The programs that the engine itself runs must not get them.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# spank_plugin/start/start.c has the same list
_CHOOSING_CODE = ("LD_", "PYTHON", "__PYVENV_LAUNCHER__", "GCONV_PATH", "OPENSSL_")
_HELD = "CE_HELD_"
_SET_ASIDE = tuple(_HELD + prefix for prefix in _CHOOSING_CODE)


def take_back() -> None:
    """Rename the variables that ce-start has set aside back to their own names, in os.environ only.

    The environment of the C library must not have them: OpenSSL reads its variables late, on first
    use.
    """
    for name in [name for name in os.environ if name.startswith(_SET_ASIDE)]:
        own = name.removeprefix(_HELD)
        os.environ[own] = os.environ.pop(name)
        os.unsetenv(own)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` without these variables: a user's library could break a system program."""
    return {name: value for name, value in env.items() if not name.startswith(_CHOOSING_CODE)}
