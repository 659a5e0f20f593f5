"""`ce inspect` of an image in a registry, without importing it."""

import json
from pathlib import Path

from tests.integration.registry import RUN, Registry, start
from tests.unit.images.oci import Member


def test_an_image_that_is_in_no_store_is_shown_and_not_imported(
    registry: Registry, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "remote:1", [Member("a")], [Member("b", b"b" * 5000)])
    with start(registry, tmp_path / "store", "inspect", "--json", name) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    shown = json.loads(out)
    assert (shown["name"], shown["path"], shown["tree"]) == (name, None, {})
    assert shown["config"]["config"] == RUN
    assert len(shown["layers"]) == 2
    assert all(layer["size"] > 0 for layer in shown["layers"])
    assert not (tmp_path / "store").exists()
    with start(
        registry, tmp_path / "store", "inspect", f"{registry.address}/never-pushed:1"
    ) as process:
        _out, err = process.communicate()
    assert process.returncode == 1
    assert "manifest unknown" in err
