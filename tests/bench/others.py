"""Command lines of the other ways to start a container."""

from collections.abc import Mapping

from tests.bench.place import Place

Way = tuple[list[str], Mapping[str, str]]

_ENGINE = (
    "--storage-driver=vfs",
    "--events-backend=none",
    "--cgroup-manager=cgroupfs",
    "--runtime=crun",
    "--log-level=error",
)
_SHARED = ("--network=host", "--ipc=host", "--uts=host", "--cgroups=disabled", "--no-hosts")
_UNCONFINED = ("--security-opt=seccomp=unconfined", "--log-driver=none")


def podman_by_hand(here: Place) -> Way:
    """Return a command that sets up namespaces, squashfuse and an overlay, then runs Podman.

    Podman's variables declare that it has a user namespace already. Its store is discarded with the
    namespaces.
    """
    at = str(here.session)
    store = (f"--root={at}/store", f"--runroot={at}/run", f"--tmpdir={at}/tmp")
    run = ("run", "-d", *_SHARED, *_UNCONFINED, "--rootfs", f"{at}/root", "sleep", "infinity")
    env = {
        "HOME": f"{at}/home",
        "XDG_RUNTIME_DIR": f"{at}/home",
        "_CONTAINERS_USERNS_CONFIGURED": "done",
        "_CONTAINERS_ROOTLESS_UID": "0",
        "_CONTAINERS_ROOTLESS_GID": "0",
    }
    return [*_by_hand(here), "podman", *_ENGINE, *store, *run], env


def crun_by_hand(here: Place) -> Way:
    """Return a command that sets up namespaces, squashfuse and an overlay, then runs crun."""
    at = str(here.session)
    crun = ("crun", f"--root={at}/crun", "--cgroup-manager=disabled")
    # a user may have 200 keys: hundreds of containers at once need to do without
    run = ("run", "--no-new-keyring", "-d", "-b", str(here.bundle), "bench")
    return [*_by_hand(here), *crun, *run], {}


def nothing_by_hand(here: Place) -> Way:
    """Return a command that sets up namespaces, squashfuse and an overlay, and no container."""
    return [*_by_hand(here), "/bin/true"], {}


def _by_hand(here: Place) -> list[str]:
    return [str(here.by_hand), str(here.session), str(here.image)]


def podman_detached(here: Place) -> tuple[list[str], list[str], Mapping[str, str]]:
    """Return commands that start and remove a container with usual rootless Podman, and variables.

    The image is unpacked and Podman's store is warm.
    """
    at = str(here.podman)
    podman = ["podman", *_ENGINE, f"--root={at}/store", f"--runroot={at}/run"]
    run = ["run", "-d", *_SHARED, "--rootfs", str(here.root), "sleep", "infinity"]
    return [*podman, *run], [*podman, "rm", "-f", "-a", "-t", "0"], _podman_environment(at)


def podman_task(here: Place) -> Way:
    """Return the command of one task in usual rootless Podman, with a store for each node.

    The nodes of the sandbox share a machine.
    """
    at = str(here.podman)
    podman = f"podman {' '.join(_ENGINE)} --root={at}/$SLURMD_NODENAME/store"
    shell = f"exec {podman} --runroot={at}/$SLURMD_NODENAME/run run --rm {' '.join(_SHARED)}"
    environment = _podman_environment(at)
    return ["sh", "-c", f"{shell} --rootfs {here.root} true"], environment


def stop_podman(here: Place) -> list[str]:
    """Return a command that ends the process that keeps rootless Podman's user namespace."""
    pid = here.podman / "xdg" / "libpod" / "tmp" / "pause.pid"
    return ["sh", "-c", f"if [ -e {pid} ]; then kill $(cat {pid}); fi"]


def _podman_environment(at: str) -> Mapping[str, str]:
    return {"HOME": f"{at}/home", "XDG_RUNTIME_DIR": f"{at}/xdg"}


def charliecloud_task(here: Place) -> Way:
    """Return a task's command with ch-run, which mounts the SquashFS file and needs USER."""
    return ["ch-run", str(here.image), "--", "true"], {"USER": "bench"}
