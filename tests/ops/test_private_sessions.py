"""A private session is its person's alone: where it is marked at its start, and where it becomes so afterwards."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg
import pytest
from psycopg import sql

from cmserver.access.private import go_inside
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.trace_old_turns import trace_old_turns
from cmserver.graph.read_observations import read_new_observations
from cmserver.models.providers.model import Rules
from tests.conftest import Cast, Person, bound_to
from tests.generation.tools import Outbox, Scripted
from tests.ops.test_erasure import WORD, tables_with, with_the_word
from tests.personal.people import make_two
from tests.personal.test_personal import act, remember
from tests.rows import rows

Json = dict[str, Any]
PROJECT = "github.com/acme/orders"
PRIVATE = {"X-Cmserver-Private": "1"}


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def hook(
    client: httpx.AsyncClient, who: Person, session: str, name: str, status: int = 200, private: bool = False, **fields: object
) -> Json:
    headers = {**who.headers, "X-Cmserver-Project": PROJECT, **(PRIVATE if private else {})}
    body = {"hook_event_name": name, "session_id": session, **fields}
    answered = await client.post("/v1/hooks/claude-code", json=body, headers=headers)
    assert answered.status_code == status, answered.text
    return answered.json()


async def talk(client: httpx.AsyncClient, who: Person, session: str, words: str, **more: Any) -> str:
    """A session with a turn that says these words; returns what it was told at its start."""
    told = await hook(client, who, session, "SessionStart", source="startup", **more)
    await hook(client, who, session, "UserPromptSubmit", prompt=f"From now on the {words} is always kept in the den", **more)
    noun = words.split(maxsplit=1)[0]
    edit = {
        "file_path": f"src/{noun}.py",
        "old_string": "a = 1",
        "new_string": f"{noun} = 2",
    }
    await hook(client, who, session, "PostToolUse", tool_name="Edit", tool_input=edit, tool_use_id=f"of-{session}", **more)
    await hook(client, who, session, "Stop", last_assistant_message=f"The {words} is in the den now.", **more)
    return told.get("hookSpecificOutput", {}).get("additionalContext", "")


async def work(db: Db, notifier: JobNotifier, who: Person, *providers: Scripted | Rules) -> None:
    hand = await Outbox(db, notifier, who.principal, who.project).hand(*(providers or [Rules()]))
    while await hand.work():
        pass
    await read_new_observations(db)
    while await trace_old_turns(db):
        pass
    await write_due_sentences(db, None, 0)


def rows_of_team(database: str, team_id: object, word: str = "") -> dict[str, int]:
    """How many rows of each table are the team's, or of those the ones with the word."""
    found: dict[str, int] = {}
    with psycopg.connect(database) as conn:
        for table in tables_with(conn, "team_id"):
            query = sql.SQL("SELECT count(*) FROM {} t WHERE team_id = %s AND to_jsonb(t)::text LIKE %s").format(
                sql.Identifier(table)
            )
            (count,) = conn.execute(query, [team_id, f"%{word}%"]).fetchone() or (0,)
            if count:
                found[table] = count
    return found


async def place_of(db: Db, who: Person) -> object:
    found = await rows(db, "SELECT id FROM teams WHERE private_to = %s", who.principal.user_id)
    return found[0]["id"]


async def of_team(client: httpx.AsyncClient, who: Person, path: str, **headers: str) -> str:
    answered = await client.get(path, headers={**who.headers, **headers})
    assert answered.status_code == 200, answered.text
    return answered.text


async def test_a_session_that_begins_private_leaves_nothing_in_the_team(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, database: str, notifier: JobNotifier
):
    ann, ben = two
    before = rows_of_team(database, ann.team_id)

    told = await talk(client, ann, "s", f"{WORD} secret", private=True)
    await work(db, notifier, ann)

    after = rows_of_team(database, ann.team_id)
    assert {table for table in after if after[table] != before.get(table)} <= {"rate_limits", "usage_counters"}
    assert "This session is private" in told
    kept = rows_of_team(database, await place_of(db, ann), WORD)
    assert kept["turns"] == 1
    assert {"agent_events", "turns", "turn_sentences", "observations"} <= kept.keys()
    assert WORD in await of_team(client, ann, "/v1/observations", **PRIVATE)
    for who in two:
        assert WORD not in await of_team(client, who, "/v1/observations")
        assert (await client.get("/v1/sessions", headers=who.headers)).json()["sessions"] == []
    assert (await client.get("/v1/observations", headers={**ben.headers, **PRIVATE})).json()["observations"] == []


