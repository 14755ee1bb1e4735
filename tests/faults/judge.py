"""What must hold after a storm, asked of the database, of the spool and of `cmserver verify`."""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import suppress

import httpx
import psycopg
from click.testing import CliRunner

from cmserver.cli.verify import verify
from tests.faults.load import HookAgent, Writers
from tests.faults.plan import Storm
from tests.faults.system import System
from tests.process.program import number, rows
from tests.timeouts import Deadline

REAP_SECONDS = 3.0
"""Promised beyond the lease, until work of a dead worker is done by others."""
WORK_SECONDS = 30.0
"""Until one more of what was waiting is done, once nothing is in its way."""

_HELD_BY_THE_DEAD = """
    SELECT (SELECT count(*) FROM observation_generation_jobs
             WHERE status = 'processing' AND worker_id NOT IN (SELECT live_workers()))
         + (SELECT count(*) FROM generation_lanes WHERE worker_id IS NOT NULL AND worker_id NOT IN (SELECT live_workers()))
"""
_OPEN = """
    SELECT (SELECT count(*) FROM observation_generation_jobs WHERE status IN ('queued', 'processing'))
         + (SELECT count(*) FROM generation_lanes WHERE worker_id IS NOT NULL)
"""
_OPEN_JOBS = """
    SELECT j.id, j.status, j.attempts, j.last_error, j.waits_for_end, j.worker_id AS job_worker, l.due_at, l.held_until,
           l.held_reason, l.worker_id AS lane_worker, l.locked_at, now()
      FROM observation_generation_jobs j FULL JOIN generation_lanes l ON l.lane = j.lane
     WHERE j.status IN ('queued', 'processing') OR l.worker_id IS NOT NULL LIMIT 5
"""
# What waits for a time only is in hand, no storm waits for it: a back-off, a pause, the hour that PostgreSQL was ahead by.
_LET_TIME_PASS = """
    UPDATE generation_lanes SET held_until = NULL, held_reason = NULL, held_for = NULL, due_at = now()
     WHERE (held_until IS NOT NULL OR due_at > now() + interval '30 minutes') AND worker_id IS NULL RETURNING lane
"""
_EVENTS = """
    SELECT s.content_session_id AS session, e.source_event_id AS name, e.event_type, e.payload ->> 'tool_use_id' AS tool_use_id,
           (SELECT count(*) FROM observation_generation_jobs j WHERE j.agent_event_id = e.id) AS jobs,
           (SELECT min(j.seq) FROM observation_generation_jobs j WHERE j.agent_event_id = e.id) AS seq
      FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id
"""
# An answer may make several observations of an event; they are written in one transaction. Their times may differ: where the API's
# clock was set back, some of their events were late.
_DOUBLED = """
    SELECT agent_event_id FROM observation_sources
     WHERE source_type = 'agent_event' GROUP BY agent_event_id HAVING count(DISTINCT xmin::text) > 1
"""
# Beside an answer that cannot be used stands what the rules make of the event.
_OUTCOME_WITHOUT_SOURCE = """
    SELECT id FROM observation_generation_jobs j
     WHERE source_type = 'agent_event' AND last_error ->> 'reason' IS DISTINCT FROM 'unusable_answer'
       AND (status = 'completed' AND outcome = 'observed')
        <> EXISTS (SELECT FROM observation_sources s WHERE s.agent_event_id = j.agent_event_id)
"""
_ENDED_TWICE = """
    SELECT generation_job_id FROM observation_generation_job_events WHERE event_type IN ('completed', 'failed', 'cancelled')
     GROUP BY generation_job_id HAVING count(*) > 1
"""
# By the numbers of the log, not by its times: a storm may set the clock.
_OVERLAPPING = """
    WITH work AS (
        SELECT j.lane, (p.details ->> 'claim')::bigint AS claim, p.id AS began,
               (SELECT min(e.id) FROM observation_generation_job_events e
                 WHERE e.generation_job_id = p.generation_job_id AND e.id > p.id) AS ended
          FROM observation_generation_job_events p JOIN observation_generation_jobs j ON j.id = p.generation_job_id
         WHERE p.event_type = 'processing'
    ), batches AS (
        SELECT lane, claim, min(began) AS began, max(ended) AS ended FROM work GROUP BY lane, claim
    )
    SELECT a.lane FROM batches a JOIN batches b ON b.lane = a.lane AND b.claim > a.claim AND b.began < a.ended
"""
_OUT_OF_ORDER = """
    WITH first AS (
        SELECT j.lane, j.seq, min((p.details ->> 'claim')::bigint) AS claim
          FROM observation_generation_job_events p JOIN observation_generation_jobs j ON j.id = p.generation_job_id
         WHERE p.event_type = 'processing' GROUP BY j.lane, j.seq
    ), compared AS (
        SELECT lane, claim, lag(claim) OVER (PARTITION BY lane ORDER BY seq) AS before FROM first
    )
    SELECT lane FROM compared WHERE claim < before
"""
_CLAIMED_AFTER_ITS_LEASE = """
    SELECT count(*) FROM observation_generation_job_events
     WHERE event_type = 'processing' AND id > %(log_id)s AND details ->> 'by' LIKE %(worker)s
"""
_OUT_OF_MEMORY = "answered 500"
_FAILED = """
    SELECT coalesce(last_error ->> 'reason', 'no reason') AS reason, count(*) AS jobs FROM observation_generation_jobs
     WHERE status = 'failed' GROUP BY 1
"""
_REASONLESS = "SELECT id FROM observation_generation_jobs WHERE status = 'failed' AND last_error ->> 'reason' IS NULL"


