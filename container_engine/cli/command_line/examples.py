"""Examples of each verb, for its help, its manual page and its errors."""

from __future__ import annotations

from container_engine.cli.command_line.verb_table import hook_verbs

EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("ce list",),
    "validate": ("ce validate train", "ce validate --strict --check-files ./train.toml"),
    "plan": ("ce plan train",),
    "run": (
        "ce run demo -- python3 --version",
        "ce run --image ubuntu:24.04 -- cat /etc/os-release",
    ),
    "shell": ("ce shell demo", "ce shell --image ubuntu:24.04"),
    "render": ("ce render --format toml train",),
    "explain": ("ce explain train mounts", "ce explain --env PATH train"),
    "diff": ("ce diff train ./train-new.toml",),
    "lint": ("ce lint train",),
    "init": ("ce init train --image nvcr.io/nvidia/pytorch:25.01-py3",),
    "schema": ("ce schema edf",),
    "import": ("ce import ubuntu:24.04", "ce import -o tools.sqsh docker-archive:tools.tar"),
    "pull": ("ce pull ubuntu:24.04",),
    "build": ("ce build -t mytools:1.0 .", "ce build -f Dockerfile.gpu --build-arg V=2 ."),
    "images": ("ce images", "ce images -q"),
    "inspect": ("ce inspect demo", "ce inspect --depth 2 ubuntu:24.04"),
    "lock": ("ce lock train", "ce lock --check train"),
    "scan": ("ce scan train",),
    "rmi": ("ce rmi ubuntu:24.04",),
    "gc": ("ce gc --unused 60 --dry-run", "ce gc --size 50G"),
    "pack": ("ce pack ./dataset dataset.sqsh",),
    "login": ("ce login nvcr.io", "ce login -u alice --password-stdin registry.example.org"),
    "logout": ("ce logout nvcr.io",),
    "store": ("ce store check",),
    "hooks": ("ce hooks list", "ce hooks explain train"),
    "devices": ("ce devices",),
    "cdi": ("ce cdi generate amd -o /etc/cdi/amd.json",),
    "ps": ("ce ps", "ce ps 1234"),
    "exec": ("ce exec -w node2 1234.0 -- nvidia-smi", "ce exec work -- ls /data"),
    "save": ("ce save 1234 mine.sqsh", "ce save --difference 1234.0 mine.sqsh"),
    "trace": ("ce trace 1234", "ce trace 1234.0 --perfetto launch.json"),
    "report": ("ce report 1234", "ce report"),
    "doctor": ("ce doctor", "ce doctor --all-nodes"),
    "completion": ("ce completion bash",),
    "help": ("ce help mount-source-missing", "ce help pip install"),
    "config": ("ce config show", "ce config check ./new.toml"),
    "version": ("ce version",),
}


def hint_without_name(verb: str) -> str:
    """Return the hint for a command line that ends too early."""
    usage = f"'ce {verb} --help' shows how to use it"
    examples = examples_of(verb)
    return f"for example {examples[0]}; {usage}" if examples else usage


def examples_of(verb: str) -> tuple[str, ...]:
    """Return the examples of a verb of the engine or of a hook; none for anything else."""
    if verb in EXAMPLES or verb not in hook_verbs():
        return EXAMPLES.get(verb, ())
    return hook_verbs()[verb].examples
