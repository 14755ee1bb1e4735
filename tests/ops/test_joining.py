"""Two projects that are one: joined with everything, known by both names, and separated again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from psycopg import sql

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph.read_observations import read_new_observations
from cmserver.ops.joining.join import move_strays
from cmserver.ops.joining.normalise import normalise_all
from tests.conftest import Cast, bound_to, mint
from tests.generation.tools import Outbox, Scripted
from tests.ops.test_erasure import hand, rows_of, send, tables_with, with_the_word
from tests.rows import rows

Json = dict[str, Any]

OLD, NEW = "/home/alice/orders", "github.com/acme/orders"
STAYS = {
    "project_aliases": "the names of the project",
    "api_keys": "they are bound to the name",
    "budgets": "they are set for the name",
    "replays": "they say what was run; their lines go with the sessions",
    "pins": "they ask the other one until it is separated",
    "steward_modes": "it is set for the name",
    "audit_log": "history",
    "generation_spending": "history; a trigger moves what is spent by runs",
    "memory_telemetry": "history",
    "entities": "they wait until it is separated; the other one has copies",
    "observation_embeddings": "those of entities, which wait, too",
    "entity_relations": "they wait until it is separated; the other one has copies",
    "handoffs": "they are told in the other one, too",
    "clones": "what became of their files is known anew from their next start on",
    "project_overviews": "the page is emptied, and made anew",
    "project_joined_rows": "the list of what is to go back",
}
"""The tables with a project that a join leaves to the joined one, and why. Each other one moves, and goes back."""
COMPARED = {"entities", "entity_relations"}
"""Those of them that must be the same again after separating."""
SENT: list[Json] = [
    {"sourceEventId": "e1"},
    {"occurredAtEpoch": 1_700_000_000_000, "payload": {"a": 1}},
    {"occurredAtEpoch": 1_700_000_000_000, "payload": {"b": 1}, "contentSessionId": None},
]
"""Events as a spool keeps them: known by the id of their source, by what they say in their session, and without one."""


async def act(client: httpx.AsyncClient, cast: Cast, method: str, path: str, body: object = None, status: int = 200) -> Json:
    answered = await client.request(method, path, json=body, headers=cast.alice.headers)
    assert answered.status_code == status, answered.text
    return answered.json()


async def join(client: httpx.AsyncClient, cast: Cast, status: int = 200) -> Json:
    return await act(client, cast, "POST", f"/v1/projects/{OLD}/join", {"into": NEW}, status)


async def separate(client: httpx.AsyncClient, cast: Cast, project_id: str, status: int = 200) -> Json:
    return await act(client, cast, "POST", f"/v1/projects/{project_id}/separate", status=status)


async def write(client: httpx.AsyncClient, cast: Cast, project: str, title: str, **fields: object) -> int:
    body = {"projectId": project, "title": title, "narrative": f"{title} is what it says.", **fields}
    return (await act(client, cast, "POST", "/v1/observations", body, 201))["observation"]["number"]


async def derive(db: Db, observations: list[int]) -> None:
    """What the steward derived in the project of these: the first from the second, and something that people took back."""
    await rows(
        db,
        """
        INSERT INTO observation_derivations (id, team_id, project_id, fingerprint, source_observation_ids, derived_observation_id,
                                             derivation_type, confidence, novelty, status)
        SELECT gen_random_uuid(), d.team_id, d.project_id, kind.name, ARRAY[s.id], CASE WHEN kind.name = 'stored' THEN d.id END,
               'recurring_failure', 0.9, 0.5, CASE WHEN kind.name = 'stored' THEN 'accepted' ELSE 'undone' END
          FROM observations d JOIN observations s ON s.number = %s AND s.team_id = d.team_id,
               unnest('{stored,undone}'::text[]) AS kind(name) WHERE d.number = %s
        """,
        observations[1],
        observations[0],
    )


@pytest.fixture
async def old(client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier) -> str:
    """The id of a project that has some of everything, beside Alice's other one."""
    project = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD, "searchLanguage": "german"}, 201))["project"]
    async with db.system() as conn:
        await conn.execute("INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'one', 'current')")
    for name in (OLD, NEW):
        start = {"projectId": name, "externalSessionId": "s"}
        await act(client, cast, "POST", "/v1/sessions/start", start, 201)
        await send(client, cast.alice.headers, name, eventType="user_prompt", payload={"prompt": f"Mend {name}"})
        for event in SENT:
            await send(client, cast.alice.headers, name, **event)
        assert await (await hand(db, notifier, cast.alice, Scripted(with_the_word))).work() > 0
        began = {"hook_event_name": "SessionStart", "session_id": "h", "source": "startup"}
        hook = {**cast.alice.headers, "X-Cmserver-Project": name}
        assert (await client.post("/v1/hooks/claude-code", json=began, headers=hook)).status_code == 200
        first = await write(client, cast, name, f"First of {name}")
        second = await write(client, cast, name, f"Second of {name}", filesModified=["src/queue.py"])
        await act(client, cast, "PATCH", f"/v1/observations/{first}", {"title": "Corrected"})
        await act(client, cast, "POST", "/v1/relations", {"from": first, "to": second, "relationship": "CAUSES"}, 201)
        await derive(db, [first, second])
        await send(client, cast.alice.headers, name, contentSessionId="waits")
        await tell_entities(client, cast, name, first)
        await fill_others(db, cast.alice.team_id, name, first, second)
    await rows(
        db,
        """
        INSERT INTO turn_traces (team_id, project_id, turn_id, kind, name)
        SELECT team_id, project_id, id, 'edit', 'a.py' FROM turns
        """,
    )
    await rows(
        db,
        """
        INSERT INTO turn_sentences (turn_id, team_id, project_id)
        SELECT id, team_id, project_id FROM turns ON CONFLICT (turn_id) DO NOTHING
        """,
    )
    await rows(
        db,
        """
        WITH person AS (INSERT INTO users (id, name) VALUES (gen_random_uuid(), 'ann') RETURNING id)
        INSERT INTO personal_observations (id, team_id, user_id, number, type, content, actor_id, turn_id, project_id)
        SELECT t.id, t.team_id, person.id, t.number, 'rule', t.prompt, 'ann', t.id, t.project_id FROM turns t, person
        """,
    )
    await rows(db, "INSERT INTO untraced_turns (turn_id, team_id, project_id) SELECT id, team_id, project_id FROM turns")
    await read_new_observations(db)
    await bound_to(db, cast.alice, OLD)
    return project["id"]


