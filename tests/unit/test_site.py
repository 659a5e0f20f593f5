"""The site's configuration: files that are read, users who may write them, valid content."""

import errno
import os
import tomllib
from pathlib import Path

import pytest

from container_engine.base.errors import SiteError
from container_engine.site.load import (
    SYSTEM_DIRECTORY,
    Configuration,
    directories,
    load,
    places,
    read,
)
from container_engine.site.model import SiteConfig
from container_engine.site.places import Places

UID = os.geteuid()


class Site:
    """The configuration below an installation."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = str(prefix)
        self.directory = prefix / "etc/container-engine"

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
        return path

    def load(self) -> Configuration:
        return load(self.prefix, UID)

    def refusal(self, uid: int = UID) -> str:
        with pytest.raises(SiteError) as caught:
            load(self.prefix, uid)
        return caught.value.message.replace(f"{self.directory}/", "")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_files_below_the_installation_count_before_the_systems(site: Site) -> None:
    assert directories(site.prefix) == (str(site.directory), SYSTEM_DIRECTORY)
    main = site.write("config.toml", "entrypoint = true\n")
    assert site.load().settings.entrypoint
    assert site.load().files == (str(main),)


def test_without_a_file_everything_has_a_default(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container_engine.site.load.SYSTEM_DIRECTORY", f"{tmp_path}/absent")
    assert site.load().settings == SiteConfig()
    assert places(site.prefix, UID, None, {}) == Places() == SiteConfig().places
    assert site.load().origin("entrypoint") == "default"


def test_drop_ins_are_read_in_the_order_of_their_names_and_the_last_counts(site: Site) -> None:
    site.write("config.toml", 'pull = "never"\ntmpfs_size = "1g"\nimage_stores = ["/a"]\n')
    last = site.write("conf.d/20-b.toml", 'pull = "missing"\nimage_stores = ["/b"]\n')
    site.write("conf.d/10-a.toml", 'pull = "always"\n')
    found = site.load()
    assert [Path(file).name for file in found.files] == ["config.toml", "10-a.toml", "20-b.toml"]
    assert found.settings.pull == "missing"
    assert found.settings.tmpfs_size == "1g"
    assert found.settings.image_stores == ("/b",)
    assert found.origin("pull") == f"site: {last}:pull"


def test_where_things_are_is_read_without_the_model(site: Site) -> None:
    def found() -> Places | None:
        return places(site.prefix, UID, None, {})

    site.write("config.toml", 'edf_dir = "/a"\nimage_stores = ["/s"]\npull = "never"\n')
    last = site.write("conf.d/1.toml", 'edf_dir = "/b"\ntrace_dir = "~/t"\n')
    assert found() == site.load().settings.places
    assert found() == Places(edf_dir="/b", image_stores=("/s",), trace_dir="~/t")
    for wrong in ("edf_dir = 1", 'edf_dirs = "/a"', "image_stores = [1]", "edf_dir ="):
        site.write("conf.d/1.toml", f"{wrong}\n")
        assert found() is None, wrong
    last.unlink()
    site.write("clusters.d/x.toml", "")
    assert found() is None  # which cluster this is cannot be known


def test_mounts_devices_and_tables_of_several_files_add_up(site: Site) -> None:
    main = site.write("config.toml", 'mounts = ["/a"]\n[env]\nA = "1"\nB = "1"\n')
    one = site.write("conf.d/1.toml", 'mounts = ["/b"]\ndevices = ["/dev/x"]\n[env]\nB = "2"\n')
    two = site.write("conf.d/2.toml", '[policy]\nmax_image_size = "1G"\n')
    found = site.load()
    assert found.settings.mounts == ("/a", "/b")
    assert found.settings.env == {"A": "1", "B": "2"}
    assert found.origins == {
        "mounts[0]": str(main),
        "mounts[1]": str(one),
        "devices[0]": str(one),
        "env.A": str(main),
        "env.B": str(one),
        "policy.max_image_size": str(two),
    }


def test_drop_ins_alone_are_enough_and_other_files_are_passed_over(site: Site) -> None:
    site.write("conf.d/a.toml", "entrypoint = true\n")
    for name in ("a.toml.rpmsave", ".b.toml", "README"):
        site.write(f"conf.d/{name}", "no = no")
    assert [Path(file).name for file in site.load().files] == ["a.toml"]


def test_everything_that_was_looked_at_is_known(site: Site) -> None:
    """The answer of a plan has to notice a file that appears."""
    drop_in = site.write("conf.d/a.toml", "")
    paths = site.load().probed
    assert set(paths) >= {f"{site.directory}/config.toml", f"{site.directory}/conf.d", str(drop_in)}
    drop_in.unlink()
    assert f"{SYSTEM_DIRECTORY}/conf.d" in site.load().probed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("entrypiont = true", "unknown key 'entrypiont', did you mean 'entrypoint'?"),
        ("zzz = true", "unknown key 'zzz'"),
        (
            'max_image_size = "1G"',
            "unknown key 'max_image_size', did you mean 'policy.max_image_size'?",
        ),
        (
            'policy.max_size = "5G"',
            "unknown key 'policy.max_size', did you mean 'max_image_size'?",
        ),
        ("policy.deny = []", "unknown key 'policy.deny'"),
        ("policy = 1", "policy: must be a table"),
        ('tag_max_age_s = "ten"', "tag_max_age_s: must be a number"),
        ("policy.scanner = 'trivy'", "policy.scanner: must be an array"),
        ("version = 2", "version: must be 1"),
        ("start_timeout_s = 0", "start_timeout_s: must be greater than 0"),
        ('entrypoint = "yes"', "entrypoint: must be true or false"),
        ("mounts = [1]", "mounts[0]: must be a string"),
        ('mounts = "/x"', "mounts: must be an array"),
        ("env = {A = 1}", "env.A: must be a string"),
        ("a = x", "not valid TOML: Invalid value (at column 5)"),
    ],
)
def test_what_it_may_not_say_is_named(site: Site, text: str, problem: str) -> None:
    site.write("config.toml", text)
    assert site.refusal() == f"config.toml:1: {problem}"


def test_all_faults_of_all_files_are_named_and_the_rest_counts(site: Site) -> None:
    site.write("config.toml", 'x = 1\npull = "never"\n')
    site.write("conf.d/a.toml", 'entrypoint = 3\ntmpfs_size = "big"\n')
    assert site.refusal() == (
        "config.toml:1: unknown key 'x'; "
        "conf.d/a.toml:1: entrypoint: must be true or false; "
        "conf.d/a.toml:2: tmpfs_size: 'big' has an invalid form"
    )
    assert read(site.prefix, UID).settings == SiteConfig(pull="never")


def test_a_hint_shows_what_a_key_looks_like(site: Site) -> None:
    site.write("config.toml", 'tmpfs_size = "big"\nedf_may_override = ["all"]\n')
    size, may = read(site.prefix, UID).faults
    assert size.hint == 'for example tmpfs_size = "16g"'
    assert may.key == "edf_may_override[0]"
    assert may.hint == 'for example edf_may_override = ["entrypoint", "env", "pull"]'


@pytest.mark.parametrize("name", ["config.toml", "conf.d/a.toml"])
def test_a_file_that_others_may_write_is_refused(site: Site, name: str) -> None:
    site.write(name, "").chmod(0o664)
    assert site.refusal() == f"{name}: others than its owner may write it"


def test_a_directory_of_drop_ins_that_others_may_write_is_refused(site: Site) -> None:
    site.write("conf.d/a.toml", "").parent.chmod(0o777)
    assert site.refusal() == "conf.d: others than its owner may write it"


def test_a_file_of_another_user_is_refused(site: Site) -> None:
    path = site.write("config.toml", "")
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    owner = path.stat().st_uid
    assert site.refusal(owner + 1) == f"config.toml: owned by user {owner}, not by root"


def test_a_file_system_that_is_away_is_not_a_site_without_rules(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, lstat = f"{site.prefix}/etc/container-engine/config.toml", os.lstat

    def away(path: str, *more: object, **options: object) -> os.stat_result:
        if path == main:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return lstat(path, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", away)
    with pytest.raises(SiteError, match=f"{main}: stale file handle"):
        site.load()


def test_a_file_that_cannot_be_read_is_named(site: Site) -> None:
    (site.directory / "config.toml").mkdir(parents=True)
    assert site.refusal() == "config.toml: is a directory"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SLURM_JOB_ID", True),
        ("SLURMD_NODENAME", True),
        ("CUDA_VISIBLE_DEVICES", True),
        ("CUDA_VISIBLE_DEVICES_X", False),
        ("SLURM", False),
        ("HOME", False),
    ],
)
def test_which_variables_only_the_node_knows(name: str, expected: bool) -> None:
    assert SiteConfig().is_deferred(name) == expected


def test_the_example_shows_every_key_with_its_default(site: Site) -> None:
    example = Path(__file__).parents[2] / "docs/admin/config.toml"
    site.write("config.toml", example.read_text())
    shown = site.load().settings
    assert set(tomllib.loads(example.read_text())) == set(SiteConfig.model_fields)
    assert shown.model_copy(update={"image_store": None}) == SiteConfig()


class Cluster:
    """A host of a cluster, by its slurm.conf."""

    def __init__(self, directory: Path, name: str) -> None:
        self.conf = directory / "slurm.conf"
        self.conf.write_text(f"ClusterName={name}\n")
        self.env = {"SLURM_CONF": str(self.conf)}


def test_the_file_of_a_cluster_is_read_last_on_its_hosts_alone(site: Site, tmp_path: Path) -> None:
    site.write("config.toml", 'pull = "never"\nmounts = ["/a"]\n[env]\nA = "1"\nB = "1"\n')
    site.write("conf.d/10.toml", 'pull = "always"\n')
    own = site.write("clusters.d/daint.toml", 'pull = "missing"\nmounts = ["/b"]\n[env]\nB = "2"\n')
    site.write("clusters.d/eiger.toml", 'pull = "age"\nno_such_key = 1\n')

    daint = load(site.prefix, UID, env=Cluster(tmp_path, "Daint").env)
    assert daint.settings.pull == "missing"
    assert daint.settings.mounts == ("/a", "/b")
    assert daint.settings.env == {"A": "1", "B": "2"}
    assert daint.origin("env.B") == f"site: {own}:env.B"

    other = load(site.prefix, UID, env=Cluster(tmp_path, "santis").env)
    assert other.settings.pull == "always"
    with pytest.raises(SiteError, match=r"eiger\.toml:2: unknown key 'no_such_key'"):
        load(site.prefix, UID, env=Cluster(tmp_path, "eiger").env)


def test_what_chooses_a_clusters_file_is_known_to_a_cached_plan(site: Site, tmp_path: Path) -> None:
    """Otherwise a cached plan would be used after the cluster, or its file, has changed."""
    site.write("config.toml", "")
    before = load(site.prefix, UID, env=Cluster(tmp_path, "daint").env)
    assert before.variables == ()
    assert f"{site.directory}/clusters.d" in before.probed

    site.write("clusters.d/eiger.toml", "")
    cluster = Cluster(tmp_path, "daint")
    cluster.conf.write_text("include more.conf\n")
    (tmp_path / "more.conf").write_text("ClusterName=daint\n")
    found = load(site.prefix, UID, env=cluster.env)
    assert found.variables == ("SLURM_CONF",)
    wanted = {f"{site.directory}/clusters.d", str(cluster.conf), f"{tmp_path}/more.conf"}
    assert wanted <= set(found.probed)


def test_a_host_whose_cluster_is_unknown_starts_nothing_where_clusters_differ(
    site: Site, tmp_path: Path
) -> None:
    site.write("config.toml", "")
    site.write("clusters.d/daint.toml", "")
    conf = tmp_path / "slurm.conf"
    conf.write_text("SlurmctldPort=1\n")
    (fault,) = read(site.prefix, UID, env={"SLURM_CONF": str(conf)}).faults
    assert "cannot tell which of these applies" in fault.message


@pytest.mark.parametrize("text", ['image_stores = ["/a"]', "[policy]\nsite_images_only = true"])
def test_what_nodes_read_again_is_of_no_cluster(site: Site, tmp_path: Path, text: str) -> None:
    site.write("config.toml", "")
    site.write("clusters.d/daint.toml", f"{text}\n")
    (fault,) = read(site.prefix, UID, env=Cluster(tmp_path, "daint").env).faults
    assert "nodes read this key again, in config.toml and conf.d only" in fault.message


def test_files_of_clusters_that_cannot_be_listed_are_a_fault(site: Site) -> None:
    site.write("config.toml", "")
    (Path(site.directory) / "clusters.d").symlink_to("clusters.d")
    (fault,) = read(site.prefix, UID).faults
    assert (fault.file, fault.message) == (
        f"{site.directory}/clusters.d",
        "too many levels of symbolic links",
    )


def test_files_of_clusters_alone_are_no_configuration(site: Site) -> None:
    site.write("clusters.d/daint.toml", 'pull = "never"\n')
    (fault,) = read(site.prefix, UID).faults
    assert fault.message == "has no config.toml above it"
