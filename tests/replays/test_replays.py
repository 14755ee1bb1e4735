"""Replays: nothing differs by unchanged rules, a changed rule shows what it touches, and nothing real is written on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import httpx
import msgspec
import psycopg
import pytest
from psycopg import errors

from cmserver.base import db as db_module
from cmserver.base.db import Db
from cmserver.base.errors import Unavailable
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError
from cmserver.observations import repository as observations
from cmserver.replays import repository as replay_rows
from cmserver.replays import run_replay
from cmserver.replays.differences import find_differences
from cmserver.replays.shadow.session import open_shadow
from cmserver.rules.batch import observe
from tests.access.test_words import let_read
from tests.conftest import Cast, Person, bound_to
from tests.generation.tools import Outbox, Scripted
from tests.personal.people import make_account, make_key
from tests.replays.tools import Corpus, Replays
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS, Deadline


@pytest.fixture
def corpus(client: httpx.AsyncClient, cast: Cast, outbox: Outbox) -> Corpus:
    return Corpus(client, cast, outbox)


@pytest.fixture
def replays(client: httpx.AsyncClient, cast: Cast, db: Db, settings: Settings) -> Replays:
    return Replays(client, cast, db, settings)


def counts(replay: dict[str, Any]) -> dict[str, Any]:
    return {name: replay[name] for name in ("state", "lost", "new", "reworded", "byPeople")}


NOTHING = {"state": "done", "lost": 0, "new": 0, "reworded": 0, "byPeople": 0}


async def test_unchanged_rules_change_nothing(corpus: Corpus, replays: Replays):
    await corpus.play(9, 5, together=3)

    replay = await replays.run()

    assert counts(replay) == NOTHING
    assert (replay["sessionsDone"], replay["sessions"]) == (9, 9)
    (row,) = await replays.rows("SELECT count(*) AS n FROM observations")
    (worked,) = await replays.rows("SELECT count(*) AS n FROM turns WHERE files || checks || commits <> '{}'")
    assert replay["kept"] == int(str(row["n"])) + int(str(worked["n"])) > 50
    assert replay["eventsDone"] == replay["events"] > 150
    assert await replays.lines(1) == []


_REAL = """
    SELECT relname AS name FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
       AND relname NOT IN ('replays', 'replay_lines', 'audit_log', 'rate_limits', 'usage_counters', 'api_keys')
       AND relname NOT LIKE 'procrastinate%%' ORDER BY 1
