"""Hosts without the plugin, and ways to start a step: the cells of the table in SECURITY.md."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import ROOT, Cluster, sandbox
from tests.slurm.error_block import ErrorBlock
from tests.slurm.job import batch
from tests.slurm.site import Site
from tests.slurm.slurm_configurations import configured, own_stack, plugins_on

pytestmark = pytest.mark.usefixtures("tidy")

NONE = "# nothing\n"
# Printed because of the job's mark, between lines of Slurm's.
REFUSED = "this host's Slurm does not load the plugin of --environment, which this job uses"
# Printed because of the mark before a command.
NOT_LOADED = "ce: error: this node's Slurm does not load the plugin of --environment"


@pytest.fixture
def bare(cluster: Cluster, n2: str, shared: Path) -> Iterator[str]:
    """Yield a node whose Slurm does not load the plugin, neither in slurmd's steps nor in srun."""
    with plugins_on(cluster, n2, shared, NONE):
        yield n2


# what a queue that cleans up leaves of a job's environment
_LEFT = "PATH=$PATH SLURM_CONF=$SLURM_CONF SLURM_JOB_ID=$SLURM_JOB_ID"


class Ran:
    """Record of where the command of a step ran, if it ran at all."""

    def __init__(self, shared: Path) -> None:
        self.file = shared / "ran"
        self.command = ("sh", "-c", f". /etc/os-release; echo $ID >> {self.file}")

    def __str__(self) -> str:
        return shlex.join(self.command)

    @property
    def where(self) -> list[str]:
        return self.file.read_text().split() if self.file.exists() else []


@pytest.fixture
def ran(shared: Path) -> Ran:
    return Ran(shared)


# ---- the host where a command of Slurm's is typed ------------------------------------------------


@pytest.mark.parametrize("program", ["srun", "salloc", "sbatch"])
def test_a_submit_host_without_it_does_not_know_the_option(
    cluster: Cluster, mounted: str, shared: Path, ran: Ran, program: str
) -> None:
    env = own_stack(cluster, shared, NONE)
    script = cluster.write(f"#!/bin/sh\n{ran}\n", mode=0o755)
    done = cluster.run([program, f"--environment={mounted}", str(script)], env=env)
    assert done.returncode != 0
    assert "unrecognized option" in done.stderr
    assert ran.where == []


def test_a_submit_host_without_it_does_not_know_the_option_in_a_script(
    cluster: Cluster, mounted: str, shared: Path, ran: Ran
) -> None:
    env = own_stack(cluster, shared, NONE)
    script = cluster.write(f"#!/bin/sh\n#SBATCH --environment={mounted}\n{ran}\n", mode=0o755)
    done = cluster.run(["sbatch", str(script)], env=env)
    assert done.returncode != 0
    assert ran.where == []


# ---- the host of a batch script, or of a shell of salloc -----------------------------------------

SRUNS = {
    "srun": "srun {command}",
    "another environment": "srun --environment={edf} {command}",
    "an option of the mark's own": "srun --thread-spec=1 {command}",
    "nothing exported": "srun --export=NONE {command}",
    "several programs": "srun --multi-prog {programs}",
    "a file that is sent": "srun --bcast={shared}/sent {script}",
    "an interactive step": "srun --interactive {command}",
    "an allocation in the job": "salloc -Q -w n2 srun {command}",
}


class Place:
    """A job that runs a script, and the result of the script."""

    def __init__(self, cluster: Cluster, shared: Path, mounted: str, ran: Ran) -> None:
        self.cluster, self.shared, self.mounted, self.ran = cluster, shared, mounted, ran

    def step(self, form: str) -> str:
        return form.format(
            command=self.ran,
            edf=self.mounted,
            programs=self.cluster.write(f"0 {self.ran}\n"),
            script=self.cluster.write(f"#!/bin/sh\n{self.ran}\n", mode=0o755),
            shared=self.shared,
        )

    def batch(self, node: str, text: str, *options: str) -> tuple[int, str]:
        """Return exit code and stderr of a batch job on the node."""
        known = f"export SLURM_CONF={self.cluster.dir}/etc/slurm.conf PATH=/usr/bin:/bin"
        script = self.cluster.write(f"#!/bin/bash\n{known}\n{text}\n")
        outputs = (f"--output={self.shared}/out", f"--error={self.shared}/err")
        words = ("-w", node, f"--environment={self.mounted}", *outputs, *options)
        done = batch(self.cluster, *words, str(script))
        return done.returncode, (self.shared / "err").read_text()


