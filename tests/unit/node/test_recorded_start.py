"""Repeating a start without Python has the launcher's result, or is left to the launcher."""

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from container_engine.base import answers
from container_engine.base.answers import state
from container_engine.node import slurm_step
from container_engine.node.container.checks import resolved
from container_engine.node.node_plan import ENTRYPOINT_LOG, SAVE, node_plan
from container_engine.node.start import recorded_start
from container_engine.node.start.site_rules import RULES
from tests.recorded import Answer, fault, parsed, rewrite, write
from tests.unit.node.hooks.hooks import hook
from tests.unit.node.hooks.hooks import mount as hook_mount
from tests.unit.node.join_stage import C, Joined
from tests.unit.node.plans import mount
from tests.unit.node.start_stage import GID, UID, StartStage

_PERSON = f"ann:x:{UID}:{GID}:Ann Ä.:/home/ann:/bin/zsh\n"
_GROUP = f"people:x:{GID}:\n"


def _named(cases: type) -> dict[str, Callable[[StartStage], None]]:
    return {n: c.__func__ for n, c in vars(cases).items() if isinstance(c, staticmethod)}


def test_the_second_start_is_the_first_one_without_python(starts: StartStage) -> None:
    first = starts.start()
    assert starts.was_python()
    again = starts.start()
    assert not starts.was_python()
    assert again == first
    assert again == starts.start(by_python=True)
    assert again.texts == ["R/work dir", "", "", "", "", ""]
    assert again.trace["phases"] == [
        *("plan", "launch", "prepare", "namespaces", "mount", "create", "init"),
        *("environment", "answer"),
    ]
    assert again.trace["variables"] == {"image": ["A", "B"], "edf": ["MINE"]}
    assert b"B=changed\0" in again.records
    assert starts.last_packet == b"K"


def _apply(starts: StartStage, **edits: object) -> None:
    """Give the plan one hook, which applies."""
    always = {"automatic_when": None, "release": "1", "reason": "enabled"}
    starts.plan["hooks"][0] |= {**always, **edits}


def _deferred(name: str) -> list[Any]:
    return [{"var": name, "op": "", "word": ""}]


class Changes:
    """Changes after which both still start a container in the same way."""

    @staticmethod
    def without_traces(starts: StartStage) -> None:
        starts.plan["settings"]["trace_dir"] = ""

    @staticmethod
    def root_inside(starts: StartStage) -> None:
        starts.plan["settings"]["root_remap"] = True

    @staticmethod
    def namespaces(starts: StartStage) -> None:
        starts.plan["settings"]["unshare"] = ["net", "ipc"]

    @staticmethod
    def read_only(starts: StartStage) -> None:
        starts.plan["writable"] = False

    @staticmethod
    def mounts(starts: StartStage) -> None:
        starts.plan["mounts"] += [
            mount("/usr/bin", "/host/bin", "ro", "noexec"),
            mount("", "/tmpfs", "size=1m", kind="tmpfs"),
            mount("/not/there", "/x", "nofail"),
            mount(str(starts.image), "/more", kind="squashfs"),
        ]

    @staticmethod
    def variables(starts: StartStage) -> None:
        starts.plan["env"].append({"name": "GONE", "value": None, "from": "e"})
        starts.node |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1", "HYDRA_LAUNCHER": "ssh"}

    @staticmethod
    def deferred(starts: StartStage) -> None:
        (starts.home / "7").mkdir()
        job = _deferred("SLURM_JOB_ID")
        source = [f"{starts.home}/", *job]
        starts.plan["mounts"].append({**mount("", ""), "source": source, "target": ["/of/", *job]})
        starts.plan["workdir"] = ["/of/", *job]
        starts.plan["env"].append({"name": "JOB", "value": ["job ", *job], "from": "e"})
        absent = [{"var": "NOT_THERE", "op": ":-", "word": "none"}]
        starts.plan["env"].append({"name": "ABSENT", "value": absent, "from": "e"})

    @staticmethod
    def two_nodes(starts: StartStage) -> None:
        starts.node |= {"SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_NODEID": "1"}
        starts.node["SLURM_STEP_NODELIST"] = "n[0-1]"

    @staticmethod
    def array(starts: StartStage) -> None:
        starts.node |= {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "1"}

    @staticmethod
    def hook_without_its_variable(starts: StartStage) -> None:
        starts.plan["hooks"][0]["automatic_when"] = ["NOT_THERE=x"]

    @staticmethod
    def hook_of_data(starts: StartStage) -> None:
        _apply(
            starts,
            env={"OF_HOOK": "1", "GONE": None},
            prepend={"MY_PATH": ["/mine"]},
            mounts=[{"source": "/usr/bi*", "target": "/of/hook", "options": ["ro"]}],
            devices=[{"path": "/dev/nul*"}, {"path": "/dev/not-there*", "optional": True}],
        )

    @staticmethod
    def hook_that_extends_a_variable_of_the_step(starts: StartStage) -> None:
        starts.node["MY_PATH"] = "/own"
        _apply(starts, prepend={"MY_PATH": ["/mine"]})

    @staticmethod
    def site_without_rules(starts: StartStage) -> None:
        place = starts.prefix / "etc/container-engine/conf.d"
        place.mkdir(parents=True)
        (place.parent / "config.toml").write_text('trace_dir = "/t"\n')
        (place / "10-x.toml").write_text("[policy]\n")

    @staticmethod
    def other_sources_of_users_later(starts: StartStage) -> None:
        starts.etc("nsswitch.conf", "passwd: files sss\n# group: sss\n")

    @staticmethod
    def another_source_of_users_first(starts: StartStage) -> None:
        starts.other_source(_PERSON, _GROUP)

    @staticmethod
    def user_whom_only_another_source_knows(starts: StartStage) -> None:
        starts.etc("passwd", "root:x:0:0::/root:/bin/sh\n")
        starts.etc("group", "")
        starts.other_source(_PERSON, _GROUP)

    @staticmethod
    def group_that_only_another_source_knows(starts: StartStage) -> None:
        starts.etc("group", "")
        starts.other_source("", _GROUP)

    @staticmethod
    def user_whom_no_source_knows(starts: StartStage) -> None:
        starts.etc("passwd", "root:x:0:0::/root:/bin/sh\n")
        starts.etc("group", "")


