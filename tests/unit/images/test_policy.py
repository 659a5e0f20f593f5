"""The site's rules for names and sizes of images."""

from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.policy import Rules, bytes_of
from container_engine.images.reference import LocalImage, parse
from container_engine.site.model import Policy

DIGEST = f"sha256:{'0' * 64}"


def verdict(image: str, **policy: tuple[str, ...]) -> str:
    """Return the message of the refusal, or ""."""
    try:
        Rules(Policy.of(policy), "/config.toml").admit(parse(image, "/w"))
    except UserError as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("pattern", "fits", "not_fits"),
    [
        ("nvcr.io", "nvcr.io/nvidia/x:1", "docker.io/nvcr.io:1"),
        ("docker.io/library/*", "ubuntu:24.04", "someone/ubuntu:24.04"),
        ("docker.io/library/ubuntu", "ubuntu:24.04", "ubuntu2:1"),
        ("*:latest", "nvcr.io/nvidia/x", "nvcr.io/nvidia/x:1"),
        ("localhost:5000/a*", "localhost:5000/ab:1", "localhost:5000/ba:1"),
        ("docker.io/library/a@*", f"a@{DIGEST}", "a:1"),
        ("/apps/images", "/apps/images/x/y.sqsh", "/apps/imagesque/y.sqsh"),
        ("evil.io", "EVIL.io:443/x:1", "evil.io:5000/x:1"),
        ("*:RC", "x:RC", "x:rc"),
        ("docker.io", "Index.Docker.io:443/library/x", "docker.io.evil/x"),
        ("Evil.IO:443/y", "evil.io/y:1", "evil.io/z:1"),
        ("index.docker.io/library/*", "ubuntu:24.04", "someone/ubuntu:24.04"),
        ("Registry-1.docker.io:443", "ubuntu:24.04", "quay.io/x:1"),
    ],
)
def test_a_pattern_matches_the_same_images_in_both_lists(
    pattern: str, fits: str, not_fits: str
) -> None:
    assert verdict(fits, allowed_images=(pattern,)) == ""
    assert verdict(not_fits, denied_images=(pattern,)) == ""
    assert verdict(fits, denied_images=(pattern,)) == (
        f"/config.toml: policy.denied_images: '{pattern}' forbids '{fits}'"
    )
    assert verdict(not_fits, allowed_images=(pattern,)) == (
        f"/config.toml: policy.allowed_images: '{not_fits}' matches none of '{pattern}'"
    )


def test_a_pattern_of_one_kind_says_nothing_of_the_other() -> None:
    assert verdict("/any/x.sqsh", allowed_images=("nvcr.io",)) == ""
    assert verdict("ubuntu", allowed_images=("/apps",)) == ""
    assert verdict("ubuntu", allowed_images=("nvcr.io", "/apps")) != ""
    assert verdict("/any/x.sqsh", allowed_images=("nvcr.io", "/apps")) != ""


def test_an_image_that_is_allowed_can_be_denied() -> None:
    rules = {"allowed_images": ("nvcr.io",), "denied_images": ("nvcr.io/bad/*",)}
    assert verdict("nvcr.io/good/x", **rules) == ""
    assert "denied_images" in verdict("nvcr.io/bad/x", **rules)


def test_what_came_from_this_host_is_local_whatever_it_is_called() -> None:
    rules = Rules(Policy(allowed_images=("nvcr.io",)), "/config.toml")
    image = LocalImage("./x", "dir", "/x", called="nvcr.io/nvidia/x:1")
    counts = r"is from this host and counts as 'localhost/x:1'"
    with pytest.raises(UserError, match=rf"'\./x' {counts}, which matches none of 'nvcr\.io'$"):
        rules.admit_local(image)
    for name in ("localhost/x", "localhost/x:latest"):
        own = LocalImage(name, "dir", "/x", called="localhost/x:latest")
        with pytest.raises(UserError, match=f" '{name}' matches none of 'nvcr.io'$"):
            rules.admit_local(own)
    denied = Rules(Policy(denied_images=("localhost",)), "")
    with pytest.raises(UserError, match=rf"'localhost' forbids '\./x'; it {counts}$"):
        denied.admit_local(image)
    Rules(Policy(allowed_images=("localhost",)), "").admit_local(image)


