"""Errors of hooks, of site files and of disturbed starts, each provoked for real."""

import os
import signal
from contextlib import suppress

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.error_block import ErrorBlock, Provoked
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")


def _with(provoked: Provoked, hook: str, image: str = "busybox", text: str = "") -> str:
    return provoked.edf(f'{text}[annotations]\ncom.hooks.{hook}.enabled = "true"\n', image)


# name of the hook, the site's file for it, code, words of the error line
_HOOKS = [
    (
        "card",
        '[edits.all]\ndevices = [{ path = "/dev/no-card" }]\n',
        "hook-file-missing",
        "no-card",
    ),
    (
        "lib",
        '[edits.all]\nlibraries = [{ files = ["/no/lib.so.1"] }]\n',
        "hook-file-missing",
        "/no/lib.so.1",
    ),
    ("glibc", 'requires.libc = "glibc"\n', "hook-check", "glibc"),
]


@pytest.mark.parametrize(("hook", "text", "code", "word"), _HOOKS, ids=[h[0] for h in _HOOKS])
def test_a_hook_that_cannot_do_its_work(
    provoked: Provoked, site: Site, hook: str, text: str, code: str, word: str
) -> None:
    site.hook(hook, text)
    image = "musl" if hook in {"glibc", "lib"} else "busybox"
    ErrorBlock(provoked.srun(_with(provoked, hook, image)), code, hook, word)


# The destination of the second hook's mount, as written by the site.
@pytest.mark.parametrize("target", [f"/{ALICE}", "/{node.SLURM_JOB_USER}"])
def test_two_hooks_that_want_one_place(provoked: Provoked, site: Site, target: str) -> None:
    for name, where in (("one", f"/{ALICE}"), ("two", target)):
        mount = f'{{ source = "{site.shared if name == "one" else "/tmp"}", target = "{where}" }}'
        site.hook(name, f"[edits.all]\nmounts = [{mount}]\n")
    switches = 'com.hooks.one.enabled = "true"\ncom.hooks.two.enabled = "true"\n'
    done = provoked.srun(provoked.edf(f"[annotations]\n{switches}"))
    ErrorBlock(done, "hook-clash", "two", f"/{ALICE}")


def test_a_mount_of_the_sites_that_a_node_lacks_is_the_administrators(
    provoked: Provoked, site: Site
) -> None:
    site.configure('mounts = ["/no/scratch"]\n')
    done = provoked.srun(provoked.edf(""))
    block = ErrorBlock(done, "site-mount-missing", ".toml: mounts[0]: ", "'/no/scratch'")
    assert "site: " not in block.cause
    assert "report the node" in block.parts["hint"]


def test_all_that_a_node_lacks_is_in_one_block_once_per_step(
    provoked: Provoked, site: Site
) -> None:
    site.hook("data", '[edits.all]\nmounts = [{ source = "/no/data" }]\n')
    libraries = 'libraries = [{ files = ["/no/lib.so.1", "/no/other.so.*"] }]'
    site.hook("lib", f'implies = ["data"]\n[edits.all]\n{libraries}\n')
    of_edf = 'mounts = ["/no-1:/x", "/no-2:/y:sqsh"]\ndevices = ["a.org/gpu=0", "a.org/gpu=1"]\n'
    done = provoked.srun(_with(provoked, "lib", text=of_edf))
    block = ErrorBlock(done, "mount-source-missing", "'/no-1': does not exist")
    lacking = "does not exist on this node"
    lines = [line.removeprefix("ce: also: ") for line in block.also]
    assert [line.partition(": ")[2].split(": ")[0] for line in lines if ".toml:" in line] == [
        "mount source '/no-2'",
        "device 'a.org/gpu=0'",
        "device 'a.org/gpu=1'",
    ]
    assert sorted(line.removeprefix("hook ") for line in lines if line.startswith("hook ")) == [
        f"data: mount source '/no/data' {lacking}",
        f"lib: library '/no/lib.so.1' {lacking}",
        f"lib: library '/no/other.so.*' {lacking}",
    ]
    assert 'com.hooks.data.enabled = "false"' in block.parts["hint"]
    assert "create it there" in block.parts["hint"]


