"""Effective EDFs and images for the tests of the plan builder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from container_engine.catalog.load import Hook
from container_engine.edf.model import Edf, EnvEntry, Operator, Origin, Variable
from container_engine.plan.build import Built, build
from container_engine.plan.model import Image
from container_engine.plan.site_context import SiteContext, Sitewide
from container_engine.site.load import Configuration
from container_engine.site.model import SiteConfig

HERE = Origin("/e.toml", 3)
PLAIN = Image(path="/i.sqsh", name="/i.sqsh", env={"PATH": "/bin"}, source="/i.sqsh.json")


def edf(**values: Any) -> Edf:  # noqa: ANN401  # of any key
    smallest = Edf("e", ("/e.toml",), image="/i.sqsh", image_origin=Origin("/e.toml", 1))
    return replace(smallest, **values)


def site_context(site: SiteConfig, hooks: Mapping[str, Hook]) -> SiteContext:
    """Return the context of a site without entries of its own that refuses no mount and no key."""
    return SiteContext(
        site,
        hooks,
        "x86_64",
        entries=lambda _directory: None,
        wide=Sitewide((), (), ()),
        config=Configuration(site, {}, (), ()),
        adding={},
        asked=lambda _key: False,
        refused=lambda _mount: "",
    )


def built(environment: Edf, image: Image = PLAIN, site: SiteConfig | None = None) -> Built:
    return build(environment, image, site_context(site or SiteConfig(), {}), "0")


def variable(name: str, op: Operator = "", word: str = "") -> Variable:
    return Variable(name, op, word)


def entry(name: str, *parts: str | Variable) -> EnvEntry:
    first, *others = parts
    return EnvEntry(name, first if isinstance(first, str) and not others else parts, HERE)
