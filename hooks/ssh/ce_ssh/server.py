"""The ssh server of one container: its keys, its files, its port, and its record."""

from __future__ import annotations

import os
import pwd

from ce_ssh import keys, record
from ce_ssh.ports import address_of, claim, is_free, listeners
from container_engine.base.errors import LaunchError
from container_engine.node import job_secret
from container_engine.node.inside import programs
from container_engine.node.slurm_step import complete, expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.plan_types import HookUse

BUNDLE = "/opt/oci-hooks/ssh/dropbear"
JOB = "/opt/oci-hooks/ssh/job"
NODES = "/opt/oci-hooks/ssh/nodes"
_LOGIN = f"{BUNDLE}/libexec/ce-login"
_PORTS_TRIED = 500
_STEP_S = 0.01
# a line of ssh_config is limited to 4096 characters
_NAMES_PER_LINE = 40
# bytes sent to a client before it must acknowledge them; a small window makes scp slow
_WINDOW = "1048576"
# These settings precede the image's ssh_config: nothing that it names is executed or loaded for
# these hosts, except the command of a `Match exec`.
_IDENTITY = f"""\
    IdentityFile {JOB}/id_ed25519
    UserKnownHostsFile {JOB}/known_hosts
    GlobalKnownHostsFile /dev/null
    HostKeyAlias {record.HOST_KEY_ALIAS}
    StrictHostKeyChecking yes
    CheckHostIP no
    ProxyUseFdpass yes
    IgnoreUnknown KnownHostsCommand,SecurityKeyProvider,RemoteCommand
    PermitLocalCommand no
    PKCS11Provider none
    RemoteCommand none
    KnownHostsCommand none
    SecurityKeyProvider internal
    PreferredAuthentications publickey
    ControlPath none
"""


