"""Environments with which a user tries to abuse a hook: each is launched and must fail."""

import json
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, Completed
from tests.slurm.site import Site, site_on

pytestmark = pytest.mark.usefixtures("tidy")
# A service, an OCI hook, a mount and a variable, which depend on parameters.
HOOK = """
allow = ["colour"]
[parameters.name]
help = "h"
default = "good"
[settings]
base = "@/base"
colour = "/opt/green"
program = "@/bin/serve"
[edits.e]
mounts = [{ source = "{base}/{name}", target = "/data" }]
env.COLOUR = "{colour}"
hooks = [{ hookName = "createRuntime", path = "@/bin/oci", args = ["oci", "{name}"] }]
[services.s]
command = ["{program}", "{name}"]
"""
ENABLED = '[annotations]\ncom.hooks.h.enabled = "true"\n'


class Attempt:
    """A site with a hook whose programs record how they were called."""

    def __init__(self, cluster: Cluster, site: Site) -> None:
        self.cluster, self.site = cluster, site
        root = site.programs.parent
        (root / "base/good").mkdir(parents=True)
        (root / "base/good/file").write_text("the site's\n")
        self.calls = site.shared / "calls"
        for name in ("oci", "serve"):
            note = f'echo "{name} $* ${{LD_PRELOAD-}}${{BASH_ENV-}}" >> {self.calls}'
            site.program(name, f"{note}; cat >/dev/null")
        text = HOOK.replace("@", str(root))
        site.hook("h", text + f'[edits.s]\nmounts = [{{ source = "{site.programs}" }}]\n')
        site.program("mine", f"touch {site.shared}/mine")

    def run(self, text: str, *words: str) -> Completed:
        argv = words or ("true",)
        return self.cluster.srun("-N1", f"--environment={self.site.edf(text)}", *argv)

    def refused(self, text: str, message: str) -> None:
        """Check that a launch fails with this message before anything runs."""
        done = self.run(text, "touch", f"{self.site.shared}/ran")
        assert done.returncode == 125, done.stdout + done.stderr
        assert message in done.stderr
        self.nothing_ran()

    def nothing_ran(self) -> None:
        found = {path.name for path in self.site.shared.iterdir()}
        assert not found & {"ran", "mine", "calls"}


@pytest.fixture
def attempt(cluster: Cluster) -> Iterator[Attempt]:
    with site_on(cluster) as site:
        yield Attempt(cluster, site)


def test_what_the_hook_is_for_works(attempt: Attempt) -> None:
    """Otherwise the attempts below would prove nothing."""
    done = attempt.run(
        f'{ENABLED}com.hooks.h.colour = "/opt/red"\n', "sh", "-c", "cat /data/file; echo $COLOUR"
    )
    assert (done.returncode, done.stdout) == (0, "the site's\n/opt/red\n"), done.stderr
    assert sorted(attempt.calls.read_text().split("\n")) == ["", "oci good ", "serve good "]


# ---- run a program as part of a hook -------------------------------------------------------------


def test_the_program_of_a_service_cannot_be_chosen(attempt: Attempt) -> None:
    mine = attempt.site.programs / "mine"
    attempt.refused(
        f'{ENABLED}com.hooks.h.program = "{mine}"\n', "'program' is a setting of the site"
    )


def test_a_parameter_cannot_name_a_program_elsewhere(attempt: Attempt) -> None:
    attempt.refused(f'{ENABLED}com.hooks.h.name = "../bin/mine"\n', "has the character '/'")


def test_an_oci_hook_cannot_be_written_as_an_annotation(attempt: Attempt) -> None:
    mine = attempt.site.programs / "mine"
    text = f"""{ENABLED}
com.hooks.h.edits.e.hooks = "{mine}"
com.hooks.h.services.s.command = "{mine}"
com.hooks.h.code = "{mine}"
"""
    assert attempt.run(text).returncode == 0
    assert not (attempt.site.shared / "mine").exists()


def test_a_catalog_in_the_users_home_is_not_read(attempt: Attempt) -> None:
    service = f'[services.s]\ncommand = ["{attempt.site.programs}/mine"]\n'
    with attempt.cluster.in_the_home(".config/container-engine/hooks.d/evil") as own:
        (own / "hook.toml").write_text(f'summary = "s"\nhelp = "h"\ndefault = "on"\n{service}')
        assert attempt.run("").returncode == 0
        assert attempt.run('[annotations]\ncom.hooks.evil.enabled = "true"\n').returncode == 0
    attempt.nothing_ran()


def test_a_users_own_device_file_cannot_bring_a_program(attempt: Attempt) -> None:
    hook = {"hookName": "createRuntime", "path": f"{attempt.site.programs}/mine"}
    device = {"name": "one", "containerEdits": {"hooks": [hook]}}
    spec = {"cdiVersion": "0.6.0", "kind": "my.own/thing", "devices": [device]}
    attempt.site.configure('user_cdi_dir = ".config/cdi-attempt"\n')
    with attempt.cluster.in_the_home(".config/cdi-attempt") as own:
        (own / "x.json").write_text(json.dumps(spec))
        attempt.refused('devices = ["my.own/thing=one"]\n', "a user's own file cannot run programs")


