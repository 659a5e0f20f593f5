"""`ce lint` as its user sees it: an expert's advice, and nothing else."""

from pathlib import Path

import pytest

from container_engine.base.mounts import network_file_system
from container_engine.cli.main import main

Capture = pytest.CaptureFixture[str]
OFI = "[annotations]\ncom.hooks.aws_ofi_nccl.enabled = true\n"
SSH = "[annotations]\ncom.hooks.ssh.enabled = true\n"
HF = "hf_" + "a1" * 12
PROFILE = "of the profile slingshot-2026.06 of the hook aws_ofi_nccl"
LATER = "remove the line"
KEEP = "to keep what the image has"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/user")
    monkeypatch.setenv("PATH", "/bin")
    for name in (
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "PYTHONHOME",
        "PYTHONPATH",
        "SCRATCH",
        "SSH_AUTH_SOCK",
        "VIRTUAL_ENV",
    ):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def advice(here: Path, capsys: Capture, text: str) -> str:
    file = here / "e.toml"
    image = "" if "image =" in text else 'image = "ubuntu:24.04"\n'
    file.write_text(image + text)
    assert main(["lint", "e.toml"]) == 0
    return capsys.readouterr().out.replace(f"{file}:", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'image = "ubuntu"\n',
            "1: image: 'ubuntu' implies the tag 'latest', which changes\n"
            "    use the tag of a version, or a digest with @sha256:…\n",
        ),
        (
            'image = "docker.io#a/b:latest"\n',
            "1: image: 'docker.io#a/b:latest' names the tag 'latest', which changes\n"
            "    use the tag of a version, or a digest with @sha256:…\n",
        ),
        (
            'image = "a/b:latest-arm64"\n',
            "1: image: 'a/b:latest-arm64' names the tag 'latest-arm64', which changes\n"
            "    use the tag of a version, or a digest with @sha256:…\n",
        ),
        (
            '[env]\nPATH = "/opt/bin"\n',
            "3: env.PATH: replaces the image's PATH, the programs of the image may be missing\n"
            f'    write PATH = "…:${{image:PATH}}" {KEEP}\n',
        ),
        (
            '[env]\nLD_LIBRARY_PATH = "/opt/lib"\n',
            "3: env.LD_LIBRARY_PATH: replaces the image's LD_LIBRARY_PATH, what the image sets "
            "may be missing\n"
            f'    write LD_LIBRARY_PATH = "…:${{image:LD_LIBRARY_PATH:-}}" {KEEP}\n',
        ),
        (
            '[env]\nPATH = "/bin::/opt/bin:~/bin"\n',
            "3: env.PATH: has an empty entry\n"
            "    an empty entry means the current directory: remove the extra ':'\n"
            "3: env.PATH: '~' is not expanded in a variable\n    write ${HOME}\n",
        ),
        (
            f'[env]\nHF_TOKEN = "{HF}"\n',
            "3: env.HF_TOKEN: a secret is written into the file\n"
            '    write HF_TOKEN = "${HF_TOKEN}" and export HF_TOKEN before the launch\n',
        ),
        (
            '[env]\nWANDB_API_KEY = "0123456789abcdef"\n',
            "3: env.WANDB_API_KEY: a secret is written into the file\n"
            '    write WANDB_API_KEY = "${WANDB_API_KEY}" and export WANDB_API_KEY before the '
            "launch\n",
        ),
        (
            """[env]\nA = "''"\nB = '"b"'\nC = "it's 'c'"\n""",
            "3: env.A: its value is '', with the quotes: no shell takes them away\n"
            '    write A = "", which removes the variable\n'
            '4: env.B: its value is "b", with the quotes: no shell takes them away\n'
            '    write B = "b"\n',
        ),
        (
            f'startup = ["login {HF}"]\n',
            "2: startup: a secret is written into the file\n"
            "    let the line read it from a file that only you can read\n",
        ),
        (
            f'{OFI}[env]\nNCCL_PROTO = "^LL128"\n',
            f"5: env.NCCL_PROTO: repeats '^LL128' {PROFILE}\n"
            f"    {LATER}, the hook follows the network\n",
        ),
        (
            f'{OFI}[env]\nNCCL_PROTO = "^LL128"\nNCCL_NET = "AWS Libfabric"\n',
            f"5: env: 2 variables repeat the values {PROFILE}: NCCL_PROTO, NCCL_NET\n"
            "    remove the lines, the hook follows the network\n",
        ),
        (
            f'{OFI}[env]\nNCCL_NET = ""\n',
            f"5: env.NCCL_NET: removes 'AWS Libfabric' {PROFILE}\n"
            f"    {LATER}, keep it only if you measured that it helps\n",
        ),
        (
            '[env]\nSLURM_NETWORK = "disable_rdzv_get"\n',
            "3: env.SLURM_NETWORK: has no effect: Slurm sets this variable itself\n"
            "    export SLURM_NETWORK before srun, or give srun the option that sets it\n",
        ),
        (
            '[env]\nCUDA_VISIBLE_DEVICES = "0,1"\n',
            "3: env.CUDA_VISIBLE_DEVICES: replaces the GPUs that Slurm gives to each task\n"
            "    remove the line: srun --gpus-per-task chooses them\n",
        ),
        (
            '[env]\nNVIDIA_VISIBLE_DEVICES = "all"\n',
            "3: env.NVIDIA_VISIBLE_DEVICES: has no effect: neither this environment nor the site"
            ' gives a GPU\n    devices = ["nvidia.com/gpu=all"] gives all\n',
        ),
        (
            'devices = ["nvidia.com/gpu=all"]\n[env]\nNVIDIA_VISIBLE_DEVICES = "0"\n',
            "4: env.NVIDIA_VISIBLE_DEVICES: has no effect: devices lists the GPUs of this"
            " environment\n    list those that it needs there\n",
        ),
        (
            'devices = ["nvidia.com/gpu=0"]\n[env]\n'
            'NVIDIA_DRIVER_CAPABILITIES = "compute,utilty"\n',
            "4: env.NVIDIA_DRIVER_CAPABILITIES: 'utilty' is no part of the driver, did you mean"
            " 'utility'?\n    there are all, compat32, compute, display, graphics, ngx, utility,"
            " video\n",
        ),
        (
            'mounts = ["/usr/lib64"]\n',
            "2: mounts: hides the image's /usr/lib64 below the host's, with its libraries\n"
            "    mount only the files that you need\n",
        ),
        (
            'mounts = ["/etc/munge", "/run/munge"]\n',
            "2: mounts: mounts /etc/munge, which alone does not provide srun or sbatch\n"
            '    write com.hooks.slurm.enabled = "true", which provides all that they need\n',
        ),
        (
            '[annotations]\ncom.hooks.netstack.source = "artifact"\n',
            "3: com.hooks.netstack.source: has no effect: neither cxi nor aws_ofi_nccl is on\n"
            '    remove the line, or write com.hooks.cxi.enabled = "true"\n',
        ),
        (
            f'{OFI}[env]\nNCCL_CROSS_NIC = "1"\n',
            f"5: env.NCCL_CROSS_NIC: '1' contradicts '0' {PROFILE}, it is that of "
            f"slingshot-2025\n    {LATER}, keep it only if you measured that it helps\n",
        ),
        (
            f'{OFI}[env]\nFI_CXI_DEFAULT_TX_SIZE = "256"\n',
            f"5: env.FI_CXI_DEFAULT_TX_SIZE: '256' contradicts '16384' {PROFILE}\n"
            f"    {LATER}, keep it only if you measured that it helps\n",
        ),
        (
            f'{OFI}[env]\nNCCL_NET_PLUGIN = "ofi"\n',
            "5: env.NCCL_NET_PLUGIN: keeps NCCL from loading the plugin that "
            "the hook aws_ofi_nccl puts in place\n    remove the line\n",
        ),
        (
            'mounts = ["/:/host"]\n',
            "2: mounts: mounts all of the host's file systems\n"
            "    mount only the directories that you need\n",
        ),
        (
            f'mounts = ["/data", "/home"]\n{SSH}',
            "2: mounts: '/home' holds your home directory, which the ssh hook's logins reach\n"
            "    mount only the directories that you need, or add the flag 'ro'\n",
        ),
        (
            'startup = ["export PATH=/opt/bin:$PATH"]\n',
            "2: startup[0]: '$PATH' is replaced when the job is submitted, by the host's value\n"
            "    write '$$PATH' for the value that the container's shell has\n",
        ),
    ],
)  # fmt: skip
def test_what_an_expert_would_mention(here: Path, capsys: Capture, text: str, said: str) -> None:
    assert advice(here, capsys, text) == said


