"""A session belongs to the project of its first call, whatever its folder is called later; an event is one, even if sent twice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to
from tests.rows import rows

HOOK = "/v1/hooks/claude-code"
FOLDER = "/home/alice/src/orders"
NAMES: dict[str, dict[str, str]] = {
    "the folder": {},
    "a repository above it": {"Root": "/home/alice/src"},
    "a first remote": {"Root": FOLDER, "Git-Remote": "git@github.com:acme/orders.git"},
    "a .cmserver.toml": {"Root": FOLDER, "Git-Remote": "git@github.com:acme/orders.git", "Project": "the shop"},
    "a work tree that is gone": {"Root": "/home/alice/src/task"},
}
"""What the hook client may say of one folder while a session goes on."""
SAID = "The root cause was that the retry counter was never reset."


async def call(
    client: httpx.AsyncClient,
    key: str,
    event: str,
    session: str = "s1",
    *,
    headers: dict[str, str] | None = None,
    agent: str = "claude-code",
    seconds_ago: float | None = None,
    status: int = 200,
    **fields: object,
) -> None:
    body = {"hook_event_name": event, "session_id": session, "cwd": FOLDER, **fields}
    sent = {f"X-Cmserver-{name}": value for name, value in (headers or {}).items()} | {"x-api-key": key}
    if seconds_ago is not None:
        sent["X-Cmserver-Sent-At"] = str(int((time.time() - seconds_ago) * 1000))
    response = await client.post(f"/v1/hooks/{agent}", json=body, headers=sent)
    assert response.status_code == status, response.text


async def places(db: Db) -> list[tuple[str, str, int]]:
    """Of each session its agent's id, its project, and how many events it has."""
    found = await rows(
        db,
        "SELECT s.external_session_id AS session, p.canonical_id AS project, (SELECT count(*) FROM agent_events e"
        " WHERE e.server_session_id = s.id AND e.project_id = s.project_id) AS events FROM server_sessions s"
        " JOIN projects p ON p.id = s.project_id ORDER BY p.canonical_id, s.created_at",
    )
    return [(row["session"], row["project"], row["events"]) for row in found]


@pytest.mark.parametrize("first", NAMES)
async def test_a_session_stays_in_the_project_of_its_first_call(client: httpx.AsyncClient, cast: Cast, db: Db, first: str):
    await call(client, cast.alice.key, "SessionStart", headers=NAMES[first], source="startup")
    for number, headers in enumerate(NAMES.values()):
        await call(client, cast.alice.key, "PostToolUse", headers=headers, tool_use_id=f"t{number}", tool_name="Write")
    for headers in NAMES.values():
        await call(client, cast.alice.key, "SessionEnd", headers=headers, reason="other", cwd="/elsewhere")

    (session,) = await places(db)
    assert session[2] >= 1 + len(NAMES)
    assert await rows(
        db, "SELECT count(*) AS n FROM projects p WHERE EXISTS (SELECT FROM agent_events WHERE project_id = p.id)"
    ) == [{"n": 1}]
    assert await rows(db, "SELECT ended_at IS NOT NULL AS ended FROM server_sessions") == [{"ended": True}]


async def test_hooks_that_begin_a_session_at_once_under_two_names_begin_one(client: httpx.AsyncClient, cast: Cast, db: Db):
    await asyncio.gather(
        *(
            call(client, cast.alice.key, "PostToolUse", headers=headers, tool_use_id=f"t{number}", tool_name="Write")
            for number, headers in enumerate([*NAMES.values()] * 3)
        )
    )

    (session,) = await places(db)
    assert session[2] == 3 * len(NAMES)


async def test_another_agent_and_another_team_with_the_same_id_are_other_sessions(client: httpx.AsyncClient, cast: Cast, db: Db):
    await call(client, cast.alice.key, "SessionStart", source="startup")
    await call(client, cast.alice.key, "SessionStart", source="startup", agent="codex", headers={"Project": "other"})
    await call(client, cast.charlie.key, "SessionStart", source="startup")
    await call(client, cast.bob.key, "Stop", headers={"Project": "third"}, last_assistant_message="ok")

    found = sorted((project, events) for _, project, events in await places(db))
    assert found == [(FOLDER, 1), (FOLDER, 2), ("other", 1)]


async def test_a_key_that_is_bound_to_a_project_has_sessions_of_its_own(client: httpx.AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, cast.alice.project.canonical_id)
    await call(client, cast.alice.key, "SessionStart", source="startup")

    await call(client, bound.key, "PostToolUse", tool_use_id="t1", tool_name="Write")
    await call(client, cast.alice.key, "PostToolUse", tool_use_id="t2", tool_name="Write", headers=NAMES["a first remote"])

    assert [(project, events) for _, project, events in await places(db)] == [
        (FOLDER, 2),
        (cast.alice.project.canonical_id, 1),
    ]


async def test_an_api_call_that_names_a_project_means_that_project(client: httpx.AsyncClient, cast: Cast, db: Db):
    await call(client, cast.alice.key, "SessionStart", source="startup")

    async def start(project: str) -> dict[str, Any]:
        body = {"projectId": project, "externalSessionId": "s1", "contentSessionId": "s1", "platformSource": "claude-code"}
        return (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).json()["session"]

    same, other = await start(FOLDER), await start("another")
    await call(client, cast.alice.key, "PostToolUse", tool_use_id="t1", tool_name="Write", headers=NAMES["a .cmserver.toml"])

    assert same["id"] != other["id"]
    assert [(project, events) for _, project, events in await places(db)] == [(FOLDER, 2), ("another", 0)]


