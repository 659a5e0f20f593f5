"""The step of a build that failed, and what the build must not leave in the image."""

import hashlib
import json
from pathlib import Path

import pytest

from container_engine.build import layout
from container_engine.build.containerfile_lines import (
    From,
    Mistake,
    Mount,
    arguments_of,
    bases_of,
    entrypoint_of,
    first_mistake,
    line_of,
    line_of_complaint,
    mounts_of,
    shortened,
    sources_of,
    stage_of,
    stages_of,
    volumes_of,
    with_lines,
    with_names,
    without_effect,
)

_RECIPE = """\
# syntax=docker/dockerfile:1
FROM debian:12 AS base
RUN apt-get update && \\
    # comments are allowed here

    apt-get install -y  curl
COPY a /a

RUN make
RUN make
RUN <<EOF
false
EOF
FROM --platform=linux/arm64 a AS b
RUN one;\
two
"""


@pytest.mark.parametrize(
    ("step", "number", "line"),
    [
        ("FROM debian:12 AS base", 1, 2),
        ("RUN apt-get update &&     apt-get install -y  curl", 2, 3),
        ("COPY a /a", 3, 7),
        ("RUN make", 5, 10),  # the second of two
        ("RUN make", 9, 0),
        ("RUN unknown", 2, 0),
        ("RUN <<EOF (false)", 6, 11),  # Podman 5
        ("false", 7, 12),  # Podman 4
        ("FROM a AS b", 1, 14),
        ("RUN one;two", 2, 15),
    ],
)
def test_the_line_of_a_step_is_given_where_it_is_certain(step: str, number: int, line: int) -> None:
    assert line_of(step, number, _RECIPE) == line


def test_a_long_step_is_shortened() -> None:
    assert len(shortened(f"RUN {'x ' * 500}")) < 80


def _blob(layout: Path, content: object) -> dict[str, object]:
    text = json.dumps(content).encode()
    name = hashlib.sha256(text).hexdigest()
    (layout / "blobs/sha256" / name).write_bytes(text)
    return {"digest": f"sha256:{name}", "size": len(text), "mediaType": "x"}


def test_no_variable_of_the_build_stays_in_the_image(tmp_path: Path) -> None:
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    added = ("ENV APT_CONFIG=/dev/shm/container-engine-apt.conf", f"ENV CE_INPUTS={'a' * 64}")
    history = [
        *({"created_by": f"/bin/sh -c #(nop) {line}", "empty_layer": True} for line in added),
        {"created_by": "/bin/sh -c make"},
        {"created_by": "/bin/sh -c #(nop) ENV CE_INPUT=1", "empty_layer": True},
    ]
    env = ["CE_INPUTS=a", "A=b", layout._APT_VARIABLE, "APT_CONFIG=/mine"]
    config = _blob(tmp_path, {"config": {"Env": env}, "history": history})
    manifest = _blob(tmp_path, {"config": config, "layers": []})
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    layout.leave_out_added(str(tmp_path))
    (entry,) = json.loads((tmp_path / "index.json").read_text())["manifests"]
    texts = {f"sha256:{p.name}": p.read_bytes() for p in tmp_path.glob("blobs/sha256/*")}
    assert all(f"sha256:{hashlib.sha256(t).hexdigest()}" == d for d, t in texts.items())
    new = json.loads(texts[entry["digest"]])["config"]
    assert new["size"] == len(texts[new["digest"]])
    left = json.loads(texts[new["digest"]])
    assert left["config"]["Env"] == ["A=b", "APT_CONFIG=/mine"]
    assert left["history"] == history[2:]
    assert len(texts) == 2


def test_an_image_without_variables_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    manifest = _blob(tmp_path, {"config": _blob(tmp_path, {"config": {}}), "layers": []})
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    layout.leave_out_added(str(tmp_path))
    assert json.loads((tmp_path / "index.json").read_text())["manifests"] == [manifest]


def _bases(text: str, **arguments: str) -> list[tuple[int, str]]:
    return [(one.line, one.name) for one in bases_of(text, arguments, {})]


def test_the_images_of_a_recipe_are_those_that_are_no_stages() -> None:
    text = (
        "FROM --platform=linux/amd64 debian:12 AS Base\nRUN x\nFROM base\n"
        "from scratch\nFROM \\\n mine:1\n"
    )
    assert _bases(text) == [(1, "debian:12"), (5, "mine:1")]