@pytest.mark.parametrize("change", _named(Changes).values(), ids=_named(Changes))
def test_both_start_in_the_same_way_with(
    starts: StartStage, change: Callable[[StartStage], None]
) -> None:
    change(starts)
    first = starts.start()
    assert starts.was_python()
    again = starts.start()
    assert not starts.was_python()
    assert again == first == starts.start(by_python=True)


@pytest.mark.parametrize(
    ("person", "group"),
    [
        (_PERSON.replace("Ann", "Anna"), _GROUP),
        (_PERSON.replace("ann:", "anna:"), _GROUP),
        (_PERSON.replace("/home/", "/"), _GROUP),
        (_PERSON.replace("/bin/zsh", "/bin/fish"), _GROUP),
        (_PERSON, _GROUP.replace("people", "persons")),
        (_PERSON, ""),
        ("", _GROUP),
        ("", ""),
    ],
)
def test_another_answer_of_a_source_of_users_is_left_to_the_launcher(
    starts: StartStage, person: str, group: str
) -> None:
    """No file shows the launcher that an entry of LDAP has changed."""
    starts.other_source(_PERSON, _GROUP)
    starts.start()
    assert starts.starts_without_python()
    starts.other_source(person, group)
    first = starts.start()
    assert starts.was_python()
    assert starts.start() == first
    assert not starts.was_python()


def test_a_start_for_which_nobody_says_who_the_user_is_is_left_to_the_launcher(
    starts: StartStage,
) -> None:
    starts.other_source(_PERSON, _GROUP)
    starts.start()
    assert starts.starts_without_python()
    (starts.prefix / "libexec/container-engine/ce-user").unlink()
    assert not starts.starts_without_python()


def _for_another(starts: StartStage, ours: bytes, theirs: bytes) -> None:
    """Let the answer be for a request with another header."""
    rewrite(starts.recorded, lambda a: a._replace(request=a.request.replace(ours, theirs, 1)))


