"""Output of `ce` as its user sees it."""

import contextlib
import errno
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from container_engine import __version__
from container_engine.cli.command_line.parser import build, help_of
from container_engine.cli.command_line.verb_table import examples_of, verbs
from container_engine.cli.main import main
from container_engine.compat.foreign import FOREIGN_ACTIONS, FOREIGN_VERBS
from container_engine.faults.catalogue import FAULTS
from container_engine.submit import plan_output
from container_engine.tools import help_pages
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed


def write(installed: Installed, text: str) -> Path:
    squashfs.make(installed.home / "i.sqsh", {"etc/environment": "FROM=inside\n"})
    file = installed.home / "e.toml"
    file.write_text(text)
    return file


def test_ce_alone_says_what_it_can_do(installed: Installed) -> None:
    done = installed.ce()
    assert done.returncode == 0
    for verb in ("validate", "plan", "run", "render", "import", "version"):
        assert f"ce {verb}" in done.stdout


def test_the_overview_is_printed_in_any_locale(installed: Installed) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = installed.run(str(installed.prefix / "bin/ce"), env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")


def test_ce_alone_and_its_help_name_every_verb(installed: Installed) -> None:
    for words in ([], ["--help"]):
        said = installed.ce(*words).stdout
        for verb, about in verbs().items():
            assert f"  ce {verb:<11}{about.help}\n" in said


def test_help_alone_is_an_overview_with_every_verb(installed: Installed) -> None:
    lines = installed.ce("help").stdout.splitlines()
    assert len(lines) <= 22
    words = " ".join(lines).split()
    assert [verb for verb in verbs() if verb not in words] == []


def test_help_errors_lists_the_codes(installed: Installed) -> None:
    said = installed.ce("help", "errors").stdout
    assert all(f"{code} " in said for code in FAULTS)
    done = installed.ce("help", "nonsense")
    assert done.stderr == (
        "ce: error: 'nonsense': no page, error or verb is about this\n"
        "ce: hint: 'ce help errors' lists all codes\n"
    )


@pytest.mark.parametrize("verb", verbs())
def test_each_verb_has_examples_that_its_parser_accepts(verb: str) -> None:
    assert 1 <= len(examples_of(verb)) <= 2
    for example in examples_of(verb):
        ce, *words = shlex.split(example)
        assert (ce, words[0]) == ("ce", verb)
        build([verb]).parse_args(words)
        assert f"\n  {example}\n" in help_of(verb)


def test_help_has_the_width_of_the_terminal_and_keeps_the_lines_of_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for columns in (60, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        widest = max(map(len, help_of("run").splitlines()))
        assert (widest > 80) == (columns == 200)
        for action in ("list", "show NAME", "check [DIR ...]", "test NAME", "explain EDF"):
            assert f"\n{action} " in help_of("hooks")


def test_an_unknown_option_refers_to_the_verbs_help(installed: Installed) -> None:
    assert installed.ce("plan", "--wrong", "e").stderr.splitlines()[1] == (
        "ce: hint: 'ce plan --help' shows how to use it"
    )


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_people_who_want_them(
    installed: Installed, terminal: bool, environment: dict[str, str], coloured: bool
) -> None:
    """script(1) gives the command a terminal and keeps its output."""
    words = [str(installed.prefix / "bin/ce"), "plan", "nowhere"]
    if terminal:
        words = ["script", "-qec", " ".join(words), "/dev/null"]
    done = installed.run(*words, env=environment)
    red = "\033[1;31mce: error:\033[0m nowhere: no environment"
    plain = "ce: error: nowhere: no environment"
    assert (red if coloured else plain) in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "ce: error: unknown verb 'frobnicate'"),
        (["explian", "e"], "ce: error: unknown verb 'explian', did you mean 'explain'?"),
        (["plan"], "ce: error: plan: NAME is missing\n"),
        (["exec"], "ce: error: exec: JOB[.STEP]|NAME is missing\n"),
        (["ssh"], "ce: error: ssh: JOB is missing\n"),
        (["import"], "ce: error: import: SOURCE is missing\n"),
        (["-x"], "ce: error: there is no option -x\n"),
        (["--verison"], "ce: error: there is no option --verison, did you mean --version?\n"),
        (["--site=x"], "ce: error: no verb is given\n"),
        (["inspect", "--depth=a", "x"], "ce: error: inspect: --depth: 'a' is not a whole number"),
        (["doctor", "--node", "--all-nodes"], "ce: error: doctor: either --all-nodes or --node"),
        (["gc", "--days", "9"], "ce: error: gc: there is no option --days\n"),
        (["plan", "--wrong", "e"], "ce: error: plan: there is no option --wrong\n"),
        (
            ["gc", "--unsued=3"],
            "ce: error: gc: there is no option --unsued, did you mean --unused?",
        ),
        (["plan", "e", "f"], "ce: error: plan: too many words: f\n"),
        (["gc", "--unused"], "ce: error: gc: --unused needs a value\n"),
        (["build", "-f"], "ce: error: build: --file needs a value\n"),
        (["store", "x"], "ce: error: store: 'x' is not one of check, repair\n"),
        (["pull", "--arch"], "ce: error: pull: --arch needs a value\n"),
        (["pull", "--platform=linux/arm46", "x"], "ce: error: pull: --arch: 'linux/arm46' is no a"),
        (["import", "--arch=windows/arm64", "x"], "ce: error: import: --arch: 'windows/arm64' is"),
        (["run"], "ce: error: run: no environment is given"),
    ],
)
def test_a_wrong_command_line_is_two_lines_and_exit_code_2(
    installed: Installed, words: list[str], message: str
) -> None:
    done = installed.ce(*words)
    error, hint = done.stderr.splitlines()
    assert done.returncode == 2
    assert f"{error}\n".startswith(message)
    assert hint.startswith("ce: hint: ")