@pytest.mark.parametrize(
    "text",
    [
        'image = "ubuntu@sha256:' + "0" * 64 + '"\n',
        'image = "/x.sqsh"\n',
        'image = ""\n',
        'mounts = ["${HOME}"]\nstartup = ["source ${HOME}/venv/bin/activate"]\n',
        '[env]\nPATH = "/opt/bin:${image:PATH}"\n',
        '[env]\nPATH = "/opt/bin:/usr/bin:/bin"\n',
        '[env]\nPATH = ""\n',
        '[env]\nHF_TOKEN = "${HOME}"\nHF_TOKEN_PATH = "/data/token"\n',
        '[env]\nTOKENIZERS_PARALLELISM = "false_and_long"\nMAX_TOKEN = "1234567890"\n',
        '[env]\nNCCL_PROTO = "^LL128"\nNCCL_NET_PLUGIN = "ofi"\n',
        OFI + '[env]\nNCCL_DEBUG = "INFO"\nNCCL_NET_PLUGIN = ""\n',
        'mounts = ["/home"]\n',
        '[env]\nCUDA_VISIBLE_DEVICES = ""\nPMIX_MCA_psec = "native"\n',
        'devices = ["nvidia.com/gpu=all"]\n[env]\nNVIDIA_VISIBLE_DEVICES = "all"\n'
        'NVIDIA_DRIVER_CAPABILITIES = "compute,utility"\n',
        '[env]\nNVIDIA_VISIBLE_DEVICES = "void"\n',
        '[env]\nCUDA_VISIBLE_DEVICES = "${CUDA_VISIBLE_DEVICES}"\n',
        # the author who turns the hooks off has an image with network software of its own
        '[env]\nNCCL_NET = "AWS Libfabric"\n[annotations]\ncom.hooks.cxi.enabled = "false"\n',
        f'mounts = ["/home:/home:ro", "/home/user/project"]\n{SSH}',
        'startup = ["export PATH=/opt/bin:$$PATH", "echo ${SLURM_JOB_ID} ${EDF_DIR}"]\n',
        'startup = ["cd /build", "make"]\n',
        'startup = ["cd /build && make"]\n',
    ],
)
def test_what_is_fine_is_left_alone(here: Path, capsys: Capture, text: str) -> None:
    assert advice(here, capsys, text) == "e.toml: no advice\n"


