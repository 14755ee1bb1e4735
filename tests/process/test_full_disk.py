"""The disk under the embedded PostgreSQL is full for a while: that is named, and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import Program, command, wait_for

pytestmark = pytest.mark.slow

SIZE = "256m"
MOMENTS = {
    "a table cannot grow": (400_000, 1_000),
    "the log of what was promised cannot grow, and PostgreSQL ends itself": (9_000_000, 8_000),
}
"""How many bytes are left when the disk is filled, and how many words an event has."""


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A small disk, where the data folder is."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    data = folder / "data"
    data.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "tmpfs", data], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    yield data
    subprocess.run(["umount", "-l", data], check=True)


def fill(disk: Path, *, leave: int) -> Path:
    """Take all but so many bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:  # a buffer would fail again when it is closed
        rest = shutil.disk_usage(disk).free - leave
        with contextlib.suppress(OSError):  # the database took some meanwhile
            while rest > 0:
                rest -= file.write(b"\0" * min(rest, 1 << 20))
    return filler


def event(number: int, words: int = 10) -> dict[str, object]:
    text = " ".join(os.urandom(3).hex() for _ in range(words))
    payload = {"tool_name": "Write", "tool_input": {"file_path": f"/src/orders/{number}.py", "content": text}}
    return {
        "projectId": "orders",
        "eventType": "tool_use",
        "contentSessionId": f"s{number % 5}",
        "sourceEventId": str(number),
        "payload": payload,
    }


def send_until_refused(client: httpx.Client, acknowledged: set[str], words: int) -> httpx.Response:
    for number in range(len(acknowledged), 5_000):
        answer = client.post("/v1/events", json=event(number, words))
        if answer.status_code != 201:
            return answer
        acknowledged.add(str(number))
    raise AssertionError("the disk did not become full")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_full_disk_is_named_and_nothing_that_was_acknowledged_is_lost(run: Run, disk: Path, moment: str):
    leave, words = MOMENTS[moment]
    program = run("server", settings={"CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"})
    program.wait_until_ready()
    acknowledged: set[str] = set()
    with program.http() as client:
        client.post("/v1/events", json=event(0)).raise_for_status()
        acknowledged.add("0")
        filler = fill(disk, leave=leave)
        refused = send_until_refused(client, acknowledged, words)
        unready = client.get("/readyz")
        alive = client.get("/healthz")
        read = client.get("/v1/observations", params={"project": "orders"})
        filler.unlink()
        wait_for("it to be ready again", lambda: client.get("/readyz").status_code == 200)
        next_one = event(len(acknowledged))
        wait_for("the event to be taken", lambda: client.post("/v1/events", json=next_one).is_success)
        wait_for("all to be worked off", lambda: worked_off(client))
        queue = client.get("/v1/info").json()["queue"]

    assert refused.status_code == 503
    assert refused.json()["error"] == "DatabaseExhausted"
    assert int(refused.headers["retry-after"]) >= 1
    assert unready.status_code == 503
    assert unready.json()["error"] == "DatabaseExhausted"
    assert alive.status_code == 200
    assert read.status_code in {200, 503}
    assert queue["completed"] == len(acknowledged) + 1
    assert queue["failed"] == 0
    assert program.logged("request.failed") == []
    exhausted = [record["sqlstate"] for record in program.logged("database.exhausted")]
    assert exhausted in (["53100"], ["53100"] * 2)  # once for each process
    assert_conserved(program)


def worked_off(client: httpx.Client) -> bool:
    answer = client.get("/v1/info")
    if not answer.is_success:
        return False
    queue = answer.json()["queue"]
    return sum(queue[state] for state in ("waiting", "active", "delayed", "held")) == 0


def assert_conserved(program: Program) -> None:
    assert program.stop() == 0
    done = command(program.data_dir.parent, "verify")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("started_before", [False, True])
def test_a_start_on_a_full_disk_says_so_in_a_sentence(run: Run, disk: Path, started_before: bool):
    if started_before:
        first = run("first")
        first.wait_until_ready()
        first.process.kill()
        first.process.wait()
        first.end()
    fill(disk, leave=0)

    done = command(disk.parent, "run")

    assert done.returncode == (3 if started_before else 1), done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_on_a_full_disk_answer_or_say_so_in_a_sentence(run: Run, disk: Path):
    program = run("server")
    program.wait_until_ready()
    fill(disk, leave=0)

    for words in (["status"], ["keys", "list"], ["projects", "list"], ["config"], ["connections"]):
        done = command(disk.parent, *words)
        assert done.returncode in {0, 1, 3}, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr, (words, done.stderr)
    assert program.stop() == 0
    assert "Traceback" not in program.errors
