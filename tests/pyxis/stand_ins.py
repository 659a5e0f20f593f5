"""`python -m tests.pyxis.stand_ins`: make the images that the suite of pyxis wants, once.

None of them is what its name says: all are Debian from its packages, with the files, variables and
start scripts at which the tests look. Needs a mirror of Debian and an index of Python packages.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from ce_sandbox.layout import from_environment
from container_engine.images.store.store import architecture
from tests.integration.registry import Registry, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The images name this port.
PORT = 16990
_SUITE = "bookworm"
_SERVICES = "redis-server,rabbitmq-server,nginx-light"
_PYTHON = "python3,python3-pip,python3-dev,python3-numpy,libopenmpi-dev,openmpi-bin"
# what tests install in a container
_INSTALLED = (
    *("file", "make", "tzdata", "install-info", "emacs-nox", "openssh-server"),
    *_PYTHON.split(","),
)
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MEDIA = "application/vnd.oci.image"
_REPOSITORY = f"http://127.0.0.1:{PORT}"
_UBUNTU = {
    "12.04": "Ubuntu precise (12.04.5 LTS)",
    "14.04": "Ubuntu 14.04.6 LTS",
    "16.04": "Ubuntu 16.04.7 LTS",
    "18.04": "Ubuntu 18.04.6 LTS",
    "20.04": "Ubuntu 20.04.6 LTS",
    "22.04": "Ubuntu 22.04.5 LTS",
    "24.04": "Ubuntu 24.04.3 LTS",
    "26.04": "Ubuntu 26.04 LTS (Resolute Raccoon)",
}
_CENTOS = {
    "5": "CentOS release 5.11 (Final)",
    "6": "CentOS release 6.10 (Final)",
    "7": "CentOS Linux release 7.9.2009 (Core)",
    "8": "CentOS Linux release 8.4.2105",
}
_DIND = """\
#!/bin/sh
: "${DOCKER_HOST:=tcp://docker:237$([ -n "$DOCKER_TLS_VERIFY" ] && echo 6 || echo 5)}"
export DOCKER_HOST
exec "$@"
"""
_NGINX = """\
#!/bin/sh
sed -i 's/^    listen       80;/&\\n    listen  [::]:80;/' /etc/nginx/conf.d/default.conf
exec "$@"
"""
_BANNER = '#!/bin/sh\necho "== CUDA =="\nexec "$@"\n'
_SERVER = "server {\n    listen       80;\n    server_name  localhost;\n}\n"
_TENSORFLOW = "usr/lib/python3/dist-packages/tensorflow/__init__.py"


@dataclass(frozen=True)
class Image:
    """An image of a tree and a few files; `run` is the configuration of its containers."""

    name: str
    tree: str = "base"
    files: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)


def _release(pretty: str) -> dict[str, str]:
    return {"etc/os-release": f'NAME="Ubuntu"\nID=ubuntu\nPRETTY_NAME="{pretty}"\n'}


def _cuda(tag: str) -> Image:
    version, system = tag.partition("-")[0], tag.rpartition("ubuntu")[2]
    variables = [f"CUDA_VERSION={version}"]
    variables.append("LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64")
    entry = "opt/nvidia/nvidia_entrypoint.sh"
    files = _release(_UBUNTU[system]) | {entry: _BANNER}
    run = (
        {"Env": variables, "Entrypoint": [f"/{entry}"]} if "runtime" in tag else {"Env": variables}
    )
    return Image(f"docker.io/nvidia/cuda:{tag}", files=files, run=run)


def _pytorch(name: str, version: str, tree: str = "base") -> Image:
    run = {"Env": [f"PYTORCH_VERSION={version}"], "WorkingDir": "/workspace"}
    return Image(name, tree, {"workspace/README.md": "\n"}, run)


IMAGES = (
    *(
        Image(f"docker.io/library/ubuntu:{tag}", files=_release(is_))
        for tag, is_ in _UBUNTU.items()
    ),
    *(
        Image(f"docker.io/library/centos:{tag}", files={"etc/redhat-release": f"{is_}\n"})
        for tag, is_ in _CENTOS.items()
    ),
    _cuda("11.8.0-base-ubuntu20.04"),
    _cuda("11.8.0-base-ubuntu22.04"),
    _cuda("12.5.1-runtime-ubuntu24.04"),
    _cuda("12.9.1-base-ubuntu24.04"),
    _cuda("12.9.1-runtime-ubuntu24.04"),
    _pytorch("docker.io/pytorch/pytorch:1.8.1-cuda11.1-cudnn8-runtime", "1.8.1"),
    _pytorch("nvcr.io/nvidia/pytorch:20.02-py3", "1.5.0a0+3bbb36e"),
    _pytorch("nvcr.io/nvidia/pytorch:22.04-py3", "1.12.0a0+bd13bc6"),
    _pytorch("nvcr.io/nvidia/pytorch:26.02-py3", "2.11.0a0", "python"),
    _pytorch("nvcr.io/nvidia/pytorch:26.03-py3", "2.11.0a0", "python"),
    Image(
        "gcr.io/deeplearning-platform-release/tf-cpu.2-9:latest",
        "python",
        {"entrypoint.sh": '#!/bin/sh\nexec "$@"\n', _TENSORFLOW: '__version__ = "2.9.1"\n'},
    ),
    Image("docker.io/library/redis:5.0.8", "services"),
    Image("docker.io/library/rabbitmq:3.8.3", "services"),
    Image(
        "docker.io/library/nginx:1.19.1",
        "services",
        {"docker-entrypoint.sh": _NGINX, "etc/nginx/conf.d/default.conf": _SERVER},
        {"Entrypoint": ["/docker-entrypoint.sh"]},
    ),
    Image(
        "docker.io/library/docker:26.1.0-dind-rootless",
        files={"usr/local/bin/dockerd-entrypoint.sh": _DIND},
        run={"Entrypoint": ["/usr/local/bin/dockerd-entrypoint.sh"]},
    ),
)


def place() -> Path:
    """Return the directory that has `registry`, the layers, and `www`, what tests install."""
    return Path(os.environ.get("CE_SANDBOX_DIR", "/var/lib/ce-sandbox")) / "cache/pyxis"


def made() -> Path:
    """Return the directory of `place`; make its content unless this version of the file has."""
    identity = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    mark = place() / ".made"
    if not mark.exists() or mark.read_text() != identity:
        print(f"stand-ins for images: making {place()} (once)", flush=True)
        _make(place())
        mark.write_text(identity)
    return place()


@dataclass(frozen=True)
class _Layer:
    """A layer's file, and the digest of its uncompressed content."""

    path: Path
    diff: str

    @classmethod
    def of(cls, path: Path) -> _Layer:
        with gzip.open(path) as stream:
            return cls(path, _hash(stream))


