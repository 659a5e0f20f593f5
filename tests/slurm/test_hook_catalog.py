"""Hooks as data, CDI devices and OCI hooks: a site's files and their effect on tasks."""

import json
import os
import re
import stat
from collections.abc import Callable

import pytest

from tests.slurm.cluster import ROOT, Cluster, causes
from tests.slurm.job import job_id, started
from tests.slurm.polling import until
from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")
BLOCK = re.compile(r"^```toml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def enabled(name: str, **parameters: str) -> str:
    said = {"enabled": "true", **parameters}
    return "[annotations]\n" + "".join(
        f'com.hooks.{name}.{key} = "{value}"\n' for key, value in said.items()
    )


# ---- the model -------------------------------------------------------------------------------


def test_the_guides_hook_does_what_the_guide_says(cluster: Cluster, site: Site) -> None:
    blocks = dict(BLOCK.findall((ROOT / "docs/admin/hooks.md").read_text()))
    text = blocks["/etc/container-engine/hooks.d/licence/hook.toml"]
    file = site.hook("licence", text.replace("/etc/licences", str(site.shared)), whole=False)
    announce = file.with_name("announce")
    announce.write_text(f'#!/bin/sh\necho "$1" > {site.shared}/announced\n')
    announce.chmod(0o755)
    for server in ("green", "red"):
        (site.shared / f"{server}.lic").write_text(f"I am {server}\n")
    edf = site.edf(blocks["~/.edf/compile.toml"].partition('"\n')[2])
    script = 'cat "$LM_LICENSE_FILE"; echo "$LM_LICENSE_FILE"'
    done = cluster.srun("-N2", "-n2", f"--environment={edf}", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(["I am red", "/etc/licence.lic"] * 2)
    assert (site.shared / "announced").read_text() == "red\n"


def test_a_wrong_value_is_refused_at_submit_with_its_line(cluster: Cluster, site: Site) -> None:
    site.hook("h", '[parameters.p]\nhelp = "h"\nvalues = ["green", "red"]\n')
    edf = site.edf(enabled("h", p="rad"))
    done = cluster.srun(f"--environment={edf}", "true")
    assert done.returncode == 125
    said = f"{edf}:5: annotations.com.hooks.h.p: unknown value 'rad', did you mean 'red'?"
    assert said in done.stderr


def test_a_hook_that_is_on_by_default_is_there_and_can_be_turned_off(
    cluster: Cluster, site: Site
) -> None:
    site.hook("h", 'default = "on"\n[edits.e]\nenv.FROM_HOOK = "a b"\n')
    show = ("sh", "-c", 'echo "${FROM_HOOK-unset}"')
    assert cluster.srun(f"--environment={site.edf()}", *show).stdout == "a b\n"
    off = site.edf('[annotations]\ncom.hooks.h.enabled = "false"\n')
    assert cluster.srun(f"--environment={off}", *show).stdout == "unset\n"


def test_a_hook_of_a_partition_applies_in_its_steps_only_with_what_it_implies(
    cluster: Cluster, site: Site
) -> None:
    for name, partition, value in (("ours", "sand*", "here"), ("others", "gpu", "there")):
        mounts = f'mounts = [{{ source = "{site.shared}", target = "/{value}" }}]'
        site.hook(
            name,
            f'default = "automatic"\nautomatic_when = ["SLURM_JOB_PARTITION={partition}"]\n'
            f'implies = ["of_{name}"]\n[edits.all]\nenv.WHERE = "{value}"\n{mounts}\n',
        )
    site.hook("of_ours", '[edits.all]\nenv.FAST = "yes"\n')
    site.hook("of_others", '[edits.all]\ndevices = [{ path = "/dev/nothing*" }]\n')
    script = 'echo "$WHERE $FAST"; ls -d /here /there'
    done = cluster.srun(f"--environment={site.edf()}", "sh", "-c", script)
    assert done.stdout.splitlines() == ["here yes", "/here"], done.stderr
    off = site.edf('[annotations]\ncom.hooks.ours.enabled = "false"\n')
    done = cluster.srun(f"--environment={off}", "sh", "-c", script)
    assert done.stdout.splitlines() == [" "], done.stderr


def test_variables_count_in_the_order_edf_hook_image_host(cluster: Cluster, site: Site) -> None:
    site.hook(
        "h", '[edits.e]\nenv = { A = "hook", B = "hook", PATH = "/hook" }\nprepend.L = ["/l"]\n'
    )
    edf = site.edf('env = { A = "edf", L = "mine" }\n' + enabled("h"))
    script = 'echo "$A $B $C $PATH $L"'
    done = cluster.srun(
        f"--environment={edf}", "/bin/sh", "-c", script, env={"B": "host", "C": "host"}
    )
    assert done.stdout == "edf hook host /hook /l:mine\n"


def test_a_hook_whose_device_the_node_lacks_is_refused_by_name(
    cluster: Cluster, site: Site
) -> None:
    site.hook("h", '[edits.e]\ndevices = [{ path = "/dev/nothing*" }]\n')
    done = cluster.srun(f"--environment={site.edf(enabled('h'))}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert "hook h: device '/dev/nothing*' does not exist on this node" in cause


def test_the_remedy_leaves_a_hook_out_by_the_annotation_that_turns_it_on(
    cluster: Cluster, site: Site
) -> None:
    devices = '[edits.e]\ndevices = [{ path = "/dev/nothing*" }]\n'
    file = site.hook("h", f'switch = "org.h"\n{devices}')
    text = '[annotations]\norg.h = "{}"\n'
    done = cluster.srun(f"--environment={site.edf(text.format('true'))}", "true")
    assert done.returncode == 125
    assert 'leave the hook out: org.h = "false"' in done.stderr
    done = cluster.srun(f"--environment={site.edf(text.format('false'))}", "true")
    assert done.returncode == 0, done.stderr
    file.write_text(file.read_text().replace("switch", 'default = "required"\nswitch', 1))
    done = cluster.srun(f"--environment={site.edf('')}", "true")
    assert done.returncode == 125
    assert "choose nodes that have it, or ask the administrator\n" in done.stderr


def writable_by_others(site: Site) -> str:
    file = site.hook("bad", "")
    file.chmod(0o666)
    return f"{file}: others than its owner may write it"


def link_out(site: Site) -> str:
    (site.catalog / "bad").symlink_to("/etc")
    return f"{site.catalog}/bad: is a symbolic link out of {site.catalog}, to /etc"


def bad_schema(site: Site) -> str:
    return f"{site.hook('bad', 'devices = []')}:3: unknown key 'devices'"


def bad_toml(site: Site) -> str:
    return f"{site.hook('bad', 'x =')}: not valid TOML"


def circle(site: Site) -> str:
    site.hook("good", 'implies = ["bad"]')
    return f"{site.hook('bad', 'implies = [' + repr('good') + ']')}: implies: goes in a circle"


def missing_file(site: Site) -> str:
    (site.catalog / "bad").mkdir()
    return f"{site.catalog}/bad/hook.toml: no such file or directory"


def owned_by_a_user(site: Site) -> str:
    file = site.hook("bad", "")
    os.chown(file, 1001, -1)
    return f"{file}: owned by user 1001, not by root"


BAD = (
    writable_by_others,
    link_out,
    bad_schema,
    bad_toml,
    circle,
    missing_file,
    owned_by_a_user,
)


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_catalog_is_refused_by_the_check_and_by_a_launch(
    cluster: Cluster, site: Site, spoil: Callable[[Site], str]
) -> None:
    message = spoil(site)
    check = cluster.run([f"{cluster.prefix}/bin/ce", "hooks", "check"])
    assert (check.returncode, message in check.stderr) == (1, True), check.stderr
    done = cluster.srun(f"--environment={site.edf()}", "true")
    assert (done.returncode, message in done.stderr) == (125, True), done.stderr


def test_an_artifact_of_the_network_software_is_found_by_version_and_name(
    cluster: Cluster, site: Site
) -> None:
    base = site.programs.parent / "netstack"
    name = "gpu:cuda13,cxi:13.1.0,ofi:2.5.1,aws:1.18.0+dl"
    for version in ("26.9", "26.10"):
        library = base / os.uname().machine / version / name
        library.mkdir(parents=True)
        (library / "which").write_text(version)
    site.hook("netstack", f'settings.base = "{base}"\n', whole=False)
    said = f'com.hooks.netstack.source = "artifact"\ncom.hooks.netstack.name = "{name}"\n'
    edf = site.edf(f"[annotations]\n{said}")
    done = cluster.srun(f"--environment={edf}", "sh", "-c", f"cat {base}/*/*/*/which")
    assert (done.returncode, done.stdout) == (0, "26.10"), done.stderr
    edf = site.edf(f'[annotations]\n{said}com.hooks.netstack.version = "26.8"\n')
    done = cluster.srun(f"--environment={edf}", "true")
    assert f"{edf}:6: com.hooks.netstack.version: there is no '26.8' in {base}" in done.stderr
    assert "there are 26.10, 26.9" in done.stderr


# ---- CDI -------------------------------------------------------------------------------------


def test_all_that_a_cdi_device_says_is_seen_by_every_task(cluster: Cluster, site: Site) -> None:
    (site.shared / "inside").write_text("of the node\n")
    program = site.program("link", f"echo ran >> {site.shared}/hook-$1")
    (site.cdi / "thing.yaml").write_text(
        f"""\
cdiVersion: 0.7.0
kind: example.com/thing
containerEdits:
  env:
  - SHARED=for all
  additionalGids: [4242]
devices:
- name: one
  containerEdits:
    deviceNodes:
    - path: /dev/thing
      hostPath: /dev/zero
    mounts:
    - hostPath: {site.shared}/inside
      containerPath: /opt/thing/file
      options: [ro, nosuid, nodev, bind]
    env: ["OWN=a=b c"]
    hooks:
    - hookName: createContainer
      path: {program}
      args: [link, "one"]
"""
    )
    edf = site.edf('devices = ["example.com/thing=one"]\n[env]\nSHARED = "mine"\n')
    script = 'test -c /dev/thing && echo "$OWN|$SHARED|$(cat /opt/thing/file)"'
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "a=b c|mine|of the node\n" * 4), done.stderr
    assert "is for members of group 4242, and you are not one: " in done.stderr
    assert (site.shared / "hook-one").read_text() == "ran\nran\n"


def test_devices_of_the_site_are_given_where_the_node_has_them(
    cluster: Cluster, site: Site
) -> None:
    roots = site.programs / "of-root"
    os.mknod(roots, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    wanted = f'["nvidia.com/gpu=all", "/dev/full", "/dev/none", "{roots}"]'
    site.configure(f"devices_if_there = {wanted}\n")
    words = ("sh", "-c", f"ls -d /dev/full {roots} /dev/gpu 2>/dev/null; echo ${{DRIVER-none}}")
    done = cluster.srun(f"--environment={site.edf()}", *words)
    assert done.stdout == "/dev/full\nnone\n", done.stderr
    edits = {
        "env": ["DRIVER=there"],
        "deviceNodes": [{"path": "/dev/gpu", "hostPath": "/dev/zero"}],
    }
    devices = [{"name": "all", "containerEdits": edits}]
    spec = {"cdiVersion": "1.0.0", "kind": "nvidia.com/gpu", "devices": devices}
    (site.cdi / "nvidia.json").write_text(json.dumps(spec))
    done = cluster.srun(f"--environment={site.edf()}", *words)
    assert (done.stdout, done.stderr) == ("/dev/full\n/dev/gpu\nthere\n", "")
    edf = site.edf('env.NVIDIA_VISIBLE_DEVICES = "all"\n')
    ce = [f"{cluster.prefix}/bin/ce", "run", edf, "--", *words]
    done = cluster.run(ce)
    assert (done.stdout, done.stderr) == ("/dev/full\n/dev/gpu\nthere\n", "")


def test_a_hook_gives_a_cdi_device_that_a_node_may_lack_where_it_is(
    cluster: Cluster, site: Site
) -> None:
    names = '["example.com/gpu=all", "example.com/none=all"]'
    site.hook("gpus", f'default = "on"\n[edits.all]\ncdi_if_there = {names}\n')
    srun = (f"--environment={site.edf()}", "sh", "-c", "echo ${DRIVER-none}")
    without = cluster.srun(*srun)
    devices = [{"name": "all", "containerEdits": {"env": ["DRIVER=there"]}}]
    spec = {"cdiVersion": "1.0.0", "kind": "example.com/gpu", "devices": devices}
    (site.cdi / "gpu.json").write_text(json.dumps(spec))
    assert (without.stdout, without.stderr) == ("none\n", "")
    there = cluster.srun(*srun)
    assert (there.stdout, there.stderr) == ("there\n", "")


def test_a_device_of_the_site_that_a_node_lacks_is_the_administrators_to_mend(
    cluster: Cluster, site: Site
) -> None:
    site.configure('devices = ["nvidia.com/gpu=all", "/dev/none"]\n')
    done = cluster.srun(f"--environment={site.edf()}", "true")
    assert done.returncode == 125
    assert "device '/dev/none': does not exist" in done.stderr
    assert "ce: also: " in done.stderr
    assert done.stderr.count("the administrator may want devices_if_there") == 1, done.stderr
    assert "remove the line" not in done.stderr
    site.configure('devices_if_there = ["/dev/none"]\n')
    done = cluster.run([f"{cluster.prefix}/bin/ce", "plan", site.edf()])
    assert "/dev/none, where the node has it" in done.stdout, done.stderr


def test_an_unknown_cdi_device_is_refused_with_line_node_and_those_there_are(
    cluster: Cluster, site: Site
) -> None:
    spec = {"cdiVersion": "1.0.0", "kind": "example.com/thing", "devices": [{"name": "one"}]}
    (site.cdi / "thing.json").write_text(json.dumps(spec))
    edf = site.edf('devices = ["example.com/thing=two"]\n')
    done = cluster.srun(f"--environment={edf}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert f"{edf}:3: device 'example.com/thing=two': no CDI device of that name" in cause
    assert "this node has example.com/thing=one" in cause


# ---- OCI hooks -------------------------------------------------------------------------------

STAGES = ("prestart", "createRuntime", "createContainer", "poststart")


@pytest.mark.parametrize("stage", STAGES)
def test_an_oci_hook_runs_at_its_stage_with_the_state_on_stdin(
    cluster: Cluster, site: Site, stage: str
) -> None:
    out = site.shared / "state"
    program = site.program("show", f'cat > {out}; echo "$0 $1 $FROM" > {out}.args')
    site.oci_hook("show", str(program), stage)
    edf = site.edf('[annotations]\norg.example.colour = "green"\n')
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    state = json.loads(out.read_text())
    assert state["annotations"]["org.example.colour"] == "green"
    assert state["ociVersion"].startswith("1.")
    assert state["bundle"].startswith("/")
    assert state["status"] == ("running" if stage == "poststart" else "created")
    assert (site.shared / "state.args").read_text().split()[1:] == [stage, "the", "site"]


def test_a_hook_of_stage_precreate_changes_the_configuration(cluster: Cluster, site: Site) -> None:
    program = site.program("change", """sed 's/"env":\\["/"env":["ADDED=by the hook","/'""")
    site.oci_hook("change", str(program), "precreate")
    done = cluster.srun(f"--environment={site.edf()}", "printenv", "ADDED")
    assert (done.returncode, done.stdout) == (0, "by the hook\n"), done.stderr


def test_a_hook_of_stage_start_container_runs_the_images_program(
    cluster: Cluster, site: Site
) -> None:
    file = site.oci / "inside.json"
    script = f"cat > {site.shared}/state; . /etc/os-release; echo $ID > {site.shared}/id"
    hook = {"path": "/bin/sh", "args": ["sh", "-c", script]}
    content = {"version": "1.0.0", "hook": hook, "when": {"always": True}}
    file.write_text(json.dumps({**content, "stages": ["startContainer"]}))
    assert cluster.srun(f"--environment={site.edf()}", "true").returncode == 0
    assert (site.shared / "id").read_text() == "ce-demo\n"
    assert json.loads((site.shared / "state").read_text())["id"]


@pytest.mark.parametrize("stage", ["prestart", "createRuntime", "createContainer"])
def test_an_oci_hook_that_fails_fails_the_launch_and_is_named(
    cluster: Cluster, site: Site, stage: str
) -> None:
    program = site.program("licence", 'echo "no answer from the server" >&2; exit 3')
    site.oci_hook("50-licence", str(program), stage)
    done = cluster.srun(f"--environment={site.edf()}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert cause.endswith(
        f"OCI hook '{program}' (50-licence.json, {stage}) failed with exit code 3:"
        " no answer from the server"
    )


@pytest.mark.parametrize("end", ["by itself", "cancelled"])
def test_a_hook_of_stage_poststop_runs_when_the_container_is_gone(
    cluster: Cluster, site: Site, end: str
) -> None:
    program = site.program(
        "note", f'cat > {site.shared}/"$1".draft; mv {site.shared}/"$1".draft {site.shared}/"$1"'
    )
    site.oci_hook("a", str(program), "createRuntime")
    site.oci_hook("b", str(program), "poststop")
    if end == "by itself":
        assert cluster.srun(f"--environment={site.edf()}", "true").returncode == 0
    else:
        argv = ["srun", f"--environment={site.edf()}", "sh", "-c", "echo runs; sleep 100"]
        with started(cluster, *argv) as job:
            job.wait_for_lines(1)
            # SIGTERM first: SIGKILL to a whole step leaves nothing that could run hooks.
            cluster.run(["scancel", job_id(cluster)])
            job.wait()
    until("the hook", (site.shared / "poststop").exists)
    before, after = (
        json.loads((site.shared / name).read_text()) for name in ("createRuntime", "poststop")
    )
    assert (after["id"], after["status"]) == (before["id"], "stopped")


def test_an_oci_hook_without_its_program_is_named(cluster: Cluster, site: Site) -> None:
    site.oci_hook("50-gone", "/nonexistent/program", "createRuntime")
    done = cluster.srun(f"--environment={site.edf()}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert "OCI hook '/nonexistent/program' (50-gone.json, createRuntime): No such file" in cause


def test_oci_hooks_run_when_their_conditions_hold(cluster: Cluster, site: Site) -> None:
    program = str(site.program("note", f'touch {site.shared}/ran-"$1"'))
    conditions: dict[str, dict[str, object]] = {
        "annotated": {"annotations": {"^org\\.example\\.colour$": "^green$"}},
        "other-value": {"annotations": {"^org\\.example\\.colour$": "^red$"}},
        "command": {"commands": [".*/\\.ce-init$"]},
        "other-command": {"commands": ["^/usr/bin/python$"]},
        "mounts": {"hasBindMounts": True},
        "never": {"always": False},
    }
    for name, when in conditions.items():
        file = site.oci / f"{name}.json"
        hook = {"path": program, "args": ["note", name]}
        content = {"version": "1.0.0", "hook": hook, "when": when, "stages": ["createRuntime"]}
        file.write_text(json.dumps(content))
    edf = site.edf('[annotations]\norg.example.colour = "green"\n')
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    ran = sorted(path.name for path in site.shared.glob("ran-*"))
    assert ran == ["ran-annotated", "ran-command", "ran-mounts"]


# ---- limits of an environment ----------------------------------------------------------------


def test_a_mount_of_a_file_that_the_user_cannot_read_stays_unreadable(cluster: Cluster) -> None:
    edf = cluster.edf('mounts = ["/etc/shadow:/mnt/s"]\n')
    done = cluster.srun(f"--environment={edf}", "cat", "/mnt/s")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Permission denied" in done.stderr


def test_a_device_that_the_site_does_not_offer_is_refused_also_when_only_the_node_knows_it(
    cluster: Cluster, site: Site
) -> None:
    site.configure('allowed_devices = ["/dev/fuse"]\n')
    for name in ("/dev/null", "/dev/fuse/../null", "${SLURM_NODELIST:+/dev/null}"):
        done = cluster.srun(f"--environment={site.edf(f'devices = [{name!r}]')}", "true")
        assert done.returncode != 0
        assert "this site does not offer it" in done.stderr
    offered = site.edf('devices = ["/dev/fuse"]\n')
    assert cluster.srun(f"--environment={offered}", "true").returncode == 0


def test_a_cdi_file_of_the_users_own_is_not_read_unless_the_site_says_so(
    cluster: Cluster, site: Site
) -> None:
    program = site.program("evil", f"touch {site.shared}/evil")
    spec: dict[str, object] = {
        "cdiVersion": "0.6.0",
        "kind": "my.own/thing",
        "devices": [{"name": "one", "containerEdits": {"env": ["MINE=1"]}}],
    }
    with cluster.in_the_home(".config/cdi-test") as own:
        (own / "x.json").write_text(json.dumps(spec))
        edf = site.edf('devices = ["my.own/thing=one"]\n')
        done = cluster.srun(f"--environment={edf}", "printenv", "MINE")
        assert "no CDI device of that name" in done.stderr
        site.configure('user_cdi_dir = ".config/cdi-test"\n')
        assert cluster.srun(f"--environment={edf}", "printenv", "MINE").stdout == "1\n"
        hook = {"hookName": "createRuntime", "path": str(program)}
        spec["containerEdits"] = {"hooks": [hook]}
        (own / "x.json").write_text(json.dumps(spec))
        done = cluster.srun(f"--environment={edf}", "true")
        assert "a user's own file cannot run programs" in done.stderr
        assert not (site.shared / "evil").exists()
