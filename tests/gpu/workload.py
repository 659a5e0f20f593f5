"""Measure one thing with PyTorch, or plain Python where that is missing: a JSON object on a line.

`python workload.py core|import|compile|see|nccl|hold …`, in a step, native or contained.
"""

import ctypes
import functools
import glob
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HAS_TORCH = importlib.util.find_spec("torch") is not None
BATCHES = 10
Said = dict[str, object]


def median_s(function: Callable[[], object], times: int, sync: Callable[[], object]) -> float:
    """Return the seconds that one call takes, from batches of `times` calls, after a warm-up."""
    end = time.perf_counter() + (1.0 if HAS_TORCH else 0.0)  # clocks of a GPU rise with its work
    while function() is not None and time.perf_counter() < end:
        sync()
    sync()
    taken = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(times):
            function()
        sync()
        taken.append((time.perf_counter() - begin) / times)
    return sorted(taken)[BATCHES // 2]


class Data:
    """Sequences of numbers, each made when it is asked for."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> object:
        torch: Any = importlib.import_module("torch")
        generator = torch.Generator().manual_seed(index)
        numbers: object = torch.randint(0, 1000, (129,), generator=generator)
        return numbers


class Machine:
    """PyTorch on the GPU, or small on processors where there is none."""

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.gpu: bool = self.torch.cuda.is_available()
        self.device = "cuda" if self.gpu else "cpu"
        self.sync: Callable[[], object] = self.torch.cuda.synchronize if self.gpu else lambda: None

    def core(self) -> Said:
        """Return the speed of a matrix product, of copies and of a training loop."""
        torch, sync = self.torch, self.sync
        said: Said = {}
        n, kind = (8192, torch.bfloat16) if self.gpu else (512, torch.float32)
        a, b = (torch.randn(n, n, device=self.device, dtype=kind) for _ in range(2))
        said["matmul"] = (
            2
            * n**3
            / median_s(functools.partial(torch.matmul, a, b), 40 if self.gpu else 2, sync)
            / 1e12
        )
        size = 1 << (32 if self.gpu else 24)
        x, y = (torch.ones(size, dtype=torch.uint8, device=self.device) for _ in range(2))
        said["copy"] = 2 * size / median_s(functools.partial(y.copy_, x), 10, sync) / 1e9
        if self.gpu:
            size = 1 << 30
            host, part = torch.ones(size, dtype=torch.uint8).pin_memory(), x[:size]
            to = functools.partial(part.copy_, host, non_blocking=True)
            back = functools.partial(host.copy_, part, non_blocking=True)
            said["h2d"] = size / median_s(to, 5, sync) / 1e9
            said["d2h"] = size / median_s(back, 5, sync) / 1e9
            del host, part, to, back
        del a, b, x, y
        said["train"] = self.train(compiled=False)["steps"]
        return said

    def train(self, *, compiled: bool) -> Said:
        """Return the seconds of the first 5 steps of a small transformer, and steps per second."""
        torch, gpu = self.torch, self.gpu
        width, layers, batch, steps = (1024, 8, 64, 150) if gpu else (64, 2, 8, 10)
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        encoder = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        ends = torch.nn.Embedding(1000, width), torch.nn.Linear(width, 1000)
        model = torch.nn.Sequential(ends[0], encoder, ends[1]).to(self.device)
        run = torch.compile(model) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        loader = torch.utils.data.DataLoader(Data(), batch, num_workers=4, pin_memory=gpu)
        texts = iter(loader)

        def step() -> None:
            text = next(texts).to(self.device, non_blocking=True)
            with torch.autocast(self.device, torch.bfloat16, enabled=gpu):
                out = run(text[:, :-1]).flatten(0, 1).float()
                loss = torch.nn.functional.cross_entropy(out, text[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return timed_steps(step, self.sync, steps)

    def nccl(self) -> Said:
        """Return the sum that one rank gets, by NCCL where there is a GPU."""
        dist: Any = importlib.import_module("torch.distributed")
        for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")):
            os.environ.setdefault(name, value)
        os.environ.setdefault("MASTER_PORT", "29511")
        dist.init_process_group("nccl" if self.gpu else "gloo")
        x = self.torch.full((1 << 24,), 3.0, device=self.device)
        dist.all_reduce(x)
        said = {"sum": x[0].item(), "ranks": dist.get_world_size(), "by": dist.get_backend()}
        dist.destroy_process_group()
        return said


def timed_steps(step: Callable[[], object], sync: Callable[[], object], steps: int) -> Said:
    begin = time.perf_counter()
    for _ in range(5):
        step()
    sync()
    first, begin = time.perf_counter() - begin, 0.0
    for number in range(20 + steps):
        if number == 20:
            sync()
            begin = time.perf_counter()
        step()
    sync()
    return {"first_5": first, "steps": steps / (time.perf_counter() - begin)}


class Plain:
    """The same in plain Python, to try the scripts on a machine without PyTorch."""

    def core(self) -> Said:
        n, size = 24, 1 << 22
        rows = [list(range(n)) for _ in range(n)]
        data = bytearray(size)

        def product() -> object:
            return [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]

        return {
            "matmul": 2 * n**3 / median_s(product, 1, lambda: None) / 1e12,
            "copy": 2 * size / median_s(lambda: bytes(data), 1, lambda: None) / 1e9,
            "train": timed_steps(product, lambda: None, 5)["steps"],
        }

    def train(self, *, compiled: bool) -> Said:
        return timed_steps(lambda: sum(range(1000 + compiled)), lambda: None, 5)

    def nccl(self) -> Said:
        return {"by": "no PyTorch"}


def imports() -> Said:
    """Return the seconds of the first and of the second process that imports PyTorch."""
    argv = [sys.executable, "-c", "import torch" if HAS_TORCH else "import json"]
    said: Said = {}
    for name in ("first", "second"):
        begin = time.perf_counter()
        subprocess.run(argv, check=True)
        said[name] = time.perf_counter() - begin
    return said


def nvml() -> dict[str, int]:
    """Return the driver, devices and MIG as NVML says; nothing without its library."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    code, count, version = library.nvmlInit_v2(), ctypes.c_uint(), ctypes.create_string_buffer(96)
    library.nvmlSystemGetDriverVersion(version, 96)
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    said = {"init": int(code), f"driver {version.value.decode()}": 1, "devices": count.value}
    device, now, later = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    library.nvmlDeviceGetMigMode(device, ctypes.byref(now), ctypes.byref(later))
    return {**said, "mig": now.value}


def can_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


def see() -> Said:
    """Return what a task finds of the GPUs."""
    paths = sorted(glob.glob("/dev/nvidia[0-9]*"))
    said: Said = {
        "opens": [os.path.basename(path) for path in paths if can_open(path)],
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "nvml": nvml(),
    }
    if HAS_TORCH:
        torch: Any = importlib.import_module("torch")
        said["torch"] = torch.cuda.device_count()
    return said


def hold(how: str) -> Said:
    """Hold memory of the GPU and end as `how` says: kill, oom, gpu-oom or wait."""
    held: list[Any] = []
    if HAS_TORCH:
        torch: Any = importlib.import_module("torch")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        held.append(torch.ones(1 << 28, device=device).sum().item())
        held.append(torch.ones(1 << 28, device=device))
        while how == "gpu-oom":
            held.append(torch.ones(1 << 30, device=device))
    print("ready", flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "oom":
        held.append(bytearray(b"x") * (1 << 26))
    while how == "wait":
        time.sleep(1)
    return {"held": len(held)}


def main(what: str, *words: str) -> None:
    if what in ("see", "import", "hold"):
        said = {"see": see, "import": imports, "hold": hold}[what](*words)  # type: ignore[operator]
    else:
        machine: Machine | Plain = Machine() if HAS_TORCH else Plain()
        said = {
            "core": machine.core,
            "compile": lambda: machine.train(compiled=True),
            "nccl": machine.nccl,
        }[what]()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
