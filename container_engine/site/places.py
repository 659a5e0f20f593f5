"""The site's settings that say where things are, for commands for which a user waits."""

from __future__ import annotations

from typing import NamedTuple

# All keys are read where users submit, and travel with the plan. Nodes read these again in their
# own files (node/start/site_rules.py), because a plan is in its user's hands until it arrives.
READ_ON_NODES = (
    *("image_stores", "policy.site_images_only", "policy.image_digests"),
    *("policy.image_registries", "policy.signed_images_only", "policy.mount_sources"),
    "policy.signature_policy",
)


class Places(NamedTuple):
    """Settings of the same names in the model, with its defaults."""

    edf_dir: str = "/etc/edf"
    edf_dirs: tuple[str, ...] = ()
    image_store: str | None = None
    image_stores: tuple[str, ...] = ()
    image_architecture: str = ""
    trace_dir: str = "~/.local/state/container-engine/trace"
    starts_file: str = ""

    @property
    def edf_path(self) -> tuple[str, ...]:
        """Return the directories with EDFs of the site; the first EDF of a name is used."""
        return (self.edf_dir, *self.edf_dirs)

    def traces_of(self, home: str) -> str:
        """Return the directory of the traces of the user with this home, "" for none."""
        return f"{home}{self.trace_dir[1:]}" if self.trace_dir[:2] == "~/" else self.trace_dir
