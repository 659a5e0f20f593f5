"""Checks that run a program before the first task, on a cluster of two nodes."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.recorded import Answer, parsed, rewrite
from tests.slurm.cluster import ALICE, Cluster, causes
from tests.slurm.polling import until
from tests.slurm.test_hook_specification import of_the_page, with_own_fabric
from tests.slurm.test_hook_specification import place as place  # noqa: PLC0414  # a fixture
from tests.slurm.test_starts_again import _SETTLED_S, Node, answers_of
from tests.slurm.test_starts_again import node as node  # noqa: PLC0414  # a fixture

if TYPE_CHECKING:
    from tests.integration.libraries import Place
    from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")

_ENABLED = '[annotations]\ncom.hooks.prove.enabled = "true"\n'
# a sleep that no other test has
_HANGS = 48613
_BROKEN = f"""
[parameters.provider]
help = "h"
default = "cxi"

[checks.fine]
kind = "run"
command = ["sh", "-c", "echo provider {{provider}} on $SLURMD_NODENAME, $SLURM_STEP_NUM_TASKS task"]
words = ["provider cxi", "on n1, 1 task"]
forbid = ["tcp"]

[checks.code]
kind = "run"
command = ["sh", "-c", "echo no data >&2; echo; exit 61"]
message = "NCCL is on TCP"
hint = "ask"

[checks.silent]
kind = "run"
command = ["true"]
words = ["cxi"]

[checks.spoke]
kind = "run"
command = ["echo", "over tcp"]
forbid = ["tcp"]

[checks.hangs]
kind = "run"
command = ["sh", "-c", "setsid sleep {_HANGS} & (setsid sh -c 'sleep {_HANGS}; :' &); wait"]
limit_s = 1.5

[checks.leaves]
kind = "run"
command = ["sh", "-c", "(setsid sleep {_HANGS} &) ; echo left"]

[checks.crashes]
kind = "run"
command = ["sh", "-c", "kill -SEGV $$"]

[checks.absent]
kind = "run"
command = ["no-such-program"]

[checks.inert]
kind = "run"
command = ["/etc/passwd"]

[checks.loud]
kind = "run"
command = ["sh", "-c", "head -c 10000000 /dev/zero | tr '\\\\0' x; echo needle"]
words = ["needle"]
forbid = ["xneedlex"]

[checks.binary]
kind = "run"
command = ["sh", "-c", "printf '\\\\033[2J\\\\001\\\\377 end'; exit 1"]

[checks.nodes]
kind = "run"
program = "host"
inside = false
command = ["sh", "-c", "test -e {{here}}/prove && echo $SLURM_JOB_ID $HOME $LD_PRELOAD."]
words = ["{{node.job}} {{node.home}} ."]

[checks.beside]
kind = "run"
program = "hook"
command = ["prove", "{{provider}}"]
words = ["proved cxi inside"]

