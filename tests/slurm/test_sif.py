"""Apptainer's image files (SIF) as images of steps, of `ce run`, and as sources of imports."""

import platform
from pathlib import Path

import pytest

from tests import sif
from tests.slurm.cluster import Cluster
from tests.slurm.error_block import ErrorBlock
from tests.slurm.forge import Forge

HERE = sif.ARCHITECTURES[platform.machine()]
ENVIRONMENT = ".singularity.d/env/90-environment.sh"


@pytest.fixture
def image(forge: Forge, shared: Path) -> Path:
    forge.put(ENVIRONMENT, "#!/bin/sh\nexport GREETING='hello there' PATH=/opt/mine:$PATH\n")
    forge.put(".singularity.d/runscript", '#!/bin/sh\necho runscript "$@"\n')
    (forge.root / ".singularity.d/runscript").chmod(0o755)
    return sif.make(shared / "x.sif", forge.image(), HERE)


SHOW = ("sh", "-c", 'echo "$GREETING ${PATH%%:*}"')


def test_a_step_on_two_nodes_runs_in_a_sif_file_where_it_lies(
    cluster: Cluster, image: Path, shared: Path
) -> None:
    edf = shared / "sif.toml"
    edf.write_text(f'image = "{image}"\n')
    for _ in range(2):  # the second one is a recorded start, without Python
        done = cluster.srun("-N2", f"--environment={edf}", *SHOW)
        assert (done.returncode, done.stdout) == (0, "hello there /opt/mine\n" * 2), done.stderr
    done = cluster.srun(f"--container-image={image}", *SHOW)
    assert done.stdout == "hello there /opt/mine\n", done.stderr
    done = cluster.srun(f"--container-image={image}", "/.singularity.d/runscript", "a", "b")
    assert done.stdout == "runscript a b\n", done.stderr
    done = cluster.run(["ce", "run", str(edf), "--", *SHOW])
    assert done.stdout == "hello there /opt/mine\n", done.stderr
    before = image.stat()
    done = cluster.run(["ce", "inspect", str(image)])
    assert "/.singularity.d\n" in done.stdout, done.stderr
    assert image.stat().st_mtime == before.st_mtime


def test_an_import_takes_the_file_system_out_of_a_sif_file(
    cluster: Cluster, image: Path, shared: Path
) -> None:
    plain = shared / "plain.sqsh"
    done = cluster.run(["ce", "import", "-o", str(plain), str(image)])
    assert done.returncode == 0, done.stderr
    assert plain.read_bytes()[:4] == b"hsqs"
    done = cluster.srun(f"--container-image={plain}", *SHOW)
    assert done.stdout == "hello there /opt/mine\n", done.stderr


def test_what_lies_is_refused_before_anything_starts(
    cluster: Cluster, image: Path, shared: Path
) -> None:
    edf = shared / "sif.toml"
    edf.write_text(f'image = "{image}"\n')
    whole = image.read_bytes()
    image.write_bytes(whole[:-5000])
    ErrorBlock(cluster.srun(f"--environment={edf}", "true"), "image-damaged", "cut short")
    content = bytearray(whole)
    # a file system that is not at the place that its descriptor says is found on the node, too
    content[whole.index(b"hsqs")] ^= 0xFF
    image.write_bytes(content)
    ErrorBlock(cluster.srun(f"--environment={edf}", "true"), "image-not-squashfs", "SquashFS")
