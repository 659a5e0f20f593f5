"""Apptainer's image files (SIF): in steps, `ce run`, imports, and under its own command."""

import platform
from pathlib import Path

import pytest

from tests import sif
from tests.slurm.cluster import Cluster, Completed
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


# ---- the commands apptainer and singularity ----------------------------------------------------


def apptainer(cluster: Cluster, *words: str, env: dict[str, str] | None = None) -> Completed:
    command = cluster.prefix / "libexec/container-engine/compat" / words[0]
    return cluster.run([str(command), *words[1:]], env=env)


def test_apptainer_runs_commands_and_the_runscript_with_the_images_environment(
    cluster: Cluster, image: Path
) -> None:
    env = {"OF_HOST": "1", "SINGULARITYENV_GREETING": "given", "LD_LIBRARY_PATH": "/x"}
    script = 'echo "$GREETING" "$OF_HOST" "$PATH" "$LD_LIBRARY_PATH"; touch /x; exit 7'
    done = apptainer(cluster, "apptainer", "exec", str(image), "sh", "-c", script, env=env)
    path = "/opt/mine:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert (done.returncode, done.stdout) == (7, f"given 1 {path} \n"), done.stderr
    assert "Read-only file system" in done.stderr
    done = apptainer(cluster, "singularity", "run", "--cleanenv", str(image), "a", "b c", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "runscript a b c\n", "")
    done = apptainer(cluster, "apptainer", "exec", f"{image}.not", "true")
    assert (done.returncode, done.stdout) == (255, "")
    assert "no such file" in done.stderr


def test_variables_for_a_container_of_apptainer_are_not_those_of_the_engine(
    cluster: Cluster, image: Path, forge: Forge
) -> None:
    given = "TMPDIR=/none,PATH=/given:/bin:/usr/bin,XDG_CACHE_HOME=/none,TOKEN='a \"$b,EMPTY="
    show = 'echo "$TMPDIR $PATH $XDG_CACHE_HOME $TOKEN ${EMPTY-unset}"'
    for one in (image, forge.image()):
        words = ("exec", "--env", given, str(one), "sh", "-c", show)
        done = apptainer(cluster, "apptainer", *words, env={"EMPTY": "of the host"})
        assert done.stdout == "/none /given:/bin:/usr/bin /none 'a \"$b \n", done.stderr
        assert "unsquashfs" not in done.stderr


def test_each_task_of_a_step_has_a_container_of_apptainer(cluster: Cluster, image: Path) -> None:
    command = cluster.prefix / "libexec/container-engine/compat/apptainer"
    words = ("exec", "--pid", str(image), "sh", "-c", 'echo "$SLURM_PROCID $GREETING $$"')
    done = cluster.srun("-N2", "-n4", str(command), *words)
    lines = sorted(done.stdout.splitlines())
    assert [line.rpartition(" ")[0] for line in lines] == [f"{n} hello there" for n in range(4)]


def test_apptainer_runs_what_a_registrys_image_says_as_docker_does(
    cluster: Cluster, forge: Forge
) -> None:
    image = str(forge.image(run={"Entrypoint": ["echo", "entry"], "Cmd": ["a", "b"]}))
    assert apptainer(cluster, "apptainer", "run", image).stdout == "entry a b\n"
    assert apptainer(cluster, "apptainer", "run", image, "c d").stdout == "entry c d\n"
    assert apptainer(cluster, "apptainer", "exec", image, "echo", "c").stdout == "c\n"
