"""Input that is wrong, large or strange: one clear line, or it works; nothing runs on the host."""

import json
import os
import pwd
import re
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster, Completed, causes
from tests.slurm.error_block import ErrorBlock
from tests.slurm.job import batch
from tests.slurm.slurm_configurations import own_planner

pytestmark = pytest.mark.usefixtures("tidy")


def _last_job(cluster: Cluster) -> int:
    return int(cluster.srun("printenv", "SLURM_JOB_ID").stdout)


def _own_lines(done: Completed) -> list[str]:
    """Return the error lines of stderr, without what belongs to them and without warnings."""
    beside = ("ce: hint: ", "ce: see: ", "ce: details: ", "ce: warning: ", " ")
    return [line for line in done.stderr.splitlines() if not line.startswith(beside)]


def _refused_at_submit(
    cluster: Cluster, edf: str, shared: Path, *programs: str, user: str = ALICE
) -> str:
    """Check that these programs (default: srun) end with one error line and start no job."""
    marker = shared / "ran"
    before = _last_job(cluster)
    script = cluster.write(f"#!/bin/sh\ntouch {marker}\n", mode=0o755)
    for program in programs or ("srun",):
        done = cluster.run([program, f"--environment={edf}", str(script)], user)
        assert done.returncode == 125, done.stderr
        assert len(causes(done)) == 1, done.stderr
        assert _own_lines(done) == causes(done)
    assert _last_job(cluster) == before + 1
    assert not marker.exists()
    return causes(done)[0]


def _fails_on_the_node(cluster: Cluster, edf: str, shared: Path, *options: str) -> Completed:
    """Run a step whose container cannot start: it must end with 125 and not run its command."""
    marker = shared / "ran"
    done = cluster.srun(
        *options, f"--environment={edf}", "sh", "-c", f"touch {marker} /dev/shm/ce-ran; echo ran"
    )
    assert done.returncode == 125, done.stderr
    assert done.stdout == ""
    assert not marker.exists()
    assert not Path("/dev/shm/ce-ran").exists()
    return done


# ---- options in the wrong place ------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--environment=NAME", "--environment NAME", "--edf NAME"])
@pytest.mark.parametrize("program", ["srun", "salloc", "sbatch"])
def test_an_environment_after_the_command_is_reported(
    cluster: Cluster, shared: Path, demo: str, program: str, option: str
) -> None:
    words = option.replace("NAME", demo).split(" ")
    script = cluster.write("#!/bin/sh\ntrue\n", mode=0o755)
    output = [f"--output={shared}/out"] if program == "sbatch" else []
    done = cluster.run([program, "-N1", *output, str(script), *words])
    assert done.returncode == 0, done.stderr
    before = "script" if program == "sbatch" else "command"
    said = f"{words[0]} comes after the {before} and is passed to it: it selects no container"
    assert done.stderr.count(f": {said} (options of {program} go before") == 1
    done = cluster.run([program, "-N1", *output, *words, "/bin/true"])
    assert "comes after" not in done.stderr


def test_an_image_after_the_command_is_reported(cluster: Cluster) -> None:
    image = str(cluster.image("demo"))
    for words in ([f"--container-image={image}"], ["--container-image", image]):
        done = cluster.srun("true", *words)
        assert f": {words[0]} comes after the command" in done.stderr
        assert cluster.srun(*words, "true").stderr == ""


