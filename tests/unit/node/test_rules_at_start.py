"""The launcher asks the site's rules for each way to start or join a container."""

import pytest

from tests.unit.node.join_stage import Stage
from tests.unit.node.plans import mount


def _rule(stage: Stage, policy: str, store: object = "/nowhere") -> None:
    place = stage.prefix / "etc/container-engine/config.toml"
    place.parent.mkdir(parents=True)
    place.write_text(f'image_stores = ["{store}"]\n[policy]\n{policy}\n')


def test_an_image_that_the_site_refuses_starts_nothing(own: Stage) -> None:
    assert own.run_step() is not None
    _rule(own, "site_images_only = true")
    with pytest.raises(AssertionError, match=r"F125.*policy\.site_images_only: .*i\.sqsh"):
        own.run_step()
    assert not (own.prefix / "told").exists()


def test_an_image_that_the_site_refuses_is_not_joined(stage: Stage) -> None:
    stage.use_the_launcher()
    assert stage.run_step() is not None
    _rule(stage, "site_images_only = true")
    with pytest.raises(AssertionError, match=r"F125.*policy\.site_images_only: .*i\.sqsh"):
        stage.run_step()
    assert not (stage.prefix / "told").exists()


def test_a_mount_that_the_site_refuses_starts_nothing(own: Stage) -> None:
    _rule(own, 'mount_sources = ["/somewhere"]')
    with pytest.raises(AssertionError, match=r"F125.*policy\.mount_sources: .*matches none of"):
        own.run_step()
    assert not (own.prefix / "told").exists()


def test_a_mount_that_a_link_has_led_elsewhere_ends_the_start(own: Stage) -> None:
    own.plan["mounts"] = [mount("tmpfs", "/not/where/it/is", kind="tmpfs")]
    assert own.run_step() is not None
    _rule(own, "site_images_only = true", own.home)
    with pytest.raises(AssertionError, match=r"F125.*'/not/where/it/is' leads elsewhere"):
        own.run_step()
    assert (
        not (own.prefix / "last_packet").exists() or not (own.prefix / "last_packet").read_bytes()
    )
