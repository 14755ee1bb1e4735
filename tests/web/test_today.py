"""The page Today: what ran, filtered by project, and a note to remember."""

from __future__ import annotations

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.web.visitor import visit_as


async def start_session(client: httpx.AsyncClient, cast: Cast, name: str = "s1") -> None:
    body = {"projectId": str(cast.alice.project.id), "externalSessionId": name, "platformSource": "claude-code"}
    answer = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)
    assert answer.status_code < 300, answer.text


async def test_a_running_session_shows_with_its_project(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    await start_session(client, cast)
    alice = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await alice.get("/ui")

    assert page.status_code == 200
    assert "Session without a prompt" in page.text
    assert cast.alice.project.name in page.text


async def test_another_team_sees_nothing_of_it(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    await start_session(client, cast)
    charlie = await visit_as(app, db, cast.charlie.team_id)

    page = await charlie.get("/ui")

    assert "Session without a prompt" not in page.text


async def test_a_note_is_stored_and_the_page_says_its_number(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    page = await alice.post("/ui/notes", project=cast.alice.project.id, text="The orders queue is called orders-v2")

    assert page.status_code == 200
    assert "Stored as 1." in page.text


async def test_a_refused_note_keeps_what_was_typed(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    page = await alice.post("/ui/notes", project="no such project", text="Something worth keeping")

    assert page.status_code in (400, 404)
    assert "Something worth keeping" in page.text


async def test_a_viewer_may_not_store_a_note(app: AsgiFrame, db: Db, cast: Cast):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.post("/ui/notes", project=cast.alice.project.id, text="x")

    assert page.status_code == 403
