"""Try each promise for GPUs and print what held, in the root directory of tests/gpu/run."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path("/gpu")
WORK = Path("/tmp/work")  # a file system of this run's own
CDI = Path("/etc/cdi/nvidia.json")
CE = Path((HERE / "prefix").read_text().strip()) / "bin/ce"
LIMIT_S = 60
SEEN = (
    "cd /dev; echo devices $(ls -d nvidia[0-9]* 2>/dev/null);"
    " [ -e {0}/libcuda.so.1 ] && echo libcuda; command -v nvidia-smi; true"
)
CHECKS = """
summary = "what a test asks of a GPU"
help = "Nothing but checks."
default = "on"
[checks.there]
kind = "device"
subject = "/dev/nvidia[0-9]*"
hint = "there"
[checks.driver]
kind = "loadable"
subject = "libcuda.so.1"
hint = "driver"
[checks.absent]
kind = "device"
subject = "/dev/nvidia-absent*"
hint = "absent"
"""


class FailedError(Exception):
    """A promise that did not hold."""


class NotHereError(Exception):
    """Something that this machine does not have."""


@dataclass
class Table:
    """The rows that were printed."""

    failed: list[str] = field(default_factory=list)

    def row(self, what: str, attempt: Callable[[], str]) -> None:
        begin = time.monotonic()
        try:
            word, said = "held", attempt()
        except NotHereError as error:
            word, said = "not here", str(error)
        except (FailedError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            word, said = "FAILED", str(error)
            self.failed.append(what)
        seconds, line = time.monotonic() - begin, " | ".join(said.splitlines())
        print(f"{word:9} {seconds:5.1f} s  {what:28} {line}", flush=True)


def run(*argv: str, env: Mapping[str, str] | None = None) -> str:
    """Return what a command prints on both streams. Raise FailedError with it if it fails."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(env or {})},
        timeout=LIMIT_S,
        text=True,
    )
    if done.returncode:
        raise FailedError(f"{argv[-1]}: exit code {done.returncode}: {done.stdout.strip()}")
    return done.stdout.strip()


def contained(
    *command: str,
    edf: str = 'devices = ["nvidia.com/gpu=all"]',
    site: str = "",
    env: Mapping[str, str] | None = None,
) -> str:
    """Return what a command prints in a container of this environment."""
    (WORK / "gpu.toml").write_text(f'image = "{HERE}/image.sqsh"\nmounts = ["{HERE}"]\n{edf}\n')
    (WORK / "site.toml").write_text(f'cdi_dirs = ["{CDI.parent}"]\n{site}\n')
    argv = [str(CE), "--site", str(WORK / "site.toml"), "run", str(WORK / "gpu.toml"), "--"]
    return run(*argv, *command, env=env)


def devices() -> list[str]:
    return sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))


def libraries() -> str:
    """Return the directory of the driver's libraries."""
    mounts = json.loads(CDI.read_text())["containerEdits"]["mounts"]
    (found,) = (m["hostPath"] for m in mounts if m["hostPath"].endswith("/libcuda.so.1"))
    return str(os.path.dirname(found))


def same(got: object, wanted: object) -> str:
    if got != wanted:
        raise FailedError(f"{got!r} instead of {wanted!r}")
    return str(got)


def specification() -> str:
    run(str(CE), "cdi", "generate", "nvidia", "-o", str(CDI))
    spec = json.loads(CDI.read_text())
    names = [device["name"] for device in spec["devices"]]
    return f"{', '.join(names)}; {len(spec['containerEdits']['mounts'])} files of the driver"


def offered() -> str:
    if "nvidia.com/gpu=all" not in (listed := run(str(CE), "devices")):
        raise FailedError(listed)
    return "nvidia.com/gpu=all is listed"


def nvidia_smi() -> str:
    if not Path("/usr/bin/nvidia-smi").exists():
        raise NotHereError("nvidia-smi")
    return same(contained("nvidia-smi", "-L"), run("nvidia-smi", "-L")).partition("(")[0]


def kernel() -> str:
    return contained(f"{HERE}/kernel")


def visible(value: str | None, count: int, *, driver: bool) -> str:
    """Compare what NVIDIA_VISIBLE_DEVICES brings, where the site gives GPUs to all containers."""
    env = {} if value is None else {"NVIDIA_VISIBLE_DEVICES": value}
    seen = seen_by_all(env)
    same(seen[0].split()[1:], devices()[:count])
    same("libcuda" in seen, driver)
    return f"{seen[0]}; driver: {'yes' if driver else 'no'}"


def seen_by_all(env: Mapping[str, str]) -> list[str]:
    site = 'devices_if_there = ["nvidia.com/gpu=all"]'
    script = SEEN.format(libraries())
    return contained("sh", "-c", script, edf="", site=site, env=env).split("\n")


def capability(words: str, *, libcuda: bool, smi: bool) -> str:
    env = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": words}
    seen = seen_by_all(env)
    same("libcuda" in seen, libcuda)
    if Path("/usr/bin/nvidia-smi").exists():
        same("/usr/bin/nvidia-smi" in seen, smi)
    return " ".join(seen[1:])


def preflight() -> str:
    """Compare the verdicts of checks with what is known here: two hold, one cannot."""
    hook = WORK / "hooks/gpu_checks"
    hook.mkdir(parents=True)
    (hook / "hook.toml").write_text(CHECKS)
    site = f'hook_catalog = ["{hook.parent}"]'
    said = contained("true", site=site).splitlines()
    warnings = [line for line in said if "warning" in line]
    if len(warnings) != 1 or "absent" not in warnings[0]:
        raise FailedError(f"expected a warning of the absent device alone: {said}")
    return "a device and libcuda.so.1 found, an absent device named"


def mps() -> str:
    if not Path("/usr/bin/nvidia-cuda-mps-control").exists():
        raise NotHereError("nvidia-cuda-mps-control")
    edf = 'devices = ["nvidia.com/gpu=all"]\n[annotations]\n'
    edf += 'com.hooks.nvidia_cuda_mps.enabled = "true"'
    script = f"{HERE}/kernel && echo get_server_list | nvidia-cuda-mps-control"
    said = contained("sh", "-c", script, edf=edf).splitlines()
    if len(said) < 2:
        raise FailedError(f"no server: {said}")
    return f"server {said[-1]}"


def attempts() -> Sequence[tuple[str, Callable[[], str]]]:
    every = len(devices())
    return (
        ("CDI file from the node", specification),
        ("ce devices", offered),
        ("nvidia-smi inside", nvidia_smi),
        ("a CUDA kernel inside", kernel),
        ("VISIBLE_DEVICES unset", lambda: visible(None, every, driver=False)),
        ("VISIBLE_DEVICES=all", lambda: visible("all", every, driver=True)),
        ("VISIBLE_DEVICES=0", lambda: visible("0", 1, driver=True)),
        ("VISIBLE_DEVICES=none", lambda: visible("none", 0, driver=True)),
        ("DRIVER_CAPABILITIES=compute", lambda: capability("compute", libcuda=True, smi=False)),
        ("DRIVER_CAPABILITIES=utility", lambda: capability("utility", libcuda=False, smi=True)),
        ("pre-flight", preflight),
        ("MPS", mps),
    )


def main() -> int:
    for directory in (WORK, Path(os.environ["HOME"])):
        directory.mkdir(parents=True)
    os.chdir(WORK)
    table = Table()
    for what, attempt in attempts():
        table.row(what, attempt)
    print(f"{len(table.failed)} failed: {', '.join(table.failed)}" if table.failed else "all held")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
