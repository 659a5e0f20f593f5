"""Merging of a site's files with the built-in hooks, and errors that name a bad file."""

import pytest

from tests.unit.catalog.sites import Site

PARAMETER = '[parameters.p]\nhelp = "h"\n'


def test_a_site_changes_single_keys_of_a_built_in_hook(site: Site) -> None:
    site.hook("h", '[settings]\na = "/a"\nb = "/b"\n', site=False)
    changed = site.hook("h", 'default = "on"\n[settings]\nb = "/c"\n', whole=False)
    hook = site.load().hooks["h"]
    assert hook.data.settings == {"a": "/a", "b": "/c"}
    assert hook.data.default == "on"
    assert hook.data.summary == "s"
    assert hook.file == str(changed)


def test_a_site_replaces_a_part_and_keeps_the_others(site: Site) -> None:
    site.hook("h", '[edits.a]\nenv.A = "1"\n[edits.b]\nenv.B = "1"\n', site=False)
    site.hook("h", '[edits.b]\nenv.B = "2"\n', whole=False)
    edits = site.load().hooks["h"].data.edits
    assert [edits[part].env for part in ("a", "b")] == [{"A": "1"}, {"B": "2"}]


def test_a_site_adds_a_hook(site: Site) -> None:
    site.hook("built_in", site=False)
    site.hook("own")
    assert sorted(site.load().hooks) == ["built_in", "own"]


def test_files_beside_the_hooks_are_ignored(site: Site) -> None:
    (site.own / "README.md").write_text("text")
    assert site.load().hooks == {}
    assert site.faults() == []


def test_a_directory_that_does_not_exist_has_no_hooks(site: Site) -> None:
    site.own.rmdir()
    assert site.faults() == []


