"""Meaning of names without a registry, by the files that Podman reads."""

from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.fetch import short_names
from container_engine.images.reference import RegistryImage, parse


class Home:
    """A home whose own main file replaces the system's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.main = path / ".config/containers/registries.conf"
        self.asked = path / ".cache/containers/short-name-aliases.conf"

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def drop_in(self, name: str, text: str) -> Path:
        path = self.main.with_name("registries.conf.d") / name
        self.write(path, text)
        return path

    def read(self, **more: str) -> short_names.ShortNames:
        return short_names.read({"HOME": str(self.path)} | more, 1000)

    def meanings(self, text: str) -> list[str]:
        return [found.canonical for found in self.read().meanings(image(text))]


def image(text: str) -> RegistryImage:
    found = parse(text, "/")
    assert isinstance(found, RegistryImage)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.write(made.main, "")
    return made


def test_an_alias_keeps_the_tag_and_the_digest(home: Home) -> None:
    home.write(home.main, '[aliases]\n"tools" = "r.example:5000/team/tools"\n')
    digest = f"sha256:{'a' * 64}"
    assert home.meanings("tools") == ["r.example:5000/team/tools:latest"]
    assert home.meanings("tools:2") == ["r.example:5000/team/tools:2"]
    assert home.meanings(f"tools@{digest}") == [f"r.example:5000/team/tools@{digest}"]
    assert home.read().meanings(image("tools:2"))[0].name == "r.example:5000/team/tools:2"


@pytest.mark.parametrize(
    "text",
    [
        "docker.io/tools",
        "docker://tools",
        "localhost/tools",
        "docker.io#tools",
        "eve@docker.io#tools",
    ],
)
def test_a_name_with_a_registry_stands_for_itself(home: Home, text: str) -> None:
    home.write(home.main, '[aliases]\n"tools" = "r.example/tools"\n')
    assert home.read().meanings(image(text)) == (image(text),)


def test_a_name_without_a_rule_is_in_the_default_registry(home: Home) -> None:
    assert home.read().meanings(image("ubuntu:24.04")) == (image("ubuntu:24.04"),)
    home.write(home.main, '[aliases]\n"ubuntu" = "docker.io/library/ubuntu"\n')
    assert home.read().meanings(image("ubuntu:24.04")) == (image("ubuntu:24.04"),)


def test_later_files_overrule_earlier_ones_and_what_people_chose_counts_most(home: Home) -> None:
    home.write(home.main, 'unqualified-search-registries = ["a"]\n[aliases]\nx = "a.b/m"\n')
    home.drop_in("20.conf", '[aliases]\nx = "a.b/20"\ny = ""\n')
    home.drop_in("10.conf", '[aliases]\nx = "a.b/10"\ny = "a.b/10"\n')
    home.drop_in("30.toml", '[aliases]\nx = "a.b/30"\n')
    assert home.meanings("x") == ["a.b/20:latest"]
    searching = home.drop_in("40.conf", 'unqualified-search-registries = ["b.c", "docker.io"]')
    assert home.meanings("y") == ["b.c/y:latest", "docker.io/library/y:latest"]
    home.write(home.asked, '[aliases]\nx = "a.b/chosen"\n')
    assert home.meanings("x") == ["a.b/chosen:latest"]
    consulted = home.read().consulted
    assert {str(home.main), str(home.asked), str(searching), str(searching.parent)} <= {*consulted}


def test_the_machines_files_count_for_users_without_files_of_their_own(tmp_path: Path) -> None:
    consulted = short_names.read({"HOME": str(tmp_path)}, 1000).consulted
    assert "/etc/containers/registries.conf" in consulted
    assert "/etc/containers/registries.conf.d" in consulted
    assert f"{tmp_path}/.config/containers/registries.conf" in consulted


def test_a_main_file_may_be_of_version_1(home: Home) -> None:
    first = '[registries.search]\nregistries = ["a.b", "c.d"]\n[registries.insecure]\n'
    home.write(home.main, first + 'registries = ["a.b"]\n')
    assert home.meanings("x") == ["a.b/x:latest", "c.d/x:latest"]
    home.drop_in("10.conf", 'unqualified-search-registries = ["e.f"]\n')
    assert home.meanings("x") == ["e.f/x:latest"]


def test_a_main_file_that_is_chosen_is_in_place_of_the_others(home: Home, tmp_path: Path) -> None:
    home.write(home.main, 'unqualified-search-registries = ["a.b"]\n[aliases]\ny = "a.b/own"\n')
    chosen = tmp_path / "mine.conf"
    with pytest.raises(UserError, match=r"mine\.conf: no such file.* \(CONTAINERS_REG"):
        home.read(CONTAINERS_REGISTRIES_CONF=str(chosen))
    chosen.write_text('unqualified-search-registries = ["c.d"]\n')
    home.drop_in("10.conf", '[aliases]\nx = "a.b/x"\n')
    names = home.read(CONTAINERS_REGISTRIES_CONF=str(chosen))
    found = [names.meanings(image(name))[0].canonical for name in ("x", "y")]
    assert found == ["a.b/x:latest", "c.d/y:latest"]
    assert str(home.main) not in names.consulted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = [", "invalid value"),
        ("aliases = 3", "aliases: must be a table"),
        ('[aliases]\nx = "library/x"', "'x' is an alias of 'library/x', which has no registry"),
        ('[aliases]\nx = "r.example/X"', "'X' has upper-case letters"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(home: Home, text: str, why: str) -> None:
    home.write(home.main, text)
    with pytest.raises(UserError) as caught:
        home.meanings("x")
    assert caught.value.message.startswith(f"{home.main}: ")
    assert why in caught.value.message
