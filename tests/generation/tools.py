"""A worker in the hand: claims and runs batches one at a time, with a provider that says what the test wants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.access.limits.meter import Meter
from cmserver.access.model import Principal, Project
from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.generation import repository
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.model import Claim
from cmserver.generation.run_batch import BatchRunner
from cmserver.ingest.model import EventSubmission, RecordedEvent
from cmserver.ingest.record import EventRecorder
from cmserver.models.providers.model import Answer, Completion, DraftObservation, DraftSummary, Prompt, ProviderChain, Rules, Skip
from cmserver.reading.model import EventReading
from cmserver.steward.run_job import StewardRunner
from tests.rows import rows

Reply = Callable[[Prompt], Awaitable[Completion] | Completion]


class Scripted:
    """A provider for tests: counts its calls, and answers as it is told; by default one observation of each event."""

    model = "script-1"

    def __init__(self, reply: Reply | None = None, *, name: str = "scripted") -> None:
        self.name = name
        self.prompts: list[Prompt] = []
        self.reply = reply

    async def complete(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        if self.reply is None:
            return completion(each_observed(prompt))
        answer = self.reply(prompt)
        return answer if isinstance(answer, Completion) else await answer


def completion(answer: Answer) -> Completion:
    return Completion(text=msgspec.json.encode(answer).decode(), model="script-1", input_tokens=10, output_tokens=5)


def each_observed(prompt: Prompt) -> Answer:
    if prompt.kind == "summary":
        return Answer(summary=DraftSummary(request="what was asked", completed="what was done"))
    return Answer(observations=[DraftObservation(title=f"saw {tag}", events=[tag]) for tag in prompt.tags])


def all_skipped(prompt: Prompt) -> Answer:
    return Answer(skipped=[Skip(event=tag, reason="not worth it") for tag in prompt.tags])


class Hand:
    """One worker, moved by hand."""

    def __init__(self, db: Db, notifier: JobNotifier, providers: ProviderChain, worker_id: int, lease_seconds: float) -> None:
        self.db = db
        self.notifier = notifier
        self.worker_id = worker_id
        self.lease_seconds = lease_seconds
        settings = Settings(data_dir=Path("unused"), provider_timeout_seconds=120, lease_seconds=lease_seconds)
        self.runner = BatchRunner(db, providers, notifier, settings, StewardRunner(db, settings))

    async def claim(self, *, slots: int = 10, max_events: int = 20, max_chars: int = 60_000) -> list[Claim]:
        async with self.db.system_statement() as conn:
            return await repository.claim(
                conn,
                worker_id=self.worker_id,
                label=f"test:{self.worker_id}",
                lease_seconds=self.lease_seconds,
                slots=slots,
                max_events=max_events,
                max_chars=max_chars,
            )

    async def work(self, *, max_events: int = 20) -> int:
        """Claim and run until nothing is due; how many batches."""
        batches = 0
        while claims := await self.claim(max_events=max_events):
            for claim in claims:
                await self.runner.run(claim)
                batches += 1
        return batches

    async def work_as_set(self) -> list[Claim]:
        """Claim and run once, all batches as one set."""
        claims = await self.claim(slots=100)
        await self.runner.run(*claims)
        return claims


async def make_hand(db: Db, notifier: JobNotifier, providers: ProviderChain, lease_seconds: float) -> Hand:
    async with db.system_statement() as conn:
        cursor = await conn.execute("SELECT worker_id FROM procrastinate_register_worker_v1()")
        row = await cursor.fetchone()
        assert row is not None
        await leases.register(conn, row[0], "test", lease_seconds)
    return Hand(db, notifier, providers, row[0], lease_seconds)


class Outbox:
    """Puts events in and looks at what became of them, past every layer."""

    def __init__(self, db: Db, notifier: JobNotifier, principal: Principal, project: Project, debounce_seconds: float = 0) -> None:
        self.db = db
        self.notifier = notifier
        self.principal = principal
        self.project = project
        self.recorder = EventRecorder(
            db,
            notifier,
            Meter(db),
            secret=b"s" * 32,
            debounce_seconds=debounce_seconds,
            gather_seconds=0,
        )

    async def hand(self, *providers: Scripted | Rules, lease_seconds: float = 20) -> Hand:
        return await make_hand(self.db, self.notifier, providers, lease_seconds)

    async def put(
        self,
        count: int = 1,
        *,
        session: str | None = "s1",
        payload: object = None,
        first: int = 0,
        at_once: bool = False,
        event_type: str = "tool_use",
    ) -> list[RecordedEvent]:
        submissions = [
            EventSubmission(
                event_type=event_type,
                payload={"tool_name": "Write", "n": first + place} if payload is None else payload,
                source_event_id=f"{session}-{first + place}",
                content_session_id=session,
                project=self.project,
                occurred_at=datetime.now(UTC),
                origin="api",
            )
            for place in range(count)
        ]
        return await self.recorder.record(self.principal, submissions, at_once=at_once)

    async def rows(self, statement: str, *params: object) -> list[dict[str, object]]:
        return await rows(self.db, statement, *params)

    async def value(self, statement: str, *params: object) -> object:
        rows = await self.rows(statement, *params)
        return next(iter(rows[0].values())) if rows else None

    async def statuses(self) -> dict[str, int]:
        rows = await self.rows("SELECT status, count(*) AS n FROM observation_generation_jobs GROUP BY status")
        return {str(row["status"]): int(str(row["n"])) for row in rows}

    async def lifecycle(self, job_id: UUID) -> list[str]:
        rows = await self.rows(
            "SELECT event_type FROM observation_generation_job_events WHERE generation_job_id = %s ORDER BY id", job_id
        )
        return [str(row["event_type"]) for row in rows]


def tool_name(event: EventReading) -> str:
    """The name of its tool; empty where it has none."""
    return event.tool_use.tool if event.tool_use else ""
