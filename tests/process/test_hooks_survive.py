"""Thousands of hook calls of several agents at once, while the server is killed and started again every few seconds.

Each call is a process of its own, as agents make them, and runs the hook client that `cmserver connect` has installed. What cannot
be delivered at once waits in the client's folder, and comes with a later call.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from cmserver.client import connections
from tests.bench.session import tool_use
from tests.bench.world import free_port
from tests.process.conftest import Run
from tests.process.program import Program, command, measured, rows
from tests.timeouts import Deadline

pytestmark = pytest.mark.slow

CALLS = int(os.environ.get("CMSERVER_TEST_HOOK_CALLS", "2000"))
AGENTS = 8
CALLS_PER_SESSION = 50
LIVES_SECONDS = 3.0
"""How long the server lives each time."""
AWAY_SECONDS = 1.0
DEADLINE_SECONDS = {"SessionStart": 3.0}
OTHER_DEADLINE_SECONDS = 1.0
MARGIN_SECONDS = 0.1
"""What the hook itself may take of its deadline, or beyond it, on a quiet machine."""
EVENT_TYPES = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "user_prompt",
    "PostToolUse": "tool_use",
    "Stop": "assistant_message",
    "SessionEnd": "session_end",
}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that was called, and how long that took."""

    hook: str
    seconds: float
    code: int
    curl_seconds: float
    """How long it let curl wait for the server at the most."""
    deadline_seconds: float


# Notes the time limits of curl by the hook call that started it. A drain in the background gives its limits in a file.
_CURL = """\
#!/bin/sh
previous=
for word; do
    [ "$previous" != -m ] || printf '%s\\n' "$word" >>"$CMSERVER_TEST_CURL_LIMITS"
    previous=$word
done
exec {curl} "$@"
"""


def curl_with_notes(home: Path) -> str:
    """A PATH with a curl that notes its time limits."""
    folder = home / "bin"
    folder.mkdir()
    curl = folder / "curl"
    curl.write_text(_CURL.replace("{curl}", shutil.which("curl") or "/missing"))
    curl.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the database."""

    session: str
    event_type: str
    tool_use_id: str | None
    source_event_id: str
    occurred_at: datetime


STORED = """
    SELECT s.content_session_id AS session, e.event_type, e.payload->>'tool_use_id' AS tool_use_id, e.source_event_id, e.occurred_at
      FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id ORDER BY e.id