class Doubts:
    """Changes after which Python starts, as at the first start."""

    @staticmethod
    def another_plan_of_the_same_length(starts: StartStage) -> None:
        starts.plan["workdir"] = "/work bin"

    @staticmethod
    def another_variable_of_the_environment(starts: StartStage) -> None:
        starts.plan["env"][0]["value"] = "e"

    @staticmethod
    def another_version_of_the_engine(starts: StartStage) -> None:
        rewrite(starts.recorded, lambda a: a._replace(request=b"9" + a.request))

    @staticmethod
    def another_format(starts: StartStage) -> None:
        starts.recorded.write_bytes(
            starts.recorded.read_bytes().replace(b"answer 1", b"answer 0", 1)
        )

    @staticmethod
    def answer_of_all(starts: StartStage) -> None:
        starts.recorded.chmod(0o640)

    @staticmethod
    def answer_by_a_link(starts: StartStage) -> None:
        recorded = starts.recorded
        recorded.rename(starts.home / "other")
        recorded.symlink_to(starts.home / "other")

    @staticmethod
    def answer_of_another(starts: StartStage) -> None:
        os.chown(starts.recorded, 65534, GID)

    @staticmethod
    def answer_of_root(starts: StartStage) -> None:
        os.chown(starts.recorded, 0, GID)

    @staticmethod
    def answer_that_is_a_pipe(starts: StartStage) -> None:
        recorded = starts.recorded
        recorded.unlink()
        os.mkfifo(recorded, 0o600)
        os.chown(recorded, UID, GID)

    @staticmethod
    def answer_that_is_a_directory(starts: StartStage) -> None:
        recorded = starts.recorded
        recorded.unlink()
        recorded.mkdir(0o700)
        os.chown(recorded, UID, GID)

    @staticmethod
    def answer_that_is_too_large(starts: StartStage) -> None:
        with starts.recorded.open("ab") as file:
            file.truncate(answers.LONGEST + 1)

    @staticmethod
    def no_answer(starts: StartStage) -> None:
        starts.recorded.unlink()

    @staticmethod
    def directory_of_all(starts: StartStage) -> None:
        starts.recorded.parent.chmod(0o750)

    @staticmethod
    def directory_of_another(starts: StartStage) -> None:
        os.chown(starts.recorded.parent, 65534, GID)

    @staticmethod
    def directory_by_a_link(starts: StartStage) -> None:
        place = starts.recorded.parent
        place.rename(starts.home / "other")
        place.symlink_to(starts.home / "other")

    @staticmethod
    def starts_of_all(starts: StartStage) -> None:
        starts.recorded.parent.parent.chmod(0o701)

    @staticmethod
    def starts_by_a_link(starts: StartStage) -> None:
        place = starts.recorded.parent.parent
        place.rename(starts.home / "other")
        place.symlink_to(starts.home / "other")

    @staticmethod
    def answer_of_another_user(starts: StartStage) -> None:
        _for_another(starts, b"54321 54322\0", b"54321 54323\0")

    @staticmethod
    def answer_of_another_prefix(starts: StartStage) -> None:
        prefix = bytes(starts.prefix)
        _for_another(starts, prefix + b"\0", prefix + b"x\0")

    @staticmethod
    def answer_of_another_boot(starts: StartStage) -> None:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
        _for_another(starts, boot, boot[::-1])

    @staticmethod
    def answer_of_another_host(starts: StartStage) -> None:
        host = os.uname().nodename.encode() + b"\0"
        _for_another(starts, host, b"x" + host)

    @staticmethod
    def answer_without_a_specification(starts: StartStage) -> None:
        def without(answer: Answer) -> Answer:
            size, _nul, rest = answer.result.partition(b"\0")
            return answer._replace(result=b"0\0" + rest[int(size) :])

        rewrite(starts.recorded, without)

    @staticmethod
    def code_that_was_overwritten_in_place(starts: StartStage) -> None:
        of_package = f"f{starts.package}/container_engine/node/start/recorded_start.py"

        def older(answer: Answer) -> Answer:
            assert of_package in answer.witnesses
            witnesses = answer.witnesses | {of_package: "1 2 100644 3 4 5"}
            return answer._replace(witnesses=witnesses)

        rewrite(starts.recorded, older)

    @staticmethod
    def image_replaced(starts: StartStage) -> None:
        shutil.copy2(starts.image, starts.home / "new")
        (starts.home / "new").rename(starts.image)

    @staticmethod
    def image_written_to(starts: StartStage) -> None:
        os.utime(starts.image, ns=(1, 1))

    @staticmethod
    def mount_source_replaced(starts: StartStage) -> None:
        source = Path(starts.plan["mounts"][0]["source"])
        assert source == starts.home / "data"
        source.rename(starts.home / "old")
        source.mkdir()

    @staticmethod
    def mount_source_that_is_a_file_now(starts: StartStage) -> None:
        source = starts.home / "data"
        source.rmdir()
        source.touch()

    @staticmethod
    def mount_source_that_now_exists(starts: StartStage) -> None:
        (starts.home / "later").mkdir()

    @staticmethod
    def another_launcher(starts: StartStage) -> None:
        os.utime(starts.prefix / "libexec/container-engine/launcher", ns=(1, 1))

    @staticmethod
    def another_guard(starts: StartStage) -> None:
        os.utime(starts.prefix / "libexec/container-engine/ce-guard", ns=(1, 1))

    @staticmethod
    def another_runtime(starts: StartStage) -> None:
        shutil.copy2(starts.home / "crun", starts.home / "new")
        (starts.home / "new").rename(starts.home / "crun")

    @staticmethod
    def configuration_that_is_new(starts: StartStage) -> None:
        place = starts.prefix / "etc/container-engine"
        place.mkdir(parents=True)
        (place / "config.toml").write_text("version = 1\n")

    @staticmethod
    def user_with_another_name(starts: StartStage) -> None:
        text = (starts.home / "etc/passwd").read_text()
        starts.etc("passwd", text.replace("Me:", "You:"))

    @staticmethod
    def user_with_another_home(starts: StartStage) -> None:
        text = (starts.home / "etc/passwd").read_text()
        starts.etc("passwd", text.replace(f"{starts.home}:", f"{starts.home}/data:"))

    @staticmethod
    def user_who_is_not_known(starts: StartStage) -> None:
        starts.etc("passwd", "root:x:0:0::/root:/bin/sh\n")

    @staticmethod
    def group_with_another_name(starts: StartStage) -> None:
        starts.etc("group", f"them:x:{GID}:\n")

    @staticmethod
    def other_sources_of_users(starts: StartStage) -> None:
        starts.etc("nsswitch.conf", "passwd: files\n")

    @staticmethod
    def more_nodes(starts: StartStage) -> None:
        starts.node["SLURM_NNODES"] = "2"

    @staticmethod
    def launcher_of_ranks(starts: StartStage) -> None:
        starts.node["HYDRA_LAUNCHER"] = "ssh"

    @staticmethod
    def no_node(starts: StartStage) -> None:
        starts.name = None

    @staticmethod
    def node_with_a_slash(starts: StartStage) -> None:
        starts.name = "../7.n1"

    @staticmethod
    def mpi_server(starts: StartStage) -> None:
        starts.plan["hooks"] = []
        starts.node["CE_PMIX_DIR"] = "/spool"

    @staticmethod
    def batch_script(starts: StartStage) -> None:
        starts.node["CE_BATCH_SCRIPT"] = "/script"

    @staticmethod
    def variable_of_a_hook_that_does_not_apply(starts: StartStage) -> None:
        starts.node["X"] = "b"

    @staticmethod
    def secret_in_a_mount(starts: StartStage) -> None:
        starts.node["my_token"] = "data"

    @staticmethod
    def value_that_json_escapes(starts: StartStage) -> None:
        starts.node["SLURM_STEP_NODELIST"] = 'n1"'

    @staticmethod
    def environment_of_another_container(starts: StartStage) -> None:
        (starts.prefix / "environ").write_bytes(b"A=1\0B=other\0PATH=/bin\0")

    @staticmethod
    def plan_that_goes_on(starts: StartStage) -> None:
        starts.after = b" "

    @staticmethod
    def squashfs_file_replaced(starts: StartStage) -> None:
        shutil.copy2(starts.home / "more.sqsh", starts.home / "new")
        (starts.home / "new").rename(starts.home / "more.sqsh")

    @staticmethod
    def one_more_for_a_hook(starts: StartStage) -> None:
        (starts.home / "hooked/m2").mkdir()

    @staticmethod
    def variable_that_a_hook_extends(starts: StartStage) -> None:
        starts.node["MY_PATH"] = "/own"


