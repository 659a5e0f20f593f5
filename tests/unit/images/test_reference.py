"""Values of `image = "…"`."""

import pytest

from container_engine.base.errors import UserError
from container_engine.edf.names import looks_like_file
from container_engine.images.reference import (
    FileImage,
    LocalImage,
    RegistryImage,
    parse,
    parse_source,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4

REFERENCES = {
    "REG.io/img:Tag": "reg.io/img:Tag",
    "reg.io:443/img:1": "reg.io/img:1",
    "Docker.io:443/img:1": "docker.io/library/img:1",
    "[FE80::1]:443/img:1": "[fe80::1]/img:1",
    "reg.io:80/img:1": "reg.io:80/img:1",
    "ubuntu": "docker.io/library/ubuntu:latest",
    "ubuntu:24.04": "docker.io/library/ubuntu:24.04",
    "library/ubuntu:24.04": "docker.io/library/ubuntu:24.04",
    "docker.io/ubuntu": "docker.io/library/ubuntu:latest",
    "docker.io#library/ubuntu:24.04": "docker.io/library/ubuntu:24.04",
    "docker.io#ubuntu:24.04": "docker.io/library/ubuntu:24.04",
    "index.docker.io/ubuntu": "docker.io/library/ubuntu:latest",
    "nvcr.io#nvidia/pytorch:24.05-py3": "nvcr.io/nvidia/pytorch:24.05-py3",
    "nvcr.io/nvidia/pytorch:25.11-py3": "nvcr.io/nvidia/pytorch:25.11-py3",
    "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04": (
        "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04"
    ),
    "rocm/vllm:v0.14.0_amd_dev": "docker.io/rocm/vllm:v0.14.0_amd_dev",
    "quay.io#madeeks/osu-mb:6.2-mpich4.1-ubuntu22.04": (
        "quay.io/madeeks/osu-mb:6.2-mpich4.1-ubuntu22.04"
    ),
    "reg:5000#img": "reg:5000/img:latest",
    "192.168.61.4:5000#/team/img:0.4": "192.168.61.4:5000/team/img:0.4",
    "reg:5000/img": "reg:5000/img:latest",
    "localhost/x": "localhost/x:latest",
    "localhost:5000/x:y": "localhost:5000/x:y",
    "[::1]:5000/x:y": "[::1]:5000/x:y",
    "REG.example.org/a__b/c-d.e:T_1": "reg.example.org/a__b/c-d.e:T_1",
    f"ubuntu@{DIGEST}": f"docker.io/library/ubuntu@{DIGEST}",
    f"ubuntu:24.04@{DIGEST}": f"docker.io/library/ubuntu@{DIGEST}",
    f"reg:5000#img:tag@{DIGEST}": f"reg:5000/img@{DIGEST}",
    # Not a path, as it does not begin with '/' or '.'.
    "container/ngc25.05.sqsh": "docker.io/container/ngc25.05.sqsh:latest",
}


@pytest.mark.parametrize("prefix", ["", "docker://"])
@pytest.mark.parametrize(("text", "canonical"), REFERENCES.items())
def test_every_way_to_name_an_image_in_a_registry(text: str, canonical: str, prefix: str) -> None:
    image = parse(prefix + text, "/cwd")
    assert isinstance(image, RegistryImage)
    assert image.canonical == canonical
    assert image.name == prefix + text


@pytest.mark.parametrize("text", ["me@reg.io#img:tag", "me@reg.io/img:tag"])
def test_a_user_before_the_registry_is_not_part_of_its_name(text: str) -> None:
    image = parse(text, "/cwd")
    assert isinstance(image, RegistryImage)
    assert (image.user, image.canonical) == ("me", "reg.io/img:tag")


def test_a_tag_beside_a_digest_is_kept_for_people() -> None:
    image = parse(f"ubuntu:24.04@{DIGEST}", "/cwd")
    assert isinstance(image, RegistryImage)
    assert (image.tag, image.digest) == ("24.04", DIGEST)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/abs/x.sqsh", "/abs/x.sqsh"),
        ("/abs/x.squashfs", "/abs/x.squashfs"),
        ("/abs/ngc-pytorch+25.05.sqsh", "/abs/ngc-pytorch+25.05.sqsh"),
        ("/abs/with space/vs:251215/i.sqfs", "/abs/with space/vs:251215/i.sqfs"),
        ("/abs/no-suffix", "/abs/no-suffix"),
        ("./x.sqsh", "/cwd/x.sqsh"),
        ("../x.sqsh", "/cwd/../x.sqsh"),
        (".hidden/x.sqsh", "/cwd/.hidden/x.sqsh"),
        ("/abs/größe#1@2.sqsh", "/abs/größe#1@2.sqsh"),
    ],
)
def test_a_path_begins_with_a_slash_or_a_dot(text: str, path: str) -> None:
    assert parse(text, "/cwd") == FileImage(text, path)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("ubuntu:", "'ubuntu:': nothing follows the ':'", None),
        ("#ubuntu", "'#ubuntu': nothing precedes the '#'", None),
        (
            "reg.io#",
            "'reg.io#': the name of the image is missing after the registry 'reg.io'",
            None,
        ),
        (
            "reg.io/",
            "'reg.io/': the name of the image is missing after the registry 'reg.io'",
            None,
        ),
        ("@reg.io#x", "'@reg.io#x': nothing precedes the '@'", None),
        ("re_g#x", "'re_g#x': 're_g' is not the name of a registry", None),
        (
            "nvcr.io/NVIDIA/pytorch",
            "'nvcr.io/NVIDIA/pytorch': 'NVIDIA' has upper-case letters, "
            "which names in a registry never have",
            None,
        ),
        ("a//b", "'a//b': an empty name between two '/'", None),
        ("a b", "'a b' is not a valid name in a registry", None),
        ("<IMAGE>", "'<IMAGE>' is not a valid name in a registry", None),
        ("ubuntu:a b", "'ubuntu:a b': 'a b' is not a tag", None),
        (
            "ubuntu@sha256:12",
            "'ubuntu@sha256:12': the digest 'sha256:12' is not 'sha256:' and 64 hexadecimal digits",
            None,
        ),
        (
            "ubuntu@sha512:12",
            "'ubuntu@sha512:12': 'sha512:12' after the '@' is neither a digest sha256:… "
            "nor a registry",
            None,
        ),
        (
            "podman://x",
            "'podman://x': 'podman://' is not supported, only 'docker://' and 'oras://'",
            "'ce import podman://x' imports it from Podman's storage",
        ),
        (
            "my dir/x.sqsh",
            "'my dir/x.sqsh': 'my dir' is not a valid name in a registry",
            "did you mean './my dir/x.sqsh'? a path begins with '/' or '.'",
        ),
        (
            "~/x",
            "'~/x': '~' is not a valid name in a registry",
            "'~' is not expanded in an EDF, write ${HOME}",
        ),
    ],
)
def test_an_invalid_image_name_is_refused_with_the_reason(
    text: str, message: str, hint: str | None
) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "/cwd")
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_what_skopeo_calls_an_image_of_podman_or_docker_is_understood() -> None:
    image = parse_source("containers-storage:x:1", "/")
    assert isinstance(image, LocalImage)
    assert (image.transport, image.place) == ("podman", "x:1")
    with pytest.raises(UserError) as caught:
        parse_source("docker-daemon:x:1", "/")
    assert caught.value.hint == (
        "docker save x:1 -o x.tar; then 'ce import docker-archive:x.tar' imports it"
    )


def test_a_name_that_ends_like_a_file_may_be_meant_as_one() -> None:
    assert looks_like_file("dir/x.sqsh")
    assert not looks_like_file("./x.sqsh")
    assert not looks_like_file("ubuntu")
