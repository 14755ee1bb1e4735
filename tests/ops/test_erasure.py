"""What is erased is gone from every table, and what others have stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import psycopg
import pytest
from httpx import AsyncClient, Response
from psycopg import sql

from cmserver.access.keys import manage
from cmserver.access.keys.model import KeyRequest
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.events import repository as events
from cmserver.events.model import StoredEvent
from cmserver.generation import reindex
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.graph.read_observations import read_new_observations
from cmserver.ingest import record
from cmserver.models.providers.model import Answer, Completion, DraftObservation, DraftSummary, FailureKind, Prompt, ProviderError
from cmserver.observations.model import ManualObservation
from cmserver.observations.write import write
from cmserver.ops.erasure import erase
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person, bound_to
from tests.generation.tools import Hand, Outbox, Scripted, completion
from tests.make import Make
from tests.timeouts import until

Json = dict[str, Any]

WORD = "wombat"
"""Stands in every text of what is to be erased, and nowhere else."""

KEPT_BY_A_PURGE = {"api_keys", "project_aliases", "audit_log", "generation_spending", "budgets"}


def with_the_word(prompt: Prompt) -> Completion:
    if prompt.kind == "summary":
        return completion(Answer(summary=DraftSummary(request=f"{WORD}s", completed=f"{WORD}s")))
    drafts = [DraftObservation(title=f"A {WORD}", facts=[f"{WORD} fact"], events=[tag]) for tag in prompt.tags]
    return completion(Answer(observations=drafts))


def that_fails(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, f"It does not like {WORD}s.")


async def send(client: AsyncClient, headers: dict[str, str], project: str, **fields: object) -> Json:
    body = {"projectId": project, "eventType": "tool_use", "payload": {"text": f"a {WORD}"}, "contentSessionId": "s", **fields}
    response = await client.post("/v1/events", json=body, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()


async def hand(db: Db, notifier: JobNotifier, person: Person, provider: Scripted) -> Hand:
    return await Outbox(db, notifier, person.principal, person.project).hand(provider)


async def live(client: AsyncClient, db: Db, notifier: JobNotifier, person: Person, project: str) -> None:
    """Some of everything that a project can have: applied, failed, waiting and claimed work, a prompt, a summary, a memory."""
    async with db.system() as conn:
        await conn.execute(
            "INSERT INTO embedding_models (provider, model, state) SELECT 'ollama', 'one', 'current'"
            " WHERE NOT EXISTS (SELECT FROM embedding_models)"
        )
    started = await client.post(
        "/v1/sessions/start",
        json={"projectId": project, "externalSessionId": "s", "metadata": {"prompt": WORD}},
        headers=person.headers,
    )
    session = started.json()["session"]["id"]
    await send(client, person.headers, project, eventType="user_prompt", payload={"prompt": f"Find the {WORD} in `{WORD}_den`"})
    await send(client, person.headers, project)
    await send(client, person.headers, project, contentSessionId=None)
    await client.post(f"/v1/sessions/{session}/end", headers=person.headers)
    assert await (await hand(db, notifier, person, Scripted(with_the_word))).work() > 0
    await send(client, person.headers, project, contentSessionId="fails")
    await (await hand(db, notifier, person, Scripted(that_fails))).work()
    await send(client, person.headers, project, contentSessionId="claimed")
    await (await hand(db, notifier, person, Scripted())).claim()
    await send(client, person.headers, project, contentSessionId="waits")
    began = {"hook_event_name": "SessionStart", "session_id": "h", "source": "startup"}
    await client.post("/v1/hooks/claude-code", json=began, headers={**person.headers, "X-Cmserver-Project": project})
    memory = {"projectId": project, "title": f"The {WORD} by hand, and its `{WORD}_queue`", "metadata": {"by": WORD}}
    assert (await client.post("/v1/observations", json=memory, headers=person.headers)).status_code == 201
    pin = {"projectId": project, "question": f"Where is the {WORD}?", "must": [WORD]}
    assert (await client.post("/v1/pins", json=pin, headers=person.headers)).status_code == 201
    async with db.system() as conn:
        await conn.execute(
            """
            WITH job AS (
                INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, job_type, payload)
                SELECT gen_random_uuid(), p.team_id, p.id, p.id, 'steward', p.id, 'derive',
                       jsonb_build_object('word', %(word)s::text)
                  FROM projects p WHERE p.team_id = %(team)s AND p.canonical_id = %(project)s RETURNING *
            ), run AS (
                INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, output_snapshot, status, completed_at)
                SELECT gen_random_uuid(), team_id, project_id, id, job_type, 1, payload, 'skipped', now() FROM job RETURNING *
            ), asked AS (
                INSERT INTO rule_approvals (observation_id, team_id, project_id)
                SELECT o.id, o.team_id, o.project_id FROM observations o JOIN job ON job.project_id = o.project_id
                 ORDER BY o.number DESC LIMIT 1
            ), replay AS (
                INSERT INTO replays (id, team_id, project_id, number, provider, program, session_count, event_count)
                SELECT gen_random_uuid(), team_id, NULL, (SELECT count(*) + 1 FROM replays), 'offline', '1', 1, 1 FROM job
                RETURNING *
            ), line AS (
                INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, place, difference, what, after)
                SELECT gen_random_uuid(), job.team_id, replay.id, job.project_id, s.id, row_number() OVER (), 'new', 'observation',
                       job.payload
                  FROM job, replay, server_sessions s WHERE s.project_id = job.project_id AND s.team_id = job.team_id
            ), member AS (
                INSERT INTO team_members (team_id, user_id, role)
                SELECT team_id, project_id, 'member' FROM job RETURNING *
            ), handoff AS (
                INSERT INTO handoffs (team_id, project_id, to_user, from_user, branch)
                SELECT j.team_id, j.project_id, m.user_id, m.user_id, %(word)s FROM job j, member m
            )
            INSERT INTO observation_derivations (id, team_id, project_id, fingerprint, source_observation_ids, derivation_type,
                                                 confidence, novelty, status, payload)
            SELECT gen_random_uuid(), team_id, project_id, 'f', '{}', 'recurring_failure', 0.9, 0.9, 'candidate', payload FROM job
            """,
            {"word": WORD, "team": person.team_id, "project": project},
        )
    recall = {"query": f"the {WORD}", "project_id": project}
    assert (await client.post("/api/v1/memories/recall", json=recall, headers=person.headers)).status_code == 200
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))
    await write_due_sentences(db, None, 0)
    entity = {"projectId": project, "type": "concept", "name": f"{WORD} fairness", "notes": f"of {WORD}s"}
    assert (await client.post("/v1/entities", json=entity, headers=person.headers)).status_code == 201


def tables_with(conn: psycopg.Connection, column: str) -> list[str]:
    found = conn.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = %s AND NOT a.attisdropped"
        " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1",
        [column],
    )
    return [str(row[0]) for row in found]


def count(conn: psycopg.Connection, table: str, column: str, value: UUID) -> int:
    query = sql.SQL("SELECT count(*) FROM {} WHERE {}::text = %s").format(sql.Identifier(table), sql.Identifier(column))
    row = conn.execute(query, [str(value)]).fetchone()
    assert row is not None
    return row[0]


def rows_of(database: str, column: str, value: UUID) -> dict[str, int]:
    """How many rows of the project or team there are, by table; those that have none are left out."""
    with psycopg.connect(database) as conn:
        counts = {table: count(conn, table, column, value) for table in tables_with(conn, column)}
    return {table: rows for table, rows in counts.items() if rows}


def told_anywhere(database: str, word: str) -> list[str]:
    """Every table that has the word in a row."""
    with psycopg.connect(database) as conn:
        tables = conn.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace ORDER BY 1"
        ).fetchall()
        tables_with_word: list[str] = []
        for (table,) in tables:
            query = sql.SQL("SELECT EXISTS (SELECT FROM {} t WHERE t::text ILIKE %s)").format(sql.Identifier(table))
            if conn.execute(query, [f"%{word}%"]).fetchone() == (True,):
                tables_with_word.append(table)
    return tables_with_word


async def found(client: AsyncClient, person: Person, project: str) -> list[int]:
    response = await client.post("/v1/search", json={"projectId": project, "query": WORD}, headers=person.headers)
    assert response.status_code == 200, response.text
    return [observation["number"] for observation in response.json()["observations"]]


async def entries(db: Db, action: str) -> list[tuple[Any, ...]]:
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT resource_type, resource_id, project_id, details FROM audit_log WHERE action = %s ORDER BY id", [action]
        )
        return await cursor.fetchall()


def without_request_id(response: Response) -> Json:
    answer = response.json()
    answer.pop("requestId")
    return answer


async def test_the_word_is_in_many_places_before(client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str):
    """Else the tests below would prove nothing."""
    await live(client, db, notifier, cast.alice, cast.alice.project.canonical_id)

    assert set(told_anywhere(database, WORD)) >= {
        "agent_events",
        "generation_runs",
        "memory_telemetry",
        "observation_generation_job_events",
        "observation_generation_jobs",
        "observations",
        "server_sessions",
        "turn_sentences",
        "turns",
    }
    assert set(rows_of(database, "project_id", cast.alice.project.id)) >= {"generation_lanes", "observation_sources"}
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT name FROM entities WHERE id IN (SELECT entity_id FROM entity_mentions WHERE turn_id IS NOT NULL)"
        )
        assert await cursor.fetchall() == [(f"{WORD}_den",)]
    assert await found(client, cast.alice, cast.alice.project.canonical_id) != []


async def test_after_a_purge_no_word_of_it_is_left_anywhere(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    project = cast.alice.project
    await live(client, db, notifier, cast.alice, project.canonical_id)
    before = rows_of(database, "project_id", project.id)

    response = await client.delete(f"/v1/projects/{quote(project.canonical_id, safe='')}/memory", headers=cast.alice.headers)

    assert response.status_code == 200, response.text
    counts = response.json()["counts"]
    assert response.json() == {"purged": True, "projectId": str(project.id), "counts": counts}
    assert counts == {
        "observations": before["observations"],
        "turns": before["turns"],
        "events": before["agent_events"],
        "sessions": before["server_sessions"],
        "jobs": before["observation_generation_jobs"],
        "runs": before["generation_runs"],
        "receipts": before["context_injections"],
        "entities": before["entities"],
        "projects": 0,
        "keys": 0,
    }
    assert min(counts[name] for name in ("observations", "turns", "events", "sessions", "jobs", "runs")) > 0
    assert rows_of(database, "project_id", project.id).keys() <= KEPT_BY_A_PURGE
    assert told_anywhere(database, WORD) == []
    assert await found(client, cast.alice, project.canonical_id) == []
    assert await entries(db, "memory.purged") == [("project", str(project.id), project.id, {"counts": counts})]


async def test_what_others_have_stays(client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str):
    await client.post("/v1/projects", json={"canonicalId": "billing"}, headers=cast.alice.headers)
    billing = (await client.post("/v1/projects", json={"canonicalId": "billing"}, headers=cast.alice.headers)).json()["project"]
    await live(client, db, notifier, cast.alice, "billing")
    await live(client, db, notifier, cast.charlie, cast.charlie.project.canonical_id)
    await live(client, db, notifier, cast.alice, cast.alice.project.canonical_id)
    neighbours = [("project_id", UUID(billing["id"])), ("team_id", cast.charlie.team_id)]
    before = [rows_of(database, *neighbour) for neighbour in neighbours]

    await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)
    await client.delete(f"/v1/projects/{cast.alice.project.id}", headers=cast.alice.headers)

    # More may have come: what requests used is written down a moment later.
    after = [rows_of(database, *neighbour) for neighbour in neighbours]
    lost = [table for had, has in zip(before, after, strict=True) for table, rows in had.items() if has.get(table, 0) < rows]
    assert lost == []
    assert await found(client, cast.alice, "billing") != []
    assert await found(client, cast.charlie, cast.charlie.project.canonical_id) != []


async def test_a_purged_project_goes_on_and_what_it_is_sent_again_is_new(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier
):
    name = cast.alice.project.canonical_id
    first = await send(client, cast.alice.headers, name, sourceEventId="1")

    await client.delete(f"/v1/projects/{name}/memory", headers=cast.alice.headers)
    again = await send(client, cast.alice.headers, name, sourceEventId="1")

    assert again["event"]["projectId"] == str(cast.alice.project.id)
    assert again["event"]["id"] != first["event"]["id"]
    assert again["event"]["serverSessionId"] not in {None, first["event"]["serverSessionId"]}
    assert await (await hand(db, notifier, cast.alice, Scripted(with_the_word))).work() == 1
    assert len(await found(client, cast.alice, name)) == 1


async def test_a_session_that_was_remembered_goes_on_after_a_purge_with_its_next_prompt(client: AsyncClient, cast: Cast):
    name = cast.alice.project.canonical_id
    prompt: Json = {"eventType": "user_prompt", "payload": {"prompt": "Why?"}}
    first = await send(client, cast.alice.headers, name, sourceEventId="1", **prompt)

    await client.delete(f"/v1/projects/{name}/memory", headers=cast.alice.headers)
    again = await send(client, cast.alice.headers, name, sourceEventId="2", **prompt)

    assert again["event"]["serverSessionId"] not in {None, first["event"]["serverSessionId"]}


async def test_a_project_named_like_a_route_is_deleted_by_its_name_and_nobody_else_forgets(client: AsyncClient, cast: Cast):
    name = cast.alice.project.canonical_id
    await send(client, cast.alice.headers, name)
    for called in (f"{name}/memory", f"{name}/jobs"):
        await client.post("/v1/projects", json={"canonicalId": called}, headers=cast.alice.headers)
        path = f"/v1/projects/{quote(called, safe='')}"

        shown = await client.get(path, headers=cast.alice.headers)
        deleted = await client.delete(path, headers=cast.alice.headers)

        assert shown.json()["project"]["canonicalId"] == called
        assert (deleted.json()["counts"]["projects"], deleted.json()["counts"]["events"]) == (1, 0)
    purged = await client.delete(f"/v1/projects/{quote(name, safe='')}/memory", headers=cast.alice.headers)
    assert purged.json()["counts"]["events"] == 1


async def test_a_repetition_whose_first_is_purged_while_it_is_looked_for_is_stored(
    client: AsyncClient, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    name = cast.alice.project.canonical_id
    first = await send(client, cast.alice.headers, name, sourceEventId="1")
    by_keys = events.by_keys

    async def purged_before(conn: Conn, team_id: UUID, keys: list[str]) -> list[StoredEvent]:
        monkeypatch.undo()
        await client.delete(f"/v1/projects/{name}/memory", headers=cast.alice.headers)
        return await by_keys(conn, team_id, keys)

    monkeypatch.setattr(record, "by_keys", purged_before)
    again = await send(client, cast.alice.headers, name, sourceEventId="1")

    assert again["event"]["id"] != first["event"]["id"]


async def test_a_purge_of_nothing_counts_nothing(client: AsyncClient, cast: Cast):
    response = await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)

    assert set(response.json()["counts"].values()) == {0}


async def test_a_batch_that_is_answered_after_a_purge_writes_nothing(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    async def purges(prompt: Prompt) -> Completion:
        response = await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)
        assert response.json()["counts"]["jobs"] == 1
        return with_the_word(prompt)

    provider = Scripted(purges)
    worker = await hand(db, notifier, cast.alice, provider)
    for session in ("s", None):
        await send(client, cast.alice.headers, cast.alice.project.canonical_id, contentSessionId=session)

        assert await worker.work() == 1

        assert told_anywhere(database, WORD) == []
        assert rows_of(database, "project_id", cast.alice.project.id).keys() <= KEPT_BY_A_PURGE
    assert len(provider.prompts) == 2


@pytest.mark.parametrize("act", ["purge", "project", "team"])
async def test_a_batch_whose_effects_come_after_an_erasure_writes_nothing(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str, monkeypatch: pytest.MonkeyPatch, act: str
):
    """Between the answer, which is stored, and the effects."""
    path = {
        "purge": f"/v1/projects/{cast.alice.project.id}/memory",
        "project": f"/v1/projects/{cast.alice.project.id}",
        "team": f"/v1/teams/{cast.alice.team_id}",
    }[act]
    await send(client, cast.alice.headers, cast.alice.project.canonical_id)
    worker = await hand(db, notifier, cast.alice, Scripted(with_the_word))
    apply = worker.runner._apply  # pyright: ignore[reportPrivateUsage]

    async def late(*args: Any) -> None:
        assert "generation_runs" in told_anywhere(database, WORD)
        assert (await client.delete(path, headers=cast.alice.headers)).status_code == 200
        await apply(*args)

    monkeypatch.setattr(worker.runner, "_apply", late)

    assert await worker.work() == 1

    assert told_anywhere(database, WORD) == []
    left = rows_of(database, "team_id", cast.alice.team_id).keys()
    assert not left & {"observations", "observation_sources", "generation_runs", "generation_lanes", "observation_generation_jobs"}


async def test_purges_ingest_and_work_at_once_end_without_an_error_and_leave_nothing_half(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    name = cast.alice.project.canonical_id
    worker = await hand(db, notifier, cast.alice, Scripted(with_the_word))

    async def ingest(session: str | None) -> None:
        for _ in range(8):
            body = {"projectId": name, "eventType": "tool_use", "payload": WORD, "contentSessionId": session}
            response = await client.post("/v1/events", json=body, headers=cast.alice.headers)
            # Two purges in a row may take away the session that an event has just been given, twice.
            assert response.status_code == 201 or (session and response.status_code == 404), response.text

    async def work() -> None:
        for _ in range(12):
            await worker.work()

    async def purge() -> None:
        for _ in range(4):
            response = await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)
            assert response.status_code == 200, response.text

    await asyncio.gather(ingest("a"), ingest("b"), ingest(None), work(), purge())
    await worker.work()
    with psycopg.connect(database) as conn:
        alone = conn.execute(
            "SELECT count(*) FROM agent_events e WHERE generate"
            " AND NOT EXISTS (SELECT FROM observation_generation_jobs j WHERE j.agent_event_id = e.id)"
        ).fetchone()
        waiting = conn.execute("SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'").fetchone()
    assert (alone, waiting) == ((0,), (0,))
    await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)
    assert told_anywhere(database, WORD) == []


async def test_a_deleted_project_leaves_only_audit_rows(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    bound = (await bound_to(db, cast.alice, cast.alice.project.canonical_id)).headers
    await live(client, db, notifier, cast.alice, cast.alice.project.canonical_id)
    with psycopg.connect(database) as conn:
        conn.execute(
            "INSERT INTO rate_limits (id, team_id, per_minute, tokens, refilled_at)"
            " SELECT id, team_id, 600, 600, now() FROM api_keys WHERE team_id = %s ON CONFLICT DO NOTHING",
            [cast.alice.team_id],
        )

    response = await client.delete(f"/v1/projects/{cast.alice.project.canonical_id}", headers=cast.alice.headers)

    assert response.status_code == 200, response.text
    counts = response.json()["counts"]
    assert response.json() == {"deleted": True, "projectId": str(cast.alice.project.id), "counts": counts}
    assert (counts["projects"], counts["keys"]) == (1, 1)
    assert rows_of(database, "team_id", cast.alice.team_id)["rate_limits"] == 2  # of the keys that are bound to no project
    assert rows_of(database, "project_id", cast.alice.project.id).keys() == {"audit_log", "generation_spending"}
    assert rows_of(database, "id", cast.alice.project.id) == {}
    assert told_anywhere(database, WORD) == []
    assert await entries(db, "project.deleted") == [
        ("project", str(cast.alice.project.id), cast.alice.project.id, {"counts": counts})
    ]
    assert (await client.get("/v1/observations", headers=bound)).status_code == 403


async def test_after_its_deletion_a_project_is_unknown_by_id_and_new_by_name(client: AsyncClient, cast: Cast, db: Db):
    name, old = cast.alice.project.canonical_id, str(cast.alice.project.id)
    sent = await send(client, cast.alice.headers, name)

    await client.delete(f"/v1/projects/{old}", headers=cast.alice.headers)

    body = {"projectId": old, "eventType": "tool_use", "contentSessionId": "s"}
    assert (await client.post("/v1/events", json=body, headers=cast.alice.headers)).status_code == 404
    ours = {"projectId": name, "eventType": "tool_use", "serverSessionId": sent["event"]["serverSessionId"]}
    assert (await client.post("/v1/events", json=ours, headers=cast.alice.headers)).status_code == 404
    session = {"projectId": old, "externalSessionId": "s"}
    assert (await client.post("/v1/sessions/start", json=session, headers=cast.alice.headers)).status_code == 404
    memory = {"projectId": old, "title": "Too late"}
    assert (await client.post("/v1/observations", json=memory, headers=cast.alice.headers)).status_code == 404
    assert (await client.delete(f"/v1/projects/{old}", headers=cast.alice.headers)).status_code == 404
    assert (await client.delete(f"/v1/projects/{old}/memory", headers=cast.alice.headers)).status_code == 404
    again = await send(client, cast.alice.headers, name)
    assert again["event"]["projectId"] != old


async def test_whoever_still_remembers_a_deleted_project_is_told_that_there_is_none(client: AsyncClient, cast: Cast, db: Db):
    """Another process, which has not heard of it yet."""
    alice = cast.alice
    await client.delete(f"/v1/projects/{alice.project.id}", headers=alice.headers)

    async def starts(conn: Conn) -> object:
        return await find_or_make(conn, alice.team_id, alice.project.id, NewSession(external_session_id="s"))

    async def writes(conn: Conn) -> object:
        return await write(conn, alice.principal, [ManualObservation(project_id=alice.project.id, title="x", content="x")])

    async def makes_a_key(conn: Conn) -> object:
        wanted = KeyRequest(scopes=["admin"], project_id=alice.project.id)
        return await manage.create(conn, alice.principal, wanted)

    async def reindexes(conn: Conn) -> object:
        target = reindex.ReindexTarget(project_id=alice.project.id, scope="project", source_id=alice.project.id)
        return await reindex.request_reindex(conn, alice.principal, target)

    for act in (starts, writes, makes_a_key, reindexes):
        with pytest.raises(NotFound, match="Project"):
            await db.in_tenant(alice.team_id, act)


async def test_a_purge_waits_for_what_is_being_written_and_takes_it_too(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    alice = cast.alice
    new = ManualObservation(project_id=alice.project.id, title=f"A late {WORD}", content=f"A late {WORD}")
    async with db.tenant(alice.team_id) as conn:
        await write(conn, alice.principal, [new])
        purge = asyncio.create_task(client.delete(f"/v1/projects/{alice.project.id}/memory", headers=alice.headers))
        async with db.system_statement() as watch:
            await until("it waits for a lock", lambda: waits_for_a_lock(watch), purge)

    assert (await purge).json()["counts"]["observations"] == 1
    assert told_anywhere(database, WORD) == []


@pytest.mark.parametrize("kind", ["project", "team", "member"])
async def test_a_change_that_waits_for_a_deletion_finds_nothing(client: AsyncClient, cast: Cast, db: Db, kind: str):
    alice = cast.alice
    team, project = f"/v1/teams/{alice.team_id}", f"/v1/projects/{alice.project.id}"
    method, path, change = {
        "project": ("PATCH", project, {"aliases": ["shop"]}),
        "team": ("PATCH", team, {"metadata": {"desk": 4}}),
        "member": ("PUT", f"{team}/members/bob", {"role": "owner"}),
    }[kind]
    async with db.tenant(alice.team_id) as conn:
        if kind == "project":
            await erase.delete_project(conn, alice.principal, str(alice.project.id))
        else:
            await erase.delete_team(conn, alice.principal, str(alice.team_id))
        changing = asyncio.create_task(client.request(method, path, json=change, headers=alice.headers))
        async with db.system_statement() as watch:
            await until("it waits for a lock", lambda: waits_for_a_lock(watch), changing)

    assert (await changing).status_code == 404


async def waits_for_a_lock(conn: Conn) -> bool:
    cursor = await conn.execute(
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted)"
    )
    return await cursor.fetchone() == (True,)


async def test_a_deleted_team_leaves_only_audit_rows_and_its_keys_open_nothing(
    client: AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    bound = (await bound_to(db, cast.alice, "billing")).headers
    await live(client, db, notifier, cast.alice, cast.alice.project.canonical_id)
    await live(client, db, notifier, cast.alice, "billing")
    await live(client, db, notifier, cast.charlie, cast.charlie.project.canonical_id)

    response = await client.delete(f"/v1/teams/{cast.alice.team_id}", headers=cast.alice.headers)

    assert response.status_code == 200, response.text
    counts = response.json()["counts"]
    assert response.json() == {"deleted": True, "teamId": str(cast.alice.team_id), "counts": counts}
    assert (counts["projects"], counts["keys"]) == (2, 3)
    assert rows_of(database, "team_id", cast.alice.team_id).keys() == {"audit_log"}
    assert rows_of(database, "id", cast.alice.team_id) == {}
    for headers in (cast.alice.headers, cast.bob.headers, bound):
        assert (await client.get("/v1/observations", headers=headers)).status_code == 403
    assert await found(client, cast.charlie, cast.charlie.project.canonical_id) != []
    assert [row[:2] for row in await entries(db, "team.deleted")] == [("team", str(cast.alice.team_id))]
    with psycopg.connect(database) as conn:
        row = conn.execute("SELECT count(*) FROM audit_log WHERE details::text ILIKE %s", [f"%{WORD}%"]).fetchone()
    assert row == (0,)


async def test_what_a_purged_project_shared_is_recalled_nowhere(client: AsyncClient, cast: Cast, make: Make):
    await client.post("/v1/projects", json={"canonicalId": "billing"}, headers=cast.alice.headers)
    shared = {"projectId": cast.alice.project.canonical_id, "title": f"Every {WORD}", "scope": "team"}
    await client.post("/v1/observations", json=shared, headers=cast.alice.headers)
    assert await found(client, cast.alice, "billing") == [1]

    await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)

    assert await found(client, cast.alice, "billing") == []
