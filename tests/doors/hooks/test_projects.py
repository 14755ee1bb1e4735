"""Which project a hook's events are of: what the hook client knows of the folder comes in headers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast, bound_to, mint

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
    for number, path in enumerate((*paths, paths[0] + "/", paths[0] + "/.claude/worktrees/one")):
        if len(path) <= 4096:
            await send(client, cast.alice.key, f"s{number}", Root=path)

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
    """If it has worked on the project before today."""
    alice, bob = {"Root": "/home/alice/src/orders"}, {"Root": "/srv/bob/shop"}
    old, new = "git@github.com:acme/shop.git", "git@codeberg.org:acme/shop.git"
    await send(client, cast.alice.key, "a1", Git_Remote=old, **alice)
    await send(client, cast.bob.key, "b1", Git_Remote=old, **bob)
    async with db.system() as conn:
        await conn.execute(
            "UPDATE server_sessions SET created_at = created_at - interval '25 hours' WHERE external_session_id = 'b1'"
        )

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


PATH, SHOP = "/home/alice/src/orders", "git@github.com:acme/shop.git"


async def names(client: httpx.AsyncClient, key: str) -> dict[str, list[str]]:
    """The canonical ids of the team's projects, with their aliases."""
    response = await client.get("/v1/projects", headers={"x-api-key": key})
    return {project["canonicalId"]: project["aliases"] for project in response.json()["projects"]}


async def act(
    client: httpx.AsyncClient, key: str, method: str, path: str, body: object = None, status: int = 200
) -> dict[str, Any]:
    response = await client.request(method, path, json=body, headers={"x-api-key": key})
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize(
    ("before", "headers", "canonical"),
    [
        (PATH, {"Root": PATH, "Git_Remote": SHOP}, "github.com/acme/shop"),
        (PATH, {"Root": PATH, "Project": "the shop"}, "the shop"),
        (PATH, {"Root": "/home/alice/src"}, "/home/alice/src"),
        (PATH, {"Root": "/home/alice/src/renamed"}, "/home/alice/src/renamed"),
        (PATH, {"Root": "/home/alice/src", "Git_Remote": SHOP}, "github.com/acme/shop"),
    ],
    ids=["first remote", "toml", "repository above", "renamed", "repository above that has a remote"],
)
async def test_a_folder_that_gets_a_name_keeps_its_memory(
    client: httpx.AsyncClient, cast: Cast, db: Db, before: str, headers: dict[str, str], canonical: str
):
    await send(client, cast.alice.key, "s1", Root=PATH)

    await send(client, cast.alice.key, "s2", Name_Before=before, **headers)
    await send(client, cast.alice.key, "s3", **headers)
    await send(client, cast.alice.key, "s4", Root=PATH)

    assert await projects(db) == [(canonical, [PATH])]


async def test_a_name_is_taken_in_the_middle_of_a_session_too(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Root=PATH)
    await send(client, cast.alice.key, "s1", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)
    await send(client, cast.alice.key, "s2", Root=PATH, Git_Remote=SHOP)

    assert await projects(db) == [("github.com/acme/shop", [PATH])]


async def test_a_name_that_has_no_memory_yet_is_taken_and_one_that_has_stays(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Root=PATH)
    await act(client, cast.alice.key, "POST", "/v1/projects", {"canonicalId": "github.com/acme/shop"}, 201)
    await act(client, cast.alice.key, "POST", "/v1/projects", {"canonicalId": "github.com/acme/ruled"}, 201)
    await act(client, cast.alice.key, "PATCH", "/v1/projects/github.com/acme/ruled", {"generationPolicy": {"mode": "at_end"}})

    await send(client, cast.alice.key, "s2", Root=PATH, Git_Remote="https://github.com/acme/ruled", Name_Before=PATH)
    await send(client, cast.alice.key, "s3", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)
    await send(client, cast.alice.key, "s4", Root=PATH, Git_Remote=SHOP)

    assert await projects(db) == [(PATH, []), ("github.com/acme/ruled", [])]
    assert (await act(client, cast.alice.key, "GET", "/v1/projects/github.com/acme/shop"))["project"]["canonicalId"] == PATH


