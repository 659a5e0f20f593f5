"""A cached plan is used only while it is right."""

import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import container_engine
from container_engine.base import answers
from container_engine.plan.site_context import SiteContext
from container_engine.site.load import Configuration
from container_engine.submit import plan_output, prepare
from container_engine.submit.context import Context
from container_engine.submit.read_site import read_site
from tests.recorded import Answer, parsed, rewrite, write
from tests.unit import squashfs
from tests.unit.plan.conftest import User

Change = Callable[[User], object]


def test_a_plan_is_cached_as_it_was_printed(user: User) -> None:
    printed = user.plan()
    assert user.recalled() == printed
    assert printed.endswith("}\n")


def test_ce_plan_and_ce_run_ask_for_a_cached_plan_first(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = user.plan()
    (recorded,) = user.answers()
    rewrite(recorded, _elsewhere)
    monkeypatch.chdir(user.cwd)
    cached_text = printed.replace('"/scratch/me"', '"/cached"')
    assert cached_text != printed
    # without the program, as in an installation of Python's packages alone, nothing is cached
    assert plan_output.plan_of("e", user.context(), None) == ("", *divided(printed))
    user.plan()
    rewrite(recorded, _elsewhere)
    user.installed()
    for make, pull, expected in (
        (plan_output.plan_of, None, cached_text),
        (plan_output.plan_of, "missing", printed),
        (plan_output.new_plan_of, None, printed),
    ):
        assert make("e", user.context(), pull) == ("", *divided(expected)), (make, pull)


def _elsewhere(answer: Answer) -> Answer:
    return answer._replace(result=answer.result.replace(b'"/scratch/me"', b'"/cached"'))


def divided(printed: str) -> tuple[str, str]:
    head, keyword, plan = printed.partition(prepare.PLAN)
    return head + keyword, plan


@pytest.mark.parametrize("version", ["", container_engine.__version__ + "x", "1"])
def test_a_cached_plan_is_handed_only_to_python_of_the_same_version(
    user: User, version: str
) -> None:
    user.plan()
    words = [str(user.installed()), f"--cached={version}", "--", "e"]
    done = subprocess.run(words, env=user.env, cwd=user.cwd, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_request_for_a_cached_plan_starts_no_planner(user: User) -> None:
    printed = user.plan()
    words = [str(user.installed()), f"--cached={container_engine.__version__}", "--"]
    for name, expected in (("e", (0, "\0".join(["", *divided(printed), ""]))), ("f", (1, ""))):
        done = subprocess.run(
            [*words, name], env=user.env, cwd=user.cwd, stdout=subprocess.PIPE, timeout=60
        )
        assert (done.returncode, done.stdout.decode()) == expected


def _replace_image(user: User) -> None:
    squashfs.make(user.home / "other.sqsh", {"a": "b"}).rename(user.image)


def _touch_image_in_place(user: User) -> None:
    status = user.image.stat()
    os.utime(user.image, ns=(status.st_atime_ns, status.st_mtime_ns))


def _write_config(user: User) -> None:
    Path(f"{user.image}.json").write_text("{}")


def _write_site_file(user: User) -> None:
    directory = user.prefix / "etc/container-engine"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text("start_timeout_s = 5\n")


def _appear_earlier(user: User) -> None:
    user.write(user.first / "e.toml", 'workdir = "/other"')


CHANGES: dict[str, Change] = {
    "the EDF's content": lambda user: user.write(user.second / "e.toml", 'workdir = "/new"'),
    "the EDF removed": lambda user: (user.second / "e.toml").unlink(),
    "an EDF earlier in the search path": _appear_earlier,
    "a variable changed": lambda user: user.env.update(SCRATCH="/scratch/you"),
    "a variable unset": lambda user: user.env.pop("SCRATCH"),
    "another search path": lambda user: user.env.update(EDF_PATH=str(user.second)),
    "the image replaced": _replace_image,
    "the image touched, its times restored": _touch_image_in_place,
    "the image removed": lambda user: user.image.unlink(),
    "a configuration beside the image": _write_config,
    "a site file": _write_site_file,
    "another directory": lambda user: setattr(user, "cwd", user.home),
    "another installation": lambda user: setattr(user, "prefix", user.home),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_an_answer_ends_with(user: User, change: Change) -> None:
    user.plan()
    assert user.recalled() is not None
    change(user)
    assert user.recalled() is None


HOOK = 'summary = "s"\nhelp = "h"\ndefault = "on"\n'
HOOK_CHANGES: dict[str, Callable[[Path], object]] = {
    "a file changed": lambda catalog: (catalog / "h/hook.toml").write_text(
        HOOK + 'release = "2"\n'
    ),
    "a hook added": lambda catalog: (catalog / "new").mkdir(),
    "a file added to a hook": lambda catalog: (catalog / "h/program").touch(),
    "a hook removed": lambda catalog: (catalog / "h").rename(catalog.parent / "gone"),
    "the directory removed": lambda catalog: catalog.rename(catalog.parent / "gone"),
    "others may write a file": lambda catalog: (catalog / "h/hook.toml").chmod(0o666),
}


@pytest.mark.parametrize("change", HOOK_CHANGES.values(), ids=HOOK_CHANGES.keys())
def test_an_answer_ends_when_the_sites_hooks_change(
    user: User, change: Callable[[Path], object]
) -> None:
    catalog = user.home / "hooks.d"
    (catalog / "h").mkdir(parents=True)
    (catalog / "h/hook.toml").write_text(HOOK)
    _write_site_file(user)
    site = user.prefix / "etc/container-engine/config.toml"
    site.write_text(f'hook_catalog = ["{catalog}"]\n')
    assert '"name":"h"' in user.plan()
    assert user.recalled() is not None
    change(catalog)
    assert user.recalled() is None


def test_an_answer_ends_when_the_site_begins_to_have_hooks(user: User) -> None:
    _write_site_file(user)
    site = user.prefix / "etc/container-engine/config.toml"
    site.write_text(f'hook_catalog = ["{user.home}/hooks.d"]\n')
    user.plan()
    assert user.recalled() is not None
    (user.home / "hooks.d").mkdir()
    assert user.recalled() is None


def _move_to(user: User, cluster: str) -> None:
    user.env["SLURM_CONF"] = str(user.home / f"{cluster}.conf")


OF_CLUSTER: dict[str, Change] = {
    "the host of another cluster": lambda user: _move_to(user, "eiger"),
    "another name": lambda user: (user.home / "daint.conf").write_text("ClusterName=eiger\n"),
    "the file of this one": lambda user: (user.site_file("clusters.d/daint.toml")).unlink(),
}


@pytest.mark.parametrize("change", OF_CLUSTER.values(), ids=OF_CLUSTER.keys())
def test_an_answer_is_of_one_cluster_where_clusters_differ(user: User, change: Change) -> None:
    user.site_file("config.toml").touch()
    for name in ("daint", "eiger"):
        user.site_file(f"clusters.d/{name}.toml").write_text(f'[env]\nWHERE = "{name}"\n')
        (user.home / f"{name}.conf").write_text(f"ClusterName={name}\n")
    _move_to(user, "daint")
    assert '"daint"' in user.plan()
    assert user.recalled() is not None
    change(user)
    assert user.recalled() is None


def test_an_answer_does_not_depend_on_a_variable_that_no_file_names(user: User) -> None:
    user.plan()
    user.env["LINES"] = "25"
    assert user.recalled() is not None


def test_an_answer_ends_with_another_version_of_the_engine(user: User) -> None:
    user.plan()
    (file,) = user.answers()
    rewrite(file, lambda answer: answer._replace(request=b"9" + answer.request))
    assert user.recalled() is None


def test_an_answer_ends_when_the_engine_is_installed_anew(user: User) -> None:
    user.plan()
    assert f"s{container_engine.__file__}" in parsed(user.answers()[0]).witnesses


def test_a_variable_that_was_unset_ends_the_answer_when_it_is_set(user: User) -> None:
    user.write(user.second / "e.toml", 'workdir = "${NOWHERE:-/x}"')
    user.plan()
    assert user.recalled() is not None
    user.env["NOWHERE"] = ""
    assert user.recalled() is None


@pytest.mark.parametrize(
    "reference", ["base", "./base.toml", "link/base.toml", "./x/../link/base.toml"]
)
def test_an_answer_ends_when_a_base_changes_however_it_is_named(user: User, reference: str) -> None:
    for version in ("1", "2"):
        user.write(user.cwd / version / "base.toml", f'[env]\nV = "{version}"')
    (user.cwd / "x").mkdir()
    (user.cwd / "link").symlink_to("1")
    for path in (user.cwd / "base.toml", user.first / "base.toml"):
        path.symlink_to(user.cwd / "link/base.toml")
    (user.cwd / "e.toml").write_text(f'base_environment = "{reference}"')
    assert '"value":"1"' in user.plan("./e.toml")
    assert user.recalled("./e.toml") is not None
    (user.cwd / "link").unlink()
    (user.cwd / "link").symlink_to("2")
    assert user.recalled("./e.toml") is None
    assert '"value":"2"' in user.plan("./e.toml")


def test_a_relative_name_is_another_plan_in_another_directory(user: User) -> None:
    user.write(user.cwd / "here.toml", 'workdir = "/one"')
    user.write(user.home / "here.toml", 'workdir = "/two"')
    user.plan("./here.toml")
    user.cwd = user.home
    assert '"workdir":"/two"' in user.plan("./here.toml")


def test_nothing_is_cached_of_files_that_changed_a_moment_ago(user: User) -> None:
    user.plan(later_s=0)
    assert user.recalled() is None


def test_a_refused_environment_is_not_cached(user: User) -> None:
    user.env.pop("SCRATCH")
    with pytest.raises(container_engine.base.errors.UserError):
        user.plan()
    assert user.recalled() is None


def test_an_environment_without_container_is_cached_with_its_notice(user: User) -> None:
    (user.second / "e.toml").write_text('image = ""')
    assert user.plan() == prepare.HOST
    assert user.recalled() == prepare.HOST
    assert b"ce: warning: " in user.answers()[0].read_bytes()


@pytest.mark.parametrize(
    "script", ["", "ulimit -t 1; while :; do :; done"], ids=["cannot be started", "is killed"]
)
def test_a_plan_without_the_images_environment_is_not_cached(user: User, script: str) -> None:
    """Otherwise the plan would lack the environment even after unsquashfs works again."""
    broken = user.home / "bin/unsquashfs"
    broken.parent.mkdir()
    broken.write_text(f"#!/bin/sh\n{script}\n" if script else "")
    broken.chmod(0o755 if script else 0o644)
    usual = user.env["PATH"]
    user.env["PATH"] = str(broken.parent)
    assert '"FROM":"inside"' not in user.plan()
    assert user.recalled() is None
    user.env["PATH"] = usual
    assert '"FROM":"inside"' in user.plan()
    assert user.recalled() is not None


def test_an_answer_and_its_directory_are_private(user: User) -> None:
    previous = os.umask(0)
    try:
        user.plan()
    finally:
        os.umask(previous)
    (file,) = user.answers()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def _link_the_answer(user: User) -> None:
    (file,) = user.answers()
    file.rename(user.home / "elsewhere")
    file.symlink_to(user.home / "elsewhere")


def _link_the_directory(user: User) -> None:
    place = user.answers()[0].parent
    place.rename(user.home / "elsewhere")
    place.symlink_to(user.home / "elsewhere")


def _make_a_fifo(user: User) -> None:
    (file,) = user.answers()
    file.unlink()
    os.mkfifo(file, 0o600)


def _with_result(user: User, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the fields of the plan."""
    (file,) = user.answers()

    def changed(answer: Answer) -> Answer:
        *fields, nothing = answer.result.split(b"\0")
        assert (fields[2], nothing) == (b"1", b"")
        return answer._replace(result=b"".join(field + b"\0" for field in change(fields)))

    rewrite(file, changed)


def _until(user: User, when: str) -> None:
    (file,) = user.answers()
    rewrite(file, lambda a: a._replace(witnesses={**a.witnesses, "t": when}))


TAMPERING: dict[str, Change] = {
    "a link instead of the file": _link_the_answer,
    "a link instead of the directory": _link_the_directory,
    "a file that others may read": lambda user: user.answers()[0].chmod(0o604),
    "a file that others may write": lambda user: user.answers()[0].chmod(0o602),
    "a file that the group may read": lambda user: user.answers()[0].chmod(0o640),
    "a file that the group may write": lambda user: user.answers()[0].chmod(0o620),
    "a directory that others may write": lambda user: user.answers()[0].parent.chmod(0o702),
    "a directory that the group may write": lambda user: user.answers()[0].parent.chmod(0o720),
    "a FIFO": _make_a_fifo,
    "a plan cut short": lambda user: _with_result(user, lambda fields: fields[:-1]),
    "a word without its plan, as for no container": lambda user: _with_result(
        user, lambda fields: [*fields[:2], b"0"]
    ),
    "a plan in another number of parts": lambda user: _with_result(
        user, lambda fields: [*fields[:2], b"2", fields[3]]
    ),
    "an empty file": lambda user: user.answers()[0].write_bytes(b""),
    "no expiry": lambda user: _until(user, ""),
    "another field behind its end": lambda user: _with_result(user, lambda f: [*f, b"more"]),
    "a negative number of parts": lambda user: _with_result(
        user, lambda fields: [*fields[:2], b"-1", fields[3]]
    ),
}


@pytest.mark.parametrize("tamper", TAMPERING.values(), ids=TAMPERING.keys())
def test_an_answer_is_not_used_if_it_is(user: User, tamper: Change) -> None:
    user.plan()
    tamper(user)
    assert user.recalled() is None


def test_an_answer_of_another_user_is_not_used(user: User) -> None:
    user.plan()
    (file,) = user.answers()
    ours, theirs = (b"\0%d " % uid for uid in (os.geteuid(), os.geteuid() + 1))
    rewrite(file, lambda a: a._replace(request=a.request.replace(ours, theirs, 1)))
    assert user.recalled() is None


@pytest.mark.parametrize("what", ["the answer", "its directory"])
def test_an_answer_that_somebody_else_owns_is_not_used(
    user: User, what: str, as_nobody: Callable[[Path], None]
) -> None:
    user.plan()
    (recorded,) = user.answers()
    as_nobody(recorded if what == "the answer" else recorded.parent)
    assert user.recalled() is None


def test_nothing_is_cached_where_others_may_write(user: User) -> None:
    place = user.home / ".cache/container-engine/plans"
    place.mkdir(parents=True)
    place.chmod(0o777)
    user.plan()
    assert user.answers() == []


def _made(
    head: str, parts: Sequence[str], *files: str, notices: str = "", **asked: str
) -> prepare.Prepared:
    variables = answers.Variables({})
    variables.asked |= asked
    return prepare.Prepared(None, notices, head, [*parts], prepare.Inputs(variables, [*files]))


def _is_written(user: User, made: prepare.Prepared, name: str | None = "e", *words: str) -> bool:
    return plan_output.write(made, plan_output.request(name, str(user.cwd), words), user.context())


def test_jobs_whose_variables_alternate_all_have_their_plans(user: User) -> None:
    for place in ("/a", "/b", "/c"):
        user.env["SCRATCH"] = place
        user.plan()
    assert len(user.answers()) == 3
    for place in ("/a", "/b", "/c", "/a"):
        user.env["SCRATCH"] = place
        assert f'"workdir":"{place}"' in (user.recalled() or "")


def test_an_answer_ends_when_a_file_is_missing_for_another_reason(user: User) -> None:
    directory = user.home / "directory"
    assert _is_written(user, _made(prepare.HOST, (), f"{directory}/file"))
    assert user.recalled() == prepare.HOST
    directory.touch()
    assert user.recalled() is None


@pytest.mark.parametrize("home", ["/proc/none", "relative", ""])
def test_a_home_that_cannot_hold_answers_is_no_error(user: User, home: str) -> None:
    user.env["HOME"] = home
    assert user.plan() != ""


def test_answers_are_in_the_users_cache_if_that_is_an_absolute_path(user: User) -> None:
    usual, own = user.home / ".cache", user.home / "own"
    for cache, used in ((str(own), own), ("relative", usual), ("", usual)):
        user.env["XDG_CACHE_HOME"] = cache
        user.plan()
        assert user.recalled() is not None
        (made,) = (used / "container-engine/plans").iterdir()
        made.unlink()
        assert user.recalled() is None


def test_only_the_newest_answers_are_kept(user: User) -> None:
    place = user.home / ".cache/container-engine/plans"
    place.mkdir(parents=True, mode=0o700)
    for age in range(plan_output.MOST):
        old = place / f"old{age}"
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    user.plan()
    names = {file.name for file in user.answers()}
    assert len(names) == plan_output.MOST
    assert f"old{plan_output.MOST - 1}" not in names
    assert user.recalled() is not None


def test_a_plan_that_depends_on_the_whole_environment_is_not_cached(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_it(context: Context, config: Configuration, files: list[str]) -> SiteContext:
        assert dict(context.env)
        return read_site(context, config, files)

    monkeypatch.setattr(prepare, "read_site", all_of_it)
    user.plan()
    assert user.recalled() is None


def test_an_answer_ends_when_its_time_is_over(user: User) -> None:
    made = _made(prepare.HOST, ())
    for not_after, expected in ((0, True), (time.time() + 60, True), (time.time() - 1, False)):
        assert _is_written(user, made._replace(not_after=not_after))
        assert (user.recalled() == prepare.HOST) == expected


REQUESTS: dict[str, tuple[str | None, list[str]]] = {
    "a name": ("e", []),
    "an empty name": ("", []),
    "a name like that of an option": ("--", []),
    "letters of the world": ("ümlaut/名", []),
    "bytes that are not UTF-8": (os.fsdecode(b"\xff e"), []),
    "a line break": ("a\nb", []),
    "options and a name": ("e", ["--container-mounts=/a:/b", "--no-container-mount-home"]),
    "options alone": (None, ["--container-image=ü"]),
}


@pytest.mark.parametrize(("name", "words"), REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize(
    "facts",
    [
        "",
        prepare.INSIDE,
        f"{prepare.EPHEMERAL_STORE}/a\n",
        f"{prepare.IMAGE}a\n{prepare.KEPT}b/c\n",
    ],
)
def test_the_program_finds_the_answer_of_each_request(
    user: User, name: str | None, words: list[str], facts: str
) -> None:
    user.env["LD_LIBRARY_PATH"] = "/none"
    asked = {"vLD_LIBRARY_PATH": "=/none", "vNONE": "-", "v": "-", "vA=B": "-"}
    files, notices = (str(user.image), "/nowhere"), "ce: warning: ü\n"
    made = _made(facts + prepare.PLAN, ["{}\n"], *files, notices=notices, **asked)
    assert _is_written(user, made, name, *words)
    rest: list[str | bytes] = ["--", *([] if name is None else [os.fsencode(name)])]
    callers: list[list[str]] = [[], ["--for", "srun"], ["--for", "sbatch"]]
    for caller in callers:
        expected = (made.head if caller else "") + "{}\n"
        told = user.told([*caller, *words, *rest])
        assert told == (made.notices.encode(), expected.encode()), caller
    assert user.told(["--for", "srun", *words, "--container-name=x", *rest]) is None


def test_the_program_gives_each_launch_a_secret_of_its_own(user: User) -> None:
    parts = ['{"a":{"secret":"', '"},"b":"@new@","secret":"', '"}\n']
    assert _is_written(user, _made(prepare.PLAN, parts))
    secrets = set()
    for _ in range(3):
        told = user.told(["--for", "srun", "e"])
        assert told is not None
        first, second = re.findall('"secret":"([0-9a-f]{64})"', told[1].decode())
        assert first == second
        assert told[1].decode() == prepare.PLAN + first.join(parts)
        secrets.add(first)
    assert len(secrets) == 3


def test_an_answer_that_is_not_as_it_was_written_is_not_used(user: User) -> None:
    """A disk may change a bit, for example in the plan's mounts."""
    printed = user.plan()
    (file,) = user.answers()
    whole = file.read_bytes()
    for at in random.Random(1).sample(range(len(whole)), 200):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        file.write_bytes(changed)
        assert user.recalled() is None, at
    file.write_bytes(whole)
    assert user.recalled() == printed


_NEITHER = (
    *("", "\n", "{}", "host", "hosts\n", " host\n", "x=1\nhost\n"),
    *("plan", "plan{}", prepare.INSIDE, f"{prepare.PLAN}{prepare.HOST}"),
)


def test_a_plan_is_used_if_its_word_fits_what_follows(user: User) -> None:
    user.plan()
    (file,) = user.answers()
    answer = parsed(file)
    *_before, plan, _nothing = answer.result.decode().split("\0")
    for head in (prepare.HOST, prepare.PLAN, f"{prepare.INSIDE}{prepare.PLAN}", *_NEITHER):
        for parts in ([], [plan]):
            result = answers.field("") + answers.field(head) + answers.table(parts)
            write(file, answer._replace(result=result))
            fits = head == prepare.HOST if not parts else head.endswith(prepare.PLAN)
            assert (user.recalled() is not None) == fits, (head, parts)