def test_a_secret_is_never_repeated(here: Path, capsys: Capture) -> None:
    assert HF not in advice(here, capsys, f'startup = ["x {HF}"]\n[env]\nA_TOKEN = "{HF}"\n')


def test_what_was_already_warned_of_is_said_once(here: Path, capsys: Capture) -> None:
    (here / "e.toml").write_text('image = "a:1"\n[env]\nPATH = "/x:${PATH}"\n')
    assert main(["lint", "e.toml"]) == 0
    captured = capsys.readouterr()
    assert "is the value of the host" in captured.err
    assert captured.out == "e.toml: no advice\n"


def test_strict_makes_an_exit_code_of_advice(here: Path) -> None:
    (here / "e.toml").write_text('image = "ubuntu"\n')
    assert main(["lint", "--strict", "e.toml"]) == 1
    (here / "e.toml").write_text('image = "ubuntu:24.04"\n')
    assert main(["lint", "--strict", "e.toml"]) == 0


def test_a_bad_environment_gets_no_advice(here: Path, capsys: Capture) -> None:
    (here / "e.toml").write_text("image = 1\n")
    assert main(["lint", "e.toml"]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("hook", "remedy"),
    [
        ('switch = "org.slurm"', 'write org.slurm = "true"'),
        ("turned_off = true", "ask the administrator for the hook slurm"),
    ],
)
def test_advice_names_a_hook_by_the_annotation_that_the_site_gave_it(
    here: Path, capsys: Capture, hook: str, remedy: str
) -> None:
    (here / "config.toml").write_text(f'hook_catalog = ["{here}/hooks.d"]')
    (here / "hooks.d/slurm").mkdir(parents=True)
    (here / "hooks.d/slurm/hook.toml").write_text(hook)
    (here / "e.toml").write_text('image = "ubuntu:24.04"\nmounts = ["/run/munge"]\n')
    assert main(["--site", str(here / "config.toml"), "lint", "e.toml"]) == 0
    assert f"    {remedy}, which provides all that they need\n" in capsys.readouterr().out


