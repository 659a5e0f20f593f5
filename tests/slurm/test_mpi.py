"""MPI from the image: `srun --mpi=pmix` and `--mpi=pmi2`, no annotation needed."""

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, causes, start_again
from tests.slurm.job import started
from tests.slurm.leftovers import helpers
from tests.slurm.login import edf as ssh_edf
from tests.slurm.login import make_key
from tests.slurm.polling import until
from tests.slurm.site import Site, site_on

pytestmark = pytest.mark.usefixtures("tidy")

# Sums of a ring and an allreduce over the ranks 0 to 3.
RING = "ring 6 allreduce 6\n"
# The nodes are one machine, where UCX tries to open another container's memory. Its TCP is no
# alternative: MPICH 4.0 sometimes hangs in MPI_Finalize with it, also without a container.
UCX = {"UCX_TLS": "sysv,self"}


@pytest.fixture(scope="session")
def open_mpi(cluster: Cluster) -> str:
    return cluster.edf(image="openmpi")


@pytest.fixture(scope="session")
def mpich(cluster: Cluster) -> str:
    return cluster.edf(image="mpich")


def test_open_mpi_starts_across_nodes_by_pmix(cluster: Cluster, open_mpi: str) -> None:
    done = cluster.srun(
        "--mpi=pmix", "-N2", "-n4", f"--environment={open_mpi}", "mpi-probe", "ring"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, RING, "")


def test_components_of_a_heterogeneous_step_are_one_world(cluster: Cluster, open_mpi: str) -> None:
    """When the tasks have ended, srun may go on waiting, without a container, too.

    In Slurm 22.05 it stops a thread of its PMIx plugin once for each component.
    """
    component = ["-N1", "-n1", f"--environment={open_mpi}", "mpi-probe", "ring"]
    step = ["srun", "--mpi=pmix", *component, ":", *component]
    with started(cluster, "salloc", "-Q", "-N2", "-n2", *step) as job:
        assert job.wait_for_lines(1, 60) == ["ring 1 allreduce 1"]
        until("the end of the tasks", lambda: not helpers())
        assert (job.out, job.err) == ("ring 1 allreduce 1\n", "")
        assert job.process.poll() in {None, 0}


def test_a_client_does_as_the_server_of_pmix_says(cluster: Cluster, open_mpi: str) -> None:
    script = 'test -n "$PMIX_RANK" && echo "$PMIX_MCA_psec = $PMIX_SECURITY_MODE"'
    done = cluster.srun("--mpi=pmix", "-n1", f"--environment={open_mpi}", "sh", "-c", script)
    ours, slurms = done.stdout.rstrip("\n").split(" = ")
    assert ours == slurms != "", done.stderr


