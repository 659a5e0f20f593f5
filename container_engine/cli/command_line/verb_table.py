"""The verbs of `ce`, and the order in which they are listed."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A module of `cli.verbs`, imported only when its verb is used.

    It offers configure(parser), which may set the default `failure` (the exit code of a CeError,
    else 1), and execute(arguments, context), which returns the exit code or raises CeError.
    """

    module: str
    help: str


VERBS = {
    "list": Verb("list_", "list the environments that can be used by name"),
    "validate": Verb("validate", "check an environment and report every problem"),
    "plan": Verb("plan", "show what a launch would do"),
    "run": Verb("run", "run a command in a container on this host"),
    "shell": Verb("shell", "open a shell in a container on this host"),
    "render": Verb("render", "print the effective environment"),
    "explain": Verb("explain", "show for each value which line it comes from"),
    "diff": Verb("diff", "show what two environments do differently"),
    "lint": Verb("lint", "give advice on an environment"),
    "init": Verb("init", "write a commented environment to begin with"),
    "schema": Verb("schema", "print the JSON Schema of a format"),
    "import": Verb("import_", "import an image from a registry, archive, directory or Podman"),
    "pull": Verb("pull", "get an image from its registry, if there is a newer one"),
    "build": Verb("build", "build an image from a Dockerfile"),
    "images": Verb("images", "list the images in the stores"),
    "inspect": Verb("inspect", "show what is in an image"),
    "lock": Verb("lock", "pin an environment to an exact image"),
    "scan": Verb("scan", "ask the site's scanner about an image"),
    "rmi": Verb("rmi", "remove an image from your store"),
    "gc": Verb("gc", "delete unused images from your store"),
    "pack": Verb("pack", "create a SquashFS file from a directory, for a mount"),
    "login": Verb("login", "log in to a registry"),
    "logout": Verb("logout", "log out from a registry"),
    "store": Verb("store", "check or repair your store"),
    "hooks": Verb("hooks", "list, show, check or test the hooks of this site"),
    "devices": Verb("devices", "list the devices of this node that environments can use"),
    "cdi": Verb("cdi", "write a CDI file for the devices of this node"),
    "ps": Verb("ps", "list your steps that run in containers"),
    "exec": Verb("exec", "run one more command, or a shell, in a running container"),
    "save": Verb("save", "save a running container as an image"),
    "ssh": Verb("ssh", "log in to a running container through its ssh server"),
    "ssh-config": Verb("ssh_config", "print what ssh on another computer needs to log in"),
    "trace": Verb("trace", "show where a launch spent its time"),
    "report": Verb("report", "write one file to attach to a support ticket"),
    "doctor": Verb("doctor", "check whether containers can run on this host"),
    "completion": Verb("completion", "print a shell's completion of ce"),
    "help": Verb("help", "show help for a verb, an error or any words"),
    "config": Verb("config", "show or check the site's configuration"),
    "version": Verb("version", "print the version"),
}

_GROUPS = {
    "Environments": (
        "shell",
        "list",
        "init",
        "validate",
        "plan",
        "explain",
        "render",
        "diff",
        "lint",
    ),
    "Images": (
        *("pull", "import", "build", "pack", "images", "inspect", "scan", "lock"),
        *("rmi", "gc", "store", "login", "logout"),
    ),
    "Running steps": ("ps", "exec", "save", "ssh", "ssh-config", "trace", "report"),
    "This host and site": (
        *("help", "hooks", "devices", "cdi", "doctor", "config", "schema", "completion", "version"),
    ),
}
# Verbs by purpose, for `ce help`: a line each.
_PURPOSES = {
    "Start": ("run", "shell", "list"),
    "Write an environment": ("init", "validate", "lint", "explain", "plan", "render", "diff"),
    "Get images": ("pull", "import", "build", "pack", "login", "logout"),
    "Manage images": ("images", "inspect", "lock", "scan", "rmi", "gc", "store"),
    "Look at running steps": ("ps", "exec", "save", "ssh", "ssh-config", "trace", "report"),
    "Know this site": ("hooks", "devices", "config", "doctor", "version"),
    "Write tools for it": ("schema", "completion", "cdi"),
}
_HEAD = """\
ce runs commands in containers, each described by an environment (NAME.toml).

  srun --environment=NAME ...   run every task of a Slurm step in it
  ce run NAME -- COMMAND        run one command in it, on this host
"""
_TAIL = """\

NAME is looked for in EDF_PATH (else ~/.edf), then among the site's; a path begins with / or ./
'ce VERB --help' says more about one of them.
"""


def overview() -> str:
    """Return what `ce` alone prints, with a line for every verb."""
    text = _HEAD
    for title, verbs in _GROUPS.items():
        text += f"\n{title}:\n"
        text += "".join(f"  ce {verb:<11}{VERBS[verb].help}\n" for verb in verbs)
    return text + _TAIL


def summary() -> str:
    """Return what `ce help` prints: the verbs by purpose."""
    width = max(map(len, _PURPOSES))
    lines = [f"  {purpose:<{width}}  {' '.join(verbs)}\n" for purpose, verbs in _PURPOSES.items()]
    return f"""\
{_HEAD}
{"".join(lines)}
  ce help VERB     options and examples of a verb; ce --help lists all verbs
  ce help CODE     what to do about an error, by the code in its line 'ce: see:'
  ce help errors   all errors and their codes
  ce help WORDS    the pages about them: ce help pip install, ce help docker
"""
