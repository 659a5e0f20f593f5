"""Libraries of the node in images of all kinds: which ones programs load, and that they work."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.libraries import Place, build, edf_text, probe, run
from tests.integration.prepared import LIBRARIES, image

FI_INFO = "/usr/bin/fi_info"
FABRIC = f"/{LIBRARIES}/libfabric.so.1"
# This node's version, as fi_info prints it and in the name of the file.
FABRIC_SHOWN = next(
    line for line in run(FI_INFO, "--version").splitlines() if "libfabric: " in line
)
FABRIC_FILE = Path(FABRIC).resolve().name
FABRIC_HOOK = f"""
[edits.host]
libraries = [{{ files = ["{FABRIC}"], place = "replace" }}]
refresh = true
[checks.loadable]
kind = "loadable"
subject = "libfabric.so.1"
"""
OWN = "/.container-engine/lib"


KINDS = ["none", "older", "newer", "major", "odd"]
# Prints which libfabric fi_info shows and how the loader finds it, and checks that all libraries
# beside it load.
SCRIPT = f"""
{FI_INFO} --version
ldd {FI_INFO}
for library in {OWN}/*; do PROBE "$library" >/dev/null || echo "$library does not load"; done
"""


def check_fi_info(engine: Engine, place: Place, kind: str, text: str = "") -> None:
    place.hook(FABRIC_HOOK)
    program = probe(place.dir)
    edf = engine.edf(text + edf_text("fabric", mounts=[FI_INFO, program]), image(place, kind))
    done = place.engine(engine).run(edf, "bash", "-c", SCRIPT.replace("PROBE", str(program)))
    assert FABRIC_SHOWN in done.stdout, done.stderr
    assert "not found" not in done.stdout
    assert "does not load" not in done.stdout
    warned = "programs of the image that need FABRIC_1.9 of libfabric.so.1 will not start"
    assert (warned in done.stderr) == (kind == "newer"), done.stderr
    assert len(done.stderr.splitlines()) == (kind == "newer"), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_fi_info_shows_the_nodes_libfabric_and_all_that_it_needs_loads(
    engine: Engine, place: Place, kind: str
) -> None:
    check_fi_info(engine, place, kind)


@pytest.mark.parametrize("kind", ["none", "older", "odd"])
def test_a_container_that_cannot_be_written_gets_them_too(
    engine: Engine, place: Place, kind: str
) -> None:
    check_fi_info(engine, place, kind, "writable = false\n")


def test_a_library_in_an_odd_place_is_replaced_behind_links_and_inside_the_image_only(
    engine: Engine, place: Place
) -> None:
    place.hook(FABRIC_HOOK)
    edf = engine.edf(edf_text("fabric"), image(place, "odd"))
    places = ["/opt/mpi/lib/libfabric.so.1", "/opt/store/deep/libfabric.so.1.10.0"]
    printed = place.engine(engine).output(edf, "sha256sum", *places)
    wanted = run("sha256sum", FABRIC).split()[0]
    assert [line.split()[0] for line in printed.splitlines()] == [wanted, wanted]


def test_libraries_are_still_found_after_ldconfig_in_the_container(
    engine: Engine, place: Place
) -> None:
    place.hook(FABRIC_HOOK)
    edf = engine.edf(edf_text("fabric", mounts=[FI_INFO]), image(place, "none"))
    printed = place.engine(engine).output(edf, "bash", "-c", f"ldconfig && {FI_INFO} --version")
    assert FABRIC_SHOWN in printed


def test_an_image_without_a_c_library_is_left_alone(engine: Engine, place: Place) -> None:
    place.hook(FABRIC_HOOK.partition("[checks")[0])
    edf = engine.edf(edf_text("fabric"), "static")
    assert place.engine(engine).output(edf, "/bin/probe").startswith("rank=none")


def test_explain_says_what_happens_to_each_library_and_why(engine: Engine, place: Place) -> None:
    place.hook(FABRIC_HOOK)
    edf = engine.edf(edf_text("fabric"), image(place, "older"))
    site = place.engine(engine).site
    argv = [str(engine.prefix / "bin/ce"), "--site", str(site), "hooks", "explain", str(edf)]
    with engine.popen(argv) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    _rest, _title, libraries = out.partition("libraries on this node\n")
    lines = libraries.splitlines()
    assert lines[:4] == [
        "    libfabric.so.1: the node's, in place of the image's",
        "        the hook names it; the node's is newer than the image's libfabric.so.1.10.0",
        f"        {Path(FABRIC).resolve()}",
        f"        -> /{LIBRARIES}/libfabric.so.1.10.0",
    ]
    assert "    librdmacm.so.1: the node's, beside the image's libraries" in lines
    assert "        libfabric.so.1 needs it; the image does not have it" in lines


# ---- libraries that the image already has ----------------------------------------------------


def decisions(engine: Engine, place: Place, image_file: Path) -> dict[str, tuple[str, str]]:
    """Return the action and reason that `ce hooks explain` gives for each library."""
    edf = engine.edf(edf_text("fabric"), image_file)
    site = place.engine(engine).site
    argv = [str(engine.prefix / "bin/ce"), "--site", str(site), "hooks", "explain", str(edf)]
    with engine.popen([*argv, "--json"]) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return {d["library"]: (d["action"], d["reason"]) for d in json.loads(out)["libraries"]}


def test_of_what_a_library_needs_the_newer_one_counts(engine: Engine, place: Place) -> None:
    tree = place.variant("dependencies")
    there, node = tree / LIBRARIES, place.node / "stack"
    needs = []
    for name, ours, theirs in (
        ("same", "1.2.3", "1.2.3"),
        ("newer", "1.10.0", "1.9.0"),
        ("older", "1.2.0", "1.3.0"),
        ("lacking", "1.0.0", ""),
    ):
        soname = f"lib{name}.so.1"
        real = build(node / f"lib{name}.so.{ours}", soname, symbol=f"f_{name}")
        (node / soname).symlink_to(real.name)
        needs.append(real)
        if theirs:
            build(there / f"lib{name}.so.{theirs}", soname, symbol=f"f_{name}")
            (there / soname).symlink_to(f"lib{name}.so.{theirs}")
    # Numbers of symbol versions take precedence over those of files.
    for name, ours, theirs in (("moresyms", "AB", "A"), ("fewersyms", "A", "AB")):
        soname = f"lib{name}.so.1"
        mine = build(node / soname, soname, versions=[f"{name}_{letter}" for letter in ours])
        build(there / soname, soname, versions=[f"{name}_{letter}" for letter in theirs])
        needs.append(mine)
    wants = [f"f_{name}" for name in ("same", "newer", "older", "lacking")]
    wants += ["f_moresyms_A", "f_fewersyms_A"]
    top = build(
        node / "libtop.so.1", "libtop.so.1", needs=needs, wants=wants, flags=["-Wl,-rpath,$ORIGIN"]
    )
    run("ldconfig", "-r", tree)
    place.hook(f'[edits.x]\nlibraries = [{{ files = ["{top}"] }}]')
    found = decisions(engine, place, place.squash(tree))
    assert {name: action for name, (action, _reason) in found.items()} == {
        "libtop.so.1": "beside",
        "libsame.so.1": "keep",
        "libnewer.so.1": "replace",
        "libolder.so.1": "keep",
        "liblacking.so.1": "beside",
        "libmoresyms.so.1": "replace",
        "libfewersyms.so.1": "keep",
    }
    assert found["libnewer.so.1"][1] == (
        "libtop.so.1 needs it; the node's is newer than the image's libnewer.so.1.9.0"
    )
    assert found["liblacking.so.1"][1] == "libtop.so.1 needs it; the image does not have it"


def test_a_conflict_of_symbol_versions_leaves_the_image_as_it_is(
    engine: Engine, place: Place
) -> None:
    tree = place.variant("conflict")
    node = place.node / "conflict"
    ours = build(node / "libtwo.so.1", "libtwo.so.1", versions=["COMMON", "OURS"])
    build(tree / LIBRARIES / "libtwo.so.1", "libtwo.so.1", versions=["COMMON", "THEIRS"])
    top = build(
        node / "libtop.so.1",
        "libtop.so.1",
        needs=[ours],
        wants=["f_OURS"],
        flags=["-Wl,-rpath,$ORIGIN"],
    )
    run("ldconfig", "-r", tree)
    place.hook(f'[edits.x]\nlibraries = [{{ files = ["{top}"] }}]')
    edf = engine.edf(edf_text("fabric"), place.squash(tree))
    done = place.engine(engine).run(edf, "ls", OWN)
    assert "No such file" in done.stderr
    assert (
        "ce: warning: hook fabric: libtop.so.1 is left out: libtop.so.1 of the node needs OURS of"
        " libtwo.so.1, which the image's libtwo.so.1 does not have, and the node's libtwo.so.1"
        " cannot take its place (it is different from that)\n" in done.stderr
    )


# ---- directories of the node that bring all they need ----------------------------------------


def artifact(place: Place) -> Path:
    """Build an artifact as sites publish them: flat, with libraries for those beside them only."""
    flat = place.node / "artifact"
    own = ["-Wl,-rpath,$ORIGIN"]
    cxi = build(flat / "libcxi.so.1", "libcxi.so.1", symbol="cxi")
    fabric, plugin = flat / "libfabric.so.1", flat / "libnccl-net.so"
    build(
        fabric,
        fabric.name,
        symbol="whose",
        says="the artifact's",
        needs=[cxi],
        wants=["cxi"],
        flags=own,
    )
    build(plugin, symbol="ours", says="the artifact's", needs=[fabric], wants=["whose"], flags=own)
    for name in ("libz.so.1", "libstdc++.so.6", "libc.so.6"):
        build(flat / name, name, symbol="whose", says="the artifact's")
    return flat


# Prints which library each name leads to, in a program of the image.
ASK = "for name in {}; do {} $name whose; echo; done"


def asked(engine: Engine, place: Place, hook: str, image_file: Path, *names: str) -> list[str]:
    place.hook(hook)
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), image_file)
    script = ASK.format(" ".join(names), program)
    done = place.engine(engine).run(edf, "bash", "-c", script)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_a_library_that_stays_is_loaded_with_what_lies_beside_it_in_place_of_the_images(
    engine: Engine, place: Place
) -> None:
    flat = artifact(place)
    tree = place.variant("artifact")
    for where in (LIBRARIES, Path("opt/mpi/lib")):
        (tree / where / "libfabric.so.1").unlink(missing_ok=True)
        build(tree / where / "libfabric.so.1", "libfabric.so.1", symbol="whose", says="the image's")
    needs = build(
        tree / "opt/mpi/bin/libmpi.so",
        needs=[flat / "libfabric.so.1"],
        symbol="mpi",
        wants=["whose"],
        flags=["-Wl,-rpath,/opt/mpi/lib"],
    )
    run("ldconfig", "-r", tree)
    hook = f"""
[edits.artifact]
mounts = [{{ source = "{flat}" }}]
libraries = [
  {{ files = ["{flat}/libfabric.so.1"], place = "replace", stay = true }},
  {{ files = ["{flat}/lib[nr]ccl-net.so"], stay = true }},
]
[checks.fabric]
kind = "loadable"
subject = "libfabric.so.1"
[checks.plugin]
kind = "loadable"
subject = "lib[nr]ccl-net.so"
"""
    image_file = place.squash(tree)
    said = asked(engine, place, hook, image_file, "libfabric.so.1", "libz.so.1", "libcxi.so.1")
    assert said[0].startswith("the artifact's"), said
    assert "the artifact's" not in "".join(said[1:])
    edf = engine.edf(edf_text("fabric"), image_file)
    script = f"ldd /{needs.relative_to(tree)}; ldd {flat}/libnccl-net.so"
    printed = place.engine(engine).output(edf, "bash", "-c", script)
    assert printed.count(f"libfabric.so.1 => {flat}/") == 2, printed
    assert printed.count(f"libcxi.so.1 => {flat}/") == 2, printed


def test_of_a_directory_that_is_searched_the_c_and_c_plus_plus_libraries_stay_unknown(
    engine: Engine, place: Place
) -> None:
    flat = artifact(place)
    hook = f"""
[edits.artifact]
mounts = [{{ source = "{flat}" }}]
search = ["{flat}"]
"""
    names = ("libfabric.so.1", "libz.so.1", "libstdc++.so.6", "libc.so.6")
    said = asked(engine, place, hook, image(place, "none"), *names)
    assert said[0].startswith("the artifact's"), said
    assert "the artifact's" not in "".join(said[1:])


# ---- malicious images --------------------------------------------------------------------------


def spoil(tree: Path, how: str) -> None:
    cache = tree / "etc/ld.so.cache"
    cache.unlink()
    if how == "fifo":
        os.mkfifo(cache)
        os.mkfifo(tree / LIBRARIES / "libfabric.so.1")
    elif how == "garbage":
        cache.write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 4000)
        (tree / LIBRARIES / "libfabric.so.1").write_bytes(b"\x7fELF\2\1\1" + b"\xff" * 4000)
    elif how == "link":
        cache.symlink_to("../../../../../../../etc/harm.cache")
        (tree / LIBRARIES / "libfabric.so.1").symlink_to("/usr/lib/none/../../../../../etc/harm")
    elif how == "circle":
        cache.symlink_to("ld.so.cache")
        (tree / LIBRARIES / "libfabric.so.1").symlink_to("libfabric.so.1")
    else:
        (cache / "inside").mkdir(parents=True)


@pytest.mark.parametrize("how", ["fifo", "garbage", "link", "circle", "directory"])
def test_an_image_with_something_else_in_place_of_the_cache_works_or_says_so(
    engine: Engine, place: Place, how: str
) -> None:
    place.hook(FABRIC_HOOK.partition("[checks")[0])
    tree = place.variant(how)
    spoil(tree, how)
    edf = engine.edf(edf_text("fabric", mounts=[FI_INFO]), place.squash(tree))
    done = place.engine(engine).run(edf, FI_INFO, "--version")
    assert FABRIC_SHOWN in done.stdout, done.stderr
    notes = done.stderr.splitlines()
    assert len(notes) == (how == "directory")
    assert all("found only through LD_LIBRARY_PATH" in note for note in notes)
    assert not Path("/etc/harm.cache").exists()


# ---- musl ------------------------------------------------------------------------------------


def musl_image(place: Place, search: str = "") -> Path:
    """Return an image with musl and its own libfabric, in `search` if that is given."""
    label = f"musl{'-with-path' if search else ''}"
    made = place.dir / f"{label}.sqsh"
    if not made.exists():
        tree = place.variant(label, place.musl)
        own = tree / (search or "/usr/lib").lstrip("/")
        own.mkdir(parents=True, exist_ok=True)
        path = own / "libfabric.so.1"
        argv = ["-shared", "-fPIC", "-Wl,-soname,libfabric.so.1", "-x", "c", "-", "-o", str(path)]
        source = 'const char *whose(void) { return "the image"; }\n'
        subprocess.run(["musl-gcc", *argv], input=source, text=True, check=True)
        if search:
            (tree / f"etc/ld-musl-{os.uname().machine}.path").write_text(f"{search}\n")
        place.squash(tree)
    return made


@pytest.mark.parametrize("search", ["", "/opt/own"], ids=["default", "path-file"])
def test_an_image_with_musl_keeps_its_own_and_says_why(
    engine: Engine, place: Place, search: str
) -> None:
    place.hook(FABRIC_HOOK)
    program = probe(place.dir, "musl-gcc")
    edf = engine.edf(edf_text("fabric", mounts=[program]), musl_image(place, search))
    done = place.engine(engine).run(edf, str(program), "libfabric.so.1", "whose")
    assert done.stdout == "the image\n", done.stderr
    [line] = done.stderr.splitlines()
    assert f"cannot be loaded in this container: {FABRIC_FILE} is built for glibc" in line


def test_libraries_made_for_musl_are_found_by_its_loader(engine: Engine, place: Place) -> None:
    made = place.node / "libmine.so.1"
    argv = ["-shared", "-fPIC", "-Wl,-soname,libmine.so.1", "-x", "c", "-", "-o", str(made)]
    source = 'const char *whose(void) { return "the node"; }\n'
    subprocess.run(["musl-gcc", *argv], input=source, text=True, check=True)
    place.hook(
        f'[edits.x]\nlibraries = [{{ files = ["{made}"] }}]\n'
        '[checks.x]\nkind = "loadable"\nsubject = "libmine.so.1"'
    )
    program = probe(place.dir, "musl-gcc")
    edf = engine.edf("writable = false\n" + edf_text("fabric", mounts=[program]), musl_image(place))
    assert place.engine(engine).output(edf, str(program), "libmine.so.1", "whose") == "the node\n"


# ---- directories and mounts of hooks -----------------------------------------------------------


def test_mounted_libraries_and_directories_are_found_by_the_loader(
    engine: Engine, place: Place
) -> None:
    single = build(place.node / "dcgm/libdcgm.so.4", "libdcgm.so.4", symbol="whose", says="mounted")
    artifact = place.node / "artifact/lib"
    build(artifact / "libart.so.2", "libart.so.2", symbol="whose", says="searched")
    place.hook(
        f'[edits.x]\nmounts = [{{ source = "{single.parent}/lib*.so*" }},'
        f' {{ source = "{artifact.parent}", target = "/opt/artifact" }}]\n'
        'search = ["/opt/artifact/lib"]\nrefresh = true\n'
        '[checks.a]\nkind = "loadable"\nsubject = "libart.so.2"\n'
        '[checks.b]\nkind = "loadable"\nsubject = "libdcgm.so.4"\n'
    )
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), image(place, "none"))
    script = f"{program} libdcgm.so.4 whose; {program} libart.so.2 whose"
    assert place.engine(engine).output(edf, "bash", "-c", script) == "mounted\nsearched\n"


def test_what_the_environment_file_mounts_counts_as_the_containers(
    engine: Engine, place: Place
) -> None:
    """A link in a mount may have a target on the node and none in the container."""
    node = place.node / "mounted"
    needed = build(node / "other/libdep.so.1", "libdep.so.1", symbol="dep")
    top = build(
        node / "lib/libtop.so.1",
        "libtop.so.1",
        needs=[needed],
        wants=["dep"],
        flags=["-Wl,-rpath,$ORIGIN/../other"],
    )
    place.hook(
        f'[edits.x]\nlibraries = [{{ files = ["{top}"] }}]\n'
        '[checks.x]\nkind = "loadable"\nsubject = "libtop.so.1"'
    )
    users = place.node / "users"
    users.mkdir()
    program = probe(place.dir)
    mounted = (
        f'mounts = ["{program}:{program}", "{users}:/opt/users"]\n'
        + edf_text("fabric").partition("\n")[2]
    )
    edf = engine.edf(mounted + '\n[env]\nLD_LIBRARY_PATH = "/opt/users"', image(place, "none"))
    build(users / "libdep.so.1", "libdep.so.1", symbol="dep", says="the user's")
    # The user's libdep is as good as the node's, so only the hook's own library is brought.
    script = f"{program} libtop.so.1 && ls {OWN}"
    assert "libtop.so.1\n" in place.engine(engine).output(edf, "bash", "-c", script)
    assert "libdep" not in place.engine(engine).output(edf, "ls", OWN)
    # This link has a target on the node, but none in the container.
    (users / "libdep.so.1").unlink()
    (users / "libdep.so.1").symlink_to(needed)
    assert "libdep" in place.engine(engine).output(edf, "bash", "-c", script)


def test_a_library_beside_is_found_before_one_that_the_image_puts_first(
    engine: Engine, place: Place
) -> None:
    tree = place.variant("first")
    build(tree / "opt/first/libq.so.1", "libq.so.1", symbol="whose", says="the image's")
    ours = build(place.node / "libq.so.1", "libq.so.1", symbol="whose", says="the node's")
    place.hook(f'[edits.x]\nlibraries = [{{ files = ["{ours}"], place = "beside" }}]')
    made = place.squash(tree)
    config = {"Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/opt/first"]}
    made.with_name(f"{made.name}.json").write_text(json.dumps({"config": config}))
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), made)
    assert place.engine(engine).output(edf, str(program), "libq.so.1", "whose") == "the node's\n"


def test_all_names_under_which_a_pattern_finds_a_library_work(engine: Engine, place: Place) -> None:
    directory = place.node / "links"
    build(directory / "libl.so.4.2", "libl.so.4", symbol="whose", says="the node's")
    for link in ("libl.so", "libl.so.4"):
        (directory / link).symlink_to("libl.so.4.2")
    place.hook(f'[edits.x]\nlibraries = [{{ files = ["{directory}/libl*.so*"] }}]')
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), image(place, "none"))
    script = f"for n in libl.so libl.so.4 libl.so.4.2; do {program} $n whose; done"
    assert place.engine(engine).output(edf, "bash", "-c", script) == 3 * "the node's\n"


def test_a_library_that_the_node_lacks_ends_the_start_unless_it_is_optional(
    engine: Engine, place: Place
) -> None:
    place.hook('[edits.x]\nlibraries = [{ files = ["/no/such/lib*.so.1"] }]')
    edf = engine.edf(edf_text("fabric"), image(place, "none"))
    assert place.engine(engine).refusal(edf) == (
        "hook fabric: library '/no/such/lib*.so.1' does not exist on this node"
    )
    place.hook('[edits.x]\nlibraries = [{ files = ["/no/such/lib*.so.1"], optional = true }]')
    assert place.engine(engine).output(edf, "echo", "works") == "works\n"


# ---- devices ---------------------------------------------------------------------------------


def test_the_nodes_devices_are_in_the_container(engine: Engine, place: Place) -> None:
    devices = place.dir / "dev"
    devices.mkdir()
    for number in range(4):
        # A stand-in for a network device. A process that has it open is recognised by its numbers.
        run("mknod", "-m", "666", devices / f"cxi{number}", "c", "1", "3")
    place.hook(f'[edits.x]\ndevices = [{{ path = "{devices}/cxi*" }}]')
    edf = engine.edf(edf_text("fabric"), image(place, "none"))
    script = f"stat -c '%n %t:%T' {devices}/*; echo x >{devices}/cxi3 && echo written"
    printed = place.engine(engine).output(edf, "bash", "-c", script).splitlines()
    assert printed == [*(f"{devices}/cxi{number} 1:3" for number in range(4)), "written"]
