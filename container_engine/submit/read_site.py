"""Reads the context that the site gives to every environment: its settings and its hooks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence

from container_engine.base import hook_code
from container_engine.base.errors import SiteError
from container_engine.base.files import of_engine
from container_engine.catalog.load import Catalog, load
from container_engine.edf.model import Mount
from container_engine.plan.hooks import Added
from container_engine.plan.model import HookUse
from container_engine.plan.site_context import SiteContext, sitewide
from container_engine.site.load import Configuration, located
from container_engine.site.model import Policy, SiteConfig
from container_engine.submit.context import Context


def read_site(context: Context, config: Configuration, probed: list[str]) -> SiteContext:
    """Return the context that the site gives to environments.

    Add the paths of the catalog to `probed`, and later each file and directory that it reads. Raise
    SiteError if the catalog or the site's own mounts, devices or variables have a fault: no launch
    continues with half of them.
    """
    settings = config.settings
    directories = (hook_code.directory(context.prefix), *settings.hook_catalog)
    # the engine's own hooks fit together, which a test keeps
    has_others = any(map(os.path.lexists, settings.hook_catalog))
    found = catalog(directories) if has_others else load(directories, owners())
    probed += found.probed
    if found.faults:
        first = located(found.faults[0], {})
        more = f" (and {len(found.faults) - 1} more)" if len(found.faults) > 1 else ""
        hint = "no container is started with a bad hook catalog; 'ce hooks check' shows all"
        raise SiteError(f"hook catalog: {first}{more}", hint, "hook-catalog")

    def entries(directory: str) -> list[str] | None:
        probed.append(directory)
        try:
            return os.listdir(directory)
        except OSError:
            return None

    def added(use: HookUse) -> Added:
        code = hook_code.load(context.prefix, use.name, use.code, "plan")
        more: Added = code.complete(use.parameters, probed.append) if code else Added({})
        return more

    def asked(annotation: str) -> bool:
        return _asked_by_hooks(annotation, settings.hooks_dirs, probed)

    adding = {
        name: added
        for name, hook in found.hooks.items()
        if hook.data.code and hook_code.has(context.prefix, name, hook.data.code, "plan")
    }
    wide = sitewide(config, context.env)
    kind, refused = machine(settings), _mount_policy(config)
    return SiteContext(settings, found.hooks, kind, entries, wide, config, adding, asked, refused)


def _mount_policy(config: Configuration) -> Callable[[Mount], str]:
    """Return the function that asks the site's policy about a mount.

    Mounts whose source this host does not have, or whose paths have variables of the node, are
    left to the check on the node.
    """
    if config.settings.policy == Policy():
        return lambda _mount: ""
    from container_engine.submit.stores import node_rules

    rules = node_rules(config)

    def refused(mount: Mount) -> str:
        if not isinstance(mount.source, str) or not isinstance(mount.target, str):
            return ""
        if mount.kind != "tmpfs" and not os.path.exists(mount.source):
            return ""
        return rules.mount_refusal(mount.kind, mount.source, mount.target)

    return refused


def machine(settings: SiteConfig) -> str:
    """Return the machine of the compute nodes, as uname -m prints it; by default this host's."""
    here = os.uname().machine
    if not settings.image_architecture:
        return here
    from container_engine.oci.architecture import ARCHITECTURES, architecture_named

    architecture = architecture_named(settings.image_architecture)
    machines = {name: machine for machine, name in ARCHITECTURES.items()}
    return machines.get(architecture, architecture) or here


def catalog(directories: Sequence[str], also: frozenset[int] = frozenset()) -> Catalog:
    """Load the hooks of these directories, later ones over earlier ones, with every fault.

    `also` are uids trusted besides `owners`: of a user who tries hooks of their own.
    """
    from container_engine.plan import catalog_faults

    found = load(directories, owners() | also)
    return found if found.faults else found._replace(faults=catalog_faults.faults(found.hooks))


def owners() -> frozenset[int]:
    """Return the uids whose hooks are trusted: root and the owner of the engine's code.

    In a container, this user is trusted, too.
    """
    trusted = of_engine()
    # Slurm's programs may run in a container. There, root's files appear as nobody's, and the
    # directories above the host's bind mounts belong to the container, and so to the user.
    is_in_container = os.stat("/proc").st_uid != 0
    return trusted | {os.geteuid()} if is_in_container else trusted


def _asked_by_hooks(key: str, directories: Sequence[str], probed: list[str]) -> bool:
    """Check whether a hook of these directories runs for the annotation `key`.

    If this host cannot tell, return True as well. Add the paths that the answer depends on to
    `probed`.
    """
    for directory in directories:
        probed.append(directory)
        try:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
        except OSError:
            return True
        paths = [os.path.join(directory, name) for name in names]
        probed += paths
        if any(_asks(path, key) for path in paths):
            return True
    return False


def _asks(path: str, key: str) -> bool:
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read())
        patterns = content.get("when", {}).get("annotations", {})
        return any(re.search(pattern, key) for pattern in patterns)
    except (OSError, ValueError, AttributeError, re.error):
        return True
