"""A site's own hooks, CDI files and OCI hooks, on a running cluster."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.cluster import Cluster

SMALLEST = 'summary = "s"\nhelp = "h"\n'


class Site:
    """The files of an administrator. `shared` is a directory that everybody can write."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.catalog, self.cdi, self.oci = (directory / name for name in ("hooks", "cdi", "oci"))
        self.programs, self.shared = directory / "bin", directory / "shared"
        for path in (self.catalog, self.cdi, self.oci, self.programs, self.shared):
            path.mkdir()
            path.chmod(0o755)
        self.shared.chmod(0o1777)
        self.file = cluster.prefix / "etc/container-engine/conf.d/90-hooks-of-a-test.toml"
        self.configure()

    def configure(self, text: str = "") -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(
            f'hook_catalog = ["{self.catalog}"]\ncdi_dirs = ["{self.cdi}"]\n'
            f'hooks_dirs = ["{self.oci}"]\n{text}'
        )

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)

    def hook(self, name: str, text: str, *, whole: bool = True) -> Path:
        file = self.catalog / name / "hook.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text((SMALLEST if whole else "") + text)
        return file

    def program(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def oci_hook(self, name: str, program: str, stage: str, **when: object) -> Path:
        file = self.oci / f"{name}.json"
        content = {
            "version": "1.0.0",
            "hook": {"path": program, "args": [name, stage], "env": ["FROM=the site"]},
            "when": when or {"always": True},
            "stages": [stage],
        }
        file.write_text(json.dumps(content))
        return file

    def edf(self, text: str = "") -> str:
        """Write an environment that mounts the shared directory."""
        return self.cluster.edf(f'mounts = ["{self.shared}"]\n{text}')


@contextmanager
def site_on(cluster: Cluster) -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="site-", dir=cluster.scratch))
    directory.chmod(0o755)
    site = Site(cluster, directory)
    try:
        yield site
    finally:
        site.remove()
        # Processes that hooks have started may still write to the directory.
        shutil.rmtree(directory, ignore_errors=True)
