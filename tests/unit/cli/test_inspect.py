"""The documents of an image that `ce inspect` reads."""

import os
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.cli.verbs import inspect
from tests.unit import squashfs


@pytest.mark.parametrize(
    ("configuration", "manifest", "why"),
    [
        (b"{}", b'{"layers": 3}', "the image's manifest: layers: must be an array"),
        (b"{}", b'{"layers": [{"size": 1}]}', "the image's manifest: layers[0].digest: is missing"),
        (b'{"history": [1]}', b"{}", "the image's configuration: history[0]: must be an object"),
        (b"[", b"{}", "the image's configuration: not valid JSON: "),
    ],
)
def test_the_document_at_fault_and_its_key_are_named(
    configuration: bytes, manifest: bytes, why: str
) -> None:
    with pytest.raises(UserError) as caught:
        inspect.of_documents(configuration, manifest)
    assert caught.value.message.startswith(why)
    assert caught.value.see == "image-format"


def test_names_with_line_ends_are_counted_once(tmp_path: Path) -> None:
    names = ("a/b", "a/c\n-rw a size that is none", "a/d\x85-rw a b c d e")
    image = squashfs.make(tmp_path / "i.sqsh", dict.fromkeys(names, "four"))
    found = inspect.directories(str(image), 1, os.environ)
    assert found == {"/": inspect.Content(12, 3), "/a": inspect.Content(12, 3)}
