"""The words that people type into the search of the documentation find the page they need."""

from pathlib import Path

import pytest

from docs.reference import pages
from tests.site_search import Index

ROOT = Path(__file__).parents[2]
# What is typed, and the page that must be among the first three.
QUESTIONS = {
    "first job": "quickstart/first-job",
    "getting started": "quickstart/first-job",
    "hello world": "quickstart/first-job",
    "docker": "howto/docker",
    "docker run": "howto/docker",
    "podman": "howto/docker",
    "docker compose": "howto/docker",
    "apptainer": "guide/migration",
    "singularity": "guide/migration",
    "pyxis": "guide/migration",
    "sarus": "guide/migration",
    "cscs": "guide/migration",
    "interactive": "howto/interactive",
    "interactive shell": "howto/interactive",
    "debug running job": "howto/interactive",
    "mount my files": "howto/files",
    "current directory": "howto/files",
    "can't open file": "howto/files",
    "pip": "howto/python-packages",
    "pip install": "howto/python-packages",
    "install package": "howto/python-packages",
    "python packages": "howto/python-packages",
    "dataset": "howto/datasets",
    "small files": "howto/datasets",
    "known issues": "guide/known-issues",
    "conda": "howto/python-packages",
    "uv": "howto/python-packages",
    "virtual environment": "howto/python-packages",
    "dockerfile": "howto/dockerfile",
    "build image": "howto/dockerfile",
    "apt-get": "howto/dockerfile",
    "apt-get install running container": "howto/install-packages",
    "gpu": "howto/gpus",
    "cuda": "howto/gpus",
    "nvidia-smi": "howto/gpus",
    "nccl": "howto/network",
    "nccl slow": "howto/network",
    "slingshot": "howto/network",
    "infiniband": "howto/network",
    "jupyter": "howto/jupyter",
    "notebook": "howto/jupyter",
    "tensorboard": "howto/jupyter",
    "port": "howto/jupyter",
    "vs code": "guide/ssh",
    "ssh": "guide/ssh",
    "share with group": "howto/share",
    "nextflow": "howto/workflow-tools",
    "submitit": "howto/workflow-tools",
    "workflow": "howto/workflow-tools",
    "snakemake": "guide/workflows",
    "which node failed": "howto/failed-node",
    "slow start": "howto/failed-node",
    "get help": "howto/get-help",
    "report a problem": "howto/get-help",
    "pytorch": "quickstart/pytorch",
    "multi node pytorch": "quickstart/pytorch",
    "mpi": "quickstart/mpi",
    "pmix": "guide/topics/mpi",
    "rank 0 of 1": "guide/topics/mpi",
    "glossary": "glossary",
    "what is an edf": "glossary",
    "exit code": "guide/running",
    "sbatch": "guide/running",
    "private registry": "howto/registries",
    "login nvcr.io": "howto/registries",
    "environment variables": "guide/variables",
    "edf_path": "howto/share",
    "delete images": "guide/images",
    "supported platforms": "admin/platforms",
    "ubuntu": "admin/platforms",
    "rhel": "admin/platforms",
    "cgroup v2": "admin/platforms",
    "install": "admin/install",
    "roll out": "admin/rollout",
    "ansible": "admin/rollout",
    "health check": "admin/health",
    "drain": "admin/health",
    "monitoring": "admin/monitoring",
    "prometheus": "admin/monitoring",
    "audit log": "admin/monitoring",
    "tickets": "admin/tickets",
    "upgrade": "admin/upgrade",
    "rollback": "admin/upgrade",
    "uninstall": "admin/upgrade",
    "docker exec": "howto/docker",
    "docker pull": "guide/images",
    "docker volume": "howto/docker",
    "docker login": "howto/registries",
    "entrypoint": "guide/edf",
    "run python script": "quickstart/first-job",
    "file not found in container": "howto/files",
    "home directory": "howto/files",
    "lost files": "howto/files",
    "save changes": "howto/keep",
    "read only file system": "howto/files",
    "command not found": "guide/errors/command-not-found",
    "sudo": "howto/install-packages",
    "root in container": "howto/install-packages",
    "yum install": "howto/install-packages",
    "requirements.txt": "howto/python-packages",
    "module load": "guide/topics/host-libraries",
    "ld_library_path": "guide/topics/host-libraries",
    "pythonpath": "guide/topics/host-libraries",
    "wrong libraries": "guide/topics/host-libraries",
    "mpirun hangs": "guide/topics/mpi",
    "openmpi": "quickstart/mpi",
    "mpich": "guide/topics/mpi",
    "mpi4py": "guide/known-issues",
    "job array": "guide/running",
    "out of memory": "admin/operations",
    "no space left on device": "howto/files",
    "permission denied": "howto/files",
    "disk quota": "guide/errors/store-full",
    "attach to running job": "howto/interactive",
    "gdb": "howto/interactive",
    "amd gpu": "howto/gpus",
    "cuda version": "howto/gpus",
    "torchrun": "quickstart/pytorch",
    "huggingface cache": "howto/python-packages",
    "multiple images": "guide/images",
    "convert docker image to sqsh": "howto/dockerfile",
    "enroot": "guide/topics/pyxis",
    "proxy": "howto/registries",
    "build fails": "howto/dockerfile",
    "pin version": "guide/images",
    "lock file": "guide/images",
    "timezone": "guide/running",
    "locale": "guide/running",
    "salloc": "guide/running",
    "slurm upgrade": "admin/upgrade",
    "rpm": "admin/install",
    "selinux": "admin/platforms",
    "apparmor": "admin/install",
    "user namespaces": "guide/errors/user-namespaces",
    "lustre": "admin/platforms",
    "nfs root_squash": "admin/platforms",
    "seccomp": "admin/install",
    "allow only site images": "admin/operations",
    "scan images": "admin/operations",
    "cron": "admin/operations",
    "default mounts for all users": "admin/configuration",
    "write a hook": "admin/hooks",
    "cdi": "admin/hooks",
    "license server": "admin/hooks",
    "epilog": "admin/rollout",
    "overhead": "benchmarks",
    "time zone": "guide/running",
    "vllm": "howto/jupyter",
    "scp": "guide/ssh",
    "completion": "reference/commands",
    "offline": "howto/registries",
    "air gapped": "howto/registries",
    "arm64": "guide/images",
}


@pytest.fixture(scope="module")
def index() -> Index:
    """Return the index of all pages of the site."""
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    written += [ROOT / "hooks/README.md", ROOT / "spank_plugin/README.md"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in written}
    return Index(texts | pages())


@pytest.mark.parametrize(("words", "page"), QUESTIONS.items())
def test_what_people_type_finds_its_page_among_the_first_three(
    words: str, page: str, index: Index
) -> None:
    assert f"docs/{page}.md" in index.search(words)[:3]


def test_a_page_whose_title_has_the_word_comes_first() -> None:
    index = Index({"a.md": "# Shells\n\nA zebra.\n", "b.md": "# Zebras\n\nStripes.\n"})
    assert index.search("zebra") == ["b.md", "a.md"]


def test_a_word_of_a_code_block_is_found_and_its_comment_is_no_heading() -> None:
    index = Index({"a.md": "# One\n\n```sh\n# zebra\n```\n", "b.md": "# Two\n"})
    assert index.search("zebra") == ["a.md"]
