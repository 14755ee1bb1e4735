"""Who works during a storm: clients that post events until each is acknowledged, and a coding agent that calls its hooks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import httpx
import msgspec

from cmserver.client import connections
from tests.faults.system import System
from tests.timeouts import Deadline, scaled

WRITERS = 5
PROJECT = "storm"
_EVENTS_A_SESSION = 12
_BURST = 4
_GOOD, _LATER = {200, 201}, {503}
_UNACKNOWLEDGED_SECONDS = 30.0
_LOST = "events are lost"


class Writers:
    """Five clients beside each other: single events, bursts into several sessions at once, and batches."""

    def __init__(self, system: System, seed: int) -> None:
        self._system, self._seed = system, seed
        self._random = Random(seed)
        self._is_over = threading.Event()
        self.acknowledged: dict[str, list[str]] = {}
        """By session, in the order of the answers; a session is used by one client, for one event at a time."""
        self.repeated = 0
        self.surprises: Counter[str] = Counter()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def end(self) -> None:
        """Let them finish what they have begun."""
        self._is_over.set()
        self._thread.join()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write(f"writer-{self._seed}-{number}"))

    async def _write(self, name: str) -> None:
        headers = {"Authorization": f"Bearer {self._system.key}"}
        limits = httpx.Limits(max_keepalive_connections=_BURST)
        async with httpx.AsyncClient(
            base_url=self._system.url, headers=headers, timeout=scaled(3), trust_env=False, limits=limits
        ) as client:
            turn = 0
            while not self._is_over.is_set():
                turn += 1
                sessions = [f"{name}-{turn // _EVENTS_A_SESSION}-{place}" for place in range(_BURST)]
                choice = self._random.random()
                if choice < 0.6:
                    await self._send(client, "/v1/events", [sessions[0]])
                elif choice < 0.9:
                    await asyncio.gather(*(self._send(client, "/v1/events", [session]) for session in sessions))
                else:
                    await self._send(client, "/v1/events/batch", sessions)
                await asyncio.sleep(self._random.uniform(0.05, 0.2))

    async def _send(self, client: httpx.AsyncClient, path: str, sessions: list[str]) -> None:
        """An event for each session, in one request, until it is acknowledged."""
        events = [self._event(session) for session in sessions]
        deadline: Deadline | None = None
        while not await self._post(client, path, events if path.endswith("batch") else events[0]):
            self.repeated += 1
            if self._is_over.is_set():
                deadline = deadline or Deadline(_UNACKNOWLEDGED_SECONDS)
                if deadline.is_over:
                    self.surprises["never acknowledged"] += 1
                    return
            await asyncio.sleep(0.05)
        for session, event in zip(sessions, events, strict=True):
            self.acknowledged.setdefault(session, []).append(str(event["sourceEventId"]))

    def _event(self, session: str) -> dict[str, object]:
        name = f"{session}-{len(self.acknowledged.get(session, []))}"
        payload = {"tool_name": "Write", "tool_input": {"file_path": f"/src/{name}.py", "content": f"{name} = 1\n" * 20}}
        return {
            "projectId": PROJECT,
            "eventType": "tool_use",
            "contentSessionId": session,
            "sourceEventId": name,
            "payload": payload,
        }

    async def _post(self, client: httpx.AsyncClient, path: str, body: object) -> bool:
        try:
            answer = await client.post(path, json=body)
        except httpx.TransportError:
            return False
        if answer.status_code not in _GOOD | _LATER:
            self.surprises[f"{path} answered {answer.status_code}: {answer.text[:200]}"] += 1
            await asyncio.sleep(0.2)
        return answer.status_code in _GOOD


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that was called, and whether it took the payload on itself."""

    session: str
    hook: str
    tool_use_id: str | None
    is_kept: bool
    code: int


class HookAgent:
    """Calls the hook client as a coding agent does, one call after the other, in one session after the other."""

    def __init__(self, system: System, seed: int) -> None:
        self._system, self._seed = system, seed
        self._random = Random(seed)
        self._is_over = threading.Event()
        self.calls: list[HookCall] = []
        self.may_write = True
        """Without it, files of hooks stay empty, as on a full disk."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Finish the session, and start others until nothing waits in the spool."""
        self._is_over.set()
        self._thread.join()

    def read_spool(self) -> connections.SpoolState:
        return connections.read_spool(self._system.client)

    def start_sessions_until_sent(self) -> None:
        """A session that starts asks the server whatever happened before; what waits is sent behind it."""
        deadline = Deadline(40)
        turn = 0
        while self.read_spool().waiting and not deadline.is_over:
            self._call(f"agent-{self._seed}-last-{turn}", "SessionStart", source="startup")
            turn += 1
            pause = Deadline(3)
            while self.read_spool().waiting and not pause.is_over:
                time.sleep(0.05)

    def _work(self) -> None:
        turn = 0
        while not self._is_over.is_set():
            session = f"agent-{self._seed}-{turn}"
            self._call(session, "SessionStart", source="startup")
            for place in range(12):
                if self._is_over.is_set():
                    break
                name = f"{session}-{place}"
                given = {"file_path": str(self._system.home / f"{name}.py"), "content": f"{name} = 1\n"}
                self._call(session, "PostToolUse", tool_name="Write", tool_input=given, tool_use_id=f"toolu_{name}")
                time.sleep(self._random.uniform(0.1, 0.4))
            self._call(session, "SessionEnd", reason="other")
            turn += 1

    def _call(self, session: str, hook: str, **payload: object) -> None:
        home = self._system.home
        whole = {**payload, "session_id": session, "cwd": str(home), "hook_event_name": hook}
        before = [] if self.may_write else ["sh", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "sh"]
        done = subprocess.run(
            [*before, self._system.client / "hook", hook],
            input=json.dumps(whole).encode(),
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
            cwd=home,
            capture_output=True,
            check=False,
        )
        tool_use_id = payload.get("tool_use_id")
        self.calls.append(
            HookCall(
                session=session,
                hook=hook,
                tool_use_id=None if tool_use_id is None else str(tool_use_id),
                is_kept=_LOST not in done.stdout.decode(errors="replace"),
                code=done.returncode,
            )
        )


FILLER = "filler"
"""The file that takes the room of a full disk."""


def fill(disk: Path, leave: int) -> Path:
    """Take all but so many bytes of the disk."""
    filler = disk / FILLER
    rest = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - leave
    try:
        with filler.open("wb", buffering=0) as file:
            while rest > 0:
                rest -= file.write(b"\0" * min(rest, 1 << 20))
    except OSError:
        pass  # others took some meanwhile
    return filler