async def tell_entities(client: httpx.AsyncClient, cast: Cast, project: str, number: int) -> None:
    """What people say of entities: one that both projects have, and one of its own."""
    made: list[str] = []
    for name, notes in (("Redis", f"Notes of {project}"), (f"Queue of {project}", None)):
        entity = {"projectId": project, "type": "technology", "name": name, "notes": notes}
        made.append((await act(client, cast, "POST", "/v1/entities", entity, 201))["entity"]["id"])
    relation = {"toId": made[0], "label": "waits for", "evidence": [number]}
    await act(client, cast, "POST", f"/v1/entities/{made[1]}/relations", relation, 201)


async def fill_others(db: Db, team_id: UUID, project: str, first: int, second: int) -> None:
    """A row in each table that the requests above leave empty."""
    async with db.system() as conn:
        await conn.execute(
            """
            WITH p AS (SELECT id, team_id, canonical_id FROM projects WHERE canonical_id = %(project)s AND team_id = %(team)s),
            pair AS (
                SELECT array_agg(o.id ORDER BY o.id) AS ids FROM observations o JOIN p ON p.id = o.project_id
                 WHERE o.number IN (%(first)s, %(second)s)
            ),
            vector AS (
                INSERT INTO observation_embeddings (observation_id, team_id, project_id, model_id)
                SELECT unnest(ids), p.team_id, p.id, m.id FROM p, pair, embedding_models m ON CONFLICT DO NOTHING
            ), suggestion AS (
                INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
                SELECT gen_random_uuid(), p.team_id, p.id, ids[1], ids[2], 0.9, 'words', 'same' FROM p, pair ON CONFLICT DO NOTHING
            ), asked AS (
                INSERT INTO rule_approvals (observation_id, team_id, project_id) SELECT ids[1], p.team_id, p.id FROM p, pair
            ), alias AS (
                INSERT INTO project_aliases (team_id, alias, project_id) SELECT team_id, canonical_id || '-old', id FROM p
            ), budget AS (
                INSERT INTO budgets (id, team_id, project_id, period, max_tokens)
                SELECT gen_random_uuid(), team_id, id, 'day', 999999999 FROM p
            ), pin AS (
                INSERT INTO pins (id, team_id, project_id, number, question, must, must_not, lines, on_break, from_file, holds)
                SELECT gen_random_uuid(), p.team_id, id, (SELECT count(*) FROM pins) + row_number() OVER (), 'Which?', '{a}', '{}',
                       5, 'report', false, true FROM p
            ), replay AS (
                INSERT INTO replays (id, team_id, project_id, number, provider, program, session_count, event_count)
                SELECT gen_random_uuid(), team_id, id, (SELECT count(*) + 1 FROM replays), 'offline', '1', 1, 1 FROM p RETURNING *
            ), line AS (
                INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, turn_id, place, difference,
                                          what, after)
                SELECT gen_random_uuid(), r.team_id, r.id, r.project_id, t.server_session_id, t.id,
                       row_number() OVER (), 'new', 'observation', '{}'
                  FROM replay r JOIN turns t ON t.project_id = r.project_id AND t.team_id = r.team_id
            ), mode AS (
                INSERT INTO steward_modes (team_id, project_id, executors, changed_by)
                SELECT team_id, id, '{derive}', 'alice' FROM p
            ), recall AS (
                INSERT INTO memory_telemetry (team_id, project_id, event_type, query_text)
                SELECT team_id, id, 'recall_attempt', 'q' FROM p
            ), page AS (
                INSERT INTO project_overviews (id, project_id, team_id, body, numbers, made_at)
                SELECT gen_random_uuid(), id, team_id, 'A page', ARRAY[%(first)s::bigint], now() FROM p
                ON CONFLICT (project_id) DO UPDATE SET body = excluded.body, numbers = excluded.numbers, made_at = now()
            ), lane AS (
                INSERT INTO generation_lanes (lane, team_id, project_id) SELECT id, team_id, id FROM p
            ), member AS (
                INSERT INTO team_members (team_id, user_id, role) SELECT team_id, canonical_id, 'member' FROM p RETURNING *
            ), handoff AS (
                INSERT INTO handoffs (team_id, project_id, to_user, from_user, branch)
                SELECT p.team_id, p.id, m.user_id, m.user_id, 'main' FROM p, member m
            ), clone AS (
                INSERT INTO clones (project_id, team_id, clone_id, head) SELECT id, team_id, gen_random_uuid(), 'a' FROM p
            ), job AS (
                INSERT INTO observation_generation_jobs (id, team_id, project_id, lane, source_type, source_id, job_type)
                SELECT gen_random_uuid(), team_id, id, id, 'steward', id, 'derive' FROM p RETURNING *
            )
            INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, completed_at)
            SELECT gen_random_uuid(), team_id, project_id, id, job_type, 1, 'skipped', now() FROM job
            """,
            {"team": team_id, "project": project, "first": first, "second": second},
        )


