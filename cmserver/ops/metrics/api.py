"""`GET /metrics` for Prometheus."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import Forbidden, NotFound, Unauthenticated
from cmserver.base.http.operation import TextAnswer, get
from cmserver.base.http.wire import db, dependency
from cmserver.base.settings import Settings
from cmserver.ops.metrics.collect import read_database_numbers, render

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def get_metrics(request: Request) -> Response:
    """The server's numbers for Prometheus: with `CMSERVER_METRICS_TOKEN` as bearer token, which is no key of a team."""
    token = dependency(request, Settings).metrics_token
    if token is None:
        raise NotFound("Metrics are off: set CMSERVER_METRICS_TOKEN.")
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Send the token of CMSERVER_METRICS_TOKEN as `Authorization: Bearer TOKEN`.")
    if not hmac.compare_digest(sent.strip().encode(), token.encode()):
        raise Forbidden("This is not the token of CMSERVER_METRICS_TOKEN.")
    return Response(render(await read_database_numbers(db(request))), media_type=MEDIA_TYPE)


routes = [
    get(
        "/metrics",
        get_metrics,
        None,
        TextAnswer("text/plain", "Prometheus' text format; the names stand in docs/reference/metrics.md."),
        refusals=(NotFound, Unauthenticated, Forbidden),
    )
]
