"""The site's configuration: what an administrator decides for all users."""

from __future__ import annotations

from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from container_engine.secrecy import WORDS

PullPolicy: TypeAlias = Literal["age", "always", "missing", "never"]
Overridable: TypeAlias = Literal[
    "entrypoint",
    "env",
    "mounts",
    "pull",
    "root_remap",
    "scope",
    "start",
    "start_timeout_s",
    "tmpfs_size",
    "unshare",
]
Namespace: TypeAlias = Literal["net", "ipc", "uts", "pid"]
# a path, or a CDI name
DEVICE = r"^(/[^:]*|[^/=]+/[^/=]+=.+)$"
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
PROGRAM = r"^(/.*)?$"  # an absolute path, or nothing
SIZE = r"^[0-9]+(%|[kmgKMG]?)$"
# All keys are read where users submit, and travel with the plan. Nodes read these again in their
# own files (node/start/site_rules.py), because a plan is in its user's hands until it arrives.
READ_ON_NODES = (
    *("image_stores", "policy.site_images_only", "policy.image_digests"),
    *("policy.image_registries", "policy.signed_images_only", "policy.mount_sources"),
    "policy.signature_policy",
)
# These name something that has to be on the nodes.
MEANT_FOR_NODES = (
    *("mounts", "devices", "devices_if_there", "image_store", "image_stores", "passing_dir"),
    *("tmpfs_size", "hooks_dirs", "podman", "runtime", "hook_catalog", "trace_dir"),
    *("tracking_tool", "cdi_dirs", "user_cdi_dir", "kept_dir"),
)


