"""Remember how a step started its container, for the next step with the same plan.

The next step starts no Python: ce-node reads the memo (spank_plugin/node/start_memo.h has the
format), and becomes the launcher if anything is in doubt. Before the memo is written, all files on
which the start depends are looked at, and the start is decided a second time, which records the
variables of the step that it asks for: it is remembered only if the result is the same and no file
has just changed. The memo is for this node and belongs to the
user. It cannot give the user any power: users can have the guard do all that it contains.
"""

from __future__ import annotations

import grp
import os
import pwd
from binascii import crc32

from container_engine import __version__
from container_engine.base.answers import Variables, can_be_checked, is_of_kernel, state
from container_engine.base.deferred_operators import OF_TASKS
from container_engine.base.errors import LaunchError
from container_engine.base.ownership import code_in_use
from container_engine.base.private_files import memo_of, publish_private
from container_engine.node import memo_directory, step_port
from container_engine.node.container import environment as env
from container_engine.node.container.description import HOSTS_FILES, PATH
from container_engine.node.memo_fields import about_step, data, field, table
from container_engine.node.report import trace
from container_engine.node.report.secret_values import may_be_secret
from container_engine.node.start import image_in_use, site_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.hooks.repeat import Repeatable
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import Device
    from container_engine.node.start.container import Started

MAGIC = b"container-engine start memo 3\n"
# the most memos of one user, and the most bytes of one, which contains the whole plan
_MOST, _LONGEST = 16, 1 << 20
# variables of one step that make hooks apply
_OF_STEPS = ("CE_PMIX_DIR", "CE_BATCH_SCRIPT")
# in a plan: a string that each step must evaluate, and a secret that is new for each launch
_NOT_AGAIN = ('"var"', '"secret":"')
# the launcher makes their values, or takes them away (node_name.py)
_OF_LAUNCHER = ("SLURMD_NODENAME", *OF_TASKS)
_PORT = "MASTER_PORT"


class _Conditions:
    """Conditions of a start beside its plan.

    `aspects` are those of files, with their signatures, `names` is what ce-user prints, b"" if
    files name the user, `variables` are the states of the step's variables, and `ports` are the
    places of the step's port (step_port.Places).
    """

    def __init__(
        self,
        aspects: Mapping[str, str],
        names: bytes,
        variables: Mapping[str, str],
        ports: Sequence[str],
    ) -> None:
        self.aspects, self.names, self.variables = aspects, names, variables
        self.ports = ports


def remember(
    text: str, plan: NodePlan, node: Mapping[str, str], libexec: str, started: Started
) -> None:
    """Write the memo of a start if the next one with this plan can do without Python.

    `text` is the plan as it arrived. A memo that cannot be written is not an error.
    """
    try:
        hooks = started.hooks() if _is_plain(text, plan, node) else None
        if hooks is None:
            return
        names = b"" if _is_user_from_files() else _names()
        aspects = {a: state(a) for a in (*_aspects(plan, libexec), *hooks.asked)}
        if not can_be_checked(aspects):
            return
        found = _decided_again(started, hooks, node)
        if found is None:
            return
        prefix = os.path.dirname(os.path.dirname(libexec))
        conditions = _Conditions(aspects, names, *found)
        fields = b"".join(_fields(text, plan, prefix, conditions, started, hooks.names))
        memo = memo_of(MAGIC, fields)
        if len(memo) <= _LONGEST:
            publish_private(
                memo_directory.place("starts"), name_of(prefix, node, text), memo, _MOST
            )
    except (OSError, ValueError, LaunchError):
        return


def _decided_again(
    started: Started, hooks: Repeatable, node: Mapping[str, str]
) -> tuple[dict[str, str], list[str]] | None:
    """Return the step's variables that decide the start, and the places of its port in the texts.

    The port of the step is none of those variables, since it is another one in each step. Return
    None unless a second decision, with another port, has the same result but for the port. Raise
    LaunchError, and ValueError or KeyError for a step without numbers.
    """
    texts = {"s": started.specification, "b": started.block, "r": started.records}
    places = step_port.Places(texts, _PORT, hooks.port)
    aside = step_port.next_step(node) if hooks.port else node
    port = step_port.of_step(aside) if hooks.port else ""
    expected = places.with_port(port)
    variables = Variables(node, aside)
    specification, records, again = started.again(variables, expected["b"])
    if (specification, records) != (expected["s"], expected["r"]) or variables.are_all:
        return None
    same = again is not None and (again.asked, again.port) == (hooks.asked, port)
    if not same or any(f"v{name}" in variables.asked for name in _OF_LAUNCHER):
        return None
    return {question[1:]: found for question, found in variables.asked.items()}, places.found


def _is_plain(text: str, plan: NodePlan, node: Mapping[str, str]) -> bool:
    """Check that a start with this plan depends only on what ce-node can check."""
    return (
        os.geteuid() != 0
        and not (plan.by_podman or plan.kept or plan.entrypoint or plan.startup)
        and not (plan.tracking_tool or plan.hooks_dirs or plan.on_nodes or plan.passing)
        and "pid" not in plan.unshare
        and not any(sign in text for sign in _NOT_AGAIN)
        and not any(name in node for name in _OF_STEPS)
        and not any(is_of_kernel(str(device["name"])) for device in _plain_devices(plan))
        and plan.save is None
        and not any(
            _is_of_kernel(mount["source"], "/dev/") or _is_of_kernel(mount["target"])
            for mount in plan.mounts
        )
        and not may_be_secret(trace.mount_texts(plan.mounts), plan.secrets, {})
    )


