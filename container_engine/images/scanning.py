"""Run the site's scanner on images and cache its verdicts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base import process, records
from container_engine.base.errors import SiteError
from container_engine.base.files import publish, read_regular, user_directory
from container_engine.images import site_program
from container_engine.images.confine.cage import OWN_NAMESPACES
from container_engine.images.store.store import CLOCKS_S

if TYPE_CHECKING:
    from container_engine.images.policy import Rules

_MAX_REPORT = 1 << 20
# ce-image goes to the background once the image is mounted; it ends when the scanner's namespaces
# end
_MOUNTED = '"$1" "$2" "$3" && shift 3 && exec "$@"'


class Subject(NamedTuple):
    """An image to be scanned: the name that the user wrote, its digest, and its file."""

    name: str
    digest: str
    path: str


class Verdict(NamedTuple):
    """The result of a scan.

    `status` is the scanner's exit code, 0 for a good image, or None if it did not finish. `program`
    is the command before its placeholders were filled in.
    """

    program: tuple[str, ...]
    when: float
    status: int | None
    report: str

    @property
    def is_good(self) -> bool:
        return self.status == 0

    @property
    def summary(self) -> str:
        """Return the report's last line that has a letter or digit, else how the scan ended."""
        lines = [line.strip() for line in self.report.splitlines()]
        ended = "not finished" if self.status is None else f"exit code {self.status}"
        return next((line for line in reversed(lines) if any(map(str.isalnum, line))), ended)


class Scanner(NamedTuple):
    """The site's scanner, which runs as the user with the environment `env`.

    Verdicts are kept in `directory`.
    """

    rules: Rules
    directory: str
    env: Mapping[str, str]
    libexec: str

    def recall(self, subject: Subject, now: float) -> Verdict | None:
        """Return this scanner's earlier verdict on the image, or None if it is missing or old."""

        def judge(status: os.stat_result) -> None:
            # another user's verdict in a cache that others may write is not trusted
            if status.st_uid != os.geteuid():
                raise PermissionError

        try:
            found = records.from_json(Verdict, read_regular(self._place(subject), judge=judge))
        except (OSError, ValueError):
            return None
        policy = self.rules.policy
        is_young = found.when - CLOCKS_S < now < found.when + policy.scanner_max_age_s
        return found if is_young and found.program == policy.scanner else None

    def scan(self, subject: Subject) -> Verdict:
        """Run the scanner and cache its verdict. Raise SiteError if its program is not usable."""
        policy = self.rules.policy
        site_program.check(policy.scanner[0], self.rules.source, "policy.scanner")
        status, report = self._run(subject)
        verdict = Verdict(program=policy.scanner, when=time.time(), status=status, report=report)
        if status is not None:
            with contextlib.suppress(OSError):  # without the cache the next launch scans again
                publish(self._place(subject), records.to_json(verdict))
        return verdict

    def _run(self, subject: Subject) -> tuple[int | None, str]:
        policy = self.rules.policy
        with tempfile.TemporaryDirectory(prefix="ce-scan-") as work:
            rootfs, report = os.path.join(work, "rootfs"), os.path.join(work, "report")
            os.mkdir(rootfs)
            name, digest, image = subject
            values = {"rootfs": rootfs, "image": image, "name": name, "digest": digest}
            argv = site_program.filled(policy.scanner, values)
            if any("{rootfs}" in word for word in policy.scanner):
                mounting = ("sh", f"{self.libexec}/ce-image", subject.path, rootfs)
                argv = [*OWN_NAMESPACES, "sh", "-c", _MOUNTED, *mounting, *argv]
            try:
                status: int | None = 0
                process.into_file(argv, self.env, policy.scanner_timeout_s, report)
            except process.CommandError as error:
                status = error.status
            except SiteError as error:
                return None, error.message
            with open(report, "rb") as file:
                return status, file.read(_MAX_REPORT).decode(errors="replace")

    def _place(self, subject: Subject) -> str:
        key = hashlib.sha256(f"{subject.digest}\0{subject.path}".encode("utf-8", "surrogateescape"))
        with contextlib.suppress(OSError):  # the scan reports the error
            found = os.stat(subject.path)
            # an image stored under a digest does not change, but its time is sometimes renewed
            when = 0 if subject.digest else found.st_mtime_ns
            key.update(f"{found.st_size} {when}".encode())
        return f"{self.directory}/{key.hexdigest()}.json"


def cache_directory(env: Mapping[str, str]) -> str:
    """Return the directory of a user's cached verdicts."""
    cache = user_directory("XDG_CACHE_HOME", ".cache", env) or f"{tempfile.gettempdir()}/.cache"
    return f"{cache}/container-engine/scans"
