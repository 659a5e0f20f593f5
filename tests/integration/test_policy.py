"""Policies of a site and verdicts of its scanner, by whole commands."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.images import image_files
from tests.integration.registry import Registry
from tests.unit import squashfs
from tests.unit.images.oci import Member

# A scanner that looks for a file that no image may have, and counts its calls.
_SCANNER = """#!/bin/sh
echo asked >> {log}
echo "scanning $2"
test -e "$1/etc/os-release" || {{ echo "no files in $1"; exit 7; }}
if test -e "$1/bad"; then echo "found: /bad"; exit 1; fi
"""


class Site:
    """A site's configuration and scanner, and a user of it who runs `ce`."""

    def __init__(
        self, directory: Path, registry: Registry, printed: pytest.CaptureFixture[str]
    ) -> None:
        self.dir, self.registry, self._printed = directory, registry, printed
        self.log, self.file = directory / "asked", directory / "config.toml"
        self.scanner = directory / "scanner"
        self.scanner.write_text(_SCANNER.format(log=self.log))
        self.scanner.chmod(0o755)

    def says(self, **policy: object) -> None:
        lines = (f"{key} = {json.dumps(value)}" for key, value in policy.items())
        self.file.write_text("[policy]\n" + "\n".join(lines) + "\n")
        self.file.chmod(0o644)

    def scans(self, **policy: object) -> None:
        self.says(scanner=[str(self.scanner), "{rootfs}", "{name}"], **policy)

    def ce(self, *words: str) -> subprocess.CompletedProcess[str]:
        code = main(["--site", str(self.file), *words])
        said = self._printed.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    def edf(self, image: object) -> str:
        path = self.dir / "env.toml"
        path.write_text(f'image = "{image}"\n')
        return str(path)

    def image(self, *files: str) -> Path:
        content = {"etc/os-release": "ID=x\n", **dict.fromkeys(files, "x")}
        return squashfs.make(self.dir / f"image{len(files)}.sqsh", content)

    def times_asked(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def site(
    prepared: Path,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Site:
    # The scanner's image is served by the installed engine.
    monkeypatch.setattr(sys, "prefix", f"{prepared}/prefix")
    more = {"EDF_IMAGESTORE": f"{tmp_path}/store", "XDG_CACHE_HOME": f"{tmp_path}/cache"}
    for name, value in (registry.env | more).items():
        monkeypatch.setenv(name, value)
    return Site(tmp_path, registry, capsys)


def test_a_launch_a_pull_and_an_import_are_refused_with_the_rule(site: Site) -> None:
    site.says(allowed_images=["nvcr.io"])
    name = f"{site.registry.address}/x:1"
    rule = f"{site.file}:2: policy.allowed_images: '{name}' matches none of 'nvcr.io'"
    edf = site.edf(name)
    for words, where in (
        (["plan", edf], f"{edf}:1: image: "),
        (["pull", name], ""),
        (["import", name], ""),
    ):
        done = site.ce(*words)
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == f"ce: error: {where}{rule}"
    assert not (site.dir / "store").exists()


def test_a_file_is_judged_where_it_really_lies(site: Site) -> None:
    image = site.image()
    (site.dir / "allowed").mkdir()
    (site.dir / "allowed/link.sqsh").symlink_to(image)
    site.says(allowed_images=[f"{site.dir}/allowed"])
    done = site.ce("plan", site.edf(site.dir / "allowed/link.sqsh"))
    assert "policy.allowed_images: " in done.stderr
    image.rename(site.dir / "allowed/real.sqsh")
    assert site.ce("plan", site.edf(site.dir / "allowed/real.sqsh")).returncode == 0


def test_an_image_that_is_too_large_is_not_downloaded(site: Site, tmp_path: Path) -> None:
    content = Member("x", os.urandom(1 << 20) + b"x")
    name = site.registry.push(tmp_path / "i", "large:1", [content])
    site.says(max_image_size="1M")
    done = site.ce("pull", name)
    assert f"{site.file}:2: policy.max_image_size: 1M: '{name}' has " in done.stderr
    assert not list((site.dir / "store").glob("blobs/*/*"))


def test_a_site_can_ask_for_signatures(site: Site, tmp_path: Path) -> None:
    name = site.registry.push(tmp_path / "i", "unsigned:1", [Member("a")])
    policy = site.dir / "policy.json"
    policy.write_text('{"default": [{"type": "reject"}]}')
    site.says(signature_policy=str(policy))
    done = site.ce("pull", name)
    assert done.returncode == 1
    assert "rejected by policy" in done.stderr
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    assert site.ce("pull", name).returncode == 0


def test_another_policy_on_signatures_judges_what_a_store_has(site: Site, tmp_path: Path) -> None:
    name = site.registry.push(tmp_path / "i", "judged:1", [Member("a")])
    policy, store = site.dir / "policy.json", site.dir / "store"
    site.says()
    assert site.ce("pull", name).returncode == 0  # before there was a policy
    edf = site.edf(name)
    assert site.ce("plan", edf).returncode == 0
    [image] = (store / "images").glob("*.sqsh")
    before = image.stat()
    policy.write_text('{"default": [{"type": "reject"}]}')
    site.says(signature_policy=str(policy))
    done = site.ce("plan", edf)
    assert done.returncode == 1
    assert "rejected by policy" in done.stderr
    done = site.ce("plan", "--pull", "never", edf)
    assert f"policy.signature_policy: '{name}' was imported before it" in done.stderr
    assert site.ce("plan", f"{edf}").returncode == 1  # a repeated request changes nothing
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    assert site.ce("plan", edf).returncode == 0
    assert site.ce("plan", "--pull", "never", edf).returncode == 0
    after = image.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_scan_prints_the_report_and_the_verdict(site: Site) -> None:
    site.scans()
    good, bad = site.image(), site.image("bad")
    done = site.ce("scan", str(good))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"scanning {good}\n{good}: passed, {site.scanner} on ")
    done = site.ce("scan", site.edf(bad))
    assert done.returncode == 1
    assert done.stdout.startswith(f"scanning {bad}\nfound: /bad\n{bad}: failed, ")
    assert done.stdout.endswith("(exit code 1); launches warn\n")


def test_what_launches_may_not_use_yet_can_be_scanned(site: Site) -> None:
    site.scans(site_images_only=True)
    image = site.image()
    assert site.ce("scan", str(image)).returncode == 0
    done = site.ce("plan", site.edf(image))
    assert done.returncode == 1
    assert "policy.site_images_only: " in done.stderr


def test_an_image_is_scanned_once(site: Site) -> None:
    site.scans()
    image = str(site.image("bad"))
    for times, words in ((1, []), (1, []), (2, ["--again"])):
        assert site.ce("scan", image, *words).returncode == 1
        assert site.times_asked() == times
    assert site.ce("plan", site.edf(image)).returncode == 0
    assert json.loads(site.ce("scan", "--json", image).stdout)["good"] is False
    assert site.times_asked() == 2
    site.scans(scanner_max_age_s=0)
    site.ce("scan", image)
    assert site.times_asked() == 3


def test_a_launch_that_keeps_an_image_from_being_purged_asks_no_scanner_again(site: Site) -> None:
    site.scans()
    path = Path(site.ce("import", "-q", str(site.image()), "kept:1").stdout.strip())
    assert site.ce("scan", "kept:1").returncode == 0
    week_ago = time.time() - 604_800
    image_files.note_use(str(path), image_files.Use(week_ago, week_ago))
    os.utime(path, (week_ago, week_ago))
    assert site.ce("plan", site.edf("kept:1")).returncode == 0
    assert path.stat().st_mtime > time.time() - 600
    assert site.times_asked() == 1


def test_a_bad_image_is_warned_of_or_refused_as_the_site_wants(site: Site) -> None:
    edf = site.edf(site.image("bad"))
    site.scans()
    done = site.ce("plan", edf)
    assert done.returncode == 0
    assert "ce: warning: " in done.stderr
    assert "the site's scanner says: found: /bad\n" in done.stderr
    site.scans(scanner_verdict="block")
    done = site.ce("plan", edf)
    assert done.returncode == 1
    assert f"{edf}:1: image: {site.file}:2: policy.scanner: " in done.stderr
    assert "did not pass the scan: found: /bad\n" in done.stderr


def test_a_scanner_that_cannot_judge_is_no_good_verdict(site: Site) -> None:
    edf = site.edf(site.image())
    site.scanner.write_text("#!/bin/sh\nexec sleep 60\n")
    site.scans(scanner_verdict="block", scanner_timeout_s=0.5)
    assert "not finished after 0.5 s" in site.ce("plan", edf).stderr
    site.scanner.chmod(0o777)
    assert "others than its owner may write it" in site.ce("plan", edf).stderr
    site.scanner.unlink()
    done = site.ce("plan", edf)
    assert done.returncode == 1
    assert "no such file or directory" in done.stderr


def test_a_site_without_a_scanner_says_so(site: Site) -> None:
    site.says()
    done = site.ce("scan", "/x.sqsh")
    assert done.stderr == f"ce: error: {site.file}: policy.scanner: the site has no scanner\n"


def test_launches_ask_for_signatures_and_registries_by_what_lies_beside_an_image(
    site: Site, tmp_path: Path
) -> None:
    name = site.registry.push(tmp_path / "i", "beside:1", [Member("a")])
    policy, store = site.dir / "policy.json", site.dir / "store"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    site.says()
    assert site.ce("pull", name).returncode == 0
    [image] = (store / "images").glob("*.sqsh")
    by_file = site.edf(image)
    site.says(signature_policy=str(policy), signed_images_only=True)
    done = site.ce("plan", by_file)
    assert "policy.signed_images_only: policy.signature_policy has not accepted" in done.stderr
    assert site.ce("validate", by_file).stderr.splitlines()[0] in done.stderr
    # A plan by name asks the policy and records the result beside the image, for its path, too.
    assert site.ce("plan", site.edf(name)).returncode == 0
    assert site.ce("plan", site.edf(image)).returncode == 0
    policy.write_text('{"default": [{"type": "reject"}]}')
    assert "signed_images_only" in site.ce("plan", site.edf(image)).stderr
    site.says(image_registries=[site.registry.address])
    assert site.ce("plan", site.edf(image)).returncode == 0
    site.says(image_registries=["nvcr.io"])
    done = site.ce("plan", site.edf(image))
    assert (
        f"policy.image_registries: '{image}' does not come from 'nvcr.io'; recorded" in done.stderr
    )
    site.says(image_registries=["localhost"])
    copy = site.dir / "mine.sqsh"
    copy.write_bytes(image.read_bytes())
    assert site.ce("import", str(copy), "nvcr.io/pretended:1").returncode == 0
    assert site.ce("plan", site.edf("nvcr.io/pretended:1")).returncode == 0
    site.says(image_registries=["nvcr.io"])
    assert "recorded origin: 'localhost/pretended:1'" in (
        site.ce("plan", site.edf("nvcr.io/pretended:1")).stderr
    )
