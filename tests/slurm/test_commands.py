"""Programs that a step finds: the image's, by the image's PATH."""

import re
import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, Completed, causes

pytestmark = pytest.mark.usefixtures("tidy")


def _errors(done: Completed) -> list[str]:
    """Return the engine's lines, without the remedy and Slurm's report of exit codes."""
    beside = ("srun: ", "ce: hint: ", "ce: see: ")
    return [line for line in done.stderr.splitlines() if not line.startswith(beside)]


def test_a_command_that_only_the_image_has_is_found_by_the_images_path(cluster: Cluster) -> None:
    assert shutil.which("probe") is None
    done = cluster.srun(f"--environment={cluster.edf(image='static')}", "probe")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rank=0 ")


def test_a_command_of_the_host_is_not_found(cluster: Cluster, demo: str) -> None:
    assert shutil.which("srun") is not None
    done = cluster.srun("-w", "n1", f"--environment={demo}", "srun", "--version")
    assert done.returncode == 127
    assert _errors(done) == ["ce: error: n1: srun: command not found in the container"]


def test_path_of_the_edf_decides_where_commands_are_looked_for(
    cluster: Cluster,
) -> None:
    tool = cluster.scratch / "only-here"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    edf = cluster.edf(
        f'mounts = ["{cluster.scratch}:/opt/tools"]\n[env]\nPATH = "/opt/tools:/usr/bin:/bin"\n'
    )
    done = cluster.srun(f"--environment={edf}", "only-here")
    assert (done.returncode, done.stdout) == (0, "found\n"), done.stderr


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/command"])
def test_a_command_that_does_not_exist_says_so_once_and_is_127(
    cluster: Cluster, demo: str, command: str
) -> None:
    done = cluster.srun("-N2", "-n4", f"--environment={demo}", command)
    assert done.returncode == 127
    [line] = _errors(done)
    assert line.split(": ", 3)[3] == f"{command}: command not found in the container"


@pytest.mark.parametrize(
    ("command", "why"),
    [("/etc/os-release", "it has no permission to be executed"), ("/etc", "it is a directory")],
)
def test_a_command_that_cannot_be_executed_says_so_and_is_126(
    cluster: Cluster, demo: str, command: str, why: str
) -> None:
    done = cluster.srun("-w", "n1", f"--environment={demo}", command)
    assert done.returncode == 126
    assert _errors(done) == [
        f"ce: error: n1: {command}: cannot be executed in the container: {why}"
    ]


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("#!/bin/bash\r\necho ran\r\n", 0o755, "sed -i 's/\\r$//' FILE"),
        ("#!/bin/bash\necho ran\n", 0o644, "chmod +x FILE"),
    ],
)
def test_a_script_that_cannot_be_started_says_how_to_repair_it(
    cluster: Cluster, content: str, mode: int, words: str
) -> None:
    script = cluster.scratch / "script"
    script.write_bytes(content.encode())
    script.chmod(mode)
    edf = cluster.edf(f'mounts = ["{cluster.scratch}:/s"]\n')
    done = cluster.srun("-N2", f"--environment={edf}", "/s/script")
    assert (done.returncode, done.stdout) == (126, "")
    assert done.stderr.count(words) == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo --x", "leave out the quotes"),
        ("MODE=fast", "NAME=VALUE srun"),
        ("/tmp:/tmp", 'mounts = ["SOURCE:DESTINATION"]'),
    ],
)
def test_what_is_no_command_has_a_hint_to_its_place(
    cluster: Cluster, demo: str, command: str, words: str
) -> None:
    done = cluster.srun(f"--environment={demo}", command)
    assert done.returncode == 127
    assert words in done.stderr


def test_a_script_whose_interpreter_is_missing_does_not_run(cluster: Cluster) -> None:
    script = cluster.write("#!/no/such/interpreter\n", name="orphan", mode=0o755)
    edf = cluster.edf(f'mounts = ["{cluster.scratch}:/s"]\n')
    done = cluster.srun(f"--environment={edf}", f"/s/{script.name}")
    assert done.returncode == 126
    assert "it needs '/no/such/interpreter', which does not exist" in done.stderr


def test_arguments_arrive_as_they_were_given(cluster: Cluster, demo: str) -> None:
    given = ["", "a b", "'", '"', "$HOME", "*", "\\", "ü", "line\nline", "-x", "--"]
    script = "import sys; print(ascii(sys.argv[1:]))"
    done = cluster.srun(f"--environment={demo}", "python3", "-c", script, *given)
    assert done.stdout == f"{given!a}\n"


