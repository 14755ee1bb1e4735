"""A server's whole life, with the program as pip installs it: moved into, used, backed up, killed, and restored elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cmserver.embedded.files import debian_binaries
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.bench.world import free_port
from tests.ops.claude_mem_databases import make_v13
from tests.process.program import Program, command, wait_for, wait_until_gone
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

OBSERVATIONS = 20_000
SENDERS = 4


class Life:
    """The programs, commands and files of one installation."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder, self._python = folder, python
        self._settings = {
            "PYTHONPATH": "",
            "CMSERVER_PORT": str(free_port()),
            "CMSERVER_EMBEDDER": "none",
            "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
            "XDG_CONFIG_HOME": str(folder / ".config"),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._settings['CMSERVER_PORT']}"

    @contextmanager
    def run(self, label: str, place: Mapping[str, str] | None = None) -> Generator[Program]:
        program = Program(self.folder, label, settings={**self._settings, **(place or {})}, python=self._python)
        try:
            program.wait_until_ready()
            yield program
        finally:
            program.end()

    def call(self, *words: str, place: Mapping[str, str] | None = None) -> str:
        done = command(self.folder, *words, settings={**self._settings, **(place or {})}, python=self._python)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call_hook(self, hook: str, **payload: object) -> None:
        done = subprocess.run(
            [self.folder / ".config" / "cmserver" / "clients" / "claude-code" / "hook", hook],
            input=json.dumps({"hook_event_name": hook, "session_id": "lived", "cwd": str(self.folder), **payload}).encode(),
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0

    def status(self, key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.get(f"{self.url}/v1/keys/current", headers=headers, timeout=scaled(20), trust_env=False).status_code

    def export(self, team: str, place: Mapping[str, str] | None = None) -> str:
        return self.call("export", "--team", team, place=place)


def send_events(url: str, key: str, sender: int, stop: threading.Event, stored: list[str]) -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=scaled(20), trust_env=False) as client:
        place = 0
        while not stop.is_set():
            place += 1
            payload = {"tool_name": "Write", "tool_input": {"file_path": f"/src/s{sender}/f{place}.py", "content": f"n = {place}"}}
            event = {"projectId": "orders", "eventType": "tool_use", "contentSessionId": f"s{sender}", "payload": payload}
            answer = client.post("/v1/events", json={**event, "sourceEventId": f"{sender}-{place}"})
            if answer.status_code == 201:
                stored.append(answer.json()["event"]["id"])


@contextmanager
def traffic(url: str, keys: list[str]) -> Generator[list[str]]:
    """Events of several sessions and both teams during the block; the ids of those that were acknowledged."""
    stop, stored = threading.Event(), list[str]()
    threads = [
        threading.Thread(target=send_events, args=(url, keys[sender % len(keys)], sender, stop, stored))
        for sender in range(SENDERS)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_for("events", lambda: len(stored) > 20)
        yield stored
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def is_quiet(client: httpx.Client) -> bool:
    queue = client.get("/v1/info").json()["queue"]
    return queue is not None and sum(queue[state] for state in ("waiting", "active", "delayed", "held")) == 0


def test_a_whole_life(fresh_python: str, folder: Path):
    life = Life(folder, fresh_python)
    (folder / ".claude").mkdir()
    database = make_v13(folder / "claude-mem.db", observations=OBSERVATIONS, more_sessions=9)

    with life.run("server") as server:
        owner = server.key
        with server.http() as client:
            guest = client.post("/v1/teams", json={"name": "guests"}).raise_for_status().json()["apiKey"]
            made = (
                client.post("/v1/keys", json={"name": "lost", "actorId": "bob", "scopes": ["events:write"]})
                .raise_for_status()
                .json()
            )
        life.call("connect", "claude-code", "--yes")
        report = json.loads(life.call("import", "claude-mem", str(database), "--json"))
        assert report["taken"]["observation"] == OBSERVATIONS + 2
        with traffic(life.url, [owner, guest]) as stored:
            under_load = life.call("backup").split()[-1]
            life.call_hook("UserPromptSubmit", prompt="Bound the cache")
        assert len(stored) > 20
        postgres = server.postgres_pid
        server.send(signal.SIGKILL)
        os.kill(postgres, signal.SIGKILL)
        server.process.wait()
        wait_until_gone(postgres)

    with life.run("again") as server, server.http() as client:
        life.call_hook("Stop", last_assistant_message="It is bounded.")  # until a turn ends its prompt waits
        wait_for("a quiet queue", lambda: is_quiet(client), 240)
        life.call("verify")
        exports = {team: life.export(team) for team in ("default", "guests")}
        life.call("backup")
        client.delete(f"/v1/keys/{made['id']}").raise_for_status()  # after the backup: the journal beside it has it
        assert server.stop() == 0
    assert all(event in exports["default"] + exports["guests"] for event in stored)

    backups = sorted((folder / "data" / "backups").glob("*.backup"), key=lambda file: file.stat().st_mtime)
    assert len(backups) == 2, under_load
    binaries = debian_binaries()
    assert binaries is not None, "Debian's PostgreSQL is missing"
    debian = EmbeddedPostgres(folder / "debian", binaries, durable=False)
    debian.start()
    try:
        own = {"CMSERVER_DATABASE_URL": debian.url, "CMSERVER_DATA_DIR": str(folder / "own")}
        for place in ({"CMSERVER_DATA_DIR": str(folder / "restored")}, own):
            life.call("restore", str(backups[-1]), place=place)
            check_restored(life, place, exports, [owner, guest], revoked=made["apiKey"])
    finally:
        debian.stop()


def check_restored(life: Life, place: Mapping[str, str], exports: Mapping[str, str], keys: list[str], *, revoked: str) -> None:
    assert {team: life.export(team, place) for team in exports} == exports
    with life.run(Path(place["CMSERVER_DATA_DIR"]).name, place):
        life.call("verify", place=place)
        assert [life.status(key) for key in keys] == [200, 200]
        assert life.status(revoked) in {401, 403}
        life.call_hook("PostToolUse", tool_use_id="toolu_after", tool_name="Bash", tool_input={"command": "make after"})
        wait_for("the hook's event", lambda: "make after" in life.export("default", place))
