"""Properties of any text: nothing is lost or run, and only documented errors occur."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from container_engine.base.errors import UserError
from container_engine.base.variables import OF_TASKS
from container_engine.edf.entries import mount_text, parse_mount
from container_engine.edf.expand import ExpandError, Scope, expand, pieces
from container_engine.edf.layer import Layer, WithOrigin, add_mount, merge
from container_engine.edf.model import (
    Annotation,
    Device,
    EnvEntry,
    Loaded,
    Mount,
    Origin,
    Text,
    Variable,
    deferred_names,
    escape,
    join,
    spell,
)
from container_engine.edf.show import to_json, to_toml
from container_engine.site.model import SiteConfig
from tests.unit.edf.cases import ENV, is_deferred, load_edf
from tests.unit.edf.watching import nothing_started

SCOPE = Scope(ENV, {"EDF_DIR": "/edf"}, is_deferred)
HERE = Origin("/x.toml", 1)
COUNT = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
PARTS = st.sampled_from(
    [
        "$", "$$", "${", "}", "`", "(", ")", ":", "\\", "\\:", "-", "+", "?", "=", "!", "@", "#",
        "/", "./", "ro", "image", "image:", "HOME", "EMPTY", "NOPE", "SLURM_A", "MARKED",
    ]
)  # fmt: skip
SOUP = st.lists(PARTS | TEXT, max_size=12).map("".join)
VARIABLES = st.builds(
    Variable,
    st.sampled_from(["SLURM_A", "SLURM_JOB_ID", "image:PATH"]),
    st.sampled_from(["", ":-", "-", ":+", "+", ":?", "?"]),
    TEXT,
).map(lambda var: var if var.op else Variable(var.var))
DEFERRED = st.lists(TEXT | VARIABLES, max_size=5).map(join)


@pytest.fixture(autouse=True)
def nothing_is_started() -> Iterator[None]:
    with nothing_started():
        yield


@COUNT
@given(DEFERRED)
@example("$HOME $(id) `id` ${x} $$")
def test_an_escaped_text_expands_to_itself(text: Text) -> None:
    assert expand(escape(text), SCOPE) == text


@COUNT
@given(SOUP)
@example("${NOPE:-${HOME")
@example("${image:}")
@example("$`" * 3)
def test_any_text_expands_or_is_refused_with_a_reason(text: str) -> None:
    try:
        result = expand(text, SCOPE)
    except ExpandError as error:
        faults = error.faults
    else:
        assert expand(escape(result), SCOPE) == result
        return
    assert all(message for message, _ in faults)
    assert faults


@COUNT
@given(TEXT)
def test_a_text_without_dollars_and_backticks_is_left_alone(text: str) -> None:
    plain = text.replace("$", "").replace("`", "")
    assert expand(plain, SCOPE) == plain


@COUNT
@given(TEXT)
def test_the_value_of_a_variable_is_never_looked_at_again(value: str) -> None:
    scope = Scope({"A": value}, {}, is_deferred)
    assert expand("$A|${A}|${A-x}|${B:-$A}", scope) == "|".join([value] * 4)


@pytest.mark.parametrize(
    "name",
    [
        *("SLURMD_NODENAME", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_STEPID", *OF_TASKS),
        *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE"),
    ],
)
def test_what_each_node_or_step_has_is_left_to_them_where_the_caller_has_one_too(name: str) -> None:
    scope = Scope({name: "of a batch script", "SLURM_JOB_ID": "7"}, {}, SiteConfig().is_deferred)
    text = expand(f"$SLURM_JOB_ID-${{{name}:-x}}", scope)
    assert (deferred_names(text), spell(text, str)) == ([name], f"7-${{{name}:-x}}")
    assert expand(f"${name}", Scope({name: "x"}, {}, lambda _name: False)) == "x"


@COUNT
@given(st.lists(st.tuples(TEXT, TEXT), max_size=6))
def test_no_text_around_variables_is_lost(pairs: list[tuple[str, str]]) -> None:
    written = "".join(f"{escape(text)}${{V{number}}}" for number, (text, _) in enumerate(pairs))
    values = {f"V{number}": value for number, (_, value) in enumerate(pairs)}
    result = expand(written, Scope(values, {}, is_deferred))
    assert result == "".join(text + value for text, value in pairs)


@COUNT
# A destination that leads to / is refused for another reason.
@given(TEXT.filter(bool), TEXT.filter(bool).filter(lambda text: "/.." not in text))
def test_a_mount_is_not_split_in_the_value_of_a_variable(source: str, target: str) -> None:
    scope = Scope({"S": f"/s{source}", "T": f"/t{target}"}, {}, is_deferred)
    mount = parse_mount(pieces("$S:$T:ro", scope), "/cwd", HERE)
    assert isinstance(mount.source, str)
    assert isinstance(mount.target, str)
    assert mount.source.startswith("/s")
    assert mount.options == ("ro",)


@COUNT
@given(st.lists(PARTS | TEXT, max_size=12).map("".join))
@example("/a\\")
@example("\\:/x:/y")
@example("./\\\\:/y")
def test_any_mount_is_refused_or_is_the_same_after_a_round_trip(text: str) -> None:
    mount = _mount(text)
    if mount is not None:
        assert _mount(mount_text(mount, escape)) == mount


def _mount(text: str) -> Mount | None:
    try:
        return parse_mount(pieces(text, SCOPE), "/cwd", HERE)
    except UserError:
        return None


def _load(content: bytes) -> Loaded:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "x.toml"
        path.write_bytes(content)
        return load_edf(path)


@COUNT
@given(st.binary(max_size=200))
def test_any_bytes_give_an_edf_or_an_error(content: bytes) -> None:
    loaded = _load(content)
    assert (loaded.edf is None) == bool(loaded.errors)
    assert all(str(problem) for problem in loaded.problems)


LINES = st.lists(
    st.sampled_from(
        [
            "image = ", "mounts = [", "]", "[env]", "[annotations]", "[[a]]", "a.b = ", '"', "'",
            '"""', "{", "}", ",", "\n", "= ", "# ", "true", "1", "1.50", "2024-01-01", '"/a:/b"',
            '"${HOME}"', '"$(id)"', "com.hooks.ssh.enabled = ", "writable = ", "base_environment =",
            "\t", "\\", "é", "\x01", "<USER>", "...", "[env", "\r\n", "inf", "0x", "1__0",
        ]
    ),
    max_size=15,
)  # fmt: skip


