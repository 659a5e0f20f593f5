"""Launchers from package indexes, as their own documentation says, with containers on two nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import sif
from tests.launchers.tools import installed, vetnode_suite
from tests.launchers.user import PAGES, PROGRAMS, SAY, tasks, two_nodes

if TYPE_CHECKING:
    from tests.launchers.user import User


@pytest.mark.parametrize("way", ["options", "environment", "variable"])
def test_submitit_runs_a_function_in_a_container(user: User, way: str) -> None:
    env, words = {}, []
    if way == "options":
        mounts = user.mounts("submitit")
        words = [f"--container-image={user.image}", f"--container-mounts={mounts}"]
    elif way == "environment":
        words = [f"--environment={user.environment('submitit')}"]
    else:
        env = {"CE_ENVIRONMENT": user.environment("submitit")}
    assert tasks(user.python("submitit", "submitit_job.py", *words, env=env)) == two_nodes()


def test_submitit_runs_a_function_in_an_environment_described_in_python(user: User) -> None:
    user.from_page("submitit_engine.py")
    mounts = user.mounts("submitit").split(",")
    out = user.python("submitit", "engine_submitit_job.py", str(user.image), *mounts, engine=True)
    assert tasks(out) == two_nodes()


def test_nemo_run_submits_a_script_in_an_environment_described_in_python(user: User) -> None:
    user.from_page("nemo_engine.py")
    env = {"NEMORUN_HOME": str(user.directory / "nemo")}
    words = (str(user.image), str(user.directory))
    user.python("nemo-run", "engine_nemo_job.py", *words, env=env, engine=True)
    user.wait_for_jobs()
    assert tasks(user.files("*.out")) == two_nodes(), user.files("*")


def test_hydra_launches_its_jobs_in_containers(user: User) -> None:
    env = {"CE_ENVIRONMENT": user.environment("submitit"), "REPORTS": str(user.directory)}
    sweep = (
        "--multirun",
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.timeout_min=10",
        "+x=1,2",
    )
    user.python("submitit", "hydra_app.py", *sweep, "hydra.launcher.mem_gb=null", env=env)
    for number in "12":
        assert [one[2] for one in tasks(user.files(number))] == ["ce-demo"]


def test_torchx_which_can_pass_nothing_heeds_the_variable(user: User) -> None:
    # the sandbox's Slurm has no accounting, without which torchx cannot ask for a job's state
    user.command("sacct", "echo 'JobID|JobName|State'")
    env = {"CE_ENVIRONMENT": user.environment("torchx")}
    torchx = str(installed("torchx") / "bin/torchx")
    words = ("run", "--scheduler", "slurm", "-cfg", "partition=sandbox,nomem=true,time=10")
    user.run(torchx, *words, "utils.sh", "--num_replicas", "2", *SAY, env=env)
    user.wait_for_jobs()
    assert {one[1:] for one in tasks(user.files("slurm-*.out"))} == {
        ("n1", "ce-demo"),
        ("n2", "ce-demo"),
    }


def test_nemo_run_submits_a_script_in_a_container(user: User) -> None:
    env = {"NEMORUN_HOME": str(user.directory / "nemo")}
    user.python("nemo-run", "nemo_job.py", str(user.image), str(user.directory), env=env)
    user.wait_for_jobs()
    assert tasks(user.files("*.out")) == two_nodes(), user.files("*")


def test_parsl_starts_its_workers_in_containers(user: User, stub: Path) -> None:
    words = f"--container-image={stub} --container-mounts={user.mounts('parsl')}"
    words += " --container-env=PATH"
    out = user.python("parsl", "parsl_job.py", words)
    assert {one[1:] for one in tasks(out)} == {("n1", "ce-demo"), ("n2", "ce-demo")}


def test_dask_jobqueue_starts_its_workers_in_containers(user: User) -> None:
    environment = user.environment("dask")
    python = f"srun --nodes=1 --ntasks=1 --environment={environment} {installed('dask')}/bin/python"
    assert [one[2] for one in tasks(user.python("dask", "dask_job.py", python))] == ["ce-demo"] * 2


@pytest.mark.parametrize("check_file", ["reframe_check.py", "engine_reframe_check.py"])
def test_reframe_passes_a_check_in_an_environment(user: User, check_file: str) -> None:
    user.from_page("reframe_engine.py")
    environment = user.environment("reframe")
    settings = user.directory / "settings.py"
    settings.write_text((PROGRAMS / "reframe_settings.py").read_text())
    check = user.directory / "check.py"
    check.write_text((PROGRAMS / check_file).read_text())
    words = ("-C", str(settings), "-c", str(check), "-S", f"environment={environment}", "--run")
    out = user.run(str(installed("reframe") / "bin/reframe"), *words, env=user.with_engine({}))
    assert re.search(r"Ran 1/1 test case\(s\).*\(0 failure", out), out


def test_snakemake_runs_its_rules_in_the_containers_that_they_name(user: User) -> None:
    image = sif.make(user.directory / "demo.sif", user.image, sif.ARCHITECTURES[os.uname().machine])
    for place in (image, user.image):
        (user.directory / "Snakefile").write_text(_SNAKEFILE.replace("IMAGE", str(place)))
        snakemake = str(installed("snakemake") / "bin/snakemake")
        out = user.run(snakemake, "--cores", "2", "--sdm", "apptainer", "--forceall")
        lines = (user.directory / "all.txt").read_text()
        assert lines == f"ce-demo 1 {user.directory}\nce-demo 2 {user.directory}\n", out


_SNAKEFILE = """\
rule all:
    input: "all.txt"
