"""Make a Slurm cluster of this one machine, as sites have it, and pack an image of its PyTorch.

As root. `run` has unpacked Slurm, munge, crun, squashfs-tools, Python and the engine before,
without replacing a file. Cgroups constrain processors, memory and devices; the GPUs are gres.
"""

import fcntl
import glob
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.gpu import pack
from tests.gpu.cluster import (
    CONFIGURATION,
    FACTS,
    PREFIX,
    STATE,
    UID,
    USER,
    WORK,
    StepError,
    as_user,
    environment,
    facts,
    main_of,
    srun,
)

MARK = CONFIGURATION / "ce-gpu"
LOGS = STATE / "log"
CGROUP = Path("/sys/fs/cgroup")
SLURM = """\
ClusterName=gpu
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
MpiDefault=none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
{cgroup}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
GresTypes=gpu
ReturnToService=2
KillWait=5
MessageTimeout=30
UnkillableStepTimeout=60
SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/d
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/slurmd.log
SlurmdDebug=verbose
SlurmdParameters=config_overrides
MailProg=/bin/true
Epilog={prefix}/libexec/container-engine/epilog
PlugStackConfig=/etc/slurm/plugstack.conf
NodeName=gpu1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} Sockets=1 CoresPerSocket={cpus} \
ThreadsPerCore=1 RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
BY_CGROUP = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=10"""
WITHOUT = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none"""
CONSTRAIN = "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=yes\n"
SIOCSIFADDR = 0x8916
NVIDIA = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_user() -> None:
    """Add an ordinary user, with files alone: a machine may lack useradd."""
    for path, line in (
        ("/etc/passwd", f"{USER}:x:{UID}:{UID}::{WORK}:/bin/sh"),
        ("/etc/group", f"{USER}:x:{UID}:"),
    ):
        if f"\n{USER}:" not in Path(path).read_text():
            with Path(path).open("a") as file:
                file.write(f"\n{line}\n")
    WORK.mkdir(parents=True, exist_ok=True)
    os.chown(WORK, UID, UID)


def name_host(host: str) -> None:
    """Enter the names of the host and the node, which MASTER_ADDR is, into /etc/hosts."""
    known = Path("/etc/hosts").read_text().split() if Path("/etc/hosts").exists() else []
    with Path("/etc/hosts").open("a") as file:
        file.writelines(f"\n127.0.0.1 {name}\n" for name in (host, "gpu1") if name not in known)


def add_address() -> None:
    """Give the machine an address, one for documentation, if it has only that of loopback.

    Slurm's daemons listen on no loopback address. Without the program ip: a request to the kernel.
    """
    try:
        socket.getaddrinfo(
            None, 6818, socket.AF_INET, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )
    except socket.gaierror:
        address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton("192.0.2.1"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:1", address))


def cgroup_settings(constrain: str) -> str:
    """Return cgroup.conf; with version 2 enable what Slurm before 23.02 enables only for itself."""
    if not (CGROUP / "cgroup.controllers").exists():
        return f"CgroupPlugin=cgroup/v1\n{constrain}"
    for place in (CGROUP, CGROUP / "system.slice"):
        place.mkdir(exist_ok=True)
        for controller in ("cpuset", "cpu", "memory", "pids"):
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                print(f"start: no controller {controller} below {place}: {error}", flush=True)
    return f"CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n{constrain}"


def configure(cgroup: str, constrain: str) -> None:
    # A virtual machine may get its memory only when it is used.
    host = socket.gethostname().partition(".")[0]
    devices = sorted(glob.glob("/dev/nvidia[0-9]*"))
    kib = int(re.findall(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[0])
    values = {"host": host, "state": STATE, "prefix": PREFIX, "cgroup": cgroup}
    sizes = {"cpus": os.cpu_count(), "memory": max(kib // 1024, 65536), "gpus": len(devices)}
    name_host(host)
    add_address()
    write(CONFIGURATION / "slurm.conf", SLURM.format(**values, **sizes))
    gres = (f"NodeName=gpu1 Name=gpu File={device}\n" for device in devices)
    write(CONFIGURATION / "gres.conf", "".join(gres))
    write(CONFIGURATION / "cgroup.conf", cgroup_settings(constrain))
    plugin = f"required {PREFIX}/lib/slurm/container_engine.so prefix={PREFIX}\n"
    write(CONFIGURATION / "plugstack.conf", plugin)


def make_munge_ready() -> None:
    for path, mode in (
        ("/etc/munge", 0o700),
        ("/var/lib/munge", 0o700),
        ("/var/log/munge", 0o700),
        ("/run/munge", 0o755),
    ):
        os.makedirs(path, exist_ok=True)
        os.chown(path, 0, 0)
        os.chmod(path, mode)
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.touch(0o400)
        key.write_bytes(os.urandom(1024))


def prepare_node() -> None:
    """Make what docs/admin/install.md asks of a node."""
    os.chmod("/dev/fuse", 0o666)
    if modprobe := shutil.which("nvidia-modprobe"):  # makes what the first use of CUDA would make
        subprocess.run([modprobe, "-u", "-c", "0"])
    os.makedirs("/dev/mqueue", exist_ok=True)
    if not os.path.ismount("/dev/mqueue"):
        subprocess.run(["mount", "-t", "mqueue", "mqueue", "/dev/mqueue"])
    for name, value in (
        ("kernel/apparmor_restrict_unprivileged_userns", "0"),
        ("kernel/unprivileged_userns_clone", "1"),
        ("user/max_user_namespaces", "65536"),
    ):
        try:
            Path("/proc/sys", name).write_text(value)
        except OSError:
            continue
    write(Path("/etc/container-engine/config.toml"), "version = 1\n")


def daemon(*argv: str, place: Path | None = None) -> "subprocess.Popen[bytes]":
    """Start a daemon in a session of its own, so that it outlives this script.

    place: the cgroup that it starts in.
    """
    enter = ("sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(place)) if place else ()
    with (LOGS / f"{argv[0]}.out").open("ab") as log:
        return subprocess.Popen(
            (*enter, *argv),
            cwd="/",
            env=environment(HOME="/root", USER="root"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def answers(
    argv: Sequence[str], wanted: str, limit_s: float, child: "subprocess.Popen[bytes] | None" = None
) -> bool:
    """Wait until a command prints this, or the limit is over, or a daemon has ended."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and (child is None or child.poll() is None):
        done = subprocess.run(argv, env=environment(), capture_output=True, text=True)
        if done.returncode == 0 and wanted in done.stdout:
            return True
        time.sleep(0.2)
    return False


