"""container_engine.api: one truth with `ce`, and text that means what its types say."""

import inspect
import json
import os
import pickle
import pydoc
import re
import subprocess
import sys
import tomllib
from collections import abc
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from container_engine import api
from container_engine.cli.main import main
from container_engine.compat.pyxis_overlay import read
from container_engine.edf.document import Document
from container_engine.edf.model import Edf
from container_engine.submit.context import of_this_process
from container_engine.submit.environment import load_effective
from tests.unit.edf.published import OUTCOMES
from tests.unit.edf.test_fuzz import COUNT
from tests.unit.edf.test_published import PUBLISHED

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EDF_PATH", raising=False)
    return tmp_path


def test_every_public_name_is_there_and_has_a_description() -> None:
    for name in set(api.__all__) - {"VERSION"}:
        assert getattr(api, name).__doc__, name


def _classes(found: object) -> Iterator[type]:
    """Yield the engine's classes in a type."""
    if isinstance(found, type) and found.__module__.startswith("container_engine."):
        yield found
    for part in get_args(found):
        yield from _classes(part)


def _annotated(what: object) -> Iterator[type]:
    """Yield the engine's classes that a function's, or a class's, annotations name."""
    kinds = what.__mro__ if inspect.isclass(what) else (what,)
    for kind in kinds:
        if not kind.__module__.startswith("container_engine."):
            continue
        below = [one for name, one in vars(kind).items() if not name.startswith("_")]
        for one in (kind, vars(kind).get("__init__"), *below):
            found = getattr(one, "fget", None) or inspect.unwrap(getattr(one, "__func__", one))
            if found is kind or getattr(found, "__module__", "") == kind.__module__:
                names = {**vars(abc), **vars(api), **vars(sys.modules[found.__module__])}
                for hint in get_type_hints(found, names).values():
                    yield from _classes(hint)


def test_every_type_that_the_api_returns_can_be_imported_from_it() -> None:
    public = [getattr(api, name) for name in api.__all__ if name != "VERSION"]
    assert {one for what in public for one in _annotated(what)} - set(public) == set()
    assert {api.Parameter, api.PlanImage, api.ListedCheck, api.Variable} <= set(public)


def test_help_is_about_the_engine_alone() -> None:
    text = pydoc.plain(pydoc.render_doc(api))
    assert "model_validate" not in text
    assert "removesuffix" not in text
    assert {"from_file", "to_toml", "write", "origins"} <= set(dir(api.Environment))
    assert "model_copy" in dir(api.Environment())


def test_a_copy_is_checked_as_a_new_environment_is() -> None:
    environment = api.Environment(base_environment="pytorch", mounts=["/a:/a"])
    for update in ({"imagee": "x"}, {"mounts": [Path("/tmp")]}, {"env": {"A": 8}}):
        with pytest.raises(ValidationError):
            environment.model_copy(update=update)
    copy = environment.model_copy(update={"image": api.Image.registry("docker.io", "debian")})
    assert tomllib.loads(copy.to_toml()) == {
        "base_environment": "pytorch",
        "image": "docker://docker.io/debian",
        "mounts": ["/a:/a"],
    }


# of the others, which are alike for this, every fourth
_TELLING = [
    *(number for number, outcome in OUTCOMES.items() if outcome != "launches"),
    *[number for number, outcome in OUTCOMES.items() if outcome == "launches"][::4],
]


@pytest.mark.parametrize("number", _TELLING)
def test_the_verdict_on_a_published_file_is_that_of_ce(number: str, capsys: Capture) -> None:
    [path] = PUBLISHED.glob(f"{number}*.toml")
    main(["validate", "--json", str(path)])
    [said] = json.loads(capsys.readouterr().out)["environments"]
    verdict = api.validate(path)
    assert verdict.valid == said["valid"]
    assert (verdict.image, [*verdict.files]) == (said["image"], said["files"])
    assert [asdict(problem) for problem in verdict.problems] == said["problems"]
    if main(["render", "--format=toml", str(path)]) == 0:
        assert api.Environment.from_file(path).to_toml() == capsys.readouterr().out
    else:
        with pytest.raises(api.RefusedError) as refused:
            api.Environment.from_file(path)
        assert refused.value.problems == tuple(verdict.problems)