"""


async def read_all(replays: Replays) -> dict[str, object]:
    """A hash of each real table, but for what notes that somebody asked."""
    hashes: dict[str, object] = {}
    for row in await replays.rows(_REAL):
        name = str(row["name"])
        (found,) = await replays.rows(f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) AS it FROM {name} t")
        hashes[name] = found["it"]
    return hashes


def plant(monkeypatch: pytest.MonkeyPatch, change: Callable[[DraftObservation], DraftObservation | None]) -> None:
    """A new version of the rules, which changes drafts or leaves them out."""

    def observe_anew(*given: Any) -> Answer:
        answer = observe(*given)
        return msgspec.structs.replace(
            answer, observations=[new for draft in answer.observations if (new := change(draft)) is not None]
        )

    monkeypatch.setattr("cmserver.generation.run_batch.observe", observe_anew)


def say_otherwise(draft: DraftObservation) -> DraftObservation:
    if draft.title and "refunds" in draft.title:
        return msgspec.structs.replace(draft, title=f"Refunds: {draft.title}")
    return draft


def leave_out_decisions(draft: DraftObservation) -> DraftObservation | None:
    return None if draft.type == "decision" else draft


async def test_a_changed_rule_shows_what_it_touches_and_writes_nothing(
    corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch
):
    await corpus.play(6, 4, together=2)
    touched = await replays.rows("SELECT number FROM observations WHERE kind = 'observation' AND title LIKE '%%refunds%%'")
    before = await read_all(replays)
    plant(monkeypatch, say_otherwise)

    replay = await replays.run()

    lines = [line for line in await replays.lines(1) if line["what"] == "observation"]
    assert {line["difference"] for line in lines} == {"reworded"}
    assert sorted(line["number"] for line in lines) == sorted(int(str(row["number"])) for row in touched)
    assert all(line["after"]["title"] == f"Refunds: {line['before']['title']}" for line in lines)
    assert {line["what"] for line in await replays.lines(1)} <= {"observation", "summary"}  # which tells of them
    assert replay["lost"] == replay["new"] == 0
    assert await read_all(replays) == before


async def test_a_take_over_writes_all_of_it_and_is_undone(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(4, 4)
    told = """
        SELECT number, kind, type, title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, quote,
               anchors, importance, state, closed_by, metadata, expires_at, ttl_seconds, turn_number, content_search
          FROM observations ORDER BY number
    """
    live = "SELECT title, type FROM observations WHERE expires_at IS NULL AND kind = 'observation' ORDER BY number"
    before = await replays.rows(told)
    decisions = [row for row in before if row["type"] == "decision"]

    def change(draft: DraftObservation) -> DraftObservation | None:
        kept = leave_out_decisions(draft)
        return say_otherwise(kept) if kept else None

    with monkeypatch.context() as patched:
        plant(patched, change)
        replay = await replays.run()
        assert replay["lost"] == len(decisions) > 0 < replay["reworded"]

        taken = await replays.send("POST", "/1/take-over")

        assert (taken["written"], taken["left"]) == (replay["lost"] + replay["reworded"], 0)
        assert all(row["type"] != "decision" for row in await replays.rows(live))
        assert counts(await replays.run())["reworded"] == 0  # what was taken over is what these rules say

    undone = await replays.send("POST", "/1/undo")

    assert (undone["written"], undone["left"]) == (taken["written"], 0)
    assert await replays.rows(told) == before
    again = await replays.run()
    assert (again["lost"], again["new"], again["reworded"]) == (0, 0, 0)


async def test_what_is_new_is_stored_with_its_sources_and_goes_again(
    corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        plant(patched, leave_out_decisions)
        await corpus.play(4, 4)
    before = await replays.rows("SELECT id, title, content FROM observations ORDER BY number")
    replay = await replays.run()
    assert (replay["lost"], replay["new"] > 0) == (0, True)

    taken = await replays.send("POST", "/1/take-over")

    (rows,) = await replays.rows("""
        SELECT count(*) AS n, bool_and(EXISTS (SELECT FROM observation_sources s WHERE s.observation_id = o.id)) AS drawn,
               bool_and(o.number < 1000000 AND o.turn_number IS NOT NULL) AS numbered
          FROM observations o WHERE o.type = 'decision'
        """)
    assert rows == {"n": replay["new"], "drawn": True, "numbered": True}
    assert counts(await replays.run()) == NOTHING
    assert (await replays.send("POST", "/1/undo"))["written"] == taken["written"]
    assert await replays.rows("SELECT id, title, content FROM observations ORDER BY number") == before


async def test_a_take_over_takes_numbers_last(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    """From then on the team's prompts wait for it."""
    with monkeypatch.context() as patched:
        plant(patched, leave_out_decisions)
        await corpus.play(3, 4)
    plant(monkeypatch, say_otherwise)
    replay = await replays.run()
    assert replay["new"] > 1 < replay["reworded"]
    take, left = observations.take_numbers, list[object]()

    async def take_numbers(conn: Conn, team_id: UUID, count: int) -> range:
        found = await conn.execute("SELECT count(*) FROM replay_lines WHERE undo IS NULL AND difference <> 'new'")
        left.append((await found.fetchall())[0][0])
        async with replays.db.system() as other:
            await other.execute("SELECT FROM observation_counters FOR UPDATE NOWAIT")
        return await take(conn, team_id, count)

    note, notes_behind = replay_rows.set_undo, list[UUID]()

    async def set_undo(conn: Conn, team_id: UUID, id_: UUID, **fields: Any) -> None:
        notes_behind.extend([id_] if left else [])
        await note(conn, team_id, id_, **fields)

    with monkeypatch.context() as patched:
        patched.setattr(observations, "take_numbers", take_numbers)
        patched.setattr(replay_rows, "set_undo", set_undo)
        taken = await replays.send("POST", "/1/take-over")

    assert left == [0]  # once, when all else was written
    assert notes_behind == []  # what is new is noted together
    assert (taken["written"], taken["left"]) == (replay["new"] + replay["reworded"], 0)


