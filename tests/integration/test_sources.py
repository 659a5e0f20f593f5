"""Images made from what this host has: files, directories, Podman's images, Containerfiles."""

import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.integration.engine import ALICE, Engine
from tests.integration.importing import Importing
from tests.integration.leftovers import command_line, processes, until
from tests.integration.registry import RUN, listing
from tests.unit import squashfs
from tests.unit.images import oci
from tests.unit.images.oci import Member

_CONTAINERFILE = """\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
ARG TEXT=none
RUN mkdir -p /data && echo $TEXT > /data/f && chown 1234:1234 /data/f && chgrp 42 /data
ENV MADE=here
WORKDIR /data
"""


def make_tree(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_text("#!/bin/sh\n")
    os.link(root / "bin/tool", root / "bin/other")
    (root / "link").symlink_to("bin/tool")
    return root


def test_a_directory_is_an_image_with_a_name(me: Importing) -> None:
    path = me.path("import", str(make_tree(me.root / "My Tools")))
    assert listing(path) == {"/bin", "/bin/tool", "/bin/other", "/link", "->", "bin/tool"} - {
        "->",
        "bin/tool",
    }
    found = me.launched("localhost/my-tools")
    assert found["path"] == path
    assert found["env"] == {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def test_an_unchanged_directory_makes_the_same_image(me: Importing) -> None:
    tree = make_tree(me.root / "tree")
    first = me.path("import", "-q", str(tree), "tools:1")
    assert me.path("import", "-q", str(tree), "tools:2") == first
    (tree / "new").touch()
    assert me.path("import", "-q", str(tree), "tools:2") != first
    assert me.launched("tools:1")["path"] == first


def test_a_directory_with_a_file_that_cannot_be_read_makes_no_image(engine: Engine) -> None:
    tree = make_tree(engine.scratch / "tree")
    (tree / "secret").touch(mode=0o600)
    argv = [str(engine.prefix / "bin/ce"), "import", str(tree)]
    with engine.popen(argv, {"EDF_IMAGESTORE": str(engine.scratch / "store")}) as process:
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Failed to read file {tree}/secret" in err
    assert not list(engine.scratch.glob("store/images/*"))


@pytest.mark.parametrize(
    ("where", "when"), [("", -1), ("bin", -(2**33)), ("bin/tool", -5), ("link", 2**32)]
)
@pytest.mark.parametrize("verb", ["import", "pack"])
def test_a_time_that_an_image_cannot_have_is_refused(
    me: Importing, verb: str, where: str, when: int
) -> None:
    """mksquashfs would write 2106 for 1969, which a build of the packed files would believe."""
    tree, file = make_tree(me.root / "tree"), me.root / "tree.sqsh"
    path = tree / where
    os.utime(path, (0, when), follow_symlinks=False)
    words = (str(tree),) if verb == "import" else (str(tree), str(file))
    lines = me.refusal(verb, *words).splitlines()
    # a hard link is found by either name
    named = [path, tree / "bin/other"] if where == "bin/tool" else [path]
    text = "its time is before 1970 or after 2106, which an image cannot have"
    assert lines[0] in [f"'{one}'".replace(f"{tree}/'", f"{tree}'") + f": {text}" for one in named]
    assert not file.exists()
    os.utime(path, (0, 0), follow_symlinks=False)
    assert me.path(verb, "-q", *words)


def test_a_squashfs_file_comes_with_what_lies_beside_it(me: Importing) -> None:
    file = squashfs.make(me.root / "Tools.sqsh", {"bin/x": "x"})
    (me.root / "Tools.sqsh.json").write_text(json.dumps({"config": RUN}))
    path = me.path("import", str(file))
    file.unlink()
    found = me.launched("localhost/tools")
    assert (found["path"], found["workdir"]) == (path, "/w")
    assert found["env"] == {"PATH": "/opt/bin", "FROM": "image"}


@pytest.mark.parametrize("kind", ["squashfs", "archive"])
@pytest.mark.parametrize("how", ["replaced", "written"])
def test_a_file_that_changes_while_it_is_imported_makes_no_image(
    me: Importing, kind: str, how: str
) -> None:
    file, other = me.root / "tools", me.root / "other"
    for path in (file, other):
        if kind == "archive":
            path.write_bytes(oci.layer([Member("f", bytes(300 << 20))]))
        else:
            squashfs.make(path, {"f": path.name})
            os.truncate(path, 300 << 20)

    def change() -> None:
        while not list(me.store.glob("work/*/image")):
            time.sleep(0.001)
        if how == "replaced":
            other.rename(file)
            return
        with open(file, "r+b") as written:
            written.seek(-1, os.SEEK_END)
            written.write(b"x")

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    assert f"'{file}': changed while it was read\n" in me.refusal("import", str(file))
    changing.join()
    assert not list(me.store.glob("images/*"))


def test_a_damaged_squashfs_file_is_refused(me: Importing) -> None:
    file = squashfs.make(me.root / "t.sqsh", {f"directory{n}/file{n}": "x" for n in range(500)})
    data = bytearray(file.read_bytes())
    file.write_bytes(data[:200])
    assert me.refusal("import", str(file)).startswith(f"'{file}': cut short, it has 200 bytes of ")
    at = int.from_bytes(data[64:72], "little")  # the inode table
    data[at + 2 : at + 200] = b"\xff" * 198
    file.write_bytes(data)
    assert me.refusal("import", str(file)).startswith(f"'{file}': damaged: ")
    (me.root / "t.sqsh.json").write_text('{"config": 1}')
    squashfs.make(file, {"f": "x"})
    assert f"{file}.json: config: " in me.refusal("import", str(file))
    (me.root / "t.sqsh.json").write_text('{"architecture": "s390x"}')
    assert ": made for s390x, " in me.refusal("import", str(file))
    assert not list(me.store.glob("images/*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["./no"], "no such file or directory"),
        (["./t", "Tools"], "upper-case letters"),
        (["./t", f"x@sha256:{'0' * 64}"], "a digest follows from the content"),
        (["./t", "./x"], "a path, not the name of an image"),
        (["ubuntu:24.04", "x"], "an image of a registry and a NAME do not go together"),
        (["oci:/no"], "no such file or directory"),
        (["podman://no/such"], "image not known"),
    ],
)
def test_what_cannot_be_imported_is_said(me: Importing, words: list[str], message: str) -> None:
    make_tree(me.root / "t")
    assert message in me.refusal("import", *words)


def test_a_name_without_a_path_that_is_a_directory_here_gets_a_hint(me: Importing) -> None:
    make_tree(me.root / "docs")
    assert "ce: hint: did you mean './docs'?" in me.refusal("import", "docs")


def test_a_layout_as_skopeo_copies_it_is_imported_under_its_name(me: Importing) -> None:
    (me.root / "i").mkdir()
    source = f"oci:{oci.layout(me.root / 'i', [[Member('a')]], RUN)}:latest"
    copied = me.root / "copied"
    argv = ["skopeo", "copy", "-q", source, f"dir:{copied}"]
    subprocess.run(argv, check=True)
    path = me.path("import", f"dir:{copied}")
    assert listing(path) == {"/a"}
    assert me.launched("localhost/copied:latest")["path"] == path
    assert me.path("import", source, "mine:1") != ""
    assert me.launched("mine:1")["workdir"] == "/w"


def test_what_is_from_here_is_not_looked_up_in_a_registry(me: Importing) -> None:
    path = me.path("import", str(make_tree(me.root / "t")), "tools")
    assert main(["pull", "tools"]) == 0
    assert me.said().startswith(f"{path}\nce: tools: from this host (dir:{me.root}/t); no registry")
    for pull in ("always", "age"):
        assert me.launched("tools", "--pull", pull)["path"] == path


# ---- ce pack ---------------------------------------------------------------------------------


def test_a_packed_directory_appears_whole_or_not_at_all(me: Importing) -> None:
    tree, file = make_tree(me.root / "data"), me.root / "data.sqsh"
    assert me.path("pack", str(tree), str(file)) == str(file)
    assert "/bin/tool" in listing(str(file))
    before = file.read_bytes()
    assert me.refusal("pack", str(tree), str(file)) == (
        f"'{file}': exists\nce: hint: --force replaces it\n"
    )
    shutil.rmtree(tree)
    assert me.refusal("pack", "--force", str(tree), str(file)) == f"'{tree}': no such directory\n"
    assert file.read_bytes() == before
    assert [path.name for path in me.root.glob("*data*")] == ["data.sqsh"]
    assert "is in the directory" in me.refusal("pack", str(me.root), str(me.root / "x.sqsh"))


@pytest.mark.parametrize("kind", ["pack", "import", "layers"])
def test_a_file_that_appears_meanwhile_is_not_replaced(
    me: Importing, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tree, file, programs = make_tree(me.root / "t"), me.root / "mine.sqsh", me.root / "programs"
    programs.mkdir()
    for program in ("mksquashfs", "tar2sqfs"):
        text = f'#!/bin/sh\necho mine > {file}\nexec {shutil.which(program)} "$@"\n'
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (me.root / "i").mkdir()
    layers = f"oci:{oci.layout(me.root / 'i', [[Member('a')]], RUN)}:latest"
    words = {
        "pack": ("pack", str(tree), str(file)),
        "import": ("import", "-q", "-o", str(file), str(tree)),
        "layers": ("import", "-q", "-o", str(file), layers),
    }[kind]
    assert me.refusal(*words) == f"'{file}': exists\nce: hint: --force replaces it\n"
    assert file.read_text() == "mine\n"
    assert [path.name for path in me.root.glob("*mine*")] == ["mine.sqsh"]
    me.path(words[0], "--force", *words[1:])
    assert file.read_bytes()[:4] == b"hsqs"


def test_a_file_is_packed_as_asked(me: Importing) -> None:
    tree, file = make_tree(me.root / "data"), me.root / "data.sqsh"
    me.path("pack", "--level", "19", "--block-size", "1M", str(tree), str(file))
    argv = ["unsquashfs", "-s", str(file)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "compression-level 19" in said
    assert "Block size 1048576" in said


def test_a_packed_directory_is_mounted_read_only(engine: Engine) -> None:
    tree = make_tree(engine.scratch / "data")
    file = engine.scratch / "data.sqsh"
    with engine.popen([str(engine.prefix / "bin/ce"), "pack", str(tree), str(file)]) as process:
        assert process.wait(60) == 0
    options = ["sqsh", "sqsh,ro", "ro+sqsh"]
    mounts = [f"{file}:/data{number}:{option}" for number, option in enumerate(options)]
    script = """for data in /data?; do
        cat $data/link; stat -c '%U %a' $data/bin; touch $data/new 2>&1 | grep -o 'Read.*'
    done"""
    assert engine.output(engine.edf(f"mounts = {mounts}"), "sh", "-c", script) == (
        f"#!/bin/sh\n{ALICE} 755\nRead-only file system\n" * 3
    )


def test_every_bad_file_to_mount_is_named_with_its_line(engine: Engine) -> None:
    contents = (b"", b"text", b"hsqs" + b"x" * 200)
    files = [engine.scratch / f"{number}.sqsh" for number in range(3)]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    lines = "".join(f'  "{file}:/{file.stem}:sqsh",\n' for file in files)
    edf = engine.edf(f"mounts = [\n{lines}]")
    causes = ("is not a SquashFS file", "is not a SquashFS file", "is cut short: it has 204 bytes")
    message = engine.run(edf, "true").stderr
    for line, (file, cause) in enumerate(zip(files, causes, strict=True), start=3):
        assert f"{edf}:{line}: mount source '{file}': {cause}" in message


# ---- Podman and Containerfiles ---------------------------------------------------------------


def context(engine: Engine) -> Path:
    where = engine.scratch / "recipe"
    where.mkdir()
    cat = ["unsquashfs", "-cat", str(engine.image("busybox")), "bin/busybox"]
    program = where / "busybox"
    program.write_bytes(subprocess.run(cat, capture_output=True, check=True).stdout)
    program.chmod(0o755)
    (where / "Containerfile").write_text(_CONTAINERFILE)
    subprocess.run(["chown", "-R", str(engine.user.uid), str(where)], check=True)
    return where


def finished(
    engine: Engine, *argv: str, temporary: str | None = None
) -> subprocess.CompletedProcess[str]:
    home = engine.scratch / "home"
    env = {"HOME": str(home), "TMPDIR": str(home / "t") if temporary is None else temporary}
    env["EDF_IMAGESTORE"] = str(engine.scratch / "store")
    if not home.exists():
        for directory in (home, home / "t"):
            directory.mkdir()
            os.chown(directory, engine.user.uid, engine.user.gid)
    with engine.popen(argv, env) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def forget_podman(engine: Engine) -> None:
    """Remove what Podman leaves in public places for its next run."""
    uid = engine.user.uid
    Path(f"/dev/shm/libpod_rootless_lock_{uid}").unlink(missing_ok=True)
    for name in (f"podman-run-{uid}", f"containers-user-{uid}", f"storage-run-{uid}"):
        shutil.rmtree(f"/tmp/{name}", ignore_errors=True)


def test_somebody_without_subordinate_ids_builds_an_image_once(stranger: Engine) -> None:
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    built = finished(stranger, ce, "build", "-t", "mine:1", str(where))
    assert built.returncode == 0, built.stderr
    path = Path(built.stdout.strip())
    assert {"/data/f", "/bin/sh"} <= listing(str(path))
    config = json.loads(path.with_name(f"{path.name}.json").read_text())["config"]
    assert (config["WorkingDir"], "MADE=here" in config["Env"]) == ("/data", True)
    again = finished(stranger, ce, "build", "-t", "mine:1", str(where))
    assert "nothing has changed since it was built" in again.stderr
    assert again.stdout == built.stdout
    changed = ("--build-arg", "TEXT=x", "-t", "mine:1")
    other = finished(stranger, ce, "build", "-q", *changed, str(where))
    assert (other.returncode, other.stderr) == (0, "")
    assert other.stdout != built.stdout
    forget_podman(stranger)


def test_a_build_is_repeated_if_what_a_name_stands_for_has_changed(stranger: Engine) -> None:
    """One is an argument without a value, the other a file beside a Containerfile elsewhere."""
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    recipe = stranger.scratch / "Containerfile"
    recipe.write_text(f"{_CONTAINERFILE}COPY . /all\n")
    for text, ignored in (("one", ""), ("two", ""), ("two", "data")):
        (where / "data").touch()
        recipe.with_name("Containerfile.dockerignore").write_text(f"{ignored}\n")
        words = ("-q", "--build-arg", "TEXT", "-f", str(recipe), "-t", "mine:1", str(where))
        done = finished(stranger, "env", f"TEXT={text}", ce, "build", *words)
        assert done.returncode == 0, done.stderr
        image = done.stdout.strip()
        said = subprocess.run(["unsquashfs", "-cat", image, "data/f"], capture_output=True)
        assert said.stdout.decode() == f"{text}\n"
        assert ("/all/data" in listing(image)) == (ignored == "")
    forget_podman(stranger)


def test_a_build_does_not_mind_that_the_host_gets_a_new_user(stranger: Engine) -> None:
    """Programs like useradd replace /etc/passwd, which takes away what is mounted over the file."""
    where, etc = context(stranger), stranger.scratch / "etc"
    shutil.copytree("/etc", etc, symlinks=True)
    person = ("--reuid", str(stranger.user.uid), "--regid", str(stranger.user.gid))
    build = ("setpriv", *person, "--clear-groups", stranger.prefix / "bin/ce", "build", str(where))
    (home := stranger.scratch / "home").mkdir()
    os.chown(home, stranger.user.uid, stranger.user.gid)
    own = {"HOME": str(home), "TMPDIR": str(home), "EDF_IMAGESTORE": str(home / "store")}
    with subprocess.Popen(
        ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc; exec "$@"', etc, *build),
        env=stranger.environment(own),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None:
            shutil.copy(etc / "passwd", etc / "passwd+")
            (etc / "passwd+").replace(etc / "passwd")
            time.sleep(0.02)
        assert process.stderr is not None
        said = process.stderr.read()
    forget_podman(stranger)
    assert process.returncode == 0, said


def test_a_build_begins_with_images_of_this_host(stranger: Engine) -> None:
    """One is a SquashFS file, the other an image that was built here and is in no registry."""
    where, ce = stranger.scratch / "recipe", str(stranger.prefix / "bin/ce")
    where.mkdir()
    shutil.copy(stranger.image("busybox"), where / "base.sqsh")
    recipe = where / "Containerfile"
    recipe.write_text("FROM ./base.sqsh\nENV MADE=here\nWORKDIR /data\nRUN echo one > f\n")
    subprocess.run(["chown", "-R", str(stranger.user.uid), str(where)], check=True)
    first = finished(stranger, ce, "build", "-q", "-t", "mine:1", str(where))
    assert first.returncode == 0, first.stderr
    recipe.write_text("FROM mine:1 AS base\nFROM base\nRUN test $MADE = here && cp f g\n")
    words = (ce, "build", "-t", "more:1", str(where))
    second = finished(stranger, *words)
    assert second.returncode == 0, second.stderr
    path = Path(second.stdout.splitlines()[-1])
    assert {"/data/f", "/data/g", "/bin/busybox"} <= listing(str(path))
    config = json.loads(path.with_name(f"{path.name}.json").read_text())["config"]
    assert (config["WorkingDir"], "MADE=here" in config["Env"]) == ("/data", True)
    assert "nothing has changed since it was built" in finished(stranger, *words).stderr
    # an image that is built under this name later is another base
    recipe.write_text("FROM ./base.sqsh\nENV MADE=there\n")
    assert finished(stranger, ce, "build", "-q", "-t", "mine:1", str(where)).returncode == 0
    recipe.write_text("FROM mine:1 AS base\nFROM base\nRUN test $MADE = here && cp f g\n")
    third = finished(stranger, *words, "--no-cache")
    forget_podman(stranger)
    assert third.returncode == 1
    assert "Containerfile:3: RUN test $MADE = here && cp f g: exit code 1" in third.stderr


def test_a_line_of_a_build_takes_files_from_images_of_this_host(stranger: Engine) -> None:
    where, ce = stranger.scratch / "recipe", str(stranger.prefix / "bin/ce")
    where.mkdir()
    shutil.copy(stranger.image("busybox"), where / "base.sqsh")
    lines = ("COPY --from=other:1 /data /d1", "RUN --mount=from=other:1,target=/m cat /m/data >/d2")
    for text in ("one", "two"):
        (where / "data").write_text(text)
        (where / "Containerfile").write_text("FROM scratch\nCOPY data /\n")
        subprocess.run(["chown", "-R", str(stranger.user.uid), str(where)], check=True)
        other = finished(stranger, ce, "build", "-q", "-t", "other:1", str(where))
        assert other.returncode == 0, other.stderr
        (where / "Containerfile").write_text("\n".join(("FROM ./base.sqsh", *lines, "")))
        done = finished(stranger, ce, "build", "-t", "mine:1", str(where))
        assert done.returncode == 0, done.stderr
        [image] = done.stdout.splitlines()
        for name in ("d1", "d2"):
            read = subprocess.run(
                ["unsquashfs", "-cat", image, name], check=True, capture_output=True, text=True
            )
            assert (name, read.stdout) == (name, text), done.stderr
    forget_podman(stranger)


@pytest.mark.parametrize("source", ["source=data,", "", "source=dir,", "from=first,source=/dir,"])
def test_a_step_is_repeated_when_what_it_has_mounted_has_changed(
    stranger: Engine, source: str
) -> None:
    """Podman reuses it (containers/buildah#5400 and #4522), even for another text or file."""
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    base = "FROM scratch\nCOPY busybox /bin/sh\n"
    end = f"RUN echo once >> /n\nRUN --mount={source}target=/m (cat /m || cat /m/data) > /made\n"
    text = f"{base.replace('scratch', 'scratch AS first')}COPY dir /dir\n{base}{end}"
    (where / "Containerfile").write_text(text)
    (where / "dir").mkdir()
    said = ""
    for content in ("one", "two", "two and more"):
        for file in ("data", "dir/data"):
            (where / file).write_text(content)
            # Podman 5 opens a file that it mounts for writing
            os.chown(where / file, stranger.user.uid, stranger.user.gid)
        done = finished(stranger, ce, "build", "-t", "mine:1", str(where))
        said = done.stderr
        assert done.returncode == 0, said
        read = ["unsquashfs", "-cat", done.stdout.strip(), "made"]
        made = subprocess.run(read, check=True, capture_output=True, text=True).stdout
        assert made == content, said
    forget_podman(stranger)
    assert "Using cache" in said.partition("RUN echo once >> /n\n")[2].split("STEP", 1)[0], said


def test_a_step_is_repeated_when_an_argument_in_it_has_another_value(stranger: Engine) -> None:
    """Podman reuses ENV, LABEL, WORKDIR and COPY lines (containers/buildah#2837)."""
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    lines = "ENV X=$V\nLABEL x=$V\nWORKDIR /w$V\nCOPY busybox /d$V\n"
    for text, other in (
        (f"FROM scratch\nARG V=0\n{lines}", "ARG V=0"),
        (f"ARG V=0\nFROM scratch\nARG V\n{lines}", "ARG V=3"),
    ):
        for words, value in (((), "0"), (("--build-arg=V=1",), "1"), (("--build-arg=V=2",), "2")):
            (where / "Containerfile").write_text(text)
            _assert_made_with(stranger, where, [ce, "build", *words], value)
        (where / "Containerfile").write_text(text.replace("ARG V=0", other))
        _assert_made_with(stranger, where, [ce, "build"], other[-1])
    forget_podman(stranger)


def _assert_made_with(engine: Engine, where: Path, build: list[str], value: str) -> None:
    done = finished(engine, *build, "-t", "mine:1", str(where))
    assert done.returncode == 0, done.stderr
    document = json.loads(Path(f"{done.stdout.strip()}.json").read_text())
    config = document["config"]
    assert ([one for one in config["Env"] if "PATH" not in one], config["Labels"]["x"]) == (
        [f"X={value}"],
        value,
    ), done.stderr
    assert "CE_INPUTS" not in json.dumps(document)
    made = {f"/w{value}", f"/d{value}"}
    assert {name for name in listing(done.stdout.strip()) if name[1] in "dw"} == made


@pytest.mark.parametrize(
    ("ignores", "seen"),
    [
        ("*\n!**/*.py\n", {"/a.py", "/d/a.py", "/d/e/*f/b.py"}),
        ("**\n!d/**/b.*\nd/x\n", {"/d/e/*f/b.py"}),
        ("*\n!d\n**/*.py\n", {"/d/x/c"}),
    ],
)
def test_what_is_excepted_from_a_dockerignore_is_copied(
    stranger: Engine, ignores: str, seen: set[str]
) -> None:
    """Podman leaves out ignored directories if no exception begins with their path."""
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    files = ("a.py", "d/a.py", "d/x/c", "d/e/*f/b.py", "[e]/g.txt")
    for path in (where / "src" / name for name in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (where / "src/Containerfile").write_text("FROM scratch\nCOPY . /\n")
    (where / "src/.dockerignore").write_text(ignores)
    done = finished(stranger, ce, "build", "-t", "mine:1", str(where / "src"))
    forget_podman(stranger)
    made = listing(done.stdout.strip())
    assert {name for name in made if name.endswith((".py", "/c"))} == seen, done.stderr
    assert "/[e]/g.txt" not in made


def test_no_file_below_a_volume_is_lost_without_a_word(stranger: Engine) -> None:
    """Podman before 5.2 discards it (containers/buildah#4247), Docker does not."""
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    text = "FROM scratch AS last\nCOPY busybox /bin/sh\nWORKDIR /v\nVOLUME /v\nRUN echo x >/v/x\n"
    (where / "Containerfile").write_text(text)
    done = finished(stranger, ce, "build", "-t", "own:1", str(where))
    assert "/v/x" in listing(done.stdout.strip()), done.stderr
    assert "discards" not in done.stderr
    for start in ("FROM own:1 AS built\n", f"{text}FROM last AS built\n"):
        (where / "Containerfile").write_text(f"{start}RUN echo y >/v/y\nFROM scratch\n")
        done = finished(stranger, ce, "build", "--target=built", "-t", "more:1", str(where))
        assert done.returncode == 0, done.stderr
        is_there = "/v/y" in listing(done.stdout.strip())
        assert ("discards what RUN lines write below /v, " in done.stderr) != is_there, done.stderr
    forget_podman(stranger)


def test_a_build_with_one_more_line_reuses_its_steps_whatever_it_begins_with(
    stranger: Engine,
) -> None:
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    shutil.copy(stranger.image("busybox"), where / "base.sqsh")
    assert finished(stranger, ce, "build", "-q", "-t", "built:1", str(where)).returncode == 0
    for start in ("scratch\nCOPY busybox /bin/sh", "./base.sqsh", "built:1"):
        recipe = f"FROM {start}\nRUN echo one > /f\n"
        (where / "Containerfile").write_text(f"{recipe}RUN exit 7\n")
        assert finished(stranger, ce, "build", "-t", "mine:1", str(where)).returncode == 1
        (where / "Containerfile").write_text(f"{recipe}RUN echo two > /g\n")
        done = finished(stranger, ce, "build", "-t", "mine:1", str(where))
        assert done.returncode == 0, done.stderr
        _before, _line, after = done.stderr.partition("RUN echo one > /f\n")
        assert "Using cache" in after.split("STEP", 1)[0], (start, done.stderr)
    assert "the former mine:1 (" in done.stderr
    assert ") stays in the store until ce gc removes it\n" in done.stderr
    assert "downloading" not in done.stderr
    forget_podman(stranger)


@pytest.mark.parametrize("temporary", ["My_Files_", "", "relative"])
def test_a_build_begins_with_an_image_whatever_the_temporary_directory_is_called(
    stranger: Engine, temporary: str
) -> None:
    """Podman makes an image's name of a path, for example, and allows no capitals in it."""
    if temporary:
        place = stranger.scratch / temporary
        place.mkdir()
        os.chown(place, stranger.user.uid, stranger.user.gid)
    named = str(stranger.scratch / temporary) if temporary.endswith("_") else temporary
    where = context(stranger)
    shutil.copy(stranger.image("busybox"), where / "base.sqsh")
    (where / "Containerfile").write_text("FROM ./base.sqsh\nRUN echo one > /f\n")
    ce = str(stranger.prefix / "bin/ce")
    done = finished(stranger, ce, "build", "-q", str(where), temporary=named)
    forget_podman(stranger)
    shutil.rmtree(f"/var/tmp/ce-build-{stranger.user.uid}", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    assert "/f" in listing(done.stdout.splitlines()[-1])


# Tries to leave a chroot, and prints what it can read and write there.
_ESCAPE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char secret[64] = "";
	mkdir("/sub", 0700);
	int rc = chroot("/sub");
	for (int i = 0; i < 64; i++)
		if (chdir("..") != 0)
			break;
	if (chroot(".") != 0)
		perror("chroot");
	int fd = open(argv[1], O_RDONLY);
	if (fd >= 0 && read(fd, secret, sizeof secret - 1) > 0)
		printf("read: %s\n", secret);
	close(open(argv[argc - 1], O_WRONLY | O_CREAT, 0600));
	printf("done: %d\n", rc);
	return 0;
}
"""


@pytest.mark.parametrize("way", ["out", "proc"])
def test_no_step_of_a_build_reaches_what_is_not_the_builds(stranger: Engine, way: str) -> None:
    where = context(stranger)
    finished(stranger, "true")  # creates the home directory
    home = stranger.scratch / "home"
    secret, written = home / "secret", home / "written"
    secret.write_text("s3cret")
    os.chown(secret, stranger.user.uid, stranger.user.gid)
    argv = ["gcc", "-static", "-x", "c", "-", "-o", str(where / "escape")]
    subprocess.run(argv, input=_ESCAPE.encode(), check=True)
    top = {"out": "", "proc": "/proc/1/root"}[way]
    step = json.dumps(["/escape", f"{top}{secret}", f"{top}{written}"])
    (where / "Containerfile").write_text(f"FROM scratch\nCOPY escape /escape\nRUN {step}\n")
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", str(where))
    forget_podman(stranger)
    assert done.returncode == 0, done.stderr
    assert "done: -1" in done.stderr
    assert "chroot: Operation not permitted" in done.stderr
    assert "s3cret" not in done.stderr
    assert not written.exists()


def test_a_build_reads_the_users_own_settings_and_links(stranger: Engine) -> None:
    """Both are outside of the context: a Containerfile that is a link, and a containers.conf."""
    where = context(stranger)
    finished(stranger, "true")
    settings = stranger.scratch / "home/.config/containers"
    settings.mkdir(parents=True)
    (settings / "containers.conf").write_text("this is no TOML\n")
    elsewhere = stranger.scratch / "elsewhere"
    (where / "Containerfile").rename(elsewhere)
    (where / "Containerfile").symlink_to(elsewhere)
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", str(where))
    assert "containers.conf" in done.stderr
    (settings / "containers.conf").write_text("")
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", str(where))
    forget_podman(stranger)
    assert done.returncode == 0, done.stderr


def test_a_secret_argument_of_a_build_stands_in_no_command_line_of_podmans(
    stranger: Engine,
) -> None:
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    lines = "ARG API_TOKEN\nARG FROM_HERE\nENV GOT=$API_TOKEN-$FROM_HERE"
    step = 'RUN ["/bin/busybox", "sleep", "2"]'
    (where / "Containerfile").write_text(
        f"FROM scratch\nCOPY busybox /bin/busybox\n{lines}\n{step}\n"
    )
    arguments = ("--build-arg", "API_TOKEN=geheim4321", "--build-arg", "FROM_HERE")
    argv = [ce, "build", "-q", "-t", "mine:1", *arguments, str(where)]
    seen: set[str] = set()
    store = {"EDF_IMAGESTORE": str(stranger.scratch / "store"), "TMPDIR": str(stranger.scratch)}
    with stranger.popen(argv, {**store, "FROM_HERE": "ambient"}) as process:
        while process.poll() is None:
            seen.update(map(command_line, processes(stranger.user.uid)))
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    path = Path(out.strip())
    config = json.loads(path.with_name(f"{path.name}.json").read_text())["config"]
    assert "GOT=geheim4321-ambient" in config["Env"]
    podmans = [line for line in seen if "podman" in line and " build " in line]
    assert podmans
    assert not [line for line in podmans if "geheim4321" in line]
    forget_podman(stranger)


def _is_asleep(process: Path) -> bool:
    return "sleep 77" in command_line(process)


def test_a_secret_of_a_build_is_seen_by_the_steps_that_ask_for_it_and_stays_nowhere(
    stranger: Engine,
) -> None:
    where, ce = context(stranger), str(stranger.prefix / "bin/ce")
    finished(stranger, "true")  # creates the home directory
    home = stranger.scratch / "home"
    secrets = {"file": "geheim-one-4321", "variable": "geheim-two-4321"}
    (stranger.scratch / "token").write_text(secrets["file"] + "\n")
    mount = "RUN --mount=type=secret,id="
    steps = f"""\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
{mount}file {mount[4:]}variable cat /run/secrets/file /run/secrets/variable | sha256sum > /sum
RUN cat /proc/1/environ /run/secrets/* /dev/shm/* 2>/dev/null | grep -c gehei > /found || true
"""
    file, variable = f"id=file,src={stranger.scratch}/token", "id=variable,env=VARIABLE"
    options = ("--secret", file, "--secret", variable)
    seen: set[str] = set()
    env = {"HOME": str(home), "TMPDIR": str(home / "t"), "VARIABLE": secrets["variable"]}
    env["EDF_IMAGESTORE"] = str(stranger.scratch / "store")

    def built(text: str, *words: str) -> tuple[int, str, str]:
        (where / "Containerfile").write_text(text)
        with stranger.popen([ce, "build", *words, str(where)], env) as process:
            while process.poll() is None:
                seen.update(map(command_line, processes(stranger.user.uid)))
            out, err = process.communicate(timeout=60)
        forget_podman(stranger)
        return process.returncode, out, err

    code, out, err = built(steps, *options)
    assert code == 0, err
    argv = ["unsquashfs", "-cat", out.strip(), "sum", "found"]
    made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    content = hashlib.sha256("\n".join(secrets.values()).encode()).hexdigest()
    assert made == f"{content}  -\n0\n"
    # a step that prints one shows it to its user, but the log that stays does not
    code, _out, err = built(f"{steps}{mount}file cat /run/secrets/file; exit 3\n", "-q", *options)
    assert code == 1
    # nor does one that is killed in the step, once another has ended
    (where / "Containerfile").write_text(f"{steps}{mount}file cat /run/secrets/file && sleep 77\n")
    with stranger.popen([ce, "build", "-q", *options, str(where)], env) as process:
        assert until(lambda: any(map(_is_asleep, processes(stranger.user.uid))), 60)
        process.kill()
        process.communicate()
    assert until(lambda: not list(processes(stranger.user.uid)))
    assert built("FROM scratch\nCOPY nothing /\n", "-q", *options)[0] == 1
    (stranger.scratch / "token").unlink()
    assert any("podman" in line and "--secret=id=file,env=" in line for line in seen)
    found = [line for line in (*seen, err) if "geheim" in line]
    for path in (home, stranger.scratch):
        found += [
            str(one) for one in path.rglob("*") if one.is_file() and b"geheim" in one.read_bytes()
        ]
    assert found == []


def test_a_build_ends_with_whoever_asked_for_it(stranger: Engine) -> None:
    where = context(stranger)
    step = 'RUN ["/bin/busybox", "sleep", "77"]'
    (where / "Containerfile").write_text(f"FROM scratch\nCOPY busybox /bin/busybox\n{step}\n")
    words = ("build", "-q", str(where))
    store = {"EDF_IMAGESTORE": str(stranger.scratch / "store"), "TMPDIR": str(stranger.scratch)}

    with stranger.popen([str(stranger.prefix / "bin/ce"), *words], store) as process:
        assert until(lambda: any(map(_is_asleep, processes(stranger.user.uid))), 60)
        process.kill()
        process.communicate()
    assert until(lambda: not list(processes(stranger.user.uid)))
    forget_podman(stranger)


def test_a_build_that_fails_says_which_step(engine: Engine) -> None:
    where = context(engine)
    ce = str(engine.prefix / "bin/ce")
    for step, why in (
        ("COPY nothing /", "checking on sources under "),
        ('RUN ["/bin/busybox", "sh", "-c", "kill -9 $$"]', "killed (SIGKILL)\nce: hint: memory "),
    ):
        (where / "Containerfile").write_text(f"FROM scratch\nCOPY busybox /bin/busybox\n{step}\n")
        for words in ((), ("-q",)):
            done = finished(engine, ce, "build", *words, str(where))
            assert done.returncode == 1
            assert f"ce: error: Containerfile:3: {step}: {why}" in done.stderr
    (where / "Containerfile").unlink()
    done = finished(engine, str(engine.prefix / "bin/ce"), "build", str(where))
    assert "there is no Containerfile or Dockerfile" in done.stderr


def test_what_podman_has_is_imported(engine: Engine) -> None:
    where = context(engine)
    (where / "Containerfile").write_text("FROM scratch\nCOPY busybox /bin/\nENV A=b\n")
    podman = ["podman", "--storage-driver=vfs", "build", "-q", "--isolation=chroot", "-t", "own:2"]
    done = finished(engine, *podman, str(where))
    assert done.returncode == 0, done.stderr
    ce = str(engine.prefix / "bin/ce")
    listed = finished(engine, ce, "images", "--podman", "-q")
    offered = finished(engine, ce, "complete", "import", "podman")
    done = finished(engine, ce, "import", "-q", "podman://own:2")
    finished(engine, "podman", "system", "migrate")  # ends the process that Podman leaves
    forget_podman(engine)
    assert listed.stdout == "podman://localhost/own:2\n"
    assert offered.stdout == f"names\n{listed.stdout}"
    assert (done.returncode, done.stderr) == (0, "")
    assert listing(done.stdout.strip()) == {"/bin", "/bin/busybox"}
    refs = [json.loads(path.read_text()) for path in engine.scratch.glob("store/refs/*")]
    assert [ref["name"] for ref in refs] == ["localhost/own:2"]


def test_what_podman_has_with_layers_in_zstd_is_imported(engine: Engine) -> None:
    """Podman saves no such image in Docker's format, as it was when it came from a registry."""
    layout = engine.scratch / "layout"
    layout.mkdir()
    oci.layout(layout, [[Member("a")], [Member("b")]], RUN, compressor="zstd")
    podman = ["podman", "--storage-driver=vfs", "--storage-opt=vfs.ignore_chown_errors=true"]
    done = finished(engine, *podman, "pull", "-q", f"oci:{layout}:latest")
    assert done.returncode == 0, done.stderr
    for name in ("own:1", "own:2"):
        assert finished(engine, *podman, "tag", done.stdout.strip(), name).returncode == 0
    ce = str(engine.prefix / "bin/ce")
    listed = finished(engine, ce, "images", "--podman", "-q").stdout.splitlines()
    image = str(engine.scratch / "own.sqsh")
    done = finished(engine, ce, "import", "-q", "-o", image, "podman://own:2")
    finished(engine, "podman", "system", "migrate")  # ends the process that Podman leaves
    forget_podman(engine)
    assert [name for name in listed if "own" in name] == [
        f"podman://localhost/own:{number}" for number in (1, 2)
    ]
    assert (done.returncode, done.stderr) == (0, "")
    assert listing(image) == {"/a", "/b"}
    assert json.loads(Path(f"{image}.json").read_text())["config"] == RUN
