"""The pages of sessions: a list by day, the time line of one, what it was told, and single events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.clicks import parse
from tests.doors.web.visitor import Visitor, visit_as
from tests.make import Make


@pytest.fixture
async def alice(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member")


async def send_hook(client: httpx.AsyncClient, cast: Cast, name: str, **fields: object) -> None:
    payload = {"hook_event_name": name, "session_id": "agents-own-id", "cwd": "/work/orders", **fields}
    headers = {**cast.alice.headers, "X-Cmserver-Project": "github.com/acme/orders"}
    answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def session_id(client: httpx.AsyncClient, cast: Cast, make: Make) -> str:
    """A session of Claude Code that was told of observation 1, with a prompt and a command."""
    await make.observation(project=cast.alice.project, title="The queue is called orders-v2")
    await send_hook(client, cast, "SessionStart", source="startup")
    await send_hook(client, cast, "UserPromptSubmit", prompt="Why do the orders tests fail?")
    await send_hook(
        client,
        cast,
        "PostToolUse",
        tool_name="Bash",
        tool_input={"command": "pytest tests/orders"},
        tool_response={"stdout": "1 failed"},
        tool_use_id="t1",
    )
    sessions = (await client.get("/v1/sessions", headers=cast.alice.headers)).json()["sessions"]
    found: str = sessions[0]["id"]
    return found


def forms(page: httpx.Response) -> list[str]:
    (main,) = parse(page.text).find_all("main")
    return [form.attributes["action"] for form in main.find_all("form") if form.attributes.get("method") == "post"]


async def test_an_empty_list_says_the_next_command(alice: Visitor):
    page = await alice.get("/ui/sessions")

    assert "cmserver connect claude-code" in page.text


async def test_sessions_stand_under_their_days_and_can_be_filtered(db: Db, alice: Visitor, session_id: str):
    async with db.system() as conn:
        await conn.execute("UPDATE server_sessions SET started_at = %s", [datetime.now(UTC) - timedelta(days=1)])

    listed = await alice.get("/ui/sessions")
    others = await alice.get("/ui/sessions?platform=codex")

    assert "<h2>Yesterday</h2>" in listed.text
    assert "Why do the orders tests fail?" in listed.text
    assert "No session fits" in others.text


async def test_a_session_without_a_prompt_is_known_by_what_it_did(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, alice: Visitor
):
    await send_hook(client, cast, "SessionStart", source="startup")
    (session,) = (await client.get("/v1/sessions", headers=cast.alice.headers)).json()["sessions"]
    for files in (["a.py", "b.py"], ["b.py", "c.py"], None):
        await make.observation(
            project=cast.alice.project, content=str(files), server_session_id=UUID(session["id"]), files_modified=files
        )
    async with db.system() as conn:
        await conn.execute("UPDATE server_sessions SET started_at = '2026-01-02 14:02+00'")

    label = "No prompt; started 2026-01-02 14:02 UTC, 3 files edited"
    for path in ("/ui/sessions", f"/ui/sessions/{session['id']}", f"/ui/observations?session={session['id']}"):
        assert label in (await alice.get(path)).text, path


async def test_many_sessions_come_in_pages(client: httpx.AsyncClient, cast: Cast, alice: Visitor):
    for number in range(51):
        body = {"projectId": str(cast.alice.project.id), "externalSessionId": f"s{number}"}
        await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)

    page = await alice.get("/ui/sessions")

    assert "Next page" in page.text
    assert len(page.content) < 100_000


async def test_one_has_its_time_line_and_what_it_was_told(alice: Visitor, session_id: str):
    page = await alice.get(f"/ui/sessions/{session_id}")

    assert alice.title(page) == "Why do the orders tests fail?"
    for text in ("pytest tests/orders", "when the session started", "/work/orders", "agents-own-id"):
        assert text in page.text


async def test_the_id_that_its_agent_gave_it_leads_there_too(alice: Visitor, session_id: str):
    page = await alice.get("/ui/sessions/agents-own-id")

    assert alice.title(page) == "Why do the orders tests fail?"


async def test_a_receipt_says_line_by_line_what_was_told_and_what_was_read_since(
    client: httpx.AsyncClient, db: Db, cast: Cast, alice: Visitor, session_id: str
):
    page = await alice.get(f"/ui/sessions/{session_id}/receipts")
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET last_accessed_at = now()")
    read = await alice.get(f"/ui/sessions/{session_id}/receipts")

    assert "The queue is called orders-v2" in page.text
    assert "recency" in page.text
    assert ">read</span>" not in page.text
    assert ">read</span>" in read.text


async def test_an_observation_of_an_event_stands_beside_it(db: Db, cast: Cast, make: Make, alice: Visitor, session_id: str):
    async with db.system() as conn:
        found = await conn.execute("SELECT id FROM agent_events WHERE payload ? 'tool_name'")
        row = await found.fetchone()
    assert row is not None
    from_event = row[0]
    session = UUID(session_id)
    await make.observation(project=cast.alice.project, title="One test fails", from_event=from_event, server_session_id=session)

    page, event = await alice.get(f"/ui/sessions/{session_id}"), await alice.get(f"/ui/events/{from_event}")

    assert "Made: <a" in page.text
    assert "One test fails" in page.text
    assert "One test fails" in event.text
    assert "1 failed" in event.text


async def test_a_session_gets_a_title_and_loses_it(alice: Visitor, session_id: str):
    named = await alice.post(f"/ui/sessions/{session_id}/rename", title="The failing tests")
    unnamed = await alice.post(f"/ui/sessions/{session_id}/rename", title="")

    assert alice.title(named) == "The failing tests"
    assert alice.title(unnamed) == "Why do the orders tests fail?"


async def test_a_title_that_is_too_long_is_refused_and_kept_in_the_form(alice: Visitor, session_id: str):
    page = await alice.post(f"/ui/sessions/{session_id}/rename", title="x" * 201)

    assert page.status_code == 400
    assert "x" * 201 in page.text


async def test_a_session_is_ended(alice: Visitor, session_id: str):
    before = await alice.get(f"/ui/sessions/{session_id}")
    ended = await alice.post(f"/ui/sessions/{session_id}/end")

    assert f"/ui/sessions/{session_id}/end" in forms(before)
    assert "The session is ended" in ended.text
    assert f"/ui/sessions/{session_id}/end" not in forms(ended)


async def test_a_session_is_deleted_after_its_count(client: httpx.AsyncClient, cast: Cast, alice: Visitor, session_id: str):
    path = f"/ui/sessions/{session_id}/delete"

    page = await alice.get(path)
    unsure = await alice.post(path, events=3, confirm="delete")
    kept = await alice.get(f"/ui/sessions/{session_id}")
    gone = await alice.post(path, events=3, confirm="delete 3 events")

    assert "Type <code>delete 3 events</code> to confirm" in page.text
    assert (unsure.status_code, kept.status_code) == (400, 200)
    assert "The session is deleted, with 3 events and 0 observations." in gone.text
    assert (await alice.get(f"/ui/sessions/{session_id}")).status_code == 404
    assert (await client.get("/v1/events", headers=cast.alice.headers)).json()["events"] == []


async def test_an_owner_moves_a_session_to_another_project(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, alice: Visitor, session_id: str
):
    body = {"canonicalId": "github.com/acme/shop"}
    shop = (await client.post("/v1/projects", json=body, headers=cast.alice.headers)).json()["project"]["id"]
    owner = await visit_as(app, db, cast.alice.team_id, "owner")
    path = f"/ui/sessions/{session_id}/move"

    refused = await alice.post(path, into=shop)
    moved = await owner.post(path, into=shop)

    assert path not in forms(await alice.get(f"/ui/sessions/{session_id}"))
    assert refused.status_code == 403
    assert "The session is moved" in moved.text
    assert f'<a href="/ui/projects/{shop}">shop</a>' in (await owner.get(f"/ui/sessions/{session_id}")).text


async def test_hostile_prompts_stay_text(client: httpx.AsyncClient, cast: Cast, alice: Visitor, session_id: str):
    await send_hook(client, cast, "UserPromptSubmit", prompt="<script>alert(1)</script>\u202e" + "z" * 5_000)
    rows = (await client.get("/v1/events?type=user_prompt", headers=cast.alice.headers)).json()["events"]

    page = await alice.get(f"/ui/sessions/{session_id}")
    events = [await alice.get(f"/ui/events/{row['id']}") for row in rows]

    for shown in (page, *events):
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text
        assert "\u202e" not in shown.text


async def test_an_event_whose_content_is_emptied_says_so(
    db: Db, client: httpx.AsyncClient, cast: Cast, alice: Visitor, session_id: str
):
    rows = (await client.get("/v1/events", headers=cast.alice.headers)).json()["events"]
    async with db.system() as conn:
        await conn.execute("UPDATE agent_events SET payload = '{}', payload_purged_at = now()")

    page, event = await alice.get(f"/ui/sessions/{session_id}"), await alice.get(f"/ui/events/{rows[0]['id']}")

    assert "emptied by retention" in page.text
    assert "emptied by retention" in event.text


async def test_a_viewer_sees_the_session_without_forms(app: AsgiFrame, db: Db, cast: Cast, session_id: str):
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get(f"/ui/sessions/{session_id}")
    answers = [await viewer.post(f"/ui/sessions/{session_id}/{act}") for act in ("rename", "end", "move", "delete")]

    assert page.status_code == 200
    assert forms(page) == []
    assert [answer.status_code for answer in answers] == [403] * 4