@pytest.mark.parametrize("before", [True, False])
async def test_what_was_undone_is_taken_over_again(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch, before: bool):
    """Be it what is lost and reworded, or what is new."""
    told = "SELECT title, type, content, expires_at IS NULL AS is_live FROM observations ORDER BY title, type, content"

    def change(draft: DraftObservation) -> DraftObservation | None:
        kept = leave_out_decisions(draft)
        return say_otherwise(kept) if kept else None

    with monkeypatch.context() as patched:
        if not before:
            plant(patched, leave_out_decisions)
        await corpus.play(3, 4)
    if before:
        plant(monkeypatch, change)
    stored = await replays.rows(told)
    await replays.run()
    first = await replays.send("POST", "/1/take-over")
    taken = await replays.rows(told)
    await replays.send("POST", "/1/undo")

    again = await replays.send("POST", "/1/take-over")

    assert (again["written"], again["left"]) == (first["written"], 0)
    assert again["written"] > 1
    assert await replays.rows(told) == taken != stored
    undone = await replays.send("POST", "/1/undo")
    assert (undone["written"], undone["left"]) == (first["written"], 0)
    assert await replays.rows(told) == stored


async def test_what_people_changed_is_no_difference_and_is_not_written_over(
    corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch
):
    await corpus.play(3, 4)
    numbers = [row["number"] for row in await replays.rows("SELECT number FROM observations WHERE kind = 'observation' ORDER BY 1")]
    edited, deleted, expired, merged, into, later, over = numbers[:7]
    act = replays.act
    await act("PATCH", f"observations/{edited}", {"title": "As Alice says"})
    await act("DELETE", f"observations/{deleted}")
    await act("POST", f"observations/{expired}/expire", {})
    await act("POST", f"observations/{into}/merge", {"sources": [str(merged)]})

    replay = await replays.run()

    assert (replay["lost"], replay["new"], replay["reworded"]) == (0, 0, 0)
    assert replay["byPeople"] >= 5

    plant(monkeypatch, lambda draft: msgspec.structs.replace(draft, title=f"New: {draft.title}"))
    await replays.run()
    await act("PATCH", f"observations/{later}", {"title": "As Alice says later"})
    lines = await replays.lines(2)
    await act("POST", f"observations/{over}/expire", {})
    taken = await replays.send("POST", "/2/take-over")
    assert (taken["left"], taken["written"]) == (2, len(lines) - 2)
    (row,) = await replays.rows(f"SELECT title FROM observations WHERE number = {later}")
    assert row == {"title": "As Alice says later"}