rule part:
    output: "part-{n}.txt"
    container: "IMAGE"
    shell: "(. /etc/os-release; echo $ID {wildcards.n} $HOME) > {output}"
rule join:
    input: expand("part-{n}.txt", n=[1, 2])
    output: "all.txt"
    container: "IMAGE"
    shell: "cat {input} > {output}"
"""


def test_cwltool_runs_its_tool_in_a_container_that_has_its_files_alone(user: User) -> None:
    (user.directory / "words.txt").write_text("words of a file\n")
    (user.directory / "tool.cwl").write_text(_TOOL.replace("IMAGE", str(user.image)))
    words = ("--singularity", "tool.cwl", "--words", "words.txt")
    out = user.run(str(installed("cwltool") / "bin/cwltool"), *words, env={"LEFT": "out"})
    lines = (user.directory / "said.txt").read_text().splitlines()
    assert lines[:3] == ["ce-demo", "words of a file", "no LEFT"], out
    assert lines[3] == lines[4], out  # its home is where it runs
    assert lines[5] == "only lo", out


_TOOL = """\
cwlVersion: v1.2
class: CommandLineTool
baseCommand: [sh, -c]
arguments:
  - position: 0
    shellQuote: false
    valueFrom: >-
      . /etc/os-release; echo $ID; cat $0; printenv LEFT || echo no LEFT; pwd; echo $HOME;
      echo only `ls /sys/class/net`
requirements:
  DockerRequirement: {dockerImageId: IMAGE}
inputs:
  words: {type: File, inputBinding: {position: 1}}
outputs:
  said: {type: stdout}