async def test_a_hook_goes_on_with_what_the_api_began(client: httpx.AsyncClient, cast: Cast, db: Db):
    body = {"projectId": "the tools", "externalSessionId": "s1", "contentSessionId": "s1", "platformSource": "claude-code"}
    assert (await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)).status_code == 201

    for number, headers in enumerate(NAMES.values()):
        await call(client, cast.alice.key, "PostToolUse", tool_use_id=f"t{number}", tool_name="Write", headers=headers)

    assert [(project, events) for _, project, events in await places(db)] == [("the tools", len(NAMES))]


async def test_a_session_whose_project_is_archived_is_refused_and_one_whose_project_was_deleted_begins_anew(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    await call(client, cast.alice.key, "SessionStart", source="startup")
    (project,) = await rows(db, "SELECT project_id AS id FROM server_sessions")
    path = f"/v1/projects/{project['id']}"

    await client.patch(path, json={"archived": True}, headers=cast.alice.headers)
    await call(client, cast.alice.key, "Stop", headers={"Project": "new"}, status=409, last_assistant_message="ok")
    await client.patch(path, json={"archived": False}, headers=cast.alice.headers)
    await call(client, cast.alice.key, "Stop", headers={"Project": "new"}, last_assistant_message="ok")
    await client.delete(path, headers=cast.alice.headers)
    await call(client, cast.alice.key, "Stop", headers={"Project": "new"}, last_assistant_message="again")

    assert await places(db) == [("s1", "new", 1)]


async def count_events(db: Db) -> dict[str, int]:
    return {row["event_type"]: row["n"] for row in await rows(db, "SELECT event_type, count(*) AS n FROM agent_events GROUP BY 1")}


@pytest.mark.parametrize("turn", [{"prompt_id": "p1"}, {}], ids=["with a prompt's id", "without"])
async def test_hooks_that_run_twice_are_one_event(client: httpx.AsyncClient, cast: Cast, db: Db, turn: dict[str, Any]):
    """Two processes of the same hook, each with its own delivery, milliseconds apart."""
    said: list[tuple[str, dict[str, Any]]] = [
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "From now on always use pnpm, never npm."}),
        ("PostToolUse", {"tool_use_id": "t1", "tool_name": "Write"}),
        ("PreCompact", {"trigger": "auto"}),
        ("Stop", {"last_assistant_message": SAID}),
        ("StopFailure", {"error": "unknown"}),
        ("SessionEnd", {"reason": "other"}),
    ]
    for event, fields in said:
        await asyncio.gather(
            *(
                call(client, cast.alice.key, event, headers={"Delivery": f"{event}-{nth}"}, seconds_ago=nth / 50, **turn, **fields)
                for nth in range(4)
            )
        )

    assert set((await count_events(db)).values()) == {1}
    assert len(await count_events(db)) == len(said)
    assert await rows(db, "SELECT count(*) AS n FROM turns") == [{"n": 1}]


async def test_the_same_words_later_are_new_and_so_are_other_words_and_other_sessions(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    for session, prompt, seconds_ago in [
        ("s1", "go on", 60),
        ("s1", "go on", 58.5),  # one
        ("s1", "go on", 57.9),  # after more than two seconds
        ("s1", "go on!", 60),
        ("s2", "go on", 60),
    ]:
        await call(client, cast.alice.key, "UserPromptSubmit", session, prompt=prompt, seconds_ago=seconds_ago)

    assert await count_events(db) == {"user_prompt": 4}


async def test_a_prompt_s_id_tells_the_same_words_apart_and_other_words_of_one_prompt(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    for prompt_id, said, seconds_ago in [("p1", "ok", 60), ("p1", "ok", 1), ("p2", "ok", 60), ("p1", "done", 60)]:
        await call(client, cast.alice.key, "Stop", prompt_id=prompt_id, last_assistant_message=said, seconds_ago=seconds_ago)

    assert await count_events(db) == {"assistant_message": 3}


async def test_a_payload_that_is_delivered_again_under_another_name_is_known(client: httpx.AsyncClient, cast: Cast, db: Db):
    """As a spool does it whose server took the payload without an answer."""
    sent_at = str(int(time.time() * 1000) - 60_000)
    for headers in NAMES.values():
        sent = {**headers, "Sent-At": sent_at}
        await call(client, cast.alice.key, "Stop", headers=sent, last_assistant_message=SAID)
        await call(client, cast.alice.key, "Stop", headers=sent, last_assistant_message=SAID, prompt_id="p1")

    assert await count_events(db) == {"assistant_message": 2}


async def test_what_a_bound_key_began_goes_on_where_it_is(client: httpx.AsyncClient, cast: Cast, db: Db):
    bound = await bound_to(db, cast.alice, cast.alice.project.canonical_id)
    await call(client, bound.key, "Stop", last_assistant_message="first")
    await call(client, cast.alice.key, "Stop", last_assistant_message="ok", headers={"Project": "new"})

    assert [(project, events) for _, project, events in await places(db)] == [(cast.alice.project.canonical_id, 2)]
