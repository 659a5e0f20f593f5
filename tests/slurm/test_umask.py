"""The user's umask reaches all that runs for a step, not only its tasks."""

import shlex
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.forge import Forge
from tests.slurm.site import Site

MASKS = ("077", "027", "002")


def under(cluster: Cluster, mask: str, *step: str) -> None:
    done = cluster.run(["sh", "-c", f"umask {mask}; {shlex.join(step)}"])
    assert done.returncode == 0, done.stderr


def modes(directory: Path) -> dict[str, str]:
    return {file.name: f"{file.stat().st_mode & 0o777:03o}" for file in directory.iterdir()}


@pytest.mark.parametrize("way", ["crun", "podman"])
@pytest.mark.parametrize("mask", MASKS)
def test_start_up_lines_entrypoints_and_hooks_have_the_users_umask(
    cluster: Cluster, forge: Forge, shared: Path, site: Site, mask: str, way: str
) -> None:
    place = shared / "made"
    place.mkdir()
    place.chmod(0o777)
    hook = cluster.write(f"#!/bin/sh\nexec touch {place}/hook\n", mode=0o755)
    site.oci_hook("50-umask", str(hook), "createRuntime")
    begin = ["sh", "-c", f'touch {place}/entrypoint; exec "$@"', "sh"]
    image = forge.image(run={"Env": ["PATH=/bin"], "Entrypoint": begin})
    text = (
        f'image = "{image}"\nmounts = ["{shared}:{shared}"]\nentrypoint = true\n'
        f'startup = ["touch {place}/startup"]\n[annotations]\ncom.ce.start = "{way}"\n'
    )
    edf = cluster.edf(text, image=None)
    under(cluster, mask, "srun", "-wn1", f"--environment={edf}", "touch", f"{place}/task")
    wanted = f"{0o666 & ~int(mask, 8):03o}"
    assert modes(place) == dict.fromkeys(("entrypoint", "startup", "task", "hook"), wanted)


def test_a_start_from_an_answer_has_the_umask_of_its_own_step(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}:{shared}"]\n', image="busybox")
    for number, mask in enumerate(("022", "022", "077", "077", "022")):
        file = f"{shared}/{number}"
        under(cluster, mask, "srun", "-wn1", f"--environment={edf}", "touch", file)
    assert [mode for _name, mode in sorted(modes(shared).items())] == [
        *("644", "644", "600", "600", "644")
    ]


@pytest.mark.parametrize("mask", MASKS)
def test_what_a_step_saves_has_the_users_umask(cluster: Cluster, shared: Path, mask: str) -> None:
    options = [f"--container-image={cluster.image('busybox')}", "--container-writable"]
    options.append(f"--container-save={shared}/x.sqsh")
    under(cluster, mask, "srun", "-wn1", *options, "touch", "/new")
    wanted = f"{0o666 & ~int(mask, 8):03o}"
    assert modes(shared) == dict.fromkeys(("x.sqsh", "x.sqsh.json", "x.sqsh.sha256"), wanted)
