"""Every EDF in the documentation is a complete file that loads without a warning or error."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from container_engine.edf.load import Setting, load
from container_engine.images.reference import parse
from container_engine.plan.site_context import sitewide
from container_engine.site.load import load as load_site
from container_engine.site.model import SiteConfig
from container_engine.submit.read_site import catalog
from docs import errors

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
# The first line of an example names its file: "# ~/.edf/train.toml", "# ./train.toml".
FILE_NAME = re.compile(r"# (?:~/\.edf/|/etc/edf/|\./)?([a-z][a-z0-9-]*\.toml)")
HOOK_FILE = re.compile(r"# /etc/container-engine/hooks\.d/([a-z0-9_]+/hook\.toml)\n")
SITE_FILE = re.compile(r"# /etc/container-engine/((?:(?:conf|clusters)\.d/)?[a-z0-9-]*\.toml)\n")
KINDS = (FILE_NAME, HOOK_FILE, SITE_FILE)
VARIABLES = {
    "HOME": "/home/alice",
    "PWD": "/home/alice/project",
    "USER": "alice",
    "SCRATCH": "/scratch/alice",
    "IMAGE": "/dev/shm/alice-1.sqsh",
}


class Example(NamedTuple):
    place: str
    file: str
    text: str


def examples_of(page: Path) -> Iterator[Example]:
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        place = f"{page.relative_to(ROOT)}:{line}"
        name = next(filter(None, (kind.match(block[1]) for kind in KINDS)), None)
        assert name, f"{place}: the first line must name the file, as in '# ~/.edf/train.toml'"
        yield Example(place, name[1], block[1])


WRITTEN = [example for page in PAGES for example in examples_of(page)]
EXAMPLES = [example for example in WRITTEN if FILE_NAME.match(example.text)]
OF_HOOKS = [example for example in WRITTEN if HOOK_FILE.match(example.text)]
OF_SITES = [example for example in WRITTEN if SITE_FILE.match(example.text)]


@pytest.fixture
def search(tmp_path: Path) -> str:
    """Return a directory with `demo` and all examples, so that they can inherit from each other."""
    (tmp_path / "demo.toml").write_text('image = "/images/demo.sqsh"\n', encoding="utf-8")
    for example in EXAMPLES:
        (tmp_path / example.file).write_text(example.text, encoding="utf-8")
    return str(tmp_path)


def test_there_are_examples() -> None:
    assert EXAMPLES


def test_no_two_examples_have_one_name() -> None:
    names = [example.file for example in EXAMPLES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("example", OF_SITES, ids=lambda example: example.place)
def test_an_example_of_a_sites_configuration_is_valid(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "etc/container-engine" / example.file
    file.parent.mkdir(parents=True)
    file.write_text(example.text, encoding="utf-8")
    main, conf = file.parents[example.file.count("/")] / "config.toml", tmp_path / "slurm.conf"
    main.touch()
    conf.write_text(f"ClusterName={file.stem}\n")
    config = load_site(str(tmp_path), os.geteuid(), env={"SLURM_CONF": str(conf)})
    assert config.files == tuple(dict.fromkeys(map(str, (main, file))))
    sitewide(config, VARIABLES)


@pytest.mark.parametrize("example", OF_HOOKS, ids=lambda example: example.place)
def test_an_example_of_a_hook_is_one_that_a_launch_takes(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "hooks.d" / example.file
    file.parent.mkdir(parents=True)
    file.write_text(example.text, encoding="utf-8")
    found = catalog([str(ROOT / "hooks"), str(tmp_path / "hooks.d")])
    assert found.faults == ()
    assert found.hooks[file.parent.name].file == str(file)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
def test_an_example_in_the_documentation_loads(example: Example, search: str) -> None:
    setting = Setting(VARIABLES, search, SiteConfig().is_deferred)
    loaded, _files = load(f"{search}/{example.file}", setting, (search,))
    assert [str(problem) for problem in loaded.problems] == []
    assert loaded.edf is not None
    if loaded.edf.image:
        parse(loaded.edf.image, search)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_in_the_documentation_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


TROUBLES = ROOT / "docs" / "guide" / "troubleshooting.md"
# A message that is quoted in the first cell of a table's row.
QUOTED = re.compile(r"`([^`]+)`")
# A plain word. OF_OTHERS are messages of registries, Slurm and the kernel, which our
# sources lack, and two that are compared with a provoked one below (SAID).
PLAIN = re.compile(r"[a-z]{2,}(?:-[a-z]+)*")
OF_OTHERS = {
    *("unauthorized", "no such host", "permission denied", "'X': … manifest unknown"),
    *("manifest unknown", "'/home/bob/train.sqsh': permission denied"),
    *(
        "srun: unrecognized option '--environment=…'",
        "task 0 launch failed: Plugin initialization failed",
        "Failed to load plugin …/container_engine.so. Aborting",
        "Something is wrong with the boot of the nodes",
        "expected a string, found the integer 1",
        'expected true or false, found the string "yes"',
    ),
}


def messages() -> list[str]:
    tables = TROUBLES.read_text(encoding="utf-8").partition("\n## No message")[0]
    cells = re.findall(r"^\| (`.*?) \| ", tables, re.MULTILINE)
    quoted = [message for cell in cells for message in QUOTED.findall(cell)]
    return [*quoted, *(example["see"] for example in errors.EXAMPLES.values())]


# What the engine fills in: a field of Python's strings; a conversion or a macro of C's.
FIELDS = {".py": r"\{[^{}\n]*\}", ".c": r'%[-.*0-9]*l?[a-z]|" [A-Z_]+ "', ".h": "%[a-z]"}


@pytest.fixture(scope="module")
def sources() -> str:
    """Return the words of the engine's sources, with {} for what the engine fills in."""
    programs = ("plugin", "plugin_user", "advise", "guard", "image", "programs", "common")
    files = list((ROOT / "container_engine").rglob("*.py"))
    for name in programs:
        files += [*(ROOT / "spank_plugin" / name).glob("*.[ch]")]
    return "".join(_words(file.read_text(encoding="utf-8"), FIELDS[file.suffix]) for file in files)


