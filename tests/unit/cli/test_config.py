"""`ce config`: the site's decisions, the files that hold them, and their faults."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Installed


@pytest.fixture
def site(installed: Installed) -> Iterator[Path]:
    """Yield the directory of the site's configuration; remove its files at the end."""
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
        ('image_store = ""', "default"),
        ("entrypoint = false", "default"),
    }
    document = json.loads(installed.ce("config", "show", "--json").stdout)
    assert document["files"] == [main, drop_in]
    assert document["settings"]["mounts[1]"] == {"value": "/b", "from": drop_in}
    assert document["settings"]["tmpfs_size"] == {"value": "50%", "from": "default"}


def test_a_valid_configuration_is_reported_as_such(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text('mounts = ["${HOME}"]\n')
    done = installed.ce("config", "check")
    assert (done.returncode, done.stdout) == (0, f"{site}/config.toml: nothing is wrong\n")


def test_every_fault_of_every_file_is_named(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text("entrypiont = 1\nstart_timeout_s = 0\n")
    (site / "conf.d/1.toml").write_text(
        'edf_dir = "/nowhere"\nimage_stores = ["x"]\n'
        '[[checks]]\nname = "n"\ncommand = ["/a"]\nlimit_s = 0\n'
    )
    done = installed.ce("config", "check")
    assert done.returncode == 1
    assert done.stdout.replace(f"{site}/", "").splitlines() == [
        "config.toml:1: unknown key 'entrypiont', did you mean 'entrypoint'?",
        "config.toml:2: start_timeout_s: must be greater than 0",
        "    for example start_timeout_s = 60",
        "conf.d/1.toml:6: checks[0].limit_s: must be greater than 0",
        "conf.d/1.toml:1: edf_dir: '/nowhere': no such file or directory",
        "conf.d/1.toml:2: image_stores: 'x' is not an absolute path",
    ]
    faults = json.loads(installed.ce("config", "check", "--json").stdout)["faults"]
    assert (faults[1]["key"], faults[1]["line"]) == ("start_timeout_s", 2)
    refused = installed.ce("config", "show")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith(
        "ce: hint: 'ce config check' lists all errors\nce: see: ce help site-configuration\n"
    )


def test_a_file_is_checked_before_it_is_put_in_place(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text("start_timeout_s = 60\n")
    (installed.home / "new.toml").write_text("start_timeout_s = 0\n")
    done = installed.ce("config", "check", "new.toml")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{installed.home}/new.toml:1: start_timeout_s: must be greater")
    assert installed.ce("config", "check").returncode == 0
    assert "start_timeout_s = 0" not in installed.ce("config", "show").stdout


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
    assert "config.toml:3: policy.scanner: 'scan': no such file or directory\n" in said
    assert "config.toml:4: policy.signature_policy: '/nowhere.json' cannot be read\n" in said
    assert "(a.json, prestart)" in said
    scanner.touch(0o644)
    assert (
        "config.toml:3: policy.scanner: 'scan': not an executable file\n    chmod a+rx " in faults()
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
        "1: mounts[0]: the source 'data' is not an absolute path",
        "1: mounts[1]: './x' is relative to the caller's directory",
        "1: mounts[2]: variable 'NOPE' is not defined",
        "2: devices[0]: 'gpu' is neither the path of a device nor a CDI name",
        "3: env.A=B: not a valid name of a variable",
    ):
        assert f"{site}/config.toml:{said}" in done.stdout
    launch = installed.ce("validate", "./e.toml")
    assert f"ce: error: {site}/config.toml:1: mounts[0]: " in launch.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[policy]\nsigned_images_only = true",
            "2: policy.signed_images_only: without signature_p",
        ),
        ("[policy]\nsite_images_only = true", "2: policy.site_images_only: without image_stores"),
        (
            '[policy]\nimage_registries = ["/apps"]',
            "2: policy.image_registries: '/apps' never matches",
        ),
        *(
            (
                f'[policy]\n{key} = ["ghcr.io/x", "{pattern}"]',
                f"2: policy.{key}: '{pattern}' never matches",
            )
            for key in ("image_registries", "allowed_images", "denied_images")
            for pattern in (
                *("https://nvcr.io", "nvcr,io", "docker.io/Library", "nvcr.io/a b"),
                *("docker.io/Library/x:Tag", "nvcr.io/x, ghcr.io"),
            )
        ),
        ('[policy]\nimage_registries = ["Nvcr.io"]', "2: policy.image_registries: 'Nvcr.io' never"),
        (
            '[policy]\nallowed_images = ["docker.io/library/*"]\ndenied_images = ["docker.io"]',
            "2: policy.allowed_images: 'docker.io/library/*' is never allowed: 'docker.io' of",
        ),
        (
            '[policy]\nmount_sources = ["scratch"]',
            "2: policy.mount_sources: 'scratch' never matches",
        ),
        (
            '[policy]\nsignature_policy = "/etc/passwd"',
            "2: policy.signature_policy: '/etc/passwd' is not a containers-policy.json(5): ",
        ),
        ('podman = "/etc/passwd"', "1: podman: '/etc/passwd': not a program that can be run"),
        ('runtime = "/etc"', "1: runtime: '/etc': not a program that can be run"),
        ('tracking_tool = ["cat"]', "1: tracking_tool: 'cat' is not an absolute path"),
        ('store_layout = ["lfs", "{file}"]', "1: store_layout: 'lfs': not an absolute path"),
        (
            'store_layout = ["/bin/true", "-c", "8"]',
            "1: store_layout: neither {file} nor {directory} is among its arguments",
        ),
        ('trace_dir = "relative"', "1: trace_dir: 'relative' is not an absolute path"),
        ('passing_dir = "scratch"', "1: passing_dir: 'scratch' is not an absolute path"),
        ('cdi_dirs = ["cdi"]', "1: cdi_dirs: 'cdi' is not an absolute path"),
        ('user_cdi_dir = "/abs"', "1: user_cdi_dir: '/abs' must be below the users' homes"),
        (
            'image_architecture = "x86"',
            "1: image_architecture: unknown architecture 'x86', did you",
        ),
        ('tmpfs_size = "150%"', "1: tmpfs_size: '150%' is more than the memory of a node"),
        ('tmpfs_size = "0"', "1: tmpfs_size: '0': nothing could be written"),
        ('[env]\n"A B" = "x"', "2: env.A B: shells do not pass on a variable of this name"),
    ],
)
def test_a_value_with_which_no_launch_or_record_works_is_a_fault(
    installed: Installed, site: Path, text: str, said: str
) -> None:
    (site / "config.toml").write_text(text)
    done = installed.ce("config", "check")
    assert done.returncode == 1
    assert f"{site}/config.toml:{said}" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('podman = "/nope/podman"', "podman: '/nope/podman'"),
        ('tracking_tool = ["/nope"]', "tracking_tool: '/nope'"),
        ('trace_dir = "/nope"', "trace_dir: '/nope'"),
        ('kept_dir = "/nope"', "kept_dir: '/nope'"),
        ('cdi_dirs = ["/nope"]', "cdi_dirs: '/nope'"),
        ('mounts = ["/nope:/x"]', "mounts[0]: '/nope'"),
        ('devices = ["/dev/nope"]', "devices[0]: '/dev/nope'"),
    ],
)
def test_what_only_nodes_must_have_is_a_note(
    installed: Installed, site: Path, text: str, said: str
) -> None:
    (site / "config.toml").write_text(text)
    done = installed.ce("config", "check")
    assert done.returncode == 0
    note = f"note: {site}/config.toml:1: {said}: not on this host; it must be there on the nodes\n"
    assert note in done.stdout