def test_an_environment_in_a_script_below_its_first_command_is_reported(
    cluster: Cluster, shared: Path, demo: str
) -> None:
    directive = f"#SBATCH --environment={demo}\n"
    body = "srun sh -c 'echo ${CE_IMAGE:+inside}'\n"
    for text, is_inside, is_late in (
        (f"#!/bin/sh\n\n# note\n{directive}{body}", True, False),
        (f"#!/bin/sh\nset -e\n{directive}{body}", False, True),
        (f"#!/bin/sh\n{body}cat >/dev/null <<END\n{directive}END\n", False, False),
    ):
        script, out = cluster.write(text, mode=0o755), shared / "out"
        done = batch(cluster, f"--output={out}", str(script))
        assert done.returncode == 0, done.stderr
        late = f"{script}:3: '#SBATCH --environment={demo}' comes after the first command"
        assert (late in done.stderr) == is_late, done.stderr
        assert ("inside" in out.read_text().splitlines()) == is_inside
    script = cluster.write(f"#!/bin/sh\n# {directive[1:]}true\n", mode=0o755)
    done = batch(cluster, f"--output={shared}/out", str(script))
    comment = (
        f"{script}:2: '# SBATCH --environment={demo}' is a comment, which sbatch does not read"
    )
    assert comment in done.stderr, done.stderr
    # the script of the second round, as a file, and through a pipe, which can be read only once
    script = cluster.write(f"#!/bin/sh\nset -e\n{directive}", mode=0o755)
    for words, is_said in ((f"sbatch -W <{script}", True), (f"cat {script} | sbatch -W", False)):
        done = cluster.run(["sh", "-c", f"cd {shared}; {words}"])
        assert done.returncode == 0, done.stderr
        assert ("/dev/stdin:3: '#SBATCH --environment=" in done.stderr) == is_said


# ---- limits of the shell -------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 5, 6])
def test_an_srun_with_few_descriptors_ends_and_runs_nothing_outside(
    cluster: Cluster, shared: Path, limit: int
) -> None:
    """Its environment has been cleaned, so the job's is found in its parent, which takes some.

    With more of them Slurm itself tries without end to make a socket.
    """
    marker = shared / "ran"
    command = f"sh -c 'cat /etc/os-release >{marker}'"
    clean = f"env -i PATH=$PATH SLURM_CONF=$SLURM_CONF SLURM_JOB_ID=$SLURM_JOB_ID srun {command}"
    script = f"#!/bin/bash\n(ulimit -n {limit}; timeout -k 1 20 {clean})\necho ended $?\n"
    path, out = cluster.write(script, mode=0o755), shared / "out"
    options = [f"--environment={cluster.edf()}", f"--output={out}", "--wait"]
    done = cluster.run(["sbatch", *options, str(path)])
    assert done.returncode == 0, done.stderr
    said = out.read_text()
    (code,) = re.findall(r"^ended (\d+)$", said, re.MULTILINE)
    assert int(code) not in {0, 124, 137}, said
    assert not marker.exists()


# ---- known before anything is allocated ----------------------------------------------------------


def test_an_edf_that_does_not_exist_is_refused(cluster: Cluster, shared: Path) -> None:
    programs = ("srun", "salloc", "sbatch")
    line = _refused_at_submit(cluster, "no-such-environment", shared, *programs)
    assert "no-such-environment" in line
    line = _refused_at_submit(cluster, f"{shared}/none.toml", shared)
    assert f"{shared}/none.toml" in line


