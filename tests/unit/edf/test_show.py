"""Random families of EDFs: each value is traced to a line that contains it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from container_engine.base.secrecy import Secrecy
from container_engine.edf.expand import Scope
from container_engine.edf.load import Setting, load
from container_engine.edf.model import Edf
from container_engine.edf.show import History, histories, variables
from tests.unit.edf.cases import ENV, is_deferred

FILES = 5
LINES = st.lists(
    st.sampled_from(
        [
            'workdir = "/w{number}"',
            "writable = false",
            "writable = true",
            'mounts = ["/a{number}:/t", "/same:/same", "/a{number}"]',
            'devices = ["/dev/same", "/dev/d{number}"]',
            'startup = ["same", "s{number}"]',
            'annotations = {{ com.x.a = "{number}" }}',
            'env = {{ A = "{number}", B = "same", "E{number}" = "" }}',
        ]
    ),
    unique_by=lambda line: line.partition(" ")[0],
)
# For each file the numbers of its bases, all smaller than its own.
FAMILIES = st.tuples(
    *(
        st.tuples(
            st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([]), LINES
        )
        for number in range(FILES)
    )
)
Family = tuple[tuple[list[int], list[str]], ...]


def write(family: Family, directory: Path) -> Path:
    for number, (bases, lines) in enumerate(family):
        names = ", ".join(f'"${{EDF_DIR}}/{base}.toml"' for base in bases)
        text = "\n".join([f"base_environment = [{names}]", *lines]).replace("{number}", str(number))
        (directory / f"{number}.toml").write_text(text.replace("{{", "{").replace("}}", "}"))
    return directory / f"{FILES - 1}.toml"


def traced(family: Family) -> tuple[Edf, tuple[History, ...]]:
    with TemporaryDirectory() as directory:
        path = write(family, Path(directory))
        loaded, files = load(str(path), Setting(ENV, "/", is_deferred))
    assert loaded.edf is not None, loaded.problems
    assert len(files) == len(loaded.edf.files)
    return loaded.edf, histories(loaded.edf, files)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(FAMILIES)
def test_every_value_has_a_history_that_ends_in_it(family: Family) -> None:
    edf, found = traced(family)
    said = {history.key: history.effective.value for history in found}
    assert {f"env.{entry.name}": entry.value for entry in edf.env}.items() <= said.items()
    assert [said[f"devices[{index}]"] for index in range(len(edf.devices))] == [
        device.name for device in edf.devices
    ]
    assert said.get("workdir") == edf.workdir
    assert said.get("writable", True) == edf.writable
    assert len(found) == len({history.key for history in found})


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(FAMILIES)
def test_what_was_overridden_comes_from_other_files(family: Family) -> None:
    for history in traced(family)[1]:
        files = [saying.origin.file for saying in (*history.others, history.effective)]
        assert len(files) == len(set(files)), history


def test_each_variable_is_listed_once_and_in_order() -> None:
    scope = Scope({"A": "1", "B": "two\n"}, {"EDF_DIR": "/edf"}, is_deferred)
    written = (
        "$B ${A:-$NOPE} $B ${SLURM_X} ${image:PATH} ${EDF_DIR} ${C:-$D} ${A:+$B} ${C+x} ${B-y}"
    )
    assert list(variables(written, scope, Secrecy(shows=True))) == [
        ("B", '"two\\n", from the environment'),
        ("A", '"1", from the environment'),
        ("SLURM_X", "known on the node only"),
        ("image:PATH", "what the image says"),
        ("EDF_DIR", '"/edf", from the path of the file'),
        ("C", "not defined; the text after ':-' is used"),
        ("D", "not defined"),
        ("A", "\"1\", from the environment; the text after ':+' is used"),
        ("C", "not defined; the text after '+' is not used"),
    ]