_ONE_NODE = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1"}


def _with_an_answer(starts: StartStage) -> None:
    (starts.home / "data").mkdir()
    shutil.copy("/bin/true", starts.home / "crun")
    shutil.copy(starts.image, starts.home / "more.sqsh")
    starts.plan["mounts"] = [
        mount(str(starts.home / "data"), "/d"),
        mount(str(starts.home / "later"), "/later", "nofail"),
        mount(str(starts.home / "more.sqsh"), "/more", kind="squashfs"),
    ]
    (starts.home / "hooked/m").mkdir(parents=True)
    source = f"{starts.home}/hooked/m*"
    always = hook("second", automatic_when=None, release="1", reason="enabled")
    always["mounts"] = [hook_mount(source, "/of/hook")]
    starts.plan["hooks"].append({**always, "prepend": {"MY_PATH": ["/mine"]}})
    starts.plan["settings"]["runtime"] = str(starts.home / "crun")
    starts.node |= _ONE_NODE
    starts.start()
    assert starts.starts_without_python()


@pytest.mark.parametrize("doubt", _named(Doubts).values(), ids=_named(Doubts))
def test_every_doubt_is_left_to_the_launcher(
    starts: StartStage, doubt: Callable[[StartStage], None]
) -> None:
    _with_an_answer(starts)
    doubt(starts)
    assert not starts.starts_without_python()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("file", ["config.toml", "conf.d/10-x.toml"])