def test_an_image_may_have_as_many_bytes_as_the_site_says() -> None:
    rules = Rules(Policy(max_image_size="2M"), "/config.toml")
    rules.admit_size("x", 2 << 20)
    with pytest.raises(UserError) as caught:
        rules.admit_size("x", 3 << 20)
    assert caught.value.message == "/config.toml: policy.max_image_size: 2M: 'x' has 3 MiB"
    Rules(Policy(), "").admit_size("x", 1 << 60)


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("5k", 5120), ("2G", 2 << 30), ("", None), ("5 GB", None)]
)
def test_a_size_is_a_number_and_a_letter(text: str, size: int | None) -> None:
    assert bytes_of(text) == size


def test_a_store_of_the_sites_is_not_the_directory_whose_name_begins_alike() -> None:
    rules, stores = Rules(Policy(site_images_only=True), "/config.toml"), ("/apps/images/",)
    rules.admit_place("x", "/apps/images/images/x.sqsh", stores)
    dots = "/apps/images/../x.sqsh"
    for path in ("/apps/images-of-others/x.sqsh", "/apps/images", "/x.sqsh", dots, None):
        with pytest.raises(UserError) as caught:
            rules.admit_place("x", path, stores)
        assert caught.value.message == (
            "/config.toml: policy.site_images_only: 'x' is in no store of the site's: "
            "'/apps/images/'"
        )
    with pytest.raises(UserError) as caught:
        rules.admit_place("x", "/x.sqsh", ())
    assert caught.value.message.endswith("'x' is in no store: the site has none")
    Rules(Policy(), "").admit_place("x", "/x.sqsh", stores)


def test_images_that_are_listed_by_digest_come_from_the_sites_stores() -> None:
    rules = Rules(Policy(image_digests=(DIGEST,)), "/config.toml")
    stores, name = ("/apps",), f"{DIGEST.replace(':', '-')}-amd64.sqsh"
    rules.admit_place("x", f"/apps/images/{name}", stores)
    for path, why in (
        (f"/own/images/{name}", "is in no store of the site's: '/apps'"),
        (f"/apps/images/{name.replace('0-', '1-')}", "is not one of the listed images"),
        ("/apps/images/x.sqsh", "is not one of the listed images"),
    ):
        with pytest.raises(UserError) as caught:
            rules.admit_place("x", path, stores)
        assert caught.value.message == f"/config.toml: policy.image_digests: 'x' {why}"


def test_an_invalid_digest_is_refused_in_the_configuration() -> None:
    for digest in ("", "sha256:abc", "0" * 64, f"sha512:{'0' * 64}", f"{DIGEST}0"):
        with pytest.raises(ValueError, match="image_digests"):
            Policy.of({"image_digests": [digest]})


def test_a_refusal_names_the_line_of_its_rule_in_the_file_that_sets_it(tmp_path: Path) -> None:
    main, drop_in = tmp_path / "config.toml", tmp_path / "10.toml"
    main.write_text('[policy]\n\ndenied_images = ["x"]\n')
    drop_in.write_text('policy.max_image_size = "1K"\n')
    policy = Policy(denied_images=("docker.io",), max_image_size="1K")
    rules = Rules(policy, str(main), {"policy.max_image_size": str(drop_in)})
    with pytest.raises(UserError, match=f"^{main}:3: policy.denied_images: "):
        rules.admit(parse("alpine", "/"))
    with pytest.raises(UserError, match=f"^{drop_in}:1: policy.max_image_size: "):
        rules.admit_size("x", 1 << 20)
