"""One session is moved to another project, or deleted, with all that was drawn from it and nothing else."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from cmserver.base.db import Db
from cmserver.base.erasure_journal import Erasure
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops.backup.replay import replay
from tests.conftest import Cast, bound_to
from tests.generation.tools import Scripted
from tests.ops.test_backup_file import MADE
from tests.ops.test_erasure import hand, send, tables_with, with_the_word
from tests.ops.test_joining import act, whose, write
from tests.rows import rows

Json = dict[str, Any]

HOME, OTHER = "/home/alice/tools", "github.com/acme/orders"
SENT: list[Json] = [{"sourceEventId": "e1"}, {"occurredAtEpoch": 1_700_000_000_000, "payload": {"a": 1}}]
KEPT = {"audit_log", "generation_spending", "memory_telemetry"}
"""What names a deleted session, without its texts."""


@pytest.fixture
async def ids(client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier) -> dict[str, str]:
    """The ids of two sessions of one project with some of everything, by their agent's ids."""
    await act(client, cast, "POST", "/v1/projects", {"canonicalId": HOME}, 201)
    async with db.system() as conn:
        await conn.execute("INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'one', 'current')")
    found: dict[str, str] = {}
    for name in ("s", "stays"):
        start = {"projectId": HOME, "externalSessionId": name, "contentSessionId": name}
        found[name] = (await act(client, cast, "POST", "/v1/sessions/start", start, 201))["session"]["id"]
        session = {"serverSessionId": found[name], "contentSessionId": None}
        await send(client, cast.alice.headers, HOME, eventType="user_prompt", payload={"prompt": f"Mend {name}"}, **session)
        for event in SENT:
            sent = {**event, **session} | ({"sourceEventId": f"{name}-1"} if "sourceEventId" in event else {})
            await send(client, cast.alice.headers, HOME, **sent)
        last = {"last_assistant_message": f"Mended {name}"}
        await send(client, cast.alice.headers, HOME, eventType="assistant_message", payload=last, **session)
        assert await (await hand(db, notifier, cast.alice, Scripted(with_the_word))).work() > 0
        await act(client, cast, "GET", f"/v1/context?session={found[name]}")
        number = await write(client, cast, HOME, f"By hand in {name}", sessionId=found[name])
        other = await write(client, cast, HOME, f"Beside {name}")
        await act(client, cast, "PATCH", f"/v1/observations/{number}", {"title": f"Corrected in {name}"})
        await act(client, cast, "POST", "/v1/relations", {"from": number, "to": other, "relationship": "CAUSES"}, 201)
    return found


def rows_about(database: str, session_id: str) -> dict[str, int]:
    """How many rows of each table name the session, or what has it."""
    counts: dict[str, int] = {}
    with psycopg.connect(database) as conn:
        for table in tables_with(conn, "team_id"):
            query = sql.SQL("SELECT count(*) FROM {} t WHERE to_jsonb(t)::text LIKE %s").format(sql.Identifier(table))
            (count,) = conn.execute(query, [f"%{session_id}%"]).fetchone() or (0,)
            if count and table not in KEPT:
                counts[table] = count
    return counts


async def move(client: httpx.AsyncClient, cast: Cast, session: str, into: str, status: int = 200) -> Json:
    return await act(client, cast, "POST", f"/v1/sessions/{session}/move", {"into": into}, status)


async def test_everything_of_a_session_moves_and_comes_back(
    client: httpx.AsyncClient, cast: Cast, database: str, ids: dict[str, str]
):
    before = whose(database)

    moved = (await move(client, cast, ids["s"], OTHER))["session"]
    there = {key for table in whose(database).values() for project, key, _ in table if project == cast.alice.project.id}
    titles = [o["title"] for o in (await act(client, cast, "GET", f"/v1/observations?project={OTHER}"))["observations"]]
    await move(client, cast, ids["s"], HOME)

    assert moved["projectId"] == str(cast.alice.project.id)
    assert ids["s"] in there
    assert ids["stays"] not in there
    assert "Corrected in s" in titles
    assert "Beside s" not in titles
    assert whose(database) == before


async def test_what_is_sent_again_after_a_move_is_known_and_what_comes_goes_on_there(
    client: httpx.AsyncClient, cast: Cast, db: Db, ids: dict[str, str]
):
    async def again(project: str) -> list[str]:
        session = {"serverSessionId": ids["s"], "contentSessionId": None}
        sent = [{**SENT[1], **session}, {"sourceEventId": "s-1", **session}, {"sourceEventId": "s-1", "contentSessionId": "s"}]
        return [(await send(client, cast.alice.headers, project, **event))["event"]["id"] for event in sent]

    first = await again(HOME)
    await move(client, cast, ids["s"], OTHER)
    moved = [await again(HOME), await again(OTHER)]
    new = (await send(client, cast.alice.headers, HOME, sourceEventId="new", contentSessionId="s"))["event"]

    assert moved[0] == first
    assert moved[1][:2] == first[:2]
    assert (new["projectId"], new["serverSessionId"]) == (str(cast.alice.project.id), ids["s"])