@pytest.mark.parametrize("name", ["pytorch", "hree", "./none.toml", "wrong.toml", "absent.toml"])
def test_each_error_has_the_hint_that_ce_prints(here: Path, name: str, capsys: Capture) -> None:
    (here / ".edf").mkdir()
    (here / ".edf/here.toml").write_text('image = "debian:12"\n')
    (here / "wrong.toml").write_text('image = "debian:12"\nmounts = 1\nworkdir = "x y/"\n')
    (here / "absent.toml").write_text('image = "debian:12"\nmounts = ["/nowhere:/data"]\n')
    main(["validate", "--check-files", name])
    printed = capsys.readouterr().err
    verdict = api.validate(name)
    problems = (*verdict.problems, *verdict.missing)
    assert problems
    for problem in problems:
        assert problem.hint
        assert problem.see
        assert f"ce: hint: {problem.hint}\n" in printed
        assert problem.line or problem.file in (name, str(here / name))


def test_a_path_is_a_file_and_never_a_name(here: Path) -> None:
    (here / ".edf").mkdir()
    (here / ".edf/named.toml").write_text('image = "debian:12"\n')
    (here / "other").write_text('image = "alpine:3"\n')
    assert api.validate("named").image == "debian:12"
    assert not api.validate(Path("named")).valid
    assert api.srun_args(Path("named")) == [f"--environment={here}/named"]
    assert api.validate(Path("other")).image == "alpine:3"
    assert api.Environment.from_file(Path("other")).image == "alpine:3"
    assert not api.validate("other").valid


def test_only_a_launch_needs_an_image(here: Path, capsys: Capture) -> None:
    (here / "base.toml").write_text("mount = []\n[env]\nA = '1'\n")
    assert api.validate("base.toml").valid
    verdict = api.validate("base.toml", launch=True)
    assert not verdict.valid
    assert main(["plan", "base.toml"]) != 0
    printed = capsys.readouterr().err
    assert "".join(problem.text for problem in verdict.problems) in printed
    assert verdict.problems[-1].see == "image-not-named"
    (here / "host.toml").write_text('image = ""\n')
    assert api.validate("host.toml", launch=True).valid


def test_a_verdict_is_of_tuples_and_can_be_a_key(here: Path) -> None:
    (here / "absent.toml").write_text('image = "debian:12"\nmounts = ["/nowhere:/data"]\n')
    first, second = api.validate("absent.toml"), api.validate("none")
    assert len({first, second}) == 2
    assert len(first.missing) == 1


def test_the_keys_and_their_types_are_those_of_the_schema() -> None:
    schema = api.Environment.model_json_schema()
    assert schema["properties"] == Document.model_json_schema()["properties"]


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
_SCALARS = st.one_of(_TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1))
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@COUNT
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "image": st.one_of(_TEXTS, st.lists(_TEXTS, min_size=1, max_size=2)),
            "base_environment": st.one_of(_TEXTS, st.lists(_TEXTS, max_size=2)),
            "description": _TEXTS,
            "workdir": _TEXTS,
            "writable": st.booleans(),
            "mounts": st.lists(_TEXTS, max_size=3),
            "startup": st.lists(_TEXTS, max_size=2),
            "env": st.dictionaries(_NAMES, _TEXTS, max_size=3),
        },
    )
)
def test_an_environment_is_the_same_once_it_was_text(values: dict[str, object]) -> None:
    environment = api.Environment.of(values)
    assert api.Environment.of(tomllib.loads(environment.to_toml())) == environment


@COUNT
@given(st.dictionaries(_NAMES.filter(lambda name: "\0" not in name), _SCALARS, max_size=3))
def test_annotations_are_written_as_text_under_dotted_keys(values: dict[str, object]) -> None:
    flat = {key: v if isinstance(v, str) else str(v).lower() for key, v in values.items()}
    environment = api.Environment(annotations={"com": {"x": values}} if values else {})
    found = tomllib.loads(environment.to_toml()).get("annotations", {})
    assert found == {f"com.x.{key}": value for key, value in flat.items()}


def test_an_annotation_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(api.UserError, match=r"annotations\.a: expected a string, boolean"):
        api.Environment(annotations={"a": [1]}).to_toml()


