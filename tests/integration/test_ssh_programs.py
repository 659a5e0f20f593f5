"""The ssh hook's programs, in an image that tries to make them load files of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine

_HOME = "opt/oci-hooks/ssh/dropbear"
_EVIL = """
int open(const char *path, int flags, ...);
static void __attribute__((constructor)) run(void)
{
	open("/ran", 0101, 0666);
}
"""


@pytest.mark.parametrize(
    "words",
    [
        ("bin/dropbear", "-V"),
        ("libexec/sftp-server", "-h"),
        ("path/ssh", "-V"),
        ("libexec/ce-connect",),
    ],
    ids=lambda words: os.path.basename(words[0]),
)
def test_an_images_preload_is_not_loaded_into_programs_for_logins(
    engine: Engine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    bundle = engine.prefix / "libexec/container-engine/ssh"
    shutil.copytree(bundle, tmp_path / _HOME)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.preload").write_text("/evil.so\n")
    argv = ["gcc", "-shared", "-nostdlib", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "evil.so")]
    subprocess.run(argv, input=_EVIL.encode(), check=True)
    program, *arguments = words
    argv = ["unshare", "--user", "--map-root-user", f"--root={tmp_path}", f"/{_HOME}/{program}"]
    done = subprocess.run([*argv, *arguments], capture_output=True, text=True, timeout=60)
    assert "error while loading" not in done.stderr
    assert done.returncode in (0, 1, 2, 125, 255), done.stderr
    assert not (tmp_path / "ran").exists()