[checks.elsewhere]
kind = "run"
program = "host"
inside = false
command = ["/no/such/program"]
"""
_SAID = """\
hook prove: check elsewhere: program cannot be started: No such file or directory
hook prove: check code: NCCL is on TCP: sh ended with exit code 61, not 0; it printed: no data (ask)
hook prove: check silent: true did not print 'cxi'
hook prove: check spoke: echo printed 'tcp'; it printed: over tcp
hook prove: check hangs: sh did not pass within 1.5 s
hook prove: check crashes: sh was ended by SIGSEGV
hook prove: check inert: /etc/passwd cannot be executed in the container
hook prove: check binary: sh ended with exit code 1, not 0; it printed: [2J \ufffd end
"""


def verdicts(cluster: Cluster, *keys: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the checks in the trace of the last step by node, each as the values of `keys`."""
    done = cluster.run(["ce", "trace", "last", "--json"])
    assert done.returncode == 0, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    return {
        one["node"]: [tuple(check.get(key) for key in keys) for check in one.get("checks", [])]
        for one in nodes
    }


def running(argument: object) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(argument).encode() in words:
            found.append(str(path))
    return found


def test_each_way_to_fail_is_one_line_and_nothing_remains(cluster: Cluster, site: Site) -> None:
    program = site.hook("prove", _BROKEN).with_name("prove")
    program.write_text(
        '#!/bin/sh\n[ -d /proc/self ] && [ ! -e "$0.sh" ] && echo "proved $1 inside"\n'
    )
    program.chmod(0o755)
    edf = cluster.edf(_ENABLED)
    script = f"ps -eo args | grep -c '[s]leep {_HANGS}'; echo $CE_CHECK_ROLE."
    done = cluster.srun("-wn1", f"--environment={edf}", "sh", "-c", script, env={"LD_PRELOAD": ""})
    assert (done.returncode, done.stdout) == (0, "0\n.\n"), done.stderr
    said = [line.removeprefix("ce: warning: n1: ") for line in done.stderr.splitlines()]
    wanted = _SAID.splitlines()
    absent = [line for line in said if "check absent: no-such-program" in line]
    assert [line for line in said if line not in absent] == wanted
    assert len(absent) == 1
    assert absent[0].endswith("check absent: no-such-program is not in the image")
    assert not running(_HANGS)
    found = dict(verdicts(cluster, "name", "verdict")["n1"])
    passed = [name for name, verdict in found.items() if verdict == "passed"]
    assert passed == ["nodes", "fine", "leaves", "loud", "beside"]
    assert set(found.values()) == {"passed", "failed"}
    text = cluster.run(["ce", "trace", "last"]).stdout
    assert re.search(r"^check +n1: hook prove: fine: passed in [\d.]+ ms$", text, re.MULTILINE)


def test_a_check_that_fails_on_one_node_refuses_the_step_in_one_block(
    cluster: Cluster, site: Site
) -> None:
    site.hook(
        "prove",
        '[checks.both]\nkind = "run"\nseverity = "fail"\nmessage = "this node is broken"\n'
        'command = ["sh", "-c", "test $SLURMD_NODENAME = n1"]\nhint = "use another node"\n'
        '[checks.more]\nkind = "run"\nseverity = "fail"\n'
        'command = ["sh", "-c", "exit $SLURM_NODEID"]\n',
    )
    done = cluster.srun("-N2", f"--environment={cluster.edf(_ENABLED)}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert "hook prove: check both: this node is broken: sh ended with exit code 1, not 0" in cause
    assert "ce: also: hook prove: check more: sh ended with exit code 1, not 0" in done.stderr
    assert "use another node" in done.stderr
    assert "ce: see: ce help check-failed" in done.stderr
    assert verdicts(cluster, "name", "verdict") == {
        "n1": [("both", "passed"), ("more", "passed")],
        "n2": [("both", "failed"), ("more", "failed")],
    }


_RING = """
[edits.shared]
mounts = [{ source = "SHARED", target = "/rendezvous", options = ["rw"] }]

[checks.ring]
kind = "run"
per = "pair"
words = ["done with"]
command = ["sh", "-c", '''
cd /rendezvous
case $CE_CHECK_ROLE in
client) [ -e at.$CE_CHECK_PORT ] && echo hello >told.$CE_CHECK_PORT ;;
server)
    >at.$CE_CHECK_PORT
    while [ ! -e told.$CE_CHECK_PORT ]; do sleep 0.02; done ;;
esac && echo done with $CE_CHECK_PEER''']

[checks.mute]
kind = "run"
per = "pair"
limit_s = 0.4
command = ["sh", "-c", '''
[ $CE_CHECK_ROLE = server ] || [ $SLURMD_NODENAME = n1 ] || { echo nobody; exit 3; }''']
"""


def test_neighbours_are_tried_in_a_ring_and_a_node_alone_says_so(
    cluster: Cluster, site: Site
) -> None:
    site.hook("prove", _RING.replace("SHARED", str(site.shared)))
    edf = cluster.edf(_ENABLED)
    done = cluster.srun("-N2", f"--environment={edf}", "true")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "ce: warning: n2: hook prove: check mute (client of n1): sh ended with exit code 3, not 0;"
        " it printed: nobody\n"
    )
    for here, other in (("n1", "n2"), ("n2", "n1")):
        mute = "passed" if here == "n1" else "failed"
        assert verdicts(cluster, "name", "role", "peer", "verdict")[here] == [
            ("ring", "server", other, "passed"),
            ("ring", "client", other, "passed"),
            ("mute", "server", other, "passed"),
            ("mute", "client", other, mute),
        ]

    done = cluster.srun("-N1", f"--environment={edf}", "true")
    assert (done.returncode, done.stderr) == (0, "")
    (alone,) = verdicts(cluster, "name", "verdict").values()
    assert alone == [("ring", "alone"), ("mute", "alone")]


def test_the_pages_ring_reaches_its_neighbours(cluster: Cluster, site: Site, place: Place) -> None:
    text, _after = of_the_page("ring")
    # no node of the sandbox has CXI, and none has a name
    hosts = cluster.write("127.0.0.1 localhost n1 n2\n")
    ring = text.replace("-e rdm -p cxi", "-e msg -p tcp")
    site.hook("ring", ring, whole=False)
    mounts = f'mounts = ["/usr/bin/fi_pingpong", "{hosts}:/etc/hosts"]\n'
    enabled = '[annotations]\ncom.hooks.ring.enabled = "true"\n'
    edf = cluster.edf(f'image = "{with_own_fabric(place)}"\n{mounts}{enabled}', image=None)
    done = cluster.srun("-N2", f"--environment={edf}", "true")
    assert ring != text
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verdict_is_believed_and_the_start_without_python_until_it_ends(
    node: Node, site: Site
) -> None:
    cluster, count = node.cluster, site.shared / "count"
    # without directories of OCI hooks, which need Python
    site.file.write_text(f'hook_catalog = ["{site.catalog}"]\n')
    count.touch()
    count.chmod(0o666)
    link = site.shared / "link"
    link.write_text("down\n")
    file = site.hook(
        "prove",
        '[checks.counts]\nkind = "run"\nprogram = "hook"\ninside = false\nvalid_s = 3600\n'
        f'unchanged = ["{link}"]\n'
        'command = ["prove"]\nwords = ["counted"]\n',
    )
    program = file.with_name("prove")
    broken = site.shared / "broken"
    program.write_text(f"#!/bin/sh\nprintf x >> {count}\n[ -e {broken} ] || echo counted\n")
    program.chmod(0o755)
    edf = node.known(_ENABLED)
    assert count.read_text() == "x"
    assert verdicts(cluster, "verdict") == {"n1": [("believed",)]}

    def expired(answer: Answer) -> Answer:
        return answer._replace(witnesses={**answer.witnesses, "t": "1"})

    for kind in "starts", "checks":
        for path in (answers_of(ALICE) / kind).glob("[!.]*"):
            if parsed(path).witnesses.get("t", "1") != "1":
                rewrite(path, expired)
    assert node.is_python(edf)
    assert count.read_text() == "xx"
    until("a start without Python", lambda: not node.is_python(edf))
    assert count.read_text() == "xx"

    # a file that the verdict depends on, and who asks again, as `ce vet` does
    link.write_text("active\n")
    assert node.is_python(edf)
    until("a start without Python", lambda: not node.is_python(edf))
    assert count.read_text() == "xxx"
    broken.touch()
    assert not node.is_python(edf)
    complaint = "hook prove: check counts: prove did not print 'counted'"
    for env in ({"CE_CHECKS_AGAIN": "1"}, None):
        done = cluster.srun("-wn1", f"--environment={edf}", "true", env=env)
        assert complaint in done.stderr
    assert count.read_text() == "xxxxx"
    broken.unlink()

    # another program, which fails: its verdict is never believed
    program.write_text(f"#!/bin/sh\nprintf y >> {count}\n")
    time.sleep(_SETTLED_S)
    for _ in range(2):
        done, is_python = node.srun(f"--environment={edf}", "true")
        assert is_python
        assert complaint in done.stderr
    assert count.read_text() == "xxxxxyy"
    shutil.rmtree(file.parent)


_OF_SITE = """
[[checks]]
name = "health"
program = "host"
inside = false
command = ["sh", "-c", "echo the disk $DISK is bad; exit 2"]
"""
_OF_EDF = """
[[checks]]
name = "home"
command = ["sh", "-c", "echo $$HOME of ${HOME}, $$MY_TOKEN; exit 1"]
severity = "SEVERITY"
[env]
MY_TOKEN = "correct horse"
"""


def test_a_site_and_an_environment_have_checks_also_without_slurm(
    cluster: Cluster, site: Site
) -> None:
    site.configure(_OF_SITE)
    edf, home = site.edf(_OF_EDF.replace("SEVERITY", "warn")), cluster.home()
    wanted = [
        f"site: {site.file}:checks[0]: check health: sh ended with exit code 2, not 0;"
        " it printed: the disk is bad",
        f"{edf}:4: check home: sh ended with exit code 1, not 0; it printed: {home} of {home},"
        " (hidden)",
    ]
    done = cluster.srun("-wn1", f"--environment={edf}", "true")
    said = [line.removeprefix("ce: warning: n1: ") for line in done.stderr.splitlines()]
    assert (done.returncode, said) == (0, wanted)
    done = cluster.run(["ce", "run", edf, "true"])
    said = [line.removeprefix("ce: warning: ") for line in done.stderr.splitlines()]
    assert (done.returncode, said) == (0, wanted)

    edf = site.edf(_OF_EDF.replace("SEVERITY", "fail"))
    done = cluster.run(["ce", "run", edf, "echo", "it ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert f"ce: error: {edf}:4: check home: sh ended with exit code 1, not 0" in done.stderr
    plan = cluster.run(["ce", "plan", edf]).stdout
    assert re.search(r"^check +health: sh -c .* \(warn\)", plan, re.MULTILINE)
    assert "home: sh -c" in plan


_ISOLATED = f"""
[[checks]]
name = "hangs"
command = ["sh", "-c", "sleep {_HANGS} & sleep {_HANGS}"]
limit_s = 0.5
[[checks]]
name = "host"
program = "host"
command = ["sh", "-c", "echo my process is $$$$; hostname"]
words = ["my process is"]
[annotations.com.ce]
unshare = "pid,uts"
"""


# crun, as Podman makes one container for a node
@pytest.mark.parametrize("scope", ['"step"', '"task"\nstart = "crun"'], ids=["step", "task"])
def test_checks_run_in_containers_with_processes_of_their_own(cluster: Cluster, scope: str) -> None:
    edf = cluster.edf(f"{_ISOLATED}scope = {scope}\n")
    done = cluster.srun("-wn1", "-n2", f"--environment={edf}", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\nran\n")
    assert done.stderr == (f"ce: warning: n1: {edf}:3: check hangs: sh did not pass within 0.5 s\n")
    assert verdicts(cluster, "name", "verdict") == {"n1": [("hangs", "failed"), ("host", "passed")]}
    assert not running(_HANGS)


@pytest.mark.parametrize("severity", ["warn", "fail"])
def test_what_differs_between_nodes_is_only_the_output_and_said_once(
    cluster: Cluster, severity: str
) -> None:
    edf = cluster.edf(
        f'[[checks]]\nname = "c"\nseverity = "{severity}"\n'
        'command = ["sh", "-c", "echo $$SLURMD_NODENAME | tr n12 xab; false"]\n'
    )
    done = cluster.srun("-N2", f"--environment={edf}", "true")
    said = [line for line in done.stderr.splitlines() if f"{edf}:2: check c: " in line]
    assert len(said) == 1
    assert re.search(r"exit code 1, not 0; it printed: x[ab]$", said[0])
