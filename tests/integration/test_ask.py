"""Answers of ce-ask about libraries, here played ones for which the machine has no devices."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import ROOT, Engine
from tests.integration.libraries import build, run

# two cards with the states of their ports: 1 is down, 4 active
_VERBS = """
#include <errno.h>
#include <stdint.h>
static const char *names[] = {{ "mlx4_0", "mlx4_1" }};
static const int ports[2][3] = {{ {{ 1, {second} }}, {{ 1 }} }};
const char **ibv_get_device_list(int *count) {{ *count = 2; return names; }}
const char *ibv_get_device_name(const char *device) {{ return device; }}
void *ibv_open_device(char *device) {{ return device; }}
int ibv_query_port(const char *device, uint8_t port, int *state)
{{
    *state = ports[device == names[1]][port - 1];
    return *state == 0 ? EINVAL : 0;
}}
"""


def ask(engine: Engine, place: Path, *words: str) -> tuple[int, str]:
    program = engine.prefix / "libexec/container-engine/ce-ask"
    env = {"LD_LIBRARY_PATH": str(place)}
    done = subprocess.run([program, *words], env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("second", "is_active"), [(0, False), (1, False), (4, True)])
def test_a_card_is_active_if_any_of_its_ports_is(
    engine: Engine, tmp_path: Path, second: int, is_active: bool
) -> None:
    source = tmp_path / "verbs.c"
    source.write_text(_VERBS.format(second=second))
    run("gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "libibverbs.so.1", source)
    state = "active" if is_active else "not active"
    said = f"device mlx4_0: {state}\ndevice mlx4_1: not active\n"
    if not is_active:
        said += "libibverbs finds 2 devices: 2 can be opened, none is active\n"
    assert ask(engine, tmp_path, "verbs") == (0 if is_active else 1, said)


@pytest.mark.parametrize(("flag", "version"), [("-UNEW", 8), ("-DNEW", 11)])
def test_plugins_with_either_way_to_begin_are_asked(
    engine: Engine, tmp_path: Path, flag: str, version: int
) -> None:
    library, source = tmp_path / "libnccl-net.so", ROOT / "tests/slurm/played_network.c"
    run("gcc", "-shared", "-fPIC", "-Werror", "-DHOW=FINE", flag, "-o", library, source)
    said = f"ncclNetPlugin_v{version}: AWS Libfabric\ndevice 0: cxi0\ndevice 1: cxi0\n"
    assert ask(engine, tmp_path, "net", "libnccl-net.so", "cxi") == (0, said)


def test_a_directory_whose_name_only_begins_alike_is_another_one(
    engine: Engine, tmp_path: Path
) -> None:
    library = build(tmp_path / "fabric-old/libfabric.so.1", "libfabric.so.1", symbol="f")
    (tmp_path / "fabric").mkdir()
    words = ("from", "libfabric.so.1", str(tmp_path / "fabric"))
    code, said = ask(engine, library.parent, *words)
    assert code == 1
    assert said == f"libfabric.so.1 is that of {library.parent}, not of {tmp_path / 'fabric'}\n"
    assert ask(engine, library.parent, *words[:2], str(library.parent))[0] == 0