BAD = {
    "toml": ("x = ", "not valid TOML: "),
    "a string for an array": ("implies = 'x'", "implies: must be an array"),
    "unknown key": ("sumary = 'x'", "unknown key 'sumary', did you mean 'summary'?"),
    "unknown key of an edit": (
        "[edits.a]\nmount = []",
        "unknown key 'edits.a.mount', did you mean 'mounts'?",
    ),
    "unknown key of an edit that is named as a key": (
        "[edits.devices]\nzzz = []",
        "unknown key 'edits.devices.zzz'",
    ),
    "unknown key of a mount": (
        "[[edits.a.mounts]]\nsource = '/a'\noption = []",
        "unknown key 'edits.a.mounts[0].option', did you mean 'options'?",
    ),
    "missing key": ("[[edits.a.mounts]]\ntarget = '/a'", "edits.a.mounts[0].source: is missing"),
    "wrong type": ("implies = 'cxi'", "implies: "),
    "format of the future": ("version = 2", "version: "),
    "unknown stage": (
        "[[edits.a.hooks]]\nhookName = 'before'\npath = '/bin/true'",
        "edits.a.hooks[0].hookName: ",
    ),
    "relative program": (
        "[[edits.a.hooks]]\nhookName = 'poststop'\npath = 'true'",
        "edits.a.hooks[0].path: ",
    ),
    "empty command": ("[services.s]\ncommand = []", "services.s.command: "),
    "implied hook": ("implies = ['other']", "implies: there is no hook 'other'"),
    "required hook": ("requires.hooks = ['hh']", "requires.hooks: there is no hook 'hh'"),
    "profile": ("profile = 'p'", "profile: there is no profile 'p'"),
    "default": (
        f"{PARAMETER}values = ['a', 'b']\ndefault = 'c'",
        "parameters.p.default: unknown value 'c'",
    ),
    "default of a type": (
        f"{PARAMETER}type = 'port'\ndefault = '0'",
        "parameters.p.default: '0' is not the number of a port",
    ),
    "name in a string": (
        "[edits.a]\nsearch = ['{directory}/lib']",
        "{directory} is neither a parameter nor a setting",
    ),
    "name in a condition": (
        "[edits.a]\nwhen = { 'other.source' = 'x' }",
        "when: 'other.source' is neither a parameter nor a setting",
    ),
    "allowed setting": ("allow = ['base']", "allow: there is no setting 'base'"),
    "parameter and setting": (f"{PARAMETER}[settings]\np = '1'", "'p' is both"),
    "program by parameter": (
        f"{PARAMETER}[services.s]\ncommand = ['/opt/{{p}}/run']",
        "services: '/opt/{p}/run': users must not choose a program",
    ),
    "program by allowed setting": (
        "allow = ['d']\nsettings.d = '/d'\n[services.s]\ncommand = ['{d}/x']",
        "services: '{d}/x': users must not choose a program",
    ),
    "program by a setting with a parameter": (
        f"{PARAMETER}[settings]\nd = '/d/{{p}}'\n[services.s]\ncommand = ['{{d}}/x']",
        "services: '{d}/x': users must not choose a program",
    ),
    "limit in words": (
        "[checks.c]\nkind = 'memlock'\nsubject = 'much'",
        "checks.c.subject: expected a number of KiB, got 'much'",
    ),
    "checked program by parameter": (
        f"{PARAMETER}[checks.c]\nkind = 'run'\ncommand = ['{{p}}', '-x']",
        "checks: '{p}': users must not choose a program",
    ),
    "check of a program without one": (
        "[checks.c]\nkind = 'run'\nsubject = 'true'",
        "checks.c.command: is missing",
    ),
    "check of the image before there is one": (
        "[checks.c]\nkind = 'run'\ncommand = ['a']\ninside = false",
        'checks.c.inside: the image is not there yet: set program = "host"',
    ),
    "check that is never believed": (
        "[checks.c]\nkind = 'run'\ncommand = ['a']\nunchanged = ['/sys/a']",
        "checks.c.unchanged: has no meaning without valid_s",
    ),
    "check that a relative path decides": (
        "[checks.c]\nkind = 'run'\ncommand = ['a']\nvalid_s = 60\nunchanged = ['a']",
        "checks.c.unchanged: must have absolute paths",
    ),
    "check of a pair that is believed": (
        "[checks.c]\nkind = 'run'\ncommand = ['a']\nper = 'pair'\nvalid_s = 60",
        "checks.c.valid_s: a pair is never believed later",
    ),
    "check of a hook's program elsewhere": (
        "[checks.c]\nkind = 'run'\ncommand = ['/bin/a']\nprogram = 'hook'",
        "checks.c.command: a program of the hook is named relative to the hook.toml",
    ),
    "check without a kind": ("[checks.c]\nsubject = 'a'", "checks.c: the kind is missing"),
    "circle with itself": ("implies = ['h']", "implies: goes in a circle: h -> h"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_hook_is_named_with_its_key(site: Site, name: str) -> None:
    text, message = BAD[name]
    site.hook("h", text)
    assert [fault for fault in site.faults() if fault.startswith(f"h/hook.toml: {message}")]


def test_a_missing_file_is_named(site: Site) -> None:
    (site.own / "h").mkdir()
    assert site.faults() == ["h/hook.toml: no such file or directory"]


def test_a_directory_whose_name_no_annotation_can_have_is_named(site: Site) -> None:
    site.hook("my-hook")
    assert site.faults() == ["my-hook: is not the name of a hook"]


def test_what_is_implied_in_a_circle_is_named_in_order(site: Site) -> None:
    site.hook("a", 'implies = ["b"]')
    site.hook("b", 'implies = ["c"]')
    site.hook("c", 'implies = ["a"]')
    assert site.faults() == ["a/hook.toml: implies: goes in a circle: a -> b -> c -> a"]


def test_a_circle_of_different_keys_is_named_too(site: Site) -> None:
    site.hook("a", 'implies = ["b"]')
    site.hook("b", 'after = ["c"]')
    site.hook("c", '[requires]\nhooks = ["a"]')
    assert site.faults() == [
        "a/hook.toml: after, implies, requires.hooks: goes in a circle: a -> b -> c -> a"
    ]


def test_two_hooks_with_one_annotation_are_named(site: Site) -> None:
    site.hook("a", 'switch = "com.x"')
    site.hook("b", 'switch = "com.x"')
    assert site.faults() == ["b/hook.toml: has the annotation com.x, as the hook 'a'"]
