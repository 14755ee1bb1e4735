"""Words that were taken away are in nothing that is kept of the past: not in what rows said before, not in a text that was told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.observations.model import Observation
from cmserver.recall.model import NewReceipt
from cmserver.recall.receipts import repository as receipts
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Cast
from tests.generation.test_ledger import Ledger
from tests.make import Make
from tests.rules.offline import edit
from tests.timeouts import until

Json = dict[str, Any]
PROJECT, OTHER = "github.com/acme/orders", "github.com/acme/zoo"
WORD = "walrus"
WAITING = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"
KEPT = "SELECT before::text AS said FROM past_values UNION ALL SELECT text FROM context_injections"


async def rows(db: Db, statement: str, **values: object) -> list[dict[str, Any]]:
    """The rows of the statement, past every policy."""
    async with db.system() as conn, conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, values or None)  # pyright: ignore[reportArgumentType, reportCallIssue]
        return await cursor.fetchall() if cursor.description else []


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A project of Alice with one thing that stays, and a session of hers that was told of it."""

    client: httpx.AsyncClient
    cast: Cast
    make: Make
    db: Db
    stays: Observation
    turn: SessionTurn

    async def act(self, method: str, path: str, body: Json | None = None) -> Json:
        answered = await self.client.request(method, f"/v1/{path}", json=body or {}, headers=self.cast.alice.headers)
        return answered.raise_for_status().json()

    async def tell(self) -> None:
        """The session starts, which writes a receipt."""
        asked = {"project": PROJECT, "session": str(self.turn.server_session_id), "source": "startup"}
        answered = await self.client.get("/v1/context", params=asked, headers=self.cast.alice.headers)
        answered.raise_for_status()

    async def hook(self, name: str, session: str, **fields: object) -> None:
        sent = {"hook_event_name": name, "session_id": session, "cwd": "/w", **fields}
        headers = {**self.cast.alice.headers, "X-Cmserver-Project": PROJECT}
        (await self.client.post("/v1/hooks/claude-code", json=sent, headers=headers)).raise_for_status()

    async def said(self) -> list[str]:
        """All that is kept of the past and says the word."""
        return [str(row["said"]) for row in await rows(self.db, KEPT) if WORD in str(row["said"]).lower()]

    async def open_page(self, *numbers: int, opening: str = f"It is about a {WORD}") -> None:
        await rows(
            self.db,
            """
            INSERT INTO project_overviews (id, project_id, team_id, body, opening, numbers, made_at)
            SELECT gen_random_uuid(), id, team_id, %(opening)s, ARRAY[%(opening)s], %(numbers)s, now()
              FROM projects WHERE id = %(project)s
            ON CONFLICT (project_id) DO UPDATE SET body = excluded.body, opening = excluded.opening, numbers = excluded.numbers,
                made_at = excluded.made_at
            """,
            opening=opening,
            numbers=list(numbers),
            project=self.cast.alice.project.id,
        )


Way = Callable[[World], Awaitable[Callable[[], Awaitable[object]]]]
"""Says the word somewhere, and returns what takes it away again."""


async def _own_line(world: World) -> Callable[[], Awaitable[object]]:
    turn = await world.make.turn(project=world.cast.alice.project, session="w", prompt=f"Feed the {WORD}.", reply="Done.")
    await rows(world.db, "UPDATE turns SET own_line = 'Another', reply = 'Fed' WHERE id = %(id)s", id=turn.id)
    await rows(world.db, "UPDATE turns SET prompt = 'Feed it.' WHERE id = %(id)s", id=turn.id)
    return lambda: world.act("DELETE", f"sessions/{turn.server_session_id}")


async def _summary_with_a_number(world: World) -> Callable[[], Awaitable[object]]:
    summary = {"request": f"Feed the {WORD} of issue #77", "learned": "It is #333", "completed": f"The {WORD} is fed"}
    project = world.cast.alice.project
    gone = await world.make.observation(project=project, kind="summary", type="discovery", title="Told", summary=summary)
    await world.tell()
    return lambda: world.act("DELETE", f"observations/{gone.number}")


async def _opening(world: World) -> Callable[[], Awaitable[object]]:
    gone = await world.make.observation(project=world.cast.alice.project, title="Short")
    # No line tells it.
    await rows(world.db, "UPDATE observations SET ttl_seconds = 1, expires_at = now() WHERE id = %(id)s", id=gone.id)
    await world.open_page(gone.number)
    await world.tell()
    return lambda: rows(world.db, "DELETE FROM observations WHERE id = %(id)s", id=gone.id)


