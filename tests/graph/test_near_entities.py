"""Entities are found by what they mean: beside those that have the words in a name, and in no other project or team."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import QueryVector
from cmserver.embeddings.query_embedder import QueryEmbedder
from tests.conftest import Cast, Person, bound_to
from tests.graph.test_api import Api
from tests.recall.search.conftest import vectors
from tests.recall.search.tools import Vectors
from tests.rows import rows

__all__ = ["vectors"]


@pytest.fixture
def api(client: httpx.AsyncClient, cast: Cast, vectors: Vectors, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Every query means the same."""

    async def embed(_self: QueryEmbedder, _query: str, *, team_id: UUID | None = None) -> QueryVector:
        return vectors.near(1, 0)

    monkeypatch.setattr(QueryEmbedder, "embed", embed)
    return Api(client, cast.alice)


async def make_entity(client: httpx.AsyncClient, person: Person, name: str, type_: str, notes: str | None = None) -> UUID:
    body = {"projectId": str(person.project.id), "name": name, "type": type_, "notes": notes}
    answer = await client.post("/v1/entities", json=body, headers=person.headers)
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["entity"]["id"])


async def test_what_means_the_like_follows_what_has_the_name(
    api: Api, client: httpx.AsyncClient, db: Db, cast: Cast, vectors: Vectors
):
    there = {
        name: await make_entity(client, cast.alice, name, type_)
        for name, type_ in (("RabbitMQ", "technology"), ("Ana", "person"), ("the broker", "concept"), ("a broker of maps", "place"))
    }
    theirs = await make_entity(client, cast.charlie, "NATS", "technology")
    secret = await bound_to(db, cast.alice, "github.com/acme/secret")
    hidden = await make_entity(client, secret, "Kafka", "technology")
    await api("PATCH", f"/projects/{secret.project.id}", {"isolated": True})
    far = [0.0, 1.0]
    for name, entity_id in there.items():
        vectors.give_to("entity", entity_id, [1.0, 0.1] if name == "RabbitMQ" else far)
    for entity_id in (theirs, hidden):
        vectors.give_to("entity", entity_id, [1.0, 0.0])
    await api("POST", f"/entities/{there['the broker']}/merge", {"intoId": str(there["Ana"])})

    assert await api.names(search="broker") == ["Ana", "a broker of maps", "RabbitMQ"]
    assert await api.names(search="broker", type="technology") == ["RabbitMQ"]
    assert await api.names(search="rabbit") == ["RabbitMQ"]
    found = await client.get("/entities/by-type/technology", params={"q": "message queue"}, headers=cast.alice.headers)
    assert [entity["name"] for entity in found.json()] == ["RabbitMQ"]
    assert await Api(client, secret).names(search="message queue") == ["Kafka"]


async def test_an_entity_waits_for_its_vector_from_its_first_moment_and_again_when_its_notes_change(
    api: Api, client: httpx.AsyncClient, db: Db, cast: Cast, vectors: Vectors
):
    await make_entity(client, cast.alice, "src/queue.py", "file")
    entity_id = await make_entity(client, cast.alice, "RabbitMQ", "technology")
    waiting = "SELECT entity_id, is_outdated FROM observation_embeddings WHERE embedding IS NULL OR is_outdated"
    at_first = await rows(db, waiting)
    vectors.give_to("entity", entity_id, [1.0, 0.0])
    embedded = await rows(db, waiting)
    status = (await api("GET", "/embeddings"))["embeddings"]["waiting"]
    await api("PATCH", f"/entities/{entity_id}", {"notes": "carries the jobs"})
    changed = await rows(db, waiting)
    await api("DELETE", f"/entities/{entity_id}")

    assert [row["entity_id"] for row in at_first] == [entity_id], "of a file the name says all"
    assert (embedded, status) == ([], 0)
    assert [(row["entity_id"], row["is_outdated"]) for row in changed] == [(entity_id, True)]
    assert await rows(db, "SELECT 1 AS one FROM observation_embeddings") == []


async def test_a_new_model_gets_entities_and_a_retired_one_loses_them(
    api: Api, client: httpx.AsyncClient, db: Db, cast: Cast, vectors: Vectors
):
    entity_id = await make_entity(client, cast.alice, "RabbitMQ", "technology")
    await make_entity(client, cast.alice, "src/queue.py", "file")
    added = "INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'next', 'building') RETURNING id"
    (model,) = await rows(db, added)
    of_model = "SELECT entity_id FROM observation_embeddings WHERE model_id = %s"

    waiting = (await api("GET", "/embeddings"))["embeddings"]
    await db.in_system(lambda conn: embeddings.backfill(conn, model["id"], 100))
    queued = await rows(db, of_model, model["id"])
    claimed = await db.in_system(lambda conn: embeddings.claim(conn, model["id"], 10, 60))
    await rows(db, "UPDATE embedding_models SET state = 'retired', backfilled_to = NULL WHERE id = %s RETURNING id", model["id"])
    await db.in_system(lambda conn: embeddings.clear(conn, model["id"], 100))

    assert waiting["building"]["waiting"] == 1
    assert [row["entity_id"] for row in queued] == [entity_id]
    assert [text for _, text in claimed] == ["RabbitMQ (technology)"]
    assert await rows(db, of_model, model["id"]) == []
