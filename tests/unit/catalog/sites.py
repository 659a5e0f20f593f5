"""Catalogs of a site, for tests."""

from pathlib import Path

from container_engine.catalog.load import Catalog
from container_engine.submit.read_site import catalog

SMALLEST = 'summary = "s"\nhelp = "h"\n'


class Site:
    """A built-in directory and a site's, both empty at first."""

    def __init__(self, directory: Path) -> None:
        self.builtin = directory / "builtin"
        self.own = directory / "site"
        for path in (self.builtin, self.own):
            path.mkdir()

    def hook(self, name: str, text: str = "", *, site: bool = True, whole: bool = True) -> Path:
        """Write NAME/hook.toml; if `whole`, add the keys that every hook must have."""
        file = (self.own if site else self.builtin) / name / "hook.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text((SMALLEST if whole else "") + text)
        return file

    def load(self) -> Catalog:
        return catalog([str(self.builtin), str(self.own)])

    def faults(self) -> list[str]:
        return [str(fault).replace(f"{self.own}/", "") for fault in self.load().faults]