@pytest.fixture
def place(cluster: Cluster, shared: Path, mounted: str, ran: Ran) -> Place:
    return Place(cluster, shared, mounted, ran)


@pytest.mark.parametrize("form", SRUNS.values(), ids=SRUNS.keys())
def test_a_batch_host_without_it_starts_no_step(place: Place, bare: str, form: str) -> None:
    code, said = place.batch(bare, place.step(form))
    assert place.ran.where == [], said
    assert code != 0
    assert REFUSED in said or "unrecognized option" in said, said


@pytest.mark.parametrize("export", ["NONE", "NIL", "HOME"])
def test_a_batch_host_without_it_starts_no_step_whatever_is_exported(
    place: Place, bare: str, export: str
) -> None:
    code, said = place.batch(bare, f"srun {place.ran}", f"--export={export}")
    assert place.ran.where == [], said
    assert code != 0
    assert REFUSED in said, said


def test_a_batch_script_itself_runs_on_its_host_as_ever(place: Place, bare: str) -> None:
    assert place.batch(bare, str(place.ran)) == (0, "")
    assert place.ran.where != []


def test_a_batch_script_that_the_site_wants_inside_runs_on_its_host(
    place: Place, bare: str, site: Site
) -> None:
    """This is so without the engine's task prolog; the script's sruns are refused all the same."""
    site.configure('batch_script = "inside"\n')
    code, said = place.batch(bare, f"{place.ran}; srun {place.ran}")
    assert len(place.ran.where) == 1
    assert place.ran.where != ["ce-demo"]
    assert code != 0
    assert REFUSED in said, said


@pytest.fixture
def checked(cluster: Cluster, n2: str) -> Iterator[str]:
    """Yield a node whose slurm.conf has the engine's task prolog."""
    prolog = cluster.prefix / "libexec/container-engine/task-prolog"
    with configured(cluster, n2, f"TaskProlog={prolog}\n"):
        yield n2


def test_the_task_prolog_of_a_site_keeps_a_batch_script_from_a_host_without_it(
    place: Place, checked: str, bare: str, site: Site
) -> None:
    assert checked == bare
    site.configure('batch_script = "inside"\n')
    code, said = place.batch(bare, str(place.ran))
    assert place.ran.where == [], said
    assert code != 0
    assert NOT_LOADED in said + (place.shared / "out").read_text()


def test_a_task_prolog_of_a_sites_own_needs_no_engine_to_keep_a_batch_script_from_a_host(
    cluster: Cluster, place: Place, n2: str, shared: Path, site: Site
) -> None:
    """The task prolog of the documentation, on a node from which the package has been removed."""
    page = (ROOT / "docs/admin/hooks.md").read_text()
    (text,) = re.findall(r"```sh\n(#!/bin/sh\n# /etc/slurm/task-prolog\n.*?)```", page, re.DOTALL)
    prolog = cluster.write(text.replace("/opt/", "/not/there/"), mode=0o755)
    site.configure('batch_script = "inside"\n')
    with (
        configured(cluster, n2, f"TaskProlog={prolog}\n"),
        plugins_on(cluster, n2, shared, NONE),
    ):
        code, said = place.batch(n2, str(place.ran))
        native = cluster.srun("-w", n2, "echo", "native")
    assert (code != 0, place.ran.where) == (True, []), said
    assert (native.returncode, native.stdout) == (0, "native\n"), native.stderr


