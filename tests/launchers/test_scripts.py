"""Others' scripts for pyxis, unchanged: each run.sub and ray.sub below CE_LAUNCHER_SCRIPTS."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.launchers import stub_image
from tests.launchers.user import tasks
from tests.slurm.cluster import ALICE
from tests.slurm.polling import until

if TYPE_CHECKING:
    from tests.launchers.user import User

_GIVEN = os.environ.get("CE_LAUNCHER_SCRIPTS", "")
_SCRIPTS = sorted(Path(_GIVEN).resolve().rglob("run.sub")) if _GIVEN else []
_CLUSTERS = sorted(Path(_GIVEN).resolve().rglob("ray.sub")) if _GIVEN else []
_NODES, _TASKS = 2, 2
# What a submission's config_*.sh sets, for a machine of this size.
_SETTINGS = {
    "DGXSYSTEM": "sandbox",
    "DGXNNODES": f"{_NODES}",
    "DGXRUNNODES": f"{_NODES}",
    "DGXNGPU": f"{_TASKS}",
    "BATCHSIZE": "1",
    "LOCAL_BATCH_SIZE": "1",
    "MODEL_SIZE": "8b",
    "NEXP": "1",
    "API_LOGGING": "0",
    "WALLTIME": "10",
    "WALLTIME_RUNANDTIME": "10",
    "WORK_DIR": stub_image.WORKDIR,
    "DROPCACHE_CMD": "true",
    "GIT_COMMIT_ID": "none",
    "LAUNCHER_GIT_COMMIT_ID": "none",
    "BASE_COMP_CLOCK": "1",
    "BASE_MEM_CLOCK": "1",
}
# Directories with data, which a submission names each in its own way.
_DATA = (
    "DATADIR",
    "DATA_DIR",
    "GRAPH_DIR",
    "DATAROOT",
    "BACKBONE_DIR",
    "OPEN_IMAGES_V6_DIR",
    "STAGING_DIR",
    "CHECKPOINTS",
)


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda path: str(path.parent.relative_to(_GIVEN)))
def test_a_script_for_pyxis_runs_as_it_is(user: User, stub: Path, script: Path) -> None:
    copy, data, logs = (user.directory / name for name in ("script", "data", "results"))
    shutil.copytree(script.parent, copy)
    (data / "8b/tokenizer").mkdir(parents=True)
    (data / "8b/tokenizer/model").write_text("data\n")
    logs.mkdir()
    for path in (copy, data, logs, *copy.rglob("*"), *data.rglob("*")):
        os.chown(path, *pwd.getpwnam(ALICE)[2:4], follow_symlinks=False)
    user.command("nvidia-smi", "echo no GPU")
    user.command("sudo", 'echo "not done: $*"')
    env = {
        **_SETTINGS,
        **dict.fromkeys(_DATA, str(data)),
        "CONT": str(stub),
        "LOGDIR": str(logs),
        "ABSLOGDIR": str(logs),
    }
    log = user.directory / "log"
    batch = (
        "sbatch",
        "--wait",
        f"-N{_NODES}",
        "--time=10",
        f"--output={log}",
        "--chdir",
        str(copy),
    )
    try:
        user.run(*batch, str(copy / "run.sub"), env=env, timeout=590)
    finally:
        text = log.read_text(errors="replace") if log.exists() else ""
        print(text)
    # some submissions have a task for each GPU, some one for each node
    reported = tasks(text)
    total = len(reported)
    assert total in (_NODES, _NODES * _TASKS)
    assert [one[0] for one in reported] == [str(number) for number in range(total)]
    assert {one[1:] for one in reported} == {("n1", "ce-demo"), ("n2", "ce-demo")}
    written = sorted(path.read_text() for path in logs.rglob("task-*"))
    assert written == [f"{number} of {total}\n" for number in range(total)]
    assert "ce: error" not in text


@pytest.mark.parametrize("script", _CLUSTERS, ids=lambda path: str(path.parent.relative_to(_GIVEN)))
def test_a_script_that_starts_ray_can_be_attached_to(user: User, stub: Path, script: Path) -> None:
    """Without a command the script of NeMo-RL waits, and writes one that joins its containers."""
    shutil.copy(script, user.directory / "ray.sub")
    units = user.directory / "units"
    units.mkdir()
    os.chown(units, *pwd.getpwnam(ALICE)[2:4])
    env = {
        "CONTAINER": str(stub),
        "MOUNTS": str(user.directory),
        "STUB_UNITS": str(units),
        "GPUS_PER_NODE": "1",
        "CPUS_PER_WORKER": "2",
        "COMMAND": "",
    }
    # options that a user of the script fills in there
    own = ("--account=none", "--partition=sandbox", f"-N{_NODES}", "--output=log")
    job = user.run("sbatch", "--parsable", *own, "ray.sub", env=env).strip()
    attach = user.directory / f"{job}-attach.sh"
    try:
        until("the script that attaches", attach.exists, 300)
        said = [
            user.run("bash", str(attach), *which, env={"COMMAND": stub_image.REPORT})
            for which in ((), ("1",))
        ]
    finally:
        print(user.files("*log*"))
    assert [tasks(one)[0][1:] for one in said] == [("n1", "ce-demo"), ("n2", "ce-demo")]
    # a step in the container of `ray start` sees what that left; no other container has it
    assert ["started here" in one for one in said] == [True, True]
    assert sorted(path.name for path in units.iterdir()) == ["n1", "n2"]
    assert "ce: error" not in user.files("*log*")