"""


class Agent:
    """Calls hooks as a coding agent does: one after the other, in one session after the other."""

    def __init__(self, home: Path, name: str, path: str) -> None:
        self.reported: dict[str, list[tuple[str, str | None]]] = {}
        """Of each session the events that its calls should become, with their tool uses."""
        self.name = name
        self._home, self._path = home, path
        self._hook = client_of(home) / "hook"
        self._limits = home / f"{name}.limits"

    def work(self, calls: int) -> list[Call]:
        """So many, as whole sessions."""
        return [call for nth in range(calls // CALLS_PER_SESSION) for call in self.session(f"{self.name}-{nth}", CALLS_PER_SESSION)]

    def session(self, session: str, calls: int) -> Iterator[Call]:
        yield self._call(session, "SessionStart", source="startup")
        for place in range(1, calls - 1):
            if place % 20 == 1:
                yield self._call(session, "UserPromptSubmit", prompt=f"Now the next part, number {place}.")
            elif place % 20 == 0:
                yield self._call(session, "Stop", last_assistant_message=f"Done with part {place}.")
            else:
                yield self._call(session, "PostToolUse", **{**tool_use(place), "tool_use_id": f"toolu_{session}_{place}"})
        yield self._call(session, "SessionEnd", reason="other")

    def _call(self, session: str, hook: str, **payload: object) -> Call:
        tool_use_id = payload.get("tool_use_id")
        self.reported.setdefault(session, []).append((EVENT_TYPES[hook], None if tool_use_id is None else str(tool_use_id)))
        whole = {**payload, "session_id": session, "cwd": str(self._home), "hook_event_name": hook}
        self._limits.write_text("")
        began = time.monotonic()
        done = subprocess.run(
            [self._hook, hook],
            input=json.dumps(whole).encode(),
            env={"HOME": str(self._home), "PATH": self._path, "CMSERVER_TEST_CURL_LIMITS": str(self._limits)},
            cwd=self._home,
            capture_output=True,
            check=False,
        )
        seconds = time.monotonic() - began
        deadline = DEADLINE_SECONDS.get(hook, OTHER_DEADLINE_SECONDS)
        return Call(
            hook=hook,
            seconds=seconds,
            code=done.returncode,
            curl_seconds=sum(map(float, self._limits.read_text().split())),
            deadline_seconds=deadline,
        )


def client_of(home: Path) -> Path:
    return home / ".config" / "cmserver" / "clients" / "claude-code"


class Mortal:
    """A server that is killed and started again until it may live."""

    def __init__(self, run: Run, settings: dict[str, str]) -> None:
        self._run, self._settings = run, settings
        self._may_live = threading.Event()
        self.deaths = 0
        self.server = self._born()

    def _born(self) -> Program:
        server = self._run(f"server-{self.deaths}", settings=self._settings)
        server.wait_until_ready()
        return server

    def suffer(self) -> None:
        while not self._may_live.wait(LIVES_SECONDS):
            self.server.stop(signal.SIGKILL)
            self.deaths += 1
            self._may_live.wait(AWAY_SECONDS)
            self.server = self._born()

    def live(self) -> None:
        self._may_live.set()


def test_each_event_of_thousands_of_calls_is_stored_once_and_in_order(run: Run, folder: Path, database: str):
    # Eight agents that do nothing but call hooks come to ten times the calls that a key may make by default.
    settings = {
        "CMSERVER_DATABASE_URL": database,
        "CMSERVER_PORT": str(free_port()),
    }
    mortal = Mortal(run, settings)
    home = folder / "home"
    (home / ".claude").mkdir(parents=True)
    own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    connected = command(folder, "connect", "claude-code", "--yes", settings={**settings, **own})
    assert connected.returncode == 0, connected.stdout + connected.stderr
    path = curl_with_notes(home)
    agents = [Agent(home, f"agent-{number}", path) for number in range(AGENTS)]

    began = time.monotonic()
    with ThreadPoolExecutor(AGENTS + 1) as pool:
        suffering = pool.submit(mortal.suffer)
        try:
            calls = [call for of_one in pool.map(Agent.work, agents, [CALLS // AGENTS] * AGENTS) for call in of_one]
        finally:
            mortal.live()
        suffering.result()
    working = time.monotonic() - began
    waiting = connections.read_spool(client_of(home)).waiting
    # Whatever the breaker says, a session that starts asks the server; what waits is sent behind it.
    last = Agent(home, "last", path)
    calls += start_sessions_until_sent(last, client_of(home))

    stored = msgspec.convert(rows(database, STORED), list[Stored])
    took = sorted(call.seconds * 1000 for call in calls)
    measured(
        f"{len(calls)} calls in {working:.0f} s with {mortal.deaths} deaths: p50 {took[len(took) // 2]:.0f} ms, "
        f"p99 {took[len(took) * 99 // 100]:.0f} ms, longest {took[-1]:.0f} ms; {waiting} waited at the end"
    )
    state = connections.read_spool(client_of(home))
    assert (state.waiting, state.dropped, state.refused) == (0, 0, 0)
    assert mortal.deaths >= min(3, CALLS // 2000)
    assert {call.code for call in calls} == {0}
    assert max(call.curl_seconds for call in calls) > 0
    assert all(call.curl_seconds <= call.deadline_seconds - MARGIN_SECONDS + 1e-9 for call in calls)
    check(stored, [*agents, last])


def start_sessions_until_sent(agent: Agent, client: Path) -> list[Call]:
    """On a busy machine the server may miss the deadline of one session's start; the next one asks it again."""
    calls: list[Call] = []
    deadline = Deadline(120)
    while connections.read_spool(client).waiting:
        assert not deadline.is_over, f"waited {deadline.elapsed:.0f} s in vain for the spool to be sent"
        calls += agent.session(f"{agent.name}-{len(calls)}", 2)
        pause = Deadline(10)
        while connections.read_spool(client).waiting and not pause.is_over:
            time.sleep(0.05)
    return calls


def check(stored: list[Stored], agents: list[Agent]) -> None:
    """Each once, and those of a session in the order of the calls: as they arrived, and by their times."""
    of_sessions: dict[str, list[Stored]] = {}
    for event in stored:
        of_sessions.setdefault(event.session, []).append(event)
    assert len({event.source_event_id for event in stored}) == len(stored)
    for agent in agents:
        for session, reported in agent.reported.items():
            own = of_sessions.pop(session)
            times = [event.occurred_at for event in own]
            assert [(event.event_type, event.tool_use_id) for event in own] == reported
            assert times == sorted(times)
    assert of_sessions == {}
