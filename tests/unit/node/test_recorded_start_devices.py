"""Starts with devices and with the hook pytorch are repeated without Python, as the launcher would.

What they depend on beyond other starts: devices, CDI files and what these name, and variables of
the step.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.node import slurm_step
from container_engine.node.start import recorded_start
from tests.c_header import constants
from tests.recorded import parsed
from tests.unit.node.hooks.hooks import hook
from tests.unit.node.start_stage import GID, UID, StartStage

_NULL, _ZERO = os.makedev(1, 3), os.makedev(1, 5)


class Devices:
    """A node with a CDI file of its administrator, and a user whose environment names devices."""

    def __init__(self, starts: StartStage, directory: Path) -> None:
        self.starts, self.directory = starts, directory
        self.cdi = directory / "cdi"
        self.file = self.cdi / "thing.json"
        self.node_file = directory / "device"
        self.driver = directory / "driver"
        self.cdi.mkdir()
        self.driver.write_text("1")
        self.make(_NULL)
        self.write("one")
        starts.plan["settings"] |= {"cdi_dirs": [str(self.cdi)], "allowed_devices": ["*"]}

    def make(self, number: int, mode: int = 0o666) -> None:
        self.node_file.unlink(missing_ok=True)
        os.mknod(self.node_file, 0o020000 | mode, number)
        self.node_file.chmod(mode)

    def write(self, value: str, file: Path | None = None, kind: str = "a.com/thing") -> None:
        """Write a CDI file with two devices."""
        edits = {
            "env": [f"OF_CDI={value}"],
            "deviceNodes": [{"path": "/dev/thing", "hostPath": str(self.node_file)}],
            "mounts": [{"hostPath": str(self.driver), "containerPath": "/driver"}],
        }
        other = {"env": ["OF_OTHER=1"]}
        devices = [
            {"name": "all", "containerEdits": edits},
            {"name": "0", "containerEdits": other},
        ]
        spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}
        (file or self.file).write_text(json.dumps(spec))

    def named(self, *names: str, cdi: bool = True) -> None:
        """Let the environment name devices."""
        self.starts.plan["devices"] = [{"name": n, "cdi": cdi, "from": "/e.toml:5"} for n in names]

    def hook(self, **values: object) -> None:
        always = {"automatic_when": None, "release": "1", "reason": "enabled"}
        self.starts.plan["hooks"].append(hook("h", **{**always, **values}))

    def pytorch(self, port: str = "") -> None:
        self.hook(code="pytorch", parameters={"master_port": port})
        self.starts.plan["hooks"][-1]["name"] = "pytorch"

    def know(self) -> None:
        self.starts.start()
        assert self.starts.was_python()
        assert self.starts.starts_without_python()


@pytest.fixture
def devices(starts: StartStage) -> Iterator[Devices]:
    # a directory of root's in which everybody may read: CDI files of others are not trusted
    with tempfile.TemporaryDirectory(prefix="c", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Devices(starts, Path(directory))


class Given:
    """Devices that a start may have."""

    @staticmethod
    def cdi(devices: Devices) -> None:
        devices.named("a.com/thing=all", "a.com/thing=0")

    @staticmethod
    def path(devices: Devices) -> None:
        devices.named(str(devices.node_file), cdi=False)

    @staticmethod
    def site(devices: Devices) -> None:
        pattern = f"{devices.directory}/dev*"
        wanted = [pattern, "a.com/thing=all", "a.com/other=all"]
        devices.starts.plan["settings"]["devices_if_there"] = wanted

    @staticmethod
    def site_selected(devices: Devices) -> None:
        devices.write("gpu", kind="nvidia.com/gpu")
        devices.starts.plan["settings"]["devices_if_there"] = ["nvidia.com/gpu=all"]
        devices.starts.node["NVIDIA_VISIBLE_DEVICES"] = "0"

    @staticmethod
    def hook(devices: Devices) -> None:
        devices.hook(cdi=["a.com/thing=all"], cdi_if_there=["a.com/other=all"])

    @staticmethod
    def user(devices: Devices) -> None:
        own = devices.starts.home / "cdi"
        own.mkdir()
        devices.write("mine", own / "mine.json", "my.own/thing")
        for path in (own, *own.iterdir()):
            os.chown(path, UID, GID)
        devices.starts.plan["settings"]["user_cdi_dir"] = "cdi"
        devices.starts.node["HOME"] = str(devices.starts.home)
        devices.named("my.own/thing=all")

    @staticmethod
    def without_a_directory(devices: Devices) -> None:
        devices.starts.plan["settings"]["cdi_dirs"] += [f"{devices.directory}/none"]
        devices.named("a.com/thing=all")

    @staticmethod
    def pytorch(devices: Devices) -> None:
        devices.pytorch()

    @staticmethod
    def all_of_it(devices: Devices) -> None:
        devices.named("a.com/thing=all")
        devices.pytorch()

    @staticmethod
    def pytorch_with_a_port(devices: Devices) -> None:
        devices.pytorch("4711")


_GIVEN = {name: value.__func__ for name, value in vars(Given).items() if name[0] != "_"}


@pytest.mark.parametrize("give", _GIVEN.values(), ids=_GIVEN)
def test_both_start_in_the_same_way_with(devices: Devices, give: Callable[[Devices], None]) -> None:
    give(devices)
    starts = devices.starts
    first = starts.start()
    assert starts.was_python()
    again = starts.start()
    assert not starts.was_python()
    assert again == first == starts.start(by_python=True)
    text = json.dumps(first.told)
    if give not in (Given.pytorch, Given.pytorch_with_a_port):
        assert str(devices.node_file) in text or "OF_OTHER=1" in text


@pytest.mark.parametrize("step", ["3", "12", "4294967290"])
def test_each_step_gets_a_port_of_its_own(devices: Devices, step: str) -> None:
    devices.pytorch()
    devices.know()
    starts = devices.starts
    starts.node["SLURM_STEP_ID"] = step
    again = starts.start()
    assert not starts.was_python()
    port = slurm_step.port(starts.node)
    assert f"MASTER_PORT={port}".encode() in again.records
    assert f'"MASTER_PORT={port}"' in json.dumps(again.told).replace('\\"', '"')
    assert again.records.count(b"MASTER_PORT=") == 1
    assert again.records == starts.start(by_python=True).records
    assert again.told == starts.start(by_python=True).told


def test_another_job_gets_another_port(devices: Devices) -> None:
    devices.pytorch()
    devices.know()
    devices.starts.node["SLURM_JOB_ID"] = "8"
    again = devices.starts.start()
    assert not devices.starts.was_python()
    port = slurm_step.port(devices.starts.node)
    assert f"MASTER_PORT={port}".encode() in again.records


def test_a_port_in_the_first_process_is_that_of_the_step_too(devices: Devices) -> None:
    """A container in which the first process has another port is not the one that was wanted."""
    devices.pytorch()
    starts = devices.starts
    environ, port = starts.prefix / "environ", slurm_step.port(starts.node)
    environ.write_bytes(f"A=1\0MASTER_PORT={port}\0PATH=/bin\0".encode())
    devices.know()
    starts.node["SLURM_STEP_ID"] = "9"
    port = slurm_step.port(starts.node)
    environ.write_bytes(f"A=1\0MASTER_PORT={port}\0PATH=/bin\0".encode())
    assert starts.starts_without_python()
    starts.node["SLURM_STEP_ID"] = "10"
    assert not starts.starts_without_python()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
        ("SLURM_JOB_ID", None),
        ("SLURM_STEP_ID", "x"),
        ("SLURM_STEP_ID", None),
        ("SLURM_JOB_ID", "1" * 16),
    ],
)
def test_other_variables_of_pytorch_start_python(
    devices: Devices, name: str, value: str | None
) -> None:
    devices.pytorch()
    devices.know()
    node = devices.starts.node
    node.pop(name)
    if value is not None:
        node[name] = value
    devices.starts.plan["settings"]["trace_dir"] = ""
    again = devices.starts.start()
    assert devices.starts.was_python()
    assert again.records == devices.starts.start(by_python=True).records


class Changes:
    """Changes of the node after which Python starts."""

    @staticmethod
    def device_gone(devices: Devices) -> None:
        devices.node_file.unlink()
        devices.write("without a device")
        text = json.loads(devices.file.read_text())
        del text["devices"][0]["containerEdits"]["deviceNodes"]
        devices.file.write_text(json.dumps(text))

    @staticmethod
    def another_device(devices: Devices) -> None:
        devices.make(_ZERO)

    @staticmethod
    def the_same_device_for_others(devices: Devices) -> None:
        devices.node_file.chmod(0o660)

    @staticmethod
    def file_changed(devices: Devices) -> None:
        devices.write("two")

    @staticmethod
    def file_changed_in_place(devices: Devices) -> None:
        text = devices.file.read_text().replace("=one", "=two")
        with devices.file.open("r+") as file:
            file.write(text)

    @staticmethod
    def file_replaced(devices: Devices) -> None:
        devices.write("one", devices.directory / "new")
        (devices.directory / "new").rename(devices.file)

    @staticmethod
    def one_more_file(devices: Devices) -> None:
        devices.write("more", devices.cdi / "more.json", "b.com/thing")

    @staticmethod
    def file_by_a_link(devices: Devices) -> None:
        devices.file.rename(devices.directory / "aside.json")
        devices.file.symlink_to(devices.directory / "aside.json")

    @staticmethod
    def directory_replaced(devices: Devices) -> None:
        devices.cdi.rename(devices.directory / "old")
        devices.cdi.mkdir()
        devices.write("one")

    @staticmethod
    def driver_replaced(devices: Devices) -> None:
        (devices.directory / "new").write_text("2")
        (devices.directory / "new").rename(devices.driver)

    @staticmethod
    def socket_gone(devices: Devices) -> None:
        # sources of mounts below /tmp may come and go (cdi.OF_DAEMONS)
        devices.driver.unlink()

    @staticmethod
    def driver_that_is_a_directory(devices: Devices) -> None:
        devices.driver.unlink()
        devices.driver.mkdir()


_CHANGES = {name: value.__func__ for name, value in vars(Changes).items() if name[0] != "_"}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_what_devices_depend_on_starts_python_when_it_changes(
    devices: Devices, change: Callable[[Devices], None]
) -> None:
    devices.named("a.com/thing=all")
    devices.know()
    change(devices)
    changed = devices.starts.start()
    assert devices.starts.was_python()
    assert changed == devices.starts.start(by_python=True)


class Refusals:
    """Changes of the node after which the launcher refuses the start."""

    @staticmethod
    def device_gone(devices: Devices) -> str:
        devices.node_file.unlink()
        return "device node .*: No such file"

    @staticmethod
    def file_gone(devices: Devices) -> str:
        devices.file.unlink()
        return "no CDI device of that name"

    @staticmethod
    def file_of_another(devices: Devices) -> str:
        os.chown(devices.file, 65534, -1)
        return "owned by user 65534"

    @staticmethod
    def file_that_others_may_write(devices: Devices) -> str:
        devices.file.chmod(0o666)
        return "others than its owner may write it"

    @staticmethod
    def directory_that_others_may_write(devices: Devices) -> str:
        devices.directory.chmod(0o777)
        return "others than its owner may write it"

    @staticmethod
    def directory_of_another(devices: Devices) -> str:
        os.chown(devices.directory, 65534, -1)
        return "owned by user 65534"


_REFUSALS = {name: value.__func__ for name, value in vars(Refusals).items() if name[0] != "_"}


@pytest.mark.parametrize("change", _REFUSALS.values(), ids=_REFUSALS)
def test_what_devices_lack_is_explained_as_ever(
    devices: Devices, change: Callable[[Devices], str]
) -> None:
    devices.named("a.com/thing=all")
    devices.know()
    why = change(devices)
    with pytest.raises(AssertionError, match=rf"F125.*{why}"):
        devices.starts.start()


def test_a_device_that_the_user_may_no_longer_open_is_explained(devices: Devices) -> None:
    devices.named(str(devices.node_file), cdi=False)
    devices.know()
    devices.node_file.chmod(0o600)
    with pytest.raises(AssertionError, match="you may not open it on this node"):
        devices.starts.start()


@pytest.mark.parametrize("value", ["all", "none", "void", "", "0,0", None])
def test_another_selection_of_gpus_starts_python(devices: Devices, value: str | None) -> None:
    Given.site_selected(devices)
    devices.know()
    devices.starts.node.pop("NVIDIA_VISIBLE_DEVICES")
    if value is not None:
        devices.starts.node["NVIDIA_VISIBLE_DEVICES"] = value
    again = devices.starts.start()
    assert devices.starts.was_python()
    assert again == devices.starts.start(by_python=True)


def test_a_selection_by_the_environment_does_not_depend_on_the_step(devices: Devices) -> None:
    Given.site_selected(devices)
    chosen = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all", "from": "/e.toml:3"}
    devices.starts.plan["env"].append(chosen)
    devices.know()
    devices.starts.node["NVIDIA_VISIBLE_DEVICES"] = "none"
    assert devices.starts.starts_without_python()


def test_one_more_device_for_the_site_starts_python(devices: Devices) -> None:
    Given.site(devices)
    devices.know()
    os.mknod(devices.directory / "device2", 0o020666, _NULL)
    again = devices.starts.start()
    assert devices.starts.was_python()
    assert "device2" in json.dumps(again.told)


def test_a_device_of_a_hook_that_comes_starts_python(devices: Devices) -> None:
    Given.hook(devices)
    devices.know()
    devices.write("other", devices.cdi / "other.json", "a.com/other")
    again = devices.starts.start()
    assert devices.starts.was_python()
    assert "OF_CDI=other" in json.dumps(again.told) or b"OF_CDI=one" in again.records


def test_a_home_elsewhere_has_other_cdi_files(devices: Devices) -> None:
    Given.user(devices)
    devices.know()
    devices.starts.node["HOME"] = str(devices.directory)
    with pytest.raises(AssertionError, match="no CDI device of that name"):
        devices.starts.start()


def test_a_variable_that_nobody_asked_for_does_not_matter(devices: Devices) -> None:
    Given.all_of_it(devices)
    devices.know()
    devices.starts.node |= {"CUDA_VISIBLE_DEVICES": "1", "SLURM_NTASKS": "77", "MASTER_PORT": "1"}
    assert devices.starts.starts_without_python()


class Never:
    """Devices and hooks with which nothing is recorded."""

    @staticmethod
    def oci_hook(devices: Devices) -> None:
        _edit(devices, hooks=[{"hookName": "poststop", "path": "/bin/true"}])

    @staticmethod
    def group(devices: Devices) -> None:
        _edit(devices, additionalGids=[12345])

    @staticmethod
    def file_of_the_kernel(devices: Devices) -> None:
        _edit(devices, mounts=[{"hostPath": "/proc/version", "containerPath": "/v"}])

    @staticmethod
    def place_of_the_kernel(devices: Devices) -> None:
        _edit(devices, mounts=[{"hostPath": str(devices.driver), "containerPath": "/proc/x"}])

    @staticmethod
    def device_of_the_kernel(devices: Devices) -> None:
        devices.named("/dev/fd/0", cdi=False)

    @staticmethod
    def young_file(devices: Devices) -> None:
        devices.named("a.com/thing=all")
        (devices.starts.prefix / "settled").write_text(str(3600 * 10**9))

    @staticmethod
    def code_that_looks_at_files(devices: Devices) -> None:
        devices.hook(code="slurm", parameters={"client_config": ""})

    @staticmethod
    def step_without_a_number(devices: Devices) -> None:
        devices.pytorch()
        devices.starts.node["SLURM_STEP_ID"] = "x"


def _edit(devices: Devices, **edits: object) -> None:
    device = {"name": "all", "containerEdits": edits}
    spec = {"cdiVersion": "0.7.0", "kind": "a.com/thing", "devices": [device]}
    devices.file.write_text(json.dumps(spec))
    devices.named("a.com/thing=all")


_NEVER = {name: value.__func__ for name, value in vars(Never).items() if name[0] != "_"}


@pytest.mark.parametrize("change", _NEVER.values(), ids=_NEVER)
def test_nothing_is_recorded_with(devices: Devices, change: Callable[[Devices], None]) -> None:
    change(devices)
    try:
        devices.starts.start()
    except AssertionError:
        assert devices.starts.was_python()
    assert not devices.starts.answers


def test_the_answer_names_the_variables_and_no_number_of_the_step(devices: Devices) -> None:
    devices.named("a.com/thing=all")
    devices.pytorch()
    devices.starts.start()
    found = parsed(devices.starts.recorded).witnesses
    assert (found["vSLURM_STEP_NUM_TASKS"], found["vSLURM_STEP_NODELIST"]) == ("=3", "=n1")
    assert found["vSLURM_JOB_ID"] == "+"
    assert "vSLURM_STEP_ID" not in found


# ---- what it is made of -----------------------------------------------------------------------


def test_both_programs_make_the_same_ports() -> None:
    known = constants("guard/step_answers.h")
    numbers = (slurm_step.FIRST, slurm_step.COUNT, slurm_step.STEPS_APART)
    names = ("CE_PORT_FIRST", "CE_PORT_COUNT", "CE_PORT_STEPS_APART")
    assert tuple(known[name] for name in names) == numbers
    assert re.fullmatch("[0-9]{5}", str(slurm_step.FIRST + slurm_step.COUNT - 1))
    assert known["CE_PORT_DIGITS"] == len(str(slurm_step.FIRST))


def test_a_port_is_found_only_where_it_is_the_variables() -> None:
    texts = {"a": b"20016 MASTER_PORT=20016, MASTER_PORT=2001", "b": b"MASTER_PORT=20016"}
    places = recorded_start.Places(texts, "MASTER_PORT", "20016")
    assert places.found == ["a18", "b12"]
    changed = {"a": b"20016 MASTER_PORT=20017, MASTER_PORT=2001", "b": b"MASTER_PORT=20017"}
    assert places.with_port("20017") == changed
    assert recorded_start.Places(texts, "MASTER_PORT", "").found == []
