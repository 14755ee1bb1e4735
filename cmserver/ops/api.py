"""Is it alive, is it ready, and how is the queue."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver import __version__
from cmserver.access.model import Principal
from cmserver.base.errors import Unauthenticated, Unavailable
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.base.migrate import newest
from cmserver.base.settings import Settings
from cmserver.generation.calls import repository as calls
from cmserver.generation.model import JOB_FOR_EVENT, JOB_FOR_SUMMARY
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import KindCount, QueueCounts
from cmserver.generation.operate.read import behind
from cmserver.observations.embedding.look import look
from cmserver.observations.embedding.wire import EmbeddingsOut, embeddings_out
from cmserver.ops import repository
from cmserver.ops.wire import PauseOut, pause_out
from cmserver.providers.registry import described


class QueueOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue of the key's team, or of its project when it is bound to one.

    `waiting` is due; `delayed` waits for its time, `held` for a back-off or a pause. `recovered` counts how often a job came back
    from a worker that was lost. `warning` is a sentence when the oldest waiting job is older than CMSERVER_QUEUE_WARNING_SECONDS.
    """

    waiting: int
    active: int
    delayed: int
    held: int
    completed: int
    failed: int
    cancelled: int
    recovered: int
    oldest_waiting_seconds: float | None
    warning: str | None


class HealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive."""

    status: Literal["ok"] = "ok"
    runtime: Literal["cmserver"] = "cmserver"


class ReadyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The database answers and has this program's schema; `workers` have a lease that holds."""

    status: Literal["ready"] = "ready"
    runtime: Literal["cmserver"] = "cmserver"
    schema_version: int
    workers: int


class PostgresOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The database."""

    version: str
    embedded: bool
    vectors: bool
    initialized: bool
    schema_version: int


class BoundaryOut(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the server, as clients of claude-mem look for it."""

    status: Literal["active", "disabled"]
    reason: str
    details: dict[str, int]


class BoundariesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue is the database; workers are counted by their leases."""

    queue_manager: BoundaryOut
    generation_worker_manager: BoundaryOut


class LaneOut(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind, as clients of claude-mem look for them; `stalled` are those that came back from lost workers."""

    kind: Literal["event", "summary"]
    name: str
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int
    stalled: int
    unavailable: bool = False


class ProviderOut(msgspec.Struct, frozen=True, kw_only=True):
    """Who generates observations. `chain` is who is asked, in this order, when those before are paused; `name` is its first."""

    name: str
    chain: list[str]
    pauses: list[PauseOut]


class OwnTeamOut(msgspec.Struct, frozen=True, kw_only=True):
    """The key's team."""

    id: UUID
    name: str


class InfoOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The server; `team` and `provider` only for those who have a key, `queue` and `embeddings` only with the scope jobs:read."""

    name: Literal["cmserver"] = "cmserver"
    runtime: Literal["cmserver"] = "cmserver"
    version: str
    auth_mode: Literal["api-key"] = "api-key"
    schema_version: int
    postgres: PostgresOut
    boundaries: BoundariesOut
    workers: int
    queue_lanes: list[LaneOut]
    provider: ProviderOut | UnsetType = UNSET
    team: OwnTeamOut | UnsetType = UNSET
    queue: QueueOut | UnsetType = UNSET
    embeddings: EmbeddingsOut | UnsetType = UNSET


async def get_healthz(_request: Request) -> Response:
    """Alive: no I/O."""
    return answer(HealthOut())


async def get_readyz(request: Request) -> Response:
    """Ready: the database answers and has this program's schema. That no worker runs is told only: events are stored and wait."""
    async with db(request).system_statement() as conn:
        schema = await repository.schema(conn)
    if schema.number != newest():
        raise Unavailable("The database has another schema than this program; restart the program that is older.")
    return answer(ReadyOut(schema_version=schema.number, workers=schema.workers))


