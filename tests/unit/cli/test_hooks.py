"""`ce hooks` reads the catalog as a launch does."""

import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.integration.libraries import build
from tests.unit.catalog.sites import SMALLEST

Capture = pytest.CaptureFixture[str]

_USER = 61_001


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    directory = tmp_path / "hooks.d"
    directory.mkdir()
    return directory


@pytest.fixture(autouse=True)
def site(tmp_path: Path, catalog: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(f'hook_catalog = ["{catalog}"]\n')
    return file


def write(catalog: Path, name: str, text: str) -> Path:
    file = catalog / name / "hook.toml"
    file.parent.mkdir()
    file.write_text(text)
    return file


def run(site: Path, *words: str) -> int:
    return main(["--site", str(site), "hooks", *words])


def test_all_hooks_are_listed_with_their_origin(site: Path, catalog: Path, capsys: Capture) -> None:
    write(catalog, "own", SMALLEST)
    write(catalog, "ssh", "turned_off = true")
    assert run(site, "list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["hooks"]}
    assert rows["own"]["from"] == "site"
    assert rows["cxi"]["from"] == "built-in"
    assert (rows["ssh"]["from"], rows["ssh"]["turned_off"]) == ("changed", True)
    assert run(site, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("ssh "))
    assert line.split(maxsplit=5)[1:5] == ["off", "at", "this", "site"]
    assert line.endswith("changed   a login into the container, by ssh")


def test_a_hook_is_shown_with_what_users_may_say(site: Path, capsys: Capture) -> None:
    assert run(site, "show", "aws_ofi_nccl") == 0
    shown = capsys.readouterr().out
    for text in (
        'com.hooks.aws_ofi_nccl.enabled = "true"',
        "com.hooks.aws_ofi_nccl.variant: cuda-dl | cuda12 | cuda13 |",
        "slingshot-2026.06: 22 variables, active",
        "implies       cxi",
        "transport: run ce-ask net libnccl-net.so cxi (warn)",
        "plugin: loadable libnccl-net.so (warn)",
    ):
        assert text in shown


def test_an_automatic_hook_is_shown_with_the_steps_it_is_for(site: Path, capsys: Capture) -> None:
    assert run(site, "show", "pmi2") == 0
    steps = "automatic, in steps that have the variable PMI_FD or SLURM_MPI_TYPE=pmi2"
    assert f"default       {steps}\n" in capsys.readouterr().out


def test_an_unknown_hook_gets_the_nearest_name(site: Path, capsys: Capture) -> None:
    assert run(site, "show", "aws_ofi_ncl") == 1
    message, hint = capsys.readouterr().err.splitlines()
    assert message == "ce: error: there is no hook 'aws_ofi_ncl', did you mean 'aws_ofi_nccl'?"
    assert hint.startswith("ce: hint: there are amd_gpu, aws_ofi_nccl, ")


def test_the_built_in_hooks_have_no_fault(site: Path, capsys: Capture) -> None:
    assert run(site, "check") == 0
    assert capsys.readouterr().out.endswith(
        f" hooks, 0 of them in {site.parent}/hooks.d: no fault\n"
    )


def test_the_check_says_where_it_looked_for_hooks_of_the_site(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    write(catalog, "thing", 'summary = "a thing"\nhelp = "A thing."\n')
    site.write_text(f'hook_catalog = ["{catalog}/", "{tmp_path}/none"]\n')
    assert run(site, "check") == 0
    wanted = f" hooks, 1 of them in {catalog}/, {tmp_path}/none: no fault\n"
    assert capsys.readouterr().out.endswith(wanted)


def test_a_directory_is_checked_before_it_is_the_sites(
    site: Path, tmp_path: Path, capsys: Capture
) -> None:
    new = tmp_path / "new"
    new.mkdir()
    file = write(new, "own", SMALLEST)
    file.chmod(0o666)
    assert run(site, "check", str(new)) == 1
    said = capsys.readouterr()
    assert said.err == (
        f"ce: error: {file}: others than its owner may write it\nce: hint: chmod go-w {file}\n"
    )
    assert said.out == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_a_user_tries_a_hook_of_their_own_which_the_site_would_refuse(capsys: Capture) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        new, site = Path(place, "new"), Path(place, "config.toml")
        new.mkdir()
        for path in (write(new, "own", SMALLEST), new / "own", new):
            os.chown(path, _USER, _USER)
        site.write_text(f'hook_catalog = ["{new}"]\n')
        site.chmod(0o644)
        run(site, "check", str(new))  # imports what the user may not read in this checkout
        capsys.readouterr()
        os.seteuid(_USER)
        try:
            assert run(site, "check", str(new)) == 0
            note = "(as the site's catalog, its files must be root's: chown -R root:)"
            assert capsys.readouterr().out.splitlines()[1:] == [note]
            assert run(site, "check") == 1
        finally:
            os.seteuid(0)
        assert f"{new}: owned by user {_USER}, not by root" in capsys.readouterr().err


def test_a_directory_that_does_not_exist_is_a_fault(site: Path, capsys: Capture) -> None:
    assert run(site, "check", "/nonexistent") == 1
    assert capsys.readouterr().err == "ce: error: /nonexistent: is not a directory\n"


def test_two_hooks_that_edit_one_path_are_a_fault(
    site: Path, catalog: Path, capsys: Capture
) -> None:
    write(catalog, "a", SMALLEST + '[edits.e]\nmounts = [{ source = "/a", target = "/x" }]\n')
    file = write(catalog, "b", SMALLEST + '[edits.e]\nmounts = [{ source = "/x" }]\n')
    assert run(site, "check") == 1
    assert capsys.readouterr().err == (
        f"ce: error: {file}: edits the path /x, as the hook 'a' does in another way\n"
        'ce: hint: write conflicts = ["a"]\n'
    )
    file.write_text(f'conflicts = ["a"]\n{file.read_text()}')
    assert run(site, "check") == 0


def test_a_program_that_does_not_exist_is_a_fault(
    site: Path, catalog: Path, capsys: Capture
) -> None:
    text = '[[edits.e.hooks]]\nhookName = "poststop"\npath = "{here}/program"\n'
    file = write(catalog, "a", SMALLEST + text)
    assert run(site, "check", "--json") == 1
    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    program = file.with_name("program")
    assert fault["message"] == f"hooks: {program} is not a program that can run here"
    program.touch(mode=0o755)
    assert run(site, "check") == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('comand = ["a"]', ":5: unknown key 'checks.c.comand', did you mean 'command'?"),
        ('command = ["a"]\ntimeout = 1', ":6: unknown key 'checks.c.timeout'"),
        ('command = ["a"]\nlimit_s = 0', ":6: checks.c.limit_s: must be greater than 0"),
        ('command = ["a"]\nexit_code = 300', ":6: checks.c.exit_code: must be at most 255"),
        ('command = ["a", 4]', ":5: checks.c.command[1]: must be a string"),
        ("", ":3: checks.c.command: is missing"),
    ],
)
def test_a_mistake_in_a_check_has_its_line(
    site: Path, catalog: Path, capsys: Capture, text: str, said: str
) -> None:
    file = write(catalog, "a", f'{SMALLEST}[checks.c]\nkind = "run"\n{text}\n')
    assert run(site, "check") == 1
    assert f"ce: error: {file}{said}\n" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["list", "validate", "plan"])
