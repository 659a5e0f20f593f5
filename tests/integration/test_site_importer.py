"""A site's program with the interface of pyxis's importers, in place of skopeo's layers."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.registry import SOURCES, Registry, listing
from tests.unit import squashfs
from tests.unit.images.oci import Member

# what it is called with and prints is pyxis's importers/README.md
_PROGRAM = """#!/bin/sh -eu
echo "$@" "$SLURM_JOB_UID" "${{PYXIS_VERSION%%.*}}" >> {log}
file=$PYXIS_RUNTIME_PATH/$SLURM_JOB_ID.$SLURM_STEP_ID.squashfs
case $1 in
get) {get} ;;
release) rm -f "$file"; echo left: $(ls "$PYXIS_RUNTIME_PATH") >> {log} ;;
esac
"""


class Site(NamedTuple):
    registry: Registry
    root: Path

    def has(self, get: str, policy: str = "") -> None:
        program = self.root / "importer"
        program.write_text(_PROGRAM.format(log=self.log, get=get))
        program.chmod(0o755)
        self.log.unlink(missing_ok=True)
        (self.root / "config.toml").write_text(f'importer = "{program}"\n{policy}')

    @property
    def log(self) -> Path:
        return self.root / "log"

    def ce(self, *words: str, under: Sequence[str] = ()) -> tuple[int, str, str]:
        done = subprocess.run(
            [
                *under,
                sys.executable,
                "-m",
                "container_engine",
                "--site",
                f"{self.root}/config.toml",
                *words,
            ],
            env={**self.registry.env, "EDF_IMAGESTORE": f"{self.root}/store"},
            cwd=SOURCES,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout.strip(), done.stderr


@pytest.fixture
def site(registry: Registry, tmp_path: Path) -> Site:
    return Site(registry, tmp_path)


def test_its_file_becomes_the_image_once_for_all_launches(site: Site) -> None:
    name = site.registry.push(site.root / "i", "me/made:1", [Member("of-the-registry", b"x")])
    made = squashfs.make(site.root / "x.sqsh", {"of-the-importer": "x"})
    site.has(f'echo copying >&2; cp {made} "$file"; echo "$file"')
    edf = site.root / "e.toml"
    edf.write_text(f'image = "{name}"\n')
    for _ in range(2):
        code, out, err = site.ce("plan", "--json", str(edf))
        assert code == 0, err
    image = json.loads(out)["image"]
    assert "/of-the-importer" in listing(image["path"])
    assert image["env"]["FROM"] == "image"  # its registry's configuration
    uri = f"docker://{site.registry.address}#me/made@{image['digest']}"
    uid = os.getuid()
    assert site.log.read_text() == f"get {uri} {uid} 0\nrelease {uid} 0\nleft:\n"
    assert not list((site.root / "store/work").iterdir())


@pytest.mark.parametrize(
    ("get", "said"),
    [
        ("echo no such image >&2; exit 3", "no such image"),
        ("echo relative/path", "printed no absolute path, but 'relative/path'"),
        ("true", "printed no absolute path, but ''"),
        ("echo /none/x.sqsh", "no such file"),
        ('echo text > "$file"; echo "$file"', "not a SquashFS file"),
        ("yes", "more than 65536 bytes"),
        ("echo /dev/zero", "not a regular file"),
    ],
)
def test_what_it_fails_at_is_an_error_of_the_sites_program(site: Site, get: str, said: str) -> None:
    name = site.registry.push(site.root / "i", "me/bad:1", [Member("a", b"x")])
    site.has(get)
    code, out, err = site.ce("import", "--quiet", name)
    assert (code, out) == (1, "")
    assert said in err.splitlines()[0]
    assert f"{site.root}/importer" in err or "more than" in err
    assert "release" in site.log.read_text()
    assert not list((site.root / "store").rglob("*.sqsh"))


def test_imports_of_processes_with_the_same_number_do_not_share_a_file(site: Site) -> None:
    kept = site.root / "kept"
    kept.mkdir()
    file = f"{kept}/$SLURM_JOB_ID.$SLURM_STEP_ID"
    site.has(f"[ -e {file} ] || cp {site.root}/next.sqsh {file}; echo {file}")
    for content in ("one", "two"):
        name = site.registry.push(site.root / content, f"me/{content}:1", [Member(content)])
        squashfs.make(site.root / "next.sqsh", {content: "x"})
        # as on two hosts: each is the first process that it sees
        _code, out, err = site.ce("import", "--quiet", name, under=("unshare", "-rpf"))
        assert f"/{content}" in listing(out), err
    assert len(list(kept.iterdir())) == 2


def test_it_is_not_used_where_signatures_are_wanted_or_others_could_change_it(site: Site) -> None:
    name = site.registry.push(site.root / "i", "me/signed:1", [Member("a", b"x")])
    policy = site.root / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    site.has("true", f'[policy]\nsignature_policy = "{policy}"\n')
    assert "do not go together" in site.ce("import", "--quiet", name)[2]
    site.has("true")
    (site.root / "importer").chmod(0o777)
    assert "importer: '" in site.ce("import", "--quiet", name)[2]
    assert "importer" in site.ce("config", "check")[1]
    assert not site.log.exists()


def test_an_importer_that_calls_the_engine_does_not_call_itself(site: Site) -> None:
    name = site.registry.push(site.root / "i", "me/again:1", [Member("of-the-registry", b"x")])
    ce = f"'{sys.executable}' -m container_engine --site {site.root}/config.toml import --quiet"
    plain = '$(echo "$2" | sed "s,docker://,,;s,#,/,")'
    site.has(f'{ce} -o "$file.sqsh" {plain} >&2; mv "$file.sqsh" "$file"; echo "$file"')
    code, out, err = site.ce("import", "--quiet", name)
    assert code == 0, err
    assert "/of-the-registry" in listing(out)
    assert site.log.read_text().count("get") == 1
