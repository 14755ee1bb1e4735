"""What the tests of search have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import psycopg

from cmserver.base.db import Db
from cmserver.embeddings.model import QueryVector
from cmserver.observations.model import Observation
from cmserver.recall.search.model import Filters, Hit, Ranking, SearchPage, SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Person

NOON = datetime(2026, 3, 5, 12, 0, tzinfo=UTC)
PLAIN = Ranking(meaning_weight=0.0, neighbours=False)
"""Words alone."""
MEANT = Ranking(neighbours=False)


async def post(client: httpx.AsyncClient, person: Person, path: str, /, **fields: object) -> httpx.Response:
    """Asked of his project, unless `projectId` or `projects` says otherwise."""
    body = fields if fields.keys() & {"projectId", "projects"} else {"projectId": person.project.canonical_id, **fields}
    return await client.post(path, json=body, headers=person.headers)


async def post_search(client: httpx.AsyncClient, person: Person, query: str, **fields: object) -> Any:
    """The answer of POST /v1/search; all that fits at all is in it, unless something else is asked."""
    response = await post(client, person, "/v1/search", query=query, **{"minScore": 0, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def search_numbers(client: httpx.AsyncClient, person: Person, query: str, **fields: object) -> list[int]:
    """The numbers of the observations, the best first."""
    return [observation["number"] for observation in (await post_search(client, person, query, **fields))["observations"]]


async def run_search(
    db: Db,
    person: Person,
    query: str,
    *,
    ranking: Ranking = PLAIN,
    sought: QueryVector | None = None,
    filters: Filters | None = None,
    limit: int = 100,
    min_score: float = 0.0,
) -> SearchPage:
    """What `find` finds in his project."""
    project_ids = [person.project.id]
    request = SearchRequest(query=query, project_ids=project_ids, filters=filters or Filters(), limit=limit, min_score=min_score)
    async with db.tenant(person.team_id) as conn:
        return await find_page(conn, person.principal, request, ranking, sought)


def numbers(page: SearchPage) -> list[int]:
    return [hit.observation.number for hit in page.hits if hit.observation]


def hit_of(page: SearchPage, observation: Observation) -> Hit:
    (hit,) = [hit for hit in page.hits if hit.id == observation.id]
    return hit


class Vectors:
    """A model that is in use, and vectors of it that tests give by hand: each of two dimensions."""

    def __init__(self, database: str) -> None:
        self._database = database
        (row,) = self._run(
            "INSERT INTO embedding_models (provider, model, dimensions, state, is_backfilled)"
            " VALUES ('ollama', 'by-hand', 2, 'current', true) RETURNING id"
        )
        self.model_id = int(row[0])

    def give(self, text: Observation | SessionTurn, vector: Sequence[float]) -> None:
        self.give_to("turn" if isinstance(text, SessionTurn) else "observation", text.id, vector)

    def give_to(self, kind: str, id_: UUID, vector: Sequence[float]) -> None:
        table = "entities" if kind == "entity" else f"{kind}s"
        self._run(
            f"INSERT INTO observation_embeddings ({kind}_id, model_id, team_id, project_id, embedding, embedded_at)"
            f" SELECT id, %s, team_id, project_id, %s::halfvec, now() FROM {table} WHERE id = %s"
            f" ON CONFLICT ({kind}_id, model_id) WHERE {kind}_id IS NOT NULL"
            " DO UPDATE SET embedding = excluded.embedding RETURNING 1",
            self.model_id,
            str(list(vector)),
            id_,
        )

    def near(self, *vector: float) -> QueryVector:
        return QueryVector(model_id=self.model_id, provider="local", dimensions=2, vector=str(list(vector)))

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database, autocommit=True) as conn:
            return conn.execute(statement.encode(), values).fetchall()
