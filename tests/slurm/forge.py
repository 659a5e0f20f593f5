"""A workshop for images that no tool makes like this."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.slurm.cluster import Cluster, Completed


class Forge:
    """A workshop for images based on the sandbox's smallest one."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.root = directory / "root"
        argv = ["unsquashfs", "-q", "-n", "-d", str(self.root), str(cluster.image("busybox"))]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    def put(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str | Path) -> None:
        file = self.root / path
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.symlink_to(target)

    def image(self, *pseudo: str, run: Mapping[str, object] | None = None) -> Path:
        image = self.directory / "forged.sqsh"
        options = [word for line in pseudo for word in ("-p", line)]
        argv = [
            "mksquashfs",
            str(self.root),
            str(image),
            "-noappend",
            "-quiet",
            "-no-progress",
            "-all-root",
        ]
        subprocess.run([*argv, *options], check=True, stdout=subprocess.DEVNULL)
        if run is not None:
            Path(f"{image}.json").write_text(json.dumps({"config": run}))
        return image

    def srun(self, image: Path, *argv: str, edf: str = "", tasks: int = 1) -> Completed:
        name = self.cluster.edf(f'image = "{image}"\n{edf}', image=None)
        return self.cluster.srun(f"-n{tasks}", "-w", "n1", f"--environment={name}", *argv)