def test_nothing_goes_on_with_a_bad_catalog(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture, verb: str
) -> None:
    file = write(catalog, "a", "x")
    edf = tmp_path / "e.toml"
    edf.write_text('image = "/i.sqsh"\n')
    words = ["hooks", "list"] if verb == "list" else [verb, str(edf)]
    assert main(["--site", str(site), *words]) == 1
    error, hint, see = capsys.readouterr().err.splitlines()
    assert see == "ce: see: ce help hook-catalog"
    assert error.startswith(f"ce: error: hook catalog: {file}: not valid TOML: ")
    assert "'ce hooks check' shows all" in hint


def told(capsys: Capture) -> list[list[str]]:
    """Return the columns that `test` prints, without its notes in brackets."""
    lines = capsys.readouterr().out.splitlines()
    return [re.split(r"  +", line, maxsplit=2) for line in lines if not line.startswith("(")]


def test_what_a_node_lacks_is_reported(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = f"""
[edits.e]
devices = [{{ path = "/dev/null" }}, {{ path = "/dev/nothing*", optional = true }}]
mounts = [{{ source = "{tmp_path}/*.toml" }}]
"""
    file = write(catalog, "a", SMALLEST + text)
    assert run(site, "test", "a") == 0
    assert told(capsys) == [
        ["ok", "device", "/dev/null"],
        ["absent", "device", "/dev/nothing*"],
        ["ok", "mount", f"{tmp_path}/*.toml: {site}"],
    ]
    file.write_text(SMALLEST + '[edits.e]\nlibraries = [{ files = ["/nonexistent/*.so"] }]\n')
    assert run(site, "test", "a") == 1
    assert told(capsys) == [["missing", "library", "/nonexistent/*.so"]]


def test_a_file_is_no_device_and_a_text_no_library(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "cxi0").touch()
    (tmp_path / "libx.so").write_text("INPUT(libx.so.1)")
    text = f"""
[edits.e]
devices = [{{ path = "{tmp_path}/cxi*" }}]
libraries = [{{ files = ["{tmp_path}/libx.so"] }}]
"""
    write(catalog, "a", SMALLEST + text)
    assert run(site, "test", "a") == 1
    assert told(capsys) == [
        ["missing", "device", f"{tmp_path}/cxi*"],
        ["lacks", "library", f"{tmp_path}/libx.so: {tmp_path}/libx.so: not an ELF file"],
    ]


def test_a_library_with_a_missing_dependency_is_reported(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    gone = build(tmp_path / "libgone.so.3", "libgone.so.3", symbol="gone")
    middle = build(tmp_path / "libmid.so.2", "libmid.so.2", needs=[gone], wants=["gone"])
    where = [f"-Wl,-rpath,{tmp_path}"]
    needs = ["use_libmid_so_2"]
    top = build(tmp_path / "libtop.so.1", "libtop.so.1", needs=[middle], wants=needs, flags=where)
    gone.unlink()
    write(catalog, "a", SMALLEST + f'[edits.e]\nlibraries = [{{ files = ["{top}"] }}]\n')
    assert run(site, "test", "a") == 1
    said = f"{top}: libmid.so.2 needs libgone.so.3, which this node lacks"
    assert told(capsys) == [["lacks", "library", said]]


def test_a_hook_fails_its_test_if_the_node_has_none_of_its_files(
    site: Path, catalog: Path, capsys: Capture
) -> None:
    text = '[edits.e]\nlibraries = [{ files = ["/nonexistent/*.so"], optional = true }]\n'
    write(catalog, "a", SMALLEST + text)
    assert run(site, "test", "a") == 1
    assert capsys.readouterr().out.endswith(
        "a: this node has none of the files that the hook provides\n"
    )


def test_the_other_values_of_a_parameter_are_looked_up_too(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "green").touch()
    text = f"""
[parameters.colour]
help = "h"
values = ["green", "red"]
default = "green"
[edits.e]
mounts = [{{ source = "{tmp_path}/{{colour}}" }}]
"""
    write(catalog, "a", SMALLEST + text)
    assert run(site, "test", "a") == 0
    assert told(capsys) == [
        ["ok", "mount", f"{tmp_path}/green"],
        ["absent", "mount", f"{tmp_path}/red (colour = red)"],
    ]


def test_a_check_of_the_node_counts_and_says_its_hint(
    site: Path, catalog: Path, capsys: Capture
) -> None:
    check = '[checks.c]\nkind = "device"\nsubject = "/dev/nothing*"\nhint = "slow"\n'
    write(catalog, "a", SMALLEST + check)
    assert run(site, "test", "a") == 1
    said = "/dev/nothing*: no device '/dev/nothing*' on this node (slow)"
    assert told(capsys) == [["lacks", "device", said]]


def test_programs_of_checks_are_looked_up_but_for_those_of_images(
    site: Path, catalog: Path, capsys: Capture
) -> None:
    checks = "".join(
        f"[checks.{name}]\nkind = 'run'\nprogram = '{name}'\ncommand = ['{word}']\n"
        for name, word in (("image", "nothing"), ("host", "sh"), ("hook", "prove"))
    )
    prove = write(catalog, "a", SMALLEST + checks).with_name("prove")
    assert run(site, "test", "a") == 1
    said = capsys.readouterr().out
    assert "(programs of its checks were not run: ce vet ENVIRONMENT runs them)\n" in said
    assert run(site, "test", "a") == 1
    assert told(capsys) == [["ok", "program", "/usr/bin/sh"], ["missing", "program", str(prove)]]
    assert run(site, "check") == 1
    said = f"checks.hook.command: {prove} is not a program that can run here"
    assert said in capsys.readouterr().err
    prove.write_text("#!/bin/sh\n")
    prove.chmod(0o755)
    assert run(site, "check") == 0


def test_what_only_a_step_knows_is_not_called_missing(site: Path, capsys: Capture) -> None:
    assert run(site, "test", "pmix") == 0
    assert capsys.readouterr().out.startswith("in a step mount    {node.CE_PMIX_DIR}\n")


@pytest.mark.parametrize("order", [("explain", "--json", "x"), ("--json", "explain", "x")])
def test_options_may_stand_anywhere(site: Path, capsys: Capture, order: tuple[str, ...]) -> None:
    assert run(site, *order) == 1
    assert "no environment 'x'" in capsys.readouterr().err


def test_validate_reports_conflicts_between_hooks(
    site: Path, catalog: Path, tmp_path: Path, capsys: Capture
) -> None:
    write(catalog, "a", SMALLEST + 'conflicts = ["b"]\n')
    write(catalog, "b", SMALLEST)
    text = '[annotations]\ncom.hooks.a.enabled = "true"\ncom.hooks.b.enabled = "true"\n'
    for name, image, code in (("whole", 'image = "x"\n', 1), ("base", "", 0)):
        edf = tmp_path / f"{name}.toml"
        edf.write_text(f"{image}entrypoint = false\n{text}")
        assert main(["--site", str(site), "validate", str(edf)]) == code
        said = capsys.readouterr().err
        assert ("cannot be used together with the hook 'b'" in said) == bool(code)


@pytest.mark.parametrize("kind", ["oci", "cdi"])
def test_oci_hooks_and_cdi_files_are_checked_too(
    site: Path, tmp_path: Path, capsys: Capture, kind: str
) -> None:
    place = tmp_path / kind
    place.mkdir()
    key = {"oci": "hooks_dirs", "cdi": "cdi_dirs"}[kind]
    site.write_text(f'{site.read_text()}{key} = ["{place}"]\n')
    assert run(site, "check") == 0
    (place / "a.json").write_text("{")
    assert run(site, "check") == 1
    assert capsys.readouterr().err.startswith(f"ce: error: {place}/a.json: ")
    (place / "a.json").chmod(0o666)
    assert run(site, "check") == 1
    assert "others than its owner may write it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            ["explain"],
            "hooks explain: no environment is given",
            "ce hooks explain NAME; ce list shows the environments",
        ),
        (
            ["show", "a", "b"],
            "hooks show: only one hook at a time",
            "ce hooks show NAME; ce hooks list shows the hooks",
        ),
    ],
)
def test_a_missing_name_is_asked_for(
    site: Path, capsys: Capture, words: list[str], message: str, hint: str
) -> None:
    assert run(site, *words) == 1
    assert capsys.readouterr().err == f"ce: error: {message}\nce: hint: {hint}\n"
