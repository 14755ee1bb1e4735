"""What was drawn of a session before it became private, what is sent of it again, and where backups and exports take it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.models.providers.model import Answer, Completion, DraftObservation, DraftSummary, Prompt
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.journal import begin_journal
from tests.conftest import Cast, Person, Server
from tests.generation.tools import Scripted, completion
from tests.ops.test_erasure import WORD
from tests.ops.test_erasure_journal import bring_back, dump_of, value
from tests.ops.test_leaving import leave
from tests.ops.test_private_sessions import PRIVATE, PROJECT, place_of, rows_of_team, talk, work
from tests.ops.transfers import export
from tests.personal.people import make_two
from tests.personal.test_personal import act
from tests.rows import rows


@pytest.fixture
def journal(settings: Settings) -> ErasureJournal:
    return ErasureJournal(settings.backup_folder)


@pytest.fixture
async def db(server: Server, database: str, journal: ErasureJournal) -> AsyncGenerator[Db]:
    """With a journal, as the server has one."""
    async with Db(server.urls_of(database), size=6, journal=journal) as opened:
        await begin_journal(opened, journal)
        yield opened


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


def private_rows(url: str) -> dict[str, int]:
    """How many rows of each table lie in private places."""
    with psycopg.connect(url) as conn:
        places = conn.execute("SELECT id FROM teams WHERE private_of IS NOT NULL").fetchall()
    found = rows_of_team(url, places[0][0]) if places else {}
    return {table: count for table, count in found.items() if table not in {"usage_counters", "rate_limits"}}  # written later


async def test_a_backup_brings_back_what_is_private_where_it_was(
    client: httpx.AsyncClient,
    two: tuple[Person, Person],
    cast: Cast,
    db: Db,
    notifier: JobNotifier,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    ann, ben = two
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await talk(client, ben, "t", f"{WORD} leaves", private=True)
    await work(db, notifier, ann)
    await leave(client, db, ben, cast.alice)
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    await bring_back(file, empty_database, tmp_path, journal)

    assert private_rows(empty_database)["turns"] == 1
    assert private_rows(empty_database) == private_rows(database)
    numbers = "SELECT array_agg(last_number ORDER BY last_number) FROM observation_counters"
    assert value(empty_database, numbers) == value(database, numbers)
    left = "SELECT array_agg(content::text) FROM left_memories"
    assert value(empty_database, left) == value(database, left)
    assert rows_of_team(empty_database, ann.team_id, WORD) == rows_of_team(database, ann.team_id, WORD)


async def test_what_was_erased_marked_or_left_after_a_backup_does_not_come_back_with_it(
    client: httpx.AsyncClient,
    two: tuple[Person, Person],
    cast: Cast,
    db: Db,
    notifier: JobNotifier,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    ann, ben = two
    await talk(client, ann, "s", f"{WORD} erased", private=True)
    await talk(client, ann, "m", f"{WORD} marked")
    await talk(client, ben, "t", f"{WORD} leaves", private=True)
    await work(db, notifier, ann)
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    await act(client, ann, "POST", "/v1/sessions/m/private", {})
    await act(client, cast.alice, "DELETE", "/v1/users/ann/private")
    await leave(client, db, ben, cast.alice)
    await bring_back(file, empty_database, tmp_path, journal)

    assert value(empty_database, "SELECT count(*) FROM teams WHERE private_of IS NOT NULL") == 0
    assert value(empty_database, "SELECT array_agg(user_id) FROM left_memories") == [ben.principal.user_id]
    told = dump_of(empty_database)
    assert f"{WORD} erased" not in told
    assert f"{WORD} marked" not in told
    assert WORD not in journal.file.read_text()


async def test_what_was_private_and_was_given_back_is_in_a_backup_of_afterwards(
    client: httpx.AsyncClient,
    two: tuple[Person, Person],
    db: Db,
    notifier: JobNotifier,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    ann, _ = two
    await talk(client, ann, "s", f"{WORD} secret")
    await work(db, notifier, ann)
    for private in (True, False):
        await act(client, ann, "POST", "/v1/sessions/s/private", {"private": private})
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    report = await bring_back(file, empty_database, tmp_path, journal)

    assert report.erased == 0
    assert rows_of_team(empty_database, ann.team_id, WORD) == rows_of_team(database, ann.team_id, WORD)
    assert rows_of_team(empty_database, ann.team_id)["server_sessions"] == 1


async def test_an_export_of_the_team_has_nothing_private(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str, tmp_path: Path
):
    ann, ben = two
    await talk(client, ben, "b", "lamp")
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await talk(client, ann, "m", f"{WORD} marked")
    await work(db, notifier, ann)

    await act(client, ann, "POST", "/v1/sessions/m/private", {})

    told = (await export(database, ann.team_id, tmp_path / "team.jsonl")).read_text()
    assert "lamp" in told
    assert WORD not in told


async def test_an_overview_and_what_the_steward_drew_are_made_anew_without_it(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    await talk(client, ben, "b", "lamp")
    await talk(client, ann, "s", f"{WORD} secret")
    await work(db, notifier, ann, Scripted(repeat_the_word))
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))
    await act(client, ann, "POST", f"/v1/projects/{PROJECT}/overview", {})
    await derive(db, ann)
    before = rows_of_team(database, ann.team_id, WORD)
    assert {"project_overviews", "entities", "observation_derivations"} <= before.keys()

    await act(client, ann, "POST", "/v1/sessions/s/private", {})

    assert rows_of_team(database, ann.team_id, WORD) == {}
    await work(db, notifier, ann)
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))
    assert rows_of_team(database, ann.team_id, WORD) == {}
    assert WORD in str(await of_place(client, ann, "/v1/entities"))


def repeat_the_word(prompt: Prompt) -> Completion:
    """Says the word where the prompt has it."""
    word = WORD if WORD in str(prompt) else "lamp"
    if prompt.kind == "summary":
        return completion(Answer(summary=DraftSummary(request=f"{word}s", completed=f"{word}s")))
    drafts = [DraftObservation(title=f"A `{word}_queue`", facts=[f"{word} fact"], events=[tag]) for tag in prompt.tags]
    return completion(Answer(observations=drafts))


async def of_place(client: httpx.AsyncClient, who: Person, path: str) -> object:
    answered = await client.get(path, headers={**who.headers, **PRIVATE}, params={"project": PROJECT})
    assert answered.status_code == 200, answered.text
    return answered.json()


async def derive(db: Db, who: Person) -> None:
    """What the steward would have drawn from all of the project."""
    async with db.system() as conn:
        await conn.execute(
            """
            INSERT INTO observation_derivations (id, team_id, project_id, fingerprint, source_observation_ids, derivation_type,
                                                 confidence, novelty, status, payload)
            SELECT gen_random_uuid(), team_id, project_id, 'f', array_agg(id), 'recurring_failure', 0.9, 0.9, 'candidate',
                   jsonb_build_object('word', %(word)s::text)
              FROM observations WHERE team_id = %(team)s GROUP BY team_id, project_id
            """,
            {"team": who.team_id, "word": WORD},
        )


async def test_what_was_merged_with_others_is_separated_first(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    await talk(client, ben, "b", "lamp")
    await talk(client, ann, "s", f"{WORD} secret")
    await work(db, notifier, ann)
    found = await rows(db, "SELECT number, content FROM observations WHERE team_id = %s AND actor_id IS NOT NULL", ann.team_id)
    mine = [row["number"] for row in found if WORD in row["content"]]
    others = [row["number"] for row in found if "lamp" in row["content"]]
    assert mine
    assert others
    await act(client, ben, "POST", f"/v1/observations/{others[0]}/merge", {"sources": [mine[0]]})
    if len(mine) > 1 and len(others) > 1:
        await act(client, ben, "POST", f"/v1/observations/{mine[1]}/merge", {"sources": [others[1]]})

    await act(client, ann, "POST", "/v1/sessions/s/private", {})

    assert rows_of_team(database, ann.team_id, WORD) == {}
    shown = await rows(db, "SELECT number FROM observations WHERE team_id = %s AND superseded_at IS NULL", ann.team_id)
    assert set(others) <= {row["number"] for row in shown}
    assert rows_of_team(database, await place_of(db, ann), WORD)["observations"] >= 1


async def test_what_a_spool_sends_again_of_it_comes_to_nobody_else(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    event = {
        "projectId": PROJECT,
        "eventType": "note",
        "payload": {"text": f"{WORD} once more"},
        "contentSessionId": "s",
        "sourceEventId": "one",
    }
    await talk(client, ann, "s", f"{WORD} secret")
    await act(client, ann, "POST", "/v1/events", event, 201)
    await work(db, notifier, ann)
    session = (await act(client, ann, "POST", "/v1/sessions/s/private", {}))["session"]["id"]
    kept = private_rows(database)
    count = (await rows(db, "SELECT count(*) AS n FROM agent_events WHERE team_id = %s", ann.team_id))[0]["n"]

    await talk(client, ann, "s", f"{WORD} secret")
    late = {**ann.headers, "X-Cmserver-Project": PROJECT, "X-Cmserver-Late": "1"}
    body = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": f"The {WORD} is late"}
    assert (await client.post("/v1/hooks/claude-code", json=body, headers=late)).status_code == 200
    by_id = {key: value for key, value in event.items() if key != "contentSessionId"} | {"serverSessionId": session}
    for sent in (event, by_id):
        assert (await client.post("/v1/events", json=sent, headers=ann.headers)).status_code in {200, 201}
    await work(db, notifier, ann)

    assert rows_of_team(database, ann.team_id, WORD) == {}
    assert (await rows(db, "SELECT count(*) AS n FROM agent_events WHERE team_id = %s", ann.team_id))[0]["n"] == count
    assert private_rows(database)["server_sessions"] == kept["server_sessions"]
    assert (await client.post("/v1/events", json=by_id, headers=ben.headers)).status_code == 404