@pytest.mark.parametrize("system", [False, True], ids=["prefix", "system"])
def test_a_site_with_a_rule_never_starts_without_python(
    starts: StartStage, rule: str, system: bool, file: str
) -> None:
    # even with a forged answer: whether the site has rules is not read from the answer
    directory = "etc/container-engine"
    place = (starts.home if system else starts.prefix) / directory / file
    # the path at which the step sees the file
    name = f"/{directory}/{file}" if system else str(place)
    place.parent.mkdir(parents=True)
    place.write_text("# nothing\n")
    starts.start()
    assert starts.starts_without_python()
    value = "false" if rule.endswith("_only") else "[]"
    place.write_text(f"[policy]\n{rule} = {value}\n")
    now = {f"f{name}": state(f"f{place}")}
    rewrite(starts.recorded, lambda a: a._replace(witnesses=a.witnesses | now))
    assert not starts.starts_without_python()


def test_an_image_that_the_site_refuses_is_refused_whatever_is_recorded(
    starts: StartStage,
) -> None:
    _with_an_answer(starts)
    place = starts.prefix / "etc/container-engine/config.toml"
    place.parent.mkdir(parents=True)
    place.write_text('image_stores = ["/nowhere"]\n[policy]\nsite_images_only = true\n')
    with pytest.raises(AssertionError, match=r"F125.*policy\.site_images_only: .*i\.sqsh"):
        starts.start()


@pytest.mark.parametrize("mode", ["fails", "ends"])
def test_a_guard_that_fails_is_explained_by_the_launcher(starts: StartStage, mode: str) -> None:
    _with_an_answer(starts)
    starts.guard(mode)
    with pytest.raises(AssertionError, match="F125"):
        starts.start()
    assert starts.was_python()


def test_a_start_during_which_something_has_come_is_not_recorded(starts: StartStage) -> None:
    """The launcher looks when the container has started, but has decided before."""
    starts.plan["mounts"] = [mount(str(starts.home / "later"), "/later", "nofail")]
    starts.guard(f"makes {starts.home}/later")
    starts.start()
    assert not starts.answers
    starts.guard("")
    starts.start()
    assert starts.starts_without_python()


class Stale:
    """Changes of the node, each of which can happen again; what starts next sees them."""

    @staticmethod
    def image(starts: StartStage) -> None:
        shutil.copy2(starts.image, starts.home / "new")
        (starts.home / "new").rename(starts.image)

    @staticmethod
    def source(starts: StartStage) -> None:
        (starts.home / "data").rename(starts.home / f"data-{time.monotonic_ns()}")
        (starts.home / "data").mkdir()

    @staticmethod
    def source_that_comes_and_goes(starts: StartStage) -> None:
        later = starts.home / "later"
        (later.rmdir if later.exists() else later.mkdir)()

    @staticmethod
    def one_more_or_less_for_a_hook(starts: StartStage) -> None:
        more = starts.home / "hooked/m2"
        (more.rmdir if more.exists() else more.mkdir)()

    @staticmethod
    def user(starts: StartStage) -> None:
        text = (starts.home / "etc/passwd").read_text()
        starts.etc("passwd", text.replace(":Me", ":MeMe"))

    @staticmethod
    def runtime(starts: StartStage) -> None:
        shutil.copy2(starts.home / "crun", starts.home / "new")
        (starts.home / "new").rename(starts.home / "crun")


def _plans(starts: StartStage) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield two plans whose containers differ, and the file of each one's answer."""
    known: set[Path] = set()
    for name in ("1", "2"):
        starts.plan = {**starts.plan, "workdir": f"/{name}", "workdir_from": name}
        starts.start()
        [file] = {*starts.answers} - known
        known.add(file)
        yield starts.plan, file


@pytest.mark.parametrize("count", [25, pytest.param(2000, marks=pytest.mark.soak)])
def test_random_faults_of_answers_never_start_another_container(
    starts: StartStage, count: int
) -> None:
    _with_an_answer(starts)
    starts.answers[0].unlink()
    plans = [*_plans(starts)]
    chance = random.Random(seed := os.environ.get("FAULTS_SEED") or f"{time.time_ns()}")
    happened: Counter[str] = Counter()
    decided: dict[Path, Joined] = {}
    for number in range(count):
        (starts.plan, file), (plan, other) = chance.sample(plans, 2)
        if file not in decided:
            decided[file] = starts.start(by_python=True)
        if chance.random() < 1 / 4:
            name, change = chance.choice([*_named(Stale).items()])
            change(starts)
            decided.clear()
        else:
            name = fault(chance, file, other)
        happened[name] += 1
        where = f"FAULTS_SEED={seed}, {number}: {name}"
        made = starts.start()
        assert starts.was_python(), where
        if file not in decided:
            decided[file] = starts.start(by_python=True)
        assert made == decided[file], where
        if name == "swapped":
            starts.plan = plan
            assert starts.start() == starts.start(by_python=True), where
    print(f"FAULTS_SEED={seed}, {count} faults, no other container: {dict(happened)}")