async def get_info(request: Request) -> Response:
    """The server; to those who send a key also its provider, their team, and the team's queue at a glance."""
    who = await _caller_if_any(request)
    settings = cast("Settings", request.app.state.settings)
    async with db(request).system() as conn:
        schema = await repository.schema(conn)
        pauses = [one for one in await calls.pauses(conn) if one.seconds_left > 0]
    info = InfoOut(
        version=__version__,
        schema_version=schema.number,
        postgres=PostgresOut(
            version=schema.postgres,
            embedded=settings.database_url is None,
            vectors=schema.vectors,
            initialized=schema.number >= newest(),
            schema_version=schema.number,
        ),
        boundaries=_boundaries_out(schema.workers),
        workers=schema.workers,
        queue_lanes=[],
    )
    if who is not None:
        chain = [one.name for one in described(settings)]
        provider = ProviderOut(name=chain[0], chain=chain, pauses=[pause_out(pause, who) for pause in pauses])
        info = msgspec.structs.replace(info, provider=provider, team=OwnTeamOut(id=who.team_id, name=who.team_name))
    if who is not None and who.may("jobs:read"):
        async with db(request).tenant(who.team_id) as conn:
            counts = await queue.queue_counts(conn, who.team_id, who.project_id)
            kinds = await queue.kind_counts(conn, who.team_id, who.project_id)
            embedding = await look(conn, who.team_id, who.project_id, settings)
        info = msgspec.structs.replace(
            info,
            queue=_queue_out(counts, behind(counts, settings.queue_warning_seconds)),
            queue_lanes=_lanes_out(counts, kinds),
            embeddings=embeddings_out(embedding),
        )
    return answer(info)


async def _caller_if_any(request: Request) -> Principal | None:
    """None without a key; a key that is wrong or over is refused as anywhere."""
    with contextlib.suppress(Unauthenticated):
        return await caller(request, Principal)
    return None


def _boundaries_out(workers: int) -> BoundariesOut:
    return BoundariesOut(
        queue_manager=BoundaryOut(status="active", reason="The queue is in PostgreSQL.", details={}),
        generation_worker_manager=BoundaryOut(
            status="active" if workers else "disabled",
            reason="A worker runs." if workers else "No worker runs: events are stored and wait.",
            details={"workers": workers},
        ),
    )


def _queue_out(counts: QueueCounts, warning: str | None) -> QueueOut:
    return QueueOut(
        waiting=counts.waiting,
        active=counts.active,
        delayed=counts.delayed,
        held=counts.held,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
        recovered=counts.recovered,
        oldest_waiting_seconds=counts.oldest_waiting_seconds,
        warning=warning,
    )


def _lanes_out(counts: QueueCounts, kinds: Sequence[KindCount]) -> list[LaneOut]:
    """Events are what is left of the whole without the other kinds."""

    def of(source_type: str | None, state: str) -> int:
        return sum(one.jobs for one in kinds if one.state == state and source_type in {None, one.source_type})

    def events(whole: int, state: str) -> int:
        return max(0, whole - of(None, state))

    return [
        LaneOut(
            kind="event",
            name=JOB_FOR_EVENT,
            waiting=events(counts.waiting, "waiting"),
            active=events(counts.active, "processing"),
            completed=events(counts.completed, "completed"),
            failed=events(counts.failed, "failed"),
            delayed=events(counts.delayed + counts.held, "delayed"),
            stalled=events(counts.recovered, "recovered"),
        ),
        LaneOut(
            kind="summary",
            name=JOB_FOR_SUMMARY,
            waiting=of("session_summary", "waiting"),
            active=of("session_summary", "processing"),
            completed=of("session_summary", "completed"),
            failed=of("session_summary", "failed"),
            delayed=of("session_summary", "delayed"),
            stalled=of("session_summary", "recovered"),
        ),
    ]


routes = [
    Operation("GET", "/healthz", get_healthz, scope=None, answers={200: HealthOut}),
    Operation("GET", "/readyz", get_readyz, scope=None, answers={200: ReadyOut}),
    Operation("GET", "/v1/info", get_info, scope=None, key_optional=True, answers={200: InfoOut}),
]
