"""Another time: what held then, what was known then, and what is nowhere any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.recall.model import NewReceipt
from cmserver.recall.receipts import repository as receipts
from tests.conftest import Cast, Person, bound_to, make_person, make_team
from tests.generation.test_ledger import TO_2000, TO_5000, Ledger
from tests.generation.tools import Outbox
from tests.make import Make
from tests.ops.transfers import export, take
from tests.personal.people import make_two
from tests.table import try_rows

Json = dict[str, Any]
PROJECT = "github.com/acme/orders"
WORD = "walrus"


async def clock(outbox: Outbox) -> str:
    """Now, by the database, in ISO 8601."""
    moment = await outbox.value("SELECT clock_timestamp()")
    assert isinstance(moment, datetime)
    return moment.astimezone(UTC).isoformat()


async def ask(client: httpx.AsyncClient, person: Person, door: str, **times: str) -> httpx.Response:
    """What a door says of another time."""
    if door == "list":
        return await client.get("/v1/observations", params={"project": PROJECT, **times}, headers=person.headers)
    if door == "context":
        return await client.get("/v1/context", params={"project": PROJECT, **times}, headers=person.headers)
    body: Json = {"projectId": PROJECT, "query": WORD, **times}
    return await client.post(f"/v1/{door}", json=body, headers=person.headers)


async def titles(client: httpx.AsyncClient, person: Person, **times: str) -> list[str]:
    return [row["title"] for row in (await ask(client, person, "list", **times)).raise_for_status().json()["observations"]]


async def act(client: httpx.AsyncClient, person: Person, method: str, path: str, body: Json | None = None) -> None:
    (await client.request(method, f"/v1/{path}", json=body or {}, headers=person.headers)).raise_for_status()


@try_rows(
    ("time", "says"),
    [
        ("yesterday", "no time"),
        ("2026-03-01T09:00:00", "no zone"),
        ("2026-03-01", "no zone"),
        ("9999-12-31T23:59:59-12:00", "no time"),
        ("99999999999999999999", "no time"),
        ("2199-01-01T00:00:00Z", "in the future"),
        ("2001-01-01T00:00:00Z", "the first that was recorded"),
        ("1000", "the first that was recorded"),
    ],
)
async def test_a_time_that_cannot_be_asked_of_is_refused_with_its_field(
    client: httpx.AsyncClient, cast: Cast, make: Make, time: str, says: str
):
    await make.observation(project=cast.alice.project, title=f"A {WORD}")

    for door in ("list", "context", "search", "timeline"):
        for field in ("asOf", "knownAt"):
            answer = await ask(client, cast.alice, door, **{field: time})

            assert answer.status_code == 400, (door, field, answer.text)
            assert says in answer.json()["message"], (door, field, answer.text)
            assert answer.json()["issues"][0]["path"] == f"$.{field}", answer.text


async def test_where_nothing_is_recorded_no_time_can_be_asked_of(client: httpx.AsyncClient, cast: Cast):
    answer = await ask(client, cast.alice, "list", asOf="2026-03-01T00:00:00Z")

    assert answer.status_code == 400
    assert answer.json()["issues"][0]["path"] == "$.asOf"


async def test_each_change_is_seen_from_its_own_time_on(client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox):
    alice = cast.alice
    first = await make.observation(project=alice.project, title=f"The {WORD} is grey", type="decision")
    moments = [await clock(outbox)]
    seen = [[f"The {WORD} is grey"]]
    second = await make.observation(project=alice.project, title=f"The {WORD} has a name")
    merge = {"sources": [first.number], "strategy": "latest_wins"}
    acts: list[tuple[str, str, Json, list[str]]] = [
        (
            "PATCH",
            f"observations/{first.number}",
            {"title": f"The {WORD} is brown"},
            [f"The {WORD} has a name", f"The {WORD} is brown"],
        ),
        ("POST", f"observations/{second.number}/merge", merge, [f"The {WORD} is brown"]),
        ("POST", f"observations/{second.number}/undo", {}, [f"The {WORD} has a name", f"The {WORD} is brown"]),
        ("PATCH", f"observations/{first.number}", {"state": "dropped"}, [f"The {WORD} has a name", f"The {WORD} is brown"]),
        ("POST", f"observations/{second.number}/expire", {}, [f"The {WORD} is brown"]),
        ("POST", f"observations/{second.number}/undo", {}, [f"The {WORD} has a name", f"The {WORD} is brown"]),
    ]
    for method, path, body, after in acts:
        await act(client, alice, method, path, body)
        moments.append(await clock(outbox))
        seen.append(after)

    known = [await titles(client, alice, knownAt=moment) for moment in moments]
    held = [await titles(client, alice, asOf=moment) for moment in moments]
    both = await titles(client, alice, asOf=moments[1], knownAt=moments[0])

    assert known == seen
    dropped = f"The {WORD} is brown"
    assert held == [*seen[:4], *([title for title in after if title != dropped] for after in seen[4:])]
    assert both == seen[0]
    found = [
        [row["title"] for row in (await ask(client, alice, "search", knownAt=moment)).json()["observations"]] for moment in moments
    ]
    assert [sorted(row) for row in found] == [sorted(row) for row in seen]
    grey = await client.post(
        "/v1/search", json={"projectId": PROJECT, "query": "grey", "knownAt": moments[0]}, headers=alice.headers
    )
    assert [row["title"] for row in grey.json()["observations"]] == [f"The {WORD} is grey"]


async def test_what_was_said_before_it_was_recorded_held_then_and_was_not_known(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox
):
    await make.observation(project=cast.alice.project, title="First")
    moment = await clock(outbox)
    said_at = int((datetime.fromisoformat(moment) - timedelta(days=9)).timestamp() * 1000)
    written = {"projectId": PROJECT, "title": "Said long ago", "createdAtEpoch": said_at}
    await act(client, cast.alice, "POST", "observations", written)

    assert await titles(client, cast.alice, asOf=moment) == ["First", "Said long ago"]
    assert await titles(client, cast.alice, asOf=str(said_at + 1)) == ["Said long ago"]
    assert await titles(client, cast.alice, knownAt=moment) == ["First"]


@pytest.mark.parametrize("way", ["delete", "purge", "merged"])
async def test_what_was_erased_for_good_is_of_no_time(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db, way: str
):
    alice = cast.alice
    kept = await make.observation(project=alice.project, title="It stays")
    gone = await make.observation(project=alice.project, title=f"A {WORD}", type="decision", importance=0.9)
    session = await make.turn(project=alice.project, prompt="Go on.", reply="Done.", session="s")
    await act(client, alice, "PATCH", f"observations/{gone.number}", {"title": f"Two {WORD}es"})
    if way == "merged":
        await act(client, alice, "POST", f"observations/{kept.number}/merge", {"sources": [gone.number], "strategy": "append"})
        await act(client, alice, "PATCH", f"observations/{kept.number}", {"subtitle": "Edited while it was merged"})
        await act(client, alice, "POST", f"observations/{kept.number}/undo")
        await act(client, alice, "POST", f"observations/{kept.number}/undo")
    told = {"project": PROJECT, "session": str(session.server_session_id), "source": "startup"}
    text = (await client.get("/v1/context", params=told, headers=alice.headers)).json()["context"]
    assert WORD in text
    moment = await clock(outbox)
    path = f"projects/{alice.project.id}/memory" if way == "purge" else f"observations/{gone.number}"
    await act(client, alice, "DELETE", path)
    if way == "purge":
        await make.observation(project=alice.project, title="New", created_at=datetime(2026, 1, 1, tzinfo=UTC))

    for door in ("list", "context", "search", "timeline"):
        for field in ("asOf", "knownAt"):
            answer = await ask(client, alice, door, **{field: moment})
            assert answer.status_code == 200, answer.text
            said = [title for title in (f"{WORD}es", f"A {WORD}") if title in answer.text]
            assert said == [], (door, field, answer.text)
    left = await outbox.rows("SELECT before::text AS said FROM past_values UNION ALL SELECT text FROM context_injections")
    assert [row["said"] for row in left if WORD in str(row["said"])] == []


async def test_a_receipt_keeps_its_text_and_its_hash(client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db):
    alice = cast.alice
    row = await make.observation(project=alice.project, title=f"The {WORD} is grey", type="decision", importance=0.9)
    turn = await make.turn(project=alice.project, prompt="Go on.", reply="Done with it.", session="s")
    asked = {"project": PROJECT, "session": str(turn.server_session_id), "source": "startup"}
    told = (await client.get("/v1/context", params=asked, headers=alice.headers)).json()["context"]
    (kept,) = await outbox.rows(
        "SELECT created_at, text, text_hash = sha256(convert_to(text, 'UTF8')) AS is_whole, told FROM context_injections"
    )
    assert isinstance(kept["created_at"], datetime)
    await act(client, alice, "PATCH", f"observations/{row.number}", {"title": "Said otherwise"})
    receipt = (await client.get(f"/v1/sessions/{turn.server_session_id}/context", headers=alice.headers)).json()["receipts"][0]

    again = (await ask(client, alice, "context", knownAt=str(receipt["createdAtEpoch"]))).json()

    assert (kept["text"], kept["is_whole"]) == (told, True)
    assert {row.number, turn.number} <= set(kept["told"])  # pyright: ignore[reportArgumentType]
    assert (again["context"], again["isReceipt"]) == (told, True)
    await outbox.rows("UPDATE context_injections SET text = NULL, text_hash = NULL RETURNING id")
    before = (await ask(client, alice, "context", knownAt=str(receipt["createdAtEpoch"]))).json()
    assert before["context"].startswith("Only numbers are known")
    assert f"#{row.number}" in before["context"]
    made = (await ask(client, alice, "context", knownAt=await clock(outbox))).json()
    assert not made["isReceipt"]


async def test_another_team_and_a_key_of_another_project_travel_in_their_own_past(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox
):
    for person, title in ((cast.alice, f"Hers: {WORD}"), (cast.charlie, f"His: {WORD}")):
        row = await make.observation(project=person.project, title=title)
        await act(client, person, "PATCH", f"observations/{row.number}", {"title": f"{title} now"})
    moment = await clock(outbox)

    for person, theirs in ((cast.alice, "His"), (cast.charlie, "Hers")):
        for door in ("list", "context", "search", "timeline"):
            for field in ("asOf", "knownAt"):
                assert theirs not in (await ask(client, person, door, **{field: moment})).text


async def test_psql_reads_observations_of_a_time_behind_row_level_security(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db, database: str
):
    row = await make.observation(project=cast.alice.project, title=f"The {WORD} is grey")
    await make.observation(project=cast.charlie.project, title="His own")
    moment = await clock(outbox)
    await act(client, cast.alice, "PATCH", f"observations/{row.number}", {"title": "Brown"})

    for name in ("observations_as_of", "observations_known_at"):
        async with db.tenant(cast.alice.team_id) as conn:
            seen = await (
                await conn.execute(f"SELECT title, valid_to > %s, valid_from <= %s FROM {name}(%s)", [moment] * 3)
            ).fetchall()  # pyright: ignore[reportArgumentType]
            now = await (await conn.execute("SELECT title FROM observations_as_of(now())")).fetchall()
        assert seen == [(f"The {WORD} is grey", True, True)]
        assert now == [("Brown",)]
    with psycopg.connect(database) as conn:
        assert len(conn.execute("SELECT FROM observations_as_of(%s)", [moment]).fetchall()) == 2


@try_rows(
    ("call", "says"),
    [
        ("observations_as_of('2199-01-01Z')", "in the future"),
        ("observations_known_at('2199-01-01Z')", "in the future"),
        ("observations_at('infinity', '2199-01-01Z')", "in the future"),
        ("observations_as_of(NULL)", "not NULL"),
        ("observations_known_at(NULL)", "not NULL"),
    ],
)
def test_psql_refuses_the_times_that_the_commands_refuse(database: str, call: str, says: str):
    with psycopg.connect(database) as conn, pytest.raises(psycopg.DataError, match=says):
        conn.execute(f"SELECT FROM {call}")  # pyright: ignore[reportArgumentType, reportCallIssue]


@try_rows(
    ("text", "gone", "left"),
    [
        ("<m>\n#1 bugfix One ~3\n#2 bugfix Two ~4\n</m>", [2], "<m>\n#1 bugfix One ~3\n(erased)\n</m>"),
        ("#12 bugfix One ~3", [1, 2], "#12 bugfix One ~3"),
        ('#5 turn #5 to #9: "words" ~3\n  before: #4 "old"\n#10 x', [7], "(erased)\n#10 x"),
        ("#1 decision A\n  - a fact\n#2 change B", [1], "(erased)\n#2 change B"),
        ("\nNewest summary, #3 of 2026-11-01\nLearned: much\n\nOne is read whole", [3], "\n(erased)\n\nOne is read whole"),
        (
            "\nNewest summary, #3 of 2026-11-01\nRequest: mend #77\n#8 is\nLearned: much\n\n#8 x",
            [3],
            "\n(erased)\n\n#8 x",
        ),
        (
            "#1 change A\n\nNewest summary, #3 of 2026-11-01\nLearned: much\n</m>",
            [1],
            "(erased)\n\nNewest summary, #3 of 2026-11-01\nLearned: much\n</m>",
        ),
        ("#1 decision A\n  - as #77 says\nand of #78\n#2 change B", [1], "(erased)\n#2 change B"),
        ('#1 decision A then "no" (#4) ~3', [4], "(erased)"),
        (
            "<m>\nMemory of x:\nIt is about walruses.\nA line is #number, type\n#1 a",
            [9],
            "<m>\nMemory of x:\n(erased)\nA line is #number, type\n#1 a",
        ),
    ],
)
async def test_a_text_is_cut_line_by_line(db: Db, text: str, gone: list[int], left: str):
    async with db.system() as conn:
        cursor = await conn.execute("SELECT cut_out(%s, %s::bigint[])", [text, gone])
        assert await cursor.fetchone() == (left,)


def test_all_that_a_text_may_say_something_of_is_noted():
    receipt = NewReceipt(reason="startup", numbers=[3], text='#3 a (later: #8)\n#20 turn #20 to #23: "x" ~3')

    assert receipts.find_told(receipt) == [3, 8, 20, 21, 22, 23]


async def test_one_observation_is_the_current_word_on_a_matter(client: httpx.AsyncClient, cast: Cast, make: Make):
    alice = cast.alice
    rows = [await make.observation(project=alice.project, title=f"We deploy on day {place}") for place in range(3)]
    first, second, third = (f"observations/{row.number}" for row in rows)

    async def patch(path: str, body: Json) -> httpx.Response:
        return await client.patch(f"/v1/{path}", json=body, headers=alice.headers)

    assert (await patch(first, {"currentOn": "Deploy day"})).status_code == 200
    refused = await patch(second, {"currentOn": " deploy  DAY"})
    assert refused.status_code == 409
    assert f"#{rows[0].number} is the current word" in refused.json()["message"]
    assert "currentOn" not in (await client.get(f"/v1/{second}", headers=alice.headers)).json()["observation"]["metadata"]
    await act(client, alice, "POST", f"{second}/merge", {"sources": [rows[0].number], "strategy": "latest_wins"})
    assert (await patch(second, {"currentOn": "Deploy day"})).status_code == 200
    assert (await patch(second, {"state": "dropped"})).status_code == 200
    assert (await patch(third, {"currentOn": "Deploy day"})).status_code == 200
    assert (await patch(second, {"state": None})).status_code == 409
    assert (await patch(third, {"currentOn": None})).status_code == 200
    assert (await patch(second, {"state": None})).status_code == 200


async def test_the_current_word_is_chosen_by_no_metadata_and_ends_with_its_life(client: httpx.AsyncClient, cast: Cast, make: Make):
    alice = cast.alice
    rows = [await make.observation(project=alice.project, title=f"We deploy on day {place}") for place in range(3)]
    first, second, third = (f"observations/{row.number}" for row in rows)

    async def call(method: str, path: str, body: Json) -> httpx.Response:
        return await client.request(method, f"/v1/{path}", json=body, headers=alice.headers)

    sent = await call("POST", "observations", {"projectId": PROJECT, "title": "A model's", "metadata": {"currentOn": "it", "a": 1}})
    assert sent.json()["observation"]["metadata"] == {"a": 1}
    assert (await call("PATCH", first, {"currentOn": "Deploy day"})).status_code == 200
    kept = await call("PATCH", first, {"metadata": {"currentOn": "other", "a": 1}})
    assert {"a": 1, "currentOn": "Deploy day"}.items() <= kept.json()["observation"]["metadata"].items()
    await act(client, alice, "POST", f"{first}/expire")
    assert (await call("PATCH", second, {"currentOn": "Deploy day"})).status_code == 200
    assert (await call("PATCH", second, {"state": "dropped"})).status_code == 200
    assert (await call("PATCH", third, {"currentOn": "Deploy day"})).status_code == 200
    undone = await call("POST", f"{second}/undo", {})
    assert undone.status_code == 409
    assert "Deploy day" in undone.json()["message"]


async def test_what_an_edit_took_out_by_then_stands_behind(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db
):
    alice = cast.alice
    ledger = Ledger(db, alice.project, make)
    first = await make.turn(project=alice.project, session="s", prompt="Limit the rows.", reply="I set MAX_ROWS to 2000.")
    await ledger.note(first, [TO_2000])
    between = await clock(outbox)
    second = await make.turn(project=alice.project, session="s", prompt="Raise the limit.", reply="It is 5000.")
    await ledger.note(second, [TO_5000])

    async def found(**times: str) -> list[int]:
        body: Json = {"projectId": PROJECT, "query": "I set MAX_ROWS to 2000, or 5000: rows limit", **times}
        answer = await client.post("/v1/search", json=body, headers={**alice.headers, "Accept": "text/plain"})
        return [int(line[1:].split(" ")[0]) for line in answer.raise_for_status().text.splitlines() if line.startswith("#")]

    assert await found() == [first.number, second.number]
    assert await found(asOf=await clock(outbox)) == [second.number, first.number]
    assert await found(asOf=between) == [first.number]
    assert await found(knownAt=between) == [first.number]


async def test_what_is_a_persons_alone_is_told_of_no_other_time_and_stands_in_no_receipt(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db
):
    ann, ben = await make_two(db, cast.alice.team_id)
    await make.observation(project=cast.alice.project, title="It stays", type="decision", importance=0.9)
    turn = await make.turn(project=cast.alice.project, prompt="Go on.", reply="Done.", session="s")
    own = {"scope": "user", "type": "decision", "narrative": f"Never feed the {WORD}."}
    await act(client, ann, "POST", "observations", own)
    asked = {"project": PROJECT, "session": str(turn.server_session_id), "source": "startup"}
    assert WORD in (await client.get("/v1/context", params=asked, headers=ann.headers)).text
    (kept,) = await outbox.rows("SELECT text FROM context_injections")
    assert "It stays" in str(kept["text"])
    receipt = (await client.get(f"/v1/sessions/{turn.server_session_id}/context", headers=ann.headers)).json()["receipts"][0]

    for moment in (await clock(outbox), str(receipt["createdAtEpoch"])):
        for person in (ann, ben):
            for door in ("list", "context", "search", "timeline"):
                for field in ("asOf", "knownAt"):
                    assert WORD not in (await ask(client, person, door, **{field: moment})).text.replace(f'"{WORD}"', ""), door
    assert WORD not in str(kept["text"])


@pytest.mark.parametrize("way", ["taken", "taken with what was merged into it", "given and undone"])
async def test_what_somebody_took_for_themselves_is_told_of_no_other_time(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db, way: str
):
    ann, ben = await make_two(db, cast.alice.team_id)
    stays = await make.observation(project=cast.alice.project, title="It stays", type="decision", importance=0.9)
    own: Json = {"type": "decision", "narrative": f"Never feed the {WORD}."}
    is_given = way == "given and undone"
    await act(client, ann, "POST", "observations", {**own, "scope": "user"} if is_given else {**own, "projectId": PROJECT})
    number = stays.number + 1
    if is_given:
        await act(client, ann, "POST", "personal-observations/m1/move", {"projectId": PROJECT})
    await act(client, ann, "POST", "observations", {"projectId": PROJECT, "title": "It has a name"})
    await tell(client, ann)
    moment = await clock(outbox)
    if way == "taken with what was merged into it":
        await act(client, ann, "POST", f"observations/{number + 1}/merge", {"sources": [number], "strategy": "latest_wins"})
        number += 1
    assert WORD in (await ask(client, ben, "list", knownAt=moment)).text
    receipts_then = await outbox.rows("SELECT created_at, text FROM context_injections")
    assert WORD in str(receipts_then)

    path = "personal-observations/m1/undo" if is_given else f"observations/{number}/personal"
    await act(client, ann, "POST", path)

    for time in (moment, *(str(kept["created_at"]) for kept in receipts_then)):
        for door in ("list", "context", "search", "timeline"):
            for field in ("asOf", "knownAt"):
                assert WORD not in (await ask(client, ben, door, **{field: time})).text.replace(f'"{WORD}"', ""), (door, field)
    assert WORD not in str(await outbox.rows("SELECT text FROM context_injections"))
    if not is_given:
        await act(client, ann, "POST", "personal-observations/m1/undo")
        assert WORD in (await ask(client, ben, "list", knownAt=moment)).text


async def say(client: httpx.AsyncClient, person: Person, name: str, project: str, **fields: object) -> None:
    """A hook of the person's agent."""
    headers = {**person.headers, "X-Cmserver-Project": project}
    sent = {"hook_event_name": name, "cwd": "/w", **fields}
    (await client.post("/v1/hooks/claude-code", json=sent, headers=headers)).raise_for_status()