class Policy(BaseModel):
    """Which images the site wants to be used. It prevents mistakes; it is no security boundary."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    allowed_images: tuple[str, ...] = Field(
        (),
        description="patterns; those with a leading / are for files, the others for references; "
        "without any of a kind, all of that kind are allowed",
        examples=[["nvcr.io", "docker.io/library/*", "/apps/images"]],
    )
    denied_images: tuple[str, ...] = Field(
        (),
        description="patterns of what is refused even if it is allowed",
        examples=[["*:latest"]],
    )
    site_images_only: StrictBool = Field(
        False,
        description="launches use images of the site's stores only (image_stores), in files that "
        "their user cannot change, for SquashFS mounts, too, and mount nothing of the user's over "
        "the image's own directories; every node looks at that again, in its own configuration",
        examples=[True],
    )
    image_digests: tuple[Digest, ...] = Field(
        (),
        description="the only images that launches use, by the digests under which the site's "
        "stores (image_stores) keep them; nodes look at that again, too; empty: all",
        examples=[[f"sha256:{'0' * 64}"]],
    )
    image_registries: tuple[str, ...] = Field(
        (),
        description="patterns of registries and repositories from which launches use images, by "
        "the names that a store keeps beside an image; nodes look at that again, too; empty: all",
        examples=[["nvcr.io/nvidia", "registry.example", "localhost"]],
    )
    signed_images_only: StrictBool = Field(
        False,
        description="launches use images only that the present signature_policy has accepted, as "
        "a store keeps it beside an image; nodes look at that again, too",
        examples=[True],
    )
    mount_sources: tuple[str, ...] = Field(
        (),
        description="patterns of paths from which environments may mount, as what they lead to; "
        "nodes look at that again, too; the site's own mounts are checked as well; empty: all",
        examples=[["/scratch", "/home/*"]],
    )
    max_image_size: str = Field(
        "",
        pattern=r"^([0-9]+[KMGT]?)?$",
        description="limit of an image's file, and of its compressed layers; empty: none",
        examples=["20G"],
    )
    signature_policy: str = Field(
        "",
        description="a containers-policy.json(5) in place of the users' own: required signers",
        examples=["/etc/containers/policy.json"],
    )
    scanner: tuple[str, ...] = Field(
        (),
        description="a program and its arguments, of which {rootfs}, {image}, {name} and {digest} "
        "are filled in; its exit code 0 means that the image passed",
        examples=[["/usr/bin/trivy", "rootfs", "--exit-code", "1", "{rootfs}"]],
    )
    scanner_verdict: Literal["warn", "block"] = Field(
        "warn", description="what a launch does with an image that did not pass", examples=["block"]
    )
    scanner_timeout_s: float = Field(
        600, gt=0, description="limit for the scan of one image", examples=[1800]
    )
    scanner_max_age_s: float = Field(
        604800, ge=0, description="after this an image is scanned again", examples=[86400]
    )


class SiteConfig(BaseModel):
    """Defaults for everything, so that a site without a file works."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    version: Literal[1] = Field(1, description="version of this format", examples=[1])
    mounts: tuple[str, ...] = Field(
        (),
        description="mounts of every container, written as in an EDF",
        examples=[["/scratch", "/etc/site-ca.pem:/etc/ssl/site-ca.pem:ro"]],
    )
    devices: tuple[str, ...] = Field(
        (),
        description="devices of every container, written as in an EDF",
        examples=[["nvidia.com/gpu=all"]],
    )
    devices_if_there: tuple[Annotated[str, Field(pattern=DEVICE)], ...] = Field(
        (),
        description="devices of every container on the nodes that have them: CDI names, and paths "
        "or patterns of paths; of nvidia.com/gpu, NVIDIA_VISIBLE_DEVICES and "
        "NVIDIA_DRIVER_CAPABILITIES say how much",
        examples=[["nvidia.com/gpu=all", "/dev/cxi*", "/dev/xpmem"]],
    )
    env: dict[str, str] = Field(
        {},
        description="variables of every container, as in an EDF",
        examples=[{"HTTPS_PROXY": "http://proxy.example:3128"}],
    )
    edf_may_override: tuple[Overridable, ...] = Field(
        get_args(Overridable),
        description="what an EDF may decide in another way than the site does",
        examples=[["entrypoint", "env", "pull"]],
    )
    edf_dir: str = Field(
        "/etc/edf", description="directory of the site's EDFs", examples=["/etc/edf"]
    )
    edf_dirs: tuple[str, ...] = Field(
        (),
        description="further directories with EDFs of the site, searched after edf_dir in this "
        "order: the first EDF of a name is used",
        examples=[["/apps/edf", "/capstor/edf/community"]],
    )
    image_store: str | None = Field(
        None,
        description="imported images, where neither EDF_IMAGESTORE nor SCRATCH is set",
        examples=["/scratch/images"],
    )
    image_stores: tuple[str, ...] = Field(
        (),
        description="stores of the site, only read: images there are not imported again",
        examples=[["/apps/images"]],
    )
    passing_dir: str = Field(
        "",
        description="where images for one step are while it runs (EDF_IMAGESTORE=void): a "
        "directory that all nodes see and users may write; empty: SCRATCH, else the user's cache",
        examples=["/scratch"],
    )
    image_architecture: str = Field(
        "",
        description="of the compute nodes (amd64, arm64); empty: that of the submit host",
        examples=["arm64"],
    )
    tag_max_age_s: float = Field(
        86400, ge=0, description="after this a tag is looked up again", examples=[3600]
    )
    registry_timeout_s: float = Field(
        60, gt=0, description="limit for one question to a registry", examples=[20]
    )
    policy: Policy = Field(
        Policy(), description="which images may be used", examples=[{"denied_images": ["*:latest"]}]
    )
    pull: PullPolicy = Field(
        "age",
        description="when launches look an image up: always, if it is missing, never, or by the "
        "age of the last answer (tag_max_age_s)",
        examples=["missing"],
    )
    entrypoint: StrictBool = Field(
        False, description="run an image's entrypoint if no EDF decides", examples=[True]
    )
    deferred_variables: tuple[str, ...] = Field(
        ("SLURM_*", "SLURMD_*", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        description="names that only exist on compute nodes; a trailing * matches any rest",
        examples=[["SLURM_*", "SITE_NODE_ID"]],
    )
    start: Literal["crun", "podman"] = Field(
        "crun",
        description="what creates the containers: crun itself with the configuration that Podman "
        "would give it, or Podman, which takes longer",
        examples=["podman"],
    )
    start_timeout_s: float = Field(
        120, gt=0, description="the time after which a start has failed", examples=[60]
    )
    import_timeout_s: float = Field(
        3600, gt=0, description="limit for the import of one image", examples=[7200]
    )
    tmpfs_size: str = Field(
        "50%",
        pattern=SIZE,
        description="limit of what a container may write, a size or a part of the memory",
        examples=["16g"],
    )
    hooks_dirs: tuple[str, ...] = Field(
        (), description="OCI hook directories", examples=[["/etc/containers/oci/hooks.d"]]
    )
    podman: str = Field(
        "",
        pattern=PROGRAM,
        description="Podman on the compute nodes; empty: the first in the system's directories",
        examples=["/opt/podman-5/bin/podman"],
    )
    runtime: str = Field(
        "",
        pattern=PROGRAM,
        description="crun on the compute nodes; empty: the one that Podman finds",
        examples=["/opt/podman-5/bin/crun"],
    )
    hook_catalog: tuple[str, ...] = Field(
        ("/etc/container-engine/hooks.d",),
        description="directories of the site's hooks, NAME/hook.toml; later ones win",
        examples=[["/etc/container-engine/hooks.d"]],
    )
    trace_dir: str = Field(
        "~/.local/state/container-engine/trace",
        description="where each node writes the trace of a launch, as the user; empty: nowhere",
        examples=["/scratch/traces"],
    )
    tracking_tool: tuple[str, ...] = Field(
        (),
        description="a program of the nodes and its arguments: for each step the first node gives "
        "it the trace of its launch, JSON on its standard input; it runs as the user, in the step",
        examples=[["/usr/local/bin/track-containers"]],
    )
    cdi_dirs: tuple[str, ...] = Field(
        ("/etc/cdi", "/var/run/cdi"),
        description="directories of CDI files on the nodes; later ones win",
        examples=[["/etc/cdi", "/var/run/cdi", "/apps/cdi"]],
    )
    user_cdi_dir: str = Field(
        "",
        description="users' own CDI files, below their home; empty: users have none",
        examples=[".config/cdi"],
    )
    allowed_devices: tuple[str, ...] = Field(
        ("*",),
        description="patterns of device paths and CDI names that users may ask for",
        examples=[["/dev/fuse", "nvidia.com/*"]],
    )
    root_remap: StrictBool = Field(
        False, description="users are root in their containers", examples=[True]
    )
    scope: Literal["step", "job", "task"] = Field(
        "step",
        description="what a container lives with, where no EDF and no name decides: its step; its "
        "job, whose later steps go on with what earlier ones have written; or its task, of which "
        "each has one of its own",
        examples=["job"],
    )
    kept_dir: str = Field(
        "/tmp",  # its subdirectories are the users' alone
        pattern=PROGRAM,
        description="a directory of the nodes that users may write, for what containers write that "
        "live with their job",
        examples=["/local/scratch"],
    )
    unshare: tuple[Namespace, ...] = Field(
        (),
        description="namespaces of its own that each container has: of the network (without any "
        "interface but lo), of IPC (shared memory, message queues), of the host name, of processes",
        examples=[["ipc"]],
    )
    secret_variables: tuple[str, ...] = Field(
        WORDS,
        description="words, or patterns of words, in the names of variables whose values ce hides "
        "where it prints them, in traces and in errors",
        examples=[["TOKEN", "SECRET", "PASSWORD", "KEY", "SITE_LICENSE*"]],
    )
    pyxis_writable: StrictBool = Field(
        False,
        description="whether a container of --container-image without an environment can be "
        "written to, where no option says; pyxis calls it ENROOT_ROOTFS_WRITABLE",
        examples=[True],
    )
    pyxis_mount_home: StrictBool = Field(
        False,
        description="whether such a container has the user's home, where no option says; pyxis "
        "calls it ENROOT_MOUNT_HOME",
        examples=[True],
    )
    batch_script: Literal["host", "inside"] = Field(
        "host",
        description="where the script of sbatch --environment runs; each srun in it is inside",
        examples=["inside"],
    )

    @property
    def edf_path(self) -> tuple[str, ...]:
        """The directories with EDFs of the site; the first EDF of a name is used."""
        return (self.edf_dir, *self.edf_dirs)

    def traces_of(self, home: str) -> str:
        """Return the directory of the traces of the user with this home, "" for none."""
        return f"{home}{self.trace_dir[1:]}" if self.trace_dir[:2] == "~/" else self.trace_dir

    def offers(self, device: str) -> bool:
        """Check whether users may request a device, given as a path or CDI name."""
        real = normpath(device) if device.startswith("/") else device
        return any(fnmatchcase(real, pattern) for pattern in self.allowed_devices)

    def is_deferred(self, name: str) -> bool:
        """Check whether a variable that is undefined at submit exists on the node."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.deferred_variables
        )
