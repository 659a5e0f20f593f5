"""`ce replay`: the container of an earlier step again, or what is no longer as it was."""

import json
import shlex
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.integration.registry import Registry
from tests.slurm.cluster import ALICE, BOB, Cluster, Completed
from tests.slurm.leftovers import steps
from tests.slurm.polling import until
from tests.slurm.registry import push, serving_to
from tests.slurm.site import Site
from tests.unit.images.oci import Member

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture(scope="module")
def registry(cluster: Cluster) -> Iterator[Registry]:
    with serving_to(cluster) as running:
        yield running


def job_of(cluster: Cluster, *options: str, shell: str = "/bin/sh") -> str:
    """Run a step and return its job, once its trace is whole."""
    done = cluster.srun(*options, *shell.split(), "-c", "echo $SLURM_JOB_ID")
    assert done.returncode == 0, done.stderr
    until("the end of all steps", lambda: not steps())
    [job] = set(done.stdout.split())
    return job


def replay(cluster: Cluster, *words: str, user: str = ALICE) -> Completed:
    return cluster.run([str(cluster.prefix / "bin/ce"), "replay", *words], user)


def test_a_replay_uses_the_kept_plan_and_not_the_files_that_it_was_made_of(
    cluster: Cluster, shared: Path
) -> None:
    (shared / "data").mkdir()
    edf = Path(
        cluster.edf(
            f'workdir = "/data"\nmounts = ["{shared}/data:/data"]\n'
            'startup = ["export AT=$$(echo there)"]\n'
            '[env]\nCOLOUR = "red$$"\nAPI_TOKEN = "very secret"\n'
        )
    )
    job = job_of(cluster, "-N2", "-n2", f"--environment={edf}")
    edf.write_text(edf.read_text().replace("red", "blue"))
    shown = replay(cluster, job)
    assert (shown.returncode, shown.stderr) == (0, "")
    file = cluster.home() / f".local/state/container-engine/replays/{job}.0.toml"
    assert shown.stdout == f"srun -N2 -n2 --environment={file} COMMAND\n"
    assert file.stat().st_mode & 0o077 == 0
    words = ("/bin/sh", "-c", 'echo "$COLOUR $API_TOKEN $AT" "$PWD"')
    done = replay(cluster, job, "--", "-N1", "-n1", "--label", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0: red$ very secret there")
    assert done.stdout.endswith(" /data\n")
    assert f"--environment={file} -N1 -n1 --label /bin/sh" in done.stderr
    line = [word for word in shlex.split(shown.stdout) if word != "COMMAND"]
    assert cluster.run([*line, *words]).stdout.count("red$ very secret there") == 2
    edf.unlink()
    assert replay(cluster, "--dry-run", job, "--", "true").stdout.endswith(f"{file} true\n")


def test_what_is_gone_or_another_is_listed_and_nothing_starts(
    cluster: Cluster, shared: Path, site: Site
) -> None:
    site.configure('start_timeout_s = 100\n[env]\nFROM_SITE = "1"\n')
    hook = site.hook("here", '[edits.e.env]\nHOOK = "1"\n')
    (shared / "data").mkdir()
    edf = cluster.edf(
        f'mounts = ["{shared}/data:/data"]\n[annotations]\ncom.hooks.here.enabled = "true"\n'
    )
    job = job_of(cluster, f"--environment={edf}")
    assert replay(cluster, job).returncode == 0
    (shared / "data").rmdir()
    hook.write_text(hook.read_text() + 'UNUSED = "2"\n')
    site.configure('start_timeout_s = 90\n[env]\nFROM_SITE = "2"\n')
    done = replay(cluster, job, "--", "touch", str(shared / "started"))
    assert (done.returncode, done.stdout) == (1, "")
    assert '~ env.FROM_SITE = "1" -> "2"  # site: ' in done.stderr
    assert "~ settings.start_timeout_s = 100.0 -> 90.0  # site: " in done.stderr
    gone = f"- mounts = mount source '{shared}/data': does not exist  # {edf}:2\n"
    assert gone in done.stderr
    assert f"  # {hook}\n" in done.stderr
    assert '+ hooks.here.env.UNUSED = "2"' in done.stderr
    assert f"ce: error: {job}.0: not as it was when the step started\n" in done.stderr
    assert not (shared / "started").exists()
    (shared / "data").mkdir()
    forced = replay(cluster, "--force", job, "--", "printenv", "UNUSED", "FROM_SITE")
    assert (forced.returncode, forced.stdout) == (0, "2\n2\n")


def test_a_tag_that_has_moved_does_not_change_the_image(
    cluster: Cluster, registry: Registry
) -> None:
    image = push(cluster, registry, "moving:1", Member("here", b"old\n"))
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    job = job_of(cluster, f"--environment={edf}", shell="/bin/busybox sh")
    shutil.rmtree(Path(registry.env["HOME"]) / "layout-moving-1")
    push(cluster, registry, "moving:1", Member("here", b"new\n"))
    ce = str(cluster.prefix / "bin/ce")
    assert cluster.run([ce, "pull", image]).returncode == 0
    cat = ("/bin/busybox", "cat", "/here")
    done = replay(cluster, job, "--", *cat)
    assert (done.returncode, done.stdout) == (0, "old\n"), done.stderr
    assert f"ce: '{image}' is sha256:" in done.stderr
    [was] = {word for word in done.stderr.split() if word.startswith("sha256:")} - {""}
    assert cluster.srun(f"--environment={edf}", *cat).stdout == "new\n"
    text = (cluster.home() / f".local/state/container-engine/replays/{job}.0.toml").read_text()
    digest = text.partition("@")[2].partition('"')[0]
    assert digest != was
    assert cluster.run([ce, "rmi", digest]).returncode == 0
    done = replay(cluster, job, "--", *cat)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"- image = {image}@{digest}: in no store, to import again\n" in done.stderr


def test_steps_that_cannot_be_replayed_say_why(cluster: Cluster, demo: str) -> None:
    job = job_of(cluster, f"--environment={demo}")
    place = cluster.home() / ".local/state/container-engine"
    [trace] = (place / f"trace/{job}.0").glob("*.json")
    other = replay(cluster, job, user=BOB)
    assert (other.returncode, other.stdout) == (1, "")
    trace = trace.rename(trace.with_name("elsewhere7.json"))
    assert replay(cluster, job).stdout.startswith(
        "- nodes = elsewhere7: this cluster has none of them\n"
    )
    facts = json.loads(trace.read_text().splitlines()[0])
    kept = place / "plans" / facts["plan"]
    asked, plan = kept.read_text().split("\n", 1)
    newer = plan.replace('"engine":', '"unknown":1,"engine":', 1)
    digest = sha256(newer.encode()).hexdigest()[:32]
    changed = kept.with_name(digest)
    changed.write_text(f"{asked}\n{newer}")
    changed.chmod(0o644)
    trace.write_text(trace.read_text().replace(facts["plan"], digest))
    done = replay(cluster, job)
    assert f"{job}.0: its plan is of the engine {facts['engine']}, which this one" in done.stderr
    changed.unlink()
    done = replay(cluster, job)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{job}.0: its plan is not kept" in done.stderr
