"""What is superseded or has expired is shown by no reader: each is asked by words, file, number and session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import LiteralString
from uuid import UUID

import msgspec
import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make

MARK = "xylophone"

READERS: list[tuple[str, str, Mapping[str, object]]] = [
    ("GET", "/v1/observations", {}),
    ("GET", "/v1/context", {"project": "orders"}),
    ("POST", "/v1/context", {"query": MARK, "projectId": "orders"}),
    ("POST", "/v1/search", {"query": MARK}),
    ("POST", "/v1/search", {"query": MARK, "format": "full"}),
    ("POST", "/v1/search", {"query": MARK, "files": ["src/music.py"]}),
    ("POST", "/v1/timeline", {"anchor": 1}),
    ("GET", "/v1/events/{event}/observations", {}),
    ("POST", "/v1/observations/batch", {"ids": [1, 2, 3]}),
    ("GET", "/v1/observations/1/related", {"depth": 3}),
    ("GET", "/api/observations", {}),
    ("GET", "/api/summaries", {}),
    ("POST", "/api/observations/batch", {"ids": [1, 2, 3]}),
    ("GET", "/api/observations/by-file", {"path": "src/music.py"}),
    ("GET", "/api/search", {"query": MARK, "format": "json"}),
    ("GET", "/api/timeline", {"anchor": "1"}),
    ("GET", "/api/timeline/by-query", {"query": MARK}),
    ("POST", "/api/context/semantic", {"q": f"is the {MARK} in tune since it was fixed in src/music.py?", "project": "orders"}),
    ("GET", "/api/context/inject", {"projects": "orders"}),
]
ENDS: dict[str, LiteralString] = {
    "superseded": "UPDATE observations SET superseded_at = now(), superseded_by = (SELECT id FROM observations WHERE number = 1)"
    " WHERE number > 1",
    "expired": "UPDATE observations SET ttl_seconds = 60, expires_at = now() WHERE number > 1",
}


class World(msgspec.Struct):
    """A project whose first observation stays, and whose other two have the mark."""

    event: str
    session: str


@pytest.fixture
async def world(client: AsyncClient, cast: Cast, make: Make) -> World:
    headers = cast.alice.headers
    body = {"projectId": cast.alice.project.canonical_id, "externalSessionId": "s"}
    session = (await client.post("/v1/sessions/start", json=body, headers=headers)).json()["session"]["id"]
    event = {"projectId": cast.alice.project.canonical_id, "eventType": "tool_use", "serverSessionId": session, "payload": {"a": 1}}
    recorded = (await client.post("/v1/events", json=event, headers=headers)).json()["event"]["id"]
    await make.observation(project=cast.alice.project, title="What stays", server_session_id=UUID(session))
    await make.observation(
        project=cast.alice.project,
        title=f"The {MARK} was fixed",
        narrative=f"The {MARK} is in tune.",
        files_modified=["src/music.py"],
        server_session_id=UUID(session),
        from_event=UUID(recorded),
    )
    await make.observation(
        project=cast.alice.project,
        kind="summary",
        title=f"A day with the {MARK}",
        summary={"learned": f"The {MARK} is made of wood."},
        server_session_id=UUID(session),
    )
    for left, right in ((1, 2), (2, 3)):
        related = {"from": left, "to": right, "relationship": "CAUSES"}
        assert (await client.post("/v1/relations", json=related, headers=headers)).status_code == 201
    return World(event=recorded, session=session)


async def ask_all(client: AsyncClient, cast: Cast, world: World) -> dict[str, bool]:
    """Each reader that answers, and whether the mark is in its answer."""
    shown: dict[str, bool] = {}
    for method, path, fields in READERS:
        names = {name: cast.alice.project.canonical_id if value == "orders" else value for name, value in fields.items()}
        sent = {"params": names} if method == "GET" else {"json": names}
        url = path.format(event=world.event, session=world.session)
        answered = await client.request(method, url, headers=cast.alice.headers, **sent)  # pyright: ignore[reportArgumentType]
        assert answered.status_code == 200, f"{method} {path}: {answered.text}"
        text = answered.text
        shown[f"{method} {path} {fields}"] = f"the {MARK}" in text.lower()
    return shown


@pytest.mark.parametrize("end", ENDS)
async def test_no_reader_shows_it(client: AsyncClient, cast: Cast, db: Db, world: World, end: str):
    before = await ask_all(client, cast, world)
    async with db.system() as conn:
        await conn.execute(ENDS[end])

    after = await ask_all(client, cast, world)

    silent = [reader for reader, is_shown in before.items() if not is_shown]
    assert silent == [], "it proves nothing of a reader that never shows it"
    assert [reader for reader, is_shown in after.items() if is_shown] == []


@pytest.mark.parametrize("end", ENDS)
async def test_counts_and_single_reads_leave_it_out(client: AsyncClient, cast: Cast, db: Db, world: World, end: str):
    async with db.system() as conn:
        await conn.execute(ENDS[end])

    single = [await client.get(f"/v1/observations/{number}", headers=cast.alice.headers) for number in (1, 2, 3)]
    worker = [await client.get(f"/api/observation/{number}", headers=cast.alice.headers) for number in (1, 2)]
    stats = (await client.get("/api/stats", headers=cast.alice.headers)).json()["database"]

    assert [answer.status_code for answer in single] == [200, 410, 410]
    assert worker[0].status_code == 200
    assert worker[1].status_code in {404, 410}
    assert (stats["observations"], stats["summaries"]) == (1, 0)