async def test_a_moved_session_stays_where_it_is_when_its_project_is_joined_separated_and_deleted(
    client: httpx.AsyncClient, cast: Cast, db: Db, ids: dict[str, str]
):
    (home,) = await rows(db, "SELECT id FROM projects WHERE canonical_id = %s", HOME)
    await move(client, cast, ids["s"], OTHER)

    await act(client, cast, "POST", f"/v1/projects/{HOME}/join", {"into": OTHER})
    await act(client, cast, "POST", f"/v1/projects/{home['id']}/separate")
    separated = await rows(db, "SELECT external_session_id AS name, project_id AS project FROM server_sessions ORDER BY 1")
    await act(client, cast, "DELETE", f"/v1/projects/{HOME}")

    assert separated == [{"name": "s", "project": cast.alice.project.id}, {"name": "stays", "project": home["id"]}]
    assert await rows(db, "SELECT external_session_id AS name FROM server_sessions") == [{"name": "s"}]


async def test_a_move_is_refused_where_it_cannot_be_done(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str, ids: dict[str, str]
):
    mine, other = await write(client, cast, HOME, "Mine", sessionId=ids["s"]), await write(client, cast, HOME, "Other")
    await act(client, cast, "POST", f"/v1/observations/{other}/merge", {"sources": [mine]})
    await send(client, cast.alice.headers, HOME, serverSessionId=ids["stays"], contentSessionId=None, sourceEventId="held")
    assert await (await hand(db, notifier, cast.alice, Scripted())).claim() is not None
    before = whose(database)

    merged = await move(client, cast, ids["s"], OTHER, 409)
    await move(client, cast, ids["stays"], OTHER, 409)
    await move(client, cast, ids["s"], "nowhere", 400)
    await move(client, cast, "nobody", OTHER, 404)
    bound = await bound_to(db, cast.alice, HOME)
    for person, status in ((bound, 403), (cast.charlie, 404)):
        path, body = f"/v1/sessions/{ids['s']}/move", {"into": person.project.canonical_id}
        assert (await client.post(path, json=body, headers=person.headers)).status_code == status

    assert str(other) in merged["message"]
    assert whose(database) == before


async def test_a_deleted_session_is_counted_first_and_leaves_nothing_behind(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, ids: dict[str, str]
):
    beside = rows_about(database, ids["stays"])
    counted = await act(client, cast, "DELETE", f"/v1/sessions/{ids['s']}?dryRun=true")
    held = rows_about(database, ids["s"])

    deleted = await act(client, cast, "DELETE", f"/v1/sessions/{ids['s']}")

    assert (counted["deleted"], deleted["deleted"]) == (False, True)
    assert counted["counts"] == deleted["counts"]
    assert {kind: deleted["counts"][kind] for kind in ("turns", "events")} == {"turns": 1, "events": 4}
    assert all(deleted["counts"][kind] > 0 for kind in ("observations", "jobs", "runs", "receipts"))
    assert deleted["counts"]["vectors"] == deleted["counts"]["observations"] + deleted["counts"]["turns"]
    assert held
    assert rows_about(database, ids["s"]) == {}
    assert rows_about(database, ids["stays"]) == beside
    titles = [o["title"] for o in (await act(client, cast, "GET", f"/v1/observations?project={HOME}"))["observations"]]
    assert {"Beside s", "Corrected in stays"} <= set(titles)
    assert "Corrected in s" not in titles
    (audited,) = await rows(db, "SELECT resource_id, details -> 'counts' AS counts FROM audit_log WHERE action = 'session.deleted'")
    assert audited == {"resource_id": ids["s"], "counts": deleted["counts"]}
    await act(client, cast, "DELETE", f"/v1/sessions/{ids['s']}", status=404)


async def test_a_session_is_not_deleted_by_others_nor_while_its_texts_are_in_other_observations(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, ids: dict[str, str]
):
    mine, other = await write(client, cast, HOME, "Mine", sessionId=ids["s"]), await write(client, cast, HOME, "Other")
    await act(client, cast, "POST", f"/v1/observations/{other}/merge", {"sources": [mine]})
    path, before = f"/v1/sessions/{ids['s']}", rows_about(database, ids["s"])
    elsewhere = await bound_to(db, cast.alice, OTHER)
    for person, status in ((cast.charlie, 404), (elsewhere, 404)):
        assert (await client.delete(path, headers=person.headers)).status_code == status

    counted = await act(client, cast, "DELETE", f"{path}?dryRun=true")
    refused = await act(client, cast, "DELETE", path, status=409)
    unchanged = rows_about(database, ids["s"])
    await act(client, cast, "POST", f"/v1/observations/{other}/undo")
    await act(client, cast, "DELETE", path)

    assert (counted["merged"], unchanged) == ([other], before)
    assert str(other) in refused["message"]
    assert rows_about(database, ids["s"]) == {}


async def test_a_restore_repeats_the_deletion(client: httpx.AsyncClient, cast: Cast, db: Db, database: str, ids: dict[str, str]):
    """Also with what its observations were merged into when the backup was made."""
    mine, other = await write(client, cast, HOME, "Mine", sessionId=ids["s"]), await write(client, cast, HOME, "Other")
    await act(client, cast, "POST", f"/v1/observations/{other}/merge", {"sources": [mine]})
    erasure = Erasure(action="session.deleted", team_id=cast.alice.team_id, resource_id=ids["s"])

    async with db.system() as conn:
        repeated = [await replay(conn, MADE, [erasure]) for _ in range(2)]

    assert repeated == [1, 0]
    assert rows_about(database, ids["s"]) == {}
    await act(client, cast, "GET", f"/v1/observations/{other}", status=404)