class Unusual:
    """Properties of starts that are not recorded."""

    @staticmethod
    def podman(starts: StartStage) -> None:
        starts.plan["settings"]["start"] = "podman"

    @staticmethod
    def deferred_secret(starts: StartStage) -> None:
        starts.node["API_TOKEN"] = "x"
        starts.plan["env"].append({"name": "X", "value": _deferred("API_TOKEN"), "from": "e"})

    @staticmethod
    def deferred_variable_of_each_task(starts: StartStage) -> None:
        starts.plan["workdir"] = ["/", {"var": "SLURM_PROCID", "op": ":+", "word": ""}]

    @staticmethod
    def deferred_mount_of_a_device(starts: StartStage) -> None:
        starts.node["DEVICE"] = "null"
        starts.plan["mounts"].append({**mount("", "/v"), "source": ["/dev/", *_deferred("DEVICE")]})

    @staticmethod
    def deferred_place_of_the_kernel(starts: StartStage) -> None:
        starts.node["PLACE"] = "sys/fs"
        starts.plan["mounts"].append({**mount("/usr", ""), "target": _deferred("PLACE")})

    @staticmethod
    def hook_with_a_deferred_string(starts: StartStage) -> None:
        starts.node["VALUE"] = "x"
        _apply(starts, env={"OF_HOOK": _deferred("VALUE")})

    @staticmethod
    def secret_of_the_step(starts: StartStage) -> None:
        starts.plan["hooks"][0]["parameters"] = {"secret": "0" * 64}

    @staticmethod
    def hook_with_code(starts: StartStage) -> None:
        _apply(starts, code="slurm", parameters={"client_config": ""})

    @staticmethod
    def hook_that_names_the_job(starts: StartStage) -> None:
        _apply(starts, env={"JOB": "{node.job}"})

    @staticmethod
    def hook_that_warns(starts: StartStage) -> None:
        check = {"kind": "device", "severity": "warn", "subject": "/dev/not-there", "hint": ""}
        _apply(starts, checks=[check])

    @staticmethod
    def hook_that_asks_for_a_group(starts: StartStage) -> None:
        check = {"kind": "group", "severity": "warn", "subject": "us", "hint": ""}
        _apply(starts, checks=[check])

    @staticmethod
    def hooks_of_the_site(starts: StartStage) -> None:
        starts.plan["settings"]["hooks_dirs"] = ["/not/there"]

    @staticmethod
    def entrypoint_that_leaves_a_secret(starts: StartStage) -> None:
        starts.plan["entrypoint"] = ["/entry"]
        (starts.prefix / "environ").write_bytes(b"A=1\0B=changed\0MY_TOKEN=x\0PATH=/bin\0")

    @staticmethod
    def entrypoint_whose_output_is_shown(starts: StartStage) -> None:
        starts.plan["entrypoint"] = ["/entry"]
        starts.plan["annotations"] = {ENTRYPOINT_LOG: "true"}

    @staticmethod
    def tracking(starts: StartStage) -> None:
        starts.plan["settings"]["tracking_tool"] = "/bin/true"

    @staticmethod
    def image_of_the_step(starts: StartStage) -> None:
        starts.plan["image"]["passing"] = True

    @staticmethod
    def mpi_server(starts: StartStage) -> None:
        starts.plan["hooks"] = []
        starts.node["CE_PMIX_DIR"] = "/spool"

    @staticmethod
    def secret(starts: StartStage) -> None:
        (starts.home / "data?password=x").mkdir()
        starts.plan["mounts"][0]["source"] = str(starts.home / "data?password=x")

    @staticmethod
    def batch_script(starts: StartStage) -> None:
        starts.node["CE_BATCH_SCRIPT"] = "/script"

    @staticmethod
    def mount_of_the_kernel_by_dots(starts: StartStage) -> None:
        starts.plan["mounts"].append(mount("/usr/../sys/fs", "/s"))

    @staticmethod
    def mount_of_the_kernel_by_a_link(starts: StartStage) -> None:
        (starts.home / "link").symlink_to("/sys/fs")
        starts.plan["mounts"].append(mount(f"{starts.home}/link", "/s"))

    @staticmethod
    def mount_of_a_process(starts: StartStage) -> None:
        starts.plan["mounts"].append(mount("/proc/version", "/v"))

    @staticmethod
    def place_of_the_kernel(starts: StartStage) -> None:
        starts.plan["mounts"].append(mount("/usr", "/sys/fs"))

    @staticmethod
    def mount_of_a_device(starts: StartStage) -> None:
        starts.plan["mounts"].append(mount("/dev/null", "/v"))

    @staticmethod
    def young_files(starts: StartStage) -> None:
        (starts.prefix / "settled").write_text(str(3600 * 10**9))

    @staticmethod
    def place_of_all(starts: StartStage) -> None:
        starts.place.parent.mkdir(mode=0o700)
        starts.place.mkdir()
        starts.give_away()
        starts.place.chmod(0o755)

    @staticmethod
    def place_of_another(starts: StartStage) -> None:
        starts.place.parent.mkdir()
        starts.place.parent.chmod(0o777)

    @staticmethod
    def place_by_a_link(starts: StartStage) -> None:
        (starts.home / "other").mkdir(mode=0o700)
        starts.place.parent.symlink_to(starts.home / "other")
        starts.give_away()