def test_a_pattern_that_may_match_is_no_fault(installed: Installed, site: Path) -> None:
    patterns = '"nvcr.io:443/x", "localhost:5000", "*:Latest", "docker.io/a/b:Tag", "[A-z]*.io/x"'
    (site / "config.toml").write_text(
        f'[policy]\nimage_registries = [{patterns}]\nallowed_images = ["NVCR.io", "/Apps/A, b"]\n'
        f"denied_images = [{patterns}]\n"
    )
    done = installed.ce("config", "check")
    assert (done.returncode, done.stdout) == (0, f"{site}/config.toml: nothing is wrong\n")


def test_the_line_of_an_item_is_that_of_its_own_file(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text('mounts = ["/a",\n  "/b"]\n')
    (site / "conf.d/1.toml").write_text('# more\nmounts = [\n  "/c",\n  "d",\n]\n')
    done = installed.ce("config", "check")
    assert f"{site}/conf.d/1.toml:4: mounts[3]: the source 'd'" in done.stdout


def test_a_key_of_the_top_level_below_a_table_is_explained(
    installed: Installed, site: Path
) -> None:
    (site / "config.toml").write_text('[policy]\ntrace_dir = "/tmp"\n')
    done = installed.ce("config", "check")
    assert f"{site}/config.toml:2: unknown key 'policy.trace_dir'" in done.stdout
    assert "it is a key of the top level: write it above the first [table]" in done.stdout


def test_each_fault_of_a_file_has_its_remedy(installed: Installed, site: Path) -> None:
    (site / "config.toml").write_text('registry = "x"\n')
    (site / "conf.d/1.toml").write_text("trace_dir = /x\n")
    done = installed.ce("config", "check")
    assert done.stdout.replace(f"{site}/", "").splitlines() == [
        "config.toml:1: unknown key 'registry'",
        "    'ce config show' prints all keys that there are",
        "conf.d/1.toml:1: not valid TOML: Invalid value (at column 13)",
        '    a line is KEY = "TEXT", KEY = ["TEXT", "TEXT"], KEY = true or KEY = 60',
    ]
