"""The web process: mounts every room's routes on one Starlette application."""

from __future__ import annotations

from starlette.applications import Starlette

from cmserver.access import announce
from cmserver.access.api import routes as access_routes
from cmserver.access.authenticate import Authenticator
from cmserver.access.limits.meter import Meter
from cmserver.access.loopback import LoopbackAccess
from cmserver.access.people.accounts import Accounts
from cmserver.access.private import PrivatePlaces
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.http.address import parse_networks
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import Authenticate, Authentication, Dependencies
from cmserver.base.notifications import NotificationListener
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.base.token_cipher import InstallationSecret
from cmserver.consolidation.api import routes as consolidation_routes
from cmserver.consolidation.wording import MergeWriter
from cmserver.doors.claude_mem import routes as claude_mem_routes
from cmserver.doors.contextify import routes as contextify_routes
from cmserver.doors.hooks.api import routes as hook_routes
from cmserver.doors.hooks.take import HookTaker
from cmserver.doors.mcp.allowed_hosts import AllowedHosts
from cmserver.doors.mcp.api import routes as mcp_routes
from cmserver.doors.memory_service import routes as memory_service_routes
from cmserver.doors.web.routes import routes as web_routes
from cmserver.embeddings.api import routes as embedding_routes
from cmserver.embeddings.calibration.api import routes as calibration_routes
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.events.api import routes as event_routes
from cmserver.generation.api import routes as generation_routes
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.queue_monitor import QueueMonitor
from cmserver.git.api import routes as git_routes
from cmserver.graph.api import routes as graph_routes
from cmserver.graph.overviews.api import routes as overview_routes
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.ingest.api import routes as ingest_routes
from cmserver.ingest.door import gather_seconds, gathers_turns
from cmserver.ingest.intake import EventIntake
from cmserver.ingest.record import EventRecorder
from cmserver.memories.memories import Memories
from cmserver.observations.answering.api import routes as approval_routes
from cmserver.observations.api import routes as observation_routes
from cmserver.ops.activity.api import routes as activity_routes
from cmserver.ops.analytics.api import routes as analytics_routes
from cmserver.ops.api import routes as ops_routes
from cmserver.ops.doctor.api import routes as doctor_routes
from cmserver.ops.erasure.api import routes as erasure_routes
from cmserver.ops.joining.api import routes as joining_routes
from cmserver.ops.metrics.api import routes as metrics_routes
from cmserver.ops.openapi.api import Reference
from cmserver.ops.openapi.api import routes as openapi_routes
from cmserver.ops.privacy.api import routes as privacy_routes
from cmserver.ops.privacy.mark import PrivateSessions
from cmserver.ops.proof.api import routes as proof_routes
from cmserver.ops.provider_choice.api import routes as provider_choice_routes
from cmserver.ops.readiness import Readiness
from cmserver.ops.spending.api import routes as spending_routes
from cmserver.ops.stream.api import routes as stream_routes
from cmserver.ops.stream.feed import Feed
from cmserver.ops.transfer.api import routes as transfer_routes
from cmserver.personal.api import routes as personal_routes
from cmserver.pins.api import routes as pins_routes
from cmserver.recall.api import routes as recall_routes
from cmserver.recall.model import ContextBudget
from cmserver.recall.search.model import Ranking
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.timeline.timeline import Timelines
from cmserver.redaction.redact import Identifiers, redact
from cmserver.replays.api import routes as replays_routes
from cmserver.sessions.api import routes as session_routes
from cmserver.sessions.turns.api import routes as turn_routes
from cmserver.steward.api import routes as steward_routes