def _plain_devices(plan: NodePlan) -> list[Device]:
    return [device for device in plan.devices if not device["cdi"]]


def _is_of_kernel(path: object, *more: str) -> bool:
    """Check whether the path is where files come and go unseen, or differ between processes."""
    return f"{os.path.normpath(str(path))}/".startswith(("/proc/", "/sys/", *more))


# ---- what a start looks at --------------------------------------------------------------------


def _aspects(plan: NodePlan, libexec: str) -> list[str]:
    """Return the questions (base/answers.py) about files that a start depends on."""
    mounts = [(mount["kind"], str(mount["source"])) for mount in plan.mounts]
    programs = [
        path for name in (plan.runtime or "crun", plan.podman or "podman") for path in _found(name)
    ]
    own = [
        f"{libexec}/{name}" for name in ("launcher", "ce-guard", "ce-image", "ce-init", "ce-user")
    ]
    return [
        *(f"f{path}" for path in plan.image_paths),
        *(f"f{source}" for kind, source in mounts if kind == "squashfs"),
        *(f"p{source}" for kind, source in mounts if kind == "bind"),
        *(f"d{device['name']}" for device in _plain_devices(plan)),
        *(f"f{path}" for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")),
        *(f"f{path}" for path in (*programs, *own, *code_in_use())),
        *(f"f{path}" for path in site_rules.places(libexec)),
        *(f"e{path}" for path in (*HOSTS_FILES, "/dev/pts", "/dev/mqueue", f"{libexec}/ce-init")),
    ]


def _found(program: str) -> Iterator[str]:
    """Yield the paths at which the guard looks for a program, up to where it is."""
    for directory in PATH.split(":"):
        path = program if "/" in program else f"{directory}/{program}"
        yield path
        if os.access(path, os.X_OK):
            return


def _is_user_from_files() -> bool:
    """Check that /etc/passwd and /etc/group, whose signatures the memo has, name the user."""
    uid, gid = str(os.getuid()), str(os.getgid())
    person, group = _line("/etc/passwd", uid), _line("/etc/group", gid)
    if len(person) < 7 or len(group) < 3 or not _are_files_first():
        return False
    entry = pwd.getpwuid(int(uid))
    same = (entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell)
    return (person[0], *person[4:7]) == same


def _names() -> bytes:
    """Return what ce-user prints (spank_plugin/programs/user.c) for a user of LDAP or SSSD.

    A start asks again, as no file shows whether the answer has changed.
    """
    try:
        person = pwd.getpwuid(os.getuid())
        fields = ["=", person.pw_name, person.pw_gecos, person.pw_dir, person.pw_shell]
    except KeyError:
        fields = ["-"]
    try:
        fields += ["=", grp.getgrgid(os.getgid()).gr_name]
    except KeyError:
        fields.append("-")
    if any("\n" in text for text in fields):
        raise ValueError("a name with a newline")
    return "".join(f"{text or ''}\n" for text in fields).encode("utf-8", "surrogateescape")


def _line(path: str, number: str) -> list[str]:
    """Return the fields of the first line with the ID `number`, [] if there is none."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(":")
            if fields[2:3] == [number]:
                return fields
    return []


def _are_files_first() -> bool:
    """Check that no other source of users and groups is asked before the files."""
    try:
        with open("/etc/nsswitch.conf", encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except FileNotFoundError:
        return True
    first = {line[0]: line[1] for line in words if len(line) > 1}
    return all(first.get(f"{base}:", "files") == "files" for base in ("passwd", "group"))


# ---- the memo ---------------------------------------------------------------------------------


def name_of(prefix: str, node: Mapping[str, str], text: str) -> str:
    """Return the file name of the memo.

    Two starts with the same name only cost time: the memo has the whole plan, which is compared.
    """
    plan = os.fsencode(text)
    values = (f"={node[name]}" if name in node else "-" for name in env.LAUNCHERS)
    key = b"".join(os.fsencode(word) + b"\0" for word in (prefix, *values))
    return f"{crc32(plan, crc32(key)):08x}.{len(plan)}"


def _fields(
    text: str,
    plan: NodePlan,
    prefix: str,
    conditions: _Conditions,
    started: Started,
    of_hooks: Sequence[str] | None,
) -> Iterator[bytes]:
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        boot = file.read().strip()
    # supplementary groups, too, decide which files the user may read
    ids = " ".join(map(str, (os.geteuid(), os.getegid(), *os.getgroups())))
    variables = {"image": [*plan.image_env], "edf": [entry["name"] for entry in plan.env]}
    if of_hooks is not None:
        variables["hooks"] = [*of_hooks]
    uses = filter(None, map(image_in_use.record_of, plan.image_paths))
    yield from map(field, (__version__, prefix, os.uname().nodename, boot, ids))
    yield data(conditions.names)
    yield from table([word for pair in conditions.variables.items() for word in pair], 2)
    yield field(text)
    yield from table([word for pair in conditions.aspects.items() for word in pair], 2)
    yield from map(data, (started.specification, started.block, started.records))
    yield field(started.workdir)
    yield field(str(round(plan.start_timeout_s * 1000)))
    yield from table([word for pair in uses for word in pair], 2)
    yield from table(conditions.ports)
    # that no further hook applies is among the variables
    yield from about_step(plan, (), variables)
    yield field("end")
