"""Promises of hooks that no other file tests.

docs/design/0010-what-hooks-promise.md has the whole list.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.libraries import Place, build, place_in, run
from tests.integration.prepared import LIBRARIES, cuda_image, image
from tests.slurm.cluster import ROOT, Cluster, Completed, causes
from tests.slurm.hardware import FABRIC, Hardware, aside
from tests.slurm.site import Site, site_on

pytestmark = pytest.mark.usefixtures("tidy")
FI_INFO = "/usr/bin/fi_info"
OWN = "/.container-engine/lib"
CXI = '[annotations]\ncom.hooks.cxi.enabled = "true"\n'
NCCL = '[annotations.com.hooks.aws_ofi_nccl]\nenabled = "true"\n'


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Hardware]:
    with site_on(cluster) as site:
        yield Hardware(site)


@pytest.fixture
def hardware(made: Hardware) -> Hardware:
    """Return the hardware with its site configured again, as another test may have changed it."""
    made.site.configure()
    return made


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    with place_in(cluster.dir) as made:
        yield made


def ce(cluster: Cluster, *words: str) -> Completed:
    return cluster.run([f"{cluster.prefix}/bin/ce", *words])


def started_with(cluster: Cluster, image_file: Path, text: str, script: str) -> Completed:
    edf = cluster.edf(f'image = "{image_file}"\n{text}', image=None)
    return cluster.srun("-w", "n1", f"--environment={edf}", "sh", "-c", script)


# ---- the catalog -------------------------------------------------------------------------------


def test_every_verb_reads_the_catalog_of_a_launch(cluster: Cluster, site: Site) -> None:
    site.hook("thing", '[edits.e]\nenv.THING = "here"\nmounts = [{ source = "/etc/hostname" }]\n')
    edf = site.edf('[annotations]\ncom.hooks.thing.enabled = "true"\n')
    listed = ce(cluster, "hooks", "list", "--json")
    (row,) = [h for h in json.loads(listed.stdout)["hooks"] if h["name"] == "thing"]
    assert row["from"] == "site"
    assert "com.hooks.thing.enabled" in ce(cluster, "hooks", "show", "thing").stdout
    assert ce(cluster, "hooks", "check").stdout.endswith(
        f" hooks, 1 of them in {site.catalog}: no fault\n"
    )
    assert ce(cluster, "hooks", "test", "thing").stdout == "ok        mount    /etc/hostname\n"
    explained = ce(cluster, "hooks", "explain", edf).stdout
    assert f"thing 1  # com.hooks.thing.enabled, {edf}:4\n" in explained
    assert "THING=here" in explained
    assert json.loads(ce(cluster, "hooks", "explain", "--json", edf).stdout)["warnings"] == []
    done = cluster.srun(f"--environment={edf}", "printenv", "THING")
    assert (done.returncode, done.stdout) == (0, "here\n")


def test_two_hooks_that_edit_one_path_are_refused_by_the_check_and_where_they_meet(
    cluster: Cluster, site: Site
) -> None:
    for name in ("one", "two"):
        site.hook(name, f'[edits.e]\nmounts = [{{ source = "/etc/{name}", target = "/x" }}]\n')
    check = ce(cluster, "hooks", "check")
    assert check.returncode == 1
    assert "two/hook.toml: edits the path /x, as the hook 'one' does in another way" in check.stderr
    both = '[annotations]\ncom.hooks.one.enabled = "true"\ncom.hooks.two.enabled = "true"\n'
    done = cluster.srun(f"--environment={site.edf(both)}", "true")
    assert done.returncode == 125
    assert "the hooks 'one' and 'two' both edit the path /x" in done.stderr


RELATIONS = {
    "conflict": (
        'conflicts = ["other"]',
        "cannot be used together with the hook 'other' (com.hooks.other.enabled)",
    ),
    "required": ('requires.hooks = ["absent"]', "needs the hook 'absent'"),
    "writable": (
        "requires.writable = true",
        "the hook 'one' (com.hooks.one.enabled) needs a writable container",
    ),
    "turned off": ("turned_off = true", "the hook 'one' is turned off at this site"),
}


@pytest.mark.parametrize("what", RELATIONS)
def test_hooks_that_do_not_go_together_are_refused_at_submit_with_line_and_reason(
    cluster: Cluster, site: Site, what: str
) -> None:
    data, message = RELATIONS[what]
    site.hook("one", f"{data}\n")
    site.hook("other", "")
    site.hook("absent", "")
    both = '[annotations]\ncom.hooks.one.enabled = "true"\ncom.hooks.other.enabled = "true"\n'
    edf = site.edf(f"writable = false\n{both}")
    done = cluster.srun(f"--environment={edf}", "true")
    assert done.returncode == 125
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("ce: error: ")]
    assert f"{edf}:5: " in said
    assert message in said


def test_what_a_hook_implies_is_in_the_plan_with_the_reason(
    cluster: Cluster, hardware: Hardware
) -> None:
    edf = hardware.site.edf(f'{NCCL}variant = "cuda12"\n')
    plan = json.loads(ce(cluster, "plan", "--json", edf).stdout)
    found = {hook["name"]: (hook["reason"], hook["from"]) for hook in plan["hooks"]}
    line = f"{edf}:4"
    assert found["cxi"] == ("implied by aws_ofi_nccl", line)
    assert found["aws_ofi_nccl"] == ("com.hooks.aws_ofi_nccl.enabled", line)


@pytest.mark.parametrize("value", ['"True"', '"yes"', '"1"', "1", '" true"', '""'])
def test_only_the_exact_word_enables(cluster: Cluster, site: Site, value: str) -> None:
    site.hook("h", '[edits.e]\nenv.FROM_HOOK = "on"\n')
    edf = site.edf(f"[annotations]\ncom.hooks.h.enabled = {value}\n")
    done = cluster.srun(f"--environment={edf}", "printenv", "FROM_HOOK")
    assert (done.returncode, done.stdout) == (1, "")


# ---- OCI hooks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["precreate", "startContainer"])
def test_a_failing_oci_hook_of_the_remaining_stages_fails_the_launch_and_is_named(
    cluster: Cluster, site: Site, stage: str
) -> None:
    program = site.program("licence", 'echo "no answer" >&2; exit 3')
    if stage == "startContainer":
        # The image's own program runs at this stage.
        program = Path("/bin/false")
    site.oci_hook("50-licence", str(program), stage)
    done = cluster.srun(f"--environment={site.edf()}", "true")
    assert done.returncode == 125
    (cause,) = causes(done)
    assert "50-licence.json" in cause
    assert stage in cause
    if stage == "precreate":
        assert cause.endswith("failed with exit code 3: no answer")


def test_every_annotation_reaches_the_oci_runtime(cluster: Cluster, site: Site) -> None:
    site.oci_hook("show", str(site.program("show", f"cat > {site.shared}/state")), "createRuntime")
    said = {
        "com.hooks.unknown.colour": "green",
        "org.example.text": "a 'b' \"c\" = d",
        "run.oci.handler": "x",
    }
    lines = "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in said.items())
    edf = site.edf(f"[annotations]\n{lines}")
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    annotations = json.loads((site.shared / "state").read_text())["annotations"]
    assert said.items() <= annotations.items()


# ---- CDI ---------------------------------------------------------------------------------------


def write_device(site: Site, name: str, edits: dict[str, object], version: str = "0.7.0") -> None:
    device = {"name": name, "containerEdits": edits}
    spec = {"cdiVersion": version, "kind": "example.com/thing", "devices": [device]}
    (site.cdi / f"{name}.json").write_text(json.dumps(spec))


def test_a_device_of_a_group_of_the_user_opens_without_a_word_and_others_are_told(
    cluster: Cluster, site: Site
) -> None:
    project = int(cluster.run(["getent", "group", "ce-project"]).stdout.split(":")[2])
    devices = site.programs.parent
    for name, group in (("mine", project), ("theirs", 4242)):
        path = devices / name
        run("mknod", "-m", "660", path, "c", "1", "3")
        os.chown(path, 0, group)
        node = {"path": f"/dev/{name}", "hostPath": str(path)}
        write_device(site, name, {"deviceNodes": [node], "additionalGids": [group]})
    open_it = ("sh", "-c", "echo x > /dev/mine && echo written")
    edf = site.edf('devices = ["example.com/thing=mine"]\n')
    done = cluster.srun("-n2", f"--environment={edf}", *open_it)
    assert (done.stdout, done.stderr) == ("written\nwritten\n", "")
    edf = site.edf('devices = ["example.com/thing=theirs"]\n')
    done = cluster.srun(f"--environment={edf}", "sh", "-c", "echo x > /dev/theirs")
    assert "for members of group 4242, and you are not one: ask the administrator" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize("version", ["0.3.0", "0.5.0", "1.0.0"])
def test_devices_of_older_and_newer_files_are_seen_by_every_task(
    cluster: Cluster, site: Site, version: str
) -> None:
    node = {"path": "/dev/thing", "hostPath": "/dev/zero"}
    write_device(site, "one", {"deviceNodes": [node], "env": ["THING=1"]}, version)
    edf = site.edf('devices = ["example.com/thing=one"]\n')
    script = 'test -c /dev/thing && echo "$THING"'
    done = cluster.srun("-N2", "-n4", f"--environment={edf}", "sh", "-c", script)
    assert (done.stdout, done.stderr) == ("1\n" * 4, "")


def test_what_ce_cdi_generate_writes_gives_tasks_the_devices(
    cluster: Cluster, hardware: Hardware
) -> None:
    site = hardware.site
    made = ce(cluster, "cdi", "generate", "cxi", "--root", str(hardware.dir))
    assert (made.returncode, made.stderr) == (0, "")
    spec = json.loads(made.stdout)
    # On this node the stand-ins have other paths than real hardware.
    for device in spec["devices"]:
        for node in device["containerEdits"]["deviceNodes"]:
            node["hostPath"] = f"{hardware.dir}{node['path']}"
    (site.cdi / "cxi.json").write_text(json.dumps(spec))
    assert "hpe.com/cxi=all" in ce(cluster, "devices").stdout
    edf = site.edf('devices = ["hpe.com/cxi=all"]\n')
    script = "test -c /dev/cxi0 && test -c /dev/cxi1 && echo both"
    done = cluster.srun("-n2", f"--environment={edf}", "sh", "-c", script)
    assert (done.stdout, done.stderr) == ("both\nboth\n", "")


# ---- com.hooks.cxi -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "older", "newer", "major", "odd"])
def test_fi_info_inside_shows_the_nodes_libfabric_and_every_library_resolves(
    cluster: Cluster, hardware: Hardware, place: Place, kind: str
) -> None:
    """In `odd`, libfabric is reached by links only, and there is no cache and no ldconfig."""
    program = hardware.probes["glibc"]
    script = f"""
{FI_INFO} --version; {FI_INFO} -p cxi; ldd {FI_INFO}
ldd {OWN}/* /usr/lib/*/libfabric.so.1* 2>/dev/null
for library in {OWN}/*; do {program} "$library" >/dev/null || echo "$library does not load"; done
"""
    text = f'mounts = ["{FI_INFO}", "{program}"]\n{CXI}'
    done = started_with(cluster, image(place, kind), text, script)
    shown = next(line for line in run(FI_INFO, "--version").splitlines() if "libfabric: " in line)
    assert shown in done.stdout, done.stderr
    assert "provider: cxi" in done.stdout
    assert "not found" not in done.stdout
    assert "does not load" not in done.stdout
    assert len(done.stderr.splitlines()) == (kind == "newer"), done.stderr


def with_own_fabric(place: Place) -> Path:
    """Return an image with libfabric of its own, which does not know CXI."""
    tree = place.variant("own-fabric")
    for name in run("ldd", FI_INFO).split():
        if name.startswith("/") and not (tree / name.lstrip("/")).exists():
            target = tree / LIBRARIES / Path(name).name
            target.write_bytes(Path(name).read_bytes())
            target.chmod(0o755)
    run("ldconfig", "-r", tree)
    return place.squash(tree)


def of_the_page(name: str) -> tuple[str, str]:
    """Return the text of a hook in the page, and what follows it there."""
    page = (ROOT / "docs/admin/hooks.md").read_text()
    _before, found, rest = page.partition(f"# /etc/container-engine/hooks.d/{name}/hook.toml\n")
    text, _fence, after = rest.partition("```\n")
    assert found
    return text, after


def test_without_the_hook_fi_info_finds_no_cxi(
    cluster: Cluster, hardware: Hardware, place: Place
) -> None:
    """Try the page's example of a check that runs a program, as it is written, on both networks."""
    text, after = of_the_page("fabric_proof")
    file = hardware.site.hook("fabric_proof", text, whole=False)
    image_file, mounts = with_own_fabric(place), f'mounts = ["{FI_INFO}"]\n'
    try:
        done = started_with(cluster, image_file, mounts, f"{FI_INFO} -p cxi")
        proven = started_with(cluster, image_file, mounts + CXI, "true")
    finally:
        shutil.rmtree(file.parent)
    assert done.returncode != 0
    assert "fi_getinfo: -61" in done.stderr
    shown = next(line for line in after.splitlines() if line.startswith("ce: warning: nid001:"))
    # a newer libfabric says in words what -61 means
    lines = done.stderr.replace("-61 (No data available)", "-61").splitlines()
    assert shown.replace("nid001", "n1") in lines
    assert (proven.returncode, proven.stderr) == (0, "")


def test_a_node_without_its_devices_is_named_and_the_other_is_not(
    cluster: Cluster, hardware: Hardware
) -> None:
    """The two nodes are one machine: each looks for devices in a directory of its own name."""
    devices = hardware.dir / "of-nodes"
    for node, names in (("n1", ["x0", "x1"]), ("n2", [])):
        (devices / node).mkdir(parents=True)
        for name in names:
            run("mknod", "-m", "666", devices / node / name, "c", "1", "3")
    path = f"{devices}/{{node.host}}/x*"
    hook = f'[edits.e]\ndevices = [{{ path = "{path}" }}]\n'
    hardware.site.hook("of_node", hook)
    edf = cluster.edf('[annotations]\ncom.hooks.of_node.enabled = "true"\n')
    of_batch_script = {"SLURMD_NODENAME": "n1", "SLURM_NODEID": "0"}
    done = cluster.srun("-N2", "-n2", f"--environment={edf}", "true", env=of_batch_script)
    assert done.returncode == 125
    (cause,) = causes(done)
    assert cause.startswith(
        f"ce: error: n2: hook of_node: device '{devices}/n2/x*' does not exist on this node"
    )
    optional = f'[edits.e]\ndevices = [{{ path = "{path}", optional = true }}]\n'
    check = f'[checks.c]\nkind = "device"\nsubject = "{path}"\nhint = "slow"\n'
    hardware.site.hook("of_node", optional + check)
    done = cluster.srun("-N2", "-n2", f"--environment={edf}", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\nran\n")
    assert done.stderr == (
        f"ce: warning: n2: hook of_node: no device '{devices}/n2/x*' on this node (slow)\n"
    )


# ---- com.hooks.aws_ofi_nccl --------------------------------------------------------------------

PROFILES = {
    "slingshot-2026.06": """\
NCCL_NET=AWS Libfabric
NCCL_NET_GDR_LEVEL=PHB
NCCL_CROSS_NIC=0
NCCL_PROTO=^LL128
NCCL_PXN_DISABLE=1
NCCL_P2P_LEVEL=NVL
NCCL_NET_GDR_C2C=1
NCCL_NET_GDR_READ=1
NCCL_NCHANNELS_PER_NET_PEER=4
CUDA_CACHE_DISABLE=1
FI_CXI_DEFAULT_CQ_SIZE=131072
FI_CXI_DEFAULT_TX_SIZE=16384
FI_CXI_DISABLE_HOST_REGISTER=1
FI_CXI_RX_MATCH_MODE=software
FI_CXI_RDZV_PROTO=alt_read
FI_CXI_RDZV_EAGER_SIZE=0
FI_CXI_RDZV_GET_MIN=0
FI_CXI_RDZV_THRESHOLD=0
FI_MR_CACHE_MONITOR=userfaultfd
FI_MR_CACHE_MAX_SIZE=-1
FI_MR_CACHE_MAX_COUNT=524288
FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=16777216
""",
    "slingshot-2025": """\
NCCL_NET=AWS Libfabric
NCCL_NET_GDR_LEVEL=PHB
NCCL_CROSS_NIC=1
NCCL_PROTO=^LL128
FI_CXI_DEFAULT_CQ_SIZE=131072
FI_CXI_DEFAULT_TX_SIZE=16384
FI_CXI_DISABLE_HOST_REGISTER=1
FI_CXI_RX_MATCH_MODE=software
FI_MR_CACHE_MONITOR=userfaultfd
""",
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_all_its_variables_and_no_other(
    cluster: Cluster, hardware: Hardware, profile: str
) -> None:
    file = hardware.site.catalog / "aws_ofi_nccl/hook.toml"
    before = file.read_text()
    file.write_text(f'profile = "{profile}"\n{before}')
    try:
        edf = cluster.edf(f'{NCCL}variant = "cuda12"\n')
        script = "env | grep -E '^(NCCL|FI|CUDA)_' | grep -v ^FI_PROVIDER_PATH | sort"
        done = cluster.srun("-w", "n1", f"--environment={edf}", "sh", "-c", script)
    finally:
        file.write_text(before)
    assert sorted(done.stdout.splitlines()) == sorted(PROFILES[profile].splitlines())


def test_amds_plugin_is_that_of_the_variant(cluster: Cluster, hardware: Hardware) -> None:
    program = hardware.probes["glibc"]
    edf = cluster.edf(f'mounts = ["{program}"]\n{NCCL}variant = "rocm7"\n')
    script = f"{program} librccl-net.so ncclNetPlugin_v8; {program} libnccl-net.so | cut -c1-15"
    done = cluster.srun("-w", "n1", f"--environment={edf}", "sh", "-c", script)
    assert (done.stdout, done.stderr) == ("the node's rocm7\nlibnccl-net.so:\n", "")


def test_a_site_gives_amd_gpus_to_its_partition_with_caches_on_the_node(
    cluster: Cluster, hardware: Hardware
) -> None:
    file = hardware.site.catalog / "amd_gpu/hook.toml"
    before = file.read_text()
    where = 'automatic_when = ["SLURM_JOB_PARTITION=sand*"]'
    file.write_text(f'default = "automatic"\n{where}\nprofile = "node-caches"\n{before}')
    gpus = f"{hardware.dir}/dev"
    script = f"cd {gpus} && ls kfd dri/*; env | grep -E '^(MIOPEN|ROCR)_' | sort"
    step = ("-w", "n1", "--export=ALL,ROCR_VISIBLE_DEVICES=1")
    own = '[env]\nMIOPEN_CUSTOM_CACHE_DIR = "/dev/shm/mine"\n'
    try:
        done = cluster.srun(*step, f"--environment={cluster.edf(own)}", "sh", "-c", script)
    finally:
        file.write_text(before)
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            *("dri/renderD128", "kfd", "MIOPEN_CUSTOM_CACHE_DIR=/dev/shm/mine"),
            *("MIOPEN_USER_DB_PATH=/tmp/miopen", "ROCR_VISIBLE_DEVICES=1"),
        ],
        "",
    )


# ---- the pre-flight ----------------------------------------------------------------------------


class Prepared:
    """The built-in hooks on the cluster, a plugin of the node and images for it."""

    def __init__(self, cluster: Cluster, hardware: Hardware, place: Place) -> None:
        self.cluster, self.hardware, self.place = cluster, hardware, place
        self.plugins = hardware.dir / "plugin"

    def plugin(self, variant: str, needs: Path, wants: str) -> None:
        path = self.plugins / variant / "libnccl-net.so"
        path.parent.mkdir(exist_ok=True)
        build(path, symbol="ncclNetPlugin_v8", says="x", needs=[needs], wants=[wants])

    def said(self, image_file: Path, variant: str, program: str = "true") -> list[str]:
        """Return the warnings of a launch, whose task runs all the same."""
        text = f'{NCCL}variant = "{variant}"\n'
        done = started_with(self.cluster, image_file, text, program)
        assert done.returncode == 0, done.stderr
        return [line.removeprefix("ce: warning: n1: hook ") for line in done.stderr.splitlines()]


@pytest.fixture
def prepared(cluster: Cluster, hardware: Hardware, place: Place) -> Prepared:
    return Prepared(cluster, hardware, place)


def test_the_preflight_is_silent_where_all_is_well(prepared: Prepared) -> None:
    assert prepared.said(cuda_image(prepared.place, 12), "cuda12") == []


def test_cause_1_a_plugin_that_this_container_cannot_load(prepared: Prepared) -> None:
    gone = build(prepared.place.dir / "gone/libgone.so.3", "libgone.so.3", symbol="gone")
    prepared.plugin("cuda-dl", gone, "gone")
    (line,) = prepared.said(cuda_image(prepared.place, 12), "cuda-dl")
    assert line == (
        "aws_ofi_nccl: libnccl-net.so cannot be loaded in this container: it needs libgone.so.3,"
        " which is missing (NCCL would use TCP: choose the variant that fits the image's CUDA)"
    )


def test_cause_2_a_runtime_without_its_unversioned_link(prepared: Prepared) -> None:
    prepared.plugin("cuda-dl", FABRIC, "fi_version")
    (line,) = prepared.said(cuda_image(prepared.place, 12, link=False), "cuda-dl")
    assert line.startswith(
        "aws_ofi_nccl: libcudart.so is not in this container, only libcudart.so."
    )
    assert "ln -s libcudart.so.12 libcudart.so" in line
    assert prepared.said(cuda_image(prepared.place, 12), "cuda-dl") == []


def test_cause_3_a_variant_for_another_cuda_than_the_images(prepared: Prepared) -> None:
    (line,) = prepared.said(cuda_image(prepared.place, 13), "cuda12")
    assert line.startswith("aws_ofi_nccl: built for libcudart 12, and the image has libcudart 13 (")


def test_cause_4_a_stack_for_a_newer_glibc_than_the_images(prepared: Prepared) -> None:
    libc = build(prepared.place.dir / "future/libc.so.6", "libc.so.6", versions=["GLIBC_2.99"])
    prepared.plugin("cuda-dl", libc, "f_GLIBC_2_99")
    lines = prepared.said(cuda_image(prepared.place, 12), "cuda-dl")
    assert (
        "aws_ofi_nccl: libnccl-net.so is left out: the node's libnccl-net.so needs GLIBC_2.99"
        in (lines[0])
    )
    assert "use an image with a newer distribution" in lines[0]


def test_cause_5_a_node_without_the_device(prepared: Prepared) -> None:
    with aside(prepared.hardware.dir / "dev/cxi0"), aside(prepared.hardware.dir / "dev/cxi1"):
        (line,) = prepared.said(cuda_image(prepared.place, 12), "cuda12")
    assert line == (
        f"cxi: no device '{prepared.hardware.dir}/dev/cxi*' on this node (this node has no"
        " Slingshot device: MPI and NCCL would use TCP)"
    )


# ---- the loader's cache ------------------------------------------------------------------------


@pytest.mark.usefixtures("hardware")
@pytest.mark.parametrize("writable", ["true", "false"])
def test_a_refreshed_cache_lists_what_hooks_brought_and_the_image_stays_as_it_is(
    cluster: Cluster, place: Place, writable: str
) -> None:
    file = image(place, "none")
    before = file.read_bytes()
    done = started_with(cluster, file, f"writable = {writable}\n{CXI}", "ldconfig -p")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"=> {OWN}/libfabric.so.1\n" in done.stdout
    assert file.read_bytes() == before