class SshServer:
    """A service (see services.Server).

    `records` is the directory of the records of the job's nodes, empty if there is none.
    """

    def __init__(self, hook: HookUse, node: Mapping[str, str], edits: HookEdits) -> None:
        self._hook = hook
        self._parameters: Mapping[str, str] = hook["parameters"]
        self._edits = edits
        self._node = node = complete(node)
        self._wanted = int(self._parameters["port"])
        self._address = _address(hook["settings"]["listen"])
        self._name, home = _person()
        secret = job_secret.of_job(node, home, self._parameters["secret"])
        self._host = keys.derive(secret, "host")
        self._user = keys.derive(secret, "user")
        directory = f"{record.root(node, home)}/{record.of_step(node)}"
        self.variables: dict[str, str | None] = {}
        self._directory = directory if record.prepare(directory, self._node_name()) else ""

    @property
    def records(self) -> str:
        return os.path.dirname(self._directory)

    def leftovers(self) -> Sequence[str]:
        return record.leftovers(self._directory, self._node_name()) if self._directory else ()

    def start(self, place: programs.Place) -> None:
        self._make_files(place)
        # ssh runs commands with this shell, so it must be one that the image has
        shell = programs.run(place, "hook ssh: the choice of a shell", [_LOGIN, "--shell"])
        if shell != place.environment.get("SHELL"):
            self.variables["SHELL"] = shell
            place.environment = {**place.environment, "SHELL": shell}
        self.publish(place)
        port = self._listen(place)
        if port != self._wanted:
            self._edits.warn(
                self._hook, f"the ssh server listens on port {port}: {self._wanted} is in use"
            )
        self._record(port)

    def publish(self, place: programs.Place) -> None:
        what = "hook ssh: the environment of logins"
        programs.run(place, what, [_LOGIN, "--keep", f"{JOB}/environment"])

    def _make_files(self, place: programs.Place) -> None:
        host, user = keys.public_line(self._host), keys.public_line(self._user)
        allowed = [self._parameters.get("authorized_key", ""), f"{user} job"]
        files = {
            ".ssh/authorized_keys": "".join(f"{key}\n" for key in allowed if key).encode(),
            "host_key": keys.dropbear_file(self._host),
            "id_ed25519": keys.openssh_file(self._user, "job"),
            "known_hosts": f"{record.HOST_KEY_ALIAS} {host}\n".encode(),
            "ssh_config": self._config().encode(),
        }
        if self._directory:
            files["shared"] = b""
        with open(os.memfd_create("ce-ssh-files"), "wb+") as memory:
            memory.writelines(
                f"{name} {len(content)}\0".encode() + content for name, content in files.items()
            )
            memory.seek(0)
            words = [_LOGIN, "--files", JOB]
            programs.run(place, "hook ssh: the files of the server", words, memory.fileno())

    def _config(self) -> str:
        """Return the ssh_config of the container: it reaches the job's nodes without a password."""
        named = [self._nodes(f"SLURM_{name}NODELIST") for name in ("STEP_", "JOB_", "")]
        here = named[0] or named[1] or [self._node_name()]
        # a step added from outside the job has only its own nodes in one of the two variables
        elsewhere = {name: "" for name in (*named[1], *named[2]) if name not in set(here)}
        step = os.path.basename(self._directory)
        return f"{self._block(here, step)}{self._block(elsewhere, '')}Host *\n"

    def _block(self, hosts: Iterable[str], step: str) -> str:
        """Return the lines that find these nodes: a server of `step`, or of any step if empty."""
        names, lines = list(hosts), []
        for i in range(0, len(names), _NAMES_PER_LINE):
            line = " ".join(names[i : i + _NAMES_PER_LINE])
            lines.append(f"Host {line}\n    User {self._name}\n    Port {self._wanted}\n")
            lines.append(f"{_IDENTITY}    ProxyCommand {BUNDLE}/libexec/ce-connect %h %p {step}\n")
        return "".join(lines)

    def _nodes(self, variable: str) -> list[str]:
        text = self._node.get(variable)
        return list(expand(text)) if text else []

    def _listen(self, place: programs.Place) -> int:
        """Start the server and return its port. Raise LaunchError if no port is free."""
        last = min(self._wanted + _PORTS_TRIED, 65536)
        for port in range(self._wanted, last):
            claimed = claim(port)
            if claimed is None:
                continue
            try:
                if is_free(port) and self._serve(place, port):
                    return port
            finally:
                claimed.close()
        message = f"hook ssh: no port from {self._wanted} to {last - 1} is free"
        raise LaunchError(message, see="hook-service")

    def _serve(self, place: programs.Place, port: int) -> bool:
        """Start the server on this port; return False if another process has taken the port.

        Raise LaunchError if the server fails for any other reason.
        """
        terminals = os.open("/dev/ptmx", os.O_PATH)
        os.set_inheritable(terminals, True)
        words = [f"{BUNDLE}/bin/dropbear", "-F", "-E", "-s", "-W", _WINDOW]
        words += ["-P", f"{JOB}/pid", "-r", f"{JOB}/host_key", "-p", self._place(port)]
        server = programs.Process(
            place, words, environment=self._environment(terminals), workdir="/"
        )
        os.close(terminals)
        left_s, code, own, taken = place.timeout_s, None, False, False
        while not own and not taken and code is None and left_s > 0:
            own, taken = listeners(server.program, port)
            code = None if own or taken else server.exit_code(_STEP_S)
            left_s -= _STEP_S
        ready = own and not taken
        printed = server.output()
        if ready:
            server.refuse_output()
        else:
            server.kill()
        server.let_go()
        if not ready and not taken and (is_free(port) or code is None):
            raise programs.failure("hook ssh: the server", code, printed, place.timeout_s)
        return ready

    def _place(self, port: int) -> str:
        """Return the address and port in Dropbear's notation."""
        if not self._address:
            return str(port)
        address = f"[{self._address}]" if ":" in self._address else self._address
        return f"{address}:{port}"

    def _environment(self, terminals: int) -> dict[str, str]:
        """Return the environment of the server itself, without the image's variables.

        The image's LD_PRELOAD may be for another libc. SLURM_JOB_ID is for the epilog, which ends
        processes that have lost their slurmstepd.
        """
        kept = ("SLURM_JOB_ID", "SLURM_STEP_ID")
        environment = {name: self._node[name] for name in kept if name in self._node}
        return {**environment, "CE_SSH_USER": self._name, "CE_SSH_PTMX": str(terminals)}

    def _record(self, port: int) -> None:
        if not self._directory:
            self._edits.warn(
                self._hook,
                "no record of the server: the cache directory of the home"
                " directory cannot be written on this node",
            )
            return
        key_file = self._parameters.get("authorize_ssh_key", "")
        # the node's name could resolve to an address on which the server does not listen
        address = self._address or os.uname().nodename
        line = f"{port} {address} {self._name} {key_file}"
        try:
            record.write(self._directory, self._node_name(), line, keys.public_line(self._host))
        except OSError as error:
            self._edits.warn(self._hook, f"no record of the server: {error.strerror}")

    def _node_name(self) -> str:
        return self._node.get("SLURMD_NODENAME") or os.uname().nodename


def _address(where: str) -> str:
    """Return the site's address to listen on; "" for all addresses. Raise LaunchError."""
    if not where:
        return ""
    try:
        return address_of(where)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        key = "settings.listen of the site"
        raise LaunchError(
            reason, see="hook-service", where="hook ssh", key=key, name=where
        ) from None


def _person() -> tuple[str, str]:
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return f"user{os.getuid()}", "/"
    return entry.pw_name, entry.pw_dir
