"""The sandbox's ordinary user, as whom everything is measured."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]


class BenchError(Exception):
    """A measurement that failed; the message is one line."""


class User:
    """A process of the user that runs commands one at a time and times them, in seconds.

    Every method raises BenchError when the command fails, as a failure is quick and would look
    good.
    """

    def __init__(self, worker: Path) -> None:
        self._process = subprocess.Popen(
            [str(ROOT / "sandbox" / "run"), "/usr/bin/python3", "-u", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        after: Sequence[str] | None = None,
    ) -> float:
        """Return the time a command takes; `after` cleans up, untimed."""
        more = {} if after is None else {"after": list(after)}
        return self._seconds("run", argv=list(argv), env=dict(env or {}), **more)

    def output(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        answer = self._ask("run", argv=list(argv), env=dict(env or {}))
        return str(answer["output"])

    def ready(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
        """Return the time until a command prints its first line."""
        return self._seconds("ready", argv=list(argv), env=dict(env or {}))

    def ready_at_once(self, argv: Sequence[str], count: int) -> list[float]:
        """Return when each of `count` commands, started at once, had printed its first line."""
        times: list[float] = self._ask("ready_at_once", argv=list(argv), count=count)["times"]
        return times

    def launch(self, node: Path, plan: str, prefix: Sequence[str] = ()) -> float:
        """Return the time our launcher takes from the plugin's fork to its answer."""
        return self._seconds("launch", node=str(node), plan=plan, prefix=list(prefix))

    def many(self, node: Path, plan: str, single: int, count: int) -> dict[str, list[float]]:
        """Start containers of tasks in turn and at once; they stay until `many_ended`."""
        request = {"node": str(node), "plan": plan, "single": single, "count": count}
        answer = self._ask("many", **request)
        return {name: answer[name] for name in ("single", "at_once")}

    def many_ended(self) -> float:
        """End the containers of `many`, and return the time that this took."""
        return self._seconds("ended")

    def step(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
        """Return the time of an srun on an idle cluster."""
        self._ask("settle")
        return self.run(argv, env)

    @contextmanager
    def job(self, command: str = "sleep infinity") -> Iterator[str]:
        """Yield the ID of a job on one node whose script is this command."""
        sbatch = ["sbatch", "-N1", "--parsable", "--output=/dev/null", f"--wrap={command}"]
        job = self.output(sbatch).strip()
        shown = f"until squeue -ho %T -j {job} | grep -q RUNNING; do sleep 0.1; done"
        self.run(["sh", "-c", shown])
        try:
            yield job
        finally:
            self.run(["scancel", job])

    def _seconds(self, operation: str, **request: object) -> float:
        return float(self._ask(operation, **request)["seconds"])

    def _ask(self, operation: str, **request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"operation": operation, **request}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"{operation}: the measuring process ended")
        answer: dict[str, Any] = json.loads(line)
        if answer["code"]:
            said = " / ".join(answer["output"].strip().splitlines()[-2:])
            raise BenchError(f"{request.get('argv', operation)}: {said or answer['code']}")
        return answer
