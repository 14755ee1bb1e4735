"""The server's health, its state and its providers over HTTP."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver import __version__
from cmserver.access import verb
from cmserver.access.model import Principal
from cmserver.access.verb import VerbCall, command
from cmserver.base.columns import Columns, format_time, render_fields, render_table
from cmserver.base.db import Db
from cmserver.base.errors import Unauthenticated, Unavailable
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.base.migrate import newest
from cmserver.base.process import resident_bytes
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.embeddings.status import read_status
from cmserver.embeddings.wire import EmbeddingsOut
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.model import JOB_FOR_EVENT, JOB_FOR_REINDEX, JOB_FOR_SUMMARY, JOB_FOR_TURN
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import KindCount, QueueCounts
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.models.calls import repository as calls
from cmserver.models.providers.registry import chain_models
from cmserver.observations.approval import repository as approvals
from cmserver.ops import repository, wire
from cmserver.ops.deployment import Deployment, read_deployment
from cmserver.ops.model_health import read_model_health
from cmserver.ops.provider_pauses import list_providers, resume_paused_provider
from cmserver.ops.readiness import Readiness
from cmserver.sessions import repository as sessions
from cmserver.steward import repository as steward


class HealthOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The process is alive: `status` is always `ok`."""

    status: Literal["ok"] = "ok"
    runtime: Literal["cmserver"] = "cmserver"


class ReadyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The database answers, has this program's schema, and does what the server relies on; `workers` are how many have a lease that
    holds.

    `status` is always `ready`: a server that is not answers 503.
    """

    status: Literal["ready"] = "ready"
    runtime: Literal["cmserver"] = "cmserver"
    schema_version: int
    workers: int


async def get_healthz(_request: Request) -> Response:
    """Alive: no I/O."""
    return answer(HealthOut())


async def get_livez(_request: Request) -> Response:
    """Alive, as GET /healthz: the path that Kubernetes' examples name."""
    return answer(HealthOut())


async def get_readyz(request: Request) -> Response:
    """Ready: the database answers, has this program's schema, keeps teams apart, delivers NOTIFY, and is not known to be full.

    A server without a worker is ready, too: events are stored and wait. The database is checked every few seconds.
    """
    async with db(request).system_statement() as conn:
        schema = await repository.SCHEMA.one(conn)
    if schema.number != newest():
        raise Unavailable("The database has another schema than this program; restart the program that is older.")
    await dependency(request, Readiness).check()
    await db(request).require_room()
    return answer(ReadyOut(schema_version=schema.number, workers=schema.workers))


