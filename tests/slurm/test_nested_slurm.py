"""com.hooks.slurm: Slurm's programs in the container."""

import json
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster, Completed
from tests.slurm.forge import Forge
from tests.slurm.job import batch
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

HOST = platform.freedesktop_os_release()["ID"]
HOOK = '[annotations]\ncom.hooks.slurm.enabled = "true"\n'
SYSTEM = ". /etc/os-release; echo $ID"
# By this variable Slurm tells the programs in a job which environment it has.
OPTION = "SLURM_SPANK__SLURM_SPANK_OPTION_container_engine_environment"


@pytest.fixture(scope="session")
def inside(cluster: Cluster) -> str:
    """Return an environment with the demo image and the hook."""
    return cluster.edf(HOOK)


def test_slurms_programs_work_in_the_container(cluster: Cluster, inside: str) -> None:
    script = (
        "set -e; sinfo -h -o %N; squeue -h -j $SLURM_JOB_ID -o %u;"
        " scontrol show node n2 | grep -o NodeName=n2; sacct || true; sbatch --version; id -un"
    )
    done = cluster.srun("-N1", f"--environment={inside}", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["n[1-2]", ALICE, "NodeName=n2"]
    assert lines[3].startswith("slurm-wlm ")
    assert lines[4] == ALICE
    assert done.stderr == "Slurm accounting storage is disabled\n"


def test_without_the_hook_there_is_no_srun_in_the_container(cluster: Cluster, demo: str) -> None:
    done = cluster.srun("-N1", f"--environment={demo}", "srun", "true")
    assert done.returncode == 127
    assert "srun: command not found in the container" in done.stderr


_OF_AN_IMAGE = {
    "none": "A=1",
    "the host": "CE_INHERIT=no",
    "another environment": "CE_ENVIRONMENT=/tmp/none.toml",
    "another image": "PYXIS_CONTAINER_IMAGE=/tmp/none.sqsh",
    "an option of the job": f"{OPTION}=/tmp/none.toml",
    "its other name": f"{OPTION.removeprefix('SLURM_SPANK_')}=/tmp/none.toml",
    "other options of srun": "SLURM_MPI_TYPE=nonsense",
    "its container": "SRUN_CONTAINER=/tmp/none",
    "where environments are": "EDF_PATH=/tmp/none",
}


@pytest.mark.parametrize("said", _OF_AN_IMAGE.values(), ids=list(_OF_AN_IMAGE))
def test_an_image_does_not_say_where_later_steps_run(
    cluster: Cluster, shared: Path, said: str
) -> None:
    image = shared / "i.sqsh"
    image.write_bytes(cluster.image("demo").read_bytes())
    Path(f"{image}.json").write_text(json.dumps({"config": {"Env": [said, "MINE=1"]}}))
    edf = cluster.edf(f'image = "{image}"\n{HOOK}', image=None)
    script = shared / "job.sh"
    name = said.partition("=")[0]
    script.write_text(
        f"#!/bin/sh\nsrun -n1 sh -c '. /etc/os-release; echo $ID; echo ${{{name}}};"
        ' exec srun --overlap -n1 sh -c ". /etc/os-release; echo \\$ID \\$MINE"\'\n'
    )
    done = batch(cluster, f"--environment={edf}", f"--output={shared}/out", str(script))
    out = (shared / "out").read_text()
    assert done.returncode == 0, out
    first, value, last = out.splitlines()
    assert (first, last) == ("ce-demo", "ce-demo 1"), out
    assert value != said.partition("=")[2] or name == "A"


@pytest.mark.parametrize("image", ["demo", "busybox"])
def test_srun_inside_runs_on_the_host_and_in_any_environment(
    cluster: Cluster, demo: str, image: str
) -> None:
    """busybox is an image without any libc."""
    edf = cluster.edf(HOOK, image=image)
    nested = f"srun --overlap -n1 sh -c '{SYSTEM}'"
    again = f"srun --overlap -n1 --environment={demo} sh -c '{SYSTEM}'"
    done = cluster.srun("-N1", f"--environment={edf}", "sh", "-c", f"{SYSTEM}; {nested}; {again}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"ce-{image}", HOST, "ce-demo"]


def test_srun_inside_inherits_what_its_job_has_although_the_task_removed_it(
    cluster: Cluster, demo: str, inside: str
) -> None:
    nested = f"unset {OPTION}; srun --overlap -n1 sh -c '{SYSTEM}'; :"
    step = ["-N1", f"--environment={inside}", "sh", "-c", nested]
    done = cluster.srun(*step, env={OPTION: demo})
    assert (done.returncode, done.stdout) == (0, "ce-demo\n"), done.stderr


def test_srun_inside_reaches_the_other_nodes_of_the_job(
    cluster: Cluster, inside: str, demo: str
) -> None:
    nested = f"srun --overlap -N2 -n2 --environment={demo} sh -c 'echo $SLURMD_NODENAME'"
    script = f'if [ "$SLURM_PROCID" = 0 ]; then {nested}; fi'
    done = cluster.srun("-N2", "-n2", f"--environment={inside}", "sh", "-c", script)
    assert sorted(done.stdout.split()) == ["n1", "n2"], done.stderr


def test_srun_inside_works_in_each_component_of_a_heterogeneous_step(
    cluster: Cluster, inside: str
) -> None:
    """The components begin steps of the whole job, on both nodes."""
    nested = f"srun --overlap -N1 -n1 sh -c '{SYSTEM}'; squeue -h -j $SLURM_JOB_ID -o %u"
    component = ["-N1", "-n1", f"--environment={inside}", "sh", "-c", nested]
    done = cluster.run(["salloc", "-Q", "-N2", "-n2", "srun", *component, ":", *component])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted([HOST, ALICE] * 2)


def test_srun_inside_works_in_a_heterogeneous_job(
    cluster: Cluster, inside: str, shared: Path
) -> None:
    script = shared / "job.sh"
    nested = f"srun --overlap --het-group=1 -n1 sh -c '{SYSTEM}'"
    script.write_text(
        f"#!/bin/sh\n#SBATCH -N1 -n1 --environment={inside}\n#SBATCH hetjob\n#SBATCH -N1 -n1\n"
        'srun -n1 sh -c "$NESTED"\n'
    )
    done = batch(cluster, f"--output={shared}/out", str(script), env={"NESTED": nested})
    out = (shared / "out").read_text()
    assert done.returncode == 0, out
    assert out == "ce-demo\n"  # the environment of the job


def test_an_environment_that_does_not_exist_is_refused_inside_as_outside(
    cluster: Cluster, inside: str
) -> None:
    nested = ["srun", "--overlap", "--environment=no-such-thing", "true"]
    outside = cluster.srun("-N1", "--environment=no-such-thing", "true")
    done = cluster.srun("-N1", f"--environment={inside}", *nested)
    assert done.returncode == outside.returncode == 125
    assert outside.stderr.splitlines()[0] in done.stderr.splitlines()


def test_a_container_that_cannot_be_written_has_slurms_programs(
    cluster: Cluster, demo: str
) -> None:
    edf = cluster.edf("writable = false\n" + HOOK)
    nested = ["srun", "--overlap", "-n1", f"--environment={demo}", "sh", "-c", SYSTEM]
    done = cluster.srun("-N1", f"--environment={edf}", *nested)
    assert (done.returncode, done.stdout) == (0, "ce-demo\n"), done.stderr


def test_sbatch_reads_a_script_that_only_the_container_has(
    cluster: Cluster, inside: str, shared: Path
) -> None:
    output = shared / "output"
    script = (
        "printf '#!/bin/sh\\n. /etc/os-release; echo $ID\\n' > /tmp/only-here;"
        f" sbatch -Q --wait -o {output} /tmp/only-here"
    )
    done = cluster.srun("-N1", f"--environment={inside}", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert output.read_text() == f"{HOST}\n"


def test_scancel_inside_ends_another_job(cluster: Cluster, inside: str) -> None:
    job = cluster.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1000"])
    number = job.stdout.strip()
    done = cluster.srun("-N1", f"--environment={inside}", "scancel", number)
    assert (done.returncode, done.stderr) == (0, "")
    state = ["squeue", "-h", "-j", number, "-t", "R,PD", "-o", "%T"]
    until("the end of the job", lambda: cluster.run(state).stdout == "")


def test_users_that_the_image_does_not_know_have_their_names(cluster: Cluster, inside: str) -> None:
    job = cluster.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 1000"], user=BOB)
    query = f"squeue -h -j {job.stdout.strip()} -o %u; grep -c {BOB} /etc/passwd"
    done = cluster.srun("-N1", f"--environment={inside}", "sh", "-c", query)
    cluster.run(["scancel", job.stdout.strip()], user=BOB)
    assert done.stdout.split() == [BOB, "0"]


def test_libraries_of_the_image_are_not_loaded_by_slurms_programs(
    cluster: Cluster, shared: Path
) -> None:
    """LD_LIBRARY_PATH, which images for GPUs set, is for tasks; srun passes it on unchanged."""
    for name in ("libslurmfull.so", "libmunge.so.2", "libc.so.6"):
        (shared / name).write_text("not a library")
    text = f'mounts = ["{shared}:/broken"]\n[env]\nLD_LIBRARY_PATH = "/broken"\n{HOOK}'
    edf = cluster.edf(text, image="busybox")
    nested = ["srun", "--overlap", "-n1", "sh", "-c", 'echo "$LD_LIBRARY_PATH"']
    done = cluster.srun("-N1", f"--environment={edf}", *nested)
    assert (done.returncode, done.stdout) == (0, "/broken\n"), done.stderr


# ---- whose variables Slurm's programs inside have ------------------------------------------------

# Each chooses what code a program loads, or where it looks for the user's files.
_CHOOSING = (
    *("LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "GLIBC_TUNABLES", "MALLOC_CHECK_", "LOCPATH"),
    *("NLSPATH", "PYTHONPATH", "PERL5LIB", "BASH_ENV", "ENV", "LUA_PATH", "NODE_OPTIONS"),
)
_ACCOUNTS = ("HOME", "PATH", "XDG_CACHE_HOME", "https_proxy", "TMPDIR")


def _variables(done: Completed) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


@pytest.fixture
def telling(forge: Forge, shared: Path) -> Callable[..., Completed]:
    """Return a function that runs a script in a container whose image sets these variables.

    In it `sinfo` is a program of the host that prints its environment.
    """
    (shared / "sinfo").symlink_to("/usr/bin/env")
    names = [name for name in (*_CHOOSING, *_ACCOUNTS) if name != "PATH"]
    own = [*(f"{name}=/of/image" for name in names), "PATH=/bin:/of/image"]
    forge.put("of/image/.edf/mine.toml", "image = '/none'\n")
    image = forge.image(run={"Env": own})

    def run(script: str, edf: str = "", env: Mapping[str, str] | None = None) -> Completed:
        text = f'image = "{image}"\nmounts = ["{shared}"]\n{edf}{HOOK}'
        name = forge.cluster.edf(text, image=None)
        script = script.replace("sinfo", f"CE_HOST_PATH={shared} sinfo")
        step = ["-N1", "-n1", f"--environment={name}", "sh", "-c", script]
        return forge.cluster.srun(*step, env=env)

    return run


def test_programs_of_the_host_have_no_variable_of_an_image_that_chooses_their_code_or_files(
    telling: Callable[..., Completed], cluster: Cluster
) -> None:
    assert _variables(telling("env"))["LD_PRELOAD"] == "/of/image"
    said = _variables(telling("sinfo"))
    assert not [name for name, value in said.items() if "/of/image" in value]
    assert said["HOME"] == str(cluster.home())


@pytest.mark.parametrize("whose", ["of the job", "of the environment", "of the task"])
def test_programs_of_the_host_load_nothing_that_a_user_has_set_for_the_container(
    telling: Callable[..., Completed], whose: str
) -> None:
    mine = dict.fromkeys(_CHOOSING, "/mine")
    edf = "[env]\n" + "".join(f'{name} = "/mine"\n' for name in mine)
    export = "".join(f"export {name}=/mine; " for name in mine)
    ways = {
        "of the job": ("sinfo", "", mine),
        "of the environment": ("sinfo", edf, None),
        "of the task": (f"{export}sinfo", "", None),
    }
    script, text, env = ways[whose]
    said = _variables(telling(script, text, env))
    assert not [name for name in _CHOOSING if name in said]


@pytest.mark.parametrize("where", ["", "--environment={busybox}"], ids=["host", "container"])
def test_what_a_user_has_set_reaches_a_nested_task_and_what_an_image_has_set_does_not(
    telling: Callable[..., Completed], cluster: Cluster, shared: Path, where: str
) -> None:
    """A user sets it in the job, where the image replaces it, in the environment, in the task."""
    other = shared / "other.sqsh"
    other.write_bytes(cluster.image("busybox").read_bytes())
    option = where.format(busybox=cluster.edf(f'image = "{other}"\n', image=None))
    edf = '[env]\nLD_AUDIT = "/of/edf"\nPERL5LIB = "/of/edf"\n'
    script = f"export ENV=/of/task GCONV_PATH=/of/task; srun --overlap -n1 {option} env"
    said = _variables(telling(script, edf, {"LD_PRELOAD": "/of/job", "LUA_PATH": "/of/job"}))
    assert {name: said[name] for name in _CHOOSING if name in said} == {
        "LD_PRELOAD": "/of/job",
        "LUA_PATH": "/of/job",
        "LD_AUDIT": "/of/edf",
        "PERL5LIB": "/of/edf",
        "ENV": "/of/task",
        "GCONV_PATH": "/of/task",
    }
    assert said["HOME"] == str(cluster.home())
    assert not [name for name in said if name.startswith(("CE_OF_", "CE_HELD_"))]


def test_a_nested_step_in_the_same_image_has_what_the_image_sets(
    telling: Callable[..., Completed], shared: Path
) -> None:
    script = "srun --overlap -n1 --environment=$CE_AGAIN env"
    again = shared / "again.toml"
    again.write_text('image = "${CE_FORGED}"\n')
    said = _variables(
        telling(f'CE_AGAIN={again} CE_FORGED="$CE_IMAGE"; export CE_FORGED; {script}')
    )
    assert {said[name] for name in _CHOOSING} == {"/of/image"}


@pytest.mark.parametrize("remapped", [False, True])
def test_a_name_is_searched_in_the_home_of_the_account_not_of_the_image(
    forge: Forge, cluster: Cluster, shared: Path, remapped: bool
) -> None:
    """Nor in /root, which is the home of a user who is root in the container."""
    for home in ("of/image", "root"):
        forge.put(f"{home}/.edf/mine.toml", "image = '/none'\n")
    image = forge.image(run={"Env": [] if remapped else ["HOME=/of/image"]})
    edf = cluster.edf(f'image = "{image}"\n{HOOK}', image=None)
    own = cluster.home() / ".edf/mine.toml"
    cluster.run(["mkdir", "-p", str(own.parent)])
    (shared / "demo.sqsh").write_bytes(cluster.image("demo").read_bytes())
    own.write_text(f'image = "{shared}/demo.sqsh"\n')
    options = [f"--environment={edf}", *(["--container-remap-root"] if remapped else [])]
    nested = ["srun", "--overlap", "-n1", "--environment=mine", "sh", "-c", SYSTEM]
    try:
        done = cluster.srun("-N1", *options, *nested)
    finally:
        own.unlink()
    assert (done.returncode, done.stdout) == (0, "ce-demo\n"), done.stderr


def test_the_planner_runs_no_program_that_a_containers_path_names(
    forge: Forge, cluster: Cluster, shared: Path
) -> None:
    """An image without a configuration beside it is asked by a program of the host."""
    (shared / "unsquashfs").write_text("#!/bin/sh\necho PLANTED=1\n")
    (shared / "unsquashfs").chmod(0o755)
    bare = shared / "bare.sqsh"
    bare.write_bytes(cluster.image("demo").read_bytes())
    again = cluster.edf(f'image = "{bare}"\n', image=None)
    ways: tuple[tuple[dict[str, object], str], ...] = (
        ({"Env": [f"PATH={shared}:/bin"]}, ""),
        ({}, f'env.PATH = "{shared}:/bin"\n'),
    )
    for run, text in ways:
        edf = cluster.edf(
            f'image = "{forge.image(run=run)}"\nmounts = ["{shared}"]\n{text}{HOOK}', image=None
        )
        nested = ["srun", "--overlap", "-n1", f"--environment={again}", "env"]
        said = _variables(cluster.srun("-N1", f"--environment={edf}", *nested))
        assert said["CE_IMAGE"].endswith("bare.sqsh")
        assert "PLANTED" not in said
        bare.touch()


def test_a_task_sees_nothing_of_the_host_at_its_usual_place(cluster: Cluster, inside: str) -> None:
    script = "ls /usr/bin/srun /etc/slurm /run/munge; ls -d /.container-engine/host/usr"
    done = cluster.srun("-N1", f"--environment={inside}", "sh", "-c", script)
    assert done.stdout.split() == ["/.container-engine/host/usr"]


def test_slurms_programs_start_quickly_inside(cluster: Cluster, inside: str) -> None:
    """Each takes less than a second; more would mean that files are searched or copied.

    The processor's time is counted, as it does not depend on other work of this machine.
    """
    script = "set -e; for i in 1 2 3 4 5; do sinfo >/dev/null; done; times"
    done = cluster.srun("-N1", f"--environment={inside}", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    children = re.findall(r"(\d+)m([\d.]+)s", done.stdout.splitlines()[1])
    assert 0 < sum(60 * int(minutes) + float(seconds) for minutes, seconds in children) < 5


# ---- #SBATCH --environment ---------------------------------------------------------------------

BATCH = f"#!/bin/sh\n{SYSTEM}\nsrun -n2 sh -c '{SYSTEM}'\n"


@pytest.fixture
def scripts_run_inside(cluster: Cluster) -> Iterator[None]:
    """Let the site run batch scripts inside, during a test."""
    file = cluster.prefix / "etc/container-engine/conf.d/batch-script.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text('batch_script = "inside"\n')
    yield
    file.unlink()


def _sbatch(cluster: Cluster, shared: Path, script: str, *options: str) -> tuple[int, list[str]]:
    """Run a batch job on two nodes; return its exit code and output."""
    output = shared / "output"
    file = cluster.write(script, mode=0o755)
    done = batch(cluster, "-N2", "-o", str(output), *options, str(file))
    return done.returncode, output.read_text().splitlines()


def test_a_batch_script_runs_on_the_host_and_each_srun_in_it_inside(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    script = BATCH.replace("\n", f"\n#SBATCH --environment={demo}\n", 1)
    assert _sbatch(cluster, shared, script) == (0, [HOST, "ce-demo", "ce-demo"])


def test_an_image_that_slurm_brings_into_the_nodes_memory(cluster: Cluster, shared: Path) -> None:
    """As in the guide, but with one node, as both nodes of the sandbox share their memory."""
    edf = cluster.edf('image = "${IMAGE}"\n', image=None)
    script = (
        "#!/bin/sh\nexport IMAGE=/dev/shm/$USER-$SLURM_JOB_ID.sqsh\n"
        f'sbcast {cluster.image("demo")} "$IMAGE"\n'
        f"srun -n2 --environment={edf} sh -c '. /etc/os-release; echo $ID'\n"
        'srun -n1 rm -v "$IMAGE"\n'
    )
    done, lines = _sbatch(cluster, shared, script, "-N1", "-n2")
    # srun reports that a step waits if the previous one has not quite ended.
    said = [line for line in lines if not line.startswith("srun: ")]
    assert (done, said[:2], len(said)) == (0, ["ce-demo"] * 2, 3)


@pytest.mark.usefixtures("scripts_run_inside")
def test_a_site_can_have_batch_scripts_run_inside(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    script = BATCH.replace("\n", f"\n#SBATCH --environment={demo}\n", 1)
    assert _sbatch(cluster, shared, script) == (0, ["ce-demo"] * 3)


@pytest.mark.usefixtures("scripts_run_inside")
def test_a_script_inside_keeps_exit_code_environment_and_arguments(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    script = (
        '#!/bin/sh\nexport LATER=x\necho "$SLURM_JOB_NUM_NODES"\n'
        "srun -n1 -N1 printenv LATER\nexit 7\n"
    )
    assert _sbatch(cluster, shared, script, f"--environment={demo}") == (7, ["2", "x"])


@pytest.mark.usefixtures("scripts_run_inside")
def test_an_srun_of_the_same_environment_inside_a_script_inside_is_refused(
    cluster: Cluster, demo: str, inside: str, shared: Path
) -> None:
    script = (
        f"#!/bin/sh\nsrun -N1 -n1 --environment={demo} true; echo $?\n"
        f"srun -N1 -n1 --environment={inside} true; echo $?\n"
    )
    _code, lines = _sbatch(cluster, shared, script, f"--environment={demo}")
    assert lines == [
        f"ce: error: --environment={demo}: this batch script runs inside it already, and srun"
        " inherits that",
        "ce: hint: leave --environment out of the srun in the script, or name another environment",
        "ce: see: ce help environment-twice",
        "125",
        "0",
    ]


@pytest.mark.usefixtures("scripts_run_inside")
def test_a_script_inside_whose_container_cannot_be_had_does_not_run(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf('mounts = ["/does/not/exist:/x"]\n')
    code, lines = _sbatch(cluster, shared, "#!/bin/sh\necho ran\n", f"--environment={edf}")
    assert code == 125
    assert "mount source '/does/not/exist': does not exist" in lines[0]
    assert [line.split(": ")[1] for line in lines] == ["error", "hint", "see"]
