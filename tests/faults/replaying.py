"""Replays in a storm: people begin, stop, resume, remove, take over and undo them; and what must hold of all that afterwards."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg

from tests.faults.actor import Actor
from tests.faults.provider import MoodyProvider, mark_of, name_past
from tests.faults.system import System
from tests.process.program import number, rows, wait_for
from tests.timeouts import Deadline

SESSIONS, EVENTS = 6, 6
"""Of the past that is replayed."""
_MOST_REPLAYS = 10
"""Of a storm, which a team of several storms in a row has room for."""
_END_SECONDS = 90.0
"""Within which replays end when nothing is in their way: a worker looks for those of others each minute."""
_CLEAN_SECONDS = 10.0
_PAUSE_SECONDS = 0.2
_OPEN = """
    SELECT count(*) FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id
     WHERE p.canonical_id = %(project)s AND j.status IN ('queued', 'processing')
"""
_MEMORY = """
    SELECT o.id, o.number, o.kind, o.type, o.title, o.subtitle, o.narrative, o.facts, o.concepts, o.files_read, o.files_modified,
           o.content, o.content_search::text AS words, o.summary, o.quote, o.anchors, o.importance, o.state, o.ttl_seconds,
           o.expires_at, o.superseded_by, o.created_at, o.turn_number, o.read_tokens, o.metadata, o.stale,
           (SELECT array_agg(s.generation_job_id ORDER BY s.generation_job_id) FROM observation_sources s
             WHERE s.observation_id = o.id) AS jobs
      FROM observations o JOIN projects p ON p.id = o.project_id
     WHERE p.canonical_id = %(project)s
       AND NOT EXISTS (SELECT FROM observation_versions v WHERE v.observation_id = o.id AND v.performed_by = 'steward')
     ORDER BY o.number
"""
"""What is told of the past, but for what the steward changed."""
_BESIDE = {
    "events": "SELECT e.* FROM agent_events e JOIN projects p ON p.id = e.project_id WHERE p.canonical_id = %(project)s",
    "jobs": """SELECT j.* FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id
                WHERE p.canonical_id = %(project)s AND j.source_type <> 'steward'""",
    "sessions": "SELECT s.id FROM server_sessions s JOIN projects p ON p.id = s.project_id WHERE p.canonical_id = %(project)s",
}
"""What no replay and no take-over changes."""
_REPLAYS = """
    SELECT r.id, r.number, r.state, r.reason, r.session_count, r.event_count, r.sessions_done, r.events_done,
           (SELECT count(*) FROM replay_lines l WHERE l.replay_id = r.id AND l.undo IS NOT NULL) AS noted,
           (SELECT (a.details ->> 'written')::int FROM audit_log a
             WHERE a.resource_id = r.id::text AND a.action = 'replay.taken_over' ORDER BY a.id DESC LIMIT 1) AS written
      FROM replays r JOIN projects p ON p.id = r.project_id WHERE p.canonical_id = %(project)s ORDER BY r.number
"""
_LINES_TWICE = """
    SELECT r.number, l.observation_id FROM replay_lines l JOIN replays r ON r.id = l.replay_id
      JOIN projects p ON p.id = r.project_id
     WHERE p.canonical_id = %(project)s AND l.observation_id IS NOT NULL
     GROUP BY r.number, l.observation_id HAVING count(*) > 1
"""
_ACTS = """
    SELECT a.action, a.resource_id FROM audit_log a JOIN projects p ON p.id = a.project_id
     WHERE p.canonical_id = %(project)s AND a.action IN ('replay.taken_over', 'replay.undone', 'replay.removed')
     ORDER BY a.id
"""
_TEMPORARY = "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind IN ('r', 'S', 'v')"
_TABLES = """
    SELECT relname FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm')
       AND relname NOT IN ('replay_lines', 'observation_versions', 'past_values')
