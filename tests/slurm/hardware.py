"""Stand-ins for all hardware and software that the built-in hooks are for.

They are below one directory, to which the site's hooks point.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.libraries import TRIPLE, build, probe, run
from tests.slurm.cluster import ROOT
from tests.slurm.site import Site

FABRIC = Path(f"/usr/lib/{TRIPLE}/libfabric.so.1")
PLUGIN = "ncclNetPlugin_v8"
# A device is identified by its type and numbers; these are /dev/null's.
_NULL = ("c", "1", "3")
_DEVICES = (
    *("kfd", "dri/renderD128", "dri/card0", "cxi0", "cxi1"),
    *("gdrdrv", "infiniband/uverbs0", "infiniband/rdma_cm", "xpmem"),
)
_LIBRARIES = (
    *("libdcgm.so.4", "libnvperf_dcgm_host.so", "libgdrapi.so.2", "libxpmem.so.0"),
    *("libucm.so.0", "libucp.so.0", "libucs.so.0", "libuct.so.0", "libmpi.so.12"),
)
_PROGRAMS = ("bin/nvidia-cuda-mps-control", "nsys/bin/nsys", "ncu/ncu", "rocm/bin/rocprofv3")
# An administrator's settings where the built-in data do not fit: here, all paths.
_SITE = {
    "amd_gpu": """
settings.group = "ce-project"
[edits.devices]
devices = [{ path = "@/dev/kfd" }, { path = "@/dev/dri/renderD*" }]
""",
    "aws_ofi_nccl": """
settings.directory = "@/plugin/{variant}"
checks.rendezvous.file = "@/rdzv_get_en=0"
# test_transport.py has libraries that can be asked
checks.transport.needed_by = "NONE"
checks.transport_rocm.needed_by = "NONE"
""",
    "cxi": """
settings.libfabric = "@/fabric/libfabric.so.1"
[edits.devices]
devices = [{ path = "@/dev/cxi*", optional = true }]
[edits.provider]
when = { "netstack.source" = "host" }
mounts = [{ source = "@/fabric/providers" }]
env.FI_PROVIDER_PATH = "@/fabric/providers"
[checks]
device.subject = "@/dev/cxi*"
memlock.subject = "1"
# the artifact's libfabric is none
transport.when = { "netstack.source" = "host" }
""",
    "dcgm": 'settings = { libraries = "@/lib", directory = "@/dcgm" }',
    "gdrcopy": """
settings.libraries = "@/lib"
[edits.device]
devices = [{ path = "@/dev/gdrdrv" }]
""",
    "infiniband": """
[edits.devices]
devices = [{ path = "@/dev/infiniband/*" }]
[checks]
device.subject = "@/dev/infiniband/uverbs*"
memlock.subject = "1"
nccl.needed_by = "NONE"
transport.needed_by = "NONE"
""",
    "mpich_abi": 'settings.library = "@/lib/{name}"',
    "netstack": 'settings.base = "@/netstack"',
    "nvidia_cuda_mps": 'settings.program = "@/bin/nvidia-cuda-mps-control"',
    "ncu": 'settings = { directory = "@/ncu", driver = "@/params" }',
    "nsys": 'settings = { directory = "@/nsys", paranoid = "@/paranoid" }',
    "rocprof": 'settings.directory = "@/rocm"',
    "ucx": 'settings.libraries = "@/lib"\nchecks.transport.needed_by = "NONE"',
    "xpmem": """
settings.libraries = "@/lib"
[edits.device]
devices = [{ path = "@/dev/xpmem" }]
""",
}


class Hardware:
    """Stand-ins below one directory and the hooks for them.

    `probes` maps the name of an image's C library to a program that opens a library as NCCL would.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.dir = site.programs.parent / "node"
        for name in _DEVICES:
            path = self.dir / "dev" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            run("mknod", "-m", "666", path, *_NULL)
        for name in _LIBRARIES:
            build(self.dir / "lib" / name, name, symbol="whose", says="the node's")
        self._network()
        (self.dir / "dcgm").mkdir()
        # the driver's, as Slurm sets it for steps with --network=disable_rdzv_get
        (self.dir / "rdzv_get_en").write_text("0\n")
        self.allow()
        for name in _PROGRAMS:
            program = self.dir / name
            program.parent.mkdir(parents=True)
            stand_in = ROOT / "tests/slurm" / program.name
            text = (
                stand_in.read_text() if stand_in.exists() else "#!/bin/sh\necho the node\\'s $*\n"
            )
            program.write_text(text)
            program.chmod(0o755)
        for name, text in _SITE.items():
            site.hook(name, text.replace("@", str(self.dir)), whole=False)
        self.probes = {"glibc": probe(self.dir), "musl": probe(self.dir, "musl-gcc")}

    def allow(self, paranoid: int = 2, admin_only: int = 0) -> None:
        """Write what the kernel and the driver of the node say of profilers."""
        (self.dir / "paranoid").write_text(f"{paranoid}\n")
        (self.dir / "params").write_text(f"Mobile: 1\nRmProfilingAdminOnly: {admin_only}\n")

    def _network(self) -> None:
        fabric = self.dir / "fabric"
        (fabric / "providers").mkdir(parents=True)
        (fabric / FABRIC.name).symlink_to(FABRIC)
        made, source = fabric / "providers/libcxi-fi.so", ROOT / "tests/slurm/fabric_provider.c"
        run("gcc", "-shared", "-fPIC", "-o", made, source, FABRIC)
        for variant, name in (("cuda12", "libnccl-net.so"), ("rocm7", "librccl-net.so")):
            path, says = self.dir / "plugin" / variant / name, f"the node's {variant}"
            build(path, symbol=PLUGIN, says=says, needs=[FABRIC], wants=["fi_version"])
        self._artifact(self.dir / "netstack" / os.uname().machine / "26.1/default")

    def _artifact(self, flat: Path) -> None:
        """Build an artifact as sites publish them: all files side by side, found by rpath."""
        own = ["-Wl,-rpath,$ORIGIN"]
        cxi = build(flat / "libcxi.so.1", "libcxi.so.1", symbol="cxi")
        fabric = flat / FABRIC.name
        build(fabric, FABRIC.name, symbol="whose", needs=[cxi], wants=["cxi"], flags=own)
        path, says = flat / "libnccl-net.so", "the artifact's"
        build(path, symbol=PLUGIN, says=says, needs=[fabric], wants=["whose"], flags=own)
        for name in ("libc.so.6", "libstdc++.so.6", "libz.so.1"):
            build(flat / name, name, symbol="whose", says=says)


@contextmanager
def aside(path: Path) -> Iterator[None]:
    """Rename a path during the block."""
    other = path.with_name(f"aside-{path.name}")
    path.rename(other)
    try:
        yield
    finally:
        other.rename(path)
