"""The rule that images come from the site's stores, as a node sees it."""

import os
from pathlib import Path

import pytest

from container_engine.launch import siteimages
from container_engine.launch.failure import LaunchError

USER = 61234


class Node:
    """An installation, its site's configuration and a store of the site's with one image."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, root / "store"
        self.conf = root / "prefix/etc/container-engine"
        self.image = self.store / "images/i.sqsh"
        self.image.parent.mkdir(parents=True)
        self.image.write_text("image")
        (self.conf / "conf.d").mkdir(parents=True)

    def says(self, rule: str, name: str = "config.toml") -> None:
        (self.conf / name).write_text(f'image_stores = ["{self.store}"]\n{rule}')

    def refusal(self, path: object) -> str:
        """ "" for an image that may be used, by somebody who is not root."""
        if (child := os.fork()) == 0:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            try:
                siteimages.check(str(path), f"{self.root}/prefix/libexec/container-engine")
                said = ""
            except LaunchError as error:
                said = str(error)
            (self.root / "said").write_text(said)
            os._exit(0)
        os.waitpid(child, 0)
        return (self.root / "said").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o005:  # pytest's own directories
            path.chmod(0o755)
    made = Node(tmp_path)
    (tmp_path / "said").touch()
    (tmp_path / "said").chmod(0o666)
    return made


RULE = "[policy]\nsite_images_only = true\n"


def test_without_the_rule_any_image_is_right(node: Node) -> None:
    assert node.refusal("/x.sqsh") == ""
    node.says("")
    assert node.refusal("/x.sqsh") == ""
    node.says("[policy]\nsite_images_only = false\n")
    assert node.refusal("/x.sqsh") == ""


def test_an_image_of_the_sites_store_is_used_and_no_other(node: Node) -> None:
    node.says(RULE)
    assert node.refusal(node.image) == ""
    link = node.root / "link.sqsh"
    link.symlink_to(node.image)
    inner = node.store / "inner.sqsh"
    inner.symlink_to(node.root / "x.sqsh")
    dots = f"{node.store}/../x.sqsh"
    for path in ("/x.sqsh", link, inner, dots, f"{node.store}-other/x.sqsh", f"{node.store}/no"):
        assert node.refusal(path).startswith(
            f"{node.conf}/config.toml: policy.site_images_only: '{path}' is no image of the site's"
        )


def test_what_the_user_could_change_is_no_image_of_the_site(node: Node) -> None:
    node.says(RULE)
    for path in (node.image, node.image.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        assert "site_images_only" in node.refusal(node.image)
        path.chmod(mode | 0o020)
        for owner, group in ((USER, 0), (0, USER)):
            os.chown(path, owner, group)
            assert "site_images_only" in node.refusal(node.image)
        os.chown(path, 0, 0)
        path.chmod(mode)
    assert node.refusal(node.image) == ""


def test_drop_ins_count_as_everywhere(node: Node) -> None:
    node.says("[policy]\nsite_images_only = false\n")
    node.says(RULE, "conf.d/10-rule.toml")
    assert "10-rule.toml: policy.site_images_only" in node.refusal("/x.sqsh")
    (node.conf / "conf.d/20-stores.toml").write_text('image_stores = ["/elsewhere"]\n')
    assert "('/elsewhere')" in node.refusal(node.image)


def test_a_configuration_that_cannot_be_read_starts_nothing(node: Node) -> None:
    node.says("[policy]\nsite_images_only = tru\n")
    assert "not valid TOML" in node.refusal(node.image)
    (node.conf / "config.toml").chmod(0)
    assert "config.toml: Permission denied" in node.refusal(node.image)
