"""A site whose launches use images of its own stores only: what its users try."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> Iterator[Path]:
    """The site's, with the image tools:1; the site wants no other."""
    root = cluster.scratch / "site-store"
    argv = [
        str(cluster.prefix / "bin/ce"),
        "import",
        "-q",
        str(cluster.image("busybox")),
        "tools:1",
    ]
    env = {**cluster.environment(), "EDF_IMAGESTORE": str(root), "HOME": str(cluster.scratch)}
    subprocess.run(argv, env=env, check=True, timeout=60)
    file = cluster.prefix / "etc/container-engine/conf.d/90-stores-of-a-test.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'image_stores = ["{root}"]\n[policy]\nsite_images_only = true\n')
    yield root
    file.unlink()


@pytest.fixture
def image(store: Path) -> Path:
    [path] = (store / "images").glob("*.sqsh")
    return path


@pytest.fixture
def own(image: Path, shared: Path) -> Path:
    """A copy that is the user's."""
    path, entry = shared / "own.sqsh", pwd.getpwnam(ALICE)
    shutil.copy(image, path)
    os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def step(cluster: Cluster, image: object, **env: str) -> subprocess.CompletedProcess[str]:
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    return cluster.srun(f"--environment={edf}", "echo", "ran", env=env)


def test_an_image_of_the_site_is_used_by_its_name_or_path(cluster: Cluster, image: Path) -> None:
    for name in ("tools:1", image):
        done = step(cluster, name)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_any_other_image_is_refused_with_the_rule(
    cluster: Cluster, store: Path, own: Path, shared: Path
) -> None:
    for name in (own, "other:1"):
        done = step(cluster, name, EDF_IMAGESTORE=f"{shared}/store", CE_PULL="always")
        assert (done.returncode, done.stdout) == (125, "")
        assert f"policy.site_images_only: '{name}' is in no store of the site's: '{store}'" in (
            done.stderr
        )
    done = step(cluster, "other:1", EDF_IMAGESTORE="void", SCRATCH=str(shared))
    assert "policy.site_images_only" in done.stderr


@pytest.mark.parametrize("way", ["own", "link", "dots"])
def test_a_plan_that_its_user_has_edited_is_refused_on_the_node(
    cluster: Cluster, store: Path, image: Path, own: Path, shared: Path, way: str
) -> None:
    env = {"XDG_CACHE_HOME": f"{shared}/cache"}
    edf = cluster.edf('image = "tools:1"\n', image=None)

    def remembered() -> Path | None:
        done = cluster.srun(f"--environment={edf}", "true", env=env)
        assert done.returncode == 0, done.stderr
        return next((shared / "cache").glob("container-engine/plans/*"), None)

    memo = until("a plan to be remembered", remembered)
    (shared / "link").symlink_to(store)
    forged = {
        "own": own,
        "link": shared / "link/images" / image.name,
        "dots": Path(f"{store}/../{own.relative_to(store.parent)}"),
    }[way]
    plan = memo.read_bytes()
    changed = plan.replace(f'"path":"{image}"'.encode(), f'"path":"{forged}"'.encode())
    assert changed != plan
    memo.write_bytes(changed)
    done = cluster.srun(f"--environment={edf}", "echo", "ran", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"policy.site_images_only: '{forged}' is no image of the site's stores" in done.stderr