def test_several_checks_that_fail_in_the_image_are_one_block(
    provoked: Provoked, site: Site
) -> None:
    checks = "".join(
        f'[checks.{name}]\nkind = "program"\nsubject = "no-{name}"\nseverity = "fail"\n'
        for name in ("a", "b")
    )
    site.hook("check", checks)
    block = ErrorBlock(provoked.srun(_with(provoked, "check")), "hook-check", "no-a")
    assert block.also == ["ce: also: hook check: the program no-b is not in this container"]


def test_a_catalog_with_a_fault_starts_nothing(provoked: Provoked, site: Site) -> None:
    file = site.hook("bad", "no-such-key = 1\n")
    ErrorBlock(provoked.srun(provoked.edf("")), "hook-catalog", str(file))


def test_a_catalog_that_others_may_write_starts_nothing(provoked: Provoked, site: Site) -> None:
    file = site.hook("open", "")
    file.chmod(0o666)
    ErrorBlock(provoked.srun(provoked.edf("")), "hook-catalog", str(file))


def test_a_configuration_with_a_fault_starts_nothing(provoked: Provoked, site: Site) -> None:
    site.configure("no_such_key = 1\n")
    ErrorBlock(provoked.srun(provoked.edf("")), "site-configuration", ".toml:4: ", "no_such_key")


def test_a_configuration_that_users_cannot_read_starts_nothing(
    provoked: Provoked, site: Site
) -> None:
    site.file.chmod(0o600)
    block = ErrorBlock(provoked.srun(provoked.edf("")), "site-configuration", "permission denied")
    assert block.parts["hint"] == f"users must be able to read it: chmod a+r {site.file}"


def test_an_oci_hook_that_fails(provoked: Provoked, site: Site) -> None:
    program = site.program("licence", "echo no licence left >&2; exit 3")
    site.oci_hook("50-licence", str(program), "createRuntime")
    done = provoked.srun(provoked.edf(""))
    ErrorBlock(done, "oci-hook-failed", str(program), "no licence left").details("no licence left")


def test_an_oci_hook_without_its_program(provoked: Provoked, site: Site) -> None:
    site.oci_hook("50-gone", "/no/such/program", "createRuntime")
    ErrorBlock(provoked.srun(provoked.edf("")), "oci-hook-invalid", "/no/such/program")


def test_an_oci_hook_file_that_is_none(provoked: Provoked, site: Site) -> None:
    (site.oci / "broken.json").write_text("{")
    ErrorBlock(provoked.srun(provoked.edf("")), "oci-hook-invalid", "broken.json")


def test_a_cdi_file_that_is_none(provoked: Provoked, site: Site) -> None:
    (site.cdi / "broken.json").write_text("{")
    edf = provoked.edf('devices = ["vendor.com/class=name"]\n')
    ErrorBlock(provoked.srun(edf), "cdi-file", "broken.json")


def test_a_cdi_file_that_others_may_write(provoked: Provoked, site: Site) -> None:
    file = site.cdi / "open.json"
    file.write_text('{"cdiVersion": "0.5.0", "kind": "v.com/c", "devices": []}')
    file.chmod(0o666)
    edf = provoked.edf('devices = ["v.com/c=name"]\n')
    ErrorBlock(provoked.srun(edf), "cdi-file", "open.json")


def test_a_launcher_that_is_killed(cluster: Cluster, provoked: Provoked, site: Site) -> None:
    """The kernel does this when the job's memory is full."""
    slow = site.program("slow", "sleep 60")
    site.oci_hook("50-slow", str(slow), "createRuntime")
    launcher = f"{cluster.prefix}/libexec/container-engine/launcher"
    step = ["-w", "n1", "-n3", f"--environment={provoked.edf('')}", "true"]
    with started(cluster, "srun", *step) as job:
        until("a hook to run", lambda: any(str(slow) in p.command for p in procfs.processes()), 60)
        for process in procfs.processes():
            if process.lives and launcher in process.command:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        done = job.wait(60)
    ErrorBlock(done, "launcher-ended", node="n1")
