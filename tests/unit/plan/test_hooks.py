"""The hooks of a plan, the reasons for them, and their data."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from container_engine.catalog.load import Catalog, load
from container_engine.edf.model import Annotation, EnvEntry, Origin
from container_engine.plan.hooks import Used, use
from container_engine.plan.model import HookUse
from tests.unit.catalog.sites import Site
from tests.unit.plan.edfs import edf

Entries = Callable[[str], Sequence[str] | None]
BUILT_IN = str(Path(__file__).parents[3] / "hooks")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load([BUILT_IN], [0, Path(__file__).stat().st_uid])


def nothing(_directory: str) -> None:
    """Return None, as for a directory that does not exist on the submit host."""


def used(catalog: Catalog, entries: Entries = nothing, /, **said: str) -> Used:
    """Return the hooks for annotations below com.hooks, with "__" for a dot, on lines 1, 2 …"""
    annotations = tuple(
        Annotation(f"com.hooks.{key.replace('__', '.')}", value, Origin("/e.toml", line))
        for line, (key, value) in enumerate(sorted(said.items()), 1)
    )
    return use(edf(annotations=annotations), catalog.hooks, "x86_64", entries)


def test_the_built_in_catalog_is_without_fault(catalog: Catalog) -> None:
    assert catalog.faults == ()


def test_a_hook_is_applied_after_what_it_implies_and_says_why(catalog: Catalog) -> None:
    hooks = [
        h for h in used(catalog, aws_ofi_nccl__enabled="true").hooks if h.reason != "automatic"
    ]
    assert [(hook.name, hook.reason, hook.origin) for hook in hooks] == [
        ("cxi", "implied by aws_ofi_nccl", "/e.toml:1"),
        ("aws_ofi_nccl", "com.hooks.aws_ofi_nccl.enabled", "/e.toml:1"),
    ]


@pytest.mark.parametrize("value", ["TRUE", "1", "yes", "True", "", "false", " true"])
def test_only_the_exact_word_enables(catalog: Catalog, value: str) -> None:
    hooks = used(catalog, cxi__enabled=value).hooks
    assert "cxi" not in {hook.name for hook in hooks}


@pytest.mark.parametrize("release", ["5", "6", "7"])
def test_parameters_fill_the_strings_of_the_data(catalog: Catalog, release: str) -> None:
    rocm = f"rocm{release}"
    found = used(catalog, aws_ofi_nccl__enabled="true", aws_ofi_nccl__variant=rocm)
    hook = next(hook for hook in found.hooks if hook.name == "aws_ofi_nccl")
    assert hook.parameters == {"variant": rocm}
    runtimes = [check.subject for check in hook.checks if check.kind == "major"]
    assert runtimes == [f"libamdhip64.so.{release}"]
    assert [library.files[0].rsplit("/", 3)[1:] for library in hook.libraries] == [
        [rocm, "lib", "librccl-net.so"]
    ]


def test_the_active_profile_becomes_variables(catalog: Catalog) -> None:
    hook = used(catalog, aws_ofi_nccl__enabled="true").hooks[1]
    assert hook.profile == "slingshot-2026.06"
    assert hook.env["NCCL_NET"] == "AWS Libfabric"
    assert hook.env["NCCL_CROSS_NIC"] == "0"


def test_an_artifact_takes_the_place_of_the_nodes_network_software(catalog: Catalog) -> None:
    found = used(
        catalog, aws_ofi_nccl__enabled="true", netstack__source="artifact", netstack__name="shs:13"
    )
    by_name = {hook.name: hook for hook in found.hooks}
    artifact = "/opt/container-engine/netstack/x86_64/latest/shs:13"
    assert [mount.source for mount in by_name["netstack"].mounts] == [artifact]
    # The artifact is flat; of its libraries only these become known to the image's loader.
    assert not any(hook.search for hook in found.hooks)
    known = [library for hook in found.hooks for library in hook.libraries]
    assert [(library.files, library.place, library.stay) for library in known] == [
        ((f"{artifact}/libfabric.so.1",), "replace", True),
        ((f"{artifact}/lib[nr]ccl-net.so",), "beside", True),
    ]


def test_of_an_artifact_without_a_plugin_the_warning_names_the_way_to_another(
    catalog: Catalog,
) -> None:
    found = used(catalog, aws_ofi_nccl__enabled="true", netstack__source="artifact")
    checks = next(hook for hook in found.hooks if hook.name == "aws_ofi_nccl").checks
    (plugin,) = [check for check in checks if check.kind == "loadable"]
    assert plugin.subject == "lib[nr]ccl-net.so"
    assert "com.hooks.netstack.name" in plugin.hint
    assert "variant" not in plugin.hint


ARTIFACTS = {"x86_64": ["26.9", "26.10", "26.05.1"], "26.10": ["default", "shs:13.1.0"]}


def artifacts(directory: str) -> list[str] | None:
    return ARTIFACTS.get(directory.rpartition("/")[2])


def test_latest_is_the_newest_version(catalog: Catalog) -> None:
    (netstack,) = chosen(used(catalog, artifacts, netstack__source="artifact"))
    assert netstack.parameters == {"source": "artifact", "version": "26.10", "name": "default"}


def test_an_unknown_version_is_refused_with_those_that_exist(catalog: Catalog) -> None:
    found = used(catalog, artifacts, netstack__source="artifact", netstack__version="26.11")
    (problem,) = found.problems
    assert str(problem) == (
        "/e.toml:2: com.hooks.netstack.version: there is no '26.11' in"
        " /opt/container-engine/netstack/x86_64, did you mean '26.10'?"
    )
    assert problem.severity == "error"
    assert problem.hint == "there are 26.10, 26.9, 26.05.1"


def test_an_unknown_name_is_refused_with_those_that_exist(catalog: Catalog) -> None:
    found = used(catalog, artifacts, netstack__source="artifact", netstack__name="shs:14")
    (problem,) = found.problems
    assert "there is no 'shs:14' in /opt/container-engine/netstack/x86_64/26.10" in str(problem)
    assert problem.hint == "there are shs:13.1.0, default"


def test_a_variant_has_no_effect_with_an_artifact_and_a_notice_says_so(catalog: Catalog) -> None:
    found = used(
        catalog,
        aws_ofi_nccl__enabled="true",
        aws_ofi_nccl__variant="cuda12",
        netstack__source="artifact",
    )
    (problem,) = found.problems
    assert problem.severity == "warning"
    assert str(problem) == (
        "/e.toml:2: com.hooks.aws_ofi_nccl.variant: has no effect,"
        " it is only used if netstack.source is host"
    )
    assert problem.hint == 'write com.hooks.netstack.source = "host"'
    (problem,) = used(catalog, netstack__name="default").problems
    assert problem.hint == 'write com.hooks.netstack.source = "artifact"'


def test_a_variant_without_the_switch_enables_the_hook_that_it_is_for(catalog: Catalog) -> None:
    found = used(catalog, aws_ofi_nccl__variant="cuda12")
    assert [hook.name for hook in chosen(found)] == ["cxi", "aws_ofi_nccl"]
    off = used(catalog, aws_ofi_nccl__variant="cuda12", aws_ofi_nccl__enabled="false")
    assert (chosen(off), off.problems) == ([], ())


def test_a_parameter_of_a_hook_that_is_off_is_reported_to_have_no_effect(
    catalog: Catalog,
) -> None:
    found = used(catalog, ssh__port="15264")
    assert chosen(found) == []
    (problem,) = found.problems
    assert str(problem) == ("/e.toml:1: com.hooks.ssh.port: has no effect, the hook 'ssh' is off")
    assert (problem.severity, problem.hint) == ("warning", 'write com.hooks.ssh.enabled = "true"')


def test_the_daemon_of_mps_is_started_by_its_bare_name(catalog: Catalog) -> None:
    hook = next(h for h in used(catalog, nvidia_cuda_mps__enabled="true").hooks if h.services)
    assert hook.services[0].command == ("nvidia-cuda-mps-control", "-d")
    assert hook.mounts[0].target == "/usr/bin/nvidia-cuda-mps-control"


def chosen(found: Used) -> list[HookUse]:
    """Return the hooks without the automatic ones."""
    return [hook for hook in found.hooks if hook.automatic_when is None]


def test_a_hook_that_the_user_turned_off_is_not_implied_and_a_notice_says_so(
    catalog: Catalog,
) -> None:
    found = used(catalog, aws_ofi_nccl__enabled="true", cxi__enabled="false")
    assert [hook.name for hook in chosen(found)] == ["aws_ofi_nccl"]
    (problem,) = found.problems
    assert str(problem) == (
        "/e.toml:2: com.hooks.cxi.enabled: 'false', so the hook 'cxi' is left out,"
        " which aws_ofi_nccl needs"
    )


def refused(site: Site, **said: str) -> list[str]:
    found = used(site.load(), **said)
    return [str(problem) for problem in found.problems if problem.severity == "error"]


def test_what_a_hook_implies_implies_further_hooks(site: Site) -> None:
    site.hook("a", 'implies = ["b"]')
    site.hook("b", 'implies = ["c"]')
    site.hook("c")
    hooks = used(site.load(), a__enabled="true").hooks
    assert [(hook.name, hook.reason) for hook in hooks] == [
        ("c", "implied by b"),
        ("b", "implied by a"),
        ("a", "com.hooks.a.enabled"),
    ]


def conditions(found: Used) -> dict[str, tuple[str, ...] | None]:
    return {hook.name: hook.automatic_when for hook in found.hooks}


def test_what_an_automatic_hook_implies_applies_where_that_hook_does(site: Site) -> None:
    gpus, network = "SLURM_JOB_PARTITION=gpu*", "SLURM_JOB_PARTITION=net"
    site.hook("a", f'default = "automatic"\nautomatic_when = ["{gpus}"]\nimplies = ["b"]')
    site.hook("b", 'implies = ["c"]')
    site.hook("c", f'default = "automatic"\nautomatic_when = ["{network}"]')
    assert conditions(used(site.load())) == {"a": (gpus,), "b": (gpus,), "c": (network, gpus)}
    asked = used(site.load(), b__enabled="true")
    assert conditions(asked) == {"a": (gpus,), "b": None, "c": None}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("SLURM_JOB_PARTITION=gpu", "SLURM_JOB_PARTITION=gpu2", False),
        ("SLURM_JOB_PARTITION=gpu*", "SLURM_JOB_PARTITION=cpu[12]", False),
        ("SLURM_JOB_PARTITION=gpu*", "SLURM_JOB_PARTITION=gpu2", True),
        ("SLURM_JOB_PARTITION=*", "SLURM_JOB_PARTITION=cpu", True),
        ("SLURM_JOB_PARTITION=gpu", "SLURM_CLUSTER_NAME=cpu", True),
        ("SLURM_JOB_PARTITION=gpu", "SLURM_JOB_PARTITION", True),
    ],
)
def test_automatic_hooks_clash_unless_their_conditions_exclude_each_other(
    site: Site, one: str, other: str, clash: bool
) -> None:
    for name, when, value in (("a", one, "1"), ("b", other, "2")):
        condition = f'default = "automatic"\nautomatic_when = ["{when}"]'
        site.hook(name, f'{condition}\n[edits.x]\nenv.NETWORK = "{value}"')
    assert [problem.see for problem in used(site.load()).problems] == ["hook-clash"] * clash


def test_a_hook_that_is_on_by_default_can_be_turned_off(site: Site) -> None:
    site.hook("h", 'default = "on"')
    (hook,) = used(site.load()).hooks
    assert (hook.reason, hook.origin) == ("on by default", str(site.own / "h/hook.toml"))
    assert used(site.load(), h__enabled="false").hooks == ()


def test_a_hook_that_the_site_requires_cannot_be_turned_off(site: Site) -> None:
    site.hook("h", 'default = "required"')
    assert used(site.load()).hooks[0].reason == "required by the site"
    for word in ("false", "no", ""):
        assert refused(site, h__enabled=word) == [
            "/e.toml:1: com.hooks.h.enabled: the site requires the hook 'h'"
        ]


def test_a_hook_that_the_site_turned_off_is_refused_by_name(site: Site) -> None:
    site.hook("h", site=False)
    site.hook("h", "turned_off = true", whole=False)
    assert refused(site, h__enabled="true") == [
        "/e.toml:1: com.hooks.h.enabled: the hook 'h' is turned off at this site"
    ]


def test_a_hook_whose_implied_hook_is_turned_off_is_refused(site: Site) -> None:
    site.hook("a", 'implies = ["b"]')
    site.hook("b", "turned_off = true")
    assert refused(site, a__enabled="true") == [
        "/e.toml:1: com.hooks.a.enabled: needs the hook 'b', which is turned off at this site"
    ]


def test_a_conflict_is_refused_with_both_names(site: Site) -> None:
    site.hook("a", 'conflicts = ["b"]')
    site.hook("b")
    assert refused(site, a__enabled="true", b__enabled="true") == [
        "/e.toml:1: com.hooks.a.enabled:"
        " cannot be used together with the hook 'b' (com.hooks.b.enabled)"
    ]
    assert refused(site, a__enabled="true") == []


def test_a_hook_that_needs_another_one_is_refused_without_it(site: Site) -> None:
    site.hook("a", 'requires.hooks = ["b"]')
    site.hook("b")
    assert refused(site, a__enabled="true") == [
        "/e.toml:1: com.hooks.a.enabled: needs the hook 'b'"
    ]
    assert refused(site, a__enabled="true", b__enabled="true") == []


def test_a_remedy_names_the_annotation_that_the_hook_really_has(site: Site) -> None:
    site.hook("a", 'requires.hooks = ["b", "c"]\n[parameters.p]\nhelp = "h"\nwhen."b.q" = "x"')
    site.hook("b", 'annotation = "org.b"\n[parameters.q]\nhelp = "h"')
    site.hook("c", 'switch = "org.c"')
    problems = used(site.load(), a__enabled="true", a__p="1").problems
    assert [problem.hint for problem in problems] == [
        'write org.b.enabled = "true"',
        'write org.c = "true"',
        'write org.b.q = "x"',
    ]


def test_a_remedy_is_nothing_that_the_site_forbids(site: Site) -> None:
    site.hook("a", 'requires.hooks = ["b"]\n[parameters.p]\nhelp = "h"\nwhen."b.q" = "x"')
    site.hook("b", 'turned_off = true\nsettings.q = "y"')
    first, second = used(site.load(), a__enabled="true", a__p="1").problems
    assert first.message == "needs the hook 'b', which is turned off at this site"
    assert (first.hint, second.hint) == (f"{site.own}/b/hook.toml says so", None)


def test_a_use_names_what_turns_it_off_unless_nobody_can(site: Site) -> None:
    site.hook("a", 'default = "on"')
    site.hook("b", 'default = "on"\nswitch = "org.b"')
    site.hook("c", 'default = "required"')
    switches = [hook.switch for hook in used(site.load()).hooks]
    assert switches == ["com.hooks.a.enabled", "org.b", ""]


def test_a_hook_that_needs_a_writable_container_is_refused_without(site: Site) -> None:
    site.hook("h", "requires.writable = true")
    said = (Annotation("com.hooks.h.enabled", "true", Origin("/e.toml", 1)),)
    only_read = edf(annotations=said, writable=False, writable_origin=Origin("/e.toml", 9))
    (problem,) = use(only_read, site.load().hooks, "x86_64", nothing).problems
    assert "needs a writable container" in problem.message
    assert problem.hint == "writable is false, /e.toml:9"
    assert refused(site, h__enabled="true") == []


def test_a_hook_that_needs_a_glibc_image_has_a_check_of_it_on_the_node(site: Site) -> None:
    site.hook("h", 'requires.libc = "glibc"')
    (hook,) = used(site.load(), h__enabled="true").hooks
    (check,) = hook.checks
    assert (check.kind, check.severity, check.subject) == ("libc", "fail", "glibc")


def test_a_required_parameter_that_is_missing_is_named(site: Site) -> None:
    site.hook("h", '[parameters.p]\nhelp = "a port"\nrequired = true')
    assert refused(site, h__enabled="true") == [
        "/e.toml:1: com.hooks.h.p: the hook 'h' needs it, and it is not set: a port"
    ]


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (
            'mounts = [{ source = "/a", target = "/x" }]',
            'mounts = [{ source = "/x" }]',
            "the path /x",
        ),
        ('env.V = "1"', 'env.V = "2"', "the variable V"),
        (
            'devices = [{ path = "/dev/x" }]',
            'devices = [{ path = "/dev/x", permissions = "r" }]',
            "the device /dev/x",
        ),
    ],
)
def test_two_hooks_that_edit_one_thing_are_refused(
    site: Site, one: str, other: str, what: str
) -> None:
    site.hook("a", f"[edits.e]\n{one}")
    site.hook("b", f"[edits.e]\n{other}")
    assert refused(site, a__enabled="true", b__enabled="true") == [
        f"/e.toml:2: com.hooks.b.enabled: the hooks 'a' and 'b' both edit {what}"
    ]
    assert refused(site, a__enabled="true") == []


@pytest.mark.parametrize(
    ("defaults", "asked", "hint"),
    [
        (("off", "off"), {"a__enabled": "true", "b__enabled": "true"}, "use one of them"),
        (
            ("on", "on"),
            {},
            "the site applies both by itself, tell its support; until then "
            'com.hooks.b.enabled = "false" below [annotations] leaves one out',
        ),
        (("required", "required"), {}, "the site applies both by itself, tell its support"),
        (
            ("on", "off"),
            {"b__enabled": "true"},
            "the site applies 'a' by itself: "
            'com.hooks.a.enabled = "false" below [annotations] leaves it out',
        ),
        (
            ("required", "off"),
            {"b__enabled": "true"},
            "the site applies 'a' by itself: remove the line of the other",
        ),
    ],
)
def test_what_to_do_about_a_clash_names_who_asked(
    site: Site, defaults: tuple[str, str], asked: dict[str, str], hint: str
) -> None:
    for name, default in zip("ab", defaults, strict=True):
        site.hook(name, f'default = "{default}"\n[edits.e]\nenv.V = "{name}"')
    assert [problem.hint for problem in used(site.load(), **asked).problems] == [hint]


def test_what_a_user_says_is_not_looked_into_again(site: Site) -> None:
    site.hook(
        "h",
        'settings.secret = "/root"\n[parameters.p]\nhelp = "h"\n[edits.e]\nsearch = ["/a/{p}"]',
    )
    (hook,) = used(site.load(), h__enabled="true", h__p="{secret}").hooks
    assert hook.search == ("/a/{secret}",)


def test_settings_may_use_each_other_and_a_circle_of_them_ends(site: Site) -> None:
    site.hook("h", 'settings.a = "{b}/a"\nsettings.b = "/b"\n[edits.e]\nsearch = ["{a}"]')
    site.hook("c", 'settings.a = "{a}/a"\n[edits.e]\nsearch = ["{a}"]')
    hooks = used(site.load(), h__enabled="true", c__enabled="true").hooks
    assert hooks[1].search == ("/b/a",)
    assert hooks[0].search[0].startswith("{a}")


def test_what_only_the_node_knows_stays_for_it(site: Site) -> None:
    site.hook("h", '[edits.e]\nsearch = ["/run/{node.uid}"]')
    (hook,) = used(site.load(), h__enabled="true").hooks
    assert hook.search == ("/run/{node.uid}",)


@pytest.mark.parametrize(
    ("profile", "own", "is_asked"),
    [("a", None, True), ("b", None, False), ("a", "default", False), ("b", "alt_read", True)],
)
def test_a_check_that_a_variable_needs_is_there_if_hook_or_environment_sets_it_so(
    site: Site, profile: str, own: str | None, is_asked: bool
) -> None:
    check = '[checks.c]\nkind = "variable"\nsubject = "N"\nneeded_by = "V=alt_*"\n'
    site.hook("h", f'profile = "{profile}"\nprofiles.a.V = "alt_read"\nprofiles.b.W = "1"\n{check}')
    env = () if own is None else (EnvEntry("V", own, Origin("/e.toml", 1)),)
    annotations = (Annotation("com.hooks.h.enabled", "true", Origin("/e.toml", 1)),)
    found = use(edf(annotations=annotations, env=env), site.load().hooks, "x86_64", nothing)
    assert [check.subject for check in found.hooks[0].checks] == (["N"] if is_asked else [])


def test_the_flight_recorder_has_a_directory_of_the_sites_and_names_of_the_step(
    catalog: Catalog,
) -> None:
    (hook,) = [
        hook
        for hook in used(catalog, pytorch__enabled="true", pytorch__flight_recorder="true").hooks
        if hook.name == "pytorch"
    ]
    place = "/.container-engine/dumps"
    assert [(mount.source, mount.target) for mount in hook.mounts] == [("/tmp", place)]
    assert hook.env["TORCH_FR_DUMP_TEMP_FILE"] == f"{place}/{{node.job}}.{{node.step}}-rank_"
    (plain,) = [
        hook for hook in used(catalog, pytorch__enabled="true").hooks if hook.name == "pytorch"
    ]
    assert (plain.mounts, plain.env) == ((), {})
