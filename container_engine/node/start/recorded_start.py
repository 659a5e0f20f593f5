"""Record how a step started its container, for the next step with the same plan.

The next step starts no Python: ce-guard takes the answer (spank_plugin/guard/step_answers.h has the
format of its result), and becomes the launcher if anything is in doubt. Before the answer is
written, all files on which the start depends are looked at, and the start is decided a second time,
which records the variables of the step that it asks for: the answer is written only if the result
is the same and no file has just changed. It is for this node and belongs to the user. It cannot
give the user any power: users can have the guard do all that it contains.
"""

from __future__ import annotations

import grp
import os
import pwd

from container_engine.base import answers
from container_engine.base.errors import LaunchError
from container_engine.base.files import open_place
from container_engine.base.variables import OF_TASKS
from container_engine.node import slurm_step
from container_engine.node.container.description import HOSTS_FILES, answers_place, searched
from container_engine.node.container.environment import parse_block
from container_engine.node.node_plan import DEFERRED, OF_STEPS
from container_engine.node.report import trace
from container_engine.node.report.messages import may_be_secret, secret_stems
from container_engine.node.start import image_in_use, site_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.checks import Resolved
    from container_engine.node.container.description import NodeMount
    from container_engine.node.container.edits import Repeatable
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.start.container import Started

# the most answers of one user, each with a whole plan
_MOST = 16
# in a plan: a secret that is new for each launch
_NOT_AGAIN = '"secret":"'
# the launcher makes their values, or takes them away (slurm_step.py)
_OF_LAUNCHER = ("SLURMD_NODENAME", *OF_TASKS)
_PORT = "MASTER_PORT"


def record(
    text: str, plan: NodePlan, node: Mapping[str, str], libexec: str, started: Started
) -> None:
    """Write the answer of a start if the next one with this plan can do without Python.

    `text` is the plan as it arrived. An answer that cannot be written is not an error.
    """
    try:
        here = started.here
        hooks = started.hooks() if _is_plain(text, plan, here.mounts) else None
        if hooks is None:
            return
        questions = (*_questions(plan, here, libexec), *hooks.asked)
        states = {question: answers.state(question) for question in questions}
        witnesses = {**_user(), **answers.installation(), **states, **started.verdicts}
        if not answers.can_be_checked(witnesses):
            return
        found = _decided_again(started, hooks, node)
        if found is None:
            return
        variables, places = found
        if _have_secret(variables, plan):
            return
        prefix = os.path.dirname(os.path.dirname(libexec))
        request = answers.request_of(prefix, text.encode("utf-8", "surrogateescape"))
        if plan.entrypoint and not _leaves_the_same(plan, request, witnesses, places):
            return
        result = _result(plan, started, hooks.names, places.found)
        place = open_place(answers_place("starts"))
        answers.write(place, request, {**variables, **witnesses}, result, _MOST)
    except (OSError, ValueError, LaunchError):
        return


def _is_plain(text: str, plan: NodePlan, mounts: Sequence[NodeMount]) -> bool:
    """Check that ce-guard can do all that a start with this plan, and its `mounts`, needs."""
    return (
        os.geteuid() != 0
        and not (plan.by_podman or plan.kept or plan.shows_entrypoint_output)
        # the launcher's steps have variables of the node then (slurm_step.py)
        and not (plan.startup and DEFERRED in text)
        and not (plan.tracking_tool or plan.hooks_dirs or plan.on_nodes or plan.passing)
        and not plan.checks_again
        and _NOT_AGAIN not in text
        and plan.save is None
        and not any(
            _is_below(mount.source, "/dev/") or _is_below(mount.target, "/proc/", "/sys/")
            for mount in mounts
        )
        and not may_be_secret(trace.mount_texts(plan.mounts), plan.secrets, {})
    )


def _is_below(path: str, *directories: str) -> bool:
    # normpath leaves two slashes at the beginning
    return f"/{os.path.normpath(path).lstrip('/')}/".startswith(directories)


def _have_secret(variables: Mapping[str, str], plan: NodePlan) -> bool:
    """Check whether the value of a variable that may be a secret would be written."""
    stems = secret_stems(plan.secrets)
    return any(
        state[:1] == "=" and any(stem in question.upper() for stem in stems)
        for question, state in variables.items()
    )


# ---- the port of a step ---------------------------------------------------------------------


class Places:
    """The bytes of some texts that are the value of a variable with the port."""

    def __init__(self, texts: Mapping[str, bytes], variable: str, port: str) -> None:
        """Find them. Each text has a letter, and each place is that letter and an offset."""
        self._texts, self._size = texts, len(port)
        self.found: list[str] = []
        wanted = f"{variable}={port}".encode()
        for letter, text in texts.items():
            at = text.find(wanted)
            while port and at >= 0:
                self.found.append(f"{letter}{at + len(wanted) - self._size}")
                at = text.find(wanted, at + 1)

    def with_port(self, port: str) -> dict[str, bytes]:
        """Return the texts with another port of as many digits."""
        texts = {letter: bytearray(text) for letter, text in self._texts.items()}
        for place in self.found:
            at = int(place[1:])
            texts[place[0]][at : at + self._size] = port.encode()
        return {letter: bytes(text) for letter, text in texts.items()}