def _make(where: Path) -> None:
    shutil.rmtree(where / "registry", ignore_errors=True)
    for name in ("registry", "www", "trees"):
        (where / name).mkdir(parents=True, exist_ok=True)
    trees = {
        "base": _tree(where, "base", "ca-certificates", *_download(where / "www")),
        "services": _tree(where, "services", _SERVICES),
        "python": _tree(where, "python", f"{_PYTHON},python-is-python3"),
    }
    _repository(where / "www")
    _store(where)
    with TemporaryDirectory() as layouts, serving_images(where) as registry:
        for number, image in enumerate(IMAGES):
            layout = Path(layouts) / str(number)
            _layout(layout, image, trees[image.tree])
            target = f"docker://{registry.address}/{image.name}"
            copy = ["skopeo", "copy", "--quiet", f"oci:{layout}:latest", target]
            subprocess.run(copy, env=registry.env, check=True)


@contextmanager
def serving_images(where: Path) -> Iterator[Registry]:
    """Run the registry of the images."""
    storage: dict[str, object] = {"filesystem": {"rootdirectory": str(where / "registry")}}
    with TemporaryDirectory() as home, serving(Path(home), {"storage": storage}) as registry:
        (Path(home) / ".config/containers/registries.conf").write_text(
            f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n'
        )
        yield registry