def test_the_task_prolog_of_a_site_lets_everything_run_where_the_plugin_is(
    place: Place, checked: str, site: Site
) -> None:
    site.configure('batch_script = "inside"\n')
    assert place.batch(checked, str(place.ran)) == (0, "")
    assert place.ran.where == ["ce-demo"]
    prolog = place.cluster.write('#!/bin/sh\necho "export OWN=$OWN."\n', mode=0o755)
    words = ("-w", checked, f"--environment={place.mounted}", "sh", "-c", "echo $OWN")
    done = place.cluster.srun(*words, env={"SLURM_TASK_PROLOG": str(prolog), "OWN": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, ".\n", "")
    native = place.cluster.srun("-w", checked, "echo", "native")
    assert (native.returncode, native.stdout, native.stderr) == (0, "native\n", "")


def test_an_environment_of_a_batch_host_without_it_is_refused_by_sbatch_within(
    place: Place, bare: str
) -> None:
    """sbatch on this host does not know the job's environment, but srun in the new job does."""
    script = place.cluster.write(f"#!/bin/bash\nsrun {place.ran}\n")
    code, said = place.batch(
        bare, f"sbatch --wait -w {bare} --output={place.shared}/inner {script}"
    )
    assert place.ran.where == [], said
    assert code != 0
    assert REFUSED in (place.shared / "inner").read_text()


@pytest.mark.parametrize("form", ["srun {command}", "srun --interactive {command}"])
def test_a_shell_of_salloc_without_it_starts_no_step(place: Place, bare: str, form: str) -> None:
    """For example, a user takes the shell's variables from a host with the plugin to this one."""
    own = own_stack(place.cluster, place.shared, NONE)["SLURM_CONF"]
    inner = f"SLURM_CONF={own} {place.step(form)}"
    salloc = ["salloc", "-Q", f"--environment={place.mounted}", "-w", bare, "sh", "-c", inner]
    done = place.cluster.run(salloc)
    assert place.ran.where == [], done.stderr
    assert done.returncode != 0
    assert REFUSED in done.stderr


# ---- the node of a step --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [form for form in SRUNS.values() if "multi-prog" not in form and "bcast" not in form]
)
def test_a_node_without_it_does_not_run_the_command(place: Place, bare: str, form: str) -> None:
    """srun runs on a host with the plugin, in a job of salloc."""
    # without an option of its own, an interactive step runs on the host everywhere
    own = f"--interactive --environment={place.mounted}"
    inner = place.step(form.replace("--interactive", own))
    salloc = ["salloc", "-Q", f"--environment={place.mounted}", "-w", bare, "sh", "-c", inner]
    done = place.cluster.run(salloc)
    assert place.ran.where == [], done.stderr
    assert done.returncode != 0
    assert NOT_LOADED in done.stderr


_TWO = "srun -w n1 {edf} {command} : -w n2 {edf} {command}"
UNMARKED = {
    "a file that is sent": "srun -w n1,n2 --bcast={shared}/sent {edf} {script}",
    "two components": _TWO,
    "two components, turned": "srun -w n2 {edf} {command} : -w n1 {edf} {command}",
    "a task prolog": f"SLURM_TASK_PROLOG=/bin/true {_TWO}",
}


@pytest.mark.parametrize("form", UNMARKED.values(), ids=UNMARKED.keys())
def test_a_node_without_it_does_not_run_a_command_that_may_bear_no_mark(
    place: Place, bare: str, form: str
) -> None:
    """srun has a thread for each component; the first one decides which the plugin sees."""
    inner = place.step(form.replace("{edf}", f"--environment={place.mounted}"))
    for _ in range(4):
        place.ran.file.unlink(missing_ok=True)
        done = place.cluster.run(["salloc", "-Q", "-w", f"n1,{bare}", "sh", "-c", inner])
        assert set(place.ran.where) <= {"ce-demo"}, done.stderr
        assert done.returncode != 0
        assert NOT_LOADED in done.stderr


# Output of a user's task prolog, which must not let a task out of its container.
_SAYS = {
    "forgets everything": "for v in $(env | sed s/=.*//); do echo unset $v; done",
    "forges the container": "echo export CE_JOIN_CONTAINER=0 1 2 -1 1 -1 -1 -1 -1 -1 -1 /",
    "has no container": "echo export CE_JOIN_CONTAINER=; echo unset CE_JOIN_COMMAND",
    "has no plan": "echo unset SLURM_CE_PLAN_0; echo unset SLURM_CE_PLAN_COUNT",
}


@pytest.mark.parametrize("says", _SAYS.values(), ids=_SAYS.keys())
def test_whatever_a_users_task_prolog_says_no_command_runs_outside(place: Place, says: str) -> None:
    prolog = place.cluster.write(f"#!/bin/sh\n{says}\n", mode=0o755)
    option = f"--environment={place.mounted}"
    done = place.cluster.srun(f"--task-prolog={prolog}", option, *place.ran.command)
    assert (done.returncode == 0) == (place.ran.where == ["ce-demo"]), done.stderr
    assert set(place.ran.where) <= {"ce-demo"}


@pytest.mark.parametrize("kind", ["a pipe", "gone", "a directory", *_SAYS])
def test_whatever_a_users_task_prolog_is_the_check_of_the_node_comes_first(
    place: Place, bare: str, kind: str
) -> None:
    prolog = place.cluster.write(f"#!/bin/sh\n{_SAYS.get(kind)}\n", mode=0o755)
    if kind not in _SAYS:
        prolog.unlink()
    if kind == "a pipe":
        os.mkfifo(prolog)
        prolog.chmod(0o777)
    elif kind == "a directory":
        prolog.mkdir()
    inner = place.step(_TWO.replace("{edf}", f"--environment={place.mounted}"))
    salloc = ["salloc", "-Q", "-w", f"n1,{bare}", "sh", "-c", inner]
    done = place.cluster.run(salloc, env={"SLURM_TASK_PROLOG": str(prolog)})
    assert set(place.ran.where) <= {"ce-demo"}, done.stderr
    assert done.returncode != 0
    assert NOT_LOADED in done.stderr