@pytest.mark.parametrize(
    ("verb", "example"), [("plan", "ce plan train"), ("diff", "ce diff train ./train-new.toml")]
)
def test_a_missing_name_is_answered_with_a_command(
    installed: Installed, verb: str, example: str
) -> None:
    done = installed.ce(verb)
    hint = f"ce: hint: for example {example}; 'ce {verb} --help' shows how to use it"
    assert done.stderr.splitlines()[1] == hint


@pytest.mark.parametrize(
    ("verb", "counterpart"),
    [
        ("uname", "ce run NAME -- uname runs the command"),
        ("commit", "ce build"),
        ("logs", "slurm-JOB.out"),
        ("stop", "scancel JOB.STEP"),
        ("rm", "ce rmi"),
        ("prune", "ce gc"),
        ("start", "ce shell NAME"),
        ("attach", "ce exec JOB"),
        ("tag", "ce build -t NAME"),
        ("load", "ce import docker-archive:FILE"),
        ("compose", "srun --overlap -n1 --environment=NAME COMMAND &"),
        ("ls", "ce list"),
    ],
)
def test_a_verb_of_another_tool_is_answered_with_ours(
    verb: str, counterpart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([verb, "-a", "x"])
    error, hint = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert error == f"ce: error: ce has no verb '{verb}'"
    assert hint.startswith("ce: hint: ")
    assert counterpart in hint


@pytest.mark.parametrize(
    ("words", "counterpart"),
    [
        (("config", "set", "trace_dir", "/x"), "as root edit the file that 'ce config show' names"),
        (("config", "get", "trace_dir"), "'ce config show' prints every setting with its file"),
        (("config", "trace_dir"), "'ce config show' prints every setting with its file"),
        (("config", "./new.toml"), "'ce config check FILE' checks a file"),
        (("config", "sho"), "did you mean 'ce config show'?"),
        (("config", "validate"), "'ce config check' does that"),
        (("hooks", "enable", "pmix"), 'com.hooks.NAME.enabled = "true"'),
        (("hooks", "chek"), "did you mean 'ce hooks check'?"),
        (("store", "ls"), "'ce images' lists the images of the store"),
        (("store", "chek"), "did you mean 'ce store check'?"),
    ],
)
def test_an_unknown_action_is_answered_with_what_was_meant(
    words: tuple[str, ...], counterpart: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    error, hint = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert error == f"ce: error: {words[0]}: there is no action '{words[1]}'"
    assert counterpart in hint


@pytest.mark.parametrize(
    ("words", "counterpart"),
    [
        (["images", "rm", "ubuntu"], "ce rmi NAME"),
        (["images", "ls"], "without a word"),
        (["images", "prune"], "ce gc"),
        (["list", "demo"], "ce explain NAME"),
        (["pull", "ubuntu", "24.04"], "ce pull ubuntu:24.04"),
        (["pull", "ubuntu:24.04", "debian"], "one image at a time"),
    ],
)
def test_words_that_are_too_many_are_answered_with_what_was_meant(
    installed: Installed, words: list[str], counterpart: str
) -> None:
    done = installed.ce(*words)
    error, hint = done.stderr.splitlines()
    assert done.returncode == 2
    assert error.startswith(f"ce: error: {words[0]}: too many words: ")
    assert counterpart in hint


@pytest.mark.parametrize("option", ["-v", "-V", "--version"])
def test_the_version_is_there_where_other_tools_have_it(installed: Installed, option: str) -> None:
    assert installed.ce(option).stdout == f"ce {__version__}\n"


def test_the_counterparts_name_verbs_that_exist() -> None:
    assert not set(FOREIGN_VERBS) & set(verbs())
    for text in (
        *FOREIGN_VERBS.values(),
        *(t for a in FOREIGN_ACTIONS.values() for t in a.values()),
    ):
        assert "\n" not in text
        assert set(re.findall(r"(?:^|\W)ce ([a-z-]+)", text)) - {"only", "does"} <= set(verbs())


def test_a_plan_is_printed_for_people_and_for_programs(installed: Installed) -> None:
    file = write(installed, 'image = "./i.sqsh"\n[env]\nA = "${image:FROM}"\n')
    shown = installed.ce("plan", "./e.toml")
    assert "env          A=inside" in shown.stdout
    assert f"# {file}:3\n" in shown.stdout
    document = json.loads(installed.ce("plan", "--json", "./e.toml").stdout)
    assert document["env"] == [{"name": "A", "value": "inside", "from": f"{file}:3"}]
    assert document["image"]["path"] == str(installed.home / "i.sqsh")


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["run"]])
@pytest.mark.parametrize(
    ("image", "error"),
    [
        ('image = "A B"', ":1: image: 'A B' is not a valid name in a registry"),
        ('image = "i.sqsh"', ":1: image: 'i.sqsh': a reference to a registry, since a path"),
        ("", ": image: missing, so this environment can only serve as a base for others"),
    ],
)
def test_a_wrong_image_is_reported_with_all_other_errors(
    installed: Installed, words: list[str], image: str, error: str
) -> None:
    file = write(installed, f'{image}\nmounts = ["${{NOPE}}"]\nwritable = 1\n')
    done = installed.ce(*words, "./e.toml", *(["true"] if words == ["run"] else []))
    told = [line for line in done.stderr.splitlines() if line.startswith("ce: error")]
    assert [line.rpartition(": ")[2] for line in told[:2]] == [
        "variable 'NOPE' is not defined",
        "expected true or false, found the integer 1",
    ]
    assert told[2].startswith(f"ce: error: {file}{error}")
    assert len(told) == 3


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["run"]])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": image: missing, so this environment can only serve as a base for others"),
        ('image = "./no.sqsh"', ":1: image: '{home}/no.sqsh': no such file or directory"),
        ('image = "./e.toml"', ":1: image: '{home}/e.toml': not a SquashFS file but {kind}"),
        ('image = "i.sqsh"', ":1: image: 'i.sqsh': a reference to a registry, {path}"),
        (
            'image = "./i.sqsh"\n[env]\nA = "${image:NO}"',
            ":3: env.A: ${{image:NO}}: the image does not define it",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_by_every_verb_alike(
    installed: Installed, words: list[str], text: str, error: str
) -> None:
    file = write(installed, text)
    command = ["--", "true"] if words == ["run"] else []
    done = installed.ce(*words, "./e.toml", *command)
    known = {"home": installed.home, "kind": "something unknown"}
    expected = error.format(**known, path="since a path begins with '/' or '.'")
    assert done.stderr.splitlines()[0] == f"ce: error: {file}{expected}"
    assert (done.returncode, done.stdout) == (125 if words == ["run"] else 1, "")


def test_no_container_on_purpose_prints_nothing_but_a_notice(installed: Installed) -> None:
    file = write(installed, 'image = ""')
    done = installed.ce("plan", "--json", "./e.toml")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"ce: warning: {file}:1: image: empty: no container, this runs on the host\n"
    )


