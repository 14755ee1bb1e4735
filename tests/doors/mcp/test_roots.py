"""A call that names no project, of a client that can tell in which folders it works: it is asked, and searches where it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types import ListRootsResult, Root
from pydantic import FileUrl

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast, Person, bound_to, mint
from tests.doors.mcp.tools import Mode, called, connected, post
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

VERSION = "2026-07-28"


class Folders:
    """What a client answers, and how often it was asked."""

    def __init__(self, *uris: str) -> None:
        self.uris: Sequence[str] = uris
        self.asked = 0

    async def __call__(self, _context: object) -> ListRootsResult:
        self.asked += 1
        return ListRootsResult(roots=[Root(uri=FileUrl(uri)) for uri in self.uris])


@pytest.fixture
async def wombats(cast: Cast, make: Make, db: Db) -> None:
    """One in each of three projects of the team, and one of a stranger's."""
    for name in ("/home/me/My Füße", "billing"):
        project = (await bound_to(db, cast.alice, name)).project
        await make.observation(project=project, title=f"The wombat of {name}")
    await make.observation(project=cast.alice.project, title="The wombat of orders")
    secret = (await bound_to(db, cast.charlie, "secret")).project
    await make.observation(project=secret, title="The wombat of secret")


async def found(
    app: AsgiFrame, person: Person, folders: Folders, *, mode: Mode = "auto", headers: dict[str, str] | None = None, **more: object
) -> set[str]:
    """Of which projects the search tells that client."""
    async with connected(app, person, mode=mode, headers=headers, list_roots_callback=folders) as client:
        return await searched(client, **more)


async def searched(client: Client, **more: object) -> set[str]:
    """The same of a client that is connected."""
    text, is_error = await called(client, "observation_search", query="wombat", **more)
    assert not is_error, text
    return {name for name in ("My Füße", "billing", "orders", "secret") if f"{name} ~" in text}


EVERY = {"My Füße", "billing", "orders"}


FOLDERS: list[tuple[list[str], set[str]]] = [
    (["file:///home/me/My%20F%C3%BC%C3%9Fe"], {"My Füße"}),
    (["file:///home/me/My%20F%C3%BC%C3%9Fe/"], {"My Füße"}),
    (["file:///home/me/My%20F%C3%BC%C3%9Fe/.claude/worktrees/one"], {"My Füße"}),
    (["file://localhost/src/orders"], {"orders"}),
    (["file:///C:/src/billing"], {"billing"}),
    (["file:///nowhere", "file:///src/billing", "file:///src/orders"], {"billing"}),
    (["file:///nowhere"], EVERY),
    (["file:///src/secret"], EVERY),
    (["file://elsewhere/src/orders"], EVERY),
    (["file:///"], EVERY),
    (["file:///src/orders%00"], EVERY),
    ([f"file:///{'a' * 5_000}/orders"], EVERY),
    ([*(f"file:///nowhere/{number}" for number in range(2_000)), "file:///src/orders"], EVERY),
    ([], EVERY),
]
"""Folders of a client, and where it searches then."""


@pytest.mark.usefixtures("wombats")
async def test_the_project_is_the_first_folder_of_the_client_that_the_team_knows(app: AsgiFrame, cast: Cast):
    async with connected(app, cast.alice, list_roots_callback=(folders := Folders())) as client:
        for uris, expected in FOLDERS:
            folders.uris = uris

            assert await searched(client) == expected, uris[:3]

    assert folders.asked == len(FOLDERS)


@pytest.mark.usefixtures("wombats")
async def test_nobody_is_asked_what_the_key_the_call_or_a_header_says(app: AsgiFrame, cast: Cast, db: Db):
    folders = Folders("file:///src/orders")
    bound = await bound_to(db, cast.alice, "billing")

    by_key = await found(app, bound, folders)
    by_call = await found(app, cast.alice, folders, projectId="billing")
    by_star = await found(app, cast.alice, folders, projectId="*")
    by_header = await found(app, cast.alice, folders, headers={"X-Cmserver-Project": "billing"})

    assert (by_key, by_call, by_star, by_header) == ({"billing"}, {"billing"}, EVERY, {"billing"})
    assert folders.asked == 0


@pytest.mark.usefixtures("wombats")
async def test_a_client_of_the_older_era_is_not_asked(app: AsgiFrame, cast: Cast):
    folders = Folders("file:///src/orders")

    assert await found(app, cast.alice, folders, mode="legacy") == EVERY
    assert folders.asked == 0