def test_several_programs_on_a_node_without_it_do_not_run(place: Place, bare: str) -> None:
    """ce-join precedes each of them, and finds that the task was not prepared."""
    inner = place.step(SRUNS["several programs"])
    salloc = ["salloc", "-Q", f"--environment={place.mounted}", "-w", bare, "sh", "-c", inner]
    done = place.cluster.run(salloc)
    assert place.ran.where == [], done.stderr
    assert done.returncode == 125
    assert NOT_LOADED.removeprefix("ce: error: ") in done.stderr


# ---- hosts that have it --------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["sbatch", "salloc"])
def test_where_everybody_has_it_no_task_sees_the_mark(
    place: Place, cluster: Cluster, demo: str, program: str
) -> None:
    step = "srun sh -c 'env | grep -e THREAD_SPEC -e SLURM_CE_PLAN; . /etc/os-release; echo $ID'"
    if program == "salloc":
        done = cluster.run(["salloc", "-Q", f"--environment={demo}", "sh", "-c", step])
        assert (done.returncode, done.stdout, done.stderr) == (0, "ce-demo\n", "")
        return
    assert place.batch("n1", step) == (0, "")
    assert (place.shared / "out").read_text() == "ce-demo\n"


@pytest.mark.parametrize(
    ("words", "where"), [("srun", "inside"), ("CE_INHERIT=no srun", "outside")]
)
def test_a_step_of_a_job_runs_on_the_host_where_its_command_says_so(
    cluster: Cluster, demo: str, words: str, where: str
) -> None:
    step = f"{words} sh -c '[ -n \"$CE_IMAGE\" ] && echo inside || echo outside $CE_INHERIT'"
    done = cluster.run(["salloc", "--quiet", "-N1", f"--environment={demo}", "sh", "-c", step])
    assert (done.returncode, done.stdout.strip()) == (0, where), done.stderr
    said = f"srun: CE_INHERIT=no: this step runs on the host, not in '{demo}', which the job has\n"
    assert done.stderr == ("" if where == "inside" else said)


