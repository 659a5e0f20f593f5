"""A site whose launches may use only images of its own stores, and users' attempts."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.recorded import rewrite
from tests.slurm.cluster import ALICE, Cluster, Completed
from tests.slurm.error_block import ErrorBlock
from tests.slurm.polling import until
from tests.slurm.slurm_configurations import own_planner

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture(scope="module")
def store(cluster: Cluster) -> Iterator[Path]:
    """Yield the site's store with the image tools:1; the site allows no other."""
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
    """Return a copy of the image that is the user's."""
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

    def cached() -> Path | None:
        done = cluster.srun(f"--environment={edf}", "true", env=env)
        assert done.returncode == 0, done.stderr
        return next((shared / "cache").glob("container-engine/plans/*"), None)

    recorded = until("a plan to be cached", cached)
    (shared / "link").symlink_to(store)
    forged = {
        "own": own,
        "link": shared / "link/images" / image.name,
        "dots": Path(f"{store}/../{own.relative_to(store.parent)}"),
    }[way]
    before, after = (f'"path":"{path}"'.encode() for path in (image, forged))
    rewrite(recorded, lambda answer: answer._replace(result=answer.result.replace(before, after)))
    done = cluster.srun(f"--environment={edf}", "echo", "ran", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    assert (
        f"policy.site_images_only: '{forged}' is not an image of the site's stores" in done.stderr
    )


@pytest.mark.parametrize("target", ["/bin:sqsh", "/usr/local:sqsh", "/data:sqsh"])
def test_a_squashfs_file_of_the_users_is_not_mounted_over_an_image_of_the_site(
    cluster: Cluster, image: Path, own: Path, target: str
) -> None:
    edf = cluster.edf(f'image = "{image}"\nmounts = ["{own}:{target}"]\n', image=None)
    done = cluster.srun(f"--environment={edf}", "echo", "ran")
    ErrorBlock(
        done, "mount-policy", f"{edf}:2: mounts: ", f"'{own}' is not an image of the site's stores"
    )


@pytest.mark.parametrize("target", ["/bin", "/usr/local/bin", "/etc", "/lib", "/opt/x"])
def test_a_directory_of_the_users_is_not_mounted_over_an_image_of_the_site(
    cluster: Cluster, image: Path, shared: Path, target: str
) -> None:
    edf = cluster.edf(f'image = "{image}"\nmounts = ["{shared}:{target}"]\n', image=None)
    done = cluster.srun(f"--environment={edf}", "echo", "ran")
    ErrorBlock(
        done, "mount-policy", f"mount destination '{target}' is reserved for the image and the site"
    )


def test_a_link_does_not_lead_a_mount_of_the_users_into_an_image_of_the_site(
    cluster: Cluster, image: Path, shared: Path
) -> None:
    (shared / "link").symlink_to("/bin")
    mounts = json.dumps([f"{shared}:/data", f"{shared}:/data/link"])
    edf = cluster.edf(f'image = "{image}"\nmounts = {mounts}\n', image=None)
    done = cluster.srun(f"--environment={edf}", "echo", "ran")
    why = "mount destination '/data/link' leads elsewhere through a symlink"
    ErrorBlock(done, "mount-policy", f"policy.site_images_only: {why}")


def test_users_mount_their_data_elsewhere_and_the_sites_files_anywhere(
    cluster: Cluster, image: Path, shared: Path
) -> None:
    mounts = json.dumps([f"{shared}:/data", "/etc/passwd:/etc/of-the-host:ro"])
    edf = cluster.edf(f'image = "{image}"\nmounts = {mounts}\n', image=None)
    done = cluster.srun(f"--environment={edf}", "sh", "-c", "test -s /etc/of-the-host && ls /data")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def planned(cluster: Cluster, image: Path, shared: Path) -> Callable[..., Completed]:
    """Return a function that runs a step whose plan the user has changed."""
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    argv = [str(cluster.prefix / "bin/ce"), "plan", "--json", edf]
    plan = json.loads(cluster.run(argv).stdout)

    def srun(**changed: object) -> Completed:
        (shared / "plan").write_text(json.dumps(plan | changed, separators=(",", ":")))
        conf = own_planner(cluster, shared, f"echo plan; cat {shared}/plan")
        return cluster.srun(f"--environment={edf}", "echo", "ran", env=conf)

    return srun


def mount(source: object, target: str, kind: str) -> dict[str, object]:
    options: list[str] = []
    made_up = {"kind": kind, "source": str(source), "target": target, "options": options}
    return {**made_up, "from": "site: config.toml"}


@pytest.mark.parametrize("kind", ["squashfs", "bind", "tmpfs"])
def test_a_mount_that_a_user_has_put_into_the_plan_is_refused_on_the_node(
    planned: Callable[..., Completed], own: Path, shared: Path, kind: str
) -> None:
    source = {"squashfs": own, "bind": shared, "tmpfs": "tmpfs"}[kind]
    ErrorBlock(
        planned(mounts=[mount(source, "/bin", kind)]), "mount-policy", "policy.site_images_only: "
    )


@pytest.fixture
def rule(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    file = cluster.prefix / "etc/container-engine/conf.d/91-rule-of-a-test.toml"

    def write(text: str) -> None:
        file.write_text(f"[policy]\n{text}\n")

    yield write
    file.unlink()


def test_an_image_that_is_not_listed_is_refused_by_srun_and_by_the_node(
    cluster: Cluster,
    image: Path,
    planned: Callable[..., Completed],
    rule: Callable[[str], None],
) -> None:
    digest = image.name.rpartition("-")[0].replace("-", ":")
    rule(f'site_images_only = false\nimage_digests = ["{digest}"]')
    assert step(cluster, "tools:1").stdout == "ran\n"
    rule(f'site_images_only = false\nimage_digests = ["sha256:{"0" * 64}"]')
    ErrorBlock(
        step(cluster, "tools:1"), "image-policy", "'tools:1' is not one of the listed images"
    )
    ErrorBlock(
        planned(), "image-policy", "policy.image_digests: ", "is not one of the listed images"
    )


def test_a_mount_from_elsewhere_than_the_site_says_is_refused_by_srun_and_by_the_node(
    cluster: Cluster,
    image: Path,
    shared: Path,
    planned: Callable[..., Completed],
    rule: Callable[[str], None],
) -> None:
    rule(f'mount_sources = ["{shared}"]')
    (shared / "link").symlink_to("/var")
    for source, fits in ((shared, True), ("/var", False), (shared / "link", False)):
        edf = cluster.edf(f'image = "{image}"\nmounts = ["{source}:/data"]\n', image=None)
        done = cluster.srun(f"--environment={edf}", "echo", "ran")
        if fits:
            assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        else:
            ErrorBlock(done, "mount-policy", f"policy.mount_sources: '{source}' matches none of")
    done = planned(mounts=[mount("/var", "/data", "bind")])
    ErrorBlock(done, "mount-policy", "policy.mount_sources: '/var' matches none of")