async def get_info(request: Request) -> Response:
    """The server; with a key also its provider, the key's team, and the team's queue."""
    principal = await _find_caller(request)
    settings = dependency(request, Settings)
    monitor = dependency(request, QueueMonitor)
    async with db(request).system() as conn:
        schema = await repository.SCHEMA.one(conn)
        pauses = [pause for pause in await calls.PAUSES.all(conn) if pause.seconds_left > 0]
    info = wire.InfoOut(
        version=__version__,
        schema_version=schema.number,
        postgres=wire.PostgresOut(
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
    if principal is not None:
        chain = chain_models(settings)
        provider = wire.ProviderOut(
            name=chain[0].name,
            model=chain[0].model,
            chain=[model.name for model in chain],
            pauses=[wire.pause_out(pause, principal) for pause in pauses],
        )
        info = msgspec.structs.replace(
            info, provider=provider, team=wire.OwnTeamOut(id=principal.team_id, name=principal.team_name)
        )
    if principal is not None and principal.may("jobs:read"):
        async with db(request).tenant(principal.team_id) as conn:
            counts = await queue.queue_counts(conn, principal.team_id, principal.project_id)
            kinds = await queue.kind_counts(conn, principal.team_id, principal.project_id)
            answers = await read_model_health(conn, settings, principal)
            rules = await approvals.waiting(conn, principal.team_id, principal.project_id)
            active_sessions = await sessions.open_count(conn, principal.team_id, principal.project_id)
            embeddings = await read_status(conn, principal.team_id, principal.project_id, settings)
            team = await steward.mode(conn, principal.team_id)
            health = await steward.queue_health(conn, principal.team_id, principal.project_id)
        info = msgspec.structs.replace(
            info,
            queue=reshape(counts, wire.QueueOut, warning=monitor.warning(counts)),
            answers=answers or msgspec.UNSET,
            rules=reshape(rules, wire.WaitingRulesOut),
            active_sessions=active_sessions,
            memory_bytes=resident_bytes(),
            queue_lanes=_lanes_out(counts, kinds, embeddings),
            embeddings=embeddings,
            steward=reshape(health, wire.StewardOut, mode=team.mode, paused=team.is_paused),
        )
    return answer(info)


async def _find_caller(request: Request) -> Principal | None:
    """Return the caller, None without a key; a wrong or expired key is refused."""
    with contextlib.suppress(Unauthenticated):
        return await caller(request, Principal)
    return None


def _boundaries_out(workers: int) -> wire.BoundariesOut:
    return wire.BoundariesOut(
        queue_manager=wire.BoundaryOut(status="active", reason="The queue is in PostgreSQL.", details={}),
        generation_worker_manager=wire.BoundaryOut(
            status="active" if workers else "disabled",
            reason="A worker runs." if workers else "No worker runs: events are stored and wait.",
            details={"workers": workers},
        ),
    )


_LANES: list[tuple[wire.LaneKind, str, str]] = [
    ("summary", JOB_FOR_SUMMARY, "session_summary"),
    ("reindex", JOB_FOR_REINDEX, "observation_reindex"),
    ("entities", JOB_FOR_TURN, "turn"),
    ("steward", "steward", "steward"),
]
"""The kinds of jobs beside those of events: the lane, the name, and what the job is about."""


def _lanes_out(counts: QueueCounts, kinds: Sequence[KindCount], embeddings: EmbeddingsOut) -> list[wire.LaneOut]:
    """Return a lane for each kind of job; an event job is any job that is not of another kind. Texts to embed have no jobs."""
    totals = {
        "waiting": counts.waiting,
        "processing": counts.active,
        "completed": counts.completed,
        "failed": counts.failed,
        "delayed": counts.delayed + counts.held,
        "recovered": counts.recovered,
    }
    others, by_source = Counter[str](), {source_type: Counter[str]() for _, _, source_type in _LANES}
    for kind in kinds:
        others[kind.state] += kind.jobs
        by_source.setdefault(kind.source_type, Counter())[kind.state] += kind.jobs
    events = Counter({state: max(0, total - others[state]) for state, total in totals.items()})
    texts = Counter({"waiting": embeddings.waiting - embeddings.failing, "failed": embeddings.failing})
    return [
        _lane_out("event", JOB_FOR_EVENT, events),
        *(_lane_out(kind, name, by_source[source_type]) for kind, name, source_type in _LANES),
        _lane_out("embedding", "embedding", texts),
    ]


def _lane_out(kind: wire.LaneKind, name: str, jobs: Counter[str]) -> wire.LaneOut:
    return wire.LaneOut(
        kind=kind,
        name=name,
        waiting=jobs["waiting"],
        active=jobs["processing"],
        completed=jobs["completed"],
        failed=jobs["failed"],
        delayed=jobs["delayed"],
        stalled=jobs["recovered"],
    )


def _render_deployment(deployment: Deployment, _: verb.Typed) -> str:
    fields = render_fields(
        ("cmserver", deployment.version),
        ("schema", f"{deployment.schema_version} of {deployment.newest_schema_version}"),
        ("postgres", f"{deployment.postgres_version}{', embedded' if deployment.is_embedded else ''}"),
        ("workers", deployment.workers),
        ("teams", deployment.teams),
        ("database bytes", f"{deployment.database_bytes:,}"),
        ("backups", f"{deployment.backups.backups}, the newest of {format_time(deployment.backups.newest_at_epoch) or 'never'}"),
    )
    tables = render_table(
        ("table", "bytes", "rows, about"),
        [(table.name, f"{table.bytes:,}", None if table.rows is None else f"{table.rows:,}") for table in deployment.tables],
        empty="",
    )
    months = render_table(
        ("month", "events", "requests"),
        [(f"{month.month:%Y-%m}", f"{month.events:,}", f"{month.requests:,}") for month in deployment.months],
        empty="Nothing was stored yet.",
    )
    return f"{fields}\n\n{tables}\n\n{months}"


@command(
    "sizes",
    _render_deployment,
    text="Show versions, sizes and growth of the whole server. Operator only: --operator, or a key with the scope *.",
)
@verb.get("/v1/server", "*", whole_team=True)
async def get_server(call: VerbCall) -> Deployment:
    """Versions, sizes and growth of the whole server, for its operator; never for a key that is bound to a project."""
    return await read_deployment(call.dependency(Db), call.dependency(Settings))


_PROVIDERS = Columns(
    wire.KnownProviderOut,
    "name, model, state, until, why",
    until=lambda provider: provider.pause and format_time(provider.pause.until_epoch),
    why=lambda provider: provider.pause and f"{provider.pause.reason}: {provider.pause.message}",
)


@command("providers list", _PROVIDERS.page("providers", "There is no provider.", shrink=("why",)))
@verb.get("/v1/providers", "")
async def get_providers(call: VerbCall) -> wire.ProvidersOut:
    """List the providers in the order in which they are asked, and why one is paused."""
    return wire.ProvidersOut(providers=await list_providers(call.dependency(Db), call.principal, call.dependency(Settings)))


@command(
    "providers resume",
    lambda result, _: f"{result.name} {'is resumed' if result.resumed else 'was not paused'}.",
    text="End a provider's pause. Operator only: --operator, or a key with the scope *.",
)
@verb.post("/v1/providers/{provider}/resume", "*")
async def post_resume(call: VerbCall, given: str) -> wire.ResumedProviderOut:
    """End a provider's pause early, in the whole server; the jobs that waited for it go on."""
    db, notifier, settings = call.dependency(Db), call.dependency(JobNotifier), call.dependency(Settings)
    is_resumed = await resume_paused_provider(db, notifier, call.principal, given, settings)
    return wire.ResumedProviderOut(resumed=is_resumed, name=given)


routes = [
    get_server,
    get("/healthz", get_healthz, None, HealthOut),
    get("/livez", get_livez, None, HealthOut),
    get("/readyz", get_readyz, None, ReadyOut),
    get("/v1/info", get_info, None, wire.InfoOut, key_optional=True),
    get_providers,
    post_resume,
]
