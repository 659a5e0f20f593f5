"""Which hooks a plan has, why, and what their data become."""

from pathlib import Path

import pytest

from container_engine.catalog.load import Catalog, load
from container_engine.edf.model import Annotation, Origin
from container_engine.plan.hooks import Used, use
from tests.unit.plan.edfs import edf

BUILT_IN = str(Path(__file__).parents[3] / "hooks")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load([BUILT_IN], [0, Path(__file__).stat().st_uid])


def used(catalog: Catalog, **said: str) -> Used:
    """Annotations by name below com.hooks, "__" for a dot, on lines 1, 2 …"""
    annotations = tuple(
        Annotation(f"com.hooks.{key.replace('__', '.')}", value, Origin("/e.toml", line))
        for line, (key, value) in enumerate(sorted(said.items()), 1)
    )
    return use(edf(annotations=annotations), catalog.hooks, "x86_64")


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


def test_parameters_fill_the_strings_of_the_data(catalog: Catalog) -> None:
    found = used(catalog, aws_ofi_nccl__enabled="true", aws_ofi_nccl__variant="rocm6")
    hook = next(hook for hook in found.hooks if hook.name == "aws_ofi_nccl")
    assert hook.parameters == {"variant": "rocm6"}
    assert [library.files[0].rsplit("/", 3)[1:] for library in hook.libraries] == [
        ["rocm6", "lib", "librccl-net.so"]
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
    assert by_name["cxi"].libraries == ()
    assert by_name["aws_ofi_nccl"].libraries == ()
    assert by_name["netstack"].mounts[0].source.endswith("/x86_64/latest/shs:13")
