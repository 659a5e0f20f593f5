"""The launch plan: everything a launch does, decided once on the submit host, frozen, as JSON.

The node launcher reads the JSON with the standard library alone. Every part records its origin
(`from`: "file:line", or words if no file asked for it).
"""

import json
from typing import Annotated, Literal

from pydantic import Field

from container_engine.base.model import Array, Model, about
from container_engine.base.run_check import RunCheck
from container_engine.base.secrecy import WORDS
from container_engine.catalog.model import Additions, Check, Service
from container_engine.edf.model import Device, Mount, Text
from container_engine.site.model import Namespace

VERSION: Literal[1] = 1
_FROM = "file:line that asks for it, or words where no file does"


class Part(Model):
    """An image file. The files of one above others replace, hide or remove theirs."""

    path: Annotated[str, about("absolute path of a SquashFS file")]
    name: Annotated[str, about("the image as the user wrote it, variables expanded")]
    digest: Annotated[str | None, about("of the registry's manifest, sha256:…")] = None
    content: Annotated[str, about("of the SquashFS file, sha256:…; empty: not recorded")] = ""
    origin: Annotated[str, about(_FROM, alias="from")] = ""


class Image(Part):
    """The file system that a container starts from: a SquashFS file with its maker's settings.

    `env` always has a PATH. `entrypoint` is the image's, whether or not a launch runs it.
    """

    env: Annotated[dict[str, str], about("variables of the image")]
    entrypoint: Annotated[Array[str], about("what the image wants run first")] = ()
    workdir: Annotated[str | None, about("where the image wants commands to start")] = None
    source: Annotated[str, about("where env, entrypoint and workdir were read")] = ""
    left_out: Annotated[
        Array[str],
        about("names of variables of the image that are the user's to set, and are not used"),
    ] = ()
    passing: Annotated[str, about("a store that goes with the step; empty: the image stays")] = ""
    on_nodes: Annotated[
        bool,
        about("the submit host lacks the file: nodes read env and workdir themselves"),
    ] = False
    above: Annotated[Array[Part], about("images above it, the highest last")] = ()


class EnvEntry(Model):
    """A variable of the tasks; null removes it, whatever its source."""

    name: Annotated[str, about("name of the variable")]
    value: Annotated[Text | None, about("null: the variable is removed")]
    origin: Annotated[str, about(_FROM, alias="from")]


class StartupLine(Model):
    """A line of the key `startup`."""

    line: Annotated[Text, about("a line for a shell in the container")]
    origin: Annotated[str, about(_FROM, alias="from")]


class Run(RunCheck):
    """A check of the site or of the EDF."""

    origin: Annotated[str, about(_FROM, alias="from")] = ""


class HookUse(Additions):
    """A hook that is applied, with its data for the given parameters.

    Strings may contain `{node.NAME}`, which only the node fills in.
    """

    name: Annotated[str, about("name of the hook")]
    switch: Annotated[str, about('annotation that is "false" without the hook; empty: none')] = ""
    release: Annotated[str, about("of the hook's data")]
    file: Annotated[str, about("the hook.toml, the site's own where there is one")]
    reason: Annotated[str, about("why it is applied")]
    origin: Annotated[str, about(_FROM, alias="from")]
    parameters: Annotated[dict[str, str], about("checked, with defaults")]
    settings: Annotated[dict[str, str], about("the site's, filled in")] = Field(
        default_factory=dict
    )
    automatic_when: Annotated[
        Array[str] | None,
        about(
            "an automatic hook: NAME or NAME=pattern of the step's environment, one of which "
            "must hold on the node; empty: always. null: not automatic"
        ),
    ] = None
    profile: Annotated[str, about("of the variables, where the hook has profiles")] = ""
    env: Annotated[
        dict[str, str | None],
        about("above the image's, below the EDF's; null removes a variable"),
    ] = Field(default_factory=dict)
    services: Annotated[Array[Service], about("programs in the container")] = ()
    code: Annotated[str, about("module of the engine for what data cannot say")] = ""
    checks: Annotated[Array[Check], about("looked at before the tasks start")] = ()
    runs: Annotated[Array[RunCheck], about("programs that must pass before the tasks start")] = ()