# ---- what a start asks ------------------------------------------------------------------------


def _decided_again(
    started: Started, hooks: Repeatable, node: Mapping[str, str]
) -> tuple[dict[str, str], Places] | None:
    """Return witnesses about the step's variables, and the places of its port in the texts.

    The port of the step is none of those variables, since it is another one in each step. Return
    None unless a second decision, with another port, has the same result but for the port. Raise
    LaunchError, and ValueError or KeyError for a step without numbers.
    """
    texts = {"s": started.specification, "b": started.block, "r": started.records}
    places = Places(texts, _PORT, hooks.port)
    aside = slurm_step.next_step(node) if hooks.port else node
    port = slurm_step.port(aside) if hooks.port else ""
    expected = places.with_port(port)
    variables = answers.Variables(node, aside)
    if any(name in variables for name in OF_STEPS):
        return None
    specification, records, again = started.again(variables, expected["b"])
    if (specification, records) != (expected["s"], expected["r"]) or variables.are_all:
        return None
    same = again is not None and (again.asked, again.port) == (hooks.asked, port)
    if not same or any(f"v{name}" in variables.asked for name in _OF_LAUNCHER):
        return None
    return variables.asked, places


def _leaves_the_same(
    plan: NodePlan, request: bytes, witnesses: answers.Witnesses, places: Places
) -> bool:
    """Check that the entrypoint left this environment in the start before, and note it.

    If it leaves ever others, ce-guard must not try: the launcher would run it once more.
    """
    block = places.with_port("0" * len(slurm_step.port({})))["b"]
    known = {*plan.image_env, *(entry["name"] for entry in plan.env)}
    if _have_secret({f"v{name}": "=" for name in parse_block(block) if name not in known}, plan):
        return False
    before = b"entrypoint\0" + request
    here = open_place(answers_place("starts"))
    found = answers.read(f"/proc/self/fd/{here}", before)
    same = found is not None and found[1] == block
    if not same:
        answers.forget(answers_place("starts"), request)
    answers.write(here, before, witnesses, block, _MOST)
    return same


def _questions(plan: NodePlan, here: Resolved, libexec: str) -> list[str]:
    """Return the questions (base/answers.py) about files that a start depends on."""
    crun = searched(plan.runtime or "crun", libexec)
    programs = (*crun, *searched(plan.podman or "podman"))
    own = [
        f"{libexec}/{name}"
        for name in ("launcher", "ce-guard", "ce-image", "ce-init", "ce-enter", "ce-user")
    ]
    return [
        *(f"f{path}" for path in plan.image_paths),
        *(f"f{mount.source}" for mount in here.mounts if mount.kind == "squashfs"),
        *(f"p{mount.source}" for mount in here.mounts if mount.kind == "bind"),
        *(f"d{device.name}" for device in here.devices if not device.cdi),
        *(f"f{path}" for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")),
        *(f"f{path}" for path in (*programs, *own)),
        *(f"f{path}" for path in site_rules.places(libexec)),
        *(f"e{path}" for path in (*HOSTS_FILES, "/dev/pts", "/dev/mqueue", f"{libexec}/ce-init")),
    ]


# ---- who the user is --------------------------------------------------------------------------


def _user() -> dict[str, str]:
    """Return a witness about who the user is, unless files that are witnesses themselves say it."""
    return {} if _is_user_from_files() else {"u": _names()}


def _is_user_from_files() -> bool:
    """Check that /etc/passwd and /etc/group name the user."""
    uid, gid = str(os.getuid()), str(os.getgid())
    person, group = _line("/etc/passwd", uid), _line("/etc/group", gid)
    if len(person) < 7 or len(group) < 3 or not _are_files_first():
        return False
    entry = pwd.getpwuid(int(uid))
    same = (entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell)
    return (person[0], *person[4:7]) == same


def _names() -> str:
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
    return "".join(f"{text or ''}\n" for text in fields)


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


# ---- the answer -------------------------------------------------------------------------------


def _startup(plan: NodePlan) -> Sequence[str]:
    if not plan.startup:
        return ()
    from container_engine.node.start import startup_steps

    return startup_steps.command(plan.startup, {})


def _result(
    plan: NodePlan, started: Started, of_hooks: Sequence[str] | None, ports: Sequence[str]
) -> bytes:
    variables = {"image": [*plan.image_env], "edf": [entry["name"] for entry in plan.env]}
    if of_hooks is not None:
        variables["hooks"] = [*of_hooks]
    uses = filter(None, map(image_in_use.record_of, plan.image_paths))
    return b"".join(
        (
            *map(answers.data, (started.specification, started.block, started.records)),
            answers.field(started.here.workdir),
            answers.field(str(round(plan.start_timeout_s * 1000))),
            answers.table([word for pair in uses for word in pair], 2),
            answers.table(ports),
            answers.table(_startup(plan)),
            trace.fields(plan, variables, started.checks),
        )
    )
