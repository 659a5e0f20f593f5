"""The site's configuration: what an administrator decides for all users."""

# no `from __future__ import annotations`: with it, pydantic would have to compile each annotation
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Annotated, Literal, Self, TypeAlias, get_args

from pydantic import Field

from container_engine.base.model import Array, Model, Written, about
from container_engine.base.run_check import ListedCheck
from container_engine.base.secrecy import WORDS
from container_engine.site.places import Places

PullPolicy: TypeAlias = Literal["age", "always", "missing", "never"]
Overridable: TypeAlias = Literal[
    "entrypoint",
    "env",
    "memory_limit",
    "mounts",
    "pids_limit",
    "pull",
    "root_remap",
    "scope",
    "stage",
    "start",
    "start_timeout_s",
    "time_limit_s",
    "tmpfs_size",
    "unshare",
]
Namespace: TypeAlias = Literal["net", "ipc", "uts", "pid", "sys"]  # or an empty /sys
# a path, or a CDI name
DEVICE = r"^(/[^:]*|[^/=]+/[^/=]+=.+)$"
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
PROGRAM = r"^(/.*)?$"  # an absolute path, or nothing
SIZE = r"^[0-9]+(%|[kmgKMG]?)$"
BYTES = r"^([1-9][0-9]*[kmgtKMGT]?)?$"  # or nothing

_PLACES = Places()


class Policy(Model):
    """Which images the site wants to be used. It prevents mistakes; it is no security boundary."""

    allowed_images: Annotated[
        Array[str],
        about(
            "patterns; those with a leading / are for files, the others for references; without "
            "any of a kind, all of that kind are allowed",
            examples=[["nvcr.io", "docker.io/library/*", "/apps/images"]],
        ),
    ] = ()
    denied_images: Annotated[
        Array[str],
        about("patterns of what is refused even if it is allowed", examples=[["*:latest"]]),
    ] = ()
    site_images_only: Annotated[
        bool,
        about(
            "launches use images of the site's stores only (image_stores), in files that their "
            "user cannot change, for SquashFS mounts, too; no file of the user is mounted over "
            "the image's own directories; every node looks at that again, in its own "
            "configuration",
            examples=[True],
        ),
    ] = False
    image_digests: Annotated[
        Array[Digest],
        about(
            "the only images that launches use, by the digests under which the site's stores "
            "(image_stores) keep them; nodes look at that again, too; empty: all",
            examples=[[f"sha256:{'0' * 64}"]],
        ),
    ] = ()
    image_registries: Annotated[
        Array[str],
        about(
            "patterns of registries and repositories from which launches use images, by the "
            "names that a store keeps beside an image; nodes look at that again, too; empty: "
            "all",
            examples=[["nvcr.io/nvidia", "registry.example", "localhost"]],
        ),
    ] = ()
    signed_images_only: Annotated[
        bool,
        about(
            "launches use only images that the present signature_policy has accepted, which a "
            "store records beside each image; nodes check that again",
            examples=[True],
        ),
    ] = False
    mount_sources: Annotated[
        Array[str],
        about(
            "patterns of paths from which environments may mount, as what they lead to; nodes "
            "look at that again, too; the site's own mounts are checked as well; empty: all",
            examples=[["/scratch", "/home/*"]],
        ),
    ] = ()
    max_image_size: Annotated[
        str,
        about(
            "limit of an image's file, and of its compressed layers; empty: none",
            pattern=r"^([0-9]+[KMGT]?)?$",
            examples=["20G"],
        ),
    ] = ""
    signature_policy: Annotated[
        str,
        about(
            "a containers-policy.json(5) in place of the users' own: required signers",
            examples=["/etc/containers/policy.json"],
        ),
    ] = ""
    sif_keys: Annotated[
        str,
        about(
            "a binary keyring of PGP: one of its keys must have signed each SIF file that is "
            "imported or launched; empty: SIF files need no signature",
            examples=["/etc/pki/containers/sif.gpg"],
        ),
    ] = ""
    scanner: Annotated[
        Array[str],
        about(
            "a program and its arguments, of which {rootfs}, {image}, {name} and {digest} are "
            "filled in; its exit code 0 means that the image passed",
            examples=[["/usr/bin/trivy", "rootfs", "--exit-code", "1", "{rootfs}"]],
        ),
    ] = ()
    scanner_verdict: Annotated[
        Literal["warn", "block"],
        about("what a launch does with an image that did not pass", examples=["block"]),
    ] = "warn"
    scanner_timeout_s: Annotated[
        float, about("limit for the scan of one image", gt=0, examples=[1800])
    ] = 600
    scanner_max_age_s: Annotated[
        float, about("after this an image is scanned again", ge=0, examples=[86400])
    ] = 604800


