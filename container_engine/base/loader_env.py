"""The variables that choose code for a program to load; ce-start hides them from Python.

Python's option `-I` is not enough: PYTHONEXECUTABLE and __PYVENV_LAUNCHER__ still choose the
standard library, GCONV_PATH the modules with which glibc converts text, and OPENSSL_CONF what
hashlib loads. The variables belong to the job: environments may expand them and tasks may need
them. The programs that the engine itself runs must not get them.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Beginnings of NAME=; must match spank_plugin/common/held.c
CHOOSING_CODE = (
    *("LD_", "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=", "LOCPATH=", "MALLOC_", "NLSPATH="),
    *("OPENSSL_", "PYTHON", "__PYVENV_LAUNCHER__=", "BASHOPTS=", "BASH_ENV=", "BASH_FUNC_"),
    *("ENV=", "SHELLOPTS=", "ZDOTDIR=", "CLASSPATH=", "JAVA_TOOL_OPTIONS=", "JDK_JAVA_OPTIONS="),
    *("_JAVA_OPTIONS=", "LUA_", "NODE_OPTIONS=", "NODE_PATH=", "PERL5", "PERLLIB=", "RUBYLIB="),
    *("RUBYOPT=", "TCLLIBPATH="),
)
HELD = "CE_HELD_"


def take_back() -> None:
    """Rename the variables that ce-start has set aside back to their own names, in os.environ only.

    The environment of the C library must not have them: OpenSSL reads its variables late, on first
    use.
    """
    held = [name for name in os.environ if name.startswith(HELD)]
    for name, own in ((name, name.removeprefix(HELD)) for name in held):
        if chooses_code(own):
            os.environ[own] = os.environ.pop(name)
            os.unsetenv(own)


def chooses_code(name: str) -> bool:
    """Check whether this variable decides what code a program loads, of the host or of an image."""
    return f"{name}=".startswith(CHOOSING_CODE)


def without_loader(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` without these variables: a user's library could break a system program."""
    return {name: value for name, value in env.items() if not chooses_code(name)}