async def tell(client: httpx.AsyncClient, person: Person, project: str = PROJECT) -> None:
    """A session of the person starts, which writes a receipt."""
    await say(client, person, "SessionStart", project, session_id="told", source="startup")


@pytest.mark.parametrize("way", ["not shared any more", "isolated", "moved", "moved while it ran"])
async def test_a_receipt_says_what_its_reader_may_read_today(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db, way: str
):
    alice, there = cast.alice, "github.com/acme/zoo"
    await act(client, alice, "POST", "projects", {"canonicalId": there})
    await act(client, alice, "POST", "observations", {"projectId": there, "title": "There"})
    project = PROJECT if way.startswith("moved") else there
    shared = await make.observation(project=alice.project, title=f"A {WORD}", scope="team", type="decision", importance=0.9)
    await make.turn(project=alice.project, prompt=f"Feed the {WORD if way == 'moved' else 'cat'}.", reply="Done.", session="m")
    if way.startswith("moved"):
        await act(client, alice, "DELETE", f"observations/{shared.number}")
    if way == "moved while it ran":
        await say(client, alice, "UserPromptSubmit", PROJECT, session_id="m", prompt="Go on with it.")
        edited = {"file_path": f"/w/{WORD}.py", "old_string": "a", "new_string": "b"}
        await say(client, alice, "PostToolUse", PROJECT, session_id="m", tool_name="Edit", tool_input=edited, tool_response={})
    await tell(client, alice, project)
    (kept,) = await outbox.rows("SELECT created_at, text FROM context_injections ORDER BY created_at DESC, id DESC LIMIT 1")
    asked = {"project": project, "knownAt": str(kept["created_at"])}
    bound = await bound_to(db, alice, project, scopes=["memories:read"])
    for person in (alice, bound):
        then = (await client.get("/v1/context", params=asked, headers=person.headers)).json()
        assert (then["context"], then["isReceipt"]) == (kept["text"], True)
    assert WORD in str(kept["text"])

    if way == "isolated":
        await act(client, alice, "PATCH", f"projects/{there}", {"isolated": True})
    elif way == "not shared any more":
        await act(client, alice, "PATCH", f"observations/{shared.number}", {"scope": "project"})
    else:
        for session in await outbox.rows("SELECT id FROM server_sessions WHERE 'm' IN (external_session_id, content_session_id)"):
            await act(client, alice, "POST", f"sessions/{session['id']}/move", {"into": there})

    for person in (alice, bound):
        then = (await client.get("/v1/context", params=asked, headers=person.headers)).json()
        assert then["isReceipt"]
        assert WORD not in then["context"]
        assert "Memory of" in then["context"]