async def test_a_session_goes_on_where_it_is_private_whatever_the_client_says(
    client: httpx.AsyncClient, two: tuple[Person, Person], database: str
):
    ann, _ = two
    await hook(client, ann, "s", "SessionStart", source="startup", private=True)

    await hook(client, ann, "s", "UserPromptSubmit", prompt=f"The {WORD} is hungry")
    await hook(client, ann, "s", "SessionStart", source="resume")
    body = {"projectId": PROJECT, "eventType": "user_prompt", "payload": {"prompt": f"A {WORD} by hand"}, "contentSessionId": "s"}
    await act(client, ann, "POST", "/v1/events", body, 201)

    assert rows_of_team(database, ann.team_id, WORD) == {}


async def test_a_key_that_is_nobodys_makes_no_private_session_and_stores_nothing(
    client: httpx.AsyncClient, cast: Cast, database: str
):
    told = await hook(client, cast.alice, "s", "SessionStart", private=True, source="startup")
    silent = await hook(client, cast.alice, "s", "UserPromptSubmit", private=True, prompt=WORD)
    late = {**PRIVATE, "X-Cmserver-Late": "1"}
    body = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": WORD}
    refused = await client.post("/v1/hooks/claude-code", json=body, headers={**cast.alice.headers, **late})
    marked = await client.post("/v1/sessions/s/private", json={}, headers=cast.alice.headers)

    assert told.keys() == {"systemMessage"}
    assert "Nothing was kept" in told["systemMessage"]
    assert silent == {}
    assert [(one.status_code, one.json()["error"]) for one in (refused, marked)] == [(409, "NO_PERSON"), (403, "NO_PERSON")]
    assert "server_sessions" not in rows_of_team(database, cast.alice.team_id)


async def test_a_session_that_becomes_private_is_gone_from_the_team_with_all_that_was_drawn_from_it(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, database: str, notifier: JobNotifier
):
    ann, ben = two
    await talk(client, ben, "b", "lamp")
    await talk(client, ann, "s", f"{WORD} secret")
    await work(db, notifier, ann)
    assert WORD in await talk(client, ben, "c", "lamp again"), "others were told"
    kept = rows_of_team(database, ann.team_id, "lamp")
    kept.pop("context_injections")  # of what was told while it ran more is cut out than its own lines

    private = await act(client, ann, "POST", "/v1/sessions/s/private", {})

    assert private["private"] is True
    assert {(one["actorId"], one["reason"], bool(one["numbers"])) for one in private["told"]} == {
        ("ben", "startup", True),
        ("ben", "prompt", True),
    }
    assert rows_of_team(database, ann.team_id, WORD) == {}
    assert {"agent_events": 1, "turns": 1}.items() <= {
        table: min(count, 1) for table, count in rows_of_team(database, await place_of(db, ann), WORD).items()
    }.items()
    left = rows_of_team(database, ann.team_id, "lamp")
    assert {table: count for table, count in left.items() if table not in {"audit_log", "context_injections"}} == kept
    again = await act(client, ann, "POST", "/v1/sessions/s/private", {})
    assert again["told"] == private["told"]
    assert WORD not in await talk(client, ben, "d", "lamp at last")
    await hook(client, ann, "s", "UserPromptSubmit", prompt=f"The {WORD} goes on")
    assert rows_of_team(database, ann.team_id, WORD) == {}
    await work(db, notifier, ann)
    assert rows_of_team(database, ann.team_id, WORD) == {}
    numbers = await rows(db, "SELECT min(number) AS least FROM turns WHERE team_id = %s", await place_of(db, ann))
    assert numbers[0]["least"] > 1_000_000_000


async def test_only_its_person_makes_a_session_private_or_gives_it_back(
    client: httpx.AsyncClient, two: tuple[Person, Person], cast: Cast, database: str, db: Db, notifier: JobNotifier
):
    ann, ben = two
    await talk(client, ann, "s", f"{WORD} secret")
    await talk(client, cast.bob, "n", "lamp")
    await work(db, notifier, ann)
    before = rows_of_team(database, ann.team_id)
    body = {"private": False}

    assert (await client.post("/v1/sessions/s/private", json={}, headers=ben.headers)).status_code == 409
    assert (await client.post("/v1/sessions/n/private", json={}, headers=ann.headers)).status_code == 409
    session = (await act(client, ann, "POST", "/v1/sessions/s/private", {}))["session"]
    for name in ("s", session["id"]):
        for headers in (ben.headers, {**ben.headers, **PRIVATE}):
            assert (await client.post(f"/v1/sessions/{name}/private", json=body, headers=headers)).status_code == 404
            assert (await client.delete(f"/v1/sessions/{name}", headers=headers)).status_code == 404
    given = await act(client, ann, "POST", "/v1/sessions/s/private", body)

    assert (given["private"], given["session"]["teamId"], given["session"]["metadata"].get("told")) == (
        False,
        str(ann.team_id),
        None,
    )
    await work(db, notifier, ann)
    after = rows_of_team(database, ann.team_id)
    for table in ("turns", "agent_events", "server_sessions", "turn_sentences", "observations", "turn_traces"):
        assert after[table] == before[table], table
    assert rows_of_team(database, await place_of(db, ann), WORD) == {}
    assert WORD in await of_team(client, ben, "/v1/observations")