def test_an_environment_may_set_what_the_pmix_of_its_image_reads(cluster: Cluster) -> None:
    """Most published environments set psec; the page on MPI advises gds."""
    text = '[env]\nPMIX_MCA_psec = "native"\nPMIX_MCA_gds = "hash"\n'
    edf = cluster.edf(text, image="openmpi")
    script = 'test -n "$PMIX_RANK" && echo "$PMIX_MCA_psec $PMIX_MCA_gds"; mpi-probe ring'
    done = cluster.srun("--mpi=pmix", "-n2", f"--environment={edf}", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("native hash") == 2


@pytest.fixture
def as_root(cluster: Cluster) -> str:
    return cluster.edf('[annotations]\ncom.ce.root_remap = "true"\n', image="openmpi")


def test_mpi_of_root_does_not_come_to_a_server_of_pmix_that_refuses_it(
    cluster: Cluster, as_root: str
) -> None:
    srun = ("--mpi=pmix", "-w", "n1", "-n2", f"--environment={as_root}")
    done = cluster.srun(*srun, "mpi-probe", "ring")
    assert "ce: error: n1: the program uses MPI, and Slurm's PMIx refuses root" in done.stderr
    assert "ce: see: ce help pmix-root" in done.stderr
    assert done.returncode == 125
    # An MPI program that the engine cannot recognise beforehand fails by itself.
    done = cluster.srun(*srun, "sh", "-c", "n=probe; mpi-$n ring")
    assert "ce: warning: n1: Slurm's PMIx refuses root" in done.stderr
    # 1 and "OPAL ERROR: Unreachable" with Open MPI 4; the 5.0 of Debian 13 crashes
    assert done.returncode not in {0, 125}
    done = cluster.srun(*srun[1:], "--mpi=pmix", "id", "-u")
    assert (done.returncode, done.stdout) == (0, "0\n0\n")
    until("the end of all jobs", lambda: not cluster.run(["squeue", "--noheader"]).stdout, 20)


def test_mpi_of_root_works_where_the_server_of_pmix_offers_another_check(
    cluster: Cluster, as_root: str
) -> None:
    conf = cluster.dir / "etc/mpi.conf"
    conf.write_text("PMIxEnv=PMIX_MCA_psec=none\n")
    conf.chmod(0o644)
    try:
        start_again("n1")
        srun = ("--mpi=pmix", "-w", "n1", "-n2", f"--environment={as_root}")
        done = cluster.srun(*srun, "mpi-probe", "ring")
    finally:
        conf.unlink()
        start_again("n1")
    assert (done.returncode, done.stdout) == (0, "ring 1 allreduce 1\n"), done.stderr


def test_mpich_starts_across_nodes_by_pmi2(cluster: Cluster, mpich: str) -> None:
    srun = ("--mpi=pmi2", "-N2", "-n4", f"--environment={mpich}")
    done = cluster.srun(*srun, "mpi-probe", "ring", env=UCX)
    assert (done.returncode, done.stdout, done.stderr) == (0, RING, "")


def test_what_open_mpi_says_without_slurms_pmix_is_what_the_page_about_mpi_explains(
    cluster: Cluster,
) -> None:
    edf = cluster.edf('[annotations]\ncom.hooks.pmix.enabled = "false"\n', image="openmpi")
    done = cluster.srun("--mpi=pmix", "-n1", f"--environment={edf}", "mpi-probe", "ring")
    page = cluster.run([f"{cluster.prefix}/bin/ce", "help", "mpi"]).stdout
    if done.returncode == 0:  # Open MPI 5
        assert (done.stdout, done.stderr) == ("ring 0 allreduce 0\n", "")
        assert "the same with Open MPI 5" in page
        return
    for words in (
        "OPAL ERROR: Unreachable in file ext3x_client.c",
        "OMPI was not built with SLURM's PMI support",
    ):
        assert words in done.stderr
        assert words in page
    assert done.returncode == 1


# The options of srun, variables with the same effect, the image's MPI, and what it would need.
WRONG = {
    "mpich": (("--mpi=pmix",), {}, "MPICH", "PMIx", "pmi2"),
    "openmpi": ((), {"SLURM_MPI_TYPE": "pmi2"}, "Open MPI", "PMI2", "pmix"),
}


@pytest.mark.parametrize("image", WRONG)
def test_an_mpi_that_does_not_speak_what_srun_chose_is_told_of(
    cluster: Cluster, image: str
) -> None:
    srun, env, mpi, speech, instead = WRONG[image]
    edf = cluster.edf(image=image)
    asked = (*srun, "-N1", f"--environment={edf}", "true")
    done = cluster.srun("-n2", *asked, env={**UCX, **env})
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert f"the image's {mpi} (libmpi" in done.stderr
    assert f") does not support {speech} (start it with srun --mpi={instead}" in done.stderr
    # A single task has no other ranks to find.
    assert cluster.srun("-n1", *asked, env={**UCX, **env}).stderr == ""


def test_an_mpi_in_a_directory_of_the_node_is_looked_at_too(cluster: Cluster, shared: Path) -> None:
    name = f"usr/lib/{platform.machine()}-linux-gnu"
    unpack = ["unsquashfs", "-q", "-n", "-d", str(shared / "tree"), str(cluster.image("openmpi"))]
    subprocess.run([*unpack, f"{name}/libmpi.so.40*"], check=True, stdout=subprocess.DEVNULL)
    text = f'mounts = ["{shared}/tree/{name}:/mpi"]\n[env]\nLD_LIBRARY_PATH = "/mpi"\n'
    edf = cluster.edf(text, image="glibc")
    done = cluster.srun("--mpi=pmi2", "-n2", "-N1", f"--environment={edf}", "true")
    assert done.returncode == 0
    assert "Open MPI (libmpi.so.40) does not support PMI2" in done.stderr


@pytest.mark.parametrize("image", ["mpich", "openmpi"])
def test_a_program_with_mpi_that_srun_does_not_connect_is_reported_once(
    cluster: Cluster, image: str
) -> None:
    edf = cluster.edf(image=image)
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "mpi-probe", "ring")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ce: ")]
    assert "the program uses MPI, and srun has no --mpi=: each task will be rank 0 of 1" in line
    done = cluster.srun("-n2", f"--environment={edf}", "sh", "-c", "exec mpi-probe ring")
    assert "mpi-probe uses MPI, and srun has no --mpi=" in done.stderr
    for words in (("-n1", "mpi-probe", "ring"), ("-n2", "true")):
        done = cluster.srun(words[0], f"--environment={edf}", *words[1:])
        assert "ce: " not in done.stderr


