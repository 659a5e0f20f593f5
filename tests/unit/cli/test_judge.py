"""All verbs judge an environment alike: validate, plan, lint and, by plan, srun."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs
from tests.unit.edf.cases import DATA, ENV

Capture = pytest.CaptureFixture[str]
FILES = sorted(
    path for where in ("good", "bad", "published") for path in DATA.glob(f"{where}/*.toml")
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an image with its configuration beside it, so that no verb looks inside."""
    made = squashfs.make(tmp_path_factory.mktemp("image") / "i.sqsh", {"etc/x": ""})
    made.with_name(f"{made.name}.json").write_text('{"config": {}}')
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty directory with the environment of the golden files."""
    monkeypatch.chdir(tmp_path)
    for name, value in (ENV | {"EDF_PATH": f"{DATA}/bases", "HOME": str(tmp_path)}).items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    return tmp_path


class Said:
    """The messages of three verbs on one environment, on a site with this configuration."""

    def __init__(self, file: Path, capsys: Capture, site: str = "") -> None:
        config = file.with_name("site.conf")
        config.write_text(site)
        for verb in ("validate", "plan", "lint"):
            code = main(["--site", str(config), verb, str(file)])
            lines = capsys.readouterr().err.splitlines(keepends=True)
            # A command that ends with the error adds the page and the hint.
            said = "".join(
                line for line in lines if not line.startswith(("ce: see: ", "ce: hint: "))
            )
            setattr(self, verb, (code != 0, said))

    validate: tuple[bool, str]
    plan: tuple[bool, str]
    lint: tuple[bool, str]

    def agree(self) -> tuple[bool, str]:
        assert self.validate == self.plan
        assert self.lint == self.plan
        return self.plan


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_that_one_verb_refuses_is_refused_by_all_in_the_same_words(
    path: Path, here: Path, image: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(f'base_environment = ["{path}"]\nimage = "{image}"\n')
    refused, said = Said(file, capsys).agree()
    assert refused == ("ce: error: " in said)


def enabled(hook: str) -> str:
    return f'[annotations]\ncom.hooks.{hook}.enabled = "true"\n'


KEY = 'com.hooks.ssh.authorize_ssh_key = "/nowhere.pub"\n'
BODIES = {
    "a key that is missing": (
        enabled("ssh") + KEY,
        "error: {file}:4: com.hooks.ssh.authorize_ssh_key: '/nowhere.pub': does not exist\n",
    ),
    "a hook that is unknown": (
        enabled("glibc"),
        "warning: {file}:3: com.hooks.glibc.enabled: has no effect: this installation has no such",
    ),
    "a parameter of a hook that is unknown": (
        '[annotations]\ncom.hooks.logging.level = "2"\n',
        "warning: {file}:3: com.hooks.logging.level: has no effect: this installation",
    ),
    "a parameter of a hook that is off": (
        '[annotations]\ncom.hooks.pytorch.master_port = "4000"\n',
        "warning: {file}:3: com.hooks.pytorch.master_port: has no effect, the hook 'pytorch' is",
    ),
    "a setting of another engine": (
        '[annotations]\ncom.sarus.perfmon = "true"\n',
        "warning: {file}:3: com.sarus.perfmon: has no effect: it is a setting of another engine\n",
    ),
    "a variable that is too large with the image's": (
        f'[env]\nBIG = "{"x" * 131000}${{image:PATH}}{"x" * 60}"\n',
        "error: {file}:3: env.BIG: has ",
    ),
    "a variable that the image lacks": (
        '[env]\nA = "${image:NONE}"\n',
        "error: {file}:3: env.A: ${{image:NONE}}: the image does not define it\n",
    ),
    "an entrypoint that the image lacks": (
        "entrypoint = true\n",
        "warning: {file}:2: entrypoint: true, but ",
    ),
    "a device that is not offered": (
        'devices = ["/dev/kvm"]\n',
        "error: {file}:2: devices: '/dev/kvm': this site does not offer it\n",
    ),
}
SITE = 'allowed_devices = ["/dev/null"]\n'


@pytest.mark.parametrize("name", BODIES)
def test_every_verb_prints_what_a_launch_prints(
    name: str, here: Path, image: Path, capsys: Capture
) -> None:
    body, wanted = BODIES[name]
    file = here / "e.toml"
    file.write_text(f'image = "{image}"\n{body}')
    refused, said = Said(file, capsys, SITE).agree()
    assert said.startswith("ce: " + wanted.format(file=file)), said
    assert refused == wanted.startswith("error")


def test_an_image_that_the_site_forbids_is_refused_by_all(
    here: Path, image: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(f'image = "{image}"\n')
    refused, said = Said(file, capsys, '[policy]\ndenied_images = ["/*"]\n').agree()
    assert refused
    assert "policy.denied_images: '/*' forbids" in said


POLICIES = {
    "a mount from elsewhere": (
        'mounts = ["/usr:/data"]\n',
        'mount_sources = ["/nowhere"]',
        "{file}:2: mounts: {site}: policy.mount_sources: '/usr' matches none of '/nowhere'",
    ),
    "a mount over the image": (
        'mounts = ["{here}/open:/usr/lib"]\n',
        "site_images_only = true",
        "{file}:2: mounts: {site}: policy.site_images_only: mount destination '/usr/lib' is",
    ),
    "an image from elsewhere": (
        "",
        "site_images_only = true",
        "{file}:1: image: {site}: policy.site_images_only: '{image}' is in no store: the site",
    ),
    "an image that is not listed": (
        "",
        f'image_digests = ["sha256:{"0" * 64}"]',
        "{file}:1: image: {site}: policy.image_digests: '{image}' is in no store: the site",
    ),
    "an image that is too large": (
        "",
        'max_image_size = "1K"',
        "{file}:1: image: {site}: policy.max_image_size: 1K: '{image}' has 0 MiB",
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_of_the_site_is_the_same_for_all(
    name: str, here: Path, image: Path, capsys: Capture
) -> None:
    body, policy, wanted = POLICIES[name]
    file = here / "e.toml"
    file.write_text(f'image = "{image}"\n{body.format(here=here)}')
    (here / "open").mkdir()
    (here / "open").chmod(0o777)
    store = "" if name.startswith("an image") else f'image_stores = ["{image.parent}"]\n'
    refused, said = Said(file, capsys, f"{store}[policy]\n{policy}\n").agree()
    names = {"file": file, "site": f"{here}/site.conf:{3 if store else 2}", "image": image}
    assert refused
    assert f"ce: error: {wanted.format(**names)}" in said


def oci_hooks(here: Path, **when: object) -> Path:
    directory = here / "oci"
    directory.mkdir()
    content = {"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": when}
    content["stages"] = ["prestart"]
    (directory / "x.json").write_text(json.dumps(content))
    return directory


WHEN: dict[str, Callable[[Path], Path]] = {
    "for it": lambda here: oci_hooks(here, annotations={r"^com\.hooks\.glibc\.enabled$": "true"}),
    "for another": lambda here: oci_hooks(here, annotations={"^org.example$": "true"}),
    "always": lambda here: oci_hooks(here, always=True),
    "not seen here": lambda here: here / "none",
}


@pytest.mark.parametrize("when", WHEN)
def test_an_unknown_hook_is_reported_unless_an_oci_hook_of_the_site_asks_for_it(
    when: str, here: Path, image: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(f'image = "{image}"\n{enabled("glibc")}')
    _refused, said = Said(file, capsys, f'hooks_dirs = ["{WHEN[when](here)}"]\n').agree()
    assert ("has no such hook" in said) == (when in ("for another", "always"))


@pytest.mark.parametrize(
    ("hook", "hint"),
    [
        ("glibc", "ce hooks list shows the hooks of this site"),
        ("nvidia", 'GPUs need no hook: devices = ["nvidia.com/gpu=all"]'),
    ],
)
def test_an_unknown_hook_comes_with_the_way_to_what_was_meant(
    hook: str, hint: str, here: Path, image: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(f'image = "{image}"\n{enabled(hook)}')
    assert main(["validate", str(file)]) == 0
    assert f"ce: hint: {hint}" in capsys.readouterr().err


def test_all_say_of_an_empty_image_that_there_is_no_container(here: Path, capsys: Capture) -> None:
    file = here / "e.toml"
    file.write_text('image = ""\n')
    refused, said = Said(file, capsys).agree()
    assert not refused
    assert said == f"ce: warning: {file}:1: image: empty: no container, this runs on the host\n"


@pytest.mark.parametrize("kind", ["a directory", "a file of something else", "an image cut short"])
def test_a_file_that_is_no_image_is_refused_by_all(
    kind: str, here: Path, image: Path, capsys: Capture
) -> None:
    wrong = here / "wrong.sqsh"
    if kind == "a directory":
        wrong.mkdir()
    else:
        wrong.write_bytes(b"#!/bin/sh\n" if "else" in kind else image.read_bytes()[:90])
    file = here / "e.toml"
    file.write_text(f'image = "{wrong}"\n')
    refused, said = Said(file, capsys).agree()
    assert refused
    assert said.startswith(f"ce: error: {file}:1: image: '{wrong}': "), said


def test_a_launch_names_what_validate_names_beside_an_image_that_is_missing(
    here: Path, capsys: Capture
) -> None:
    """A user who has fixed the image must not meet the next message only then."""
    file = here / "e.toml"
    file.write_text('image = "/nowhere.sqsh"\n[annotations]\ncom.hooks.pytorch.master_port = "1"\n')
    said = Said(file, capsys)
    assert said.validate[1].startswith(f"ce: warning: {file}:3: com.hooks.pytorch.master_port: ")
    missing = f"ce: error: {file}:1: image: '/nowhere.sqsh': no such file or directory\n"
    assert said.plan == (True, said.validate[1] + missing)


@pytest.mark.parametrize("name", ["/nowhere.sqsh", "127.0.0.1:9/none:1"])
def test_what_needs_no_image_is_refused_before_an_image_is_fetched(
    name: str, here: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(f'image = "{name}"\n{enabled("ssh")}{KEY}')
    refused, said = Said(file, capsys).agree()
    assert refused
    assert said == f"ce: error: {file}:4: com.hooks.ssh.authorize_ssh_key: '/nowhere.pub': " + (
        "does not exist\n"
    )


def test_wrong_settings_are_named_beside_the_other_errors_of_a_file(
    here: Path, image: Path, capsys: Capture
) -> None:
    file = here / "e.toml"
    file.write_text(
        f'image = "{image}"\nworkdir = "rel"\n[annotations]\ncom.ce.tmpfs_size = "big"\n'
        'com.ce.scope = "x"\n'
    )
    refused, said = Said(file, capsys).agree()
    assert refused
    assert [line.split(": ")[3] for line in said.splitlines()] == [
        "workdir",
        "annotations.com.ce.tmpfs_size",
        "annotations.com.ce.scope",
    ]