@pytest.mark.parametrize("words", [["plan"], ["run"]])
def test_an_image_that_expands_to_nothing_is_not_the_host(
    installed: Installed, words: list[str]
) -> None:
    file = write(installed, 'image = "${IMG:-}"')
    command = ["--", "touch", "ran"] if words == ["run"] else []
    done = installed.ce(*words, "./e.toml", *command, env={"IMG": ""})
    assert done.stderr.splitlines()[0] == (
        f"ce: error: {file}:1: image: '${{IMG:-}}' expands to nothing"
    )
    assert done.stderr.endswith("ce: see: ce help image-empty\n")
    assert done.returncode != 0
    assert not (installed.home / "ran").exists()


def test_the_plugin_gets_one_word_if_there_is_no_container(
    installed: Installed,
) -> None:
    write(installed, 'image = ""')
    for asked in (
        installed.ce("plan", "--json", "--for", "srun", "--", "./e.toml"),
        installed.quick("--for", "srun", "--", "./e.toml"),
    ):
        assert (asked.returncode, asked.stdout) == (0, "host\n")
    assert installed.quick("./e.toml").stdout == ""


@pytest.mark.parametrize(
    ("command", "code", "stdout"),
    [
        (["sh", "-c", "echo $1; exit 3", "x", "--help"], 3, "--help\n"),
        (["/none"], 127, ""),
        (["/etc/passwd"], 126, ""),
        (["sh", "-c", "kill -9 $$"], -9, ""),
    ],
)
@pytest.mark.parametrize("dashes", [["--"], []])
def test_without_a_container_run_becomes_the_command(
    installed: Installed, command: list[str], code: int, stdout: str, dashes: list[str]
) -> None:
    write(installed, 'image = ""')
    done = installed.ce("run", "./e.toml", *dashes, *command)
    assert (done.returncode, done.stdout) == (code, stdout)


