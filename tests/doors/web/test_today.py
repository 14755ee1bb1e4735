"""The page Today: what ran, filtered by project, and a note to remember."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import httpx

from cmserver.access import repository as access
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.models.calls import repository as calls
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.make import Make


async def start_session(client: httpx.AsyncClient, cast: Cast, name: str = "s1") -> None:
    body = {"projectId": str(cast.alice.project.id), "externalSessionId": name, "platformSource": "claude-code"}
    answer = await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)
    assert answer.status_code < 300, answer.text


async def test_a_running_session_shows_with_its_project(app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast):
    await start_session(client, cast)
    alice = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await alice.get("/ui")

    assert page.status_code == 200
    assert re.search(r"No prompt; started \d\d:\d\d UTC</a>", page.text)
    assert cast.alice.project.name in page.text


async def test_each_project_shows_its_sessions_with_their_newest_summary(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, make: Make
):
    await start_session(client, cast)
    body = {"projectId": "github.com/acme/shop", "externalSessionId": "s2", "platformSource": "codex"}
    session = (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).json()["session"]
    async with db.tenant(cast.alice.team_id) as conn:
        shop = await access.project(conn, cast.alice.team_id, UUID(session["projectId"]))
    assert shop is not None
    made: Any = {"project": shop, "title": None, "kind": "summary", "server_session_id": UUID(session["id"])}
    await make.observation(summary={"completed": "Began to look."}, content="a", **made)
    await make.observation(summary={"request": "Fix it", "completed": "Fixed the double charge."}, content="b", **made)
    alice = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await alice.get("/ui")

    shop_part, orders_part = re.findall(r"<section aria-labelledby=\"project-.*?</section>", page.text, re.DOTALL)
    assert [re.findall(r"<h2[^>]*><a[^>]*>(.*?)</a>", part)[0] for part in (shop_part, orders_part)] == ["shop", "orders"]
    assert "Fixed the double charge." in shop_part
    assert "Began to look." not in page.text
    assert "1 session, 1 running" in orders_part
    assert "charge" not in orders_part


async def test_a_paused_provider_waits_for_somebody(app: AsgiFrame, db: Db, cast: Cast):
    async with db.system() as conn:
        await calls.pause_provider(conn, "anthropic", "quota_exhausted", "Used up.", 3600)
    alice = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await alice.get("/ui")

    assert '<a href="/ui/jobs/providers">The provider anthropic is paused</a>' in page.text


async def test_a_note_is_stored_as_laid_down_and_the_page_says_its_number(
    app: AsgiFrame, db: Db, cast: Cast, client: httpx.AsyncClient
):
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    page = await alice.post("/ui/notes", project=cast.alice.project.id, text="The orders queue is called orders-v2")
    index = (await client.get("/v1/context", params={"project": str(cast.alice.project.id)}, headers=cast.alice.headers)).text

    assert page.status_code == 200
    assert "Kept as #1. Agents of the project are told this rule first." in page.text
    assert "Laid down by users, the newest first\\n#1 decision The orders queue is called orders-v2" in index


async def test_a_refused_note_keeps_what_was_typed(app: AsgiFrame, db: Db, cast: Cast):
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    page = await alice.post("/ui/notes", project="no such project", text="Something worth keeping")

    assert page.status_code in (400, 404)
    assert "Something worth keeping" in page.text
