"""The web process: mounts every room's routes on one Starlette application."""

from __future__ import annotations

from starlette.applications import Starlette

from cmserver.access.api import routes as access_routes
from cmserver.access.keys import Authenticator
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.http.frame import Frame
from cmserver.base.http.operation import Operation
from cmserver.base.live import Hub
from cmserver.base.settings import Settings
from cmserver.events.api import routes as event_routes
from cmserver.generation.bell import Bell
from cmserver.hooks.api import routes as hook_routes
from cmserver.ingest.api import routes as ingest_routes
from cmserver.ingest.record import Recorder
from cmserver.observations.api import routes as observation_routes
from cmserver.ops.api import routes as ops_routes
from cmserver.recall.api import routes as recall_routes

ROUTES: list[Operation] = [  # looked through in this order: what comes most often first
    *ingest_routes,
    *hook_routes,
    *ops_routes,
    *recall_routes,
    *observation_routes,
    *event_routes,
    *access_routes,
]


def create_app(settings: Settings, db: Db, hub: Hub, bell: Bell, *, secret: bytes) -> Frame:
    """The application. `secret` is the installation's, for keyed hashes."""
    app = Starlette(routes=ROUTES)
    app.state.settings = settings
    app.state.db = db
    app.state.hub = hub
    app.state.bell = bell
    app.state.authenticate = Authenticator(db)
    app.state.projects = Projects(db)
    app.state.body_max_bytes = settings.body_max_bytes
    app.state.field_max_chars = settings.field_max_chars
    app.state.job_max_attempts = settings.job_max_attempts
    app.state.recorder = Recorder(
        db,
        bell,
        secret=secret,
        debounce_seconds=settings.generation_debounce_seconds,
        field_max_chars=settings.field_max_chars,
        max_attempts=settings.job_max_attempts,
    )
    return Frame(app)
