"""Images whose paths are not what a container needs: dangling links, a WORKDIR in no layer.

Links of an image are followed inside it, and what they name is made, in both ways to create a
container.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster, Completed
from tests.slurm.error_block import ErrorBlock
from tests.slurm.forge import Forge

WAYS = ("crun", "podman")
# what the root of a bootable system has
LINKS = {
    "home": "var/home",
    "opt": "var/opt",
    "srv": "/var/srv",
    "mnt": "var/mnt",
    "data": "/far/data",
    # a chain, and links below dangling links
    "chain": "link/x",
    "link": "/other/",
    "other": "../../../far/./up/../other",
}


def way(name: str) -> str:
    return f'[annotations]\ncom.ce.start = "{name}"\n'


@pytest.fixture
def linked(forge: Forge) -> Forge:
    for name, target in LINKS.items():
        forge.link(name, target)
    (forge.root / "var").mkdir(exist_ok=True)
    return forge


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("writable", ["true", "false"])
def test_mounts_of_each_kind_go_where_dangling_links_of_the_image_lead(
    linked: Forge, shared: Path, name: str, writable: str
) -> None:
    (shared / "d").mkdir()
    (shared / "d/f").write_text("content\n")
    packed = shared / "d.sqsh"
    argv = ["mksquashfs", str(shared / "d"), str(packed), "-quiet", "-no-progress"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    mounts = [
        f"{shared}/d/f:/opt/file",
        f"{shared}/d:/data",
        f"{shared}/d:/chain/sub",
        f"{packed}:/srv/x:sqsh",
        "tmpfs:/mnt/t",
        # below another mount, which the runtime makes
        "tmpfs:/mnt/t/below",
    ]
    edf = f"mounts = {mounts}\nwritable = {writable}\n{way(name)}".replace("'", '"')
    script = (
        "cat /opt/file /data/f /chain/sub/f /srv/x/f; cd /data; pwd -P; cd /chain/sub; pwd -P;"
        "cat /var/opt/file /far/data/f; echo written > /mnt/t/below/x && cat /var/mnt/t/below/x"
    )
    done = linked.srun(linked.image(), "sh", "-c", script, edf=edf)
    assert done.returncode == 0, done.stderr
    places = ["/far/data", "/far/other/x/sub"]
    assert done.stdout.split() == ["content"] * 4 + places + ["content"] * 2 + ["written"]


def test_a_mount_by_an_option_follows_a_dangling_link(cluster: Cluster, linked: Forge) -> None:
    options = [f"--container-image={linked.image()}", "--container-mounts=/etc/hostname:/opt/x"]
    done = cluster.srun("-wn1", *options, "cat", "/var/opt/x")
    assert done.stdout == Path("/etc/hostname").read_text(), done.stderr


@pytest.mark.parametrize("name", WAYS)
def test_what_the_engine_itself_mounts_follows_dangling_links(forge: Forge, name: str) -> None:
    """Files that name hosts, /proc, and directories that a read-only root has."""
    for path, target in {
        "etc": "usr/etc",
        "run": "/var/volatile/run",
        "tmp": "var/tmp",
        "var/tmp": "/volatile",
        "proc": "sys/../kernel",
    }.items():
        forge.link(path, target)
    edf = f"writable = false\n{way(name)}"
    script = "cat /etc/hostname; grep -c : /etc/passwd; touch /tmp/x /run/x; test -d /proc/self"
    done = forge.srun(forge.image(), "sh", "-c", script, edf=edf)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == Path("/proc/sys/kernel/hostname").read_text().strip()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    ("links", "words"),
    [
        ({"a": "b", "b": "/a"}, " is a link to '"),
        ({"a": "etc/passwd"}, "'/a' is a link to 'etc/passwd'"),
        ({"a": "/b", "b": "etc/passwd"}, "'/b' is a link to 'etc/passwd'"),
    ],
    ids=["a loop", "a file", "a file behind a chain"],
)
def test_a_link_that_leads_nowhere_is_named_with_its_target(
    forge: Forge, name: str, links: dict[str, str], words: str
) -> None:
    for path, target in links.items():
        forge.link(path, target)
    image = forge.image()
    for target in ("/a", "/a/sub"):
        done = forge.srun(image, "true", edf=f'mounts = ["/tmp:{target}"]\n{way(name)}')
        block = ErrorBlock(done, "mount-destination", f"'{target}' in the image, where '/", words)
        assert "doctor" not in block.parts["hint"]


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("begin", ["", "../" * 40], ids=["absolute", "out of the root"])
def test_a_dev_that_is_a_link_leads_nobody_out_of_the_image(
    forge: Forge, shared: Path, name: str, begin: str
) -> None:
    """Crun opens /dev on the node, and makes its devices there."""
    (shared / "dev").mkdir()
    shutil.chown(shared / "dev", ALICE)
    forge.link("dev", begin + str(shared / "dev")[len(begin) and 1 :])
    done = forge.srun(
        forge.image(),
        "sh",
        "-c",
        "echo x >/dev/null; test -d /dev/shm; ls /dev/pts/ptmx",
        edf=way(name),
    )
    assert (done.returncode, done.stdout) == (0, "/dev/pts/ptmx\n"), done.stderr
    assert list((shared / "dev").iterdir()) == []


def test_a_file_at_dev_is_blamed_on_the_image(forge: Forge) -> None:
    shutil.rmtree(forge.root / "dev", ignore_errors=True)
    (forge.root / "dev").touch()
    done = forge.srun(forge.image(), "true")
    ErrorBlock(done, "image-path", "'/dev' in the image is not a directory: Not a directory")


def test_a_home_that_leads_nowhere_is_an_error_that_names_the_link(forge: Forge) -> None:
    forge.link("home", "etc/passwd")
    done = forge.srun(forge.image(), "true", edf='env.HOME = "/home/me"\n')
    words = "cannot make the directory '/home/me' in the image, where '/home' is a link to"
    assert "doctor" not in ErrorBlock(done, "image-path", words).parts["hint"]


# ---- HOME ----------------------------------------------------------------------------------------

_LOOK = 'echo "$HOME"; cd "$HOME" && pwd -P && touch x && echo written'


@pytest.mark.parametrize("name", WAYS)
def test_a_home_below_a_dangling_link_is_made(linked: Forge, name: str) -> None:
    edf = f'env.HOME = "/home/me"\n{way(name)}'
    done = linked.srun(linked.image(), "sh", "-c", _LOOK, edf=edf)
    assert done.stdout.splitlines() == ["/home/me", "/var/home/me", "written"], done.stderr


def test_the_users_own_home_is_made_where_links_dangle(forge: Forge, cluster: Cluster) -> None:
    home = str(cluster.home())
    top = home.split("/")[1]
    forge.link(top, "not/there")
    done = forge.srun(forge.image(), "sh", "-c", _LOOK)
    assert done.stdout.splitlines() == [home, f"/not/there{home[len(top) + 1 :]}", "written"]


@pytest.mark.parametrize("name", WAYS)
def test_the_home_of_the_image_or_of_the_job_is_made(
    forge: Forge, cluster: Cluster, name: str
) -> None:
    image = forge.image()
    edf = cluster.edf(f'image = "{image}"\n{way(name)}', image=None)
    argv = ("-wn1", f"--environment={edf}", "sh", "-c", _LOOK)
    # the same plan, as from an answer of the first start
    for home in ("/not/here", "/nor/there", "/not/here"):
        done = cluster.srun(*argv, env={"HOME": home})
        assert done.stdout.splitlines() == [home, home, "written"], done.stderr
    done = cluster.srun(*argv, env={"HOME": "/dev/null"})
    assert done.stdout.splitlines() == ["/dev/null"]
    own = {"Env": ["PATH=/bin", "HOME=/of/image"]}
    done = forge.srun(forge.image(run=own), "sh", "-c", _LOOK, edf=way(name))
    assert done.stdout.splitlines() == ["/of/image", "/of/image", "written"], done.stderr


def test_a_home_is_there_in_a_read_only_root(forge: Forge) -> None:
    image = forge.image(run={"Env": ["PATH=/bin", "HOME=/of/image"]})
    done = forge.srun(image, "sh", "-c", 'ls -d "$HOME"', edf="writable = false\n")
    assert done.stdout == "/of/image\n", done.stderr


def test_a_job_without_home_has_that_of_the_user(cluster: Cluster, demo: str) -> None:
    home, look = str(cluster.home()), ("sh", "-c", _LOOK)
    for _again in range(2):
        done = cluster.srun("-wn1", "--export=NONE", f"--environment={demo}", *look)
        assert done.stdout.splitlines() == [home, home, "written"], done.stderr
    named = ("--container-name=x", f"--container-image={cluster.image('demo')}")
    steps = " ".join(
        f"srun --export={export} {' '.join(named)} sh -c 'echo \"$HOME\"';"
        for export in ("NONE", "ALL", "NONE", "ALL", "NONE")
    )
    done = cluster.run(["salloc", "-wn1", "sh", "-c", steps])
    assert done.stdout.split() == [home] * 5, done.stderr


def test_a_home_that_the_environment_removes_stays_unset(cluster: Cluster) -> None:
    edf = cluster.edf('env.HOME = ""\n')
    done = cluster.srun("-wn1", f"--environment={edf}", "sh", "-c", 'echo "${HOME-unset}"')
    assert done.stdout == "unset\n", done.stderr


# ---- the working directory -----------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("writable", ["true", "false"])
@pytest.mark.parametrize("workdir", ["/no/such/dir", "/a b/ü", "/bin/../opt/app/"])
def test_the_workdir_of_the_image_is_made(
    linked: Forge, name: str, writable: str, workdir: str
) -> None:
    image = linked.image(run={"Env": ["PATH=/bin"], "WorkingDir": workdir})
    edf = f"writable = {writable}\n{way(name)}"
    done = linked.srun(image, "sh", "-c", "pwd -P", edf=edf)
    real = "/var/opt/app" if "app" in workdir else workdir
    assert (done.stdout, done.returncode) == (f"{real}\n", 0), done.stderr


def test_each_way_to_start_finds_the_workdir_of_the_image(cluster: Cluster, forge: Forge) -> None:
    begin = ["sh", "-c", 'pwd > /began; exec "$@"', "sh"]
    own = {"Env": ["PATH=/bin"], "WorkingDir": "/no/such", "Entrypoint": begin}
    image = forge.image(run=own)
    edf = cluster.edf(f'image = "{image}"\nentrypoint = true\n', image=None)
    runs: list[Completed] = [
        cluster.srun("-wn1", f"--container-image={image}", "pwd"),
        cluster.srun("-wn1", f"--container-image={image}", "--container-name=x", "pwd"),
        cluster.run([str(cluster.prefix / "bin/ce"), "run", edf, "--", "pwd"]),
        cluster.srun("-wn1", f"--environment={edf}", "cat", "/began"),
    ]
    assert [done.stdout for done in runs] == ["/no/such\n"] * 4, [done.stderr for done in runs]


def test_a_missing_workdir_is_an_error_that_says_whose_it_is(
    cluster: Cluster, forge: Forge, shared: Path
) -> None:
    plain = forge.image()
    done = forge.srun(plain, "true", edf='workdir = "/nowhere"\n')
    ErrorBlock(done, "workdir-missing", ".toml:2: workdir '/nowhere'")
    done = cluster.srun(
        "-wn1", f"--container-image={plain}", "--container-workdir=/nowhere", "true"
    )
    ErrorBlock(done, "workdir-missing", "--container-workdir: workdir '/nowhere'")
    # a mount hides it
    hidden = forge.image(run={"Env": ["PATH=/bin"], "WorkingDir": "/a/b"})
    done = forge.srun(hidden, "true", edf=f'mounts = ["{shared}:/a"]\n')
    block = ErrorBlock(done, "workdir-missing", "the image: workdir '/a/b'")
    assert "a mount hides it" in block.parts["hint"]
    assert os.listdir(shared).count("b") == 0


def test_a_file_at_the_workdir_of_the_image_is_an_error(forge: Forge) -> None:
    image = forge.image(run={"Env": ["PATH=/bin"], "WorkingDir": "/etc/passwd"})
    done = forge.srun(image, "true")
    block = ErrorBlock(done, "workdir-missing", "the image: workdir '/etc/passwd'")
    assert block.parts["hint"].startswith("it leads to a file: ")
    image = forge.image(run={"Env": ["PATH=/bin"], "WorkingDir": "/etc/passwd/x"})
    words = "cannot make the directory '/etc/passwd/x' in the image: Not a directory"
    ErrorBlock(forge.srun(image, "true"), "image-path", words)


@pytest.mark.parametrize("name", WAYS)
def test_a_mount_that_would_hide_another_one_behind_a_link_is_refused(
    forge: Forge, shared: Path, name: str
) -> None:
    """A runtime mounts by the depth of what is written, and /data/x is the deeper place."""
    (shared / "f").write_text("f\n")
    forge.link("data", "scratch/deep")
    image = forge.image()
    mounts = [f"{shared}:/data/x", "tmpfs:/scratch/deep"]
    done = forge.srun(image, "ls", "/data/x", edf=f"mounts = {mounts}\n{way(name)}")
    hidden = "'/data/x', which is '/scratch/deep/x' in the image"
    ErrorBlock(
        done, "mount-destination", f"the mount on '/scratch/deep' would hide the one on {hidden}"
    )
    for written, other in (("/scratch/deep/x", "/scratch/deep"), ("/data/x", "/scratch")):
        mounts = [f"{shared}:{written}", f"tmpfs:{other}", f"{shared}:/a:ro"]
        done = forge.srun(image, "cat", "/scratch/deep/x/f", edf=f"mounts = {mounts}\n{way(name)}")
        assert done.stdout == "f\n", done.stderr


@pytest.mark.parametrize("name", WAYS)
def test_a_step_that_joins_has_what_a_first_one_has(
    forge: Forge, cluster: Cluster, shared: Path, name: str
) -> None:
    """Its HOME is made, but not in a mount, and a missing workdir gets the same words."""
    forge.link("dangling", "far/away")
    text = f'image = "{forge.image()}"\nmounts = ["{shared}:/mine"]\n{way(name)}'
    edf = cluster.edf(text, image=None)

    def with_home(home: str) -> str:
        return cluster.edf(f'{text}[env]\nHOME = "{home}"\n', image=None)

    srun = "srun -n1 --overlap --container-name=h"
    script = (
        f"{srun} --environment={edf} sh -c "
        "'touch /mine/up; until [ -e /mine/over ]; do sleep 0.1; done' &\n"
        f"until [ -e {shared}/up ]; do sleep 0.1; done\n"
        f"{srun} --environment={with_home('/dangling/me')} sh -c 'cd && pwd -P && echo x > x'\n"
        f"{srun} --environment={with_home('/mine/me')} sh -c 'ls -d /mine/me || echo none'\n"
        f"{srun} --environment={with_home('/bin/sh/me')} true || echo $?\n"
        f"{srun} --environment={edf} --container-workdir=/nowhere true || echo $?\n"
        f"touch {shared}/over; wait %1\n"
    )
    done = cluster.run(["salloc", "--quiet", "-N1", "-wn1", "sh", "-ec", script], timeout=120)
    assert done.stdout.split() == ["/far/away/me", "none", "125", "125"], done.stderr
    first, second = (line for line in done.stderr.splitlines() if line.startswith("ce: error: "))
    assert "cannot make the directory '/bin/sh/me' in the image" in first
    assert "--container-workdir: workdir '/nowhere': cannot change to it in the container" in second


# ---- scripts that only root can reach ---------------------------------------------------------


def test_a_script_below_a_directory_without_x_is_named_with_it(
    cluster: Cluster, forge: Forge
) -> None:
    forge.put("nix/store/x", "#!/bin/sh\necho nix\n")
    (forge.root / "nix/store/x").chmod(0o755)
    for path in ("nix/store", "nix"):
        (forge.root / path).chmod(0o644)
    image = forge.image()
    words = "the directory '/nix' on the way has no x for you"
    done = forge.srun(image, "/nix/store/x")
    block = ErrorBlock(done, "command-not-executable", "/nix/store/x: ", words)
    assert "com.ce.root_remap" in block.parts["hint"]
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    done = cluster.run([str(cluster.prefix / "bin/ce"), "run", edf, "--", "/nix/store/x"])
    assert done.returncode == 126, done.stderr
    assert words in done.stderr
    root = '[annotations]\ncom.ce.root_remap = "true"\n'
    assert forge.srun(image, "/nix/store/x", edf=root).stdout == "nix\n"
