"""The architecture of images, in whatever words the site or the user names it."""

import os
from pathlib import Path

import pytest

from container_engine.images.store.store import architecture
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.read_site import machine
from container_engine.submit.stores import own_store, stores


@pytest.mark.parametrize(
    ("word", "meant"),
    [("arm64", "arm64"), ("aarch64", "arm64"), ("AARCH64", "arm64"), ("x86-64", "amd64")],
)
def test_an_architecture_may_have_the_kernels_name(tmp_path: Path, word: str, meant: str) -> None:
    context = Context({"HOME": str(tmp_path)}, str(tmp_path), os.geteuid(), "/nonexistent", 0)
    settings = SiteConfig.of({"image_architecture": word})
    own = stores(context, settings).own
    assert own is not None
    assert own.arch == own_store(context, SiteConfig().for_arch(word)).arch == meant
    assert machine(settings) == {"arm64": "aarch64", "amd64": "x86_64"}[meant]


def test_without_a_word_it_is_that_of_this_host() -> None:
    assert architecture("") == architecture(os.uname().machine) == architecture("unknown")
