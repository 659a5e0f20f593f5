"""The Debian package and the RPM of this release: complete, owned by root, in their prefix."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest

from container_engine.tools.doctor import installation

ROOT = Path(__file__).parents[2]
PREFIX = "opt/container-engine"
LINE, SITES = "container-engine.conf", ("#", "the", "site's")
PAGE = ROOT / "docs/howto/python-api.md"
# Make a mount namespace in which the unpacked package is in its prefix.
INSTALLED = 'mkdir -p "/$1" && mount --bind "$0/$1" "/$1" && shift && exec "$@"'


def run(*argv: str) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def query(rpm: Path, *what: str) -> list[str]:
    """Return lines about an RPM, by a database that is not in the home."""
    database = ("--dbpath", str(rpm.parent / "database"))
    return run("rpm", *database, "--query", "--package", *what, str(rpm)).splitlines()


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run("packaging/deb", str(tmp_path_factory.mktemp("deb"))).splitlines()[-1])


@pytest.fixture(scope="module")
def rpm(tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]) -> Path:
    need_tool("rpmbuild")
    built = run("packaging/rpm/build", str(tmp_path_factory.mktemp("rpm"))).splitlines()
    (package,) = [Path(line) for line in built if not line.endswith(".src.rpm")]
    return package


@pytest.fixture(scope="module", params=["deb", "rpm"])
def unpacked(request: pytest.FixtureRequest) -> Path:
    package: Path = request.getfixturevalue(request.param)
    root = package.parent / "root"
    if request.param == "deb":
        run("dpkg-deb", "--extract", str(package), str(root))
    else:
        # Use a database of its own, in which nothing is installed that the package could require.
        run("rpm", "--root", str(root), "--install", "--nodeps", str(package))
    return root


def installed(unpacked: Path, argv: Sequence[str]) -> str:
    return run("unshare", "--mount", "sh", "-c", INSTALLED, str(unpacked), PREFIX, *argv)


def test_the_deb_needs_the_python_and_the_slurm_it_was_built_for(deb: Path) -> None:
    needs = run("dpkg-deb", "--field", str(deb), "Depends")
    for wanted in ("python3 (>= 3.", "python3 (<< 3.", "slurm-client (<< ", "crun (>= 1.8)"):
        assert wanted in needs
    assert "podman" not in needs
    assert "podman (>= 4.3)" in run("dpkg-deb", "--field", str(deb), "Recommends")


def test_the_rpm_needs_the_python_and_the_slurm_it_was_built_for(rpm: Path) -> None:
    needs = query(rpm, "--requires")
    python = ".".join(map(str, sys.version_info[:2]))
    assert f"python(abi) = {python}" in needs
    assert "crun >= 1.8" in needs
    assert "podman >= 4.3" not in needs
    (release,) = [line.split()[-1] for line in needs if line.startswith("slurm >= ")]
    assert re.fullmatch(r"\d\d\.\d\d", release)
    against = query(rpm, "--conflicts")
    assert f"slurm >= {release}.99" in against
    assert not [line for line in needs if line.startswith(("lib", "/opt"))]


def test_the_rpm_has_the_files_of_the_deb(deb: Path, rpm: Path) -> None:
    """Only licences, changelogs and zsh's functions are at the paths of each distribution."""
    contents = run("dpkg-deb", "--contents", str(deb)).splitlines()
    of_deb = {line.split()[5].removeprefix(".") for line in contents if line[0] != "d"}
    listed = query(rpm, "--list")
    own = ("/usr/share/doc/", "/usr/share/licenses/", "/usr/share/zsh/")
    only = {path for path in of_deb - set(listed) if not path.startswith(own)}
    assert only == set()
    (zsh,) = [path for path in listed if path.endswith("/_ce")]
    assert zsh == "/usr/share/zsh/site-functions/_ce"