@pytest.mark.parametrize("way", ["imported", "given back"])
async def test_what_came_from_elsewhere_is_known_from_then_on(
    client: httpx.AsyncClient, cast: Cast, make: Make, outbox: Outbox, db: Db, database: str, tmp_path: Path, way: str
):
    ann, ben = await make_two(db, cast.alice.team_id)
    await make.observation(project=cast.alice.project, title="It stays", type="decision", importance=0.9)
    file = tmp_path / "team.jsonl"
    if way == "imported":
        there = await make_person(db, await make_team(db, "green"), "grace", PROJECT)
        await make.observation(project=there.project, title=f"A {WORD}")
        await make.turn(project=there.project, prompt=f"Feed the {WORD}.", reply="Done.", session="s")
        await export(database, there.team_id, file)
    else:
        headers = {**ann.headers, "X-Cmserver-Project": PROJECT, "X-Cmserver-Private": "1"}
        for name, fields in (("UserPromptSubmit", {"prompt": f"Feed the {WORD}."}), ("Stop", {"last_assistant_message": "Done."})):
            sent = {"hook_event_name": name, "session_id": "s", "cwd": "/w", **fields}
            (await client.post("/v1/hooks/claude-code", json=sent, headers=headers)).raise_for_status()
    moment = await clock(outbox)
    if way == "imported":
        await take(db, cast.alice.principal, JsonlSource(file), tmp_path)
    else:
        await act(client, ann, "POST", "sessions/s/private", {"private": False})

    for door in ("list", "context", "search", "timeline"):
        assert WORD not in (await ask(client, ben, door, knownAt=moment)).text.replace(f'"{WORD}"', ""), door
    assert WORD in (await ask(client, ben, "context", knownAt=await clock(outbox))).text
