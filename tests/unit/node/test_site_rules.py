"""The site's rules on images and mounts, as a node applies them."""

import hashlib
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import NodeMount
from container_engine.node.start import site_rules

USER = 61234


class Mounted:
    """A mount of an environment, or of a hook."""

    def __init__(
        self, source: object, target: str, kind: str = "bind", *, of_hook: bool = False
    ) -> None:
        self.all = [NodeMount(kind, str(source), target, [])]
        self.planned = [] if of_hook else self.all


class Node:
    """An installation, its site's configuration and a store of the site's with one image."""

    def __init__(self, root: Path, package: Path) -> None:
        self.root, self.store, self.package = root, root / "store", package
        self.conf = root / "prefix/etc/container-engine"
        self.image = self.store / "images/i.sqsh"
        self.image.parent.mkdir(parents=True)
        self.image.write_text("image")
        (self.conf / "conf.d").mkdir(parents=True)

    def says(self, rule: str, name: str = "config.toml") -> None:
        (self.conf / name).write_text(f'image_stores = ["{self.store}"]\n{rule}')

    def refusal(self, path: object) -> str:
        """Return the error that an ordinary user gets for an image, or "" if it may be used."""
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
                os._exit(code)  # in any case, or two processes would run the tests that follow
        os.close(writing)
        with open(reading) as answer:
            said = answer.read()
        assert os.waitpid(child, 0)[1] == 0, "the check itself failed"
        return said

    def _take_modules_from_the_package(self) -> None:
        """Let modules be files of a copy, which the user can read, and so those imported later."""
        for name, module in [*sys.modules.items()]:
            if name.partition(".")[0] == "container_engine":
                place = self.package.joinpath(*name.split("."))
                if hasattr(module, "__path__"):
                    module.__path__, module.__file__ = [str(place)], f"{place}/__init__.py"
                else:
                    module.__file__ = f"{place}.py"

    def _check_as_user(self, path: object) -> str:
        self._take_modules_from_the_package()
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        try:
            rules = site_rules.of_node(f"{self.root}/prefix/libexec/container-engine")
            if isinstance(path, Mounted):
                site_rules.check_mounts(path.planned, path.all, rules)
            else:
                site_rules.check(str(path), rules)
        except LaunchError as error:
            return str(error)
        return ""