stdout: said.txt
"""


def test_vetnode_tells_good_nodes_from_bad_ones(user: User) -> None:
    """Its processes meet on the first node, whose name `scontrol` tells them in the container."""
    suite, hosts = user.directory / "suite.yaml", user.directory / "hosts"
    suite.write_text(vetnode_suite("n1"))
    hosts.write_text("127.0.0.1 localhost n1 n2\n")  # both nodes are one host here
    environment = Path(user.environment("vetnode"))
    with environment.open("a") as file:
        file.write('[annotations]\ncom.hooks.slurm.enabled = "true"\n')
    options = f"-N2 --environment={environment} --container-mounts={hosts}:/etc/hosts"
    vetnode = f"{installed('vetnode')}/bin/vetnode diagnose --verbose {suite}"
    out = user.run("sh", "-c", f"srun {options} {vetnode} || echo srun: $?")
    assert "-0: Vetted]" in out, out
    assert "-1: Cordon]" in out, out
    assert "srun: 1\n" in out, out


def test_a_squashfs_of_tools_serves_images_with_and_without_python(user: User) -> None:
    tree, from_packages = user.directory / "tools", installed("tools")
    shutil.copytree(next(from_packages.glob("lib/python3*/site-packages")), tree)
    shutil.copytree(from_packages / "bin", tree / "bin", dirs_exist_ok=True, symlinks=True)
    shutil.copy(PROGRAMS / "gpus.py", tree)
    image = user.cluster.image
    mounts = f"{user.directory}/tools.sqsh:/opt/tools:sqsh,{image('demo')}:/opt/python:sqsh"
    user.run(str(user.cluster.prefix / "bin/ce"), "pack", str(tree), f"{user.directory}/tools.sqsh")
    for name in ("demo", "busybox", "musl"):
        srun = f"srun --container-image={image(name)} --container-mounts={mounts}"
        out = user.run("sh", "-c", f"L={_LIBRARIES}; {srun} {_PYTHON} /opt/tools/gpus.py")
        assert "no GPUs: NVML Shared Library Not Found\n" in out, out
        assert "py-spy 0.4.3\n" in user.run("sh", "-c", f"{srun} /opt/tools/bin/py-spy --version")


# of the image that is mounted, with its own loader
_LIBRARIES = f"/opt/python/usr/lib/{os.uname().machine}-linux-gnu"
_PYTHON = "$L/ld-linux-x86-64.so.2 --library-path $L /opt/python/usr/bin/python3"


def test_skypilot_finds_pyxis_and_starts_its_nodes(user: User, stub: Path) -> None:
    """Its first command is apt-get, which the image has a stand-in for."""
    env = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    out = user.python("skypilot", "sky_job.py", str(stub), str(user.directory), env=env)
    assert "pyxis True\n" in out
    assert tasks(out) == two_nodes(), out
    assert out.count("as 0\n") == out.count("stub: apt-get install -y ca-certificates") == 2
    assert (user.directory / "kept.sqsh").exists()


def test_ray_has_a_node_in_a_container_on_each_of_two_nodes(user: User, stub: Path) -> None:
    script = user.directory / "ray.sh"
    (user.directory / "ray_job.py").write_text((PROGRAMS / "ray_job.py").read_text())
    script.write_text(_RAY)
    env = {
        "IMAGE": str(stub),
        "MOUNTS": user.mounts("ray"),
        "RAY": str(installed("ray") / "bin"),
        "HERE": str(user.directory),
    }
    out = user.run("salloc", "-N2", "-n2", "bash", str(script), env=env)
    assert "nodes 2\n" in out
    assert tasks(out) == two_nodes()


# As Ray's page on Slurm does, with a container of each node that the steps share by its name.
_RAY = """\
set -eu
started() {
    until grep -qs 'Ray runtime started' "$1"; do
        kill -0 $! || { cat "$1"; exit 1; }
        sleep 0.5
    done
}
export RAY_TMPDIR=/tmp/ray RAY_ADDRESS=127.0.0.1:6379 PYTHONUNBUFFERED=1
# both nodes are one host here: no fixed ports
ports=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0)
options=(--container-name=ray "--container-mounts=$MOUNTS" --container-writable --overlap -N1 -n1)
srun -w n1 --container-image="$IMAGE" "${options[@]}" "$RAY/ray" start --head --block \\
    --node-ip-address=127.0.0.1 --port=6379 --include-dashboard=false --num-cpus=2 \\
    --resources='{"head": 1}' \\
    --object-store-memory=80000000 "${ports[@]}" >"$HERE/head" 2>&1 &
started "$HERE/head"
srun -w n2 --container-image="$IMAGE" "${options[@]}" "$RAY/ray" start --block \\
    --address=127.0.0.1:6379 --node-ip-address=127.0.0.2 --num-cpus=2 \\
    --resources='{"worker": 1}' \\
    --object-store-memory=80000000 "${ports[@]}" >"$HERE/worker" 2>&1 &