MPIRUN = ("mpirun", "-np", "2", "mpi-probe", "ring")


@pytest.mark.parametrize("image", ["mpich", "openmpi"])
def test_an_mpirun_that_would_wait_for_srun_ends_at_once(cluster: Cluster, image: str) -> None:
    srun = ("-N2", "--ntasks-per-node=1", f"--environment={cluster.edf(image=image)}")
    done = cluster.srun(*srun, *MPIRUN, timeout=60)
    assert done.returncode == 125
    error, _hint, see = (line for line in done.stderr.splitlines() if line.startswith("ce: "))
    assert "starts its processes with Slurm's srun, which is not in the container" in error
    assert see == "ce: see: ce help mpirun-inside"


def test_an_mpirun_on_one_node_works_without_srun(cluster: Cluster) -> None:
    """Open MPI recognises its node by the host name, which the nodes here share."""
    edf = cluster.edf(image="mpich")
    for words in (
        MPIRUN,
        ("mpirun", "-launcher", "fork", *MPIRUN[1:]),
        ("sh", "-c", " ".join(MPIRUN)),
    ):
        done = cluster.srun("-n1", f"--environment={edf}", *words, env=UCX, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ring 1 allreduce 1\n", "")
    name = "export SLURM_NODELIST=$(hostname) SLURM_JOB_NODELIST=$(hostname)"
    script = f"{name}; mpirun --oversubscribe {' '.join(MPIRUN[1:])}"
    edf = cluster.edf(image="openmpi")
    done = cluster.srun("-n1", f"--environment={edf}", "sh", "-c", script, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ring 1 allreduce 1\n"), done.stderr
    done = cluster.srun("-n1", f"--environment={edf}", *MPIRUN, timeout=60)
    assert "Open MPI's mpirun may not recognise this node" in done.stderr


@pytest.mark.parametrize("image", ["mpich", "openmpi"])
def test_an_mpirun_in_a_script_on_several_nodes_is_warned_of_at_once(
    cluster: Cluster, image: str
) -> None:
    script = f"exec sh -c : && {' '.join(MPIRUN)}"
    edf = cluster.edf(image=image)
    done = cluster.srun("-N2", "-n2", f"--environment={edf}", "sh", "-c", script)
    (line,) = done.stderr.splitlines()
    assert "mpirun is called in a job of several nodes: mpirun looks for Slurm's srun" in line
    assert "start the ranks with srun --mpi=pmix -n N PROGRAM" in line
    edf = cluster.edf('[env]\nHYDRA_LAUNCHER = "ssh"\n', image=image)
    done = cluster.srun("-N2", "-n2", f"--environment={edf}", "sh", "-c", script)
    assert "mpirun is called" not in done.stderr


def _tree(cluster: Cluster, place: Path, image: str) -> Path:
    """Unpack an image's libraries and programs into a directory, as the host's own software."""
    unpack = ["unsquashfs", "-q", "-n", "-d", str(place), str(cluster.image(image))]
    subprocess.run([*unpack, "usr/lib", "usr/bin"], check=True, stdout=subprocess.DEVNULL)
    return place


def test_a_host_mpi_that_replaces_the_images_is_reported_once(
    cluster: Cluster, shared: Path
) -> None:
    """A module of the host sets LD_LIBRARY_PATH, and its directory is mounted."""
    tree = _tree(cluster, shared / "sw", "openmpi")
    directory = f"{tree}/usr/lib/{platform.machine()}-linux-gnu"
    env = {"LD_LIBRARY_PATH": f"/usr/lib:{directory}"}
    srun = ("--mpi=pmix", "-N2", "-n4")
    mounted = cluster.edf(f'mounts = ["{shared}"]\n', image="openmpi")
    done = cluster.srun(*srun, f"--environment={mounted}", "mpi-probe", "ring", env=env)
    (line,) = done.stderr.splitlines()
    assert f"libmpi.so.40 comes from '{directory}', not from the image: LD_LIBRARY_PATH" in line
    assert done.stdout == RING
    command = ["env", f"LD_LIBRARY_PATH={directory}", f"{cluster.prefix}/bin/ce", "run", mounted]
    assert "libmpi.so.40 comes from" in cluster.run([*command, "--", "true"]).stderr
    # Nothing is replaced if the directory is not mounted, or the environment sets the variable.
    decided = 'mounts = ["{}"]\n[env]\nLD_LIBRARY_PATH = "{}"\n'
    for text in ("", decided.format(shared, ""), decided.format(shared, "${LD_LIBRARY_PATH}")):
        edf = cluster.edf(text, image="openmpi")
        done = cluster.srun(*srun, f"--environment={edf}", "mpi-probe", "ring", env=env)
        assert (done.stdout, "comes from" in done.stderr) == (RING, False)


def test_a_program_for_another_mpi_than_the_images_is_named(cluster: Cluster, shared: Path) -> None:
    """The image's MPI differs from the program's, so advice on `--mpi=` would not help."""
    probe = _tree(cluster, shared / "sw", "openmpi") / "usr/bin/mpi-probe"
    edf = cluster.edf(f'mounts = ["{shared}"]\n', image="mpich")
    done = cluster.srun("--mpi=pmix", "-N1", "-n2", f"--environment={edf}", str(probe), "ring")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ce: ")]
    assert (
        "the program was built with Open MPI (libmpi.so.40), and the image has MPICH (lib" in line
    )
    assert "use an image with Open MPI" in line


def test_a_task_sees_nothing_of_what_srun_chose(cluster: Cluster, mpich: str) -> None:
    done = cluster.srun("--mpi=pmi2", "-n2", f"--environment={mpich}", "env")
    assert (done.returncode, done.stderr) == (0, "")
    assert "SLURM_CE_" not in done.stdout


def test_open_mpi_starts_in_a_container_that_cannot_be_written(cluster: Cluster) -> None:
    edf = cluster.edf("writable = false\n", image="openmpi")
    done = cluster.srun("--mpi=pmix", "-N2", "-n4", f"--environment={edf}", "mpi-probe", "ring")
    assert (done.returncode, done.stdout, done.stderr) == (0, RING, "")


def test_ranks_of_a_node_share_memory(cluster: Cluster, mpich: str, open_mpi: str) -> None:
    """Only shared memory is allowed here, which one container per node makes possible."""
    for edf, mpi, env in (
        (open_mpi, "pmix", {"OMPI_MCA_btl": "self,vader"}),
        (mpich, "pmi2", {"UCX_TLS": "posix,cma,self"}),
    ):
        srun = (f"--mpi={mpi}", "-N1", "-n4", f"--environment={edf}")
        done = cluster.srun(*srun, "mpi-probe", "ring", env=env)
        assert (done.returncode, done.stdout) == (0, RING), done.stderr


def test_only_the_steps_own_pmix_directory_is_seen(cluster: Cluster, open_mpi: str) -> None:
    script = f"echo $PMIX_SERVER_TMPDIR; ls -d {cluster.dir}/spool/*/* {cluster.dir}/tmp/*/*"
    srun = ("--mpi=pmix", "-w", "n1", f"--environment={open_mpi}")
    done = cluster.srun(*srun, "sh", "-c", script)
    server, *seen = done.stdout.split()
    step = server.rstrip("/").rpartition("pmix.")[2]
    node = f"{cluster.dir}/spool/n1"
    assert [server.rstrip("/"), *seen] == [
        f"{node}/pmix.{step}",
        f"{node}/pmix.{step}",
        *(path for path in seen if path.endswith(f"_{step}")),
    ]
    assert len(seen) == 2


def test_a_step_without_pmix_sees_no_directory_of_slurm(cluster: Cluster, open_mpi: str) -> None:
    done = cluster.srun(f"--environment={open_mpi}", "ls", f"{cluster.dir}/spool")
    assert done.returncode != 0
    assert "No such file" in done.stderr


@pytest.mark.parametrize("mpi", ["pmix", "pmi2"])
def test_an_annotation_turns_off_what_slurm_offers_to_mpi(cluster: Cluster, mpi: str) -> None:
    """Then Slurm's directory is not mounted, and its variables are not set."""
    off = cluster.edf(f'[annotations]\ncom.hooks.{mpi}.enabled = "false"\n')
    script = f"env | grep -c ^PMI; ls {cluster.dir}/spool 2>/dev/null | wc -l"
    found = {}
    for name in (cluster.edf(), off):
        done = cluster.srun(f"--mpi={mpi}", "-N1", f"--environment={name}", "sh", "-c", script)
        found[name] = [int(line) > 0 for line in done.stdout.split()]
    assert list(found.values()) == [[True, mpi == "pmix"], [False, False]]


# ---- variables of torch.distributed ------------------------------------------------------------

VARIABLES = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'


def test_every_task_gets_its_own_rank_for_torch(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\ncom.hooks.pytorch.enabled = "true"\n')
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "sh", "-c", VARIABLES)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [row[:4] for row in rows] == [
        ["0", "0", "4", "n1"],
        ["1", "1", "4", "n1"],
        ["2", "0", "4", "n1"],
        ["3", "1", "4", "n1"],
    ]
    assert len({row[4] for row in rows}) == 1


def test_pyxis_annotation_gives_rank_and_local_rank(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\ncom.pyxis.pytorch_remap_vars = "true"\n')
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "sh", "-c", VARIABLES)
    assert sorted(done.stdout.splitlines()) == ["0 0   ", "1 1   ", "2 0   ", "3 1   "]


def test_an_environment_file_has_the_last_word_on_ranks(cluster: Cluster) -> None:
    text = (
        '[annotations]\ncom.hooks.pytorch.enabled = "true"\n[env]\nRANK = "x"\nMASTER_PORT = "5"\n'
    )
    edf = cluster.edf(text)
    done = cluster.srun(
        *("-w", "n1", "-n2", f"--environment={edf}", "sh", "-c", VARIABLES),
        env={"WORLD_SIZE": "9"},
    )
    assert sorted(done.stdout.splitlines()) == ["x 0 2 n1 5", "x 1 2 n1 5"]


# ---- the node's MPI in place of the image's ----------------------------------------------------

ABI = '[annotations]\ncom.hooks.mpich_abi.enabled = "true"\n'


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    with site_on(cluster) as made:
        yield made


def _unpack(cluster: Cluster, image: str, name: str, place: Path) -> Path:
    """Unpack a library of an image, to use it as one of the node's."""
    inside = f"usr/lib/{platform.machine()}-linux-gnu/{name}"
    unpack = ["unsquashfs", "-q", "-n", "-f", "-d", str(place), str(cluster.image(image)), inside]
    subprocess.run([*unpack, f"{inside}.*"], check=True, capture_output=True)
    return place / inside


def test_the_nodes_mpich_takes_the_place_of_the_images(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    library = _unpack(cluster, "mpich", "libmpich.so.12", tmp_path)
    nodes = site.programs / "libmpich.so.12"
    # The same MPI, made recognisable: bytes after the end of an ELF file have no effect.
    nodes.write_bytes(library.read_bytes() + b"the node's")
    settings = f'[settings]\nname = "libmpich.so.12"\nlibrary = "{nodes}"\n'
    # Its dependencies are in the image, from which it was taken.
    files = '{ files = ["{library}"], place = "replace", closure = false }'
    edits = f"[edits.host]\nlibraries = [{files}]\n"
    site.hook("mpich_abi", settings + edits, whole=False)
    last = f"tail -c 10 /{library.relative_to(tmp_path)}; echo"
    script = f'[ "$SLURM_PROCID" != 0 ] || {{ {last}; }}; exec mpi-probe ring'
    srun = ("--mpi=pmi2", "-N1", "-n4", f"--environment={cluster.edf(ABI, image='mpich')}")
    done = cluster.srun(*srun, "sh", "-c", script, env={"UCX_TLS": "posix,cma,self"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"the node's\n{RING}"


def test_an_image_with_an_mpi_of_another_interface_is_refused(cluster: Cluster, site: Site) -> None:
    nodes = site.programs / "libmpi.so.12"
    argv = ["gcc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libmpi.so.12", "-o", str(nodes)]
    subprocess.run(argv, check=True)
    site.hook("mpich_abi", f'[settings]\nlibrary = "{nodes}"\n', whole=False)
    edf = cluster.edf(ABI, image="openmpi")
    done = cluster.srun("-w", "n1", f"--environment={edf}", "true")
    assert done.returncode == 125
    assert causes(done) == [
        "ce: error: n1: hook mpich_abi: built for libmpi 12, and the image has libmpi 40 (the"
        " image's MPI has another binary interface; leave com.hooks.mpich_abi.enabled out and use"
        " the image's own MPI)"
    ]


# ---- mpirun in the container, across the job's nodes -------------------------------------------


@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_mpirun_inside_starts_ranks_in_the_containers_of_all_nodes(
    cluster: Cluster, shared: Path, image: str
) -> None:
    """mpirun uses the ssh hook. The first task calls it, the others keep their containers alive.

    There is a single try with a long limit: beside 45 other processes on two CPUs, Open MPI takes
    13 s.
    """
    name = ssh_edf(cluster, make_key(cluster), f'mounts = ["{shared}"]\n', image)
    mpirun = "mpirun -np 4" if image == "openmpi" else "mpirun -np 4 -hosts n1:2,n2:2"
    script = (
        f'if [ "$SLURM_PROCID" = 0 ]; then {mpirun} mpi-probe ring; {mpirun} mpi-probe where;'
        f" touch {shared}/over; fi; while [ ! -e {shared}/over ]; do sleep 0.1; done"
    )
    done = cluster.srun(
        "-N2", "-n4", f"--environment={name}", "sh", "-c", script, env=UCX, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "srun has no --mpi=" not in done.stderr
    first, *ranks = done.stdout.splitlines(keepends=True)
    assert first == RING
    assert len(ranks) == 4
    assert len({rank.split(" in ")[1] for rank in ranks}) == 2
