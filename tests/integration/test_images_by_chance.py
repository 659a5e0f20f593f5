"""Images made by chance are those that Podman makes of them: their files, and how they start.

CE_IMAGES_SEED=N makes them from that number on, CE_IMAGES=N so many; the seed is printed.
"""

import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from container_engine.images.importing.importer import Importer, Limits
from container_engine.images.reference import LocalImage, parse_source
from container_engine.images.store.store import architecture
from tests.integration import images_by_chance
from tests.integration.engine import Engine
from tests.integration.images_by_chance import Image, Layout
from tests.integration.trees import Podman, differences, entries, ours_mounted

_BATCH = 20
# A shell would drop variables whose names it cannot have.
_SHOW = "busybox readlink /proc/$$/cwd; busybox id -u; busybox id -g; busybox cat /proc/$$/environ"
_START = ("/bin/busybox", "sh", "-c", _SHOW.replace("busybox ", "/bin/busybox "))
# Podman sets these to what the engine takes from the host
_OTHERWISE = {"HOME", "TERM", "container", "HOSTNAME"}


class _Silent:
    def say(self, message: str) -> None:
        pass

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        pass


class Start(NamedTuple):
    """What a command sees; `env` are the image's variables and PATH."""

    cwd: str
    user: str
    env: dict[str, str]


def _shown(said: str, image: Image) -> Start:
    cwd, uid, gid, rest = said.split("\n", 3)
    pairs = (one.partition("=") for one in rest.split("\0") if one)
    names = {one.partition("=")[0] for one in image.run.get("Env") or ()} - _OTHERWISE | {"PATH"}
    env = {name: value for name, _equals, value in pairs if name in names}
    return Start(cwd, f"{uid}:{gid}", env)


class Judged(NamedTuple):
    """The engine and its judge. Of the images, one in `each` is started as well."""

    engine: Engine
    podman: Podman
    server: str
    importer: Importer
    each: int = 1

    def batch(self, where: Path, base: bytes, seeds: Sequence[int]) -> list[str]:
        """Return the differences between the engine and Podman for the images of these seeds."""
        where.mkdir()
        layout = Layout(where, base, architecture())
        layout.add(seeds)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            pulled = pool.submit(self.podman.pulled, list(map(layout.source, seeds)))
            ours = dict(
                zip(seeds, pool.map(lambda seed: self._import(layout, seed), seeds), strict=True)
            )
            theirs = dict(zip(seeds, pulled.result(), strict=True))
            places = self.podman.places(list(theirs.values()))
            found = []
            for seed in seeds:
                with ours_mounted(self.server, str(ours[seed]), where / "m") as mounted:
                    lines = differences(entries(mounted), entries(places[theirs[seed]]))
                (where / "m").rmdir()
                found += [f"seed {seed}: {line}" for line in lines]
            chosen = seeds[:: self.each]
            starts = pool.map(lambda seed: self._starts(layout, seed, ours, theirs), chosen)
            found += [line for lines in starts for line in lines]
        self.podman.run("image", "umount", "--all")
        self.podman.run("rmi", "--all", "--force")
        return found

    def _import(self, layout: Layout, seed: int) -> Path:
        image = parse_source(layout.source(seed), "/")
        assert isinstance(image, LocalImage)
        path = self.engine.scratch / f"{seed}.sqsh"
        try:
            self.importer.to_file(image, str(path), layout.arch, replaces=False)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        return path

    def _starts(
        self, layout: Layout, seed: int, ours: Mapping[int, Path], theirs: Mapping[int, str]
    ) -> list[str]:
        image = layout.images[seed]
        here = self.engine.run(self.engine.edf(image=ours[seed]), *_START)
        user = self.engine.user
        limits = ["--ulimit", "nofile=512:512", "--ulimit", "nproc=4096:4096", "--cgroups=disabled"]
        who = ["--rm", "--network=none", f"--user={user.uid}:{user.gid}"]
        command = [f"--entrypoint={_START[0]}", theirs[seed], *_START[1:]]
        for _ in range(5):
            there = self.podman.tried("run", *limits, *who, *command)
            # Podman may lose what a container says that ends while it begins to listen
            if there.returncode or there.stdout:
                break
        if here.returncode or there.returncode:
            both = here.returncode and there.returncode
            said = f"starts only once: {here.stderr}; with Podman: {there.stderr}"
            return [] if both else [f"seed {seed}: {said}"]
        first, second = _shown(here.stdout, image), _shown(there.stdout, image)
        said = f"starts with {first}, and {second} with Podman"
        return [] if first == second else [f"seed {seed}: {said}"]


@pytest.fixture
def judged(engine: Engine, podman: Podman, server: str) -> Judged:
    env = {"PATH": os.environ["PATH"], "HOME": str(engine.user.home)}
    return Judged(engine, podman, server, Importer(env, "ann", Limits(60, 20, 3600), _Silent()))


def _seeds(count: int) -> range:
    # CI judges a change, so it tries the same images each time
    usual = 1 if os.environ.get("CI") else random.randrange(1 << 30)
    first = int(os.environ.get("CE_IMAGES_SEED") or usual)
    count = int(os.environ.get("CE_IMAGES") or count)
    print(f"CE_IMAGES_SEED={first} CE_IMAGES={count}")
    return range(first, first + count)


@pytest.mark.parametrize(("count", "each"), [(40, 4), pytest.param(500, 1, marks=pytest.mark.soak)])
def test_images_made_by_chance_have_the_files_and_start_as_with_podman(
    judged: Judged, tmp_path: Path, count: int, each: int
) -> None:
    busybox = ["unsquashfs", "-cat", str(judged.engine.image("busybox")), "bin/busybox"]
    done = subprocess.run(busybox, check=True, capture_output=True)
    base = images_by_chance.base_layer(done.stdout)
    seeds = _seeds(count)
    found = []
    for begin in range(0, len(seeds), _BATCH):
        found += judged._replace(each=each).batch(
            tmp_path / str(begin), base, seeds[begin : begin + _BATCH]
        )
    told = sorted({int(line.split()[1].rstrip(":")) for line in found})[:3]
    for seed in told:
        print(f"seed {seed}", *images_by_chance.image(seed, base, "").story, sep="\n")
    assert not found, "\n".join(found)
