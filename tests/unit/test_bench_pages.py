"""The pages that show the benchmarks."""

from pathlib import Path

import pytest

from tests.bench.page import HEAD, MEASURED, TABLES, filled, main
from tests.bench.results import Made, Row, read, write

ROOT = Path(__file__).parents[2]
MADE = Made("2026-11-23 12:00", "abc", 2, 0.5, "slurm 22.05.8")
ROW = Row("import, cold", 1500, "ms", "mksquashfs alone", 1.5, 1.2, 1400, 1600, 3)


@pytest.mark.parametrize(("name", "page"), TABLES)
def test_each_table_has_its_place_and_the_words_around_it_stay(name: str, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    made = filled(text, name, MADE, [ROW])

    line = "| import, cold | 1500 ms (1400 to 1600) | 3 | mksquashfs alone | 1.50 | 1.2: missed by"
    origin = "Measured on 2026-11-23 12:00, of commit abc; 2 processors, load 0.5; slurm 22.05.8."
    assert f"<!-- {name}:begin -->\n{HEAD}{line} 25 % |\n\n{origin}\n\n" in made
    again = filled(made, name, MADE, [ROW, ROW])
    assert again.count(origin) == made.count(origin)
    begin, _table, end = text.partition(f"<!-- {name}:begin -->\n")
    assert made.startswith(begin)
    words = end.partition("\n\n")[2]
    assert made.endswith(words.partition("\n\n")[2] if words.startswith(MEASURED) else words)


@pytest.mark.parametrize("names", [[], ["bench", "README"]])
def test_only_figures_that_are_named_get_onto_the_pages(names: list[str]) -> None:
    before = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert main(names) == 2
    assert (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8") == before


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of figures 'bench-images'"):
        filled("# Figures\n", "bench-images", MADE, [ROW])


def test_figures_are_kept_with_their_origin(tmp_path: Path) -> None:
    write([ROW], tmp_path / "build/bench.json")
    made, rows = read(tmp_path / "build/bench.json")
    assert rows == [ROW]
    assert (made.commit != "", made.processors > 0, made.when[:2]) == (True, True, "20")