def start_slurm(place: Path | None) -> bool:
    """Start the daemons; check that the node is idle and that a step gets a GPU. Else end them.

    place: the cgroup that slurmd starts in, by default that of this process.
    """
    if place:
        place.mkdir(parents=True, exist_ok=True)
    started = [daemon("slurmctld", "-D"), daemon("slurmd", "-D", "-N", "gpu1", place=place)]
    if answers(("sinfo", "-h", "-o", "%t"), "idle", 20, started[1]):
        done = as_user(*srun("--gpus=1", "true", inside=False), limit_s=30)
        if done.code == 0:
            return True
        print(f"start: a step failed: exit code {done.code}: {done.err.strip()}", flush=True)
    for child in started:
        child.terminate()
    time.sleep(2)
    for child in started:
        child.kill()
        child.wait()
    return False


def bring_up() -> None:
    """Start Slurm as sites have it; where that fails, with less, and say so."""
    # Where systemd has slurmd. Version 1 has no such need.
    service = CGROUP / "system.slice/slurmd.service"
    usual = service if (CGROUP / "cgroup.controllers").exists() else None
    fewer = CONSTRAIN.replace("ConstrainDevices=yes\n", "")
    for cgroup, constrain, place, what in (
        (BY_CGROUP, CONSTRAIN, usual, ""),
        (BY_CGROUP, CONSTRAIN, None, "with slurmd in the cgroup of this process"),
        (BY_CGROUP, fewer, usual, "without ConstrainDevices"),
        (WITHOUT, CONSTRAIN, None, "without cgroups: nothing is constrained"),
    ):
        if what:
            print(f"start: FAILED; tried again {what}", flush=True)
        configure(cgroup, constrain)
        if start_slurm(place):
            return
        show_logs()
    raise StepError("no step starts")


