"""The container that crun makes from our configuration is the one that Podman makes.

For each feature, two containers of one environment, created in the two ways, are compared from
inside (mounts, files, environment) and from outside (the first process).
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine import Engine
from tests.integration.leftovers import comm, processes
from tests.integration.test_stacked import data, layer, stack
from tests.integration.test_start import with_entrypoint

WAYS = ("crun", "podman")
# bits of the capabilities that Podman gave until version 4: a container of ours has fewer
MORE = sum(1 << bit for bit in (13, 27, 29))  # NET_RAW, MKNOD, AUDIT_WRITE
INSIDE = """
echo "== mounts"; cat /proc/self/mountinfo
echo "== environment"; env | sort
echo "== identity"; id; hostname; pwd; umask
echo "== status"; grep -E '^(Cap|NoNewPrivs|Seccomp|Groups)' /proc/self/status
echo "== limits"; cat /proc/self/limits
echo "== files"; ls -lan / /dev /etc /run /tmp /var | sed 's/ [A-Z][a-z][a-z] .*[0-9] / /'
echo "== texts"; cat /etc/passwd /etc/group /etc/hosts /etc/hostname /run/.containerenv
echo "== masked"; ls -A /sys/kernel
echo "== network"; ls /sys/class/net
echo "== writable"; for d in / /tmp /run /var /etc; do
  mkdir $d/x 2>/dev/null && echo $d && rmdir $d/x
