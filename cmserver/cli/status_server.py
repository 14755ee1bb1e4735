"""The HTTP server of a worker: whether it is alive, and its metrics. Imported only by a worker that has a port."""

from __future__ import annotations

import uvicorn
from starlette.applications import Starlette

from cmserver.base.db import Db
from cmserver.base.dependencies import Dependencies
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.http.operation import get
from cmserver.base.http.server import make_server
from cmserver.base.settings import Settings
from cmserver.ops.api import HealthOut, get_healthz, get_livez
from cmserver.ops.metrics.api import routes as metrics_routes
from cmserver.redaction.redact import redact


def make_status_server(settings: Settings, db: Db) -> uvicorn.Server:
    """The server, which the caller gives a socket and stops."""
    health = [get("/healthz", get_healthz, None, HealthOut), get("/livez", get_livez, None, HealthOut)]
    app = Starlette(routes=[*health, *metrics_routes])
    app.router.redirect_slashes = False
    return make_server(AsgiFrame(app, Dependencies(settings, db), redact=lambda text: redact(text)[0]), settings)