ENABLE = 'write com.hooks.aws_ofi_nccl.enabled = "true", unless the image has its own'
FABRIC = 'write com.hooks.cxi.enabled = "true", unless the image has its own'
CXI = "[annotations]\ncom.hooks.cxi.enabled = true\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[env]\nNCCL_NET = "AWS Libfabric"\n',
            "3: env.NCCL_NET: NCCL fails if it does not find this plugin, and no hook provides it",
        ),
        ('[env]\nNCCL_NET = "Socket"\n', "3: env.NCCL_NET: lets NCCL use TCP, which is far slower"),
        (
            '[env]\nFI_CXI_DEFAULT_CQ_SIZE = "1"\nFI_MR_CACHE_MONITOR = "x"\nNCCL_DEBUG = "a"\n',
            "3: env.FI_CXI_DEFAULT_CQ_SIZE: tunes network software that no hook provides (and 1",
        ),
        (
            '[env]\nNVSHMEM_LIBFABRIC_PROVIDER = "cxi"\n',
            "3: env.NVSHMEM_LIBFABRIC_PROVIDER: tunes network software that no hook provides",
        ),
    ],
)
def test_tuning_for_what_no_hook_brings_is_mentioned(
    here: Path, capsys: Capture, text: str, said: str
) -> None:
    printed = advice(here, capsys, text)
    assert printed.startswith(said), printed
    assert (FABRIC if "NVSHMEM" in text else ENABLE) in printed
    # With the hook enabled the advice does not apply.
    assert said.partition(": ")[2] not in advice(here, capsys, text + OFI)


@pytest.mark.parametrize(("value", "is_said"), [("alt_read", True), ("default", False)])
def test_alt_read_wants_an_option_of_srun(
    here: Path, capsys: Capture, value: str, is_said: bool
) -> None:
    printed = advice(here, capsys, f'[env]\nFI_CXI_RDZV_PROTO = "{value}"\n{OFI}')
    assert ("srun --network=disable_rdzv_get" in printed) == is_said


def test_network_software_by_hand_beside_the_hook_is_mentioned(here: Path, capsys: Capture) -> None:
    mounts = 'mounts = ["/opt/cray/libfabric/1.22/lib64:/opt/fabric"]\n'
    said = "2: mounts: mounts libfabric by hand, which the hook cxi provides\n"
    assert advice(here, capsys, mounts + CXI).startswith(said)
    assert "by hand" not in advice(here, capsys, mounts)
    image = 'image = "/apps/alps-images/ngc-pytorch.sqsh"\n'
    said = "1: image: this image has its own network software, and the hook cxi replaces it\n"
    assert said in advice(here, capsys, image + CXI)
    assert "its own network" not in advice(here, capsys, image)