def test_everything_in_the_packages_is_roots_and_nobody_else_may_write_it(
    deb: Path, rpm: Path
) -> None:
    of_rpm = query(rpm, "--list", "--verbose")
    lines = [(line.split()[0], "/".join(line.split()[2:4]), line) for line in of_rpm]
    of_deb = run("dpkg-deb", "--contents", str(deb)).splitlines()
    lines += [(line.split()[0], line.split()[1], line) for line in of_deb]
    assert len(lines) > 200
    for mode, owner, line in lines:
        assert owner == "root/root", line
        assert mode[0] == "l" or (mode[5], mode[8]) == ("-", "-"), line
        assert "s" not in mode, line


def test_ce_doctor_and_the_page_on_installing_know_every_program(unpacked: Path) -> None:
    programs = {
        path.name: path for path in (unpacked / PREFIX / "libexec/container-engine").iterdir()
    }
    files = {name for name, path in programs.items() if not path.is_dir()}
    assert files == set(installation.PROGRAMS)
    page = (ROOT / "docs/admin/install.md").read_text(encoding="utf-8")
    said = page.partition("PREFIX/libexec/container-engine/ ")[2].partition("PREFIX/")[0]
    assert {word.strip("/") for word in re.findall(r"[\w/-]+", said)} == set(programs)


# A package with the names that the RPM requires, as no package of this machine is an RPM. The
# programs are the machine's, seen through an overlay in which the RPM's files can be written.
_NEEDS = """\
Name: needs
Version: 1
Release: 1
Summary: names
License: none
BuildArch: noarch
%description
names
%files
"""
_IN_A_ROOT = """\
set -e
cd "$0"
mkdir -p root/usr root/etc/slurm root/var/lib root/tmp root/proc root/dev upper work
for name in bin sbin lib lib64; do ln -s usr/$name root/$name; done
mount -t overlay -o lowerdir=/usr,upperdir=upper,workdir=work overlay root/usr
mount -t proc proc root/proc
touch root/dev/null && mount --bind /dev/null root/dev/null
rpm --root "$PWD/root" --install needs/noarch/*.rpm "$1"
line=root/etc/slurm/plugstack.conf.d/container-engine.conf
echo "installed: $(cat $line)"
chroot root /usr/bin/ce --version
echo "# the site's" >> $line
rpm --root "$PWD/root" --erase container-engine
echo "left: $(ls root/etc/slurm/plugstack.conf.d root/opt)"
tail -n 1 $line.rpmsave
"""


def test_the_rpm_is_installed_and_removed_by_rpm_itself(rpm: Path, tmp_path: Path) -> None:
    """Its requirements have to be met by name, and its script keeps the plugin's line."""
    needs = [line for line in query(rpm, "--requires") if not line.startswith("rpmlib(")]
    provided = [f"Provides: {name.replace('>=', '=')}" for name in needs]
    (tmp_path / "needs.spec").write_text("\n".join((*_NEEDS.splitlines()[:6], *provided, "")))
    with (tmp_path / "needs.spec").open("a") as file:
        file.write("\n".join((*_NEEDS.splitlines()[6:], "")))
    database = f"_dbpath {tmp_path}/database"
    build = ("rpmbuild", "-bb", "--define", f"_rpmdir {tmp_path}/needs", "--define", database)
    run(*build, "--define", f"_topdir {tmp_path}", str(tmp_path / "needs.spec"))
    shell = ("unshare", "--mount", "sh", "-c", _IN_A_ROOT)
    said = run(*shell, str(tmp_path), str(rpm))
    assert f"\nrequired /{PREFIX}/lib/slurm/container_engine.so prefix=/{PREFIX}" in said
    assert "\nce " in said
    left = said.partition("left: ")[2].split()
    assert left == ["root/etc/slurm/plugstack.conf.d:", f"{LINE}.rpmsave", "root/opt:", *SITES]


def test_users_who_have_the_programs_on_their_path_keep_their_own_python(unpacked: Path) -> None:
    assert [path.name for path in (unpacked / PREFIX / "bin").iterdir()] == ["ce"]


