"""The measurements of the benchmark of reading."""

from tests.bench.first_import import _FIRST, _MODULES, _NATIVE, rows
from tests.bench.reading import warm
from tests.bench.samples import Samples


def test_the_first_run_on_a_new_mount_does_not_count_as_warm() -> None:
    runs = iter([0.1, 3.0, 2.0])
    assert warm(lambda: next(runs))() == 2.0
    assert list(runs) == []


def test_first_imports_are_compared_with_the_native_step() -> None:
    row = {row.metric: row for row in rows({_NATIVE: Samples((1.0,)), _FIRST: Samples((1.5,))})}
    assert row[f"import {_MODULES}: {_FIRST}"].ratio == 1.5
    assert row[f"import {_MODULES}: {_FIRST}"].verdict == "missed by 15 %"