@pytest.mark.parametrize("place", ["sent", ""])
def test_a_command_sent_with_bcast_runs_where_its_place_is_mounted(
    cluster: Cluster, shared: Path, mounted: str, place: str
) -> None:
    script = cluster.write("#!/bin/sh\n. /etc/os-release; echo $ID $0\n", mode=0o755)
    done = cluster.srun(f"--bcast={shared}/{place}", f"--environment={mounted}", str(script))
    assert done.stdout.startswith(f"ce-demo {shared}/{place}"), done.stderr


def test_a_multi_prog_step_runs_in_the_container(cluster: Cluster, demo: str) -> None:
    programs = "0 sh -c '. /etc/os-release; echo $ID $SLURM_PROCID'\n1-3 echo other %t\n"
    configuration = cluster.write(programs)
    done = cluster.srun("-N2", "-n4", f"--environment={demo}", "--multi-prog", str(configuration))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["ce-demo 0", *(f"other {n}" for n in (1, 2, 3))]


def test_programs_are_read_as_slurm_reads_them(cluster: Cluster, demo: str) -> None:
    programs = cluster.write(
        "# 0 no\n\n"
        "0\t/usr/bin/printf '[%s]' a\\ b 'c  d' %t%o \\\n  1 last\n"
        '  1-2,4 sh -c \'echo "$0" "$@"\' %o\\%  \r\n'
        "*    echo rest\n"
    )
    srun = ("-n5", "--label", "--multi-prog", str(programs), "more")
    done = cluster.srun(f"--environment={demo}", *srun)
    native = cluster.srun(*srun)
    assert sorted(done.stdout.splitlines()) == sorted(native.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    assert "4: 2% more" in done.stdout


def test_a_program_has_the_name_and_the_variables_of_a_command(cluster: Cluster, demo: str) -> None:
    script = "cat /proc/$$/cmdline; env | grep -c -e ^CE_ -e ^SLURM_CE_"
    programs = cluster.write(f"* sh -c '{script}'\n")
    many = cluster.srun(f"--environment={demo}", "--multi-prog", str(programs))
    single = cluster.srun(f"--environment={demo}", "sh", "-c", script)
    assert many.stdout == single.stdout
    assert many.stdout.startswith("/usr/bin/sh\0")


def test_programs_that_cannot_run_are_each_named(cluster: Cluster, demo: str) -> None:
    programs = cluster.write("0 echo ran\n1 no-such\n2 no-such\n3 /etc/passwd\n")
    done = cluster.srun("-N2", "-n4", f"--environment={demo}", "--multi-prog", str(programs))
    assert done.stdout == "ran\n"
    assert sorted(re.sub(r"n\d", "N", cause) for cause in causes(done)) == [
        "ce: error: N: /etc/passwd: cannot be executed in the container: it has no permission to be"
        " executed",
        "ce: error: N: no-such: command not found in the container",
    ]
    assert "task 1: Exited with exit code 127" in done.stderr
    assert "task 3: Exited with exit code 126" in done.stderr


def test_a_file_of_programs_may_change_while_its_step_waits(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    programs = shared / "programs"
    programs.write_text("* sh -c '. /etc/os-release; echo first $ID'\n")
    # begins after planning has ended, even on a busy machine
    srun = ("--begin=now+5", f"--environment={demo}", "--multi-prog", programs.name)
    with cluster.popen(["srun", *srun], cwd=shared) as step:
        assert step.stderr is not None
        assert "queued and waiting" in step.stderr.readline()
        programs.write_text("* echo second\n")
        out, _err = step.communicate(timeout=60)
    assert out == "first ce-demo\n"


def test_an_argument_that_looks_like_multi_prog_is_an_argument(cluster: Cluster, demo: str) -> None:
    given = ["--multi-prog=1", "* x", "0 y\n"]
    done = cluster.srun(f"--environment={demo}", "printf", "[%s]", *given)
    assert done.stdout == "".join(f"[{word}]" for word in given)


def test_ce_run_as_several_tasks_is_told_once_that_srun_has_an_option_for_it(
    cluster: Cluster, demo: str
) -> None:
    done = cluster.srun("-n2", "ce", "run", demo, "--", "echo", "runs")
    assert done.stdout == "runs\n" * 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ce: ")]
    assert "srun --environment=NAME COMMAND" in line
    assert cluster.srun("-n1", "ce", "run", demo, "--", "true").stderr == ""
