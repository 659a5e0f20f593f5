"""`ce build` before it starts Podman."""

import pytest

from container_engine.cli.verbs.build import effects
from tests.unit.cli.conftest import Installed


@pytest.mark.parametrize(
    ("base", "why"), [("./none.sqsh", "no such file"), ("./directory", "not a SquashFS file")]
)
def test_a_base_that_is_not_an_image_of_this_host_is_refused(
    installed: Installed, base: str, why: str
) -> None:
    recipe = installed.home / "recipe"
    (recipe / "directory").mkdir(parents=True)
    (recipe / "Containerfile").write_text(f"FROM {base}\n")
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce("build", "-t", "x:1", str(recipe), env=store)
    assert done.returncode == 1
    assert done.stderr.startswith("ce: error: ")
    assert why in done.stderr
    assert "internal" not in done.stderr


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (
            "name: x\nchannels: [conda-forge]\n",
            "Containerfile:1: 'name:': unknown instruction\nce: hint: a file of conda's: ",
        ),
        ("services:\n", "Containerfile:1: 'services:': unknown instruction\nce: hint: a file of D"),
        ("FROM a\nENV A\n", "Containerfile:2: 'ENV': 'A' has no value: ENV A=VALUE\n"),
        ("FROM a\nRUM x\n", "Containerfile:2: 'RUM': unknown instruction, did you mean RUN?\n"),
        (
            "FROM $B\n",
            "Containerfile:1: FROM $B: the variable B has no value\nce: hint: --build-arg B=",
        ),
        (
            "FROM localhost/x:1\n",
            "Containerfile:1: FROM localhost/x:1: no image of this name was imported or built",
        ),
    ],
)
def test_what_no_build_can_do_is_refused_before_it_begins(
    installed: Installed, content: str, answer: str
) -> None:
    recipe = installed.home / "recipe"
    recipe.mkdir()
    (recipe / "Containerfile").write_text(content)
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce("build", "-t", "x:1", str(recipe), env=store)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ce: error: {answer}")


def test_a_recipe_beside_the_context_has_one_name_in_all_messages(installed: Installed) -> None:
    (installed.home / "context").mkdir()
    recipe = installed.home / "recipe"
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    for content in ("RUM x\n", "FROM localhost/x:1\n"):
        recipe.write_text(content)
        done = installed.ce("build", "-f", "recipe", "-t", "x:1", "context", env=store)
        assert done.returncode == 1
        assert done.stderr.startswith(f"ce: error: {recipe}:1: ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("-t", "two"), "for the directory you are in: ce build -t two ."),
        (("A=b",), "ce build --build-arg A=b ."),
        ((".profile",), "ce build -f .profile ."),
    ],
)
def test_a_build_without_its_directory_is_answered_with_the_command(
    installed: Installed, words: tuple[str, ...], hint: str
) -> None:
    (installed.home / ".profile").touch()
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce("build", *words, env=store)
    assert done.returncode != 0
    assert done.stderr.endswith(f"{hint}\n")


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--pull", "--no-cache asks the registry for newer images of FROM"),
        ("--push", "ce push sends it to a registry"),
        ("--ssh=default", "--secret id=key,src=FILE shows a key to RUN --mount=type=secret,id=key"),
    ],
)
def test_an_option_of_another_tools_build_is_answered_with_what_is_here(
    installed: Installed, option: str, instead: str
) -> None:
    done = installed.ce("build", option, "--rm", "--progress", "plain", ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ce: error: build: {option.partition('=')[0]}: ")
    assert instead in done.stderr


@pytest.mark.parametrize("words", [("build", "none"), ("pack", "none", "x.sqsh")])
def test_a_directory_that_is_not_there_is_called_so(
    installed: Installed, words: tuple[str, ...]
) -> None:
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce(*words, env=store)
    assert done.returncode == 1
    assert done.stderr.startswith("ce: error: 'none': no such directory\n")


def test_a_build_names_the_program_of_an_entrypoint_as_the_command() -> None:
    text = 'FROM a\nENTRYPOINT ["python3", "app.py"]\n'
    (line,) = effects(text, "")
    assert line == (
        "ENTRYPOINT is not run by itself: name its program, python3 app.py …; for a wrapper that"
        ' ends with exec "$@": entrypoint = true'
    )
    unused, _program = effects(f"{text}CMD x\n", "")
    assert unused.startswith("CMD has no effect in containers of a job; ENV and WORKDIR have ")
    (line,) = effects("FROM a\nONBUILD RUN b\n", "")
    assert line.startswith("ONBUILD is not kept in the image")
    assert effects(text, "stage") == effects("FROM a\nENTRYPOINT exec a\n", "") == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("id=a,value=geheim", "--secret: not id=NAME,src=FILE or id=NAME,env=VARIABLE"),
        ("geheim", "--secret: not id=NAME,src=FILE or id=NAME,env=VARIABLE"),
        ("id=../a,src=token", "--secret: not id=NAME,src=FILE or id=NAME,env=VARIABLE"),
        ("id=a,env=NOT_SET", "--secret: 'NOT_SET': this variable is not set"),
        ("id=a,src=/none", "--secret: '/none': no such file or directory"),
        ("id=a,source=/dev/zero", "--secret: '/dev/zero': "),
    ],
)
def test_a_secret_that_cannot_be_read_is_refused_and_not_shown(
    installed: Installed, text: str, answer: str
) -> None:
    recipe = installed.home / "recipe"
    recipe.mkdir()
    (recipe / "Containerfile").write_text("FROM scratch\n")
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce("build", "--secret", text, str(recipe), env=store)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ce: error: {answer}")
    assert "geheim" not in done.stderr
