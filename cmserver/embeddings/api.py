"""Embedding over HTTP: how it goes, and trying again what failed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.embeddings import repository
from cmserver.embeddings.status import read_status, retry_failed
from cmserver.embeddings.wire import EmbeddingStateOut, ReasonOut, RetriedEmbeddingsOut


async def get_embeddings(request: Request) -> Response:
    """Which model embeds, what waits for it, and why what failed did."""
    principal = await caller(request, Principal)
    settings = dependency(request, Settings)
    async with db(request).tenant(principal.team_id) as conn:
        embeddings = await read_status(conn, principal.team_id, principal.project_id, settings)
        reasons = await repository.reasons(conn, principal.team_id, principal.project_id)
    return answer(EmbeddingStateOut(embeddings=embeddings, reasons=[reshape(reason, ReasonOut) for reason in reasons]))


async def post_retry(request: Request) -> Response:
    """Try at once what could not be embedded, also what was given up."""
    principal = await caller(request, Principal)
    count = await db(request).in_tenant(principal.team_id, lambda conn: retry_failed(conn, principal))
    return answer(RetriedEmbeddingsOut(retried=count))


routes = [
    get("/v1/embeddings", get_embeddings, "jobs:read", EmbeddingStateOut),
    post("/v1/embeddings/retry", post_retry, "jobs:write", RetriedEmbeddingsOut),
]