def test_no_file_of_the_package_names_the_place_where_it_was_built(unpacked: Path) -> None:
    builds = (f"{ROOT}/build/".encode(), b"/var/tmp/ce-deb.")
    files = [path for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 100
    assert [path for path in files if any(b in path.read_bytes() for b in builds)] == []


def test_the_unpacked_package_works_at_its_place(unpacked: Path) -> None:
    assert installed(unpacked, [f"/{PREFIX}/bin/ce", "--version"]).startswith("ce ")
    found = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", INSTALLED, str(unpacked), PREFIX),
            *(f"/{PREFIX}/bin/ce", "doctor", "--node", "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    findings = {entry["check"]: entry for entry in json.loads(found.stdout)["findings"]}
    for check in ("installation", "owner", "session directory"):
        assert findings[check]["state"] == "ok", findings[check]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, in which it may leave files."""
    copy = tmp_path_factory.mktemp("wheel") / "tree"
    copy.mkdir()
    for name in ("container_engine", "hooks"):
        shutil.copytree(ROOT / name, copy / name)
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, copy)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    run(*pip, "--no-build-isolation", "--wheel-dir", str(copy.parent), str(copy))
    (built,) = copy.parent.glob("*.whl")
    return built


def test_the_wheel_is_enough_for_a_laptop(wheel: Path, tmp_path: Path) -> None:
    """No program is on the path but those of its environment; it knows the engine's hooks."""
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv/bin"
    run(str(programs / "pip"), "install", "--quiet", str(wheel))
    env = {"HOME": str(tmp_path), "PATH": str(programs), "PWD": str(tmp_path)}
    (tmp_path / "describe.py").write_text(_DESCRIBE)

    def said(program: str, *words: str, code: int = 0) -> str:
        argv = [str(programs / program), *words]
        done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        assert not re.search("error|warning", done.stderr), done.stderr
        return done.stdout

    assert said("python", "describe.py") == "True\n"
    assert said("ce", "validate", "--strict", "./a.toml") == "./a.toml: valid\n"
    assert '"com.hooks.ssh.port": "2222"' in said("ce", "render", "./a.toml")
    assert f"from {tmp_path}/a.toml:" in said("ce", "explain", "./a.toml")
    assert said("ce", "lint", "./a.toml") == "./a.toml: no advice\n"
    assert 'port = "2223"' in said("ce", "diff", "./a.toml", "./b.toml", code=1)
    assert "new.toml" in said("ce", "init", "new")
    assert json.loads(said("ce", "schema", "edf"))["properties"]["mounts"]


_DESCRIBE = """\
from container_engine import api

for name, port in (("a", 2222), ("b", 2223)):
    hooks = {**api.hook("ssh", port=port), **api.hook("aws_ofi_nccl", variant="cuda12")}
    environment = api.Environment(image="ubuntu:24.04", annotations=hooks)
    environment.write(f"{name}.toml")
print(api.validate("./a.toml").valid)
"""


def test_the_wheel_knows_the_site_of_the_installation_on_the_path(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    """The wheel's own `ce` comes first on the path, and is none."""
    prefix = unpacked / PREFIX
    configuration = prefix / "etc/container-engine"
    configuration.mkdir(parents=True, exist_ok=True)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/demo.toml").write_text('image = "ubuntu:24.04"\n')
    (configuration / "config.toml").write_text(f'edf_dir = "{tmp_path}/site"\n')
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    programs = tmp_path / "venv/bin"
    run(str(programs / "pip"), "install", "--quiet", str(wheel))
    (tmp_path / "links").mkdir()
    (tmp_path / "links/ce").symlink_to(prefix / "bin/ce")
    for more, code in ((prefix / "bin", 0), (tmp_path / "links", 0), (tmp_path / "none", 1)):
        env = {"HOME": str(tmp_path), "PATH": f"{programs}:{more}", "PWD": str(tmp_path)}
        argv = [str(programs / "ce"), "validate", "demo"]
        done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, "no environment 'demo'" in done.stderr) == (code, code == 1)
    (configuration / "config.toml").unlink()


def test_the_wheel_says_that_it_has_types(wheel: Path) -> None:
    assert "container_engine/py.typed" in ZipFile(wheel).namelist()


def test_the_page_names_the_wheel_of_this_release(wheel: Path) -> None:
    named = set(re.findall(r"container_engine-\S+?\.whl", PAGE.read_text()))
    assert named == {wheel.name}
