"""The text of the cluster's configuration files; pure."""

from dataclasses import dataclass

from ce_sandbox.layout import Layout

# More than the machine has, so that 64 tasks on a node and twenty steps at once need no
# overcommitting; `config_overrides` makes slurmd accept the number. Each node is one socket and
# jobs are allocated sockets, so a job gets whole nodes with its tasks spread evenly, as on a large
# cluster; OverSubscribe lets jobs share nodes. If a step has as many tasks as CPUs, Slurm binds
# each task to one CPU, which fails for CPUs that do not exist; no step here has that many tasks.
CPUS_PER_NODE = 256

# How Slurm tracks the processes of a step: by cgroup, as sites do, or by parent process alone.
CGROUP, LINUXPROC = "cgroup", "linuxproc"
TRACKINGS = (CGROUP, LINUXPROC)
_TASK_PLUGINS = {CGROUP: "task/cgroup,task/affinity", LINUXPROC: "task/affinity"}
_ACCOUNTING = {CGROUP: "cgroup", LINUXPROC: "none"}


@dataclass(frozen=True)
class Host:
    """This machine: its short name, and whether that name means 127.0.0.1."""

    name: str
    is_loopback: bool


@dataclass(frozen=True)
class Engine:
    """The installed parts of the engine that the configuration refers to."""

    plugin_id: str | None
    has_epilog: bool


def node_name(index: int) -> str:
    """Return the name of the node with this index, counted from 1."""
    return f"n{index}"


def node_names(count: int) -> list[str]:
    return [node_name(index) for index in range(1, count + 1)]


def slurm_conf(
    layout: Layout, nodes: int, host: Host, engine: Engine, tracking: str = LINUXPROC
) -> str:
    """Return Slurm's configuration for `nodes` nodes that all run on `host`.

    `tracking` is how Slurm tracks a step's processes: CGROUP or LINUXPROC.
    """
    # Daemons and srun listen on all interfaces, or at the address that the machine's name means.
    # Where that is 127.0.1.1, nodes would answer an srun at 127.0.0.1, where it does not listen.
    only = "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n" if host.is_loopback else ""
    epilog = f"Epilog={layout.epilog}\n" if engine.has_epilog else ""
    ports = _ports(layout.first_node_port(nodes), nodes)
    return f"""\
# Written by sandbox/up: changes are lost.
ClusterName=ce-sandbox
SlurmctldHost={host.name}(127.0.0.1)
{only}\
SlurmctldPort={layout.controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
PlugStackConfig={layout.plugstack}
{epilog}\
StateSaveLocation={layout.state}
SlurmdSpoolDir={layout.spool}/%n
TmpFS={layout.tmp}/%n
SlurmctldPidFile={layout.run}/slurmctld.pid
SlurmdPidFile={layout.run}/slurmd-%n.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd-%n.log

ProctrackType=proctrack/{tracking}
TaskPlugin={_TASK_PLUGINS[tracking]}
JobAcctGatherType=jobacct_gather/{_ACCOUNTING[tracking]}
JobAcctGatherFrequency=0
AccountingStorageType=accounting_storage/none
MpiDefault=none
# Memory is counted, as on a cluster: a job without --mem gets this much of a node.
SelectType=select/cons_tres
SelectTypeParameters=CR_Socket_Memory
DefMemPerNode=4096
SlurmdParameters=config_overrides
PropagateResourceLimits=ALL

# Everything is near and nothing is precious: give up early, come back by oneself.
ReturnToService=2
KillWait=2
# Many nodes share the processors, though.
MessageTimeout={min(max(30, nodes // 3), 300)}
SlurmctldTimeout=30
SlurmdTimeout={max(60, nodes // 2)}
UnkillableStepTimeout={max(20, nodes // 3)}
MinJobAge=60
InactiveLimit=0
JobRequeue=0
SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0

NodeName=DEFAULT Sockets=1 CoresPerSocket={CPUS_PER_NODE} RealMemory=262144 State=UNKNOWN
NodeName=n[1-{nodes}] NodeHostname={host.name} NodeAddr=127.0.0.1 Port={ports}
PartitionName=sandbox Nodes=ALL Default=YES OverSubscribe=FORCE:64 DefaultTime=60 State=UP
"""


def cgroup_conf() -> str:
    """Return Slurm's cgroup configuration, which matters where cgroups track steps.

    Cores are not constrained: the nodes have more of them than the machine.
    """
    return """\
# Written by sandbox/up: changes are lost.
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainDevices=yes
"""


def _ports(first: int, nodes: int) -> str:
    return str(first) if nodes == 1 else f"[{first}-{first + nodes - 1}]"


def plugstack_conf(layout: Layout, engine: Engine) -> str:
    """Return the plugin's line with the plugin's identity, so that a new build changes the file."""
    if engine.plugin_id is None:
        return "# The engine's plugin is not installed.\n"
    return f"# {engine.plugin_id}\nrequired {layout.plugin} prefix={layout.prefix}\n"
