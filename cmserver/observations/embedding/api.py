"""Embedding over HTTP: how it goes, and trying again what failed."""

from __future__ import annotations

from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.base.settings import Settings
from cmserver.observations.embedding import repository
from cmserver.observations.embedding.look import look
from cmserver.observations.embedding.retry import retry
from cmserver.observations.embedding.wire import EmbeddingsOut, embeddings_out


class ReasonOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why observations could not be embedded; those that are `givenUp` are not tried again by themselves."""

    reason: str
    observations: int
    given_up: int


class EmbeddingStateOut(msgspec.Struct, frozen=True, kw_only=True):
    """How embedding goes, and what keeps it from going on."""

    embeddings: EmbeddingsOut
    reasons: list[ReasonOut]


class RetriedEmbeddingsOut(msgspec.Struct, frozen=True, kw_only=True):
    """How many embeddings that failed are tried again now."""

    retried: int


async def get_embeddings(request: Request) -> Response:
    """Which model embeds, what waits for it, and why what failed did."""
    who = await caller(request, Principal)
    settings = cast("Settings", request.app.state.settings)
    async with db(request).tenant(who.team_id) as conn:
        seen = await look(conn, who.team_id, who.project_id, settings)
        reasons = await repository.reasons(conn, who.team_id, who.project_id)
    told = [ReasonOut(reason=one.reason, observations=one.observations, given_up=one.given_up) for one in reasons]
    return answer(EmbeddingStateOut(embeddings=embeddings_out(seen), reasons=told))


async def post_retry(request: Request) -> Response:
    """Try at once what could not be embedded, also what was given up."""
    who = await caller(request, Principal)
    count = await db(request).in_tenant(who.team_id, lambda conn: retry(conn, who))
    return answer(RetriedEmbeddingsOut(retried=count))


routes = [
    Operation("GET", "/v1/embeddings", get_embeddings, scope="jobs:read", answers={200: EmbeddingStateOut}),
    Operation("POST", "/v1/embeddings/retry", post_retry, scope="jobs:write", answers={200: RetriedEmbeddingsOut}),
]
