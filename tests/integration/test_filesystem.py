"""Files that a command sees: the image, mounts of all kinds, devices."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine import ALICE, Engine

ODD_NAMES = [
    "plain",
    "two words",
    " leading and trailing ",
    "co,mma",
    'dou"ble',
    "sin'gle",
    "back\\slash",
    "new\nline",
    "tab\t",
    "ümläut-日本",
    "$HOME",
    "`id`",
    "-dash",
    "equals=sign",
    "semi;colon&|<>*?[x]{a,b}~#!%s",
    "type=tmpfs,destination=etc",
]


def toml(text: str) -> str:
    """Return a TOML string in which variables are escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("`", "$`")
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


def mounts(*entries: str) -> str:
    return f"mounts = [{', '.join(map(toml, entries))}]"


def make_file(path: Path, text: str, engine: Engine) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for made in (path, path.parent):
        os.chown(made, engine.user.uid, engine.user.gid)
    return path


# ---- the image -------------------------------------------------------------------------------


def test_the_root_is_the_images_and_not_the_hosts(engine: Engine) -> None:
    assert "ID=ce-busybox" in engine.output(engine.edf(), "cat", "/etc/os-release")


def test_an_image_without_tmp_has_one(engine: Engine) -> None:
    root, image = engine.scratch / "root", engine.scratch / "no-tmp.sqsh"
    argv = ["unsquashfs", "-q", "-n", "-d", str(root), str(engine.image("busybox"))]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root / "tmp")
    argv = ["mksquashfs", str(root), str(image), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    for more in ("", "writable = false"):
        assert engine.output(engine.edf(more, image), "mktemp").startswith("/tmp/")


def test_what_a_command_writes_is_gone_with_the_container(engine: Engine) -> None:
    script = "echo x > /new && cat /new && rm /etc/os-release && ls /etc/os-release"
    assert engine.run(engine.edf(), "sh", "-c", script).stdout == "x\n"
    assert engine.run(engine.edf(), "cat", "/new").returncode == 1
    assert "ID=" in engine.output(engine.edf(), "cat", "/etc/os-release")


def test_a_read_only_container_still_has_its_mounts_writable(engine: Engine) -> None:
    file = make_file(engine.scratch / "d" / "f", "old\n", engine)
    edf = engine.edf(f"writable = false\n{mounts(f'{file.parent}:/mine')}")
    assert engine.output(edf, "sh", "-c", "echo new > /mine/f; cat /mine/f") == "new\n"
    assert file.read_text() == "new\n"


def test_setuid_files_of_the_image_give_nothing(engine: Engine) -> None:
    edf = engine.edf(image="setuid")
    script = "(exec -a id /bin/id-setuid -u); (exec -a id /bin/id-setgid -g)"
    printed = engine.output(edf, "sh", "-c", script).split()
    assert printed == [str(engine.user.uid), str(engine.user.gid)]


def test_the_user_has_a_name_a_home_and_the_own_groups(engine: Engine) -> None:
    script = 'id -u; id -g; id -un; id -gn; cd "$HOME" && pwd'
    uid, gid, name, group, home = engine.output(engine.edf(), "sh", "-c", script).split()
    assert (uid, gid) == (str(engine.user.uid), str(engine.user.gid))
    assert (name, group) == (ALICE, ALICE)
    assert home == str(engine.user.home)


def test_somebody_without_name_or_subordinate_ids_is_served_too(stranger: Engine) -> None:
    uid = str(stranger.user.uid)
    for file in ("/etc/passwd", "/etc/subuid"):
        text = Path(file).read_text() if Path(file).exists() else ""
        assert uid not in text
    script = "id -u; id -g; touch /new && ls -nd /new | awk '{print $3}'"
    printed = stranger.output(stranger.edf(), "sh", "-c", script)
    assert printed.split() == [uid, str(stranger.user.gid), uid]


def test_files_made_on_a_mount_are_the_users(engine: Engine) -> None:
    file = make_file(engine.scratch / "d" / "f", "", engine)
    engine.output(engine.edf(mounts(f"{file.parent}:/mine")), "touch", "/mine/new")
    status = (file.parent / "new").stat()
    assert (status.st_uid, status.st_gid) == (engine.user.uid, engine.user.gid)


def test_proc_is_the_hosts(engine: Engine) -> None:
    with engine.start(engine.edf(), "sh", "-c", "echo $$; cat /proc/$$/stat") as process:
        out, _err = process.communicate()
    inside, stat = out.split()[:2]
    assert inside == stat == str(process.pid)


# ---- bind mounts -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_can_be_mounted(engine: Engine, name: str) -> None:
    file = make_file(engine.scratch / "source" / name, name, engine)
    edf = engine.edf(mounts(f"{file}:/mnt/file {name}", f"{file.parent}:/mnt/dir {name}"))
    script = 'cat "$1"; echo; cat "$2"'
    printed = engine.output(
        edf, "sh", "-c", script, "sh", f"/mnt/file {name}", f"/mnt/dir {name}/{name}"
    )
    assert printed == f"{name}\n{name}"


def test_a_colon_in_a_name_is_escaped(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "a:b", "text", engine)
    edf = engine.edf(mounts(str(file).replace(":", "\\:") + ":/x\\:y"))
    assert engine.output(edf, "cat", "/x:y") == "text"


def test_a_single_path_is_mounted_at_itself(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    assert engine.output(engine.edf(mounts(str(file.parent))), "cat", str(file)) == "text"


def test_destinations_are_made(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    edf = engine.edf(mounts(f"{file}:/not/there/yet", f"{file.parent}:/nor/this/"))
    assert engine.output(edf, "cat", "/not/there/yet", "/nor/this/f") == "texttext"


def test_a_read_only_mount_cannot_be_written(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    edf = engine.edf(mounts(f"{file.parent}:/mine:ro"))
    done = engine.run(edf, "sh", "-c", "echo x > /mine/f")
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
    assert file.read_text() == "text"


@pytest.mark.parametrize("flag", ["nosuid", "nodev", "noexec"])
def test_mount_flags_hold(engine: Engine, flag: str) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    edf = engine.edf(mounts(f"{file.parent}:/mine:{flag}"))
    options = engine.output(edf, "grep", " /mine ", "/proc/self/mountinfo").split()[5]
    assert flag in options.split(",")


@pytest.mark.parametrize(
    ("flag", "kinds"),
    [
        ("private", [set()]),
        # If the node's own mount is private, it cannot become a slave.
        ("slave", [set(), {"master"}]),
        ("rslave", [set(), {"master"}]),
        ("shared", [{"shared"}, {"shared", "master"}]),
        ("unbindable", [{"unbindable"}]),
    ],
)
def test_every_propagation_is_had(engine: Engine, flag: str, kinds: list[set[str]]) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    edf = engine.edf(mounts(f"{file.parent}:/mine:{flag}"))
    assert engine.output(edf, "cat", "/mine/f") == "text"
    fields = engine.output(edf, "grep", " /mine ", "/proc/self/mountinfo").split()
    assert {field.partition(":")[0] for field in fields[6 : fields.index("-")]} in kinds


@pytest.fixture
def mountpoint(engine: Engine) -> Iterator[Path]:
    """Yield a directory with a file system mounted below it at `sub`."""
    top = engine.scratch / "top"
    (top / "sub").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "x", str(top / "sub")], check=True)
    (top / "sub" / "f").write_text("below")
    try:
        yield top
    finally:
        subprocess.run(["umount", "-R", str(top / "sub")], check=True)


def test_what_is_mounted_below_a_source_comes_along(engine: Engine, mountpoint: Path) -> None:
    edf = engine.edf(mounts(f"{mountpoint}:/mine"))
    assert engine.output(edf, "cat", "/mine/sub/f") == "below"


@pytest.mark.parametrize("way", ["crun", "podman"])
@pytest.mark.parametrize("flags", ["ro", "ro+bind"])
def test_what_is_mounted_below_a_read_only_source_cannot_be_written(
    engine: Engine, mountpoint: Path, flags: str, way: str
) -> None:
    (mountpoint / "sub").chmod(0o777)
    (mountpoint / "sub" / "f").chmod(0o666)
    edf = engine.edf(mounts(f"{mountpoint}:/mine:{flags}"))
    engine = engine.with_site(f'start = "{way}"\n')
    done = engine.run(edf, "sh", "-c", "echo x > /mine/sub/f; echo y > /mine/sub/g")
    assert done.returncode == 1
    assert done.stderr.count("Read-only file system") == 2
    assert [file.read_text() for file in (mountpoint / "sub").iterdir()] == ["below"]


@pytest.mark.parametrize("flags", ["rw", "ro"])
def test_what_the_host_mounts_later_appears(engine: Engine, mountpoint: Path, flags: str) -> None:
    edf = engine.edf(mounts(f"{mountpoint}:/mine:{flags}"))
    script = "echo ready; read answer; cat /mine/sub/later/f"
    with engine.start(edf, "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        later = mountpoint / "sub" / "later"
        later.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "x", str(later)], check=True)
        (later / "f").write_text("later")
        out, err = process.communicate("go\n", 20)
    assert (out, err) == ("later", "")


@pytest.mark.parametrize("flags", ["rw", "ro"])
@pytest.mark.parametrize("place", ["in", "new"])
def test_a_later_mount_lies_in_an_earlier_one(engine: Engine, place: str, flags: str) -> None:
    outer = make_file(engine.scratch / "outer" / "f", "outer", engine)
    (outer.parent / "in").mkdir()
    inner = make_file(engine.scratch / "inner" / "f", "inner", engine)
    edf = engine.edf(mounts(f"{outer.parent}:/m:{flags}", f"{inner.parent}:/m/{place}"))
    assert engine.output(edf, "cat", "/m/f", f"/m/{place}/f") == "outerinner"


def test_missing_sources_are_all_named(engine: Engine) -> None:
    edf = engine.edf(mounts("/no/such/a:/a", "/no/such/b:/b"))
    done = engine.run(edf, "echo", "it ran")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.splitlines()[:2] == [
        f"ce: error: {edf}:2: mount source '/no/such/a': does not exist",
        f"ce: also: {edf}:2: mount source '/no/such/b': does not exist",
    ]


@pytest.mark.parametrize("way", ["crun", "podman"])
def test_a_node_that_has_no_files_of_hosts_names_has_containers(engine: Engine, way: str) -> None:
    without = engine.scratch / "etc"
    ignored = shutil.ignore_patterns("hosts", "resolv.conf")
    shutil.copytree("/etc", without, symlinks=True, ignore=ignored)
    edf = engine.edf()
    argv = engine.with_site(f'start = "{way}"\n').argv(
        *(edf, "sh", "-c", "cat /etc/hosts && cat /etc/resolv.conf && echo end")
    )
    script = f'mount --bind "{without}" /etc && exec setpriv --init-groups "$@"'
    ids = [f"--reuid={engine.user.uid}", f"--regid={engine.user.gid}"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *ids, *argv],
        env=engine.environment(),
        cwd=engine.scratch,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = "127.0.0.1 localhost\n::1 localhost\nend\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_link_in_the_image_does_not_lead_a_mount_out_of_it(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "f", "text", engine)
    target = engine.scratch / "outside"
    target.mkdir()
    edf = engine.edf(mounts(f"{file}:/../../..{target}/f"))
    engine.output(edf, "true")
    assert list(target.iterdir()) == []


# ---- SquashFS and tmpfs ----------------------------------------------------------------------


def make_squashfs(path: Path, engine: Engine) -> Path:
    tree = engine.scratch / "tree"
    make_file(tree / "f", "packed", engine)
    argv = ["mksquashfs", str(tree), str(path), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return path


@pytest.mark.parametrize("name", ["plain.sqsh", "odd, name=\"x\" 'y'.sqsh", "no suffix"])
def test_a_squashfs_file_is_mounted(engine: Engine, name: str) -> None:
    file = make_squashfs(engine.scratch / name, engine)
    edf = engine.edf(mounts(f"{file}:/packed:sqsh"))
    assert engine.output(edf, "cat", "/packed/f") == "packed"
    done = engine.run(edf, "touch", "/packed/new")
    assert "Read-only file system" in done.stderr


def test_several_squashfs_files_are_mounted(engine: Engine) -> None:
    file = make_squashfs(engine.scratch / "x.sqsh", engine)
    edf = engine.edf(mounts(*(f"{file}:/packed/{n}:sqsh" for n in range(5))))
    assert engine.output(edf, "sh", "-c", "cat /packed/*/f") == "packed" * 5


def test_a_squashfs_file_that_is_none_is_refused(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "x.sqsh", "text" * 100, engine)
    message = engine.refusal(engine.edf(mounts(f"{file}:/packed:sqsh")))
    assert str(file) in message
    assert "not a SquashFS file" in message


def test_a_damaged_image_is_refused_and_not_waited_for(engine: Engine) -> None:
    image = engine.scratch / "damaged.sqsh"
    content = bytearray(engine.image("busybox").read_bytes())
    content[96:-1] = bytes(len(content) - 97)
    image.write_bytes(content)
    message = engine.refusal(engine.edf(image=image))
    assert f"{image.name}: its tables cannot be read" in message


@pytest.mark.parametrize("kind", ["passwd", "group"])
def test_an_image_with_a_fifo_where_names_stand_is_refused(engine: Engine, kind: str) -> None:
    tree = engine.scratch / "tree"
    (tree / "etc").mkdir(parents=True)
    os.mkfifo(tree / "etc" / kind)
    image = engine.scratch / "fifo.sqsh"
    argv = ["mksquashfs", str(tree), str(image), "-quiet", "-no-progress", "-all-root"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    message = engine.refusal(engine.edf(image=image))
    assert f"/etc/{kind}" in message


def test_an_image_with_a_space_and_quotes_in_its_name_works(engine: Engine) -> None:
    image = engine.scratch / "my, \"own\" 'image'.sqsh"
    shutil.copy(engine.image("busybox"), image)
    edf = engine.scratch / "e.toml"
    edf.write_text(f"image = {toml(str(image))}\n")
    assert engine.output(edf, "echo", "works") == "works\n"


def test_a_tmpfs_has_the_size_and_mode_it_was_given(engine: Engine) -> None:
    edf = engine.edf(mounts("tmpfs:/t:size=1M+mode=0700"))
    script = "stat -c %a /t; df -k /t | tail -1 | awk '{print $2}'; echo x > /t/f && cat /t/f"
    assert engine.output(edf, "sh", "-c", script).split() == ["700", "1024", "x"]


def test_a_full_tmpfs_is_full(engine: Engine) -> None:
    edf = engine.edf(mounts("tmpfs:/t:size=1M"))
    script = "head -c 2000000 /dev/zero 2>/dev/null > /t/f || stat -c %s /t/f"
    assert engine.output(edf, "sh", "-c", script) == f"{1024 * 1024}\n"


# ---- devices ---------------------------------------------------------------------------------


def make_device(engine: Engine, name: str) -> Path:
    """Create another /dev/zero that everybody may read."""
    path = engine.scratch / name
    os.mknod(path, 0o020666, os.makedev(1, 5))
    path.chmod(0o666)
    return path


@pytest.mark.parametrize("name", ["dev0", "dev 1", "dev,2"])
def test_a_device_appears_at_its_path(engine: Engine, name: str) -> None:
    path = make_device(engine, name)
    edf = engine.edf(f"devices = [{toml(str(path))}]")
    script = 'test -c "$1" && head -c 3 "$1" | od -An -c'
    assert engine.output(edf, "sh", "-c", script, "sh", str(path)).split() == ["\\0"] * 3


def test_a_device_that_is_none_is_refused(engine: Engine) -> None:
    file = make_file(engine.scratch / "source" / "f", "", engine)
    assert f"device '{file}': is not a device" in engine.refusal(
        engine.edf(f'devices = ["{file}"]')
    )
    assert "device '/dev/no-such': does not exist" in engine.refusal(
        engine.edf('devices = ["/dev/no-such"]')
    )


@pytest.fixture
def cdi_spec(engine: Engine) -> Iterator[Path]:
    """Yield a file that defines the CDI kind `example.com/thing` with one device, `one`."""
    device = make_device(engine, "cdi-device")
    spec = Path("/etc/cdi/container-engine-test.yaml")
    existed = spec.parent.is_dir()
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(
        "cdiVersion: 0.5.0\nkind: example.com/thing\n"
        "containerEdits:\n  env: [CE_CDI_KIND=all]\n"
        "devices:\n- name: one\n  containerEdits:\n"
        f"    deviceNodes: [{{path: {device}, type: c, major: 1, minor: 5}}]\n"
        "    env: ['CE_CDI_DEVICE=a=b c']\n"
    )
    try:
        yield spec
    finally:
        spec.unlink()
        if not existed:
            spec.parent.rmdir()


@pytest.mark.usefixtures("cdi_spec")
def test_a_cdi_device_comes_with_its_environment(engine: Engine) -> None:
    edf = engine.edf('devices = ["example.com/thing=one"]')
    script = f'test -c {engine.scratch}/cdi-device && echo "$CE_CDI_KIND|$CE_CDI_DEVICE"'
    assert engine.output(edf, "sh", "-c", script) == "all|a=b c\n"


@pytest.mark.usefixtures("cdi_spec")
def test_the_edf_overrides_what_a_cdi_device_sets(engine: Engine) -> None:
    edf = engine.edf(
        'devices = ["example.com/thing=one"]\n[env]\nCE_CDI_KIND = "mine"\nCE_CDI_DEVICE = ""'
    )
    script = 'echo "$CE_CDI_KIND|${CE_CDI_DEVICE-unset}"'
    assert engine.output(edf, "sh", "-c", script) == "mine|unset\n"


def test_a_cdi_device_that_is_not_known_is_named(engine: Engine) -> None:
    message = engine.refusal(engine.edf('devices = ["example.com/none=one"]'))
    assert "example.com/none=one" in message