class Settings(Model):
    """Settings that the site has decided."""

    devices_if_there: Annotated[
        Array[str], about("devices of every container, where the node has them")
    ] = ()
    start_timeout_s: Annotated[float, about("limit for the start, in seconds", gt=0)] = 120
    tmpfs_size: Annotated[str, about("limit of what a container may write")] = "50%"
    hooks_dirs: Annotated[Array[str], about("directories of OCI hooks")] = ()
    podman: Annotated[str, about("path of Podman on the nodes; empty: by PATH")] = ""
    runtime: Annotated[str, about("path of crun on the nodes; empty: by PATH")] = ""
    trace_dir: Annotated[str, about("where traces are written; empty: nowhere")] = ""
    tracking_tool: Annotated[
        Array[str],
        about("program of the nodes that gets the trace of a step's first node"),
    ] = ()
    cdi_dirs: Annotated[Array[str], about("directories of CDI files, later ones win")] = ()
    user_cdi_dir: Annotated[str, about("the same, below a user's home; empty: none")] = ""
    allowed_devices: Annotated[Array[str], about("patterns of paths and CDI names")] = ("*",)
    root_remap: Annotated[bool, about("users are root in their containers")] = False
    unshare: Annotated[
        Array[Namespace],
        about("namespaces that the container does not share with the node"),
    ] = ()
    memory_limit: Annotated[str, about("memory of the container; empty: no limit")] = ""
    pids_limit: Annotated[int, about("its processes and threads; 0: no limit")] = 0
    time_limit_s: Annotated[float, about("seconds that it may run; 0: no limit")] = 0
    scope: Annotated[
        Literal["step", "task"],
        about("whether the tasks of a node share a container or have one each"),
    ] = "step"
    start: Annotated[
        Literal["crun", "podman"], about("what creates the container on the nodes")
    ] = "podman"
    secret_variables: Annotated[
        Array[str], about("patterns of words in names whose values are not shown")
    ] = WORDS
    stage: Annotated[
        Literal["none", "memory", "all"],
        about("whether the first step of a large job copies its images into the nodes' memory"),
    ] = "none"
    stage_nodes: Annotated[int, about("the nodes from which on a job is large for that")] = 64
    batch_script: Annotated[Literal["host", "inside"], about("where the script of sbatch runs")] = (
        "host"
    )


class KeptContainer(Model):
    """A container that lives with its job."""

    name: Annotated[str, about("as the user calls it; empty: by its environment")]
    key: Annotated[str, about("tells it from others of the job", pattern=r"^[0-9a-f]{16}$")]
    mode: Annotated[
        Literal["auto", "create", "exec", "no_exec"],
        about(
            "auto: join it, else go on with it, else make it; create: make it; exec: join it; "
            "no_exec: go on with it or make it"
        ),
    ] = "auto"
    directory: Annotated[str, about("of the nodes, below which it is kept")]


class LaunchPlan(Model):
    """One launch. The nodes receive it as JSON, which `ce plan --json` prints."""

    version: Annotated[Literal[1], about("of this format")] = VERSION
    engine: Annotated[str, about("version of the container engine that made the plan")]
    name: Annotated[str, about("the EDF as the user asked for it")]
    files: Annotated[Array[str], about("the EDF files, in the order of evaluation")]
    image: Annotated[Image, about("what the container starts from")]
    workdir: Annotated[Text, about("where commands start")]
    workdir_from: Annotated[str, about(_FROM)]
    writable: Annotated[bool, about("whether the file system can be written")] = True
    writable_from: Annotated[str, about(_FROM)] = "default"
    entrypoint: Annotated[Array[str], about("run before the tasks; empty: nothing")] = ()
    entrypoint_from: Annotated[str, about(_FROM)] = "default"
    mounts: Annotated[Array[Mount], about("in the order of mounting")] = ()
    devices: Annotated[Array[Device], about("that the container gets")] = ()
    env: Annotated[Array[EnvEntry], about("what the EDF says, sorted by name")] = ()
    annotations: Annotated[
        dict[str, str], about("for hooks and the OCI runtime, by dotted name")
    ] = Field(default_factory=dict)
    annotations_from: Annotated[dict[str, str], about(_FROM)] = Field(default_factory=dict)
    startup: Annotated[Array[StartupLine], about("run once per node before tasks")] = ()
    hooks: Annotated[Array[HookUse], about("in the order of application")] = ()
    runs: Annotated[Array[Run], about("checks of site and EDF that run a program")] = ()
    checks_again: Annotated[bool, about("no check is believed to pass because it has before")] = (
        False
    )
    kept: Annotated[
        KeptContainer | None,
        about("a container that lives with its job; null: it ends with its step"),
    ] = None
    settings: Annotated[Settings, about("what the site decided")] = Field(default_factory=Settings)
    settings_from: Annotated[dict[str, str], about(_FROM)] = Field(default_factory=dict)
    digest: Annotated[
        str, about("of the plan without this key; its user's home keeps the plan by this name")
    ] = ""

    def to_json(self) -> str:
        """Return the plan as one line of JSON.

        Bytes that are not UTF-8 (PEP 383) are kept, as escapes such as "\\udcff".
        """
        text = json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace").decode()
