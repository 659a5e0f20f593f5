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

from container_engine import __version__  # noqa: E402 - found through sys.path
from docs.reference import pages  # noqa: E402 - found through sys.path
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
HOME = "README.md"
# words that people search a section by, and that do not read well in its heading
WORDS = re.compile(r"^(#+ )(.+)\n<!-- words: (.*) -->$", re.MULTILINE)
ERRORS = "docs/guide/errors/"


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
                target.write_text(page(name, text), encoding="utf-8")
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


def page(name: str, text: str) -> str:
    """Return a page's text with metadata for mkdocs-material."""
    head: dict[str, object] = {}
    if (number := weight(name)) != 1:
        head["search"] = {"boost": number}
    if name == HOME:
        head["hide"] = ["navigation"]  # whose section has no other page
    text = WORDS.sub(_hidden, text)
    return f"---\n{yaml.safe_dump(head)}---\n{text}" if head else text


def _hidden(heading: re.Match[str]) -> str:
    """Return a heading whose words only the search sees; contents and links are as without them."""
    level, title, words = heading.groups()
    plain = re.sub(r"[^\w\s-]", "", title)
    slug = re.sub(r"[-\s]+", "-", plain.strip().lower())
    label = title.replace("`", "")
    return f'{level}{title}<span hidden> · {words}</span> {{: #{slug} data-toc-label="{label}"}}'


def repository(remote: str) -> str:
    """Return the address at which a browser opens a Git remote, "" if the remote has no host."""
    found = re.fullmatch(
        r"(?:https?://|ssh://)?(?:\w+@)?([\w.-]+\.\w+)[:/](?!/)(.+?)(?:\.git)?/?", remote
    )
    return f"https://{found[1]}/{found[2]}" if found else ""


def footer(version: str, remote: str) -> str:
    """Return the line at the foot of each page."""
    address = repository(remote)
    link = f' · <a href="{address}">repository</a>' if address else ""
    return f"Container Engine {version}{link}"


def _git(*words: str) -> str:
    """Return what Git prints; empty if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


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
    """Print what pages load from other hosts, which a site may not reach; return 1 if any does."""
    pattern = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']https?://[^"']*""")
    found = {match for page in site.rglob("*.html") for match in pattern.findall(page.read_text())}
    for match in sorted(found):
        print(f"docs: error: fetched from elsewhere: {match}", file=sys.stderr)
    return int(bool(found))


def _configuration(source: Path) -> dict[str, object]:
    """Return docs/mkdocs.yml with the build's paths, the footer, and a menu of design records."""
    written: dict[str, object] = yaml.safe_load((ROOT / "docs/mkdocs.yml").read_text())
    version = f"{__version__} ({_git('describe', '--always', '--dirty')})"
    written["copyright"] = footer(version, _git("remote", "get-url", "origin"))
    written |= {"docs_dir": str(source), "site_dir": str(BUILD / "site")}
    nav = written["nav"]
    assert isinstance(nav, list)
    (project,) = nav[-1].values()
    codes = _section(nav, "Reference", "Error codes")
    codes += sorted(str(path.relative_to(source)) for path in (source / ERRORS).glob("*.md"))
    records = sorted(path.relative_to(source) for path in (source / DESIGN).glob("*.md"))
    project.append({"Design records": [str(path) for path in records]})
    return written


def _section(nav: list[object], *titles: str) -> list[object]:
    """Return the pages below these titles of the menu."""
    found = nav
    for title in titles:
        (found,) = [part[title] for part in found if isinstance(part, dict) and title in part]
    return found


if __name__ == "__main__":
    sys.exit(main())