@pytest.mark.parametrize(
    "values", [{"image": 1}, {"imag": "x"}, {"mounts": "/a"}, {"env": {"A": 1}}]
)
def test_wrong_types_and_unknown_keys_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        api.Environment(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('imagee = "x"', "unknown key 'imagee', did you mean 'image'?"),
        ('"{words}" = "x"', "unknown key '{words}'"),
    ],
)
def test_an_unknown_key_is_named_as_ce_validate_names_it(
    text: str, said: str, here: Path, capsys: Capture
) -> None:
    with pytest.raises(ValidationError) as refused:
        api.Environment(**tomllib.loads(text))
    assert [one["msg"] for one in refused.value.errors()] == [said]
    (here / "x.toml").write_text(text)
    main(["validate", "--strict", "x.toml"])
    key, _, meant = said.partition(",")
    assert re.search(f"{re.escape(key)}.*{re.escape(meant)}", capsys.readouterr().err)


def test_an_unknown_key_of_a_check_is_named_with_its_place() -> None:
    check = {"name": "a", "command": ["a"], "exitcode": 1}
    with pytest.raises(ValidationError) as refused:
        api.Environment.model_validate({"image": 1, "checks": [check]})
    *wrong, unknown = refused.value.errors()
    assert {one["loc"][0] for one in wrong} == {"image"}
    assert unknown["msg"] == "unknown key 'checks[0].exitcode', did you mean 'exit_code'?"


def test_callers_have_types_that_mypy_knows() -> None:
    """`make lint` fails if mypy finds nothing to ignore here."""
    with pytest.raises(ValidationError):
        api.Environment(image=1)  # type: ignore[arg-type]
    mounts = [api.Mount.bind("/scratch")]
    found: list[str] | list[api.Mount] = api.Environment(mounts=mounts).mounts
    assert found == ["/scratch:/scratch"]


def _loaded(path: str) -> Edf:
    edf = load_effective(path, of_this_process(None)).edf
    assert edf is not None
    return edf


_PATHS = st.text(st.sampled_from("ab:$\\{}` ,'\"+é"), min_size=1, max_size=8).map("/d/{}x".format)


