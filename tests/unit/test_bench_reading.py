"""The measurements of the benchmark of reading."""

from tests.bench.reading import warm


def test_the_first_run_on_a_new_mount_does_not_count_as_warm() -> None:
    runs = iter([0.1, 3.0, 2.0])
    assert warm(lambda: next(runs))() == 2.0
    assert list(runs) == []