@pytest.fixture
def node(package: Path) -> Iterator[Node]:
    """Yield a node in a directory that anybody may enter, unlike pytest's own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Node(Path(directory), package)


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
    """This guards the tests below, which take "" for "may be used"."""
    monkeypatch.setattr(Node, "_check_as_user", lambda _node, _path: 1 / 0)
    with pytest.raises(AssertionError, match="the check itself failed"):
        node.refusal("/x.sqsh")
    assert "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize("value", ['"yes"', "1", '""', "0", "[]"])
def test_a_rule_that_is_neither_on_nor_off_is_on(node: Node, value: str) -> None:
    node.says(f"[policy]\nsite_images_only = {value}\n")
    assert "policy.site_images_only: '/x.sqsh' is not an image" in node.refusal("/x.sqsh")
    node.says(f"[policy]\nsigned_images_only = {value}\n")
    assert "policy.signed_images_only: policy.signature_policy has not" in node.refusal("/x.sqsh")


_MOUNTINFO = """\
1 0 0:1 / / ro - overlay overlay rw
2 1 0:2 /own /data/a\\040b rw - ext4 /dev/x rw
3 1 0:2 /own /bin rw - ext4 /dev/x rw
"""


@pytest.mark.parametrize(
    ("rule", "target", "refused"),
    [
        (RULE, "/data/a b", False),
        (RULE, "/data/link", True),
        ('[policy]\nimage_digests = ["sha256:0"]\n', "/data/link", True),
        ("[policy]\nsite_images_only = false\n", "/data/link", False),
    ],
)
def test_a_mount_of_the_users_is_where_the_environment_says(
    node: Node, rule: str, target: str, *, refused: bool
) -> None:
    node.says(rule)
    rules = site_rules.of_node(f"{node.root}/prefix/libexec/container-engine")
    mounted, theirs = node.root / "mountinfo", node.root / "own"
    mounted.write_text(_MOUNTINFO)
    theirs.mkdir()
    os.chown(theirs, USER, USER)
    descriptor = os.open(mounted, os.O_RDONLY)
    said = ""
    try:
        site_rules.check_places(Mounted(theirs, target).planned, descriptor, rules)
    except LaunchError as error:
        said = str(error)
    os.close(descriptor)
    why = f"mount destination '{target}' leads elsewhere through a symlink"
    assert (why in said) is refused
    assert bool(said) is refused


def test_two_mounts_on_one_place_must_both_be_there(node: Node) -> None:
    node.says(RULE)
    rules = site_rules.of_node(f"{node.root}/prefix/libexec/container-engine")
    assert rules is not None
    one = NodeMount("tmpfs", "tmpfs", "/data", [])
    assert rules.place_refusal([one, one], ["/", "/data", "/data"]) == ""
    assert "'/data' leads elsewhere" in rules.place_refusal([one, one], ["/", "/data"])
    # the site's own files may be where a link of the image leads
    assert rules.place_refusal([NodeMount("bind", "/etc", "/var/run", [])], ["/", "/run"]) == ""


def test_an_image_of_the_sites_store_is_used_and_no_other(node: Node) -> None:
    node.says(RULE)
    assert node.refusal(node.image) == ""
    link = node.root / "link.sqsh"
    link.symlink_to(node.image)
    inner = node.store / "inner.sqsh"
    inner.symlink_to(node.root / "x.sqsh")
    (node.root / "y.sqsh").touch()  # owned by root, like all in the store
    dots = f"{node.store}/../y.sqsh"
    for path in ("/x.sqsh", link, inner, dots, f"{node.store}-other/x.sqsh", f"{node.store}/no"):
        assert node.refusal(path).startswith(
            f"{node.conf}/config.toml:3: policy.site_images_only: '{path}' is not an image of"
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
        os.chown(path, USER, 0)
        path.chmod(mode & ~0o222)  # its owner may change the mode
        assert "site_images_only" in node.refusal(node.image)
        os.chown(path, 0, 0)
        path.chmod(mode)
    assert node.refusal(node.image) == ""


def test_drop_ins_count_as_everywhere(node: Node) -> None:
    node.says("[policy]\nsite_images_only = false\n")
    node.says(RULE, "conf.d/10-rule.toml")
    assert "10-rule.toml:3: policy.site_images_only" in node.refusal("/x.sqsh")
    (node.conf / "conf.d/20-stores.toml").write_text('image_stores = ["/elsewhere"]\n')
    assert "('/elsewhere')" in node.refusal(node.image)


def test_a_configuration_that_cannot_be_read_starts_nothing(node: Node) -> None:
    node.says("[policy]\nsite_images_only = tru\n")
    assert "not valid TOML" in node.refusal(node.image)
    (node.conf / "config.toml").chmod(0)
    assert "config.toml: Permission denied" in node.refusal(node.image)


# ---- digests ---------------------------------------------------------------------------------

DIGEST = "a" * 64


@pytest.fixture
def listed(node: Node) -> Path:
    """Return an image of the site's store under the name that its digest gives it."""
    return node.image.rename(node.image.with_name(f"sha256-{DIGEST}-amd64.sqsh"))


def test_an_image_that_is_listed_is_used_and_no_other(node: Node, listed: Path) -> None:
    node.says(f'[policy]\nimage_digests = ["sha256:{DIGEST}"]\n')
    other = listed.with_name(f"sha256-{'b' * 64}-amd64.sqsh")
    other.write_text("image")
    alike = listed.with_name(f"sha256-{DIGEST}0-amd64.sqsh")
    alike.write_text("image")
    assert node.refusal(listed) == ""
    for path in (other, alike):
        assert node.refusal(path) == (
            f"{node.conf}/config.toml:3: policy.image_digests: '{path}' is not one of the listed"
            " images"
        )


def test_a_listed_name_outside_of_the_sites_stores_is_a_name_only(node: Node, listed: Path) -> None:
    node.says(f'[policy]\nimage_digests = ["sha256:{DIGEST}"]\n')
    own = node.root / listed.name
    own.write_text("image")
    assert f"policy.image_digests: '{own}' is not an image of the site's stores" in node.refusal(
        own
    )
    os.chown(listed, USER, USER)
    assert "policy.image_digests" in node.refusal(listed)