def test_a_plugin_by_hand_is_seen_where_its_variables_are_judged(
    here: Path, capsys: Capture
) -> None:
    text = 'mounts = ["/me/libnccl-net.so:/opt/x/libnccl-net.so"]\n'
    text += '[env]\nNCCL_NET = "AWS Libfabric"\n'
    assert advice(here, capsys, text) == "e.toml: no advice\n"
    assert advice(here, capsys, text + CXI) == (
        "2: mounts: mounts libnccl-net by hand, and the node's libfabric comes from the hook\n"
        '    write com.hooks.aws_ofi_nccl.enabled = "true" in its place, '
        "whose plugin fits the node\n"
    )
    said = "2: mounts: mounts libnccl-net by hand, which the hook aws_ofi_nccl provides\n"
    assert said in advice(here, capsys, text + OFI)


def test_libraries_that_the_hook_brings_need_no_mounts(here: Path, capsys: Capture) -> None:
    libraries = ("libhwloc.so.15", "libnuma.so.1")
    mounts = ", ".join(f'"/usr/lib64/{name}:/usr/lib/{name}"' for name in libraries)
    text = f"mounts = [{mounts}]\n"
    assert advice(here, capsys, text + CXI) == (
        "2: mounts: mounts libraries of the host by hand (libhwloc.so.15, libnuma.so.1)\n"
        "    the hook cxi provides what libfabric needs and the image lacks: remove those that are "
        "there for it\n"
    )
    assert advice(here, capsys, text) == "e.toml: no advice\n"


@pytest.mark.parametrize("name", ["<image_name.sqsh>", "<my.image>"])
def test_a_placeholder_with_a_dot_is_one(here: Path, capsys: Capture, name: str) -> None:
    (here / "e.toml").write_text(f'image = "/images/{name}"\n')
    main(["validate", "e.toml"])
    assert f"'{name}'" in capsys.readouterr().err


def test_an_image_of_podmans_is_refused_with_the_way_to_import_it(
    here: Path, capsys: Capture
) -> None:
    (here / "e.toml").write_text('image = "podman://localhost/mine:1"\n')
    assert main(["validate", "e.toml"]) == 1
    assert "hint: 'ce import podman://localhost/mine:1' imports it" in capsys.readouterr().err


