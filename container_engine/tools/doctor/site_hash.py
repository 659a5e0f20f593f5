"""Describes the effective configuration by a short hash, to compare hosts. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig

# what nodes apply again, from their own files (node/start/site_rules.py)
_RULES = (
    *("site_images_only", "image_digests", "mount_sources"),
    *("image_registries", "signed_images_only"),
)
_LENGTH = 12


def settings(config: SiteConfig) -> str:
    """Return a text with the hash of all settings; it does not depend on how files write them."""
    is_default = config == type(config)()
    return f"{'defaults' if is_default else 'can be read'}, content {_hash(config.as_dict())}"


def rules(config: SiteConfig) -> str:
    """Return a text with the hash of the rules that nodes apply and of what they refer to."""
    policy = config.policy.as_dict()
    if not any(policy[rule] for rule in _RULES):
        return "none for images and mounts"
    found = {name: policy[name] for name in (*_RULES, "signature_policy")}
    content = _hash({**found, "image_stores": list(config.image_stores)})
    return f"for images and mounts, content {content}"


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_LENGTH]