@COUNT
@given(LINES.map("".join))
def test_any_near_toml_gives_an_edf_or_an_error(text: str) -> None:
    loaded = _load(text.encode())
    assert (loaded.edf is None) == bool(loaded.errors)


def _toml(text: str) -> str:
    escaped = "".join(f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


@COUNT
@given(TEXT, st.dictionaries(TEXT.filter(lambda n: n and "=" not in n), DEFERRED, max_size=4))
def test_rendering_is_a_fixed_point_for_any_value(image: str, env: dict[str, Text]) -> None:
    lines = [f"image = {_toml(escape(image))}", "[env]"]
    lines += [f"{_toml(name)} = {_toml(escape(value))}" for name, value in env.items()]
    loaded = _load("\n".join(lines).encode())
    if loaded.edf is None:
        assert "placeholder" in str(loaded.errors[0])
        return
    assert loaded.edf.image == image
    assert {entry.name: entry.value for entry in loaded.edf.env} == env
    again = _load(to_toml(loaded.edf).encode()).edf
    assert again is not None
    assert to_toml(again) == to_toml(loaded.edf)
    assert to_json(again) == to_json(loaded.edf)


MOUNTS = st.lists(
    st.builds(
        Mount,
        st.just("bind"),
        st.sampled_from(["/a", "/b"]),
        st.sampled_from(["/x", "/y", "/z"]),
        st.sampled_from([(), ("ro",)]),
        st.just(HERE),
    ),
    max_size=4,
)
LAYERS = st.builds(
    lambda workdir, writable, mounts, devices, startup, env, annotations: Layer(
        workdir=workdir and WithOrigin(workdir, HERE),
        writable=None if writable is None else WithOrigin(writable, HERE),
        annotations={key: Annotation(key, value, HERE) for key, value in annotations.items()},
        devices={name: Device(name, is_cdi=False, origin=HERE) for name in devices},
        mounts=_by_target(mounts),
        startup=dict.fromkeys(startup, HERE),
        env={name: EnvEntry(name, value, HERE) for name, value in env.items()},
    ),
    st.sampled_from([None, "/a", "/b"]),
    st.sampled_from([None, True, False]),
    MOUNTS,
    st.lists(st.sampled_from(["/dev/a", "/dev/b", "/dev/c"]), max_size=4),
    st.lists(st.sampled_from("abc"), max_size=4),
    st.dictionaries(st.sampled_from("AB"), st.sampled_from(["", "1"])),
    st.dictionaries(st.sampled_from(["x.a", "x.b"]), st.sampled_from(["0", "1"])),
)


def _by_target(mounts: list[Mount]) -> dict[Text, Mount]:
    result: dict[Text, Mount] = {}
    for mount in mounts:
        add_mount(result, mount, [])
    return result


@COUNT
@given(LAYERS, LAYERS, LAYERS)
def test_merging_is_associative(one: Layer, two: Layer, three: Layer) -> None:
    left = merge(merge(one, two, []), three, [])
    right = merge(one, merge(two, three, []), [])
    assert left == right
    for one_way, other_way in (
        (left.mounts, right.mounts),
        (left.devices, right.devices),
        (left.startup, right.startup),
    ):
        assert list(one_way) == list(other_way)  # their order is significant


def test_parts_are_joined_without_a_trace() -> None:
    var = Variable("SLURM_A")
    assert join(["a", "", "b"]) == "ab"
    assert join([]) == ""
    assert join(["a", "b", var, "", var, "c", "d"]) == ("ab", var, var, "cd")
