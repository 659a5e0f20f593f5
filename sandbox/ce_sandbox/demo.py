"""The demo environment of the cluster's site: a small image and the EDF that names it."""

from pathlib import Path

from ce_sandbox import images
from ce_sandbox.layout import Layout


def provide(layout: Layout) -> None:
    """Create the image and the EDF `demo`, and point an installed engine to the site's EDFs.

    Existing files are kept: the user of the sandbox may have changed them.
    """
    image = images.provide(layout, "demo")
    _write(layout.site_edfs / "demo.toml", f'image = "{image}"\n')
    if layout.plugin.exists():
        _write(layout.site_config, f'version = 1\nedf_dir = "{layout.site_edfs}"\n')


def _write(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_text(text)