def test_what_the_loader_or_a_shell_reads_does_not_reach_the_sites_program_on_the_node(
    attempt: Attempt,
) -> None:
    text = f'[env]\nLD_PRELOAD = "/tmp/mine.so"\nBASH_ENV = "/tmp/mine"\nPATH = "/tmp"\n{ENABLED}'
    attempt.run(text, "/bin/true")
    called = [line for line in attempt.calls.read_text().splitlines() if line.startswith("oci")]
    assert called == ["oci good "]


# ---- mount a path that the user cannot read ------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/shadow", "/root", "/proc/1/root"])
def test_a_path_that_the_user_cannot_read_is_unreadable_inside(attempt: Attempt, path: str) -> None:
    done = attempt.run(f'mounts = ["{path}:/mnt/x"]\n', "sh", "-c", "cat /mnt/x; ls -A /mnt/x/")
    assert done.returncode != 0
    assert done.stdout == ""


def test_a_link_of_the_users_leads_to_nothing_more(attempt: Attempt) -> None:
    link = attempt.site.shared / "link"
    link.symlink_to("/etc/shadow")
    done = attempt.run(f'mounts = ["{link}:/mnt/x"]\n', "cat", "/mnt/x")
    assert (done.returncode != 0, done.stdout) == (True, "")


def test_the_directory_of_a_hooks_mount_cannot_be_chosen(attempt: Attempt) -> None:
    attempt.refused(f'{ENABLED}com.hooks.h.base = "/root"\n', "'base' is a setting of the site")


def test_a_parameter_cannot_leave_the_directory_of_a_hooks_mount(attempt: Attempt) -> None:
    attempt.refused(f'{ENABLED}com.hooks.h.name = ".."\n', "'..' is not a name")


# ---- add a device that the site does not offer ---------------------------------------------------


@pytest.mark.parametrize("device", ["/dev/kmsg", "/dev/fuse/../kmsg", "other.com/thing=all"])
def test_a_device_that_is_not_offered_is_refused(attempt: Attempt, device: str) -> None:
    attempt.site.configure('allowed_devices = ["/dev/fuse"]\n')
    attempt.refused(f'devices = ["{device}"]\n', "this site does not offer it")


def test_a_device_that_is_not_offered_cannot_be_opened_through_a_mount(attempt: Attempt) -> None:
    attempt.site.configure('allowed_devices = ["/dev/null"]\n')
    done = attempt.run('mounts = ["/dev/fuse:/mnt/fuse"]\n', "sh", "-c", "exec 3<>/mnt/fuse")
    assert done.returncode != 0
    assert "/mnt/fuse" in done.stderr


def test_a_users_own_device_file_cannot_name_a_device_that_is_not_offered(
    attempt: Attempt,
) -> None:
    node = {"path": "/dev/fuse"}
    device = {"name": "one", "containerEdits": {"deviceNodes": [node]}}
    spec = {"cdiVersion": "0.6.0", "kind": "my.own/thing", "devices": [device]}
    attempt.site.configure(
        'user_cdi_dir = ".config/cdi-attempt"\nallowed_devices = ["/dev/null"]\n'
    )
    with attempt.cluster.in_the_home(".config/cdi-attempt") as own:
        (own / "x.json").write_text(json.dumps(spec))
        attempt.refused('devices = ["my.own/thing=one"]\n', "this site does not offer it")


# ---- override a setting that is not on the allow-list --------------------------------------------


@pytest.mark.parametrize(
    "line",
    ['com.ce.hooks_dirs = "/tmp"', 'com.ce.cdi_dirs = "/tmp"', 'com.ce.hook_catalog = "/tmp"'],
)
def test_where_hooks_and_devices_are_looked_for_is_the_sites(attempt: Attempt, line: str) -> None:
    done = attempt.run(f"[annotations]\n{line}\n", "true")
    key = line.partition(" ")[0]
    assert key in done.stderr
    attempt.nothing_ran()


def test_a_setting_of_the_sites_is_not_the_environments(attempt: Attempt) -> None:
    attempt.site.configure("edf_may_override = []\n")
    done = attempt.run('[annotations]\ncom.ce.tmpfs_size = "1g"\n')
    assert done.returncode == 125
    assert "com.ce.tmpfs_size" in done.stderr


def test_a_base_can_do_no_more_than_its_user(attempt: Attempt) -> None:
    base = attempt.cluster.edf('[annotations]\ncom.hooks.h.program = "/tmp/mine"\n')
    text = f'base_environment = "{base}"\n{ENABLED}'
    attempt.refused(text, "'program' is a setting of the site")


def test_a_profile_is_the_sites_choice(attempt: Attempt) -> None:
    text = '[annotations]\ncom.hooks.aws_ofi_nccl.profile = "slingshot-2025"\n'
    done = attempt.run(text, "true")
    assert "unknown annotation 'com.hooks.aws_ofi_nccl.profile'" in done.stderr
