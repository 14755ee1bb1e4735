"""`cmserver sessions`."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.ops.erasure.wire import DeletedSessionOut
from cmserver.sessions.wire import OneSessionOut
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make


@pytest.fixture
async def session(client: httpx.AsyncClient, cast: Cast) -> str:
    """A session of Alice's that has not ended."""
    body = {"projectId": "github.com/acme/orders", "contentSessionId": "s-1", "platformSource": "claude"}
    answer = await client.post("/v1/sessions/start", headers=cast.alice.headers, json=body)
    assert answer.status_code == 201, answer.text
    return str(msgspec.json.decode(answer.content, type=OneSessionOut).session.id)


async def test_sessions_are_listed(cms: Cms, cast: Cast, session: str):
    said = await cms("sessions", "list", "--project", "github.com/acme/orders", "--platform", "claude", key=cast.alice.key)

    assert said.column("id") == [session]
    assert (await cms("sessions", "list", "--platform", "codex", key=cast.alice.key)).out == "There are no such sessions.\n"


async def test_a_session_is_ended_and_no_longer_active(cms: Cms, cast: Cast, session: str):
    active = await cms("sessions", "list", "--active", key=cast.alice.key)
    ended = await cms("sessions", "end", session, "--json", key=cast.alice.key)
    again = await cms("sessions", "end", session, key=cast.alice.key)
    no_more = await cms("sessions", "list", "--active", key=cast.alice.key)
    shown = await cms("sessions", "show", session, key=cast.alice.key)

    assert active.column("id") == [session]
    assert ended.read(OneSessionOut).session.ended_at_epoch is not None
    assert again.code == 0
    assert no_more.out == "There are no such sessions.\n"
    assert "agent's id         s-1\n" in shown.out


async def test_a_session_is_renamed(cms: Cms, cast: Cast, session: str):
    renamed = await cms("sessions", "rename", session, "Retry the upload", key=cast.alice.key)
    listed = await cms("sessions", "list", key=cast.alice.key)
    untitled = await cms("sessions", "rename", session, "--json", key=cast.alice.key)

    assert "Retry the upload" in renamed.out
    assert listed.column("title") == ["Retry the upload"]
    assert untitled.read(OneSessionOut).session.title is None


async def test_a_session_is_listed_by_its_project_and_its_first_prompt(
    cms: Cms, client: httpx.AsyncClient, cast: Cast, session: str
):
    for text in ("retry the\nupload", "and now a test"):
        event = {
            "projectId": "github.com/acme/orders",
            "contentSessionId": "s-1",
            "platformSource": "claude",
            "sourceType": "hook",
            "eventType": "user_prompt",
            "occurredAtEpoch": 1_750_000_000_000,
            "payload": {"prompt": text},
        }
        assert (await client.post("/v1/events", headers=cast.alice.headers, json=event)).status_code == 201

    said = await cms("sessions", "list", key=cast.alice.key)

    assert said.column("project") == ["github.com/acme/orders"]
    assert said.column("title") == ["retry the upload"]


async def test_what_a_session_was_told_is_listed(cms: Cms, cast: Cast, client: httpx.AsyncClient, make: Make, session: str):
    nothing = await cms("sessions", "context", session, key=cast.alice.key)
    await make.observation(project=cast.alice.project, title="The pool waits", type="decision")
    await client.get("/v1/context", params={"session": session, "source": "startup"}, headers=cast.alice.headers)

    said = await cms("sessions", "context", "s-1", key=cast.alice.key)

    assert nothing.out.count("\n") == 1
    assert said.column("because of") == ["startup"]
    assert said.column("observations") == ["#1"]


async def test_a_session_is_moved_and_deleted_after_a_count(cms: Cms, cast: Cast, session: str):
    moved = await cms("sessions", "move", session, "github.com/acme/orders", "--yes", "--json", key=cast.alice.key)
    nowhere = await cms("sessions", "move", session, "github.com/acme/nowhere", "--yes", key=cast.alice.key)
    counted = await cms("sessions", "delete", session, "--dry-run", "--json", key=cast.alice.key)
    unsure = await cms("sessions", "delete", session, key=cast.alice.key)
    deleted = await cms("sessions", "delete", session, "--yes", key=cast.alice.key)

    assert moved.read(OneSessionOut).session.project_id == cast.alice.project.id
    assert nowhere.code != 0
    assert not counted.read(DeletedSessionOut).deleted
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    assert "The session is deleted." in deleted.out
    assert (await cms("sessions", "list", key=cast.alice.key)).out == "There are no such sessions.\n"
