"""Environments as Kubernetes pods, as Podman reads them."""

import json
import subprocess
import tarfile
from pathlib import Path

from tests.integration.trees import Podman

EDF = """\
image = "localhost/tool:1"
mounts = ["{data}:/data:ro", "tmpfs:/scratch:size=1g"]
workdir = "/data"
writable = false
[env]
LANG = "no"
TEXT = "a\\nb\\u0085: \\"q\\" - 漢字 \\u00ad # {{x}}"
"""


def test_podman_makes_the_pod_of_an_environment(
    prepared: Path, podman: Podman, tmp_path: Path
) -> None:
    """An image that is the pod's first process, too, since catatonit may be missing here."""
    (tmp_path / "prog").write_text("never started")
    with tarfile.open(tmp_path / "tool.tar", "w") as archive:
        archive.add(tmp_path / "prog", "prog")
    podman.run("import", "--change=CMD /prog", str(tmp_path / "tool.tar"), "localhost/tool:1")
    settings = tmp_path / "containers.conf"
    settings.write_text('[engine]\ninfra_image = "localhost/tool:1"\n')
    judge = podman._replace(env={**podman.env, "CONTAINERS_CONF": str(settings)})
    (tmp_path / "data").mkdir()
    (tmp_path / "train.toml").write_text(EDF.format(data=tmp_path / "data"))
    words = ["export", "kubernetes", str(tmp_path / "train.toml"), "--", "/prog", "yes", "a: b"]
    pod = subprocess.run(
        [f"{prepared}/prefix/bin/ce", *words], capture_output=True, text=True, check=True
    )
    (tmp_path / "pod.yaml").write_text(pod.stdout)
    judge.run("kube", "play", "--start=false", str(tmp_path / "pod.yaml"))
    [found] = json.loads(judge.run("inspect", "train-train"))
    config = found["Config"]
    assert found["Args"] == ["yes", "a: b"]
    assert (found["Path"], config["WorkingDir"]) == ("/prog", "/data")
    assert 'TEXT=a\nb\x85: "q" - 漢字 \xad # {x}' in config["Env"]
    assert "LANG=no" in config["Env"]
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    mounts = {mount["Destination"]: mount for mount in found["Mounts"]}
    # newer releases list file systems in memory elsewhere
    assert {*mounts, *found["HostConfig"]["Tmpfs"]} == {"/data", "/scratch", "/dev/shm"}
    assert (mounts["/data"]["Source"], mounts["/data"]["RW"]) == (str(tmp_path / "data"), False)
    judge.run("pod", "rm", "--force", "train")