def test_a_stage_has_its_own_platform_which_may_be_that_of_the_host() -> None:
    text = (
        "ARG TARGETARCH\nFROM --platform=$BUILDPLATFORM a AS b\n"
        "FROM --platform=linux/$TARGETARCH c-${TARGETARCH}\nFROM d\n"
    )
    predefined = {"BUILDPLATFORM": "linux/amd64", "TARGETARCH": "arm64"}
    found = [(one.name, one.platform) for one in bases_of(text, {}, predefined)]
    assert found == [("a", "linux/amd64"), ("c-arm64", "linux/arm64"), ("d", "")]
    assert stages_of(text) == ["b"]
    assert with_names(
        "from \\\n  m AS m\nFROM --platform=linux/a a\n",
        [From(1, "m", "docker.io/m", ""), From(3, "a", "b", "", "linux/a")],
        "linux/arm64",
    ) == ("from --platform=linux/arm64 docker.io/m AS m\n\nFROM --platform=linux/a b\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a:1\\\n AS b\nRUN x\n", "FROM m/a:1 AS b\n\nRUN x\n"),
        ("FROM a\\\n:1\nRUN x\n", "FROM m/a:1\n\nRUN x\n"),
        ("# escape=`\nFROM a:1`\n AS b\n", "# escape=`\nFROM m/a:1 AS b\n\n"),
        ("from \\\n# a:1\n\n  a:1 \\\n  as b", "from m/a:1 as b\n\n\n\n\n"),
    ],
)
def test_a_from_line_is_replaced_wherever_it_goes_on(text: str, expected: str) -> None:
    named = [one._replace(name=f"m/{one.name}") for one in bases_of(text, {}, {})]
    assert with_names(text, named) == expected


def test_the_images_that_lines_take_files_from_are_those_that_are_no_stages() -> None:
    text = (
        "FROM a AS Base\nCOPY --chown=1 --from=b:1 /x --from=no /y\nCOPY --from=base /x /\n"
        "RUN --mount=type=bind,\\\nfrom=c,target=/c --mount=from=d,target=/d echo from=c ,from=e\n"
        "copy --from=0 /x /\nCOPY --from=$e /x /\n"
    )
    found = sources_of(text)
    assert [(one.line, one.name) for one in found] == [(2, "b:1"), (4, "c"), (4, "d")]
    assert [one.before for one in found] == ["COPY --from=", *["RUN --mount=from="] * 2]
    assert with_names(text, [one._replace(name=f"m/{one.name}") for one in found]) == (
        "FROM a AS Base\nCOPY --chown=1 --from=m/b:1 /x --from=no /y\nCOPY --from=base /x /\n"
        "RUN --mount=type=bind,\\\nfrom=m/c,target=/c --mount=from=m/d,target=/d"
        " echo from=c ,from=e\ncopy --from=0 /x /\nCOPY --from=$e /x /\n"
    )


def test_what_run_lines_mount_is_found_and_a_line_is_set_before_them() -> None:
    text = (
        "FROM a AS b\nRUN --mount=target=/m,source=x --mount=from=b,type=bind,src=/y,target=/n \\\n"
        "  --mount=type=cache,target=/c make\nCOPY --from=b x y\n"
        "RUN --network=none --mount=target=/m make --mount=source=z\n"
    )
    found = list(mounts_of(text))
    assert found == [Mount(2, "x", ""), Mount(2, "/y", "b"), Mount(5, ".", "")]
    lines = with_lines(text, "ENV A", {2: "ARG B", 5: "ARG C"}).splitlines()
    assert [*lines[:4], *lines[5:7]] == [
        *("FROM a AS b", "ENV A", "ARG B", text.splitlines()[1], "COPY --from=b x y", "ARG C"),
    ]


def test_the_volumes_of_a_stage_and_of_those_it_begins_with_come_last_in_what_is_built() -> None:
    text = 'FROM a AS b\nVOLUME /x\nRUN c\nFROM B AS d\nVOLUME ["/y"]\nRUN e\nFROM f\nVOLUME /z\n'
    plain = "FROM a AS b\nE\nRUN c\nFROM B AS d\nE\nRUN e\n"
    assert with_lines(text, "E", {}) == f"{plain}FROM f\nE\nVOLUME /z\n"
    for target in ("d", "1"):
        built = with_lines(text, "E", {}, target)
        assert built == f'{plain}VOLUME /x\nVOLUME ["/y"]\nFROM f\nE\n'
    assert volumes_of(text) == {"/x", "/y", "/z"}
    assert stage_of(text, "D") == stage_of(text, "1") == ["FROM B AS d", 'VOLUME ["/y"]', "RUN e"]
    assert stage_of(text, "") == ["FROM f", "VOLUME /z"]


def test_the_arguments_of_a_stage_are_found_with_those_that_all_have() -> None:
    text = "ARG A=1\nFROM a:$A\nRUN x\nARG B C='2 3' A\nFROM b\nARG D\n"
    assert list(arguments_of(text)) == [(4, ["B", "C", "A"], "ARG A=1"), (6, ["D"], "ARG A=1")]


def test_the_escape_character_may_be_set_after_another_directive() -> None:
    head = "# syntax=docker/dockerfile:1\n#escape=`\n"
    assert first_mistake(f"{head}FROM a\nRUN b `\n && c\n") is None
    mistake = first_mistake(f"# a comment\n{head}FROM a\nRUN b `\n && c\n")
    assert mistake == Mistake(6, "&&", "unknown instruction")