@pytest.mark.parametrize("value", ['"sha256:x"', "true", "[1]", "{}"])
@pytest.mark.parametrize("rule", ["image_digests", "mount_sources"])
def test_a_rule_that_is_not_a_list_starts_nothing(node: Node, rule: str, value: str) -> None:
    node.says(f"[policy]\n{rule} = {value}\n")
    said = node.refusal(node.image)
    assert said == f"{node.conf}/config.toml:3: policy.{rule}: expected an array of strings"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[policy]\nimage_digests = x\n", ":3: not valid TOML: Invalid value (at column 17)"),
        ("image_digests = [\n", ": not valid TOML: Invalid value (at end of document)"),
    ],
)
def test_a_file_that_is_not_toml_is_named_with_its_line(node: Node, text: str, answer: str) -> None:
    node.says(text)
    assert node.refusal(node.image) == f"{node.conf}/config.toml{answer}"


def test_an_empty_list_is_no_rule(node: Node) -> None:
    node.says("[policy]\nimage_digests = []\nmount_sources = []\n")
    assert node.refusal("/x.sqsh") == ""
    assert node.refusal(Mounted("/x", "/usr")) == ""


# ---- mounts ----------------------------------------------------------------------------------


def test_without_the_rule_anything_is_mounted_anywhere(node: Node) -> None:
    node.says("[policy]\nsite_images_only = false\n")
    assert node.refusal(Mounted("/x.sqsh", "/bin", "squashfs")) == ""
    assert node.refusal(Mounted(node.root, "/usr")) == ""


def test_a_squashfs_mount_is_of_the_sites_stores_as_the_image_is(node: Node) -> None:
    node.says(RULE)
    assert node.refusal(Mounted(node.image, "/data", "squashfs")) == ""
    for target in ("/data", "/bin"):
        said = node.refusal(Mounted("/x.sqsh", target, "squashfs"))
        assert "policy.site_images_only: '/x.sqsh' is not an image of the site's stores" in said


@pytest.mark.parametrize(
    "target", ["/usr", "/bin", "/usr/local/bin", "/lib", "/lib64/x.so", "/sbin", "/etc", "/opt/x"]
)
def test_nothing_of_the_users_lies_over_the_images_directories(node: Node, target: str) -> None:
    node.says(RULE)
    site, own = node.root / "site", node.root / "own"
    for path in (site, own):
        path.mkdir()
    os.chown(own, USER, USER)
    assert node.refusal(Mounted(site, target)) == ""
    for of_hook in (False, True):
        assert node.refusal(Mounted(own, target, of_hook=of_hook)) == (
            f"{node.conf}/config.toml:3: policy.site_images_only: mount destination '{target}' is"
            f" reserved for the image and the site: '{own}': owned by user {USER}, not by root"
        )
    (own / "below").mkdir()  # root's, but its user can replace it
    assert f"'{own}': owned by" in node.refusal(Mounted(own / "below", target))
    (node.root / "link").symlink_to(own)
    assert "owned by" in node.refusal(Mounted(node.root / "link", target))
    assert "a tmpfs belongs to neither" in node.refusal(Mounted("tmpfs", target, "tmpfs"))
    assert "No such file" in node.refusal(Mounted(node.root / "none", target))


@pytest.mark.parametrize("target", ["/data", "/usrlocal", "/scratch/usr", "/libraries", "/home/x"])
def test_elsewhere_users_mount_what_they_want(node: Node, target: str) -> None:
    node.says(RULE)
    assert node.refusal(Mounted("/tmp", target)) == ""
    assert node.refusal(Mounted("tmpfs", target, "tmpfs")) == ""


def test_mounts_come_from_where_the_site_says(node: Node) -> None:
    scratch = node.root / "scratch"
    for path in (scratch, node.root / "scratchy", node.root / "home", node.root / "home/me"):
        path.mkdir()
    node.says(f'[policy]\nmount_sources = ["{scratch}/", "{node.root}/home/*"]\n')
    (scratch / "out").symlink_to("/etc")
    for path in (scratch, scratch / "x/y", node.root / "home/me", node.root / "home/me/x"):
        assert node.refusal(Mounted(path, "/data")) == ""
    assert node.refusal(Mounted("tmpfs", "/data", "tmpfs")) == ""
    for path in (node.root / "scratchy", node.root / "home", scratch / "out", scratch / "../x"):
        assert node.refusal(Mounted(path, "/data")) == (
            f"{node.conf}/config.toml:3: policy.mount_sources: '{path}' matches none of"
            f" '{scratch}/', '{node.root}/home/*'"
        )
    assert "mount_sources" in node.refusal(Mounted(node.image, "/data", "squashfs"))