started "$HERE/worker"
srun -w n1 --container-name=ray:exec --overlap -N1 -n1 "$RAY/python" "$HERE/ray_job.py"
kill $(jobs -p)
wait || true
"""


def test_a_pod_fits_the_schema_of_kubernetes(tmp_path: Path) -> None:
    edf = ["image = 'u'", "mounts = ['/a:/a:ro', 'tmpfs:/t:size=1g']", "workdir = '/a'"]
    edf += ["devices = ['nvidia.com/gpu=all']", "[env]", "N = '1'", "MY_TOKEN = 'hidden'"]
    (tmp_path / "train.toml").write_text("\n".join(edf))
    words = ("export", "kubernetes", str(tmp_path / "train.toml"), "--", "sh", "-c", "echo $N")
    with (tmp_path / "pod.yaml").open("w") as pod:
        subprocess.run([sys.executable, "-m", "container_engine", *words], stdout=pod, check=True)
    judge = installed("kubernetes") / "bin/kubernetes-validate"
    argv = [str(judge), "--strict", str(tmp_path / "pod.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "passed for resource pod/train" in done.stdout + done.stderr
    assert done.returncode == 0


def test_mini_swe_agent_runs_its_commands_in_a_sandbox(user: User) -> None:
    user.from_page("ce_agent.py", "agents.md")
    edf = _agent_environment(user)
    edf.write_text(edf.read_text().replace('memory_limit = "2g"', 'memory_limit = "300m"'))
    out = user.python("mini-swe-agent", "agent_job.py", str(edf), env={"SECRET": "x"})
    [line] = re.findall(r"^RESULT (.*)$", out, re.M)
    found = json.loads(line)
    assert found["result"] == {"exit_status": "Submitted", "submission": "done\n"}, found
    made, sandbox, late, large, again = found["seen"]
    assert (made["raw_output"], made["returncode"]) == ("/work\n", 0)
    *seen, denied = sandbox["raw_output"].strip().splitlines()
    assert seen == ["kept", "ls: cannot access '/sys/class/net': No such file or directory", "0"]
    assert "Read-only file system" in denied
    assert late["returncode"] == 124
    # the limit ended the container; the next command has a new one
    assert large["returncode"] == 137
    assert '"limit": "memory"' in large["exception_info"]
    assert "more than the 300 MiB of com.ce.memory_limit" in large["raw_output"]
    assert "No such file" in again["raw_output"]
    # no command is tried where no container can be started
    assert "there is no container: ce: error: " in found["refused"]
    assert "nosuch" in found["refused"]


def test_mini_mends_a_repository_as_the_page_says(user: User) -> None:
    user.from_page("ce_agent.py", "agents.md")
    _agent_environment(user, "${REPO}")
    user.run("mkdir", "repo")
    commands = ["pwd; echo mended >test", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    outputs = [
        {"role": "assistant", "content": "next", "extra": {"actions": [{"command": one}]}}
        for one in commands
    ]
    model = {"model": {"model_name": "none", "model_class": "deterministic", "outputs": outputs}}
    (user.directory / "model.yaml").write_text(json.dumps(model))
    env = {
        "EDF_PATH": str(user.directory),
        "MSWEA_CONFIGURED": "true",  # else it asks for a model
        "MSWEA_GLOBAL_CONFIG_DIR": str(user.directory / "config"),
        "PATH": f"{installed('mini-swe-agent')}/bin:{user.path()}",
    }
    [line] = re.findall(r"^\$ (PYTHONPATH=\. mini .*)$", (PAGES / "agents.md").read_text(), re.M)
    out = user.run("sh", "-c", f"{line} -c model.yaml --yolo --exit-immediately", env=env)
    assert "/work" in out, out
    assert (user.directory / "repo/test").read_text() == "mended\n", out


def test_results_of_an_agent_stay_where_the_page_says(user: User) -> None:
    edf = _agent_environment(user, "${RESULTS}")
    ce, env = str(user.cluster.prefix / "bin/ce"), {"RESULTS": str(user.directory)}
    script = "pwd; touch own; echo found >/results/found"
    assert user.run(ce, "run", str(edf), "--", "sh", "-c", script, env=env) == "/work\n"
    assert (user.directory / "found").read_text() == "found\n"
    assert not (user.directory / "own").exists()


def _agent_environment(user: User, variable: str = "") -> Path:
    """Write the page's environment, with those of its mounts that have a variable."""
    text = (PAGES / "agents.md").read_text()
    [edf] = re.findall(r"^```toml\n(# ~/.edf/agent.toml\n.*?)^```$", text, re.M | re.S)
    [in_sandbox] = re.findall(r"`(base_environment = .*?)` instead of `image`", text)
    edf = re.sub(r"^image = .*$", in_sandbox, edf, flags=re.M)
    if variable:
        [mounts] = set(re.findall(rf"`(mounts = [^`]*{re.escape(variable)}[^`]*)`", text))
        edf = re.sub(r"^mounts = .*$", mounts, edf, flags=re.M)
    path = user.directory / "agent.toml"
    path.write_text(edf)
    path.chmod(0o644)
    return path