@pytest.mark.usefixtures("wombats")
async def test_what_is_read_by_its_number_needs_no_project(app: AsgiFrame, cast: Cast):
    folders = Folders("file:///src/orders")

    async with connected(app, cast.alice, list_roots_callback=folders) as client:
        read = await called(client, "observation_get", ids=[1])
        around = await called(client, "observation_timeline", anchor=1)

    assert (read[1], around[1]) == (False, False)
    assert folders.asked == 0


async def test_what_is_remembered_goes_to_the_project_of_the_folder_once(app: AsgiFrame, cast: Cast, db: Db):
    project = (await bound_to(db, cast.alice, "/src/billing")).project

    async with connected(app, cast.alice, list_roots_callback=Folders("file:///src/billing")) as client:
        _, is_error = await called(client, "observation_add", title="The wombat is fed at noon")

    assert not is_error
    stored = await rows(db, "SELECT project_id, title FROM observations")
    assert stored == [{"project_id": project.id, "title": "The wombat is fed at noon"}]


async def test_nothing_is_written_to_a_project_that_is_only_called_as_the_folder(app: AsgiFrame, cast: Cast, db: Db):
    async with connected(app, cast.alice, list_roots_callback=Folders("file:///src/orders")) as client:
        _, is_error = await called(client, "observation_add", title="The wombat is fed at noon")

    assert is_error
    assert await rows(db, "SELECT id FROM observations") == []


async def test_what_is_to_be_remembered_nowhere_is_refused_as_without_folders(app: AsgiFrame, cast: Cast):
    async with connected(app, cast.alice, list_roots_callback=Folders("file:///nowhere")) as client:
        told = await called(client, "observation_add", title="The wombat is fed at noon")
    async with connected(app, cast.alice) as client:
        untold = await called(client, "observation_add", title="The wombat is fed at noon")

    assert told == untold
    assert told[1]


@pytest.mark.usefixtures("wombats")
async def test_the_prompt_asks_too(app: AsgiFrame, cast: Cast):
    folders = Folders("file:///src/billing")

    async with connected(app, cast.alice, list_roots_callback=folders) as client:
        got = await client.get_prompt("what_do_we_know", {"topic": "wombat"})

    assert "The wombat of billing" in str(got.messages)
    assert "The wombat of orders" not in str(got.messages)
    assert folders.asked == 1


async def test_a_key_that_lacks_the_scope_is_refused_without_being_asked(app: AsgiFrame, cast: Cast, db: Db):
    principal, text = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])
    folders = Folders("file:///src/orders")

    async with connected(
        app, Person(principal=principal, key=text, project=cast.alice.project), list_roots_callback=folders
    ) as client:
        told, is_error = await called(client, "observation_search", query="wombat")

    assert is_error
    assert "observations:read" in told
    assert folders.asked == 0


# ---- single messages


def message(**params: object) -> dict[str, Any]:
    about: dict[str, object] = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
    }
    call: dict[str, object] = {"name": "observation_search", "arguments": {"query": "wombat"}, "_meta": about, **params}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}


async def sent(client: httpx.AsyncClient, person: Person, **params: object) -> dict[str, Any]:
    headers = {"mcp_protocol_version": VERSION, "mcp_method": "tools/call", "mcp_name": "observation_search"}
    return (await post(client, person, httpx.Request("POST", "http://x", json=message(**params)).content, **headers)).json()


async def test_the_question_keeps_nothing_here_and_says_nothing(client: httpx.AsyncClient, cast: Cast):
    answered = await sent(client, cast.alice)

    assert answered["result"]["resultType"] == "input_required"
    assert answered["result"]["inputRequests"] == {"roots": {"method": "roots/list"}}
    assert "requestState" not in answered["result"]


@pytest.mark.usefixtures("wombats")
@pytest.mark.parametrize(
    "answers",
    [{}, {"other": {"roots": [{"uri": "file:///src/orders"}]}}, {"roots": {"action": "accept"}}, {"roots": {"roots": []}}],
    ids=["none", "of-another-question", "of-another-kind", "empty"],
)
async def test_whoever_comes_again_without_folders_is_not_asked_again(
    client: httpx.AsyncClient, cast: Cast, answers: dict[str, object]
):
    answered = await sent(client, cast.alice, inputResponses=answers)

    (content,) = answered["result"]["content"]
    assert all(f"{name} ~" in content["text"] for name in EVERY)


@pytest.mark.usefixtures("wombats")
@try_rows("uri", ["https://orders", "orders", "", 7, None], ids=repr)
async def test_a_folder_that_is_no_file_is_refused_by_the_protocol(client: httpx.AsyncClient, cast: Cast, uri: object):
    answered = await sent(client, cast.alice, inputResponses={"roots": {"roots": [{"uri": uri}]}})

    assert answered["error"]["code"] == -32602