def test_control_characters_of_a_file_do_not_reach_the_terminal(installed: Installed) -> None:
    write(installed, 'image = "./i\\u001b[2J\\nce: error: x.sqsh"')
    done = installed.ce("plan", "./e.toml")
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\nce: error") == 0
    assert done.stderr.startswith("ce: error: ")


def test_a_mistake_of_ours_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(plan_output, "plan_of", lambda *_anything: 1 / 0)
    monkeypatch.delenv("CE_DEBUG", raising=False)
    assert main(["plan", "e"]) == 1
    [log] = (tmp_path / "container-engine/errors").iterdir()
    assert capsys.readouterr().err == (
        "ce: error: internal error: ZeroDivisionError: division by zero\n"
        "ce: hint: please report it, with the details\n"
        f"ce: details: {log}\n"
        "ce: see: ce help internal-error\n"
    )
    assert "Traceback" in log.read_text()
    assert log.read_text().splitlines()[-1] == (
        f"ce {__version__}, Python {platform.python_version()}, Linux {platform.release()} "
        f"{platform.machine()}"
    )
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (OSError(errno.EFBIG, "File too large"), "file too large", "ulimit -f"),
        (OSError(errno.EMFILE, "Too many open files", "/x"), "/x: too many open files", "-n"),
        (OSError(errno.ENOSPC, "No space left", "/x"), "/x: no space left", "make room"),
        (MemoryError(), "out of memory", "--mem"),
    ],
)
def test_a_limit_that_is_reached_is_not_an_internal_error(
    error: Exception,
    said: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(*_anything: object) -> None:
        raise error

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(plan_output, "plan_of", fail)
    assert main(["plan", "e"]) == 1
    cause, hint, _details, see = capsys.readouterr().err.splitlines()
    assert cause == f"ce: error: {said}"
    assert remedy in hint
    assert see == "ce: see: ce help limit-reached"


def test_a_removed_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["plan", "e"]) == 1
    assert capsys.readouterr().err.startswith(
        "ce: error: current directory: no such file or directory\n"
    )