@pytest.mark.parametrize(
    ("whose", "root", "before"),
    [("bob", PATH, PATH), ("alice", "/elsewhere", "/elsewhere"), ("alice", PATH, "/home/alice/src"), ("charlie", PATH, PATH)],
    ids=["another's work", "no such folder", "a folder above", "a stranger"],
)
async def test_what_cannot_be_known_takes_no_name(
    client: httpx.AsyncClient, cast: Cast, db: Db, whose: str, root: str, before: str
):
    await send(client, cast.alice.key, "s1", Root=PATH)

    await send(client, getattr(cast, whose).key, "s2", Root=root, Git_Remote=SHOP, Name_Before=before)

    assert await projects(db) == [(PATH, []), ("github.com/acme/shop", [])]


async def test_two_requests_of_one_key_claim_no_project_of_others(client: httpx.AsyncClient, cast: Cast, db: Db):
    """Whoever may write events can work on a project from any folder, but that alone does not let them name it."""
    remote = "git@github.com:acme/orders.git"
    await send(client, cast.alice.key, "s1", Root=PATH, Git_Remote=remote)
    await send(client, cast.alice.key, "s2", Root="/home/alice/notes")
    _, mallory = await mint(db, cast.alice.team_id, "mallory", scopes=["events:write"])

    for name, folder in [(remote, "/home/mallory/evil"), ("/home/alice/notes", "/home/alice/notes")]:
        await send(client, mallory, f"first {folder}", folder, Project=name, Root=folder)
        await send(client, mallory, f"second {folder}", folder, Git_Remote=SHOP, Name_Before=name, Root=folder)

    assert (await names(client, cast.alice.key))["github.com/acme/shop"] == []


async def test_a_bound_key_gives_no_name(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Root=PATH)
    bound = await bound_to(db, cast.alice, PATH)

    await send(client, bound.key, "s2", Root=PATH)
    await send(client, bound.key, "s3", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)

    assert await projects(db) == [(PATH, [])]


async def test_a_taken_name_is_given_back_and_not_taken_again(client: httpx.AsyncClient, cast: Cast, db: Db):
    await send(client, cast.alice.key, "s1", Root=PATH)
    await send(client, cast.alice.key, "s2", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)

    separated = await act(client, cast.alice.key, "POST", "/v1/projects/github.com/acme/shop/separate")
    await send(client, cast.alice.key, "s3", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)
    await act(client, cast.alice.key, "POST", f"/v1/projects/{separated['project']['id']}/separate", status=409)

    assert (separated["project"]["canonicalId"], separated["project"]["name"]) == (PATH, "orders")
    assert await projects(db) == [(PATH, []), ("github.com/acme/shop", [])]


async def test_a_path_that_had_a_name_before_is_not_the_folder_that_has_it(client: httpx.AsyncClient, cast: Cast, db: Db):
    """As in containers, where each repository is in the same folder."""
    await send(client, cast.alice.key, "s1", Root=PATH)
    await send(client, cast.alice.key, "s2", Root=PATH, Git_Remote=SHOP, Name_Before=PATH)
    await send(client, cast.alice.key, "s3", Root=PATH, Git_Remote="git@github.com:acme/tools.git", Name_Before=PATH)

    assert await projects(db) == [("github.com/acme/shop", [PATH]), ("github.com/acme/tools", [])]


async def test_the_start_of_a_session_says_what_is_near(client: httpx.AsyncClient, cast: Cast):
    """Where it cannot be known whether it is the same."""
    await act(client, cast.alice.key, "POST", "/v1/projects", {"canonicalId": PATH}, 201)
    note = {"projectId": PATH, "title": "Never touch the vendored parser", "narrative": "It is generated."}
    await act(client, cast.alice.key, "POST", "/v1/observations", note, 201)

    async def start(key: str, session: str, remote: str, root: str) -> str:
        headers = {"x-api-key": key, REMOTE: remote, "X-Cmserver-Root": root}
        body = {"hook_event_name": "SessionStart", "session_id": session, "cwd": root, "source": "startup"}
        return str((await client.post(HOOK, json=body, headers=headers)).json())

    here = await start(cast.alice.key, "s1", SHOP, PATH)
    again = await start(cast.alice.key, "s2", SHOP, PATH)
    moved = await start(cast.bob.key, "s3", "git@codeberg.org:bob/orders.git", "/srv/orders")
    elsewhere = await start(cast.alice.key, "s4", "git@github.com:acme/other.git", "/srv/other")
    stranger = await start(cast.charlie.key, "s5", SHOP, PATH)

    command = f"cmserver projects join {PATH} "
    assert [f"{command}github.com/acme/shop` (1 observation" in text for text in (here, again)] == [True, True]
    assert [command in text for text in (moved, elsewhere, stranger)] == [True, False, False]