class Judge:
    """Looks at the system after a storm; `violations` are sentences, none when everything held."""

    def __init__(self, storm: Storm, system: System, writers: Writers, agent: HookAgent) -> None:
        self._storm, self._system, self._writers, self._agent = storm, system, writers, agent
        self.violations: list[str] = []
        self.recovery_seconds = 0.0
        self.failed_jobs: dict[str, int] = {}
        """By reason."""

    def wait_until_recovered(self) -> None:
        """Until no dead worker holds anything, and then until every job has ended."""
        began, promised_seconds = time.monotonic(), self._system.lease_seconds + REAP_SECONDS
        if not self._wait(_HELD_BY_THE_DEAD, promised_seconds):
            self._add(f"held by dead workers {promised_seconds:g} s later: {self._open_jobs()}")
            return
        self.recovery_seconds = time.monotonic() - began
        if not self._wait(_OPEN, WORK_SECONDS, let_time_pass=True):
            self._add(f"stuck: {self._open_jobs()}")

    def look(self) -> None:
        """At everything else."""
        for sentence, times in self._writers.surprises.items():
            if _OUT_OF_MEMORY in sentence and self._may_lack_memory:
                continue
            self._add(f"{sentence} ({times} times)")
        self._look_at_events()
        self._look_at_hooks()
        questions = {
            "observed twice": _DOUBLED,
            "outcome and sources differ": _OUTCOME_WITHOUT_SOURCE,
            "ended twice": _ENDED_TWICE,
            "claims of a lane overlap": _OVERLAPPING,
            "claims of a lane are out of order": _OUT_OF_ORDER,
            "failed without a reason": _REASONLESS,
        }
        for sentence, question in questions.items():
            if found := rows(self._system.database, question):
                self._add(f"{sentence}: {len(found)}, such as {next(iter(found[0].values()))}")
        for note in rows(self._system.database, "SELECT note FROM storm_witness LIMIT 3"):
            self._add(str(note["note"]))
        for worker in self._system.frozen:
            claims = number(self._system.database, _CLAIMED_AFTER_ITS_LEASE, log_id=worker.log_id, worker=f"%:{worker.worker_id}")
            if claims:
                self._add(f"worker {worker.worker_id} claimed {claims} jobs after its lease was over")
        self.failed_jobs = {str(row["reason"]): int(str(row["jobs"])) for row in rows(self._system.database, _FAILED)}
        verified = CliRunner().invoke(verify, env={"CMSERVER_DATABASE_URL": self._system.database})
        if verified.exit_code != 0:
            self._add(f"verify: {verified.output.strip()} {verified.exception}")

    @property
    def _may_lack_memory(self) -> bool:
        """Whether the process that answers requests had no memory for a while; it may say so in its own way."""
        return self._storm.has("memory-worker") and self._storm.layout != "split"

    def _look_at_events(self) -> None:
        """Each acknowledged event is there once, with one job, in the order of the answers; and no other event."""
        found = [
            row for row in rows(self._system.database, _EVENTS) if str(row["session"]).startswith(f"writer-{self._storm.seed}-")
        ]
        counts = Counter(str(row["name"]) for row in found)
        names = {name for session in self._writers.acknowledged.values() for name in session}
        if lost := sorted(names - counts.keys()):
            self._add(f"lost: {len(lost)} acknowledged events, such as {lost[0]}")
        if doubled := [name for name, times in counts.items() if times > 1]:
            self._add(f"stored twice: {len(doubled)} events, such as {doubled[0]}")
        if jobless := [str(row["name"]) for row in found if row["jobs"] != 1]:
            self._add(f"not one job: {len(jobless)} events, such as {jobless[0]}")
        order: dict[str, list[tuple[int, str]]] = {}
        for row in found:
            order.setdefault(str(row["session"]), []).append((int(str(row["seq"] or 0)), str(row["name"])))
        for session, acknowledged in self._writers.acknowledged.items():
            stored = [name for _, name in sorted(order.get(session, []))]
            if [name for name in stored if name in names] != [name for name in acknowledged if name in counts]:
                self._add(f"out of order: {session} is {stored} and not {acknowledged}")

    def _look_at_hooks(self) -> None:
        """Each payload that a hook took is there once and in order, and nothing waits, was dropped or refused."""
        spool = self._agent.read_spool()
        if spool.waiting or spool.refused:
            self._add(f"spool: {spool.waiting} wait, {spool.refused} refused")
        if bad := [call for call in self._agent.calls if call.code != 0]:
            self._add(f"hooks ended with {bad[0].code}: {len(bad)}")
        uses = [call for call in self._agent.calls if call.tool_use_id]
        found = [
            row for row in rows(self._system.database, _EVENTS) if str(row["session"]).startswith(f"agent-{self._storm.seed}-")
        ]
        stored = sorted((int(str(row["seq"] or 0)), str(row["tool_use_id"])) for row in found if row["tool_use_id"])
        counts = Counter(name for _, name in stored)
        if lost := [call.tool_use_id for call in uses if call.is_kept and call.tool_use_id not in counts]:
            self._add(f"lost: {len(lost)} hook payloads, such as {lost[0]}")
        if doubled := [name for name, times in counts.items() if times > 1]:
            self._add(f"stored twice: {len(doubled)} hook payloads, such as {doubled[0]}")
        expected = [call.tool_use_id for call in uses if call.tool_use_id in counts]
        # While its disk is full, a hook sends what it cannot store past those that wait.
        may_overtake = self._storm.has("disk-spool")
        if [name for _, name in stored] != expected and not doubled and not may_overtake:
            self._add(f"hook payloads are out of order: {[name for _, name in stored]} and not {expected}")
        starts = Counter(row["session"] for row in found if row["event_type"] == "session_start")
        for call in self._agent.calls:
            if call.hook == "SessionStart" and call.is_kept and starts[call.session] != 1:
                self._add(f"{starts[call.session]} starts of session {call.session}")

    def _wait(self, question: str, seconds: float, *, let_time_pass: bool = False) -> bool:
        """Until it counts nothing; where time passes, it is only stuck when for so long the count does not fall."""
        deadline, least = Deadline(seconds), math.inf
        while True:
            with suppress(psycopg.Error):
                if let_time_pass and rows(self._system.database, _LET_TIME_PASS):
                    self._resume_provider()
                count = number(self._system.database, question)
                if count == 0:
                    return True
                if let_time_pass and count < least:
                    deadline, least = Deadline(seconds), count
            if deadline.is_over:
                return False
            time.sleep(0.1)

    def _resume_provider(self) -> None:
        """As an operator does, who knows that it is well again."""
        headers = {"Authorization": f"Bearer {self._system.key}"}
        with suppress(httpx.HTTPError):
            httpx.post(f"{self._system.url}/v1/providers/openai/resume", headers=headers, timeout=3, trust_env=False)

    def _open_jobs(self) -> str:
        return str(rows(self._system.database, _OPEN_JOBS))

    def _add(self, sentence: str) -> None:
        self.violations.append(sentence)