def whose(database: str) -> dict[str, list[tuple[Any, ...]]]:
    """The project of each row, by table and its other columns' ids."""
    state: dict[str, list[tuple[Any, ...]]] = {}
    with psycopg.connect(database) as conn:
        for column in ("project_id", "from_project_id", "to_project_id"):
            for table in tables_with(conn, column):
                if table in STAYS.keys() - COMPARED:
                    continue
                query = sql.SQL("SELECT t.{}, to_jsonb(t) ->> 'id', to_jsonb(t) ->> 'lane' FROM {} t ORDER BY 1, 2, 3")
                state[f"{table}.{column}"] = conn.execute(query.format(sql.Identifier(column), sql.Identifier(table))).fetchall()
    return state


async def test_everything_moves_and_goes_back(client: httpx.AsyncClient, cast: Cast, database: str, old: str):
    before = whose(database)
    held = rows_of(database, "project_id", UUID(old))

    joined = (await join(client, cast))["project"]
    left = rows_of(database, "project_id", UUID(old))
    languages = await act(client, cast, "POST", "/v1/search", {"query": "what it says", "projectId": NEW, "limit": 50})
    separated = (await separate(client, cast, old))["project"]

    with psycopg.connect(database) as conn:
        tables = set(tables_with(conn, "project_id"))
        pages = conn.execute("SELECT count(*) FROM project_overviews WHERE body IS NOT NULL").fetchone()
    assert held.keys() == tables - {"project_joined_rows"}, "give the fixture a row of the new table"
    assert STAYS.keys() <= tables
    assert joined["canonicalId"] == NEW
    assert left.keys() <= STAYS.keys(), "move it in move_gathered(), or say in STAYS why it stays"
    assert pages == (1,)
    assert {observation["title"] for observation in languages["observations"]} >= {f"Second of {OLD}", f"Second of {NEW}"}
    assert (separated["id"], separated["canonicalId"], separated["archivedAtEpoch"]) == (old, OLD, None)
    assert whose(database) == before
    assert "project_joined_rows" not in rows_of(database, "project_id", UUID(old))


