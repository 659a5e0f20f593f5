"""Errors of environments, provoked by srun: refused before anything is allocated.

Each error of a file itself is provoked in tests/unit/cli/test_refusals.py.
"""

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.error_block import ErrorBlock, Provoked
from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")


def test_a_bad_file_is_refused_with_its_line_and_page(provoked: Provoked) -> None:
    edf = provoked.edf('workdir = "/tmp\n')
    ErrorBlock(provoked.srun(edf), "edf-syntax", f"{edf}:2")


def test_a_file_that_its_user_cannot_read_is_refused(provoked: Provoked) -> None:
    edf = provoked.edf("")
    Path(edf).chmod(0o600)
    ErrorBlock(provoked.srun(edf), "environment-unreadable", edf)


def test_what_the_site_keeps_for_itself_is_refused(provoked: Provoked, site: Site) -> None:
    site.configure("edf_may_override = []\nentrypoint = false\n")
    ErrorBlock(
        provoked.srun(provoked.edf("entrypoint = true\n")), "site-decides", "edf_may_override"
    )


def test_a_device_that_the_site_does_not_offer_is_refused(provoked: Provoked, site: Site) -> None:
    site.configure('allowed_devices = ["/dev/null"]\n')
    edf = provoked.edf('devices = ["/dev/fuse"]\n')
    ErrorBlock(provoked.srun(edf), "device-not-offered", "'/dev/fuse'")


def test_a_hook_that_must_write_refuses_a_container_that_cannot_be_written(
    provoked: Provoked, site: Site
) -> None:
    site.hook("writer", "requires.writable = true\n")
    edf = provoked.edf('writable = false\n[annotations]\ncom.hooks.writer.enabled = "true"\n')
    ErrorBlock(provoked.srun(edf), "hook-refused", "writer")


def test_two_hooks_that_exclude_each_other_are_refused(provoked: Provoked, site: Site) -> None:
    site.hook("one", 'conflicts = ["two"]\n')
    site.hook("two", "")
    switches = 'com.hooks.one.enabled = "true"\ncom.hooks.two.enabled = "true"\n'
    edf = provoked.edf(f"[annotations]\n{switches}")
    ErrorBlock(provoked.srun(edf), "hook-refused", "one", "two")


def test_salloc_and_sbatch_say_the_same(cluster: Cluster) -> None:
    for argv in (["salloc", "--environment=nope", "true"], ["sbatch", "--environment=nope"]):
        done = cluster.run(argv, input="#!/bin/sh\ntrue\n")
        ErrorBlock(done, "environment-not-found", "nope")


def test_components_that_want_different_environments_are_refused(
    provoked: Provoked, cluster: Cluster
) -> None:
    one, two = provoked.edf(""), provoked.edf("")
    argv = ["srun", "-n1", f"--environment={one}", "true"]
    done = cluster.run([*argv, ":", "-n1", f"--environment={two}", "true"])
    ErrorBlock(done, "components-differ", one, two)


def test_a_key_that_nothing_knows_is_a_warning_with_a_page(cluster: Cluster) -> None:
    edf = cluster.edf("wrkdir = '/tmp'\n", "busybox")
    done = cluster.run(["ce", "validate", "--json", edf])
    assert done.returncode == 0
    (problem,) = json.loads(done.stdout)["environments"][0]["problems"]
    assert (problem["severity"], problem["see"]) == ("warning", "edf-unknown-key")
    assert "did you mean 'workdir'?" in problem["message"]


def test_the_page_of_an_error_is_printed(cluster: Cluster) -> None:
    done = cluster.run(["ce", "help", "mount-source-missing"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mount-source-missing\n")
    assert "srun -w NODE ls -ld PATH" in done.stdout