def test_the_site_file_of_the_installation_decides(installed: Installed, tmp_path: Path) -> None:
    write(installed, 'image = "./i.sqsh"')
    site = tmp_path / "config.toml"
    site.write_text("tmpfs_size = '7m'\n")
    done = installed.ce("--site", str(site), "plan", "--json", "./e.toml")
    assert json.loads(done.stdout)["settings"]["tmpfs_size"] == "7m"


def test_the_quick_way_prints_what_the_long_way_prints(installed: Installed) -> None:
    write(installed, 'image = "./i.sqsh"\nworkdri = "/"\n[env]\nA = "ü ${HOME}"\n')
    for file in (installed.home / "i.sqsh", installed.home / "e.toml"):
        os.utime(file)
    long = installed.ce("plan", "--json", "./e.toml")
    assert "ce: warning: " in long.stderr
    facts = f"image={installed.home}/i.sqsh\nplan\n"
    for words, word in ((["./e.toml"], ""), (["--for", "srun", "--", "./e.toml"], facts)):
        quick = installed.quick(*words)
        assert (quick.returncode, quick.stderr) == (0, long.stderr)
        # ce plan prints ASCII, for terminals
        assert quick.stdout.startswith(word)
        assert json.loads(quick.stdout.removeprefix(word)) == json.loads(long.stdout)


def test_the_quick_way_fails_as_the_long_way_does(installed: Installed) -> None:
    write(installed, 'image = "./no.sqsh"')
    quick = installed.quick("--for", "sbatch", "--", "./e.toml")
    long = installed.ce("plan", "--json", "./e.toml")
    assert (quick.returncode, quick.stdout, quick.stderr) == (1, "", long.stderr)


def test_the_quick_way_wants_one_name(installed: Installed) -> None:
    done = installed.quick("a", "b")
    assert (done.returncode, done.stderr) == (
        2,
        "ce: error: usage: plan [--for srun|salloc|sbatch] [OPTION ...] NAME\n",
    )


def test_a_difference_has_colours_on_a_terminal(installed: Installed) -> None:
    for name in ("a", "b"):
        (installed.home / f"{name}.toml").write_text(f'workdir = "/{name}"\n')
    words = [str(installed.prefix / "bin/ce"), "diff", "./a.toml", "./b.toml"]
    plain = installed.run(*words, env={"TERM": "xterm"}).stdout.splitlines()
    assert [line[:15] for line in plain] == ['- workdir = "/a', '+ workdir = "/b']
    shown = installed.run("script", "-qec", " ".join(words), "/dev/null", env={"TERM": "xterm"})
    assert shown.stdout.splitlines() == [f"\033[31m{plain[0]}\033[0m", f"\033[32m{plain[1]}\033[0m"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("ps --all", 1, "ce trace lists those that have ended"),
        ("help imge-empty", 1, "did you mean 'image-empty'?"),
        ("import image.tar", 1, "for a file: ./image.tar"),
    ],
)
def test_first_tries_are_answered_with_what_works(
    installed: Installed, words: str, code: int, said: str
) -> None:
    done = installed.ce(*words.split())
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("pip install", "ce help python-packages "),
        ("docker compose", "ce help docker "),
        ("Hostlist is empty", "ce help docker "),
        ("Invalid generic resource", "ce help docker "),
        ("docker run -it", "ce help docker "),
        ("-it docker --rm", "ce help docker "),
        ("no space left on device", "ce help files "),
        ("store full", "ce help store-full "),
        ("mpirun", "ce help mpirun-inside "),
        ("import lock", "ce help store-busy "),
        ("hidepid", "ce help security "),
        ("core dump", "ce help short-answers "),
        ("attach gdb", "ce help profile "),
        ("audit", "ce help monitoring "),
        ("cp", "ce has no verb 'cp': ce exec JOB -- cat /FILE > FILE copies a file"),
        ("logs", "ce has no verb 'logs': the output of a job is in Slurm's file"),
        ("purge of images", "ce help guide/images "),
        ("where is my output", "ce help short-answers "),
        ("copy file out of container", "ce help short-answers "),
        ("environment variable not visible in container", "ce help short-answers "),
        ("override an environment variable on the command line", "ce help short-answers "),
        ("start a server and a client in one job", "ce help short-answers "),
        ("two services in one job", "ce help short-answers "),
        ("mount", "ce help files "),
        ("plain http", "ce help registries "),
        ("insecure", "ce help registries "),
        ("install a package", "ce help install-packages "),
        ("run jupyter", "ce help jupyter "),
    ],
)
def test_help_about_any_words_names_the_pages_about_them(
    installed: Installed, words: str, first: str
) -> None:
    done = installed.ce("help", *words.split())
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].strip().startswith(first)