def _words(text: str, field: str) -> str:
    joined = re.sub(r'"\s*f?"', "", text)
    filled = re.sub(field, " {} ", joined)
    letters = re.sub(r'\\n|\bf"', " ", filled)
    return f" {re.sub('[^A-Za-z{}-]+', ' ', letters)} "


@pytest.mark.parametrize("message", sorted(set(messages()) - OF_OTHERS))
def test_a_message_in_the_documentation_is_one_of_the_engine(message: str, sources: str) -> None:
    """Compare each part between names, numbers and punctuation."""
    assert [part for part in _parts(message) if not _is_printed(part, sources)] == []


def _parts(message: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for token in message.split():
        word = token.strip("(:;,.)")
        if token.startswith("(") or not PLAIN.fullmatch(word):
            parts.append([])
        if PLAIN.fullmatch(word):
            parts[-1].append(word)
        if token[-1] in ":;,.)":
            parts.append([])
    return [part for part in parts if part]


def _is_printed(part: list[str], sources: str) -> bool:
    """Check whether the sources have these words in a row; one of three may be filled in."""
    if f" {' '.join(part)} " in sources:
        return True
    filled = [[*part[:i], "{}", *part[i + 1 :]] for i in range(len(part)) if len(part) > 2]
    return any(f" {' '.join(words)} " in sources for words in filled)


@pytest.mark.parametrize(
    "message",
    [
        "image environment socket mount exist",
        "more than 10 zebras",
        "image exist key allowed with",
        "the container did not end within N s",
        "no more namespaces user on this node",
    ],
)
def test_a_message_that_nobody_prints_would_be_found(message: str, sources: str) -> None:
    with pytest.raises(AssertionError):
        test_a_message_in_the_documentation_is_one_of_the_engine(message, sources)


# An environment file, and the message that it provokes and that a page quotes.
SAID = {
    "image = ubuntu\n": "a string must be in quotes",
    '[env]\nimage = "a:1"\n': "'image' is below [env] and so belongs to it",
    'image = "a:1"\nvolumes = []\n': "unknown key 'volumes' has no effect, did you mean 'mounts'?",
    'mounts = ["${SCRATCH}"]\n': "variable 'SCRATCH' is not defined",
    'mounts = ["~/x"]\n': "the source '~/x' is not an absolute path",
    "[env]\nA = 8\n": "expected a string, found the integer 8",
    'writable = "yes"\n': 'expected true or false, found the string "yes"',
}


@pytest.mark.parametrize("text", SAID)
def test_the_page_on_edfs_quotes_what_the_engine_says(text: str, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(text, encoding="utf-8")
    loaded, _files = load(f"{tmp_path}/e.toml", Setting({}, str(tmp_path), lambda _: False))
    assert SAID[text] in "\n".join(map(str, loaded.problems))
    assert SAID[text] in (ROOT / "docs/guide/edf.md").read_text(encoding="utf-8")


def test_the_drawing_lists_every_design_note_and_names_programs_that_exist() -> None:
    drawing = (ROOT / "docs/design/README.md").read_text(encoding="utf-8")
    notes = {path.name for path in (ROOT / "docs/design").glob("*.md")} - {"README.md"}
    assert notes == set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", drawing, re.MULTILINE))
    table = (ROOT / "spank_plugin/README.md").read_text(encoding="utf-8")
    programs = set(
        re.findall(r"^\| `([\w.-]+)`", table.partition("| of `common/`")[0], re.MULTILINE)
    )
    named = set(re.findall(r"\b(?:ce-[a-z]+(?!\S*-UID)\b|container_engine\.so|epilog)\b", drawing))
    assert named <= programs
