"""The rule that images come from the site's stores, as a node sees it."""

import os
import tempfile
import traceback
from collections.abc import Iterator
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
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.write(writing, self._check_as_user(path).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(code)  # whatever has happened, or two would run the tests that follow
        os.close(writing)
        with open(reading) as answer:
            said = answer.read()
        assert os.waitpid(child, 0)[1] == 0, "the check itself failed"
        return said

    def _check_as_user(self, path: object) -> str:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        try:
            siteimages.check(str(path), f"{self.root}/prefix/libexec/container-engine")
        except LaunchError as error:
            return str(error)
        return ""


@pytest.fixture
def node() -> Iterator[Node]:
    """In a directory that anybody may enter, as pytest's own are not."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Node(Path(directory))


RULE = "[policy]\nsite_images_only = true\n"


def test_without_the_rule_any_image_is_right(node: Node) -> None:
    assert node.refusal("/x.sqsh") == ""
    node.says("")
    assert node.refusal("/x.sqsh") == ""
    node.says("[policy]\nsite_images_only = false\n")
    assert node.refusal("/x.sqsh") == ""


def test_a_check_that_breaks_is_no_permission(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the tests below: what they call "may be used" is an answer."""
    monkeypatch.setattr(Node, "_check_as_user", lambda _node, _path: 1 / 0)
    with pytest.raises(AssertionError, match="the check itself failed"):
        node.refusal("/x.sqsh")
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize("value", ['"yes"', "1", '""', "0", "[]"])
def test_a_rule_that_is_neither_on_nor_off_is_on(node: Node, value: str) -> None:
    node.says(f"[policy]\nsite_images_only = {value}\n")
    assert "policy.site_images_only: '/x.sqsh' is no image" in node.refusal("/x.sqsh")


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