async def test_both_names_mean_the_one_that_has_the_rows(client: httpx.AsyncClient, cast: Cast, old: str):
    await join(client, cast)

    found = [(await act(client, cast, "GET", f"/v1/projects/{name}"))["project"]["canonicalId"] for name in (OLD, NEW)]
    listed = [project["canonicalId"] for project in (await act(client, cast, "GET", "/v1/projects"))["projects"]]
    (archived,) = (await act(client, cast, "GET", "/v1/projects?archived=true"))["projects"]
    by_old = await act(client, cast, "GET", f"/v1/observations?project={OLD}&limit=100")
    by_new = await act(client, cast, "GET", f"/v1/observations?project={NEW}&limit=100")

    assert found == [NEW, NEW]
    assert listed == [NEW]
    assert (archived["id"], archived["joinedTo"]) == (old, str(cast.alice.project.id))
    assert by_old["observations"] == by_new["observations"]
    await act(client, cast, "PATCH", f"/v1/projects/{old}", {"archived": False}, 409)


async def test_what_a_spool_sends_again_is_known_after_a_join_and_after_separating(
    client: httpx.AsyncClient, cast: Cast, db: Db, old: str
):
    """An event's key has the id of the project by whose name it came first."""

    async def send_again() -> list[str]:
        return [(await send(client, cast.alice.headers, OLD, **event))["event"]["id"] for event in SENT]

    first = await send_again()
    counted = "SELECT (SELECT count(*) FROM agent_events) AS events, (SELECT count(*) FROM observation_generation_jobs) AS jobs"
    before = await rows(db, counted)

    await join(client, cast)
    joined = await send_again()
    during = (await send(client, cast.alice.headers, OLD, sourceEventId="new"))["event"]
    session = (await send(client, cast.alice.headers, OLD, contentSessionId="later", sourceEventId="later"))["event"]
    await separate(client, cast, old)
    separated = await send_again()
    after = [(await send(client, cast.alice.headers, OLD, sourceEventId="new"))["event"]]
    after += [(await send(client, cast.alice.headers, OLD, contentSessionId="later", sourceEventId="later"))["event"]]

    assert first == joined == separated
    assert [event["id"] for event in after] == [during["id"], session["id"]]
    assert {event["projectId"] for event in after} == {old}, "what came under its name goes back with it"
    assert during["projectId"] == session["projectId"] == str(cast.alice.project.id)
    (now,) = await rows(db, counted)
    assert (now["events"], now["jobs"]) == (before[0]["events"] + 2, before[0]["jobs"] + 2)


