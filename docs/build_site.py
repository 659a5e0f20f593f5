"""`make docs`: build the documentation as a site in build/docs/site.

The pages link to files all over the repository. These are copied, so that the links work in the
site too, and the pages generated from the models and the command line are added.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.reference import pages  # noqa: E402 - found from here only after that
from docs.weights import weight  # noqa: E402

BUILD = ROOT / "build" / "docs"
COPIED = (
    ":(glob)*.md",
    "LICENSE",
    "docs",
    "edf_schemas",
    "hooks",
    "spank_plugin",
    "sandbox/README*",
)
DESIGN = "docs/design"


def main() -> int:
    source = BUILD / "source"
    shutil.rmtree(source, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", *COPIED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not name.endswith(".py"):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix == ".md":
                text = (ROOT / name).read_text(encoding="utf-8")
                target.write_text(_weighted(name, text), encoding="utf-8")
            else:
                shutil.copy(ROOT / name, target)
    for name, text in pages().items():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    configuration = BUILD / "mkdocs.yml"
    configuration.write_text(yaml.safe_dump(_configuration(source), sort_keys=False))
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        configuration,
    ]
    return _quiet(command) or _refuse_foreign(BUILD / "site")


def _weighted(name: str, text: str) -> str:
    """Return the page with its weight in the search, which mkdocs-material reads from its head."""
    number = weight(name)
    return text if number == 1 else f"---\nsearch:\n  boost: {number}\n---\n{text}"


def _quiet(command: Sequence[str | Path]) -> int:
    """Run mkdocs; print its output only if it fails."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
    else:
        print(f"{BUILD / 'site'}/index.html")
    return done.returncode


def _refuse_foreign(site: Path) -> int:
    """Fail if a page loads something from another host, which may not be reachable on site."""
    pattern = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']https?://[^"']*""")
    found = {match for page in site.rglob("*.html") for match in pattern.findall(page.read_text())}
    for match in sorted(found):
        print(f"docs: error: fetched from elsewhere: {match}", file=sys.stderr)
    return int(bool(found))


def _configuration(source: Path) -> dict[str, object]:
    """Return the configuration beside this file, with the design records in its menu."""
    written: dict[str, object] = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text())
    written |= {"docs_dir": str(source), "site_dir": str(BUILD / "site")}
    nav = written["nav"]
    assert isinstance(nav, list)
    (project,) = nav[-1].values()
    records = sorted(path.relative_to(source) for path in (source / DESIGN).glob("*.md"))
    project.append({"Design records": [str(path) for path in records]})
    return written


if __name__ == "__main__":
    sys.exit(main())