def test_a_place_that_the_site_names_may_be_a_link(node: Node) -> None:
    (node.root / "lustre").mkdir()
    (node.root / "scratch").symlink_to(node.root / "lustre")
    node.says(f'[policy]\nmount_sources = ["{node.root}/scratch"]\n')
    assert node.refusal(Mounted(node.root / "scratch/x", "/data")) == ""


def test_hooks_mount_what_is_roots_from_anywhere(node: Node) -> None:
    node.says('[policy]\nmount_sources = ["/scratch"]\n')
    own = node.root / "own"
    own.mkdir()
    assert node.refusal(Mounted(own, "/data", of_hook=True)) == ""
    os.chown(own, USER, USER)
    assert "mount_sources" in node.refusal(Mounted(own, "/data", of_hook=True))


def names(node: Node, text: str, uid: int = 0, mode: int = 0o644) -> None:
    path = node.image.with_name(f"{node.image.name}.names")
    path.unlink(missing_ok=True)
    path.write_text(text)
    os.chown(path, uid, uid)
    path.chmod(mode)


REGISTRIES = '[policy]\nimage_registries = ["reg.io/team", "nvcr.io", "q.io/*/x"]\n'


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("reg.io/team/a:1", True),
        ("reg.io/team:1", True),
        (f"reg.io/team/a@sha256:{'0' * 64}", True),
        ("nvcr.io/nvidia/b:2", True),
        ("q.io/y/x:1", True),
        ("reg.io/team-other/a:1", False),
        ("reg.io/a:1", False),
        ("evil.io/reg.io/team/a:1", False),
        ("nvcr.io.evil.io/a:1", False),
        ("", False),
    ],
)
def test_an_image_is_of_a_registry_by_the_names_beside_it(
    node: Node, name: str, is_right: bool
) -> None:
    node.says(REGISTRIES)
    names(node, f"other.io/x:1 -\n{name} -\n")
    said = node.refusal(node.image)
    assert said == "" if is_right else "policy.image_registries: " in said
    names(node, f"{name}\n{name} - -\n")  # not in the form of a store
    assert "policy.image_registries: " in node.refusal(node.image)


@pytest.mark.parametrize(("uid", "mode"), [(USER, 0o644), (12345, 0o644), (0, 0o666)])
def test_names_count_only_if_the_owner_of_the_image_or_root_wrote_them(
    node: Node, uid: int, mode: int
) -> None:
    node.says(REGISTRIES)
    names(node, "nvcr.io/a:1 -\n")
    assert node.refusal(node.image) == ""
    names(node, "nvcr.io/a:1 -\n", uid, mode)
    assert "recorded origin: unknown" in node.refusal(node.image)


def test_names_behind_a_link_or_of_a_pipe_do_not_count(node: Node) -> None:
    node.says(REGISTRIES)
    names(node, "nvcr.io/a:1 -\n")
    path = node.image.with_name(f"{node.image.name}.names")
    path.rename(node.root / "elsewhere")
    path.symlink_to(node.root / "elsewhere")
    assert "recorded origin: unknown" in node.refusal(node.image)
    path.unlink()
    os.mkfifo(path)
    assert "recorded origin: unknown" in node.refusal(node.image)


def test_an_image_is_signed_if_the_present_policy_has_accepted_it(node: Node) -> None:
    policy = node.conf / "signers.json"
    policy.write_text("{}")
    judge = hashlib.sha256(b"{}").hexdigest()
    node.says(f'[policy]\nsigned_images_only = true\nsignature_policy = "{policy}"\n')
    for text in ("", "a.io/a:1 -\n", f"a.io/a:1 {'0' * 64}\n"):
        names(node, text)
        assert "policy.signed_images_only: policy.signature_policy has not" in (
            node.refusal(node.image)
        )
    names(node, f"b.io/b:1 -\na.io/a:1 {judge}\n")
    assert node.refusal(node.image) == ""
    assert "signed_images_only" in node.refusal(Mounted("/x.sqsh", "/data", "squashfs"))
    policy.write_text('{"default": []}')
    assert "has not accepted" in node.refusal(node.image)
    policy.unlink()
    assert node.refusal(node.image) == f"{policy}: No such file or directory"
    node.says("[policy]\nsigned_images_only = true\n")
    names(node, "a.io/a:1 \n")
    assert "has not accepted" in node.refusal(node.image)