async def test_what_a_queue_holds_is_worked_off_after_a_join_and_goes_back_with_its_session(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, old: str
):
    await join(client, cast)
    assert await (await hand(db, notifier, cast.alice, Scripted(with_the_word))).work() > 0
    ids = (
        "SELECT o.id, o.project_id FROM observations o JOIN server_sessions s ON s.id = o.server_session_id"
        " WHERE s.external_session_id = 'waits' AND s.origin_project_id IS NOT DISTINCT FROM %s"
    )
    (made,) = await rows(db, ids, old)
    await separate(client, cast, old)

    (gone_back,) = await rows(db, "SELECT project_id FROM observations WHERE id = %s", made["id"])

    assert made["project_id"] == cast.alice.project.id
    assert gone_back["project_id"] == UUID(old)


async def test_what_a_key_that_is_bound_to_it_sends_afterwards_is_generated(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, old: str
):
    _, key = await mint(db, cast.alice.team_id, "bound", project_id=UUID(old), scopes=["*"])
    headers = {"Authorization": f"Bearer {key}"}
    event = (await send(client, headers, OLD, sourceEventId="before"))["event"]
    await join(client, cast)
    later = (await send(client, headers, OLD, sourceEventId="after"))["event"]

    await (await hand(db, notifier, cast.alice, Scripted(with_the_word))).work()

    ended = await rows(
        db,
        "SELECT status, last_error FROM observation_generation_jobs WHERE agent_event_id = ANY(%s::uuid[])",
        [event["id"], later["id"]],
    )
    assert [(row["status"], row["last_error"]) for row in ended] == [("completed", None)] * 2


async def test_while_a_worker_holds_its_jobs_it_is_not_joined(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier, old: str, database: str
):
    worker = await hand(db, notifier, cast.alice, Scripted())
    await worker.work()
    await send(client, cast.alice.headers, OLD, contentSessionId="held")
    assert await worker.claim() is not None
    before = whose(database)

    await join(client, cast, status=409)

    assert whose(database) == before


async def test_what_was_merged_across_must_be_undone_first(client: httpx.AsyncClient, cast: Cast, old: str):
    mine, other = await write(client, cast, OLD, "Mine"), await write(client, cast, NEW, "Other")
    await join(client, cast)
    await act(client, cast, "POST", f"/v1/observations/{other}/merge", {"sources": [mine]})

    refused = await separate(client, cast, old, status=409)
    await act(client, cast, "POST", f"/v1/observations/{other}/undo")
    await separate(client, cast, old)

    assert str(other) in refused["message"]
    (shown,) = (await act(client, cast, "POST", "/v1/search", {"query": "mine", "projectId": OLD}))["observations"][:1]
    assert shown["number"] == mine


async def test_a_key_that_is_bound_to_it_goes_along(client: httpx.AsyncClient, cast: Cast, db: Db, old: str):
    _, key = await mint(db, cast.alice.team_id, "bound", project_id=UUID(old), scopes=["*"])
    headers = {"Authorization": f"Bearer {key}"}

    async def seen() -> list[str]:
        return [row["canonicalId"] for row in (await client.get("/v1/projects", headers=headers)).json()["projects"]]

    before = await seen()
    await join(client, cast)
    during = await seen()
    refused = await client.post(f"/v1/projects/{old}/separate", headers=headers)
    await separate(client, cast, old)

    assert (before, during, await seen()) == ([OLD], [NEW], [OLD])
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("name", "into", "status"),
    [(OLD, OLD, 400), (OLD, "nobody", 400), ("nobody", NEW, 404), (NEW, OLD, 200)],
)
async def test_what_cannot_be_joined(client: httpx.AsyncClient, cast: Cast, old: str, name: str, into: str, status: int):
    assert old
    await act(client, cast, "POST", f"/v1/projects/{name}/join", {"into": into}, status)


async def test_no_chains_no_second_time_and_nothing_to_separate(client: httpx.AsyncClient, cast: Cast, old: str):
    await act(client, cast, "POST", "/v1/projects", {"canonicalId": "third"}, 201)
    await separate(client, cast, old, status=409)
    await join(client, cast)

    await act(client, cast, "POST", f"/v1/projects/{old}/join", {"into": "third"}, 409)
    await act(client, cast, "POST", f"/v1/projects/{NEW}/join", {"into": "third"}, 409)
    await act(client, cast, "POST", "/v1/projects/third/join", {"into": OLD}, 200)