class SiteConfig(Written):
    """Defaults for everything, so that a site without a file works."""

    version: Annotated[Literal[1], about("version of this format", examples=[1])] = 1
    mounts: Annotated[
        Array[str],
        about(
            "mounts of every container, written as in an EDF",
            examples=[["/scratch", "/etc/site-ca.pem:/etc/ssl/site-ca.pem:ro"]],
        ),
    ] = ()
    devices: Annotated[
        Array[str],
        about(
            "devices of every container, written as in an EDF", examples=[["nvidia.com/gpu=all"]]
        ),
    ] = ()
    devices_if_there: Annotated[
        Array[Annotated[str, Field(pattern=DEVICE)]],
        about(
            "devices of every container on the nodes that have them: CDI names, and paths or "
            "patterns of paths; of nvidia.com/gpu, NVIDIA_VISIBLE_DEVICES and "
            "NVIDIA_DRIVER_CAPABILITIES select which, and which parts of the driver",
            examples=[["nvidia.com/gpu=all", "/dev/cxi*", "/dev/xpmem"]],
        ),
    ] = ()
    env: Annotated[
        dict[str, str],
        about(
            "variables of every container, as in an EDF",
            examples=[{"HTTPS_PROXY": "http://proxy.example:3128"}],
        ),
    ] = Field(default_factory=dict)
    checks: Annotated[
        Array[ListedCheck],
        about(
            "programs that must pass before the first task of every container",
            examples=[[{"name": "gpus", "command": ["nvidia-smi", "-L"], "severity": "fail"}]],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = ()
    edf_may_override: Annotated[
        Array[Overridable],
        about(
            "what an EDF may decide in another way than the site does",
            examples=[["entrypoint", "env", "pull"]],
        ),
    ] = get_args(Overridable)
    edf_dir: Annotated[str, about("directory of the site's EDFs", examples=["/etc/edf"])] = (
        _PLACES.edf_dir
    )
    edf_dirs: Annotated[
        Array[str],
        about(
            "further directories with EDFs of the site, searched after edf_dir in this order: "
            "the first EDF of a name is used",
            examples=[["/apps/edf", "/capstor/edf/community"]],
        ),
    ] = ()
    image_store: Annotated[
        str | None,
        about(
            "imported images, where neither EDF_IMAGESTORE nor SCRATCH is set",
            examples=["/scratch/images"],
        ),
    ] = None
    image_stores: Annotated[
        Array[str],
        about(
            "stores of the site, only read: images there are not imported again",
            examples=[["/apps/images"]],
        ),
    ] = ()
    passing_dir: Annotated[
        str,
        about(
            "where images for one step are while it runs (EDF_IMAGESTORE=void): a directory "
            "that all nodes see and users may write; empty: SCRATCH, else the user's cache",
            examples=["/scratch"],
        ),
    ] = ""
    store_layout: Annotated[
        Array[str],
        about(
            "a program and its arguments, of which {file} and {directory} are filled in: the file "
            "of an image before it is written, and its directory, which is a temporary one of its "
            "own; it runs as the user, for at most 20 seconds",
            examples=[["/usr/bin/lfs", "setstripe", "-c", "8", "-S", "4M", "{file}"]],
        ),
    ] = ()
    importer: Annotated[
        str,
        about(
            "a program with the interface of pyxis's importer=, which makes the file of an image "
            "that is imported from a registry; it runs as the user, where the image is imported",
            examples=["/usr/local/libexec/importer.sh"],
        ),
    ] = ""
    image_compressor: Annotated[
        Literal["gzip", "lz4", "zstd"],
        about("what compresses the images that are made", examples=["lz4"]),
    ] = "zstd"
    image_block_size: Annotated[
        Literal["128K", "256K", "512K", "1M"],
        about(
            "of the images that are made: what is read and decompressed together",
            examples=["1M"],
        ),
    ] = "128K"
    image_architecture: Annotated[
        str,
        about(
            "of the compute nodes (amd64, arm64); empty: that of the submit host",
            examples=["arm64"],
        ),
    ] = ""
    tag_max_age_s: Annotated[
        float, about("after this a tag is looked up again", ge=0, examples=[3600])
    ] = 86400
    registry_timeout_s: Annotated[
        float, about("limit for one question to a registry", gt=0, examples=[20])
    ] = 60
    policy: Annotated[
        Policy,
        about("which images may be used", examples=[{"denied_images": ["*:latest"]}]),
    ] = Field(default_factory=Policy)
    pull: Annotated[
        PullPolicy,
        about(
            "when launches look an image up: always, if it is missing, never, or by the age of "
            "the last answer (tag_max_age_s)",
            examples=["missing"],
        ),
    ] = "age"
    entrypoint: Annotated[
        bool, about("run an image's entrypoint if no EDF decides", examples=[True])
    ] = False
    deferred_variables: Annotated[
        Array[str],
        about(
            "names that only exist on compute nodes; a trailing * matches any rest",
            examples=[["SLURM_*", "SITE_NODE_ID"]],
        ),
    ] = ("SLURM_*", "SLURMD_*", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    start: Annotated[
        Literal["crun", "podman"],
        about(
            "what creates the containers: crun itself with the configuration that Podman would "
            "give it, or Podman, which takes longer",
            examples=["podman"],
        ),
    ] = "crun"
    start_timeout_s: Annotated[
        float, about("the time after which a start has failed", gt=0, examples=[60])
    ] = 120
    import_timeout_s: Annotated[
        float, about("limit for the import of one image", gt=0, examples=[7200])
    ] = 3600
    tmpfs_size: Annotated[
        str,
        about(
            "limit of what a container may write, a size or a part of the memory",
            pattern=SIZE,
            examples=["16g"],
        ),
    ] = "50%"
    memory_limit: Annotated[
        str,
        about(
            "memory of a container, beyond which it is ended; empty: none",
            pattern=BYTES,
            examples=["4g"],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = ""
    pids_limit: Annotated[
        int,
        about(
            "processes and threads of a container, beyond which none can be started; 0: no limit",
            ge=0,
            examples=[512],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = 0
    time_limit_s: Annotated[
        float,
        about(
            "the time after which a container is ended; 0: no limit",
            ge=0,
            examples=[3600],
            json_schema_extra={"since": "0.1.0"},
        ),
    ] = 0
    hooks_dirs: Annotated[
        Array[str],
        about("OCI hook directories", examples=[["/etc/containers/oci/hooks.d"]]),
    ] = ()
    podman: Annotated[
        str,
        about(
            "Podman on the compute nodes; empty: the first in the system's directories",
            pattern=PROGRAM,
            examples=["/opt/podman-5/bin/podman"],
        ),
    ] = ""
    runtime: Annotated[
        str,
        about(
            "crun on the compute nodes; empty: the one that Podman finds",
            pattern=PROGRAM,
            examples=["/opt/podman-5/bin/crun"],
        ),
    ] = ""
    hook_catalog: Annotated[
        Array[str],
        about(
            "directories of the site's hooks, NAME/hook.toml; later ones win",
            examples=[["/etc/container-engine/hooks.d"]],
        ),
    ] = ("/etc/container-engine/hooks.d",)
    trace_dir: Annotated[
        str,
        about(
            "where each node writes the trace of a launch, as the user; empty: nowhere",
            examples=["/scratch/traces"],
        ),
    ] = _PLACES.trace_dir
    starts_file: Annotated[
        str,
        about(
            "a file that all hosts can read, in which ce metrics counts the starts of the cluster; "
            "empty: none",
            examples=["/shared/container-engine/starts.json"],
        ),
    ] = _PLACES.starts_file
    tracking_tool: Annotated[
        Array[str],
        about(
            "a program of the nodes and its arguments: for each step the first node gives it "
            "the trace of its launch, JSON on its standard input; it runs as the user, in the "
            "step",
            examples=[["/usr/local/bin/track-containers"]],
        ),
    ] = ()
    cdi_dirs: Annotated[
        Array[str],
        about(
            "directories of CDI files on the nodes; later ones win",
            examples=[["/etc/cdi", "/var/run/cdi", "/apps/cdi"]],
        ),
    ] = ("/etc/cdi", "/var/run/cdi")
    user_cdi_dir: Annotated[
        str,
        about(
            "users' own CDI files, below their home; empty: users have none",
            examples=[".config/cdi"],
        ),
    ] = ""
    allowed_devices: Annotated[
        Array[str],
        about(
            "patterns of device paths and CDI names that users may ask for",
            examples=[["/dev/fuse", "nvidia.com/*"]],
        ),
    ] = ("*",)
    root_remap: Annotated[bool, about("users are root in their containers", examples=[True])] = (
        False
    )
    scope: Annotated[
        Literal["step", "job", "task"],
        about(
            "what a container lives with, where no EDF and no name decides: its step; its job, "
            "whose later steps go on with what earlier ones have written; or its task, of which "
            "each has one of its own",
            examples=["job"],
        ),
    ] = "step"
    stage: Annotated[
        Literal["none", "memory", "all"],
        about(
            "whether the first step of a large job copies its images into the memory of the "
            "job's nodes, so that one node alone reads the shared file; with all, its :sqsh "
            "mounts, too",
            examples=["memory"],
        ),
    ] = "none"
    stage_nodes: Annotated[
        int, about("the nodes from which on a job is large for that", ge=2, examples=[200])
    ] = 64
    kept_dir: Annotated[
        str,
        about(
            "a directory of the nodes that users may write, for what containers write that live "
            "with their job",
            pattern=PROGRAM,
            examples=["/local/scratch"],
        ),
    ] = "/tmp"
    unshare: Annotated[
        Array[Namespace],
        about(
            "namespaces of its own that each container has: of the network (without any "
            "interface but lo), of IPC (shared memory, message queues), of the host name, of "
            "processes; with sys, /sys is empty",
            examples=[["ipc"]],
        ),
    ] = ()
    secret_variables: Annotated[
        Array[str],
        about(
            "words, or patterns of words, in the names of variables whose values ce hides where "
            "it prints them, in traces and in errors",
            examples=[["TOKEN", "SECRET", "PASSWORD", "KEY", "SITE_LICENSE*"]],
        ),
    ] = WORDS
    pyxis_writable: Annotated[
        bool,
        about(
            "whether a container of --container-image without an environment can be written to, "
            "where no option says; pyxis calls it ENROOT_ROOTFS_WRITABLE",
            examples=[True],
        ),
    ] = False
    pyxis_mount_home: Annotated[
        bool,
        about(
            "whether such a container has the user's home, where no option says; pyxis calls it "
            "ENROOT_MOUNT_HOME",
            examples=[True],
        ),
    ] = False
    batch_script: Annotated[
        Literal["host", "inside"],
        about(
            "where the script of sbatch --environment runs; each srun in it is inside",
            examples=["inside"],
        ),
    ] = "host"

    @property
    def places(self) -> Places:
        return Places(*(getattr(self, name) for name in Places._fields))

    def for_arch(self, arch: str | None) -> Self:
        """Return the settings for images of another architecture, if one is named."""
        return self.model_copy(update={"image_architecture": arch}) if arch else self

    def offers(self, device: str) -> bool:
        """Check whether users may request a device, given as a path or CDI name."""
        real = normpath(device) if device.startswith("/") else device
        return any(fnmatchcase(real, pattern) for pattern in self.allowed_devices)

    def is_deferred(self, name: str) -> bool:
        """Check whether a variable that is undefined at submission will be defined on the node."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.deferred_variables
        )
