"""Which project a hook's events are of: what the hook client knows of the folder comes in headers."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, mint

HOOK = "/v1/hooks/claude-code"
REMOTE = "X-Cmserver-Git-Remote"
BEFORE = "X-Cmserver-Git-Remote-Before"


async def send(client: httpx.AsyncClient, key: str, session: str = "s1", /, **headers: str | bytes) -> httpx.Response:
    """A prompt from /home/alice/src/orders; the headers' names without `X-Cmserver-`."""
    body = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/home/alice/src/orders", "prompt": "hello there"}
    named = [
        (f"X-Cmserver-{name.replace('_', '-')}".encode(), value.encode() if isinstance(value, str) else value)
        for name, value in headers.items()
    ]
    response = await client.post(HOOK, json=body, headers=[*named, (b"x-api-key", key.encode())])
    assert response.status_code == 200, response.text
    return response


async def projects(db: Db) -> list[tuple[str, list[str]]]:
    """Those that have got events, in the order of their first, with their aliases."""
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT p.canonical_id, ARRAY(SELECT alias FROM project_aliases a WHERE a.project_id = p.id ORDER BY alias)"
            " FROM projects p JOIN agent_events e ON e.project_id = p.id GROUP BY p.id ORDER BY min(e.received_at)"
        )
        return [(str(row[0]), list(row[1])) for row in await cursor.fetchall()]


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"Project": "the shop", "Git_Remote": "git@github.com:acme/shop.git", "Root": "/src/shop"}, "the shop"),
        ({"Git_Remote": "git@github.com:acme/shop.git", "Root": "/src/shop"}, "github.com/acme/shop"),
        ({"Root": "/src/shop"}, "/src/shop"),
        ({"Root": "/src/Büro"}, "/src/Büro"),
        ({"Root": b"/src/\xff\xfe"}, "/src/\ufffd\ufffd"),
        ({"Project": " "}, "/home/alice/src/orders"),
        ({}, "/home/alice/src/orders"),
    ],
    ids=["toml", "remote", "root", "umlaut", "no UTF-8", "empty", "cwd"],
)
async def test_the_first_that_the_client_knows_names_the_project(
    client: httpx.AsyncClient, cast: Cast, db: Db, headers: dict[str, str | bytes], named: str
):
    await send(client, cast.alice.key, **headers)

    assert await projects(db) == [(named, [])]


async def test_a_remote_that_changes_is_another_name_of_the_same_project(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Git_Remote="git@github.com:acme/shop.git")
    await send(
        client,
        cast.alice.key,
        "s2",
        Git_Remote="git@codeberg.org:acme/shop.git",
        Git_Remote_Before="git@github.com:acme/shop.git",
    )
    await send(client, cast.alice.key, "s3", Git_Remote="https://codeberg.org/acme/shop")

    assert await projects(db) == [("github.com/acme/shop", ["codeberg.org/acme/shop"])]
    async with db.system() as conn:
        cursor = await conn.execute("SELECT details ->> 'alias' FROM audit_log WHERE action = 'project.updated'")
        assert await cursor.fetchall() == [("codeberg.org/acme/shop",)]


async def test_a_remote_that_is_a_project_already_stays_that_project(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Git_Remote="https://github.com/acme/shop")
    await send(client, cast.alice.key, "s2", Git_Remote="https://github.com/acme/tools")
    await send(
        client,
        cast.alice.key,
        "s3",
        Git_Remote="https://github.com/acme/tools",
        Git_Remote_Before="https://github.com/acme/shop",
    )

    assert await projects(db) == [("github.com/acme/shop", []), ("github.com/acme/tools", [])]


async def test_a_stranger_s_old_remote_gives_no_alias_and_tells_nothing(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Git_Remote="https://github.com/acme/shop")
    await send(
        client,
        cast.charlie.key,
        "s2",
        Git_Remote="https://github.com/red/shop",
        Git_Remote_Before="https://github.com/acme/shop",
    )

    assert await projects(db) == [("github.com/acme/shop", []), ("github.com/red/shop", [])]


async def test_a_key_that_is_bound_to_a_project_follows_no_remote(client: httpx.AsyncClient, cast: Cast, db: Db):
    _, bound = await mint(db, cast.alice.team_id, "hook", scopes=["events:write"], project_id=cast.alice.project.id)

    await send(client, bound, Git_Remote="https://github.com/b/b", Git_Remote_Before="https://github.com/acme/orders")

    assert await projects(db) == [("github.com/acme/orders", [])]


async def test_an_id_never_becomes_another_name_of_a_project(client: httpx.AsyncClient, cast: Cast, db: Db):
    body = {"hook_event_name": "Stop", "session_id": "s1"}
    headers = {REMOTE: str(cast.charlie.project.id), BEFORE: cast.alice.project.canonical_id}

    response = await client.post(HOOK, json=body, headers={**cast.alice.headers, **headers})

    assert response.status_code == 404
    async with db.system() as conn:
        cursor = await conn.execute("SELECT alias FROM project_aliases")
        assert await cursor.fetchall() == []