done
echo "== end"; read -r answer
"""


def _mount(line: str) -> str:
    """Return what a mount is, without the numbers that differ from mount to mount."""
    before, _dash, after = line.partition(" - ")
    _id, _parent, _device, root, place, options, *shared = before.split()
    kinds = sorted(field.partition(":")[0] for field in shared if "propagate_from" not in field)
    kind, _source, superblock = after.split(" ", 2)
    # only the last part of a path in the session is the same in both ways
    root = root.rpartition("/")[2] if place in ("/run/.containerenv", "/etc/hostname") else root
    own = superblock.startswith(("rw,size=", "ro,size=")) or kind == "overlay"
    return f"{place} {root} {options} {kinds} {kind} {'' if own else superblock}"


def _is_alike(mount: str) -> bool:
    """Return whether all versions of Podman and crun make this mount alike.

    crun masks a directory with an empty one, its own or a new file system.
    """
    return not mount.startswith(("/dev ", "/run/.containerenv ", "/sys/fs/cgroup", "/sys/kernel "))


def _files(lines: list[str]) -> list[str]:
    """Return lines of ls without what depends on the moment, or on the version of Podman."""
    other = (" proc", ".containerenv")
    kept = (line for line in lines if not line.endswith(other) and not line.startswith("total"))
    # links and sizes of directories count what is in them
    return [re.sub(r"^(\S+) +\d+ +(\d+) +(\d+) +\d+ ", r"\1 \2 \3 ", line) for line in kept]


def _inside(text: str) -> dict[str, Any]:
    parts = dict(part.split("\n", 1) for part in text.split("== ")[1:])
    found: dict[str, Any] = {name: part.splitlines() for name, part in parts.items()}
    found["mounts"] = sorted(filter(_is_alike, map(_mount, found["mounts"])))
    found["files"] = _files(found["files"])
    # Podman writes this for a mount over its own storage
    found["texts"] = [line for line in found["texts"] if line != "graphRootMounted=1"]
    return found


def _outside(process: Path) -> dict[str, Any]:
    """Return what can be seen of the container's first process from the host.

    Limits are left out: Podman 5 raises the soft ones, for this process alone.
    """
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    kept = {k: v for k, v in status.items() if k.startswith(("Uid", "Gid", "Groups", "No", "Sec"))}
    environment = (process / "environ").read_text().split("\0")
    return {
        **kept,
        **{name: int(status[name], 16) & ~MORE for name in status if name.startswith("Cap")},
        "environment": sorted(line for line in environment if not line.startswith("container=")),
        "command": (process / "cmdline").read_text(),
        "cgroup": (process / "cgroup").read_text(),
        "uid_map": (process / "uid_map").read_text(),
        "gid_map": (process / "gid_map").read_text(),
        "oom": (process / "oom_score_adj").read_text(),
        "of the host": sorted(
            name.name
            for name in (process / "ns").iterdir()
            if os.readlink(name) == os.readlink(f"/proc/self/ns/{name.name}")
        ),
    }


def _seen(engine: Engine, edf: Path) -> dict[str, Any]:
    before = {path.name for path in processes(engine.user.uid)}
    with engine.start(edf, "sh", "-c", INSIDE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = []
        for line in process.stdout:
            if line == "== end\n":
                break
            lines.append(line)
        else:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        [init] = [
            path
            for path in processes(engine.user.uid)
            if path.name not in before and comm(path) == ".ce-init"
        ]
        found = {**_inside("".join(lines)), "first process": _outside(init)}
        process.stdin.close()
    return found


def compare(engine: Engine, edf: Path) -> dict[str, Any]:
    """Assert that both ways lead to the same container, and return what was seen of it."""
    text = edf.read_text()
    seen = {}
    for way in WAYS:
        edf.write_text(f'annotations.com.ce.start = "{way}"\n{text}')
        seen[way] = _seen(engine, edf)
    crun, podman = (seen[way] for way in WAYS)
    for part in crun:
        assert crun[part] == podman[part], part
    return crun


@pytest.mark.parametrize("unshared", ["sys", "net,sys"])
def test_sys_shows_nothing_of_the_node_if_that_is_wanted(engine: Engine, unshared: str) -> None:
    text = f'annotations.com.ce.unshare = "{unshared}"\n'
    compare(engine, engine.edf(text))
    for way, content in (("crun", []), ("podman", ["/sys/fs", "/sys/fs/cgroup"])):
        edf = engine.edf(f'{text}annotations.com.ce.start = "{way}"\n')
        assert engine.output(edf, "find", "/sys").splitlines() == ["/sys", *content]


def test_limits_are_the_same_in_both_ways(engine: Engine) -> None:
    text = "annotations.com.ce.pids_limit = 20\nannotations.com.ce.time_limit_s = 300\n"
    seen = compare(engine, engine.edf(text))
    (line,) = [line for line in seen["limits"] if line.startswith("Max processes")]
    assert line.split()[2:4] == ["22", "22"]


def test_a_network_of_its_own_is_the_one_in_sys_as_well(engine: Engine) -> None:
    seen = compare(engine, engine.edf('annotations.com.ce.unshare = "net"\n'))
    assert seen["network"] == ["lo"]
    assert seen["masked"] == []


def test_a_plain_container(engine: Engine) -> None:
    seen = compare(engine, engine.edf())
    assert seen["network"] == sorted(os.listdir("/sys/class/net"))
    assert seen["writable"] == ["/", "/tmp", "/run", "/var", "/etc"]
    assert seen["masked"] == []
    assert {"mnt", "pid", "user"}.isdisjoint(seen["first process"]["of the host"])


def test_one_that_must_not_be_written(engine: Engine) -> None:
    seen = compare(engine, engine.edf("writable = false"))
    assert seen["writable"] == ["/tmp", "/run"]


def test_one_whose_user_is_root(engine: Engine) -> None:
    seen = compare(engine, engine.edf('annotations.com.ce.root_remap = "true"'))
    assert seen["identity"][0].startswith("uid=0")
    assert seen["first process"]["CapEff"] != 0


def test_one_whose_user_has_no_name(stranger: Engine) -> None:
    compare(stranger, stranger.edf())


def test_mounts_of_all_kinds(engine: Engine) -> None:
    data = engine.scratch / "data"
    (data / "below").mkdir(parents=True)
    (data / "a file").write_text("x")
    for path in (data, data / "below"):
        shutil.chown(path, engine.user.uid)
    image = engine.image("busybox")
    entries = [
        f"{data}:/deep/er/data:ro",
        f"{data}:/deep",
        f"{data}:/flagged:nosuid,nodev,noexec",
        f"{data}:/private:private,bind",
        f"{data}:/shared:rshared",
        f"{data}/a file:/etc/os-release:ro",
        f"{data}/a file:/new/file",
        "tmpfs:/scratch:size=10m,mode=0700",
        "tmpfs:/tmp",
        f"{image}:/other:sqsh",
        "/proc:/host/proc",
        "/dev/shm:/dev/shm:ro",
        "/sys:/host/sys",
    ]
    compare(engine, engine.edf(f"mounts = {json.dumps(entries)}"))


def test_mounts_on_what_a_read_only_container_may_write(engine: Engine) -> None:
    data = engine.scratch / "data"
    data.mkdir()
    shutil.chown(data, engine.user.uid)
    entries = [f"{data}:/tmp", "tmpfs:/run/mine", "/etc/hostname:/etc/hostname:ro"]
    edf = engine.edf(f"writable = false\nmounts = {json.dumps(entries)}")
    assert "/tmp" in compare(engine, edf)["writable"]


def test_devices(engine: Engine) -> None:
    seen = compare(engine, engine.edf('devices = ["/dev/fuse"]'))
    assert any(line.startswith("/dev/fuse ") for line in seen["mounts"])


def test_images_that_lie_above_another(engine: Engine) -> None:
    compare(engine, stack(engine, engine.image("busybox"), data(engine), layer(engine)))


def test_variables(engine: Engine) -> None:
    odd = '[env]\nA = "a,b=\\"c\\" \'d\'"\nHOME = "/elsewhere"\nHOSTNAME = "mine"\nTERM = "vt"\n'
    seen = compare(engine, engine.edf(odd))
    assert "HOME=/elsewhere" in seen["first process"]["environment"]


def test_an_image_without_variables(engine: Engine) -> None:
    compare(engine, engine.edf("", engine.linked_image({})))


def test_an_entrypoint(engine: Engine) -> None:
    script = 'export MADE="$1" CAPS="$(grep CapEff /proc/self/status)"; shift; exec "$@"'
    seen = compare(engine, with_entrypoint(engine, script))
    assert "MADE=a word" in seen["environment"]


def test_hooks_of_all_stages(engine: Engine, hooks: Path) -> None:
    """Each hook writes down what it is passed, but for what differs from start to start."""
    said = engine.scratch / "said"
    said.mkdir()
    said.chmod(0o777)
    stages = ("prestart", "createRuntime", "createContainer", "poststart")
    script = hooks / "hook.sh"
    script.write_text(
        f'#!/bin/sh\nstate=$(tr -d "\\n")\necho "$1 $2 $A $(id -u) $state" >> {said}/$1\n'
    )
    script.chmod(0o755)
    for stage in stages:
        hook = {"path": str(script), "args": ["x", stage, "word"], "env": ["A=b"], "timeout": 9}
        content = {"version": "1.0.0", "hook": hook, "when": {"always": True}, "stages": [stage]}
        (hooks / f"{stage}.json").write_text(json.dumps(content))
    never = {"version": "1.0.0", "hook": {"path": "/bin/false"}, "stages": ["prestart"]}
    never["when"] = {"annotations": {"^no such$": ".*"}}
    (hooks / "never.json").write_text(json.dumps(never))
    compare(engine.with_site(f'hooks_dirs = ["{hooks}"]'), engine.edf())
    for stage in stages:
        first, second = (said / stage).read_text().splitlines()
        assert first.split("{")[0] == second.split("{")[0]
        states = [json.loads(line[line.index("{") :]) for line in (first, second)]
        assert states[0]["status"] == states[1]["status"]


def test_a_device_of_cdi_with_its_edits(engine: Engine, hooks: Path) -> None:
    file = {
        "cdiVersion": "0.5.0",
        "kind": "example.com/card",
        "devices": [
            {
                "name": "0",
                "containerEdits": {
                    "env": ["CARD=0"],
                    "deviceNodes": [{"path": "/dev/fuse"}],
                    "mounts": [
                        {
                            "hostPath": "/etc/hosts",
                            "containerPath": "/card",
                            "options": ["ro", "bind"],
                        }
                    ],
                    "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
                },
            }
        ],
    }
    (hooks / "card.json").write_text(json.dumps(file))
    site = engine.with_site(f'cdi_dirs = ["{hooks}"]')
    seen = compare(site, engine.edf('devices = ["example.com/card=0"]'))
    assert any(line.startswith("/card ") for line in seen["mounts"])