async def _opening_of_before(world: World) -> Callable[[], Awaitable[object]]:
    gone = await world.make.observation(project=world.cast.alice.project, title="Short")
    await world.open_page(gone.number)
    await world.open_page(opening="It is about nothing")
    return lambda: world.act("DELETE", f"observations/{gone.number}")


async def _name_in_an_opening(world: World) -> Callable[[], Awaitable[object]]:
    entity = {"projectId": PROJECT, "type": "technology", "name": WORD.title()}
    made = await world.act("POST", "entities", entity)
    await world.open_page(opening=f"Parts: {WORD.title()}")
    await world.tell()
    await world.open_page(opening="Parts: none")
    return lambda: world.act("DELETE", f"entities/{made['entity']['id']}")


async def _what_runs(world: World) -> Callable[[], Awaitable[object]]:
    await world.hook("UserPromptSubmit", "runs", prompt="Go on with it.")
    edited = {"file_path": f"/w/{WORD}.py", "old_string": "a", "new_string": "b"}
    await world.hook("PostToolUse", "runs", tool_name="Edit", tool_input=edited, tool_response={})
    await world.tell()
    (session,) = await rows(world.db, "SELECT id FROM server_sessions WHERE content_session_id LIKE '%runs%'")
    return lambda: world.act("DELETE", f"sessions/{session['id']}")


async def _page_of_a_moved_row(world: World) -> Callable[[], Awaitable[object]]:
    gone = await world.make.observation(project=world.cast.alice.project, title="Short")
    await world.open_page(gone.number)
    await world.open_page(opening="It is about nothing")

    async def move() -> None:
        await rows(
            world.db,
            """
            UPDATE observations SET project_id = p.id FROM projects p
             WHERE observations.id = %(id)s AND p.team_id = observations.team_id AND p.id <> observations.project_id
            """,
            id=gone.id,
        )

    await world.act("POST", "projects", {"canonicalId": OTHER})
    return move


async def _page_of_a_deleted_project(world: World) -> Callable[[], Awaitable[object]]:
    await world.open_page()
    await world.open_page(opening="It is about nothing")
    project_id = world.cast.alice.project.id
    return lambda: rows(world.db, "DELETE FROM project_overviews WHERE project_id = %(id)s", id=project_id)


async def _mark_of_an_erased_session(world: World) -> Callable[[], Awaitable[object]]:
    await world.hook("UserPromptSubmit", "marks", prompt="Go on with it.")
    (event,) = await rows(
        world.db,
        """
        SELECT e.id, e.server_session_id FROM agent_events e JOIN server_sessions s ON s.id = e.server_session_id
         WHERE s.content_session_id LIKE '%marks%' LIMIT 1
        """,
    )
    mark = "UPDATE observations SET stale = %(stale)s::jsonb WHERE id = %(id)s"
    for path in (f"{WORD}.py", "other.py"):
        stale = msgspec.json.encode({"eventId": str(event["id"]), "path": path, "markedAtEpoch": 1}).decode()
        await rows(world.db, mark, stale=stale, id=world.stays.id)
    return lambda: world.act("DELETE", f"sessions/{event['server_session_id']}")


async def _retention(world: World) -> Callable[[], Awaitable[object]]:
    gone = await world.make.observation(project=world.cast.alice.project, title=f"A {WORD}", type="decision", importance=0.9)
    await world.tell()
    await world.act("PATCH", f"observations/{gone.number}", {"title": f"Two {WORD}es"})
    return lambda: rows(world.db, "DELETE FROM observations WHERE id = %(id)s", id=gone.id)


async def _project(world: World) -> Callable[[], Awaitable[object]]:
    await _retention(world)
    await _opening_of_before(world)
    return lambda: world.act("DELETE", f"projects/{world.cast.alice.project.id}")


async def _team(world: World) -> Callable[[], Awaitable[object]]:
    await _retention(world)
    await _opening_of_before(world)
    return lambda: world.act("DELETE", f"teams/{world.cast.alice.team_id}")


@pytest.fixture
async def world(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db) -> World:
    project = cast.alice.project
    stays = await make.observation(project=project, title="It stays", type="decision", importance=0.9)
    turn = await make.turn(project=project, prompt="Go on.", reply="Done.", session="s")
    return World(client=client, cast=cast, make=make, db=db, stays=stays, turn=turn)


