"""Which project a hook's events are of: what the hook client knows of the folder comes in headers."""

from __future__ import annotations

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, mint

HOOK = "/v1/hooks/claude-code"
REMOTE = "X-Cmserver-Git-Remote"
BEFORE = "X-Cmserver-Git-Remote-Before"


async def send(
    client: httpx.AsyncClient, key: str, session: str = "s1", cwd: str = "/home/alice/src/orders", /, **headers: str | bytes
) -> httpx.Response:
    """A prompt from that folder; the headers' names without `X-Cmserver-`."""
    body = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": cwd, "prompt": "hello there"}
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
        ({"Git_Remote": "https://", "Git_Remote_Before": "https://a/b", "Root": "/src/shop"}, "/src/shop"),
        ({"Project": "n" * 501, "Git_Remote": "https:///", "Root": "/src/shop"}, "/src/shop"),
        ({"Project": "01a20000-0000-7000-8000-000000000000", "Root": "/src/shop"}, "/src/shop"),
        ({"Root": "/" + "r" * 5000}, "/home/alice/src/orders"),
    ],
    ids=["toml", "remote", "root", "umlaut", "no UTF-8", "empty", "cwd", "no remote", "no name", "no such id", "no root"],
)
async def test_the_first_that_the_client_knows_names_the_project(
    client: httpx.AsyncClient, cast: Cast, db: Db, headers: dict[str, str | bytes], named: str
):
    await send(client, cast.alice.key, **headers)

    assert await projects(db) == [(named, [])]


@pytest.mark.parametrize("length", [500, 501, 4096])
async def test_a_long_path_names_one_project_and_no_other(client: httpx.AsyncClient, cast: Cast, db: Db, length: int):
    paths = ["/" + "d" * (length - 2) + last for last in "ab"]
    for path in (*paths, paths[0] + "/", paths[0] + "/.claude/worktrees/one"):
        if len(path) <= 4096:
            await send(client, cast.alice.key, Root=path)

    (first, _), (second, _) = await projects(db)
    assert len(first) == len(second) == 500
    assert first != second
    assert first.startswith("/" + "d" * 480)


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


@pytest.mark.parametrize(
    "folder", ["/home/mallory/evil", "/home/alice/src", "/home/alice/src/orders/sub", "/home/alice/src/orders2", ""]
)
async def test_who_never_worked_on_a_project_there_gives_it_no_name(client: httpx.AsyncClient, cast: Cast, db: Db, folder: str):
    await send(client, cast.alice.key, "s1", Git_Remote="https://github.com/acme/shop", Root="/home/alice/src/orders")
    _, unbound = await mint(db, cast.alice.team_id, "mallory", scopes=["events:write"])

    old, new = "https://github.com/acme/shop", "https://github.com/acme/payroll"
    await send(client, unbound, "s2", "/home/mallory/evil", Git_Remote=new, Git_Remote_Before=old, Root=folder)

    assert await projects(db) == [("github.com/acme/shop", []), ("github.com/acme/payroll", [])]


async def test_the_first_machine_that_has_the_new_remote_names_it_for_all(client: httpx.AsyncClient, cast: Cast, db: Db):
    alice, bob = {"Root": "/home/alice/src/orders"}, {"Root": "/srv/bob/shop"}
    old, new = "git@github.com:acme/shop.git", "git@codeberg.org:acme/shop.git"
    await send(client, cast.alice.key, "a1", Git_Remote=old, **alice)
    await send(client, cast.bob.key, "b1", Git_Remote=old, **bob)

    await send(client, cast.bob.key, "b2", Git_Remote=new, Git_Remote_Before=old, **bob)
    await send(client, cast.alice.key, "a2", Git_Remote=new, Git_Remote_Before=old, **alice)

    assert await projects(db) == [("github.com/acme/shop", ["codeberg.org/acme/shop"])]


async def test_a_session_that_only_says_where_it_was_started_counts_for_the_folders_above(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    """As they were kept before there were roots."""
    await send(client, cast.alice.key, "s1", Git_Remote="x.example:acme/shop")
    async with db.system() as conn:
        await conn.execute('UPDATE server_sessions SET metadata = \'{"cwd": "/srv/shop/deep"}\'')

    await send(
        client, cast.alice.key, "s2", Git_Remote="y.example:acme/shop", Git_Remote_Before="x.example:acme/shop", Root="/srv/shop"
    )

    assert await projects(db) == [("x.example/acme/shop", ["y.example/acme/shop"])]


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
