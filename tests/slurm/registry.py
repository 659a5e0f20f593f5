"""A registry on this machine for users of the cluster, with an image that tasks can run in."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.registry import Registry, serving
from tests.slurm.cluster import ALICE, Cluster
from tests.unit.images import oci
from tests.unit.images.oci import Member

_PLACES = ("dev", "etc", "proc", "run", "sys", "tmp", "w")


@contextmanager
def serving_to(cluster: Cluster, user: str = ALICE) -> Iterator[Registry]:
    """Run a registry that `user` may use without TLS."""
    home = cluster.scratch / "registry"
    home.mkdir()
    entry = pwd.getpwnam(user)
    known = cluster.home(user) / ".config/containers/registries.conf.d/of-a-test.conf"
    made = [path for path in known.parents if not path.exists()]
    known.parent.mkdir(parents=True, exist_ok=True)
    try:
        with serving(home) as registry:
            known.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
            for path in (known, *made):
                os.chown(path, entry.pw_uid, entry.pw_gid)
            yield registry
    finally:
        known.unlink(missing_ok=True)
        shutil.rmtree(home)


def push(cluster: Cluster, registry: Registry, name: str, *more: Member) -> str:
    """Push an image with busybox in /bin/busybox and these files; return its reference."""
    argv = ["unsquashfs", "-cat", str(cluster.image("busybox")), "bin/busybox"]
    busybox = subprocess.run(argv, capture_output=True, check=True).stdout
    files = [Member("bin/busybox", busybox, mode=0o755), *map(oci.directory, _PLACES), *more]
    where = Path(registry.env["HOME"]) / f"layout-{name.replace('/', '-').replace(':', '-')}"
    return registry.push(where, name, files)