@pytest.mark.parametrize(
    ("head", "is_inside"),
    [
        (f"env -i {_LEFT} srun", True),
        ("setsid -f srun", True),
        # after a while, when its parent has ended
        (f"env -i {_LEFT} setsid -f sh -c 'sleep 2; exec srun \"$@\"' sh", False),
        (f"env -i {_LEFT} CE_ENVIRONMENT=$ENV setsid -f srun", True),
    ],
)
def test_a_step_without_ancestors_and_variables_of_its_job_is_on_the_host(
    cluster: Cluster, shared: Path, ran: Ran, head: str, is_inside: bool
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    text = (
        f"#!/bin/bash\nENV={edf}\n"
        f"({head} -n1 sh -c '. /etc/os-release; echo $ID >> {ran.file}') & wait\n"
        f"for i in $(seq 100); do [ -e {ran.file} ] && break; sleep 0.1; done\nsleep 1\n"
    )
    script = cluster.write(text, mode=0o755)
    done = batch(cluster, f"--environment={edf}", f"--output={shared}/out", str(script))
    assert done.returncode == 0, (shared / "out").read_text()
    assert (ran.where == ["ce-demo"]) == is_inside
    assert ran.where


@pytest.mark.parametrize(
    ("words", "where", "said"),
    [
        (["--environment=demo"], "inside", ""),
        (["--inter", "--environ=demo"], "inside", ""),
        ([], "outside", "srun: the interactive step runs on the host; each srun in it runs in 'x'"),
    ],
    ids=["option", "abbreviated", "inherited"],
)
def test_an_interactive_step_runs_on_the_host_only_if_its_own_options_ask_for_nothing(
    cluster: Cluster, demo: str, words: list[str], where: str, said: str
) -> None:
    """salloc starts its shell as such a step, and its option is meant for steps in the shell."""
    words = [word.replace("demo", demo) for word in words]
    env = {} if words else {"SLURM_SPANK__SLURM_SPANK_OPTION_container_engine_environment": demo}
    command = ["sh", "-c", '[ -n "$CE_IMAGE" ] && echo inside || echo outside']
    done = cluster.run(["srun", "-N1", "--interactive", *words, *command], env=env)
    assert (done.returncode, done.stdout.strip()) == (0, where), done.stderr
    assert done.stderr.strip() == said.replace("'x'", f"'{demo}'")


def test_a_user_who_has_that_variable_has_it_in_the_job_still(cluster: Cluster, demo: str) -> None:
    step = "srun --thread-spec=1 sh -c 'echo $SLURM_THREAD_SPEC'"
    salloc = ["salloc", "-Q", f"--environment={demo}", "sh", "-c", step]
    done = cluster.run(salloc, env={"SLURM_THREAD_SPEC": "1"})
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


COMPONENTS = "srun -w n1 {edf} sh -c {script} : -w n2 {edf} sh -c {script}"


@pytest.mark.parametrize("own", [False, True], ids=["none", "own"])
@pytest.mark.parametrize("form", [COMPONENTS, "srun -N2 --bcast={shared}/sent {edf} {file}"])
def test_no_task_sees_the_check_that_runs_as_its_prolog(
    place: Place, n2: str, form: str, own: bool
) -> None:
    """A task prolog of the user's own runs all the same."""
    text = 'echo "$CE_ENVIRONMENT_NAME $OWN [$SLURM_TASK_PROLOG]"; env | grep SLURM_CE_'
    prolog = place.cluster.write("#!/bin/sh\necho export OWN=ran\n", mode=0o755)
    step = form.format(
        edf=f"--environment={place.mounted}",
        script=shlex.quote(text),
        file=place.cluster.write(f"#!/bin/sh\n{text}\n", mode=0o755),
        shared=place.shared,
    )
    env = {"SLURM_TASK_PROLOG": str(prolog)} if own else {}
    done = place.cluster.run(["salloc", "-Q", "-w", f"n1,{n2}", "sh", "-c", f"{step}; :"], env=env)
    line = f"{place.mounted} ran [{prolog}]" if own else f"{place.mounted}  []"
    assert done.stdout.splitlines() == [line, line], done.stderr


@pytest.mark.parametrize(
    "form",
    [
        "srun --task-prolog=/bin/true -w n1 {edf} true : -w n2 {edf} true",
        "srun -w n1 {edf} true : --task-prolog /bin/true -w n2 {edf} true",
        "srun --task-p=/bin/true --bcast=/tmp/sent {edf} true",
    ],
)
def test_a_task_prolog_that_would_replace_the_check_is_refused(
    place: Place, n2: str, form: str
) -> None:
    step = form.replace("{edf}", f"--environment={place.mounted}")
    done = place.cluster.run(["salloc", "-Q", "-w", f"n1,{n2}", "sh", "-c", step])
    assert done.returncode == 125
    ErrorBlock(done, "task-prolog", "--task-prolog", "--bcast, --async or several components")


def test_an_argument_that_looks_like_such_an_option_changes_nothing(place: Place) -> None:
    words = ("--bcast", ":x", "--task-prolog=no", "--async")
    done = place.cluster.srun(f"--environment={place.mounted}", "echo", *words)
    assert (done.returncode, done.stdout) == (0, " ".join(words) + "\n"), done.stderr


# ---- what an administrator sees of such a node ---------------------------------------------------


def test_ce_doctor_fails_for_a_node_without_the_plugin(cluster: Cluster, bare: str) -> None:
    done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor", "--all-nodes"])
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("failed"))
    assert re.fullmatch(rf"failed +plugstack.conf +{bare}: .* has no line for .*", line)
    assert done.stdout.endswith("asked: n[1-2]; 1 of 2 can start containers\n")


def test_the_printed_health_check_drains_such_a_node(cluster: Cluster, bare: str) -> None:
    text = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/admin/health.md").read_text(), re.DOTALL)[0]
    conf = f"export SLURM_CONF={cluster.dir}/etc/slurm.conf"
    own = text.replace("/opt/container-engine/bin/ce", f"{cluster.prefix}/bin/ce\n{conf}")
    script = cluster.write(own, "ce-health", mode=0o755)
    try:
        # slurmd sets no other variable
        done = sandbox("node", bare, "env", "-i", f"SLURMD_NODENAME={bare}", str(script))
        drained = cluster.run(["sinfo", "-h", "-n", bare, "-o", "%T %E"]).stdout
    finally:
        cluster.run(["scontrol", "update", f"nodename={bare}", "state=resume"], user="root")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.match(r"drained CE: failed plugstack.conf .* has no line for ", drained)
