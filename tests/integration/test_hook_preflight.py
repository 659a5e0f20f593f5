"""Causes of slow jobs: a warning for each, on an image made for it, and silence without."""

from pathlib import Path

import pytest

from tests.integration.engine import Engine, without_remedy
from tests.integration.libraries import Place, build, edf_text, probe
from tests.integration.prepared import cuda_image

PLUGIN = "ncclNetPlugin_v8"


def plugin(place: Place, label: str, *needs: Path, wants: tuple[str, ...] = ()) -> Path:
    """Build a plugin as NCCL opens it, linked with these."""
    path = place.node / label / "libnccl-net.so"
    return build(path, says="AWS Libfabric", symbol=PLUGIN, needs=needs, wants=wants)


def hook(place: Place, files: Path, *checks: tuple[str, str], severity: str = "warn") -> None:
    lines = [f'[edits.plugin]\nlibraries = [{{ files = ["{files}"] }}]']
    for number, (kind, subject) in enumerate(checks):
        lines.append(
            f'[checks.check{number}]\nkind = "{kind}"\nsubject = "{subject}"\n'
            f'severity = "{severity}"\nhint = "NCCL would use TCP"'
        )
    place.hook("\n".join(lines))


def said(place: Place, engine: Engine, where: Path, severity: str) -> str:
    """Return the only line that a launch prints; the command has run unless that is an error."""
    done = place.engine(engine).run(engine.edf(edf_text("fabric"), where), "true")
    assert done.returncode == (125 if severity == "fail" else 0), done.stderr
    line = without_remedy(done.stderr)
    kind, _colon, text = line.removeprefix("ce: ").partition(": ")
    assert kind == ("error" if severity == "fail" else "warning")
    return text


SEVERITIES = pytest.mark.parametrize("severity", ["warn", "fail"])


@SEVERITIES
def test_a_plugin_that_cannot_be_loaded_is_named_with_what_it_lacks(
    engine: Engine, place: Place, severity: str
) -> None:
    lacking = build(place.dir / "elsewhere/libgone.so.3", "libgone.so.3", symbol="gone")
    path = plugin(place, "lacking", lacking, wants=("gone",))
    hook(place, path, ("loadable", "libnccl-net.so"), severity=severity)
    assert said(place, engine, cuda_image(place), severity) == (
        "hook fabric: libnccl-net.so cannot be loaded in this container: it needs libgone.so.3,"
        " which is missing (NCCL would use TCP)"
    )


def test_what_the_preflight_says_of_a_plugin_is_what_the_loader_says(
    engine: Engine, place: Place
) -> None:
    lacking = build(place.dir / "elsewhere/libgone.so.3", "libgone.so.3", symbol="gone")
    hook(place, plugin(place, "lacking", lacking, wants=("gone",)))
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), cuda_image(place))
    done = place.engine(engine).run(edf, str(program), "libnccl-net.so")
    assert done.returncode == 1
    assert "libgone.so.3: cannot open shared object file" in done.stdout


@SEVERITIES
def test_a_runtime_library_without_its_unversioned_link_is_found(
    engine: Engine, place: Place, severity: str
) -> None:
    hook(place, plugin(place, "good"), ("unversioned", "libcudart.so"), severity=severity)
    text = said(place, engine, cuda_image(place, link=False), severity)
    assert text.startswith("hook fabric: libcudart.so is not in this container, only libcudart.so.")
    assert "ln -s libcudart.so.12 libcudart.so" in text


@SEVERITIES
def test_a_variant_for_another_cuda_than_the_images_is_found(
    engine: Engine, place: Place, severity: str
) -> None:
    hook(place, plugin(place, "good"), ("major", "libcudart.so.12"), severity=severity)
    assert said(place, engine, cuda_image(place, 13), severity) == (
        "hook fabric: built for libcudart 12, and the image has libcudart 13 (NCCL would use TCP)"
    )


@SEVERITIES
def test_a_library_for_a_newer_glibc_than_the_images_is_left_out_with_a_remedy(
    engine: Engine, place: Place, severity: str
) -> None:
    libc = build(place.dir / "future/libc.so.6", "libc.so.6", versions=["GLIBC_2.99"])
    path = plugin(place, "future", libc, wants=("f_GLIBC_2_99",))
    hook(place, path, ("glibc", "libnccl-net.so"), severity=severity)
    text = said(place, engine, cuda_image(place), severity)
    assert text.startswith(
        "hook fabric: libnccl-net.so is left out: the node's libnccl-net.so needs GLIBC_2.99, and"
        " the image has glibc 2."
    )
    assert "use an image with a newer distribution" in text


def test_a_library_of_the_node_that_is_none_or_cannot_be_read_is_left_out_with_the_reason(
    engine: Engine, place: Place
) -> None:
    path = place.node / "libtext.so.1"
    path.write_text("/* GNU ld script */")
    hook(place, path)
    assert said(place, engine, cuda_image(place), "warn") == (
        f"hook fabric: libtext.so.1 is left out: '{path}' of the node: not an ELF file"
    )
    path.chmod(0o600)
    assert said(place, engine, cuda_image(place), "warn").endswith(": Permission denied")


@SEVERITIES
def test_a_node_without_the_device_is_named(engine: Engine, place: Place, severity: str) -> None:
    hook(place, plugin(place, "good"), ("device", "/dev/cxi-none*"), severity=severity)
    # An error has this meaning in its hint.
    meaning = " (NCCL would use TCP)" if severity == "warn" else ""
    assert said(place, engine, cuda_image(place), severity) == (
        f"hook fabric: no device '/dev/cxi-none*' on this node{meaning}"
    )


def test_nothing_is_said_where_all_is_well_and_the_plugin_opens(
    engine: Engine, place: Place
) -> None:
    checks = [("loadable", "libnccl-net.so"), ("unversioned", "libcudart.so"), ("glibc", "")]
    checks += [("major", "libcudart.so.12"), ("device", "/dev/nul*"), ("libc", "glibc")]
    hook(place, plugin(place, "good"), *checks, ("program", "bash"), ("file", "/etc"))
    program = probe(place.dir)
    edf = engine.edf(edf_text("fabric", mounts=[program]), cuda_image(place))
    printed = place.engine(engine).output(edf, str(program), "libnccl-net.so", PLUGIN)
    assert printed == "AWS Libfabric\n"


def test_a_program_or_file_that_the_image_lacks_is_named(engine: Engine, place: Place) -> None:
    hook(place, plugin(place, "good"), ("program", "no-such"), ("file", "/no/such"))
    done = place.engine(engine).run(engine.edf(edf_text("fabric"), cuda_image(place)), "true")
    said_of = [line.removeprefix("ce: warning: hook fabric: ") for line in done.stderr.splitlines()]
    assert said_of == [
        "the program no-such is not in this container (NCCL would use TCP)",
        "'/no/such' is not in this container (NCCL would use TCP)",
    ]
