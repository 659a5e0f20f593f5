"""The site's offer to environments: all that a plan depends on besides EDF and image. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from container_engine.catalog.load import Hook
from container_engine.edf.model import Mount
from container_engine.plan.hook_code import Added
from container_engine.plan.hook_parameters import Entries
from container_engine.plan.model import HookUse
from container_engine.plan.site_entries import Sitewide
from container_engine.site.load import Configuration
from container_engine.site.model import SiteConfig


class Offer(NamedTuple):
    """The site's offer: its settings, its hooks, and the nodes' machine (uname -m).

    `entries` lists a directory of the submit host, `adding` has, by the name of a hook, what asks
    its code for further parameters, and `asked` checks whether an OCI hook of the site runs for an
    annotation. `wide` applies to every environment; `config` tells where settings come from.
    `refused` returns why the site's policy refuses a mount, "" if it does not.
    """

    site: SiteConfig
    hooks: Mapping[str, Hook]
    machine: str
    entries: Entries
    wide: Sitewide
    config: Configuration
    adding: Mapping[str, Callable[[HookUse], Added]]
    asked: Callable[[str], bool]
    refused: Callable[[Mount], str]

    def lets(self, key: str) -> bool:
        """Check whether an EDF may override `key`."""
        return key in self.site.edf_may_override