def show_logs() -> None:
    for path in (*sorted(LOGS.glob("slurm*")), CONFIGURATION / "cgroup.conf"):
        print(f"== {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:]))
    print("== /proc/self/cgroup", Path("/proc/self/cgroup").read_text(), flush=True)


def describe_driver() -> None:
    """Write the CDI file, and where MPS is if a script in its place would run it."""
    ce = f"{PREFIX}/bin/ce"
    argv = [ce, "cdi", "generate", "nvidia", "-o", "/etc/cdi/nvidia.json"]
    os.makedirs("/etc/cdi", exist_ok=True)
    done = subprocess.run(argv, env=environment(HOME="/root"), capture_output=True, text=True)
    print(f"ce cdi generate nvidia: exit code {done.returncode} {done.stderr.strip()}", flush=True)
    places = [f"{d}/{name}" for name in NVIDIA for d in ("/usr/bin", "/usr/local/nvidia/bin")]
    real = [path for path in places if pack.is_elf(path)]
    found = {name: next((p for p in real if p.endswith(name)), None) for name in NVIDIA}
    if all(found.values()):
        hook = Path("/etc/container-engine/hooks.d/nvidia_cuda_mps/hook.toml")
        program, server = (found[name] for name in NVIDIA)
        write(hook, f'[settings]\nprogram = "{program}"\nserver = "{server}"\n')


def write_environments() -> None:
    text = f'image = "{STATE}/image.sqsh"\nmounts = ["{WORK}"]\nworkdir = "{WORK}"\n'
    write(STATE / "edf/plain.toml", text)
    if os.path.exists("/etc/cdi/nvidia.json"):
        text += 'devices = ["nvidia.com/gpu=all"]\n'
    write(STATE / "edf/torch.toml", f'{text}[annotations]\ncom.hooks.pytorch.enabled = "true"\n')
    text += '[annotations]\ncom.hooks.nvidia_cuda_mps.enabled = "true"\n'
    write(STATE / "edf/mps.toml", text)
    shutil.copy(Path(__file__).with_name("workload.py"), WORK)


def versions() -> str:
    def first(*argv: str) -> str:
        done = subprocess.run(argv, env=environment(), capture_output=True, text=True)
        return (done.stdout.splitlines() or ["unknown"])[0].strip()

    torch = first(facts()["python"], "-c", pack.VERSION)
    engine = first(f"{PREFIX}/bin/ce", "--version")
    crun = first(f"{PREFIX}/libexec/container-engine/programs/crun", "--version")
    return "; ".join((first("slurmd", "-V"), crun, engine, torch))


def prepare() -> None:
    """Do all of it once; later calls find it done. Raise StepError if no step can start."""
    if FACTS.exists() and answers(("sinfo", "-h", "-o", "%t"), "", 5):
        return
    write(MARK, "made by ce-gpu/run\n")
    os.makedirs("/dev/shm", exist_ok=True)
    for directory in (LOGS, STATE / "ctld", STATE / "d", STATE / "edf"):
        directory.mkdir(parents=True, exist_ok=True)
    add_user()
    make_munge_ready()
    prepare_node()
    daemon("munged", "--foreground", "--force")
    if not answers(("munge", "-n"), "MUNGE", 10):
        raise StepError(f"munged: {(LOGS / 'munged.out').read_text()}")
    bring_up()
    describe_driver()
    begin = time.monotonic()
    python = pack.find_python()
    pack.pack(python, STATE / "image.sqsh")
    write(FACTS, json.dumps({"python": python}))
    size = (STATE / "image.sqsh").stat().st_size / 1e6
    print(f"image of {python}: {size:.0f} MB, {time.monotonic() - begin:.0f} s", flush=True)
    write_environments()


def main() -> int:
    prepare()
    print(f"machine   {versions()}", flush=True)
    for edf in ("plain", "torch"):
        done = as_user(*srun("true", inside=True, edf=edf))
        if done.code:
            raise StepError(f"a step in {edf}.toml: exit code {done.code}: {done.err}")
    print("a cluster of one node is up; a native and a contained step ran", flush=True)
    return 0


if __name__ == "__main__":
    main_of(main)