async def test_what_is_written_into_a_joined_project_meanwhile_is_moved(client: httpx.AsyncClient, cast: Cast, db: Db, old: str):
    """A process that has not heard of the join yet."""
    await join(client, cast)
    number = await write(client, cast, NEW, "Stray")
    await rows(db, "DELETE FROM observation_embeddings")
    await rows(db, "UPDATE observations SET project_id = %s WHERE number = %s", old, number)

    moved = [await move_strays(db), await move_strays(db)]

    assert moved == [1, 0]
    (row,) = await rows(db, "SELECT project_id FROM observations WHERE number = %s", number)
    assert row["project_id"] == cast.alice.project.id


async def test_an_event_that_comes_meanwhile_is_generated_where_it_is_moved_to(
    client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox
):
    """Its job failed for good, so nothing was ever remembered of it."""
    target = (await act(client, cast, "POST", "/v1/projects", {"canonicalId": OLD}, 201))["project"]["id"]
    await act(client, cast, "POST", f"/v1/projects/{NEW}/join", {"into": OLD})
    await outbox.put()
    worker = await outbox.hand(Scripted())

    await worker.work()
    waiting = await outbox.statuses()
    await move_strays(db)
    await rows(db, "UPDATE generation_lanes SET held_until = NULL, held_reason = NULL, due_at = now()")
    await worker.work()

    assert (waiting, await outbox.statuses()) == ({"queued": 1}, {"completed": 1})
    (made,) = await rows(db, "SELECT project_id FROM observations")
    assert str(made["project_id"]) == target


async def test_deleting_a_project_takes_along_what_was_joined_to_it(client: httpx.AsyncClient, cast: Cast, database: str, old: str):
    await join(client, cast)
    await act(client, cast, "DELETE", f"/v1/projects/{old}", status=409)
    await act(client, cast, "DELETE", f"/v1/projects/{old}/memory", status=409)

    await act(client, cast, "DELETE", f"/v1/projects/{NEW}")

    for project_id in (UUID(old), cast.alice.project.id):
        assert rows_of(database, "project_id", project_id).keys() <= {"audit_log", "generation_spending"}


async def older_pair(client: httpx.AsyncClient, cast: Cast, db: Db) -> tuple[str, str]:
    """Two projects of before names ignored their case, which are one by now."""
    made = [
        (await act(client, cast, "POST", "/v1/projects", {"canonicalId": f"github.com/acme/{name}"}, 201))["project"]["id"]
        for name in ("shop", "temporary")
    ]
    await rows(db, "UPDATE projects SET canonical_id = 'github.com/Acme/Shop' WHERE id = %s", made[1])
    return made[0], made[1]


async def test_pairs_that_differ_in_case_are_joined_by_themselves_but_not_again(client: httpx.AsyncClient, cast: Cast, db: Db):
    shop, other = await older_pair(client, cast, db)
    number = await write(client, cast, other, "Of the other spelling")

    await normalise_all(db)
    joined = (await act(client, cast, "GET", f"/v1/observations/{number}"))["observation"]["projectId"]
    await separate(client, cast, other)
    await normalise_all(db)

    assert joined == shop
    assert (await act(client, cast, "GET", f"/v1/observations/{number}"))["observation"]["projectId"] == other


async def test_the_route_of_contextify_joins_them_too(client: httpx.AsyncClient, cast: Cast, db: Db):
    shop, other = await older_pair(client, cast, db)

    first = await act(client, cast, "POST", "/api/v1/admin/normalize-projects")
    second = await act(client, cast, "POST", "/api/v1/admin/normalize-projects")

    assert (first["updated"], second["updated"]) == (1, 0)
    assert (await act(client, cast, "GET", f"/v1/projects/{other}"))["project"]["joinedTo"] == shop