async def test_a_batch_of_private_and_public_sessions_goes_apart(
    client: httpx.AsyncClient, two: tuple[Person, Person], database: str, db: Db
):
    ann, _ = two
    await hook(client, ann, "mine", "SessionStart", source="startup", private=True)
    body = [
        {
            "projectId": PROJECT,
            "eventType": "note",
            "payload": {"text": f"{WORD if name == 'mine' else 'lamp'} {place}"},
            "contentSessionId": name,
        }
        for place, name in enumerate(("mine", "ours", "mine"))
    ]

    answered = await client.post("/v1/events/batch", json=body, headers=ann.headers)
    assert answered.status_code == 201, answered.text
    stored = answered.json()["events"]

    place = await place_of(db, ann)
    assert [one["event"]["teamId"] for one in stored] == [str(place), str(ann.team_id), str(place)]
    assert (rows_of_team(database, ann.team_id, WORD), rows_of_team(database, ann.team_id, "lamp")["agent_events"]) == ({}, 1)


async def test_what_a_worker_has_in_hand_when_a_session_becomes_private_is_done_there(
    client: httpx.AsyncClient, two: tuple[Person, Person], database: str, db: Db, notifier: JobNotifier
):
    ann, _ = two
    await talk(client, ann, "s", f"{WORD} secret")
    hand = await Outbox(db, notifier, ann.principal, ann.project).hand(Scripted(with_the_word))
    claims = await hand.claim()
    assert claims

    await act(client, ann, "POST", "/v1/sessions/s/private", {})
    for claim in claims:
        await hand.runner.run(claim)
    await work(db, notifier, ann, Scripted(with_the_word))

    assert rows_of_team(database, ann.team_id, WORD) == {}
    assert rows_of_team(database, await place_of(db, ann), WORD)["observations"] >= 1