# what papers on centres, schedulers and other engines speak of, also where it is none of our work
_BESIDE = (
    *("kubernetes", "k8s", "rke2", "helm", "argocd", "kserve", "pbs", "torque", "uge", "straggler"),
    *("stragglers", "vetnode", "vetting", "node vetting", "gssr", "dcgm", "saturation", "s3"),
    *("utilisation", "utilization", "lustre", "stripe", "striping", "burst buffer", "nvme", "ceph"),
    *("object storage", "flight recorder", "sif", "oras", "erofs", "composefs", "hpccm", "uenv"),
    *("charliecloud", "shifter", "firecrest", "tenant", "vcluster", "topology", "gpudirect"),
    *("sharp", "efa", "gh200", "grace hopper", "memlock", "telemetry", "opentelemetry", "ci/cd"),
    *("baseline", "regression", "pipeline", "supply chain", "pickle"),
)


@pytest.mark.parametrize("words", _BESIDE)
def test_help_has_an_answer_to_what_is_beside_containers(words: str) -> None:
    pages = help_pages.search(words, help_pages.read("", verbs()))
    assert "beside" in [page.name for page in pages[:3]]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("docker", "Coming from Docker or Podman"),
        ("howto/docker", "Coming from Docker or Podman"),
        ("guide/images", "Images and the store"),
        ("mpi", "Fix MPI ranks that do not find one another"),
    ],
)
def test_help_prints_a_page_by_its_name(installed: Installed, name: str, title: str) -> None:
    said = installed.ce("help", name).stdout
    assert said.startswith(f"{title}\n")
    assert not re.search(r"!\[|!!!|```|^\|", said, re.MULTILINE)


def test_a_verb_with_actions_does_the_harmless_one_by_itself(installed: Installed) -> None:
    for verb, action in (("hooks", "list"), ("config", "show"), ("store", "check")):
        alone, named = installed.ce(verb), installed.ce(verb, action)
        assert (alone.returncode, alone.stdout) == (named.returncode, named.stdout)
        assert alone.stderr == named.stderr


@pytest.mark.parametrize(
    "words", [("ce", "images"), ("ce", "plan", "e.toml"), ("apptainer", "run")]
)
def test_an_interrupt_at_any_time_ends_it_without_a_word(
    installed: Installed, words: tuple[str, ...]
) -> None:
    """Also while Python imports what a command needs, which is most of the time of a short one."""
    write(installed, 'image = "./i.sqsh"\n')
    place = installed.prefix / "libexec/container-engine"
    command = place / words[0]
    if not command.exists():
        command.symlink_to("ce-start")
    script = place / "python/apptainer"
    script.write_text(
        "import sys\nfrom container_engine.compat.apptainer import main\n"
        "from container_engine.cli.main import main as ce\nsys.exit(main(ce))\n"
    )
    installed.run(str(command), *words[1:])  # compiles what it imports
    began = time.monotonic()
    whole = installed.run(str(command), *words[1:])
    took = time.monotonic() - began
    ends = []
    for number in range(30):
        began = time.monotonic()
        process = subprocess.Popen(
            [str(command), *words[1:]],
            env={"HOME": str(installed.home), "PATH": os.environ["PATH"]},
            cwd=installed.home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(number * took / 30)
            took = min(took, time.monotonic() - began)  # the first one was slower than the rest
        process.send_signal(signal.SIGINT)
        _out, said = process.communicate(timeout=60)
        ends.append(process.returncode)
        assert process.returncode in {-signal.SIGINT, whole.returncode}, said
        assert said in {"", whole.stderr}  # it may have come too late
    assert ends.count(-signal.SIGINT) > 2, ends