def test_an_edf_that_cannot_be_read_is_refused(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf()
    Path(edf).chmod(0o600)
    line = _refused_at_submit(cluster, edf, shared)
    assert edf in line
    assert "ermission denied" in line


def test_an_empty_name_is_refused(cluster: Cluster, shared: Path) -> None:
    line = _refused_at_submit(cluster, "", shared)
    assert line == "ce: error: the name of the environment is empty"


def test_broken_toml_is_refused_with_its_line(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf("[env\nA = 1\n")
    assert f"{edf}:2" in _refused_at_submit(cluster, edf, shared)


def test_a_value_of_the_wrong_type_is_refused_with_its_key(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf('mounts = "a:b"\n')
    line = _refused_at_submit(cluster, edf, shared)
    assert f"{edf}:2: mounts" in line


def test_an_image_that_does_not_exist_is_refused(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'image = "{shared}/none.sqsh"\n', image=None)
    line = _refused_at_submit(cluster, edf, shared)
    assert f"{edf}:1" in line
    assert f"'{shared}/none.sqsh'" in line


def test_an_image_that_cannot_be_read_is_refused(cluster: Cluster, shared: Path) -> None:
    image = shared / "image.sqsh"
    image.write_bytes(cluster.image("static").read_bytes())
    image.chmod(0o600)
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    line = _refused_at_submit(cluster, edf, shared)
    assert f"'{image}'" in line
    assert "ermission denied" in line


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"hsqs", b"\0" * 4096, b"hsqs" + b"\0" * 92]
)
def test_an_image_that_is_not_squashfs_is_refused(
    cluster: Cluster, shared: Path, content: bytes
) -> None:
    image = shared / "image.sqsh"
    image.write_bytes(content)
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    assert f"'{image}'" in _refused_at_submit(cluster, edf, shared)


@pytest.mark.parametrize("part", [0.5, 0.99])
def test_an_image_that_is_cut_short_is_refused(cluster: Cluster, shared: Path, part: float) -> None:
    whole = cluster.image("busybox").read_bytes()
    image = shared / "image.sqsh"
    image.write_bytes(whole[: int(len(whole) * part)])
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    line = _refused_at_submit(cluster, edf, shared)
    assert f"'{image}'" in line
    assert "cut short" in line


# ---- known on the node only ----------------------------------------------------------------------


def _per_node(shared: Path, *nodes: str) -> str:
    for node in nodes:
        (shared / node).mkdir()
    return f'mounts = ["{shared}/${{SLURMD_NODENAME}}:/data"]\n'


def test_a_mount_source_may_depend_on_the_node(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(_per_node(shared, "n1", "n2"))
    for node in ("n1", "n2"):
        (shared / node / "name").write_text(f"{node}\n")
    done = cluster.srun("-N2", f"--environment={edf}", "cat", "/data/name")
    assert sorted(done.stdout.split()) == ["n1", "n2"], done.stderr


def test_a_mount_source_that_is_missing_on_one_node_fails_the_step_and_names_the_node(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(_per_node(shared, "n1"))
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "sh", "-c", "echo $SLURMD_NODENAME")
    assert done.returncode == 125
    assert done.stdout == "n1\nn1\n"
    assert causes(done) == [f"ce: error: n2: {edf}:2: mount source '{shared}/n2': does not exist"]


def test_a_cause_is_printed_once_however_many_tasks_there_are(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(_per_node(shared))
    done = _fails_on_the_node(cluster, edf, shared, "-w", "n1", "-n16")
    assert len(causes(done)) == 1


def test_all_missing_mount_sources_are_named_at_once(cluster: Cluster, shared: Path) -> None:
    sources = [f"{shared}/${{SLURMD_NODENAME}}-{letter}" for letter in "ab"]
    edf = cluster.edf(f"mounts = {json.dumps([f'{s}:/data/{i}' for i, s in enumerate(sources)])}\n")
    done = _fails_on_the_node(cluster, edf, shared, "-w", "n1")
    assert len(causes(done)) == 1
    assert f"{shared}/n1-a'" in causes(done)[0]
    assert f"ce: also: {edf}:2: mount source '{shared}/n1-b': does not exist" in done.stderr


def test_a_workdir_that_does_not_exist_fails_the_step(cluster: Cluster, shared: Path) -> None:
    done = _fails_on_the_node(cluster, cluster.edf('workdir = "/none"\n'), shared, "-n4")
    assert len(causes(done)) == 1
    assert "'/none'" in causes(done)[0]


def test_an_image_damaged_inside_fails_the_step(cluster: Cluster, shared: Path) -> None:
    """The size and the superblock are right, all after it is damaged."""
    whole = bytearray(cluster.image("busybox").read_bytes())
    whole[96:] = b"\xff" * (len(whole) - 96)
    image = shared / "image.sqsh"
    image.write_bytes(whole)
    done = _fails_on_the_node(cluster, cluster.edf(f'image = "{image}"\n', image=None), shared)
    assert len(causes(done)) == 1


def test_an_image_that_goes_away_between_submission_and_start_fails_the_step(
    cluster: Cluster, shared: Path
) -> None:
    image = shared / "image.sqsh"
    image.write_bytes(cluster.image("busybox").read_bytes())
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    script = f"rm -f {image}; srun true; srun sh -c 'touch {shared}/ran'"
    done = cluster.run(["salloc", "-Q", f"--environment={edf}", "sh", "-c", script])
    assert done.returncode == 125
    assert not (shared / "ran").exists()
    assert all(str(image) in line for line in causes(done))
    assert len(causes(done)) == 2


def test_a_device_that_does_not_exist_fails_the_step(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf('devices = ["/dev/no-such-device"]\n')
    done = cluster.srun(f"--environment={edf}", "touch", f"{shared}/ran")
    assert done.returncode == 125
    assert len(causes(done)) == 1
    assert "/dev/no-such-device" in causes(done)[0]


@pytest.mark.parametrize("size", ["4k", "16k"])
def test_a_container_with_too_little_space_fails_and_says_which_space(
    cluster: Cluster, shared: Path, size: str
) -> None:
    edf = cluster.edf(f'[annotations]\n"com.ce.tmpfs_size" = "{size}"\n')
    done = _fails_on_the_node(cluster, edf, shared)
    assert len(causes(done)) == 1
    assert "o space left on device (the container's space in memory, tmpfs_size" in causes(done)[0]


def test_a_task_that_fills_the_containers_space_is_told_so_and_goes_on(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\n"com.ce.tmpfs_size" = "8m"\n')
    script = "dd if=/dev/zero of=/fill bs=1M count=100 2>&1 | grep -c 'No space'; rm /fill; echo on"
    done = cluster.srun(f"--environment={edf}", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "1\non\n"), done.stderr
    assert "memory" not in done.stderr


def test_a_step_that_leaves_the_containers_space_full_is_warned_once(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\n"com.ce.tmpfs_size" = "8m"\n')
    fill = "dd if=/dev/zero of=/tmp/big bs=1M 2>/dev/null"
    done = cluster.srun("-N2", f"--environment={edf}", "sh", "-c", f"! {fill}")
    full = "the container's space in memory (8 MiB) is full: files outside of mounts are kept there"
    [warning] = [line for line in done.stderr.splitlines() if line.startswith("ce: warning: ")]
    assert re.fullmatch(rf"ce: warning: n[12]: {re.escape(full)}", warning), done.stderr
    assert "ce: see: ce help container-space\n" in done.stderr
    assert done.returncode == 0


# ---- large ---------------------------------------------------------------------------------------


def test_an_edf_of_two_mebibytes_is_refused(cluster: Cluster, shared: Path) -> None:
    values = "".join(f'LARGE_{number} = "{"x" * 104_857}"\n' for number in range(20))
    line = _refused_at_submit(cluster, cluster.edf(f"[env]\n{values}"), shared)
    assert "larger than" in line
    assert len(line) < 500


@pytest.mark.parametrize("count", [12, 20])
def test_an_environment_of_up_to_two_mebibytes_arrives_whole_or_is_refused(
    cluster: Cluster, count: int
) -> None:
    values = "".join(f'LARGE_{number} = "${{PART}}"\n' for number in range(count))
    edf = cluster.edf(f"[env]\n{values}")
    script = "import os; print(sum(len(v) for k, v in os.environ.items() if k[:6] == 'LARGE_'))"
    env = {"PART": "x" * 104_857}
    done = cluster.srun(f"--environment={edf}", "python3", "-c", script, env=env)
    if done.returncode == 0:
        assert done.stdout == f"{count * 104_857}\n"
        return
    assert count == 20, done.stderr
    assert done.stdout == ""
    assert len(causes(done)) == 1, done.stderr[:2000]
    assert "too long" in causes(done)[0] or "too large" in causes(done)[0]
    assert len(causes(done)[0]) < 500


def test_an_environment_as_large_as_natively_possible_arrives_whole(
    cluster: Cluster, demo: str
) -> None:
    names = " ".join(f"L{number}=$v" for number in range(15))
    count = "import os; print(sum(map(len, os.environ.values())) // 1_000_000)"
    step = f"srun {{}} python3 -c '{count}'"
    script = f"v=$(head -c 100000 /dev/zero | tr '\\0' x); export {names}; "
    native = cluster.run(["bash", "-c", script + step.format("")])
    inside = cluster.run(["bash", "-c", script + step.format(f"--environment={demo}")])
    assert (inside.stdout, inside.stderr) == (native.stdout, native.stderr) == ("1\n", "")


def test_one_value_longer_than_the_kernel_allows_is_an_error_of_one_line(
    cluster: Cluster, shared: Path
) -> None:
    """An environment cannot hold a string of 128 KiB or more."""
    edf = cluster.edf(f'[env]\nLONG = "{"x" * 200_000}"\n')
    done = cluster.srun(f"--environment={edf}", "touch", f"{shared}/ran")
    assert done.returncode != 0
    assert not (shared / "ran").exists()
    assert all(len(line) < 500 for line in done.stderr.splitlines())
    assert "LONG" in done.stderr or "too long" in done.stderr


def test_five_hundred_mounts_work(cluster: Cluster, shared: Path) -> None:
    """The plan is then longer than 100 KiB."""
    mounts = []
    for number in range(500):
        directory = shared / f"a-directory-with-a-name-of-some-length-{number:03d}"
        directory.mkdir()
        (directory / "number").write_text(f"{number}\n")
        mounts.append(f"{directory}:/mounted/at-a-place-with-a-name-of-some-length/{number:03d}")
    edf = cluster.edf(f"mounts = {json.dumps(mounts)}\n")
    plan = cluster.run(["ce", "plan", "--json", edf])
    assert len(plan.stdout) > 100 * 1024
    script = "echo $(cat /mounted/*/*/number | wc -l) $(cat /mounted/*/499/number)"
    done = cluster.srun("-n2", f"--environment={edf}", "sh", "-c", script, timeout=120)
    assert (done.returncode, done.stdout) == (0, "500 499\n" * 2), done.stderr[:2000]


def test_a_command_line_of_100_kib_arrives_whole(cluster: Cluster, demo: str) -> None:
    done = cluster.srun(
        f"--environment={demo}", "sh", "-c", "echo ${#1} ${#2}", "sh", "x" * 100_000, "y" * 90_000
    )
    assert (done.stdout, done.stderr) == ("100000 90000\n", "")


# ---- strange names -------------------------------------------------------------------------------

_NAMES = [
    "with space",
    "'single'",
    'double"quote',
    "line\nline",
    "tab\tand\\backslash",
    "ünïcödé-日本語",
    "comma,semicolon;equals=",
    "percent%s$dollar`back`",
    "-dash",
    "[brackets]*?",
]


@pytest.mark.parametrize("name", _NAMES)
def test_strange_names_work_for_edfs_images_mounts_workdirs_and_values(
    cluster: Cluster, shared: Path, name: str
) -> None:
    directory = shared / name
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "mark").write_text("there\n")
    image = shared / f"{name}.sqsh"
    image.symlink_to(cluster.image("demo"))
    target = f"/mnt/{name}"
    escaped = [_escape(text) for text in (str(image), f"{directory}:{target}", target, name)]
    text = "image = {}\nmounts = [{}]\nworkdir = {}\n[env]\nNAME = {}\n".format(
        *(json.dumps(text) for text in escaped)
    )
    edf = shared / f"{name}.toml"
    edf.write_text(text)
    script = "import os; print(ascii([os.getcwd(), os.environ['NAME'], open('mark').read()]))"
    option = f"--environment={_escape(str(edf))}"
    done = cluster.srun(option, "python3", "-c", script)
    assert done.stdout == ascii([target, name, "there\n"]) + "\n", done.stderr


def _escape(text: str) -> str:
    """Escape `$`, which begins a variable in an EDF, and the backtick of a command."""
    return text.replace("$", "$$").replace("`", "$`")


@pytest.mark.parametrize("name", _NAMES)
def test_strange_names_are_quoted_in_errors_of_one_line(
    cluster: Cluster, shared: Path, name: str
) -> None:
    edf = cluster.edf(f"image = {json.dumps(_escape(f'{shared}/{name}.sqsh'))}\n", image=None)
    done = cluster.srun(f"--environment={edf}", "true")
    assert done.returncode == 125
    assert len(_own_lines(done)) == 1, done.stderr
    assert _own_lines(done)[0].startswith(f"ce: error: {edf}:1: image")


def test_a_colon_in_a_path_is_refused_with_a_word_about_it(cluster: Cluster, shared: Path) -> None:
    (shared / "a:b").mkdir()
    edf = cluster.edf(f'mounts = ["{shared}/a:b:/data"]\n')
    done = cluster.srun(f"--environment={edf}", "true")
    assert done.returncode == 125
    assert re.search(r":2: mounts\[0\]", causes(done)[0])


def test_bytes_that_are_not_utf8_pass_through_an_environment(cluster: Cluster, demo: str) -> None:
    script = (
        f"""X=$(printf 'a\\377b') srun --environment={demo} sh -c 'printf %s "$X" | od -An -tx1'"""
    )
    done = cluster.run(["bash", "-c", script])
    assert (done.stdout.split(), done.stderr) == (["61", "ff", "62"], "")


def test_a_home_that_does_not_exist_changes_nothing(cluster: Cluster) -> None:
    entry = pwd.getpwnam(ALICE)
    env = {"HOME": "/no/such/home"}
    done = cluster.srun(f"--environment={cluster.edf()}", "id", "-u", env=env)
    assert (done.returncode, done.stdout) == (0, f"{entry.pw_uid}\n"), done.stderr


@pytest.mark.parametrize(
    ("plan", "code", "cause"),
    [
        ("garbage", "plan-damaged", "is damaged: not a JSON document"),
        ("[" * 100_000, "plan-damaged", "is damaged: it is nested too deeply"),
        ("[1]", "plan-damaged", "is damaged: it is not a JSON object"),
        ('{"version":99}', "engine-versions", "understands plans of version 1, not 99"),
        ('{"version":1}', "plan-damaged", "is damaged: it lacks workdir, workdir_from, writable"),
        ("x" * 3_000_000, "plan-damaged", "is damaged: not a JSON document"),
    ],
)
def test_a_plan_that_a_user_has_made_up_fails_the_step_in_one_line(
    cluster: Cluster, demo: str, shared: Path, plan: str, code: str, cause: str
) -> None:
    """A user can replace srun's planner, but no program on the nodes."""
    (shared / "plan").write_text(plan)
    conf = own_planner(cluster, shared, f"echo plan; cat {shared}/plan")
    script = f"touch {shared}/ran /dev/shm/ce-ran"
    done = cluster.srun("-n2", f"--environment={demo}", "sh", "-c", script, env=conf)
    ErrorBlock(done, code, cause)
    assert not (shared / "ran").exists()
    assert not Path("/dev/shm/ce-ran").exists()


@pytest.mark.parametrize("said", ["", "host", "{}", "plan\n"])
def test_a_planner_that_says_neither_plan_nor_host_starts_nothing(
    cluster: Cluster, demo: str, shared: Path, said: str
) -> None:
    conf = own_planner(cluster, shared, f"printf '%s' '{said}'")
    done = cluster.srun(f"--environment={demo}", "touch", f"{shared}/ran", env=conf)
    ErrorBlock(done, "planner-mute", "printed no plan, and not that the step needs none")
    assert not (shared / "ran").exists()


@pytest.mark.parametrize("image", ["${IMG}", "${IMG:-}", "${IMG}${NOT_SET:-}"])
def test_an_image_that_expands_to_nothing_does_not_run_the_command_on_the_host(
    cluster: Cluster, shared: Path, image: str
) -> None:
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    step = ("srun", f"--environment={edf}", "touch", f"{shared}/ran")
    done = cluster.run(step, env={"IMG": ""})
    ErrorBlock(done, "image-empty", f"{edf}:1: image: '{image}' expands to nothing")
    assert not (shared / "ran").exists()


@pytest.mark.parametrize(
    ("signal", "message"), [("KILL", "the planner was killed"), ("INT", "interrupted")]
)
def test_a_planner_that_is_killed_is_named(
    cluster: Cluster, demo: str, shared: Path, signal: str, message: str
) -> None:
    conf = own_planner(cluster, shared, f"kill -{signal} $$")
    done = cluster.srun(f"--environment={demo}", "touch", f"{shared}/ran", env=conf)
    ErrorBlock(done, "planner-killed", message)
    assert not (shared / "ran").exists()


def test_plan_variables_forged_by_a_user_do_not_run_the_command_on_the_host(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    """Users can damage the plan, which travels in the environment, but escape nothing by that."""
    env = {"SLURM_CE_PLAN_PARTS": "1", "SLURM_CE_PLAN_0": "{}"}
    done = cluster.srun(f"--environment={demo}", "sh", "-c", ". /etc/os-release; echo $ID", env=env)
    assert done.stdout == "ce-demo\n", done.stderr
    assert os.listdir(shared) == []


def test_slurms_own_option_with_the_name_of_an_environment_is_refused(
    cluster: Cluster, demo: str
) -> None:
    done = cluster.srun("--container", demo, "hostname")
    assert (done.returncode, done.stdout) == (125, "")
    assert "for OCI bundles" in done.stderr
    assert f"write --environment={demo}" in done.stderr
    assert "ce: see: ce help container-of-slurm" in done.stderr.splitlines()