def _store(where: Path) -> None:
    """Make an empty image store for the user of the tests."""
    user = pwd.getpwnam(from_environment(os.environ).users[0])
    shutil.rmtree(where / "store", ignore_errors=True)
    (where / "store").mkdir()
    os.chown(where / "store", user.pw_uid, user.pw_gid)


def _tree(where: Path, name: str, packages: str, *more: str) -> _Layer:
    """Return a layer that is a Debian system with these packages."""
    path = where / "trees" / f"{name}.tar.gz"
    if not path.exists():
        draft = path.with_suffix(".new")
        words = ["--quiet", "--mode=root", "--variant=minbase", f"--include={packages}", *more]
        words += ["--skip=output/dev", "--format=tar", _SUITE, "-"]
        made = subprocess.Popen(["mmdebstrap", *words], stdout=subprocess.PIPE)
        with draft.open("wb") as packed:
            subprocess.run(["gzip", "-1"], stdin=made.stdout, stdout=packed, check=True)
        if made.wait():
            raise SystemExit(f"stand-ins: mmdebstrap failed for {name}")
        draft.rename(path)
    return _Layer.of(path)


def _download(www: Path) -> tuple[str, ...]:
    """Return mmdebstrap's options that download what tests install, with all dependencies."""
    get = 'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -qq -y --download-only install'
    return (
        f"--customize-hook={get} {' '.join(_INSTALLED)}",
        f'--customize-hook=cp "$1"/var/cache/apt/archives/*.deb {www}',
    )


def _repository(www: Path) -> None:
    """Index the packages for apt, and get mpi4py for pip."""
    for what in ("Packages", "Release"):
        index = ["apt-ftparchive", what.lower(), "."]
        done = subprocess.run(index, cwd=www, stdout=subprocess.PIPE, check=True)
        (www / what).write_bytes(done.stdout)
    wheels = www / "simple/mpi4py"
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, "--python-version=3.11", "-d", wheels, "mpi4py==4.1.0"], check=True)
    links = "".join(f'<a href="{one.name}">{one.name}</a>\n' for one in wheels.glob("*.whl"))
    (wheels / "index.html").write_text(links)


def _layout(where: Path, image: Image, tree: _Layer) -> None:
    """Write an OCI layout with this image."""
    own = {
        "etc/apt/sources.list": f"deb [trusted=yes] {_REPOSITORY} ./\n",
        "etc/pip.conf": f"[global]\nindex-url = {_REPOSITORY}/simple\n",
        **image.files,
    }
    path = where / "own.tar.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(_archive(own)))
    layers = (tree, _Layer.of(path))
    run = {**image.run, "Env": [_PATH, *image.run.get("Env", [])]}
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one.diff}" for one in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _small(where, config, f"{_MEDIA}.config.v1+json"),
        "layers": [_blob(where, one.path, f"{_MEDIA}.layer.v1.tar+gzip") for one in layers],
    }
    described = _small(where, manifest, f"{_MEDIA}.manifest.v1+json")
    tag = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": tag}]}
    (where / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (where / "index.json").write_text(json.dumps(index))


def _archive(files: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            data = content.encode()
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(data), 0o755 if content.startswith("#!") else 0o644
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _small(where: Path, value: object, media_type: str) -> dict[str, object]:
    path = where / "small"
    path.write_text(json.dumps(value))
    return _blob(where, path, media_type)


def _blob(where: Path, path: Path, media_type: str) -> dict[str, object]:
    with path.open("rb") as stream:
        digest = _hash(stream)
    kept = where / "blobs/sha256" / digest
    kept.parent.mkdir(parents=True, exist_ok=True)
    if path.name == "small":
        shutil.copy(path, kept)
    else:
        kept.symlink_to(path)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": path.stat().st_size}


def _hash(stream: IO[bytes] | gzip.GzipFile) -> str:
    digest = hashlib.sha256()
    while piece := stream.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


if __name__ == "__main__":
    made()
