"""A user who imports images from what this host has."""

import json
from pathlib import Path

import pytest

from container_engine.cli.main import main


class Importing:
    """A user who runs `ce` in this process, with a store of their own."""

    def __init__(self, root: Path, printed: pytest.CaptureFixture[str]) -> None:
        self.root, self._printed = root, printed
        self.store = root / "store"

    def path(self, *words: str) -> str:
        code = main(words)
        said = self._printed.readouterr()
        assert code == 0, said.err
        return said.out.strip()

    def refusal(self, *words: str) -> str:
        code = main(words)
        said = self._printed.readouterr()
        assert code == 1, said.out
        return said.err.removeprefix("ce: error: ")

    def said(self) -> str:
        said = self._printed.readouterr()
        return said.out + said.err

    def launched(self, image: str, *words: str) -> dict[str, object]:
        edf = self.root / "e.toml"
        edf.write_text(f'image = "{image}"\n')
        plan = json.loads(self.path("plan", "--json", *words, str(edf)))
        found: dict[str, object] = plan["image"]
        return found
