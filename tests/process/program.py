"""Starts the real program, as a user would, and looks at it from outside: its output, its files, its database, its HTTP answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import httpx
import msgspec
import psycopg
from psycopg.rows import dict_row

from cmserver.base import credentials
from cmserver.cli import state
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.timeouts import Deadline, scaled

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
_TICK_SECONDS = 0.02

QUICK_LEASE = {
    "CMSERVER_LEASE_SECONDS": f"{scaled(2):g}",
    "CMSERVER_HEARTBEAT_SECONDS": f"{scaled(0.5):g}",
    "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0",
}
"""For tests that wait until a lease runs out: as short as a worker on this machine can keep it. Others leave the default."""


class Seen(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation as a client of the API sees it."""

    number: int
    observation_kind: str
    type: str
    content: str
    files_modified: list[str]
    summary: dict[str, str | None] | None
    turn_number: int | None = None


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    observations: list[Seen]


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the program runs as, when that is somebody else than who runs the tests; and a Python that he can reach."""

    uid: int
    gid: int
    python: str


def wait_for(what: str, look: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """What `look` finds, once that is something true; AssertionError naming `what` when it takes too long."""
    deadline = Deadline(seconds)
    while True:
        found = look()
        if found:
            return found
        assert not deadline.is_over, f"waited {deadline.elapsed:.0f} s in vain for {what}"
        time.sleep(_TICK_SECONDS)


def is_there(pid: int) -> bool:
    """Whether a process has that pid; what is only waiting to be reaped counts as gone."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True, text=True, check=False)
    return shown.stdout.strip()[:1] not in {"", "Z"}


def wait_until_gone(pid: int) -> None:
    wait_for(f"the end of process {pid}", lambda: not is_there(pid))


def environment(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the surroundings' settings; any free port; logs that a program can read."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("CMSERVER_") or name.startswith("CMSERVER_TEST_")
    }
    ours = {
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "CMSERVER_DATA_DIR": str(folder / "data"),
        "CMSERVER_PORT": "0",
        "CMSERVER_LOG_FORMAT": "json",
    }
    return {**kept, **ours, **settings}


def command(
    folder: Path, *words: str, settings: Mapping[str, str] | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """`cmserver <words>`, run to its end."""
    return subprocess.run(
        [python, "-m", "cmserver", *words],
        env=environment(folder, settings or {}),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=scaled(PATIENCE_SECONDS * 2),
        check=False,
    )


class Program:
    """`cmserver run`, running."""

    def __init__(
        self,
        folder: Path,
        label: str,
        *words: str,
        settings: Mapping[str, str],
        user: User | None = None,
        python: str = sys.executable,
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` is the beginning of a command line that runs another one in its place."""
        self.data_dir = Path(settings.get("CMSERVER_DATA_DIR", folder / "data"))
        self.label = label
        self.began = time.monotonic()
        self._out, self._err = folder / f"{label}.out", folder / f"{label}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*prefix, user.python if user else python, "-m", "cmserver", "run", *words],
                env=environment(folder, settings),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    # -- what it says

    @property
    def output(self) -> str:
        return self._out.read_text()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def logged(self, event: str) -> list[dict[str, object]]:
        """The log records of that name, oldest first."""
        lines = self.errors.splitlines(keepends=True)
        records = [cast("dict[str, object]", json.loads(line)) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [record for record in records if record["event"] == event]

    def wait_for_log(self, event: str, count: int = 1) -> dict[str, object]:
        def look() -> dict[str, object] | None:
            found = self.logged(event)
            return found[count - 1] if len(found) >= count else None

        return self._wait_for(f"{event!r} in the log of {self.label}", look)

    # -- whether it is there

    def wait_until_ready(self) -> float:
        """Until /readyz answers; the seconds from the start."""

        def ready() -> bool:
            found = state.running(self.data_dir)
            if found is None or found.pid != self.pid:
                return False
            return httpx.get(f"{found.url}/readyz", timeout=scaled(20), trust_env=False).status_code == 200

        self._wait_for(f"{self.label} to be ready", ready)
        return time.monotonic() - self.began

    def wait_until_working(self) -> None:
        """For a worker, which has no port."""
        self._wait_for(f"{self.label} to work", lambda: "The worker is running" in self.output)

    def _wait_for(self, what: str, look: Callable[[], T | None]) -> T:
        def look_while_alive() -> T | None:
            found = look()
            assert found or self.process.poll() is None, (
                f"{self.label} ended (code {self.process.returncode}):\n{self.errors[-4000:]}"
            )
            return found

        return wait_for(what, look_while_alive)

    @property
    def postgres_pid(self) -> int:
        return cast("int", self.wait_for_log("postgres.started")["pid"])

    def send(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; the exit code."""
        self.send(sign)
        return self.process.wait(scaled(PATIENCE_SECONDS))

    def end(self) -> None:
        """Whatever state it is in, it and its postgres are gone afterwards."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.process.wait(scaled(20))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for record in [*self.logged("postgres.started"), *self.logged("postgres.restarted")]:
            wait_until_gone(cast("int", record["pid"]))

    # -- what it answers

    @property
    def url(self) -> str:
        found = state.running(self.data_dir)
        assert found is not None
        return found.url

    @property
    def key(self) -> str:
        found = credentials.read(self.data_dir)
        assert found is not None
        return found.key

    @contextmanager
    def http(self) -> Generator[httpx.Client]:
        with httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=scaled(40), trust_env=False
        ) as client:
            yield client


def observations(client: httpx.Client, project: str) -> list[Seen]:
    """Those of the project, newest first; none while the server says that it cannot tell."""
    return seen(client.get("/v1/observations", params={"project": project}))


def seen(answer: httpx.Response) -> list[Seen]:
    return msgspec.json.decode(answer.content, type=_Page).observations if answer.is_success else []


def measured(text: str) -> None:
    """For whoever runs the tests with -s or -rP."""
    print(text)  # noqa: T201


@contextmanager
def embedded_database(folder: Path) -> Generator[str]:
    """The URL of the database of a program that has ended, running for the moment."""
    embedded = EmbeddedPostgres(folder / "data", durable=False)
    embedded.start()
    try:
        yield embedded.url
    finally:
        embedded.stop()


def rows(url: str, question: str, **values: object) -> list[dict[str, object]]:
    """The answer of the database, asked as its owner."""
    with psycopg.connect(url, autocommit=True) as conn, conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(question.encode(), values).fetchall()


def number(url: str, question: str, **values: object) -> int:
    return cast("int", next(iter(rows(url, question, **values)[0].values())))


def life_of(url: str, job_id: object) -> list[object]:
    """What the lifecycle log says of a job, in order."""
    return [
        row["event_type"]
        for row in rows(
            url,
            "SELECT event_type FROM observation_generation_job_events WHERE generation_job_id = %(job)s ORDER BY id",
            job=job_id,
        )
    ]


_OPEN_JOBS = """
    SELECT j.id, j.status, j.attempts, j.last_error, j.next_attempt_at, j.waits_for_end, l.due_at, l.held_until, l.held_reason,
           l.worker_id, now()
      FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
     WHERE j.status IN ('queued', 'processing') LIMIT 5
"""


def wait_until_settled(url: str) -> None:
    """Until no job waits or is worked on; AssertionError with the first that do."""
    deadline = Deadline(PATIENCE_SECONDS)
    while jobs := rows(url, _OPEN_JOBS):
        assert not deadline.is_over, f"waited {deadline.elapsed:.0f} s in vain for these jobs to end: {jobs}"
        time.sleep(_TICK_SECONDS)