@pytest.mark.parametrize("change", _named(Unusual).values(), ids=_named(Unusual))
def test_nothing_is_recorded_with(starts: StartStage, change: Callable[[StartStage], None]) -> None:
    change(starts)
    starts.start()
    assert not starts.answers
    assert not starts.starts_without_python()


@pytest.mark.parametrize(
    "change",
    [
        {"startup": [{"line": _deferred("SLURM_JOB_ID"), "from": "e"}]},
        {"image": {"on_nodes": True}},
        {"image": {"passing": "/store"}},
        {"annotations": {SAVE: "/x.sqsh"}},
        {"kept": {"name": "n"}},
        {"settings": {"start": "podman"}},
        {"settings": {"tracking_tool": "/t"}},
        {"settings": {"hooks_dirs": ["/h"]}},
        {"mounts": [mount("/dev/shm", "/s")]},
        {"mounts": [mount("/usr", "/proc/x")]},
        {"name": {"secret": "X"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_start_that_needs_more_than_ce_node_does_is_not_recorded(
    starts: StartStage, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    plan: Any = json.loads(json.dumps(starts.plan))

    def is_plain() -> bool:
        # in the form in which the plan arrives
        text = json.dumps(plan, separators=(",", ":"))
        the_plan = node_plan(plan)
        return recorded_start._is_plain(text, the_plan, resolved(the_plan, {}).mounts)

    assert is_plain()
    for key, value in change.items():
        plan[key] = plan[key] | value if isinstance(plan.get(key), dict) else value
    assert not is_plain()


def test_what_decides_a_start_is_a_witness(starts: StartStage) -> None:
    starts.plan["devices"] = [{"name": "/dev/null", "cdi": False, "from": "e"}]
    starts.start()
    found = parsed(starts.recorded).witnesses
    unset = {"vCE_PMIX_DIR", "vCE_BATCH_SCRIPT", "vSLURM_STEP_NUM_NODES", "vSLURM_MPI_TYPE", "vX"}
    assert {question for question, state in found.items() if state == "-"} >= unset
    programs = (f"{starts.prefix}/libexec/container-engine/{name}" for name in ("ce-guard",))
    files = (starts.image, "/etc/passwd", "/usr/bin/crun", *programs, "/etc/nsswitch.conf")
    assert {f"f{path}" for path in files} | {"d/dev/null", f"p{starts.home}"} <= found.keys()
    assert "u" not in found


def test_a_user_whom_another_source_names_is_a_witness(starts: StartStage) -> None:
    starts.other_source(_PERSON, _GROUP)
    starts.start()
    assert parsed(starts.recorded).witnesses["u"].startswith("=\nann\nAnn Ä.\n")


def test_a_plan_that_has_a_nul_is_not_what_comes_before_it(starts: StartStage) -> None:
    _with_an_answer(starts)
    starts.after = b"\0x"
    with pytest.raises(AssertionError, match="F125"):
        starts.start()
    assert starts.was_python()


def test_an_answer_that_somebody_made_up_for_root_is_not_used(starts: StartStage) -> None:
    """It would choose what root runs, and here it even belongs to root."""
    _with_an_answer(starts)
    answer, recorded = parsed(starts.recorded), starts.recorded
    request = answer.request.replace(b"54321 54322\0", b"0 0\0", 1)
    write(recorded, answer._replace(request=request))
    recorded.rename(recorded.with_name(f"{answers._name(request)}.0"))
    starts.place.parent.rename(starts.place.parent.with_name("ce-answers-0"))
    starts.uid, starts.gid = 0, 0
    for path in (starts.place.parent, starts.place, starts.recorded):
        os.chown(path, 0, 0)
    assert not starts.starts_without_python()


def test_a_start_by_root_is_not_recorded(
    starts: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = node_plan(starts.plan)
    found = []
    for uid in (1000, 0):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        found.append(recorded_start._is_plain(starts.text, plan, []))
    assert found == [True, False]


def test_a_deferred_string_has_the_value_of_its_own_step(starts: StartStage) -> None:
    for name in ("5", "6"):
        (starts.home / name).mkdir()
    starts.plan["mounts"].append(
        {**mount("", "/data"), "source": [f"{starts.home}/", *_deferred("DATA")]}
    )
    starts.plan["env"].append({"name": "X", "value": _deferred("DATA"), "from": "e"})
    for name in ("5", "6"):
        starts.node["DATA"] = name
        assert not starts.starts_without_python()
    for name in ("5", "6", "5"):
        starts.node["DATA"] = name
        assert starts.start() == starts.start(by_python=True)
        assert starts.starts_without_python()
    # another directory at the path
    (starts.home / "5").rename(starts.home / "aside")
    (starts.home / "5").mkdir()
    assert not starts.starts_without_python()


def test_what_an_entrypoint_leaves_twice_is_repeated(starts: StartStage) -> None:
    starts.plan["entrypoint"] = ["/entry"]
    always = {"automatic_when": None, "release": "1", "reason": "enabled"}
    starts.plan["hooks"][0] |= {**always, "code": "pytorch"}
    for left in ("a", "b", "a"):
        text = f"A={left}\0MASTER_PORT={slurm_step.port(starts.node)}\0PATH=/bin\0"
        (starts.prefix / "environ").write_bytes(text.encode())
        assert [starts.starts_without_python() for _ in range(3)] == [False, False, True]
        assert starts.start() == starts.start(by_python=True)


def test_an_entrypoint_that_leaves_ever_other_environments_is_not_repeated(
    starts: StartStage,
) -> None:
    starts.plan["entrypoint"] = ["/entry"]
    assert [starts.starts_without_python() for _ in range(3)] == [False, False, True]
    for number in range(4):
        (starts.prefix / "environ").write_bytes(f"A={number}\0PATH=/bin\0".encode())
        assert not starts.starts_without_python()
        # the launcher has the guard of ce-guard: the entrypoint has run once, but when ...
        once = (starts.prefix / "argc").read_text() == str(1 + C["CE_ARG_MOST"])
        # ... it left another environment for the first time
        assert once or number == 0


@pytest.mark.parametrize("name", ["SLURM_NNODES", "HYDRA_LAUNCHER", "SLURM_UMASK"])
def test_steps_that_alternate_all_start_without_python(starts: StartStage, name: str) -> None:
    """Each answer stays, as they differ in a variable only."""
    values = ("1", "2", "3", None)
    starts.node |= _ONE_NODE

    def step(value: str | None) -> bool:
        starts.node.pop(name, None)
        if value is not None:
            starts.node[name] = value
        return starts.starts_without_python()

    assert not any(map(step, values))
    assert len(starts.answers) == 4
    assert all(map(step, (*values, *values)))
    # a fifth one takes the place of the oldest
    assert not step("5")
    assert len(starts.answers) == 4
    assert step("5")
    assert all(map(step, values[1:]))


def test_an_answer_that_is_wrong_now_makes_place_for_the_next(starts: StartStage) -> None:
    for nodes in ("1", "2"):
        starts.node["SLURM_STEP_NUM_NODES"] = nodes
        starts.start()
    assert len(starts.answers) == 2
    os.utime(starts.image, ns=(1, 1))
    assert not starts.starts_without_python()
    assert len(starts.answers) == 2
    assert starts.starts_without_python()


def test_ever_new_plans_are_not_all_recorded(starts: StartStage) -> None:
    for number in range(20):
        starts.plan["name"] = "n" * number
        starts.start()
    assert len(starts.answers) == 16
    assert starts.starts_without_python()


def test_an_image_in_a_store_is_recorded_as_in_use(starts: StartStage) -> None:
    store, name = starts.home / "store", f"sha256-{'a' * 64}-zstd.sqsh"
    (store / "images").mkdir(parents=True)
    starts.image.rename(store / "images" / name)
    starts.plan["image"]["path"] = str(store / "images" / name)
    starts.node["SLURM_CLUSTER_NAME"] = "c"
    starts.give_away()
    link = store / "uses" / f"7-{'a' * 12}.{UID}@c"
    starts.start()
    assert os.readlink(link) == name
    assert starts.starts_without_python()
    link.unlink()
    assert starts.starts_without_python()
    assert os.readlink(link) == name
    # a link of another user's, which only the launcher can avoid
    os.chown(link, 65534, 65534, follow_symlinks=False)
    assert not starts.starts_without_python()
