"""A registry on the loopback interface, its users, and listings of the images they pull."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from container_engine.images.importing.importer import Importer, Limits
from container_engine.images.reference import Imported, Pull, RegistryImage, parse
from container_engine.images.store.store import Store, Stores, architecture
from tests.unit.images import oci
from tests.unit.images.oci import Member

SOURCES = Path(__file__).parents[2]
RUN = {"Env": ["PATH=/opt/bin", "FROM=image"], "WorkingDir": "/w", "Entrypoint": ["/e"]}


class Registry(NamedTuple):
    """A registry on the loopback interface; `env` is that of a user who may use it."""

    address: str
    env: dict[str, str]

    def push(
        self,
        where: Path,
        name: str,
        *layers: list[Member],
        compressor: str = "gzip",
        arch: str = "",
    ) -> str:
        """Push an image of these layers; return its reference."""
        where.mkdir()
        oci.layout(where, layers, RUN, compressor, arch)
        target = f"docker://{self.address}/{name}"
        # without compressing layers that are not
        copy = ["skopeo", "copy", "--quiet", "--preserve-digests", f"oci:{where}:latest", target]
        subprocess.run(copy, env=self.env, check=True)
        return f"{self.address}/{name}"

    def image(self, reference: str) -> RegistryImage:
        image = parse(reference, "/")
        assert isinstance(image, RegistryImage)
        return image


@contextmanager
def serving(home: Path, extra: dict[str, dict[str, object]] | None = None) -> Iterator[Registry]:
    """Run a registry that keeps its data below `home`, which is also the home of its user.

    `extra` is merged into its configuration.
    """
    configuration: dict[str, object] = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(home / "data")}},
        **(extra or {}),
    }
    configuration["http"] = {"addr": "127.0.0.1:0", **(extra or {}).get("http", {})}
    (home / "config.yml").write_text(json.dumps(configuration))  # JSON is YAML
    server = subprocess.Popen(
        ["docker-registry", "serve", str(home / "config.yml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    drain = threading.Thread(target=server.stderr.read)  # otherwise its log would fill the pipe
    try:
        announced = (re.search(r"listening on ([0-9.:]+)", line) for line in server.stderr)
        address = next(found[1] for found in announced if found)
        drain.start()
        known = home / ".config/containers/registries.conf"
        known.parent.mkdir(parents=True)
        if extra is None:
            known.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        yield Registry(address, {"PATH": os.environ["PATH"], "HOME": str(home)})
    finally:
        server.kill()
        server.wait()
        drain.join()
        server.stderr.close()


class Person:
    """A user with a store of their own."""

    def __init__(self, registry: Registry, root: Path) -> None:
        self.store = Store(str(root), architecture())
        self.root, self.env = root, registry.env
        self.said: list[str] = []
        self.importer = self.with_env(registry.env)

    def with_env(self, env: dict[str, str], max_age_s: float = 3600) -> Importer:
        return Importer(env, "ann", Limits(60, 20, max_age_s), self)

    def say(self, message: str) -> None:
        self.said.append(message)

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        pass

    def get(self, image: Imported, pull: Pull = Pull.AGE) -> str:
        """Return the path of the image's file."""
        return self.importer.obtain(image, Stores(self.store, ()), pull).path

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


def start(registry: Registry, store: Path, *words: str) -> subprocess.Popen[str]:
    """Start `ce` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "container_engine", *words],
        env={**registry.env, "EDF_IMAGESTORE": str(store)},
        cwd=SOURCES,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def listing(image: str) -> set[str]:
    done = subprocess.run(["unsquashfs", "-ls", "-d", "", image], capture_output=True, check=True)
    return set(done.stdout.decode().split())
