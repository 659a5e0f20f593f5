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


def ask(engine: Engine, place: Path, *words: str, **variables: str) -> tuple[int, str]:
    program = engine.prefix / "libexec/container-engine/ce-ask"
    env = {"LD_LIBRARY_PATH": str(place), **variables}
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


_PORTS = "mlx5_0:2, mlx5_10:2, roce0:2"
_USES = f"NCCL would use {{}} of the ports {_PORTS}"
_NO_PORT = f"{{}} leaves TCP: it has none of the active ports {_PORTS}"
_NCCL = [
    ("", _USES.format(3)),
    ("NCCL_IB_HCA=mlx5_0", _USES.format(1)),
    # a name's beginning, unless "=" is before it
    ("NCCL_IB_HCA=mlx5_1", _USES.format(1)),
    ("NCCL_IB_HCA==mlx5_1", _NO_PORT.format("NCCL_IB_HCA==mlx5_1")),
    ("NCCL_IB_HCA==mlx5_0:2,mlx5_10", _USES.format(2)),
    ("NCCL_IB_HCA==mlx5_0:1", _NO_PORT.format("NCCL_IB_HCA==mlx5_0:1")),
    ("NCCL_IB_HCA=^mlx5_3", _USES.format(3)),
    ("NCCL_IB_HCA=^mlx5", _USES.format(1)),
    ("NCCL_IB_HCA=^=mlx5_1", _USES.format(3)),
    ("NCCL_IB_HCA=^mlx5,roce0:2", _NO_PORT.format("NCCL_IB_HCA=^mlx5,roce0:2")),
    # a card whose ports are down
    ("NCCL_IB_HCA=mlx5_3", _NO_PORT.format("NCCL_IB_HCA=mlx5_3")),
    ("NCCL_IB_HCA=mlx5_0:,x", _USES.format(1)),
    ("NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=1 chooses TCP"),
    ("NCCL_IB_DISABLE=0x2", "NCCL_IB_DISABLE=0x2 chooses TCP"),
    ("NCCL_IB_DISABLE=0", _USES.format(3)),
    # NCCL reads a number
    ("NCCL_IB_DISABLE=true", _USES.format(3)),
    ("NCCL_NET=ib", _USES.format(3)),
    ("NCCL_NET=Socket", "NCCL_NET=Socket chooses TCP"),
    ("NCCL_NET=Other", "NCCL_NET=Other, and NCCL finds no such network: it would end"),
    ("NCCL_SOCKET_IFNAME=lo", _USES.format(3)),
    (
        "NCCL_SOCKET_IFNAME=ib9",
        "NCCL_SOCKET_IFNAME=ib9 names no interface that is up, and NCCL would end",
    ),
    ("NCCL_IB_GID_INDEX=1", _USES.format(3)),
    ("NCCL_IB_GID_INDEX=-1", _USES.format(3)),
    *(
        (
            f"NCCL_IB_GID_INDEX={index}",
            f"NCCL_IB_GID_INDEX={index}, and roce0:2 has no address there: NCCL would end",
        )
        for index in (3, 4)
    ),
]


def _verbs(place: Path, *flags: str) -> None:
    _played(place, "verbs", "libibverbs.so.1", *flags)


def _played(place: Path, what: str, library: str, *flags: str) -> None:
    source = ROOT / f"tests/slurm/played_{what}.c"
    run("gcc", "-shared", "-fPIC", "-Werror", *flags, "-o", place / library, source)


_DRIVER = "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': libmlx5.so.1: version"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-DCLOSED", "libibverbs finds 4 devices: 0 can be opened, none is active"),
        (
            f'-DWARNING="{_DRIVER}\\n..\\n"',
            f"libibverbs finds 0 devices: 0 can be opened, none is active; {_DRIVER}",
        ),
    ],
)
def test_cards_without_a_device_or_a_driver_are_told_with_the_cause(
    engine: Engine, tmp_path: Path, flag: str, said: str
) -> None:
    _verbs(tmp_path, flag)
    code, printed = ask(engine, tmp_path, "verbs")
    assert (code, printed.splitlines()[-1]) == (1, said)


def test_variables_of_ucx_without_a_card_of_infiniband_are_named(
    engine: Engine, tmp_path: Path
) -> None:
    _played(tmp_path, "ucx", "libucp.so.0")
    assert ask(engine, tmp_path, "ucx")[0] == 0
    no_card, failed = "has no transport for InfiniBand", "cannot be initialized (-14)"
    for variable, said in (
        ("UCX_TLS=tcp", no_card),
        ("UCX_NET_DEVICES=mlx5_bond_0:1", no_card),
        ("UCX_TLS=dc_x", failed),
    ):
        name, value = variable.split("=")
        code, printed = ask(engine, tmp_path, "ucx", **{name: value})
        assert (code, printed.splitlines()[-1]) == (1, f"UCX 1.17 {said}, with {variable}")


@pytest.mark.parametrize(
    ("layer", "is_left_out"),
    [("ucx", False), ("ob1,ucx", False), ("cm", False), ("", False), ("ob1", True), ("^ucx", True)],
)
def test_an_open_mpi_that_leaves_out_ucx_is_told(
    engine: Engine, tmp_path: Path, layer: str, is_left_out: bool
) -> None:
    _played(tmp_path, "ucx", "libucp.so.0")
    code, printed = ask(engine, tmp_path, "ucx", OMPI_MCA_pml=layer)
    said = f"OMPI_MCA_pml={layer} leaves out UCX\n"
    assert (code, printed == said) == (int(is_left_out), is_left_out)


