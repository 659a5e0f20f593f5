"""ce-login, the shell of the ssh hook's logins, in images with and without shells."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "hooks/ssh/programs/login.c", ROOT / "spank_plugin/common/io.c"]
OWN = "opt/oci-hooks/ssh/dropbear/libexec/ce-login"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]) -> Path:
    made = tmp_path_factory.mktemp("login") / "ce-login"
    flags = ["-std=gnu11", "-O1", "-static", f"-I{ROOT}/spank_plugin"]
    subprocess.run([need_tool("gcc"), *flags, "-o", made, *SOURCES], check=True)
    return made


def shell(image: Path, program: Path, own: str | None) -> str:
    """Return the shell that the program chooses in `image`, for a user whose SHELL is `own`."""
    shutil.copy(program, image / "program")
    argv = ["unshare", "--user", "--map-root-user", "chroot", str(image), "/program", "--shell"]
    env = {"PATH": "/usr/sbin:/usr/bin", **({} if own is None else {"SHELL": own})}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout


def put(image: Path, name: str, program: Path) -> None:
    (image / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, image / name)


@pytest.mark.parametrize("own", [None, "/bin/zsh", f"/{OWN}"])
def test_a_shell_of_the_image_is_chosen_or_ce_login_itself(
    tmp_path: Path, program: Path, own: str | None
) -> None:
    # an image without any shell, and even without ce-login
    assert shell(tmp_path, program, own) == f"/{OWN}"
    put(tmp_path, OWN, program)
    assert shell(tmp_path, program, own) == f"/{OWN}"
    put(tmp_path, "usr/bin/sh", program)
    put(tmp_path, "bin/sh", program)
    assert shell(tmp_path, program, own) == "/bin/sh"
    put(tmp_path, "bin/bash", program)
    assert shell(tmp_path, program, own) == "/bin/bash"


def test_the_users_own_shell_is_taken_where_the_image_has_it(tmp_path: Path, program: Path) -> None:
    put(tmp_path, "bin/zsh", program)
    put(tmp_path, "bin/sh", program)
    assert shell(tmp_path, program, "/bin/zsh") == "/bin/zsh"
