"""The web process: mounts every room's routes on one Starlette application."""

from __future__ import annotations

from starlette.applications import Starlette

from cmserver.access.api import routes as access_routes
from cmserver.access.authenticate import Authenticator
from cmserver.access.guests import Guests
from cmserver.access.limits.meter import Meter
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.http.frame import Frame
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import Authenticate
from cmserver.base.live import Hub
from cmserver.base.sealed import Seal
from cmserver.base.settings import Settings
from cmserver.compat.api import routes as compat_routes
from cmserver.events.api import routes as event_routes
from cmserver.generation.api import routes as generation_routes
from cmserver.generation.bell import Bell
from cmserver.hooks.api import routes as hook_routes
from cmserver.ingest.accept import Acceptance
from cmserver.ingest.api import routes as ingest_routes
from cmserver.ingest.ends import Ends
from cmserver.ingest.model import Checkpoints
from cmserver.ingest.record import Recorder
from cmserver.mcp.aliases import tools
from cmserver.mcp.api import routes as mcp_routes
from cmserver.mcp.call import Verbs
from cmserver.mcp.site import Site
from cmserver.observations.api import routes as observation_routes
from cmserver.observations.embedding.api import routes as embedding_routes
from cmserver.observations.hand import Hand
from cmserver.ops.api import routes as ops_routes
from cmserver.ops.budgets.api import routes as budget_routes
from cmserver.ops.erasure.api import routes as erasure_routes
from cmserver.ops.openapi.api import Reference
from cmserver.ops.openapi.api import routes as openapi_routes
from cmserver.ops.providers.api import routes as provider_routes
from cmserver.ops.stream.api import routes as stream_routes
from cmserver.ops.stream.feed import Feed
from cmserver.ops.usage.api import routes as usage_routes
from cmserver.recall.api import routes as recall_routes
from cmserver.recall.contexts import Contexts
from cmserver.recall.model import Shape
from cmserver.recall.search.api import routes as search_routes
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Ranking
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.timeline.api import routes as timeline_routes
from cmserver.recall.timeline.timelines import Timelines
from cmserver.sessions.api import routes as session_routes

ROUTES: list[Operation] = [  # looked through in this order: what comes most often first
    *ingest_routes,
    *hook_routes,
    *ops_routes,
    *recall_routes,
    *mcp_routes,
    *search_routes,
    *timeline_routes,
    *observation_routes,
    *event_routes,
    *session_routes,
    *generation_routes,
    *compat_routes,
    *erasure_routes,
    *usage_routes,
    *budget_routes,
    *provider_routes,
    *embedding_routes,
    *access_routes,
    *openapi_routes,
    *stream_routes,
]


def create_app(
    settings: Settings, db: Db, hub: Hub, bell: Bell, *, secret: bytes, authenticate: Authenticate | None = None
) -> Frame:
    """The application. `secret` is the installation's, for keyed hashes; `authenticate` stands in for keys, for an operator."""
    app = Starlette(routes=ROUTES)
    app.router.redirect_slashes = False  # a path with a slash too many does not exist
    meter = Meter(db)
    app.state.settings = settings
    app.state.db = db
    app.state.hub = hub
    app.state.bell = bell
    app.state.meter = meter
    app.state.authenticate = authenticate or Authenticator(db, hub, meter)
    app.state.guests = Guests(db, hub, meter, settings.trust_loopback)
    app.state.projects = Projects(db, hub)
    app.state.audit_seal = Seal(secret, b"audit")
    app.state.reference = Reference(ROUTES)
    app.state.feed = Feed(
        db,
        hub,
        secret=secret,
        heartbeat_seconds=settings.stream_heartbeat_seconds,
        streams_per_key=settings.streams_per_key,
    )
    app.state.body_max_bytes = settings.body_max_bytes
    app.state.body_timeout_seconds = settings.body_timeout_seconds
    app.state.field_max_chars = settings.field_max_chars
    app.state.job_max_attempts = settings.job_max_attempts
    app.state.ends = Ends(
        db,
        bell,
        max_attempts=settings.job_max_attempts,
        after=Checkpoints(events=settings.checkpoint_events, minutes=settings.checkpoint_minutes),
    )
    app.state.meaning = Meaning(settings, db)
    app.state.ranking = Ranking(
        k1=settings.search_k1,
        b=settings.search_b,
        meaning_weight=settings.search_meaning_weight,
        min_score=settings.search_min_score,
    )
    app.state.searcher = Searcher(db, app.state.projects, app.state.meaning, app.state.ranking)
    app.state.timelines = Timelines(db, app.state.projects, app.state.meaning, app.state.ranking)
    app.state.context_shape = Shape(
        tokens=settings.context_tokens, observations=settings.context_observations, summaries=settings.context_summaries
    )
    app.state.contexts = Contexts(db, app.state.projects, app.state.context_shape)
    app.state.recorder = Recorder(
        db,
        bell,
        meter,
        secret=secret,
        debounce_seconds=settings.generation_debounce_seconds,
        field_max_chars=settings.field_max_chars,
        max_attempts=settings.job_max_attempts,
    )
    app.state.acceptance = Acceptance(db, hub, app.state.projects, app.state.recorder, field_max_chars=settings.field_max_chars)
    app.state.hand = Hand(db, app.state.projects, field_max_chars=settings.field_max_chars)
    app.state.site = Site(settings)
    app.state.verbs = Verbs(
        db=db,
        denials=meter.denials,
        projects=app.state.projects,
        searcher=app.state.searcher,
        timelines=app.state.timelines,
        contexts=app.state.contexts,
        hand=app.state.hand,
        acceptance=app.state.acceptance,
        tools=tools(settings.mcp_aliases),
    )
    return Frame(app)