@pytest.mark.parametrize(("setting", "said"), _NCCL)
def test_variables_of_nccl_choose_ports_or_leave_none(
    engine: Engine, tmp_path: Path, setting: str, said: str
) -> None:
    _verbs(tmp_path)
    name, _equals, value = setting.partition("=")
    code, printed = ask(engine, tmp_path, "nccl", **({name: value} if name else {}))
    assert printed.splitlines()[-1] == said
    assert code == (0 if said.startswith("NCCL would use ") else 1)


def test_without_an_active_port_another_check_says_so(engine: Engine, tmp_path: Path) -> None:
    _verbs(tmp_path, "-DSTATE=1")
    code, printed = ask(engine, tmp_path, "nccl", NCCL_IB_DISABLE="1")
    assert (code, printed.splitlines()[-1]) == (0, "NCCL would use nothing: no port is active")
    assert ask(engine, tmp_path, "verbs")[0] == 1
    (tmp_path / "libibverbs.so.1").write_text("")
    code, printed = ask(engine, tmp_path, "nccl")
    assert (code, printed.startswith("NCCL would use nothing: ")) == (0, True)


def test_files_of_nccl_set_what_no_variable_does(engine: Engine, tmp_path: Path) -> None:
    _verbs(tmp_path)
    (tmp_path / ".nccl.conf").write_text("# off\n#NCCL_NET=Socket\nNCCL_IB_DISABLE=1\r\n")
    (tmp_path / "other").write_text("NCCL_IB_HCA=mlx5_7")
    home, other = str(tmp_path), str(tmp_path / "other")
    assert "\nNCCL_IB_DISABLE=1 chooses TCP\n" in ask(engine, tmp_path, "nccl", HOME=home)[1]
    assert ask(engine, tmp_path, "nccl", HOME=home, NCCL_IB_DISABLE="0")[0] == 0
    code, printed = ask(engine, tmp_path, "nccl", HOME=home, NCCL_CONF_FILE=other)
    assert (code, printed.splitlines()[-1]) == (1, _NO_PORT.format("NCCL_IB_HCA=mlx5_7"))


@pytest.mark.parametrize(
    ("how", "library", "variables", "said"),
    [
        ("FINE", "libnccl-net.so", {}, "NCCL would use the plugin AWS Libfabric"),
        ("FINE", "librccl-net.so", {}, "NCCL would use the plugin AWS Libfabric"),
        ("FINE", "libnccl-net.so", {"NCCL_NET_PLUGIN": "none"}, "NCCL_IB_DISABLE=1 chooses TCP"),
        ("FINE", "libnccl-net.so", {"NCCL_NET": "IB"}, "NCCL_IB_DISABLE=1 chooses TCP"),
        ("NO_DEVICE", "libnccl-net.so", {}, "NCCL_IB_DISABLE=1 chooses TCP"),
        ("TCP", "libnccl-net.so", {}, "the plugin AWS Libfabric would use the interface lo: TCP"),
    ],
)
def test_a_plugin_decides_if_nccl_would_use_it(
    engine: Engine, tmp_path: Path, how: str, library: str, variables: dict[str, str], said: str
) -> None:
    _verbs(tmp_path)
    source, flag = ROOT / "tests/slurm/played_network.c", f"-DHOW={how}"
    run("gcc", "-shared", "-fPIC", "-Werror", flag, "-o", tmp_path / library, source)
    printed = ask(engine, tmp_path, "nccl", NCCL_IB_DISABLE="1", **variables)[1]
    assert printed.splitlines()[-1] == said


@pytest.mark.parametrize(("flag", "version"), [("-UNEW", 8), ("-DNEW", 11)])
def test_plugins_with_either_way_to_begin_are_asked(
    engine: Engine, tmp_path: Path, flag: str, version: int
) -> None:
    library, source = tmp_path / "libnccl-net.so", ROOT / "tests/slurm/played_network.c"
    run("gcc", "-shared", "-fPIC", "-Werror", "-DHOW=FINE", flag, "-o", library, source)
    said = f"ncclNetPlugin_v{version}: AWS Libfabric\ndevice 0: cxi0\ndevice 1: cxi0\n"
    assert ask(engine, tmp_path, "net", "libnccl-net.so", "cxi") == (0, said)


def test_a_variable_that_chooses_another_provider_is_named(engine: Engine, tmp_path: Path) -> None:
    library, source = tmp_path / "libfabric.so.1", ROOT / "tests/slurm/played_network.c"
    run("gcc", "-shared", "-fPIC", "-Werror", "-DHOW=OTHER", "-o", library, source)
    said = "libfabric offers no device of the provider cxi, only tcp"
    for variables, more in (({}, ""), ({"FI_PROVIDER": "tcp"}, ", with FI_PROVIDER=tcp")):
        answer = ask(engine, tmp_path, "fabric", "cxi", **variables)
        assert answer == (1, f"{said}{more}\n")


def test_a_directory_whose_name_only_begins_alike_is_another_one(
    engine: Engine, tmp_path: Path
) -> None:
    library = build(tmp_path / "fabric-old/libfabric.so.1", "libfabric.so.1", symbol="f")
    (tmp_path / "fabric").mkdir()
    words = ("from", "libfabric.so.1", str(tmp_path / "fabric"))
    code, said = ask(engine, library.parent, *words)
    assert code == 1
    assert said == f"libfabric.so.1 is that of {library.parent}, not of {tmp_path / 'fabric'}\n"
    for place in (str(library.parent), str(tmp_path), "/"):
        assert ask(engine, library.parent, *words[:2], place)[0] == 0