@settings(COUNT, max_examples=COUNT.max_examples // 8)
@given(_PATHS, _PATHS, st.sampled_from([(), ("ro",), ("ro", "rslave")]))
def test_paths_of_mounts_are_meant_to_the_letter(
    source: str, target: str, flags: tuple[str, ...]
) -> None:
    mounts = [
        api.Mount.bind(source, target, *flags),
        api.Mount.squashfs(source, f"{target}2"),
        api.Mount.tmpfs(f"{target}3", size="1g"),
    ]
    image = api.Image.file(f"{source}.sqsh")
    variable = api.literal(source)
    path = api.Environment(image=image, mounts=mounts, env={"A": variable}).write("x.toml")
    edf = _loaded(path)
    assert (edf.image, edf.env[0].value) == (f"{source}.sqsh", source)
    found = [(m.kind, m.source, m.target, m.options) for m in edf.mounts]
    assert found == [
        ("bind", source, target, flags),
        ("squashfs", source, f"{target}2", ()),
        ("tmpfs", "tmpfs", f"{target}3", ("size=1g",)),
    ]


def test_what_is_inherited_keeps_its_place(here: Path) -> None:
    (here / "base.toml").write_text('image = "ubuntu:24.04"\n[env]\nA = "1"\n')
    base = f"{here}/base.toml"
    path = api.Environment(base_environment=[base], env={"B": "2"}).write(here / "x.toml")
    found = api.Environment.from_file(path)
    assert found.env == {"A": "1", "B": "2"}
    assert found.origins["env.A"] == api.Origin(base, 3)
    assert found.origins["env.B"].file == path
    assert api.srun_args(path) == [f"--environment={path}"]
    assert api.srun_args(Path("x.toml")) == [f"--environment={path}"]
    assert api.srun_args("x.toml") == [f"--environment={path}"]
    for name in ("pytorch", "group/pytorch", "~/x.toml", "${SCRATCH}/x.toml"):
        assert api.srun_args(name) == [f"--environment={name}"]


def test_a_hook_is_enabled_by_its_annotations() -> None:
    annotations = api.hook("aws_ofi_nccl", variant="cuda12")
    prefix = "com.hooks.aws_ofi_nccl"
    assert annotations == {f"{prefix}.enabled": "true", f"{prefix}.variant": "cuda12"}
    assert "cuda12" in api.hooks()["aws_ofi_nccl"].parameters["variant"].values


@pytest.mark.parametrize(
    ("name", "parameters", "said", "key"),
    [
        ("aws_ofi", {}, "there is no hook 'aws_ofi', did you mean 'aws_ofi_nccl'?", ""),
        ("cxi", {"speed": 1}, "hook 'cxi': speed: unknown parameter", "speed"),
        ("ssh", {"prot": 1}, "hook 'ssh': prot: unknown parameter, did you mean 'port'?", "prot"),
        ("ssh", {"port": 0}, "hook 'ssh': port: ", "port"),
    ],
)
def test_mistakes_in_hooks_are_refused(
    name: str, parameters: dict[str, str | int], said: str, key: str
) -> None:
    with pytest.raises(api.UserError) as refused:
        api.hook(name, **parameters)
    assert str(refused.value).startswith(said)
    assert refused.value.key == key


def test_pyxis_gets_what_the_environment_says(here: Path) -> None:
    environment = api.Environment(
        image="docker://quay.io/centos/centos:7",
        mounts=["/a:/b:ro", "tmpfs:/t"],
        workdir="/w$$",
        writable=False,
        entrypoint=True,
        env={"A": "1"},
        annotations={"com.ce": {"root_remap": True, "container_name": "x", "unshare": "net"}},
    )
    words = api.pyxis_args(environment)
    layer = read(words, {"A": "1"}, str(here))
    assert layer.problems == ()
    edf = _loaded(environment.write("x.toml"))
    found = layer.layer
    assert found.image is not None
    assert found.workdir is not None
    assert (
        (found.image.value, found.workdir.value)
        == (edf.image, edf.workdir)
        == (
            "docker://quay.io/centos/centos:7",
            "/w$",
        )
    )
    said = [(m.kind, m.source, m.target, m.options) for m in found.mounts.values()]
    assert said == [(m.kind, m.source, m.target, m.options) for m in edf.mounts]
    assert {key: one.value for key, one in found.annotations.items()} == {
        one.key: one.value for one in edf.annotations
    }
    assert "--container-readonly" in words


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": "a", "devices": ["/dev/fuse"]}, "devices: pyxis has no option for this"),
        ({"image": ["a", "b"]}, "image: pyxis has no option for anything but one image"),
        ({"image": "a", "mounts": ["/a:/b,c"]}, "mounts[0]: pyxis has no option for commas"),
        ({"image": "a", "mounts": ["/a:/b:sqsh"]}, "mounts[0]: pyxis has no option for mounts of"),
        ({"image": "a", "workdir": "$HOME"}, "workdir: contains variables (HOME), which pyxis"),
        ({"image": "a", "env": {"A": ""}}, "env.A: pyxis has no option for removing a variable"),
        ({"image": "a", "annotations": {"com.hooks.cxi.enabled": True}}, "annotations.com.hooks"),
    ],
)
def test_what_pyxis_cannot_express_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(api.UserError) as refused:
        api.pyxis_args(api.Environment.of(values))
    assert str(refused.value).startswith(said)


def test_plugins_of_pydantic_see_the_models_of_a_program_that_imports_the_api(here: Path) -> None:
    about = here / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pydantic]\nother = other:Plugin\n")
    (here / "other.py").write_text(
        "class Plugin:\n"
        "    def new_schema_validator(schema, kind, *more):\n"
        "        print(kind.__name__)\n"
        "        return None, None, None\n"
    )
    program = (
        "import pydantic\nfrom container_engine import api\nclass Mine(pydantic.BaseModel): ...\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])}
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    assert "Mine" in ended.stdout.split()


def test_a_refusal_returns_from_another_process() -> None:
    with pytest.raises(api.RefusedError) as refused:
        api.Environment.from_file("none.toml")
    returned = pickle.loads(pickle.dumps(refused.value))
    assert str(returned) == str(refused.value)
    assert returned.problems == refused.value.problems
    assert returned.hint == refused.value.hint


def test_text_that_no_file_can_have_is_not_written(here: Path) -> None:
    with pytest.raises(api.UserError, match="not valid Unicode"):
        api.Environment(env={"A": "\udcff"}).write("env.toml")
    assert not (here / "env.toml").exists()
    written = api.Environment(env={"A\n😀": "\x1b\x7f😀"})
    assert tomllib.loads(written.to_toml()) == {"env": written.env}


def test_an_image_that_is_refused_is_not_left_out_of_the_file() -> None:
    verdict = api.validate(api.Environment(image=[]).write("env.toml"))
    assert [problem.message for problem in verdict.problems] == ["an empty array has no image"]