async def test_what_another_session_said_too_stays_the_teams(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    for who, name in ((ann, "s"), (ben, "b")):
        await hook(client, who, name, "SessionStart", source="startup")
        await hook(client, who, name, "UserPromptSubmit", prompt="From now on, never push to the main branch.")
        await work(db, notifier, who)

    await act(client, ann, "POST", "/v1/sessions/s/private", {})

    found = (await act(client, ben, "GET", f"/v1/observations?project={PROJECT}"))["observations"]
    assert [(one["actorId"], one["type"]) for one in found] == [("ben", "decision")]


async def test_its_person_is_told_of_it_at_the_next_start_and_a_private_one_of_the_team(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    await talk(client, ben, "b", "lamp rule")
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await work(db, notifier, ann)

    public, others = await talk(client, ann, "t", "chair"), await talk(client, ben, "u", "table")
    before = rows_of_team(database, ann.team_id)
    private = await talk(client, ann, "v", "door", private=True)

    assert WORD in public
    assert "lamp" in public
    assert WORD not in others
    assert "lamp" in private
    assert WORD in private
    after = rows_of_team(database, ann.team_id)
    assert {table for table in after if after[table] != before.get(table)} <= {"rate_limits", "usage_counters"}


async def test_its_person_finds_it_behind_the_teams_and_reads_it_by_its_number(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, ben = two
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await work(db, notifier, ann)

    found = {who.principal.actor_id: await act(client, who, "POST", "/v1/search", {"query": f"{WORD} secret"}) for who in two}
    place = await place_of(db, ann)
    number = (await rows(db, "SELECT max(number) AS number FROM observations WHERE team_id = %s", place))[0]["number"]

    assert any(WORD in text for text in found["ann"]["private"])
    assert (found["ann"]["total"], found["ben"]["private"]) == (found["ben"]["total"], [])
    text = {"Accept": "text/plain"}
    reads = {who.principal.actor_id: await client.get(f"/v1/observations/{number}", headers=who.headers | text) for who in two}
    assert (reads["ann"].status_code, reads["ben"].status_code) == (200, 404)
    assert WORD in reads["ann"].text
    missing = await client.get("/v1/observations/1000999999", headers=ben.headers | text)
    assert missing.json()["message"] == reads["ben"].json()["message"]


async def test_in_a_private_place_one_manages_nothing(client: httpx.AsyncClient, two: tuple[Person, Person]):
    ann, _ = two
    inside = {**ann.headers, **PRIVATE}

    answers = {
        "key": await client.post("/v1/keys", json={"name": "k", "scopes": ["observations:read"]}, headers=inside),
        "member": await client.put("/v1/teams/blue/members/eve", json={"role": "owner"}, headers=inside),
        "invitation": await client.post("/v1/users/invitations", json={"role": "member"}, headers=inside),
    }

    assert {name: answered.status_code for name, answered in answers.items()} == dict.fromkeys(answers, 403)


async def test_nobody_goes_into_anothers_place_whatever_was_read_of_their_key(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db
):
    ann, ben = two
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    place, whose = UUID(str(await place_of(db, ann))), ann.principal.user_id

    for who, given in ((ben, whose), (ben, None), (as_nobody(ben), whose), (as_nobody(ben), None)):
        with pytest.raises(Forbidden):
            go_inside(msgspec.structs.replace(who.principal, private_id=place, private_to=given))
    assert go_inside(msgspec.structs.replace(ann.principal, private_id=place, private_to=whose)).team_id == place


def as_nobody(who: Person) -> Person:
    """The same with a key that is nobody's."""
    return msgspec.structs.replace(who, principal=msgspec.structs.replace(who.principal, user_id=None))


async def test_a_key_of_another_project_reads_nothing_private_by_its_number(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await work(db, notifier, ann)
    place = await place_of(db, ann)
    number = (await rows(db, "SELECT max(number) AS number FROM observations WHERE team_id = %s", place))[0]["number"]
    bound = await bound_to(db, ann, "github.com/acme/elsewhere")
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET user_id = %s WHERE id = %s", [ann.principal.user_id, bound.principal.key_id])

    params = {"name": "observation_get", "arguments": {"ids": [number]}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    sent = {"Host": "localhost", "Accept": "application/json"}
    told = {who.key: (await client.post("/mcp", json=call, headers=sent | who.headers)).text for who in (ann, bound)}

    assert (WORD in told[ann.key], WORD in told[bound.key]) == (True, False)
    assert (await client.get(f"/v1/observations/{number}", headers=bound.headers)).status_code == 404


async def test_what_was_drawn_for_its_person_stays_theirs(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, _ = two
    await remember(client, ann, "Be brief.")
    await hook(client, ann, "s", "SessionStart", source="startup")
    await hook(client, ann, "s", "UserPromptSubmit", prompt="Always answer me in German.")
    await work(db, notifier, ann)

    await act(client, ann, "POST", "/v1/sessions/s/private", {})

    mine = (await act(client, ann, "GET", "/v1/personal-observations"))["personal"]
    assert [row["content"] for row in mine] == ["Always answer me in German.", "Be brief."]


async def test_a_session_of_which_nobody_knows_who_began_it_is_nobodys(
    client: httpx.AsyncClient, two: tuple[Person, Person], db: Db, notifier: JobNotifier
):
    ann, ben = two
    await talk(client, ben, "s", f"{WORD} of ben")
    await work(db, notifier, ben)
    await rows(db, "DELETE FROM audit_log WHERE action = 'session.started'")
    await hook(client, ann, "s", "SessionEnd")
    await hook(client, ann, "s", "SessionStart", source="resume")

    refused = await client.post("/v1/sessions/s/private", json={}, headers=ann.headers)

    assert refused.status_code == 409
    assert WORD in await of_team(client, ben, "/v1/observations")


async def test_who_was_told_what_a_turn_had_done_so_far_was_told_of_it(client: httpx.AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await hook(client, ann, "s", "SessionStart", source="startup")
    await hook(client, ann, "s", "UserPromptSubmit", prompt="Go on with it.")
    edited = {"file_path": f"/w/{WORD}.py", "old_string": "a", "new_string": "b"}
    await hook(client, ann, "s", "PostToolUse", tool_name="Edit", tool_input=edited, tool_response={}, tool_use_id="x")
    told = await hook(client, ben, "b", "SessionStart", source="startup")
    assert WORD in str(told)

    made = await act(client, ann, "POST", "/v1/sessions/s/private", {})

    assert [(one["actorId"], one["reason"], one["numbers"]) for one in made["told"]] == [("ben", "startup", [])]


async def test_a_key_of_one_project_takes_along_the_private_sessions_of_that_one(
    client: httpx.AsyncClient, two: tuple[Person, Person]
):
    ann, _ = two
    await talk(client, ann, "s", f"{WORD} secret", private=True)
    await remember(client, ann, "Call me Ann.")
    other = "github.com/acme/zoo"
    await act(client, ann, "POST", "/v1/projects", {"canonicalId": other}, 201)

    for project, is_there in ((other, False), (PROJECT, True)):
        made = await act(client, ann, "POST", "/v1/keys", {"scopes": ["memories:read"], "project": project}, 201)
        memory = await act(client, msgspec.structs.replace(ann, key=made["apiKey"]), "GET", "/v1/personal-memory")
        assert (WORD in str(memory["sessions"])) == is_there
        assert (memory["sessions"] != []) == is_there
        assert "Call me Ann." in str(memory["personal"])