WAYS: list[Way] = [
    _own_line,
    _summary_with_a_number,
    _opening,
    _opening_of_before,
    _name_in_an_opening,
    _what_runs,
    _page_of_a_moved_row,
    _page_of_a_deleted_project,
    _mark_of_an_erased_session,
    _retention,
    _project,
    _team,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_what_is_taken_away_is_nowhere_in_the_past(world: World, way: Way):
    take_away = await way(world)
    assert await world.said() != []

    await take_away()

    assert await world.said() == []


async def test_a_turn_that_is_erased_ends_nothing_at_any_time(world: World):
    project = world.cast.alice.project
    ledger = Ledger(world.db, project, world.make)
    turns = [await world.make.turn(project=project, session=name, prompt="Go.", reply="Done.") for name in ("a", "b", "c")]
    to = [("500", "2000"), ("2000", "5000"), ("2000", "9000")]
    for turn, (old, new) in zip(turns, to, strict=True):
        await ledger.note(turn, [edit(f"{WORD}.py", f"MAX_ROWS = {old}", f"MAX_ROWS = {new}")])
    await rows(world.db, "UPDATE turn_ledger SET later_id = %(id)s WHERE earlier_id = %(of)s", id=turns[2].id, of=turns[0].id)
    assert str(turns[1].id) in str(await rows(world.db, KEPT))

    for turn in turns[1:]:
        await rows(world.db, "DELETE FROM turns WHERE id = %(id)s", id=turn.id)

    assert [row for row in await rows(world.db, KEPT) if WORD in str(row["said"])] == []


async def test_what_is_shared_no_more_is_told_to_no_other_project_at_any_time(world: World):
    alice = world.cast.alice
    row = await world.make.observation(project=alice.project, title=f"A {WORD}", scope="team", type="decision", importance=0.9)
    await world.act("POST", "projects", {"canonicalId": OTHER})
    await world.act("POST", "observations", {"projectId": OTHER, "title": "There"})
    (now,) = await rows(world.db, "SELECT clock_timestamp() AS at")
    then = {"project": OTHER, "knownAt": now["at"].isoformat()}  # pyright: ignore[reportAttributeAccessIssue]
    told = await world.client.get("/v1/context", params=then, headers=alice.headers)
    assert WORD in told.text

    await world.act("PATCH", f"observations/{row.number}", {"scope": "project"})

    told = await world.client.get("/v1/context", params=then, headers=alice.headers)
    assert told.status_code == 200
    assert WORD not in told.text


async def test_who_erases_in_one_project_waits_for_who_erases_in_another(world: World, database: str):
    """Each cuts a line of its own out of its project's receipts first, and then what ran out of all."""
    alice = world.cast.alice
    await world.act("POST", "projects", {"canonicalId": OTHER})
    async with world.db.tenant(alice.team_id) as conn:
        other, _ = await make_project(conn, alice.principal, OTHER)
    erased: list[tuple[Observation, SessionTurn]] = []
    for project in (alice.project, other):
        row = await world.make.observation(project=project, title=f"A {WORD}")
        erased.append((row, await world.make.turn(project=project, prompt="Go.", reply="Done.", session=project.name)))
        text = f"#{row.number} A {WORD}\n\nAnother session is at work here now: edited {WORD}.py.\n"
        async with world.db.tenant(alice.team_id) as conn:
            await receipts.insert(conn, alice.team_id, project.id, NewReceipt(reason="startup", text=text))
    (first_row, first_turn), (second_row, second_turn) = erased

    async with await psycopg.AsyncConnection.connect(database) as first, await psycopg.AsyncConnection.connect(database) as second:
        await first.execute("DELETE FROM observations WHERE id = %s", [first_row.id])

        async def erase_second() -> None:
            await second.execute("DELETE FROM observations WHERE id = %s", [second_row.id])
            await second.execute("DELETE FROM turns WHERE id = %s", [second_turn.id])
            await second.commit()

        waiting = asyncio.create_task(erase_second())

        async def is_waiting() -> bool:
            async with world.db.system() as conn:
                found = await (await conn.execute(WAITING)).fetchone()
                return found is not None and bool(found[0])

        await until("the second one to wait", is_waiting, waiting)
        await first.execute("DELETE FROM turns WHERE id = %s", [first_turn.id])
        await first.commit()
        await waiting

    assert await world.said() == []
