"""PATCH /v1/sessions/{id}: a title."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, Person
from tests.rows import rows
from tests.sessions.test_api import start


async def rename(client: httpx.AsyncClient, person: Person, session: object, title: object) -> httpx.Response:
    return await client.patch(f"/v1/sessions/{session}", json={"title": title}, headers=person.headers)


async def test_a_session_gets_a_title_keeps_it_and_loses_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    session = await start(client, cast.alice, "s1")
    assert session["title"] is None

    renamed = (await rename(client, cast.bob, session["id"], "Retry  the\nupload")).json()["session"]
    again = await rename(client, cast.bob, "s1", "Retry the upload")
    started = await start(client, cast.alice, "s1")
    listed: Any = (await client.get("/v1/sessions", headers=cast.alice.headers)).json()
    untitled = (await rename(client, cast.alice, session["id"], None)).json()["session"]

    assert renamed == {**session, "title": "Retry the upload", "updatedAtEpoch": renamed["updatedAtEpoch"]}
    assert again.json()["session"] == renamed
    assert started["title"] == listed["sessions"][0]["title"] == "Retry the upload"
    assert untitled["title"] is None
    audited = await rows(db, "SELECT actor_id, resource_id FROM audit_log WHERE action = 'session.renamed' ORDER BY id")
    assert [tuple(row.values()) for row in audited] == [("bob", session["id"]), ("alice", session["id"])]


async def test_no_secret_is_kept_in_a_title(client: httpx.AsyncClient, cast: Cast):
    session = await start(client, cast.alice, "s1")
    secret = "sk-ant-api03-" + "abcDEF123456_" * 7 + "AA"

    renamed = (await rename(client, cast.alice, session["id"], f"Use {secret}")).json()["session"]

    assert renamed["title"].startswith("Use ")
    assert secret not in renamed["title"]


@pytest.mark.parametrize(("body", "path"), [({"title": ""}, "$.title"), ({"title": " \n"}, "$.title")])
async def test_a_title_that_cannot_be_kept_is_refused(client: httpx.AsyncClient, cast: Cast, body: dict[str, str], path: str):
    session = await start(client, cast.alice, "s1")

    response = await client.patch(f"/v1/sessions/{session['id']}", json=body, headers=cast.alice.headers)

    assert response.status_code == 400
    assert response.json()["issues"][0]["path"] == path