def test_variables_of_modules_and_conda_are_reported_unless_the_file_decides(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/host/lib")
    monkeypatch.setenv("CONDA_PREFIX", "/host/conda")
    monkeypatch.setenv("LD_PRELOAD", "/host/libtrace.so")
    monkeypatch.setenv("VIRTUAL_ENV", "")
    said = advice(here, capsys, "")
    assert said == "".join(
        f"your shell: {name}: is set; tasks get it, unless the image sets its own\n"
        f'    {name} = "" in [env] removes it\n'
        for name in ("CONDA_PREFIX", "LD_PRELOAD", "PYTHONPATH")
    )
    removed = '[env]\nPYTHONPATH = ""\nCONDA_PREFIX = ""\nLD_PRELOAD = ""\n'
    assert advice(here, capsys, removed) == "e.toml: no advice\n"


def test_sockets_on_a_network_file_system_are_reported(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kind(path: str) -> str:
        return "nfs4" if path.startswith("/home/") else ""

    monkeypatch.setattr("container_engine.cli.verbs.lint.network_file_system", kind)
    why = "a socket there is visible on all nodes but answers on one only, or cannot be created"
    mounts = 'mounts = ["/home/user", "/home/user/tmp:/tmp", "/home/user/x:/y", "/scratch:/run"]\n'
    said = advice(here, capsys, f'{mounts}[env]\nRAY_TMPDIR = "/y/ray"\n')
    assert said == (
        f"2: mounts: puts '/home/user/tmp', on nfs4, in the place of /tmp: {why}\n"
        "    mount it elsewhere\n"
        f"4: env.RAY_TMPDIR: leads to '/home/user/x/ray' on nfs4: {why}\n"
        '    RAY_TMPDIR = "/tmp" is each container\'s own, "" removes it\n'
    )
    monkeypatch.setenv("SSH_AUTH_SOCK", "/home/user/agent")
    said = advice(here, capsys, 'mounts = ["/home/user"]\n')
    assert said.startswith(
        "1: env.SSH_AUTH_SOCK: your shell's value leads to '/home/user/agent' on nfs4"
    )
    for text in (
        "",
        'mounts = ["/home/user"]\n[env]\nSSH_AUTH_SOCK = ""\n',
        'mounts = ["/scratch:/home"]\n',
    ):
        assert advice(here, capsys, text) == "e.toml: no advice\n"


def test_packages_in_many_files_on_a_file_server_are_named_with_their_cost(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container_engine.cli.verbs.lint.network_file_system", lambda _path: "nfs4")
    for name, mark in (("venv", "pyvenv.cfg"), ("conda", "conda-meta"), ("own", "x.txt")):
        (here / name).mkdir()
        for file in (mark, *(f"{number}.py" for number in range(300))):
            (here / name / file).touch()

    def cost(line: str, what: str, name: str, end: str) -> str:
        where = f"301 files in '{here}/{name}' on nfs4"
        opens = "to import a third of its 300 modules is 100 opens there, times the ranks"
        return f"{line}: {what}, {where}: {opens}\n    {end} makes one file of "

    said = advice(here, capsys, f'mounts = ["{here}/venv:/v"]\n')
    pack = "ce pack --venv DIRECTORY FILE.sqsh"
    assert said.startswith(cost("2: mounts", "a virtual environment", "venv", pack))
    text = f'mounts = ["{here}:/h"]\nstartup = ["source /h/conda/bin/activate"]\n'
    said = advice(here, capsys, text)
    conda = "conda-pack --format squashfs"
    assert said.startswith(cost("3: startup", "a conda environment", "conda", conda))
    text = f'mounts = ["{here}:/h"]\n[env]\nPYTHONPATH = "/h/own:${{image:PYTHONPATH:-}}"\n'
    said = advice(here, capsys, text)
    own = "ce pack DIRECTORY FILE.sqsh"
    assert said.startswith(cost("4: env.PYTHONPATH", "Python packages", "own", own))
    # data are not packages, however many files they are
    assert advice(here, capsys, f'mounts = ["{here}/own:/own"]\n') == "e.toml: no advice\n"


def test_a_file_system_is_known_by_the_last_mount_that_has_the_path(
    monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    table = here / "mountinfo"
    table.write_text(
        "1 0 0:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:2 / /home rw - nfs4 server:/home rw\n"
        "3 2 0:3 / /home/my\\040own rw shared:1 - tmpfs none rw\n"
        "4 1 0:4 / /homework rw - xfs /dev/b rw\n"
    )
    real = open
    monkeypatch.setattr(
        "builtins.open",
        lambda path, *mode, **more: real(table if "proc" in str(path) else path, *mode, **more),
    )
    found = [network_file_system(path) for path in ("/home/a", "/home/my own/a", "/homework", "/a")]
    assert found == ["nfs4", "", "", ""]


OR = "or a directory below it, to mounts\n"


@pytest.mark.parametrize("line", ["cd /data", " cd", "cd $$TMPDIR"])
def test_a_start_up_line_that_only_changes_the_directory_is_reported(
    here: Path, capsys: Capture, line: str
) -> None:
    assert advice(here, capsys, f'startup = ["true", "{line}"]\n') == (
        "2: startup[1]: changes the directory of later start-up lines only\n"
        "    workdir is the directory in which tasks start\n"
    )


LOST = "is in no mount: the host's files are not there, and what tasks write there is lost\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f'your shell: SCRATCH: {LOST}    add "${{SCRATCH}}" to mounts\n'),
        (
            'mounts = ["/home/user"]\n',
            f'your shell: SCRATCH: {LOST}    add "${{SCRATCH}}" to mounts\n',
        ),
        (
            'mounts = ["/scratch/u/job"]\n[env]\n'
            'HF_HOME = "${SCRATCH}/hf"\nA = "/scratch/u/job/a"\n',
            f'4: env.HF_HOME: {LOST}    add "${{SCRATCH}}", {OR}',
        ),
        (
            'mounts = ["/scratch"]\n[env]\nPIP_CACHE_DIR = "/home/user/.cache/pip"\n',
            f'4: env.PIP_CACHE_DIR: {LOST}    add "${{HOME}}", {OR}',
        ),
        ('mounts = ["/scratch/u"]\n[env]\nHF_HOME = "/scratch/u/hf"\n', "e.toml: no advice\n"),
        ('mounts = ["/x:/scratch"]\n', "e.toml: no advice\n"),
        ('mounts = ["tmpfs:/scratch/u"]\n', "e.toml: no advice\n"),
        (
            '[env]\nSCRATCH = "/tmp"\nLD_PRELOAD = "/scratch/u/a:/scratch/u/b"\n',
            "e.toml: no advice\n",
        ),
        ('image = ""\n', "e.toml: no advice\n"),
    ],
)
def test_directories_of_the_user_that_no_mount_shows_are_reported(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/u")
    assert advice(here, capsys, text) == said


MEMORY = "is in the container's memory, and gone after the step\n"
PLACE = "    name a directory that a mount shows: ce help caches\n"
PYTORCH = "[annotations]\ncom.hooks.pytorch.enabled = true\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[env]\nTRITON_CACHE_DIR = "/tmp/triton"\n',
            f"3: env.TRITON_CACHE_DIR: '/tmp/triton' {MEMORY}{PLACE}",
        ),
        (
            'mounts = ["tmpfs:/c"]\n[env]\nNUMBA_CACHE_DIR = "/c/numba"\n',
            f"4: env.NUMBA_CACHE_DIR: '/c/numba' {MEMORY}{PLACE}",
        ),
        (
            PYTORCH,
            "3: annotations.com.hooks.pytorch.enabled: torch.compile's /tmp/torchinductor_… "
            f"{MEMORY}{PLACE}",
        ),
        (f'mounts = ["/local:/tmp"]\n{PYTORCH}', "e.toml: no advice\n"),
        (
            f'mounts = ["/x"]\n[env]\nTORCHINDUCTOR_CACHE_DIR = "/x/i"\n{PYTORCH}',
            "e.toml: no advice\n",
        ),
        ('mounts = ["/x:/cache"]\n[env]\nPIP_CACHE_DIR = "/cache/pip"\n', "e.toml: no advice\n"),
        ('image = ""\n[env]\nHF_HOME = "/tmp/hf"\n', "e.toml: no advice\n"),
    ],
)
def test_caches_in_the_containers_memory_are_reported(
    here: Path, capsys: Capture, text: str, said: str
) -> None:
    assert advice(here, capsys, text) == said


def test_a_cache_that_the_shell_places_is_reported_unless_the_file_decides(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", "/big/hf")
    assert advice(here, capsys, "") == f"your shell: HF_HOME: '/big/hf' {MEMORY}{PLACE}"
    assert advice(here, capsys, '[env]\nHF_HOME = ""\n') == "e.toml: no advice\n"
    assert advice(here, capsys, 'mounts = ["/big"]\n') == "e.toml: no advice\n"


def test_a_mount_of_the_site_shows_them_too(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch/u")
    (here / "site.toml").write_text('mounts = ["/scratch"]\n')
    (here / "e.toml").write_text('image = "a:1"\n')
    assert main(["--site", str(here / "site.toml"), "lint", "e.toml"]) == 0
    assert capsys.readouterr().out == "e.toml: no advice\n"
