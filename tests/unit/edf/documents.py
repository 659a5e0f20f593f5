"""Random texts like users' EDFs, right and wrong, and properties that hold for each."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from container_engine.base.secrecy import Secrecy
from container_engine.edf.load import Setting, load
from container_engine.edf.model import Edf
from container_engine.edf.show import histories, quoted, to_json, to_toml
from container_engine.site.model import SiteConfig
from container_engine.tools.difference import differences
from container_engine.tools.lint.advise import advise
from container_engine.tools.lint.subject import Subject
from tests.unit.edf.cases import CWD, ENV, is_deferred
from tests.unit.edf.watching import nothing_started
from tests.unit.plan.edfs import site_context

WORDS = st.sampled_from(
    [
        "", "/", "/a", "/b:/c", "/a:/b:ro", "tmpfs:/t:size=1g", "./x", "../y", "~", "$HOME", "$$",
        "$", "${NOPE:-/x}", "${HOME:+a:b}", "${SLURM_JOB_ID}", "${image:PATH}", "${MARKED}", "`",
        "$(id)", "${", "}", "\\:", ":", "nvidia.com/gpu=all", "/dev/fuse", "ubuntu:24.04", "\n",
        "x.sqsh", "<USER>", "true", "é", "\t", '"', "'", "\x7f", "hf_" + "a" * 30, "latest", "::",
        "/usr/bin",
    ]
)  # fmt: skip
VALUES = st.lists(WORDS, max_size=4).map("".join)
NAMES = st.sampled_from(
    [
        "PATH", "LD_LIBRARY_PATH", "HF_TOKEN", "NCCL_NET_PLUGIN", "NCCL_PROTO", "A", "a.b", "A=B",
        "", "com.hooks.ssh.enabled", "com.hooks.aws_ofi_nccl.enabled", "hooks.cxi",
        "com.hooks.cxy.x",
    ]
)  # fmt: skip


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _array(items: list[str]) -> str:
    return f"[{', '.join(map(_string, items))}]"


SCALARS = st.one_of(VALUES.map(_string), st.sampled_from(["true", "1", "1.50", "2024-01-01", "{}"]))
ARRAYS = st.lists(VALUES, max_size=4).map(_array)
PAIRS = st.one_of(
    st.tuples(st.sampled_from(["image", "workdir", "writable", "entrypoint", "imgae"]), SCALARS),
    st.tuples(
        st.sampled_from(["image", "mounts", "devices", "startup", "base_environment"]), ARRAYS
    ),
).map(" = ".join)
TABLE_PAIRS = st.tuples(NAMES.map(_string), SCALARS).map(" = ".join)
TABLES = st.tuples(
    st.sampled_from(["[env]", "[annotations]", "[annotations.com.hooks.ssh]"]),
    st.lists(TABLE_PAIRS, max_size=4),
).map(lambda table: "\n".join([table[0], *table[1]]))
NOISE = st.sampled_from(["[", "]", ",", "= ", "#", "'''", "\r\n", "\x00", "...", "export A=1", "{"])
DOCUMENTS = st.lists(st.one_of(PAIRS, PAIRS, PAIRS, TABLES, NOISE), max_size=8).map("\n".join)
BYTES = st.one_of(DOCUMENTS.map(lambda text: text.encode("utf-8", "replace")), st.binary())


def _load(path: Path, content: bytes) -> Edf | None:
    path.write_bytes(content)
    loaded, files = load(str(path), Setting(ENV, CWD, is_deferred))
    assert (loaded.edf is None) == bool(loaded.errors)
    for problem in loaded.problems:
        assert str(problem)
        said = problem.text.splitlines()
        assert all(
            line.startswith(("ce: error: ", "ce: warning: ", "ce: hint: ", "    ")) for line in said
        )
    if loaded.edf is not None:
        _is_explained(
            loaded.edf,
            Subject(
                loaded.edf,
                histories(loaded.edf, files),
                hooks=(),
                site_context=site_context(SiteConfig(), {}),
                cwd=CWD,
                variables={"HOME": "/h"},
                network=lambda _path: "",
                packages=lambda _path: None,
            ),
        )
    return loaded.edf


def _is_explained(edf: Edf, subject: Subject) -> None:
    count = len(edf.mounts) + len(edf.env) + len(edf.devices) + len(edf.startup)
    assert len(subject.histories) >= count + len(edf.annotations)
    assert all("\n" not in quoted(history.effective.value) for history in subject.histories)
    assert all(problem.message for problem in advise(subject))


def comes_to_something(content: bytes) -> None:
    """Check that any bytes load as an EDF that renders to itself, or give errors.

    No process may be started in either case.
    """
    with TemporaryDirectory() as directory, nothing_started():
        edf = _load(Path(directory) / "x.toml", content)
        if edf is None:
            return
        rendered = to_toml(edf)
        again = _load(Path(directory) / "again.toml", rendered.encode())
        assert again is not None
        assert (to_toml(again), to_json(again)) == (rendered, to_json(edf))
        found = differences(edf, again, Secrecy(shows=True))
        assert [one for one in found if one.sign != "~"] == []
