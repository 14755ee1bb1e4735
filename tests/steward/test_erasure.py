"""What is erased is gone from what the steward made of it, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx
import pytest
from psycopg.types.json import Jsonb

from cmserver.base.db import Db
from cmserver.consolidation.combine import merge_observations
from cmserver.graph.read_observations import read_new_observations
from cmserver.steward.derivations import repository as derivations
from cmserver.steward.model import Mode
from tests.conftest import Cast
from tests.ops.test_erasure import told_anywhere
from tests.rows import rows
from tests.steward.corpus import Case, Note
from tests.steward.tools import Keeper, Planted, plant, write_note

WORD = "wombat_queue"
"""Stands in every text of what is to be erased, and nowhere else."""
CASE = Case(
    name="wombats",
    kind="derivable",
    notes=tuple(
        Note(
            title=f"The deploy failed for the {place} time",
            facts=(f"DatabaseError: relation {WORD} does not exist", f"Fix: migrate {WORD} before the rollout"),
            files=(f"src/{WORD}.py",),
            session=session,
            day=session,
        )
        for session, place in enumerate(("first", "second", "third"), start=1)
    ),
)


async def derive(keeper: Keeper, mode: Mode) -> Planted:
    """The project with what was derived from it, and the entities of its observations."""
    planted = await plant(keeper.db, keeper.principal, CASE)
    await keeper.switch(mode)
    await keeper.work("derive")
    await read_new_observations(keeper.db)
    return planted


async def derived_rows(db: Db) -> list[int]:
    """How much there is of what was derived: observations, derivations, and runs with its words."""
    (counts,) = await rows(
        db,
        "SELECT (SELECT count(*) FROM observations WHERE agent = 'steward') AS observations,"
        " (SELECT count(*) FROM observation_derivations) AS derivations,"
        " (SELECT count(*) FROM steward_runs WHERE output_snapshot::text LIKE %s) AS runs",
        f"%{WORD}%",
    )
    return list(counts.values())


@pytest.mark.parametrize(("mode", "made"), [("write", [1, 1, 0]), ("dry_run", [0, 1, 1])])
@pytest.mark.parametrize("way", ["session", "observation"])
async def test_what_was_derived_goes_with_the_first_of_its_sources(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper, database: str, mode: Mode, made: list[int], way: str
):
    planted = await derive(keeper, mode)
    before = await derived_rows(keeper.db)
    words_before = told_anywhere(database, WORD)

    derived = await rows(keeper.db, "SELECT id FROM observations WHERE agent = 'steward'")
    left: list[list[int]] = []
    for note in planted.notes:
        path = f"/v1/sessions/{note.server_session_id}" if way == "session" else f"/v1/observations/{note.id}"
        answered = await client.delete(path, headers=cast.alice.headers)
        assert answered.is_success, answered.text
        left.append(await derived_rows(keeper.db))

    assert before == made
    assert {"entities", "observations"} <= set(words_before)
    assert left == [[0, 0, 0]] * 3
    deleted = await rows(keeper.db, "SELECT resource_id FROM audit_log WHERE action = 'observation.deleted'")
    assert {str(row["id"]) for row in derived} <= {row["resource_id"] for row in deleted}
    assert told_anywhere(database, WORD) == []


async def test_what_a_person_deletes_counts_as_refused_and_what_grew_old_does_not(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper
):
    planted = await derive(keeper, "write")

    async def rejected() -> int:
        since = datetime.now(UTC) - timedelta(days=1)
        return (await keeper.db.in_system(lambda conn: derivations.counts(conn, keeper.team_id, since))).rejected

    derived = (await keeper.observations(planted.project))[-1]
    # As the purge of expired ones leaves it.
    await rows(keeper.db, "UPDATE observation_derivations SET derived_observation_id = NULL")
    aged = await rejected()
    await rows(keeper.db, "UPDATE observation_derivations SET derived_observation_id = %s", derived.id)
    deleted = await client.delete(f"/v1/observations/{derived.id}", headers=cast.alice.headers)

    assert deleted.is_success, deleted.text
    assert (aged, await rejected()) == (0, 1)


async def test_a_purge_takes_along_what_other_projects_derived_of_moved_sessions(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper, database: str
):
    planted = await derive(keeper, "write")
    into = cast.alice.project.canonical_id
    session_id = planted.notes[0].server_session_id
    moved = await client.post(f"/v1/sessions/{session_id}/move", json={"into": into}, headers=cast.alice.headers)

    purged = await client.delete(f"/v1/projects/{quote(into, safe='')}/memory", headers=cast.alice.headers)

    assert moved.is_success, moved.text
    assert purged.is_success, purged.text
    assert await derived_rows(keeper.db) == [0, 0, 0]


async def test_a_derivation_that_was_merged_into_another_observation_is_named_first(
    client: httpx.AsyncClient, cast: Cast, keeper: Keeper, database: str
):
    planted = await derive(keeper, "write")
    derived = (await keeper.observations(planted.project))[-1]
    other = await write_note(keeper.db, planted.project, Note(title="What is known of deploys"))
    await keeper.db.in_tenant(
        keeper.team_id, lambda conn: merge_observations(conn, keeper.principal, str(other.number), [derived.number], "append")
    )

    note = planted.notes[0]
    refused = [
        await client.delete(path, headers=cast.alice.headers)
        for path in (f"/v1/observations/{note.id}", f"/v1/sessions/{note.server_session_id}")
    ]

    assert [answer.status_code for answer in refused] == [409, 409]
    assert all(str(other.number) in answer.json()["message"] for answer in refused)


async def test_a_mark_goes_with_the_session_that_gave_the_reason(client: httpx.AsyncClient, cast: Cast, keeper: Keeper):
    planted = await derive(keeper, "off")
    note = planted.notes[0]
    session = {"projectId": planted.project.canonical_id, "contentSessionId": "gone", "eventType": "tool_use", "payload": {"a": 1}}
    event = (await client.post("/v1/events", json=session, headers=cast.alice.headers)).json()["event"]
    mark = {"reason": "moved", "path": "a.py", "name": "wombat.py", "eventId": event["id"], "markedAtEpoch": 1}
    await rows(keeper.db, "UPDATE observations SET stale = %s WHERE id = %s", Jsonb(mark), note.id)

    answered = await client.delete(f"/v1/sessions/{event['serverSessionId']}", headers=cast.alice.headers)

    assert answered.is_success, answered.text
    assert await rows(keeper.db, "SELECT id FROM observations WHERE stale IS NOT NULL") == []