def test_variables_in_from_have_their_values_of_the_command_line_or_of_arg() -> None:
    text = (
        "ARG NAME=base TAG='1'\nARG WHOLE=\"${NAME}:$TAG\"\n"
        "FROM ${WHOLE}\nARG NAME=stage\nFROM $NAME:${OTHER:-2}${TAG:+-x}\n"
    )
    assert _bases(text) == [(3, "base:1"), (5, "base:2-x")]
    assert _bases(text, NAME="mine", TAG="9") == [(3, "mine:9"), (5, "mine:2-x")]
    assert with_names(text, bases_of(text, {}, {})).splitlines()[2:] == [
        "FROM base:1",
        "ARG NAME=stage",
        "FROM base:2-x",
    ]


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("FROM ${BASE}\n", "BASE"),
        ("ARG BASE\nFROM a:$BASE\n", "BASE"),
        ("FROM --platform=$BUILDPLATFORM a\n", ""),
        ("FROM a-$TARGETARCH\n", ""),
    ],
)
def test_a_variable_without_a_value_is_found(text: str, lacks: str) -> None:
    assert [one.lacks for one in bases_of(text, {}, {})] == [lacks]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM a\nRUM true\n", Mistake(2, "RUM", "unknown instruction")),
        ("FROM a\nrun \\\n RUM\n# RUM\n", None),
        (
            "FROM a\nRUN <<EOF\nRUM\nEOF\nCOPY <<-'X' /x\nRUM\nX\nRUM x\n",
            Mistake(8, "RUM", "unknown instruction"),
        ),
        ("FROM a\nRUN echo $((1 <<2)) && x <<< EOF\nCMD x\n", None),
        ("ARG A\nRUN x\nFROM a\n", Mistake(2, "RUN", "comes before the first FROM")),
        ("# nothing\n", Mistake(0, "", "has no FROM line")),
        ("FROM a\nCOPY\n", Mistake(2, "COPY", "nothing follows the instruction")),
        ("FROM a\nENV A\n", Mistake(2, "ENV", "'A' has no value: ENV A=VALUE")),
        ("FROM a\nENV A b\nLABEL a=b\n", None),
    ],
)
def test_the_first_instruction_that_no_builder_accepts_is_found(
    text: str, found: Mistake | None
) -> None:
    assert first_mistake(text) == found


def test_a_message_without_a_line_gets_that_of_the_one_instruction_it_begins_with() -> None:
    text = "FROM a\nENV A=b\nLABEL x\nENV C=d\n"
    assert line_of_complaint("LABEL must have two arguments", text) == 3
    assert line_of_complaint("ENV must have two arguments", text) == 0


def test_instructions_that_no_launch_reads_are_listed_once() -> None:
    text = "FROM a\nUSER x\nENV A=1\ncmd x\nCMD y\nWORKDIR /\nENTRYPOINT x\n"
    assert without_effect(text) == ["CMD", "USER"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a\nRUN b\n", "FROM a\nENV X=1\nRUN b\n"),
        ("ARG V=1\nFROM a AS b\nfrom b", "ARG V=1\nFROM a AS b\nENV X=1\nfrom b\nENV X=1\n"),
        ("FROM \\\n  a\nRUN <<E\nFROM c\nE\n", "FROM \\\n  a\nENV X=1\nRUN <<E\nFROM c\nE\n"),
        ("FROM a \\\n# b\n\n  AS c\nRUN d\n", "FROM a \\\n# b\n\n  AS c\nENV X=1\nRUN d\n"),
        ("# escape=`\nFROM `\na\r\nRUN b\r\n", "# escape=`\nFROM `\na\r\nENV X=1\nRUN b\r\n"),
        ("FROM a\nRUN b \f\x85\\\n  c", "FROM a\nENV X=1\nRUN b \f\x85\\\n  c\n"),
        (
            'FROM a\nVOLUME ["/a", \\\n "/b"]\nRUN b\n\nFROM c\nVolume /c\n# d\n',
            "FROM a\nENV X=1\nRUN b\n\nFROM c\nENV X=1\n# d\nVolume /c\n",
        ),
    ],
)
def test_a_line_is_set_below_each_from(text: str, expected: str) -> None:
    assert with_lines(text, "ENV X=1", {}) == expected


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ('ENTRYPOINT ["python3", "app.py"]', "python3 app.py"),
        ('ENTRYPOINT ["a"]\nentrypoint ["/my app", \\\n  "-x"]', "'/my app' -x"),
        ('ENTRYPOINT ["a"]\nFROM b', None),
        ('CMD ["a"]', None),
        ("ENTRYPOINT []", ""),
        ("ENTRYPOINT exec a", ""),
        ("ENTRYPOINT [1]", ""),
        ("ENTRYPOINT 1", ""),
    ],
)
def test_the_entrypoint_of_the_last_stage_is_a_command_line(
    lines: str, command: str | None
) -> None:
    assert entrypoint_of(f"FROM a\n{lines}\n") == command