async def test_one_that_is_killed_goes_on_and_finds_the_same(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(5, 3)
    plant(monkeypatch, say_otherwise)
    monkeypatch.setattr(run_replay, "_GROUP", 2)
    await replays.run()
    whole = await replays.lines(1)
    done = find_differences

    def die(*given: Any) -> Any:
        if died:
            return done(*given)
        died.append(True)
        raise asyncio.CancelledError

    died: list[bool] = []
    await replays.begin()
    monkeypatch.setattr(run_replay, "find_differences", die)
    with pytest.raises(asyncio.CancelledError):
        await replays.work()
    halfway = await replays.send("GET", "/2")
    await replays.work()

    assert halfway["state"] == "running"
    assert halfway["sessionsDone"] < 5
    assert (await replays.send("GET", "/2"))["state"] == "done"
    assert await replays.lines(2) == whole != []


async def test_of_two_workers_with_one_replay_one_keeps_what_it_found(
    corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch
):
    """As when the first one's lock has gone with its session of the database."""
    await corpus.play(3, 3)
    monkeypatch.setattr(run_replay, "_GROUP", 1)
    plant(monkeypatch, say_otherwise)
    await replays.run()
    whole = await replays.lines(1)
    await replays.begin()
    note, calls = replay_rows.note_progress, list[int]()
    end_holder = """
        SELECT pg_terminate_backend(l.pid) FROM pg_locks l
          JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
        """
    goes_on, noted = asyncio.Event(), asyncio.Event()
    others = list[asyncio.Task[None]]()

    async def note_progress(*given: Any, **fields: Any) -> str | None:
        calls.append(1)
        call = len(calls)
        if call == 1:  # another worker has done the first session, and works on the second one
            await replays.rows(end_holder)
            others.append(asyncio.create_task(replays.work()))
            await asyncio.wait_for(goes_on.wait(), 20)
        elif call == 3:
            goes_on.set()
            await asyncio.wait_for(noted.wait(), 20)
        state = await note(*given, **fields)
        if call == 1:
            noted.set()
        return state

    monkeypatch.setattr(replay_rows, "note_progress", note_progress)
    with suppress(psycopg.OperationalError, Unavailable):  # it has lost its lock's session
        await run_replay.run_replays(replays.db, replays.settings)
    await others[0]

    replay = await replays.send("GET", "/2")
    assert len(calls) == 4
    assert (replay["state"], replay["sessionsDone"], replay["sessions"]) == ("done", 3, 3)
    assert await replays.lines(2) == whole != []


async def test_it_is_stopped_resumed_and_removed(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(4, 2)
    monkeypatch.setattr(run_replay, "_GROUP", 1)
    plant(monkeypatch, say_otherwise)
    begun = await replays.begin()
    done = find_differences

    def find_and_stop(*given: Any) -> Any:
        psycopg.connect(replays.db.url, autocommit=True).execute("UPDATE replays SET state = 'stopped' WHERE number = 1")
        return done(*given)

    with monkeypatch.context() as patched:
        patched.setattr(run_replay, "find_differences", find_and_stop)
        await replays.work()

    stopped = await replays.send("GET", "/1")
    assert (stopped["state"], stopped["sessionsDone"]) == ("stopped", 1), "what was under way is kept: a model was paid for it"
    await replays.send("POST", "/1/stop", status=409)
    await replays.send("POST", "/1/take-over", status=409)
    assert (await replays.send("POST", "/1/resume"))["state"] == "running"
    await replays.work()
    assert (await replays.send("GET", f"/{begun['id']}"))["state"] == "done"
    await replays.send("POST", "/1/undo", status=409)
    await replays.send("DELETE", "/1")
    await replays.send("GET", "/1", status=404)
    assert await replays.rows("SELECT id FROM replay_lines") == []


async def test_a_replay_waits_for_nobody_who_notes_what_turns_did(corpus: Corpus, replays: Replays):
    """What of earlier turns is over is not noted in a shadow: it is most of what a batch costs, and takes the project's lock."""
    await corpus.play(2, 2)
    async with replays.db.own_session() as other:
        await other.execute("SELECT pg_advisory_lock(hashtextextended('turn_traces:' || id::text, 0)) FROM projects")
        replay = await asyncio.wait_for(replays.run(), ENOUGH_SECONDS)

    assert counts(replay) == NOTHING


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_worker_that_is_heard_of_no_more_lets_another_one_go_on(
    replays: Replays, monkeypatch: pytest.MonkeyPatch, corpus: Corpus, is_heard: bool
):
    """The network may keep the silent worker's session open at the database, with its lock."""
    await corpus.play(1, 1)
    replay = await replays.begin()
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def run(*_: object) -> None:
        begun.set()
        await goes_on.wait()

    monkeypatch.setattr(run_replay, "_run", run)
    monkeypatch.setattr(db_module, "_SILENT_SESSION_SECONDS", 1)
    monkeypatch.setattr(db_module, "_ASK_SECONDS", 0.1 if is_heard else ENOUGH_SECONDS)
    running = asyncio.create_task(run_replay.run_replays(replays.db, replays.settings))
    await asyncio.wait_for(begun.wait(), ENOUGH_SECONDS)

    async def is_free() -> bool:
        async with replays.db.own_session() as other:
            return await replay_rows.TRY_LOCK.one(other, replay_id=UUID(str(replay["id"])))

    if is_heard:
        await asyncio.sleep(2)
        assert not await is_free()
    else:
        deadline = Deadline(ENOUGH_SECONDS)
        while not await is_free():
            assert not deadline.is_over
            await asyncio.sleep(0.1)
    goes_on.set()
    with suppress(Unavailable):  # its session is gone
        await running


async def test_another_version_does_not_go_on_with_it(corpus: Corpus, replays: Replays):
    await corpus.play(1, 1)
    await replays.begin()
    await replays.rows("UPDATE replays SET program = '0.0.1'")

    await replays.work()

    stopped = await replays.send("GET", "/1")
    assert stopped["state"] == "stopped"
    assert "0.0.1" in stopped["reason"]
    assert "0.0.1" in str(await replays.send("POST", "/1/resume", status=409))


async def test_a_shadow_can_write_nothing_real(corpus: Corpus, replays: Replays, cast: Cast):
    await corpus.play(1, 1)
    team_id = cast.alice.principal.team_id
    async with open_shadow(replays.db, team_id) as shadow:
        for statement in (
            "DELETE FROM public.observations",
            "UPDATE public.turns SET prompt = ''",
            "INSERT INTO agent_events SELECT * FROM agent_events",
            "SELECT FROM public.projects FOR UPDATE",
            "DROP TABLE public.observations",
        ):
            with pytest.raises(errors.ReadOnlySqlTransaction):
                await shadow.in_system(lambda conn, statement=statement: conn.execute(statement))
        await shadow.in_system(lambda conn: conn.execute("DELETE FROM observations"))

    assert await replays.rows("SELECT id FROM observations LIMIT 1") != []


async def test_who_may_not_read_all_words_neither_begins_nor_takes_over(corpus: Corpus, replays: Replays, db: Db, cast: Cast):
    await corpus.play(2, 2)
    ann = await make_key(db, await make_account(db, cast.alice.team_id, "ann"))
    ben = await make_key(db, await make_account(db, cast.alice.team_id, "ben", is_owner=False))
    await replays.run()

    nothing: dict[str, object] = {}

    async def statuses(who: Person) -> list[int]:
        answers = [
            await replays.client.post(f"/v1/replays{path}", json=body, headers=who.headers)
            for path, body in (("/estimate", nothing), ("", nothing), ("/1/take-over", None), ("/1/undo", None))
        ]
        assert all("does not let you read all" in answer.text for answer in answers if answer.status_code == 403)
        return [answer.status_code for answer in answers]

    for words, who, expected in (
        ("nobody", ann, [403] * 4),
        ("owners", ben, [403] * 4),
        ("owners", ann, [200, 201, 200, 200]),
        ("members", ben, [200, 201, 200, 200]),
    ):
        await let_read(replays.client, ann, words)
        assert await statuses(who) == expected, (words, who.principal.actor_id)
    assert len(await replays.rows("SELECT id FROM replays")) == 3


@try_rows(
    ("given", "path"),
    [
        ({"since": "2026-03-01T09:00:00"}, "$.since"),
        ({"since": "yesterday"}, "$.since"),
        ({"since": "2999-01-01T00:00:00Z"}, "$.since"),
        ({"since": "1999-01-01T00:00:00Z"}, "$.since"),
        ({"since": 5}, "$.since"),
        ({"provider": "os:getcwd"}, "$.provider"),
        ({"provider": "nobody"}, "$.provider"),
        ({"provider": ""}, "$.provider"),
        ({"projectId": "github.com/acme/unknown"}, ""),
        ({"nonsense": 1}, "$.nonsense"),
    ],
)
async def test_bad_input_changes_nothing(replays: Replays, given: dict[str, object], path: str):
    for where in ("", "/estimate"):
        answer = await replays.client.post(f"/v1/replays{where}", json=given, headers=replays.cast.alice.headers)
        assert answer.status_code in {400, 404}, answer.text
        assert path in answer.text
    assert await replays.rows("SELECT id FROM replays") == []


async def test_nothing_to_replay_is_refused(corpus: Corpus, replays: Replays):
    assert "no session" in str(await replays.send("POST", "", {}, 409))
    await corpus.play(2, 2)
    await replays.rows("UPDATE agent_events SET payload = '{}', payload_purged_at = now()")
    assert "retention has taken" in str(await replays.send("POST", "", {}, 409))
    assert (await replays.send("POST", "/estimate", {}))["purged"] == 2
    assert await replays.rows("SELECT id FROM replays") == []


async def test_sessions_whose_payloads_are_gone_are_left_out_and_counted(corpus: Corpus, replays: Replays):
    await corpus.play(3, 2)
    await replays.rows("""
        UPDATE agent_events SET payload = '{}', payload_purged_at = now()
         WHERE id = (SELECT agent_event_id FROM turns WHERE agent_event_id IS NOT NULL ORDER BY number LIMIT 1)
        """)

    replay = await replays.run()

    assert counts(replay) == NOTHING
    assert (replay["purged"], replay["sessions"], replay["sessionsDone"]) == (1, 2, 2)


async def test_since_takes_sessions_that_began_then(corpus: Corpus, replays: Replays):
    await corpus.play(3, 1)
    (row,) = await replays.rows("SELECT to_json(max(started_at)) AS at FROM server_sessions")

    replay = await replays.run(since=row["at"])

    assert (replay["sessions"], replay["sessionsDone"]) == (1, 1)


def give(provider: Scripted) -> Callable[[Settings, str], Scripted]:
    return lambda _settings, _name: provider


async def test_a_provider_is_asked_within_its_budget(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(3, 2)
    scripted = Scripted(name="anthropic")
    monkeypatch.setattr(run_replay, "load_provider", give(scripted))
    before = await read_all(replays)
    measured = await replays.send("POST", "/estimate", {"provider": "anthropic"})
    assert scripted.prompts == []
    assert (measured["sessions"], measured["calls"] >= 6, measured["inputTokens"] > 1000) == (3, True, True)
    assert float(measured["costUsd"]) > 0

    replay = await replays.run(provider="anthropic")

    assert replay["state"] == "done"
    assert replay["reworded"] + replay["new"] > 0
    assert 0 < len(scripted.prompts) <= measured["calls"]
    (runs,) = await replays.rows("SELECT count(*) AS n, bool_and(answer IS NULL OR answer = '') AS bare FROM generation_runs")
    assert runs == {"n": len(scripted.prompts), "bare": True}
    changed = {name for name, it in (await read_all(replays)).items() if it != before[name]}
    assert changed == {"generation_runs", "generation_spending"}

    await replays.act("PUT", "budgets", {"period": "day", "maxTokens": 1})
    stopped = await replays.run(provider="anthropic")
    assert (stopped["state"], stopped["sessionsDone"]) == ("stopped", 0)
    assert "budget" in stopped["reason"]
    assert await replays.lines(2) == []


async def test_a_provider_that_does_not_answer_stops_it(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(1, 1)

    def fail(prompt: Prompt) -> Completion:
        raise ProviderError(FailureKind.TRANSIENT, "The line is dead.", out_of_reach=True)

    dead = Scripted(fail, name="anthropic")
    monkeypatch.setattr(run_replay, "load_provider", give(dead))

    stopped = await replays.run(provider="anthropic")

    assert (stopped["state"], stopped["sessionsDone"]) == ("stopped", 0)
    assert "The line is dead." in stopped["reason"]


async def test_a_key_of_one_project_sees_and_replays_that_alone(corpus: Corpus, replays: Replays, db: Db, cast: Cast):
    await corpus.play(1, 1)
    await replays.run()
    other = await bound_to(db, cast.alice, "github.com/acme/zoo")

    async def ask(method: str, path: str, body: object = None) -> httpx.Response:
        return await replays.client.request(method, f"/v1/replays{path}", json=body, headers=other.headers)

    assert (await ask("GET", "")).json()["replays"] == []
    assert {(await ask(method, path)).status_code for method, path in [
        ("GET", "/1"), ("GET", "/1/lines"), ("POST", "/1/stop"), ("POST", "/1/take-over"), ("DELETE", "/1")]} == {404}  # fmt: skip
    assert (await ask("POST", "", {})).status_code == 409  # there is nothing in its project


async def test_lines_go_with_what_they_tell_of(corpus: Corpus, replays: Replays, monkeypatch: pytest.MonkeyPatch):
    await corpus.play(2, 3)
    plant(monkeypatch, lambda draft: msgspec.structs.replace(draft, title=f"New: {draft.title}"))
    await replays.run()
    lines = await replays.lines(1)
    gone, taken = [line["number"] for line in lines if line["what"] == "observation"][:2]

    await replays.act("DELETE", f"observations/{gone}")
    await replays.act("POST", f"observations/{taken}/expire", {})

    assert {line["number"] for line in lines} - {line["number"] for line in await replays.lines(1)} == {gone, taken}
    await replays.act("DELETE", f"sessions/{lines[0]['sessionId']}")
    assert lines[0]["sessionId"] not in {line["sessionId"] for line in await replays.lines(1)}
    assert await replays.lines(1) != []