ROUTES: list[Operation] = [  # looked through in this order: what comes most often first
    *ingest_routes,
    *hook_routes,
    *ops_routes,
    *analytics_routes,
    *doctor_routes,
    *provider_choice_routes,
    *recall_routes,
    *mcp_routes,
    *consolidation_routes,
    *steward_routes,
    *observation_routes,
    *approval_routes,
    *personal_routes,
    *pins_routes,
    *replays_routes,
    *event_routes,
    *git_routes,
    *transfer_routes,
    *graph_routes,
    *session_routes,
    *turn_routes,
    *generation_routes,
    *claude_mem_routes,
    *contextify_routes,
    *memory_service_routes,
    *privacy_routes,
    *proof_routes,
    *joining_routes,  # before those of a project alone, whose name may end in the same way
    *activity_routes,  # as these
    *overview_routes,  # as these
    *erasure_routes,
    *spending_routes,
    *embedding_routes,
    *calibration_routes,
    *access_routes,
    *openapi_routes,
    *metrics_routes,
    *stream_routes,
]

_STATUS_PATHS = {"/livez", "/healthz", "/metrics"}


def create_app(
    settings: Settings,
    db: Db,
    notifications: NotificationListener,
    notifier: JobNotifier,
    *,
    secret: bytes,
    authenticate: Authenticate | None = None,
    monitor: QueueMonitor | None = None,
    start: ServerStart | None = None,
) -> AsgiFrame:
    """The application. `secret` is the installation's, for keyed hashes; `authenticate` stands in for keys, for an operator.

    `monitor` is the one that the caller runs; without it the numbers of the queue in `/health` stay unknown. Without `start` no
    setting can be changed.
    """
    app = Starlette(routes=[*ROUTES, *web_routes])
    app.router.redirect_slashes = False  # a path with a slash too many does not exist
    meter = Meter(db)
    projects = Projects(db, notifications)
    private_places = PrivatePlaces(db, notifications, projects)
    embedder = QueryEmbedder(settings, db)
    ranking = Ranking()
    merge_writer = MergeWriter(db, settings)
    recorder = EventRecorder(
        db,
        notifier,
        meter,
        secret=secret,
        debounce_seconds=settings.generation_debounce_seconds,
        gather_seconds=gather_seconds(settings),
        gathers_turns=gathers_turns(settings),
        private_places=private_places,
    )
    notifications.subscribe(announce.SESSIONS, lambda _: recorder.forget_sessions())
    private_sessions = PrivateSessions(db, notifications, private_places)
    identifiers = Identifiers(secret)
    budget = ContextBudget()
    dependencies = Dependencies(
        settings,
        InstallationSecret(secret),
        db,
        notifications,
        notifier,
        meter,
        meter.denials,
        Authentication(
            authenticate or Authenticator(db, notifications, meter), parse_networks(settings.trusted_proxies), private_places.go_in
        ),
        private_sessions,
        Accounts(db, meter, secret),
        LoopbackAccess(db, notifications, meter, settings.trust_loopback),
        Readiness(db, notifications),
        monitor or QueueMonitor(db),
        start or ServerStart(),
        Reference(ROUTES),
        AllowedHosts(settings),
        identifiers,
        projects,
        recorder,
        EventIntake(db, notifications, projects, recorder),
        embedder,
        ranking,
        Searcher(db, projects, embedder, ranking),
        Memories(db, projects, embedder, ranking, merge_writer),
        merge_writer,
        OverviewWriter(db, settings),
        Timelines(db, projects, embedder, ranking),
        budget,
        HookTaker(
            db,
            settings,
            notifications,
            notifier,
            projects,
            recorder,
            embedder,
            identifiers,
            budget,
            private_sessions,
            private_places,
        ),
        Feed(db, notifications, secret=secret),
    )
    return AsgiFrame(app, dependencies, redact=lambda text: redact(text)[0])


def create_status_app(settings: Settings, db: Db) -> AsgiFrame:
    """The application of a worker: whether it is alive, and its metrics."""
    app = Starlette(routes=[route for route in ROUTES if route.path in _STATUS_PATHS])
    app.router.redirect_slashes = False
    return AsgiFrame(app, Dependencies(settings, db), redact=lambda text: redact(text)[0])
