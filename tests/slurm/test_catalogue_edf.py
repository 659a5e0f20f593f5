"""Errors of environment files, each provoked: refused before anything is allocated."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.error_block import ErrorBlock, Provoked
from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")


# name, text below the image's line, code, words of the error line
_TEXTS = [
    ("a string not closed", 'workdir = "/tmp\n', "edf-syntax", (":2",)),
    ("a table not closed", "[env\nA = 1\n", "edf-syntax", (":2",)),
    ("a key twice", "writable = true\nwritable = false\n", "edf-syntax", (":3",)),
    ("a value without quotes", "workdir = /tmp\n", "edf-syntax", (":2",)),
    ("a string for an array", 'mounts = "a:b"\n', "edf-mount", (":2", "mounts")),
    ("a number for a variable's array", "[env]\nA = [1]\n", "edf-value", (":3", "env.A")),
    ("a relative workdir", 'workdir = "x"\n', "edf-value", (":2", "'x'")),
    ("a relative source", 'mounts = ["a:/b"]\n', "edf-mount", (":2", "'a'")),
    ("an unknown flag", 'mounts = ["/tmp:/b:fast"]\n', "edf-mount", ("'fast'",)),
    ("a mount on /proc", 'mounts = ["/tmp:/proc"]\n', "edf-mount", ("'/proc'",)),
    ("a table for an annotation", '[annotations]\n"a.b" = [[1]]\n', "edf-annotation", (":3",)),
    (
        "an annotation in two forms",
        '[annotations]\n"a.b" = "1"\n[annotations.a]\nb = "2"\n',
        "edf-annotation",
        ("a.b",),
    ),
    ("a size that is none", '[annotations]\n"com.ce.tmpfs_size" = "x"\n', "edf-annotation", ()),
    ("an undefined variable", 'workdir = "${NO_SUCH}"\n', "variable-undefined", ("NO_SUCH",)),
    ("a variable's own words", '[env]\nA = "${B:?set B}"\n', "variable-undefined", ("set B",)),
    ("a command", 'workdir = "$(pwd)"\n', "variable-form", ("$(",)),
    ("a huge variable", f'[env]\nA = "{"x" * 200_000}"\n', "variable-too-large", ("env.A",)),
    ("a variable of the image", '[env]\nA = "${image:NONE}"\n', "image-variable", ("NONE",)),
    (
        "a container for each task, and a line for one",
        'startup = ["true"]\n[annotations]\n"com.ce.scope" = "task"\n"com.ce.start" = "crun"\n',
        "scope-task",
        (":2", "startup", "com.ce.scope"),
    ),
    ("a base that is not there", 'base_environment = "nope"\n', "environment-not-found", ("nope",)),
    (
        "a hook's value",
        '[annotations.com.hooks.ssh]\nenabled = "true"\nport = "many"\n',
        "edf-annotation",
        ("port",),
    ),
]


@pytest.mark.parametrize(
    ("text", "code", "words"), [t[1:] for t in _TEXTS], ids=[t[0] for t in _TEXTS]
)
def test_a_bad_file_is_refused_with_its_line_and_page(
    provoked: Provoked, text: str, code: str, words: tuple[str, ...]
) -> None:
    edf = provoked.edf(text)
    ErrorBlock(provoked.srun(edf), code, edf if code != "environment-not-found" else "", *words)


def _absent(provoked: Provoked) -> str:
    return str(provoked.shared / "none.toml")


def _unreadable(provoked: Provoked) -> str:
    edf = provoked.edf("")
    Path(edf).chmod(0o600)
    return edf


def _directory(provoked: Provoked) -> str:
    (provoked.shared / "directory.toml").mkdir()
    return str(provoked.shared / "directory.toml")


def _binary(provoked: Provoked) -> str:
    (provoked.shared / "binary.toml").write_bytes(b'image = "\0"\n')
    return str(provoked.shared / "binary.toml")


def _latin(provoked: Provoked) -> str:
    (provoked.shared / "latin.toml").write_bytes(b'image = "\xe4"\n')
    return str(provoked.shared / "latin.toml")


def _large(provoked: Provoked) -> str:
    return provoked.edf("#" * (1 << 20))


def _nested(provoked: Provoked) -> str:
    return provoked.edf(f"x = {'[' * 2000}{']' * 2000}\n")


def _circle(provoked: Provoked) -> str:
    path = provoked.shared / "circle.toml"
    path.write_text(f'base_environment = "{path}"\n')
    return str(path)


def _tower(provoked: Provoked) -> str:
    below = provoked.edf("")
    for number in range(10):
        path = provoked.shared / f"level-{number}.toml"
        path.write_text(f'base_environment = "{below}"\n')
        below = str(path)
    return below


_FILES: list[tuple[str, Callable[[Provoked], str], str]] = [
    ("no such name", lambda _p: "no-such-environment", "environment-not-found"),
    ("no such path", _absent, "environment-not-found"),
    ("not readable", _unreadable, "environment-unreadable"),
    ("a directory", _directory, "environment-unreadable"),
    ("not text", _binary, "edf-syntax"),
    ("not UTF-8", _latin, "edf-syntax"),
    ("larger than a mebibyte", _large, "edf-too-large"),
    ("nested too deep", _nested, "edf-too-large"),
    ("its own base", _circle, "edf-inheritance"),
    ("eleven levels", _tower, "edf-inheritance"),
    ("no image", lambda p: p.edf("writable = false\n", None), "image-not-named"),
]


@pytest.mark.parametrize(("make", "code"), [f[1:] for f in _FILES], ids=[f[0] for f in _FILES])
def test_a_file_that_cannot_be_used_is_refused(
    provoked: Provoked, make: Callable[[Provoked], str], code: str
) -> None:
    edf = make(provoked)
    ErrorBlock(provoked.srun(edf), code, edf)


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
