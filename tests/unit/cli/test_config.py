"""`ce config`: the site's decisions, the files that hold them, and their faults."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Installed


@pytest.fixture
def site(installed: Installed) -> Iterator[Path]:
    """Return the directory of the site's configuration, for an installation of its own."""
    directory = installed.prefix / "etc/container-engine"
    (directory / "conf.d").mkdir(parents=True)
    yield directory
    for file in directory.rglob("*.toml"):
        file.unlink()
    (directory / "conf.d").rmdir()
    directory.rmdir()


def test_each_value_is_shown_with_its_file(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text('mounts = ["/a"]\npull = "never"\n[env]\nA = "1"\n')
    (site / "conf.d/9.toml").write_text('mounts = ["/b"]\n[policy]\nmax_image_size = "1G"\n')
    lines = installed.ce("config", "show").stdout.splitlines()
    shown = {tuple(part.strip() for part in line.split("  # ")) for line in lines}
    main, drop_in = f"{site}/config.toml", f"{site}/conf.d/9.toml"
    assert shown >= {
        ('mounts[0] = "/a"', main),
        ('mounts[1] = "/b"', drop_in),
        ('pull = "never"', main),
        ('env.A = "1"', main),
        ('policy.max_image_size = "1G"', drop_in),
        ('policy.scanner_verdict = "warn"', "default"),
        ("image_store = (none)", "default"),
        ("entrypoint = false", "default"),
    }
    document = json.loads(installed.ce("config", "show", "--json").stdout)
    assert document["files"] == [main, drop_in]
    assert document["settings"]["mounts[1]"] == {"value": "/b", "from": drop_in}
    assert document["settings"]["tmpfs_size"] == {"value": "50%", "from": "default"}


def test_what_is_right_is_said_to_be(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text('mounts = ["${HOME}"]\n')
    done = installed.ce("config", "check")
    assert (done.returncode, done.stdout) == (0, f"{site}/config.toml: nothing is wrong\n")


def test_every_fault_of_every_file_is_named(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text("entrypiont = 1\nstart_timeout_s = 0\n")
    (site / "conf.d/1.toml").write_text('edf_dir = "/nowhere"\nimage_stores = ["x"]\n')
    done = installed.ce("config", "check")
    assert done.returncode == 1
    assert done.stdout.replace(f"{site}/", "").splitlines() == [
        "config.toml: unknown key 'entrypiont', did you mean 'entrypoint'?",
        "config.toml: start_timeout_s: must be greater than 0",
        "    for example start_timeout_s = 60",
        "conf.d/1.toml: edf_dir: '/nowhere': no such file or directory",
        "conf.d/1.toml: image_stores: 'x' is not an absolute path",
    ]
    faults = json.loads(installed.ce("config", "check", "--json").stdout)["faults"]
    assert faults[1]["key"] == "start_timeout_s"
    refused = installed.ce("config", "show")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith(
        "ce: hint: 'ce config check' names everything that is wrong\n"
        "ce: see: ce help site-configuration\n"
    )


def test_a_program_that_cannot_run_is_a_fault(installed: Installed, site: Path) -> None:
    scanner, hooks = installed.home / "scan", installed.home / "oci"
    hooks.mkdir()
    hook = {"version": "1.0.0", "hook": {"path": str(scanner)}, "stages": ["prestart"]}
    (hooks / "a.json").write_text(json.dumps({**hook, "when": {"always": True}}))
    (site / "config.toml").write_text(
        f'hooks_dirs = ["{hooks}"]\n[policy]\nscanner = ["{scanner}", "{{rootfs}}"]\n'
        'signature_policy = "/nowhere.json"\n'
    )

    def faults() -> str:
        done = installed.ce("config", "check")
        assert done.returncode == 1
        return done.stdout.replace(f"{site}/", "").replace(f"{installed.home}/", "")

    said = faults()
    assert "config.toml: policy.scanner: 'scan': no such file or directory\n" in said
    assert "config.toml: policy.signature_policy: '/nowhere.json' cannot be read\n" in said
    assert "(a.json, prestart)" in said
    scanner.touch(0o644)
    assert (
        "config.toml: policy.scanner: 'scan': not an executable file\n    chmod a+rx " in faults()
    )
    scanner.chmod(0o755)
    assert "policy.scanner" not in faults()


def test_what_no_container_could_get_is_a_fault(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text(
        'mounts = ["data", "./x", "$NOPE"]\ndevices = ["gpu"]\nenv = {"A=B" = "$(id)"}\n'
    )
    done = installed.ce("config", "check")
    assert done.returncode == 1
    for said in (
        "mounts[0]: the source 'data' is not an absolute path",
        "mounts[1]: './x' is relative to the caller's directory",
        "mounts[2]: variable 'NOPE' is not defined",
        "devices[0]: 'gpu' is neither the path of a device nor a CDI name",
        "env.A=B: not a name that a variable can have",
    ):
        assert f"{site}/config.toml: {said}" in done.stdout
    launch = installed.ce("validate", "./e.toml")
    assert f"ce: error: {site}/config.toml: mounts[0]: " in launch.stderr
