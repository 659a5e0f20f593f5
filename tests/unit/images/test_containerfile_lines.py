"""The step of a build that failed, and what the build must not leave in the image."""

import hashlib
import json
from pathlib import Path

import pytest

from container_engine.images.pack import apt
from container_engine.images.pack.containerfile_lines import (
    Steps,
    bases_of,
    line_of,
    shortened,
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
"""


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("FROM debian:12 AS base", 2),
        ("RUN apt-get update &&     apt-get install -y  curl", 3),
        ("COPY a /a", 7),
        ("RUN make", 0),  # one of two
        ("RUN unknown", 0),
    ],
)
def test_the_line_of_a_step_is_given_where_it_is_certain(step: str, line: int) -> None:
    assert line_of(step, _RECIPE) == line


def test_the_last_step_is_found_in_output_that_arrives_in_any_pieces() -> None:
    steps = Steps()
    for piece in (
        b"[1/2] STEP 1/2: FROM a\nnoise STEP 9/9: x\n[2/2] ST",
        b"EP 2/3: RUN ma",
        b"ke\n",
    ):
        steps.hear(piece)
    steps.hear(b"a program's output without an end")
    assert steps.last == "RUN make"


def test_a_long_step_is_shortened() -> None:
    assert len(shortened(f"RUN {'x ' * 500}")) < 80


def _blob(layout: Path, content: object) -> dict[str, object]:
    text = json.dumps(content).encode()
    name = hashlib.sha256(text).hexdigest()
    (layout / "blobs/sha256" / name).write_bytes(text)
    return {"digest": f"sha256:{name}", "size": len(text), "mediaType": "x"}


def test_no_variable_of_the_build_stays_in_the_image(tmp_path: Path) -> None:
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    config = _blob(tmp_path, {"config": {"Env": ["A=b", apt.VARIABLE, "APT_CONFIG=/mine"]}})
    manifest = _blob(tmp_path, {"config": config, "layers": []})
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    apt.leave_out(str(tmp_path))
    (entry,) = json.loads((tmp_path / "index.json").read_text())["manifests"]
    texts = {f"sha256:{p.name}": p.read_bytes() for p in tmp_path.glob("blobs/sha256/*")}
    assert all(f"sha256:{hashlib.sha256(t).hexdigest()}" == d for d, t in texts.items())
    new = json.loads(texts[entry["digest"]])["config"]
    assert new["size"] == len(texts[new["digest"]])
    assert json.loads(texts[new["digest"]])["config"]["Env"] == ["A=b", "APT_CONFIG=/mine"]
    assert len(texts) == 2


def test_an_image_without_variables_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    manifest = _blob(tmp_path, {"config": _blob(tmp_path, {"config": {}}), "layers": []})
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    apt.leave_out(str(tmp_path))
    assert json.loads((tmp_path / "index.json").read_text())["manifests"] == [manifest]


def test_the_images_of_a_recipe_are_those_that_are_neither_stages_nor_variables() -> None:
    text = (
        "FROM --platform=linux/amd64 debian:12 AS Base\nRUN x\nFROM base\n"
        "FROM ${OTHER}\nfrom scratch\nFROM \\\n mine:1\n"
    )
    assert bases_of(text) == [(1, "debian:12"), (6, "mine:1")]
