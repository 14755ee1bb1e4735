"""Embedding over HTTP: how it goes, and trying again what failed."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.verb import VerbCall, command
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.embeddings import repository
from cmserver.embeddings.status import read_status, retry_failed
from cmserver.embeddings.wire import EmbeddingStateOut, ReasonOut, RetriedEmbeddingsOut


@verb.get("/v1/embeddings", "jobs:read")
async def get_embeddings(call: VerbCall) -> EmbeddingStateOut:
    """Which model embeds, what waits for it, and why what failed did."""
    team_id, project_id = call.principal.team_id, call.principal.project_id
    async with call.read() as conn:
        embeddings = await read_status(conn, team_id, project_id, call.dependency(Settings))
        reasons = await repository.reasons(conn, team_id, project_id)
    return EmbeddingStateOut(embeddings=embeddings, reasons=[reshape(reason, ReasonOut) for reason in reasons])


@command(
    "embeddings retry",
    lambda result, _: f"Failed embeddings that are tried again now: {result.retried}.",
    text="Retry failed embeddings at once, including those given up.",
)
@verb.post("/v1/embeddings/retry", "jobs:write")
async def post_retry(call: VerbCall) -> RetriedEmbeddingsOut:
    """Try at once what could not be embedded, also what was given up."""
    return RetriedEmbeddingsOut(retried=await call.write(lambda conn: retry_failed(conn, call.principal)))


routes = [get_embeddings, post_retry]