"""
"""Not the lines, which show what would be; nor what rows said while they were taken over, which history and time travel tell."""
_ORPHANING = {"kill-postgres", "kill-backend", "disk-postgres", "memory-worker"}
"""After the end of a server that was killed, autovacuum drops its temporary tables."""


class ReplayFigures(msgspec.Struct, kw_only=True):
    """What was done with replays in a storm."""

    begun: int = 0
    ended: int = 0
    taken_over: int = 0
    undone: int = 0
    looks: int = 0

    def __str__(self) -> str:
        return (
            f"{self.begun} replays begun and {self.ended} ended, {self.taken_over} taken over, {self.undone} undone, "
            f"{self.looks} looks at what is told"
        )


class Replaying(Actor):
    """Lets a past be worded, and people replay it until `end`; the provider words it otherwise then, with a mark."""

    def __init__(self, system: System, seed: int, provider: MoodyProvider) -> None:
        super().__init__(system, seed)
        self.figures = ReplayFigures()
        self.mark = mark_of(seed)
        self.leaks: list[str] = []
        self._doubts = 0
        """Take-overs of which nobody knows whether they came to be, or still will."""
        self.project = self.make_project(f"past-{seed}")["canonicalId"]
        for session in range(SESSIONS):
            body = [self._event(session, place) for place in range(EVENTS)]
            self.insist("a past", "POST", "/v1/events/batch", body, 200, 201)
        wait_for("a past to be worded", lambda: number(system.database, _OPEN, project=self.project) == 0)
        provider.reword(seed)
        self.memory, self.beside = self.read_memory(), self.read_beside()
        for asked in ("openai", "offline"):
            body = {"projectId": self.project, "provider": asked}
            self.insist("a replay to begin", "POST", "/v1/replays", body, 201)
        wait_for("replays to end", lambda: all(replay["state"] == "done" for replay in self.list_replays() or [{"state": ""}]))
        self.begin(self._manage, self._take)

    def read_memory(self) -> dict[UUID, dict[str, object]]:
        """What is remembered of the past, by id."""
        return {UUID(str(row["id"])): row for row in rows(self.system.database, _MEMORY, project=self.project)}

    def read_beside(self) -> dict[str, list[str]]:
        """What it was remembered of."""
        return {
            name: sorted(str(row) for row in rows(self.system.database, question, project=self.project))
            for name, question in _BESIDE.items()
        }

    def list_replays(self) -> list[dict[str, Any]] | None:
        """Those of this storm, the newest first; None while nothing is answered."""
        answer = self.request("GET", "/v1/replays?limit=100", None, 200)
        if answer is None or answer.status_code != 200:
            return None
        found: list[dict[str, Any]] = answer.json()["replays"]
        project_id = self._project_id()
        return [replay for replay in found if replay["projectId"] == project_id]

    def _project_id(self) -> str:
        return str(rows(self.system.database, "SELECT id FROM projects WHERE canonical_id = %(it)s", it=self.project)[0]["id"])

    def _event(self, session: int, place: int) -> dict[str, object]:
        name = name_past(self.seed, session, place)
        return {
            "projectId": self.project,
            "eventType": "tool_use",
            "contentSessionId": f"past-{self.seed}-{session}",
            "sourceEventId": name,
            "payload": {"tool_name": "Write", "tool_input": {"file_path": f"/src/{name}.py", "content": f"{name} = 1\n"}},
        }

    # -- people

    def _manage(self) -> float:
        """Begin, stop, resume and remove; what is taken over is left alone."""
        with suppress(psycopg.Error):
            replays = self.list_replays() or []
            open_ = [replay for replay in replays if replay["state"] in {"running", "stopped"}]
            loose = [replay for replay in replays if _is_loose(replay)]
            if replays and len(open_) < 2 and len(replays) < _MOST_REPLAYS:
                provider = "openai" if self.random.random() < 0.7 else "offline"
                body = {"projectId": self.project, "provider": provider}
                answer = self.request("POST", "/v1/replays", body, 201)
                self.figures.begun += answer is not None
            elif loose and self.random.random() < 0.2:
                self.request("DELETE", f"/v1/replays/{loose[0]['number']}", None, 200, 404)
            elif open_:
                replay = self.random.choice(open_)
                act = "resume" if replay["state"] == "stopped" else self.random.choice(["stop", "stop", "resume"])
                self.request("POST", f"/v1/replays/{replay['number']}/{act}", None, 200, 404, 409)
        return self.random.uniform(0.1, 0.8)

    def _take(self) -> float:
        """Take one over, undo what is taken over, and look whether anything is told that is of no memory."""
        with suppress(psycopg.Error):
            replays = self.list_replays()
            if replays is None:
                return _PAUSE_SECONDS
            taken = [replay for replay in replays if replay["state"] == "taken_over"]
            done = [replay for replay in replays if replay["state"] == "done" and not _is_loose(replay)]
            if taken:
                if self._act(taken[0], "undo"):
                    self.figures.undone += 1
                    self._look()
            elif not done:
                self._look()
            elif self._act(self.random.choice(done), "take-over"):
                self.figures.taken_over += 1
        return self.random.uniform(0.1, 0.4)

    def _act(self, replay: dict[str, Any], act: str) -> bool:
        self._doubts += 1
        answer = self.request("POST", f"/v1/replays/{replay['number']}/{act}", None, 200, 404, 409)
        if answer is None:
            return False
        self._doubts -= 1
        return answer.status_code == 200

    def _look(self) -> None:
        """What is told, while nothing is taken over."""
        if self._doubts:
            return
        answers = [
            self.request("POST", "/v1/search", {"query": f"{self.mark} was stowed", "projectId": self.project}, 200),
            self.request("GET", f"/v1/context?project={self.project}", None, 200),
            self.request("GET", f"/v1/observations?project={self.project}", None, 200),
        ]
        self.figures.looks += 1
        for answer in answers:
            # What was asked is said again in the answer of a search.
            if answer is not None and self.mark in answer.text.replace(f"{self.mark} was stowed", ""):
                self.leaks.append(f"told although no replay is taken over: {_around(answer, self.mark)}")


class ReplayJudge:
    """Looks at what replays left; `violations` are sentences, none when everything held."""

    def __init__(self, system: System, replaying: Replaying) -> None:
        self._system, self._replaying = system, replaying
        self.violations: list[str] = []

    def look(self) -> None:
        """When all replays have ended, ask what must hold; then undo what is taken over, ask again, and remove them."""
        replaying = self._replaying
        self.violations += replaying.leaks[:3]
        if not self._wait_until_ended():
            return
        self._look_at_states()
        for replay in self._list():
            if replay["state"] == "taken_over":
                path = f"/v1/replays/{replay['number']}/undo"
                answer = replaying.insist("a take-over to be undone", "POST", path, None, 200, 409)
                replaying.figures.undone += answer.status_code == 200
        self._look_at_memory()
        self.violations += replaying.take_surprises()
        if self.violations:
            return
        for replay in self._list():
            replaying.insist("a replay to be removed", "DELETE", f"/v1/replays/{replay['number']}", None, 200, 404)
        if left := self._ask("SELECT l.id FROM replay_lines l LEFT JOIN replays r ON r.id = l.replay_id WHERE r.id IS NULL"):
            self.violations.append(f"lines of removed replays: {len(left)}")

    def _wait_until_ended(self) -> bool:
        """Until each replay has ended; those that have stopped are resumed, as people do when the fault is over."""
        deadline = Deadline(_END_SECONDS)
        while True:
            found = self._ask(_REPLAYS)
            waiting = [row for row in found if row["state"] in {"running", "stopped"}]
            if not waiting:
                self._replaying.figures.ended = len(found)
                return True
            if deadline.is_over:
                self.violations.append(f"replays do not end: {waiting}")
                return False
            for row in waiting:
                if row["state"] == "stopped":
                    self._replaying.request("POST", "/v1/providers/openai/resume", None, 200, 204, 404, 409)
                    self._replaying.request("POST", f"/v1/replays/{row['number']}/resume", None, 200, 404, 409)
            time.sleep(0.2)

    def _look_at_states(self) -> None:
        for row in self._ask(_REPLAYS):
            name = f"replay {row['number']}"
            if (row["session_count"], row["event_count"]) != (row["sessions_done"], row["events_done"]):
                self.violations.append(f"{name} has not done what it began with, once each: {row}")
            expected = row["written"] if row["state"] == "taken_over" else 0
            if row["noted"] != expected:
                self.violations.append(
                    f"{name} is not whole: it is {row['state']}, and of {expected} lines {row['noted']} are written"
                )
        if found := self._ask(_LINES_TWICE):
            self.violations.append(f"lines that stand twice: {len(found)}, such as {found[0]}")
        if self._system.layout == "embedded" or _ORPHANING.intersection(self._system.kinds):
            return
        deadline = Deadline(_CLEAN_SECONDS)
        while found := self._ask(_TEMPORARY):
            if deadline.is_over:
                self.violations.append(f"temporary tables of shadows stay: {found[:3]}")
                return
            time.sleep(0.2)

    def _look_at_memory(self) -> None:
        """All is as before: what was told, and what it is told of; where no take-over met another one."""
        replaying = self._replaying
        for name, before in replaying.beside.items():
            after = replaying.read_beside()[name]
            if before != after:
                lost, new = [*{*before} - {*after}], [*{*after} - {*before}]
                self.violations.append(f"{name} of the past changed: {len(lost)} lost {lost[:1]}, {len(new)} new {new[:1]}")
        if self._was_taken_over_twice():
            return
        memory = replaying.read_memory()
        for id_, before in replaying.memory.items():
            after = memory.pop(id_, None)
            if after is not None and after != before:
                changed = {name: (value, after[name]) for name, value in before.items() if value != after[name]}
                self.violations.append(f"#{before['number']} is not as before the take-over: {changed}")
            elif after is None and not self._ask("SELECT id FROM observation_versions WHERE observation_id = %(id)s", id=id_):
                self.violations.append(f"#{before['number']} is lost")
        if memory:
            self.violations.append(f"observations of no event that was worded: {[*memory.values()][:2]}")
        for table in self._ask(_TABLES):
            like = f"%{replaying.mark}%"
            if found := self._ask(
                f'SELECT t::text AS it FROM "{table["relname"]}" t WHERE t::text ILIKE %(like)s LIMIT 1', like=like
            ):
                self.violations.append(f"what only a replay said is in {table['relname']}: {str(found[0]['it'])[:300]}")

    def _was_taken_over_twice(self) -> bool:
        """Whether a replay was taken over while another one was, as by a request whose answer was lost."""
        taken = set[object]()
        for act in self._ask(_ACTS):
            if act["action"] == "replay.taken_over":
                if taken:
                    return True
                taken.add(act["resource_id"])
            elif act["action"] == "replay.removed" and act["resource_id"] in taken:
                return True
            else:
                taken.discard(act["resource_id"])
        return False

    def _list(self) -> list[dict[str, Any]]:
        return wait_for("a list of replays", self._replaying.list_replays)

    def _ask(self, question: str, **values: object) -> list[dict[str, object]]:
        return rows(self._system.database, question, project=self._replaying.project, **values)


def _is_loose(replay: dict[str, Any]) -> bool:
    """Whether it may be removed; it is never taken over."""
    return replay["number"] % 3 == 0


def _around(answer: httpx.Response, word: str) -> str:
    at = answer.text.find(word)
    return f"{answer.request.url.path}: …{answer.text[max(0, at - 80) : at + 80]}…"
