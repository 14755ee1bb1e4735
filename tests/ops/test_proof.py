"""A share of sessions that is told nothing, and what is said of both arms."""

from __future__ import annotations

from random import Random
from statistics import fmean, variance
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.ops.proof.compare import compare, t_quantile
from cmserver.ops.proof.model import ArmMeasure
from cmserver.ops.proof.wire import ArmOut, measure_out
from tests.conftest import Cast, Person, bound_to, mint
from tests.make import Make
from tests.ops.test_private_sessions import PRIVATE
from tests.personal.people import make_two
from tests.rows import rows
from tests.table import try_rows

PROJECT = "github.com/acme/orders"
KNOWN = "src/pool.py waits for a lock"
START = {"hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": "Why does src/pool.py wait for so long?"}
FILE = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "/home/alice/src/orders/src/pool.py"}}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Prompts and files are answered."""
    return msgspec.structs.replace(settings, context_on="both")


@pytest.fixture
async def known(cast: Cast, make: Make) -> None:
    for number in range(10):
        await make.observation(project=cast.alice.project, title=f"Thing {number} of the checkout")
    await make.observation(project=cast.alice.project, title=KNOWN, files_modified=["src/pool.py"])


async def hook(client: httpx.AsyncClient, person: Person, session: str, body: dict[str, Any], **headers: str) -> str:
    """What the agent's model is told."""
    sent = {**person.headers, "X-Cmserver-Project": PROJECT, **headers}
    response = await client.post("/v1/hooks/claude-code", json={"session_id": session, **body}, headers=sent)
    assert response.status_code == 200, response.text
    return str(response.json().get("hookSpecificOutput", {}).get("additionalContext", ""))


async def set_share(client: httpx.AsyncClient, person: Person, share: int) -> None:
    changed = await client.patch(f"/v1/teams/{person.team_id}", json={"untoldShare": share}, headers=person.headers)
    assert changed.json()["team"]["untoldShare"] == share, changed.text


async def arm_of(db: Db, session: str) -> str | None:
    (row,) = await rows(db, "SELECT arm FROM server_sessions WHERE content_session_id = %s", session)
    return row["arm"]


async def begin(client: httpx.AsyncClient, person: Person, db: Db, arm: str) -> str:
    """The agent's id of a new session that fell into that arm."""
    for number in range(60):
        await hook(client, person, f"{arm}{number}", START)
        if await arm_of(db, f"{arm}{number}") == arm:
            return f"{arm}{number}"
    raise AssertionError(arm)


_SESSION = """
    INSERT INTO server_sessions (id, team_id, project_id, arm, started_at, ended_at)
    VALUES (%s, %s, %s, %s, now() - interval '1 hour', CASE WHEN %s THEN now() END)
"""
_TURN = """
    INSERT INTO turns (id, team_id, project_id, server_session_id, prompt_number, prompt, number, ended_at)
    VALUES (%s, %s, %s, %s, %s, %s, (SELECT coalesce(max(number), 0) + 1 FROM turns), now())
"""
_CHECK = """
    INSERT INTO turn_traces (turn_id, team_id, project_id, kind, name, results)
    SELECT %s, %s, %s, 'check', 'pytest', jsonb_build_array(jsonb_build_object('text', 'pytest', 'results', jsonb_agg(run)))
      FROM (SELECT jsonb_build_object('command', 'pytest', 'kind', 'test', 'passed', n > %s) AS run FROM generate_series(1, 9) n) _
"""
_EVENT = """
    INSERT INTO agent_events (id, team_id, project_id, server_session_id, source_adapter, idempotency_key, event_type, origin,
                              generate, size_chars, payload, occurred_at)
    VALUES (%s, %s, %s, %s, 'hook', gen_random_uuid()::text, 'tool_use', 'hook', false, 400, '{}', now())
"""
_RECEIPT = """
    INSERT INTO context_injections (id, team_id, project_id, server_session_id, reason, numbers, summary_numbers, left_out,
                                    left_out_count, tokens, budget_tokens, chars)
    VALUES (%s, %s, %s, %s, 'startup', '{}', '{}', '{}', 0, %s, 0, 0)
"""


async def make_session(
    db: Db, person: Person, arm: str | None, *prompts: str, failures: int = 0, told: int = 0, has_ended: bool = True
) -> UUID:
    """A session with these prompts, an event of 400 characters, a check that failed so often, and what it was told."""
    session_id, place = new_id(), (person.team_id, person.project.id)
    await rows(db, _SESSION, session_id, *place, arm, has_ended)
    for number, prompt in enumerate(prompts, start=1):
        turn_id = new_id()
        await rows(db, _TURN, turn_id, *place, session_id, number, prompt)
        if number == 1:
            await rows(db, _CHECK, turn_id, *place, failures)
    await rows(db, _EVENT, new_id(), *place, session_id)
    if told:
        await rows(db, _RECEIPT, new_id(), *place, session_id, told)
    return session_id


async def read_proof(client: httpx.AsyncClient, person: Person, **params: str) -> dict[str, Any]:
    response = await client.get("/v1/proof", params=params, headers=person.headers)
    assert response.status_code == 200, response.text
    return response.json()


async def test_without_a_share_every_session_is_told_and_none_is_compared(
    client: httpx.AsyncClient, cast: Cast, db: Db, known: None
):
    assert KNOWN in await hook(client, cast.alice, "s1", START)
    assert await arm_of(db, "s1") is None
    assert (await read_proof(client, cast.alice))["measures"] == []


async def test_an_untold_session_is_told_nothing_and_the_others_as_ever(client: httpx.AsyncClient, cast: Cast, db: Db, known: None):
    await set_share(client, cast.alice, 50)
    told, untold = await begin(client, cast.alice, db, "told"), await begin(client, cast.alice, db, "untold")

    for body in (START, PROMPT, FILE, {**START, "source": "resume"}):
        assert await hook(client, cast.alice, untold, body) == "", body
    assert KNOWN in await hook(client, cast.alice, told, START)
    assert KNOWN in await hook(client, cast.alice, told, PROMPT)
    shown = await rows(
        db,
        "SELECT DISTINCT s.arm FROM context_injections c JOIN server_sessions s ON s.id = c.server_session_id",
    )
    assert shown == [{"arm": "told"}]
    await set_share(client, cast.alice, 0)
    assert await arm_of(db, untold) == "untold"  # it was drawn once
    assert await hook(client, cast.alice, untold, PROMPT) == ""


async def test_the_share_is_kept_about(client: httpx.AsyncClient, cast: Cast, db: Db):
    await set_share(client, cast.alice, 20)

    for number in range(100):
        await hook(client, cast.alice, f"s{number}", START)

    drawn = {row["arm"]: row["n"] for row in await rows(db, "SELECT arm, count(*) AS n FROM server_sessions GROUP BY arm")}
    assert sum(drawn.values()) == 100
    assert set(drawn) == {"told", "untold"}
    assert 4 <= drawn["untold"] <= 40  # five deviations


async def test_what_an_untold_session_asks_for_is_answered(client: httpx.AsyncClient, cast: Cast, db: Db, known: None):
    await set_share(client, cast.alice, 50)
    name = await begin(client, cast.alice, db, "untold")
    body = {"query": "pool lock", "project": PROJECT}

    found = await client.post("/v1/search", json=body, headers=cast.alice.headers)
    asked = await client.get("/v1/context", params={"session": name}, headers=cast.alice.headers)
    begun = await client.get("/v1/context", params={"session": name, "source": "startup"}, headers=cast.alice.headers)

    assert KNOWN in found.text
    assert KNOWN in asked.json()["context"]
    assert begun.json()["context"] == ""


async def test_a_session_that_is_taken_out_is_told_and_counted_no_more(client: httpx.AsyncClient, cast: Cast, db: Db, known: None):
    await set_share(client, cast.alice, 50)
    name = await begin(client, cast.alice, db, "untold")
    before = (await read_proof(client, cast.alice))["untold"]["begun"]
    path = f"/v1/proof/sessions/{name}"

    strange = await client.delete(path, headers=cast.charlie.headers)
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["observations:read"])
    forbidden = await client.delete(path, headers={"X-Api-Key": reader})
    assert (strange.status_code, forbidden.status_code) == (404, 403)
    assert await arm_of(db, name) == "untold"
    taken = await client.delete(path, headers=cast.bob.headers)
    again = await client.delete(path, headers=cast.bob.headers)

    assert taken.json()["session"]["arm"] is None
    assert again.json() == taken.json()
    assert KNOWN in await hook(client, cast.alice, name, PROMPT)
    assert (await read_proof(client, cast.alice))["untold"]["begun"] == before - 1
    audited = await rows(db, "SELECT actor_id, details FROM audit_log WHERE action = 'session.taken_out'")
    assert audited == [{"actor_id": "bob", "details": {"arm": "untold"}}]


async def test_what_cannot_be_told_is_not_compared(client: httpx.AsyncClient, cast: Cast, db: Db):
    """Late, without a start, by a key that may not read, by the API, and private."""
    await set_share(client, cast.alice, 50)
    _, mute = await mint(db, cast.alice.team_id, "mute", scopes=["events:write", "sessions:write"])
    ann, _ = await make_two(db, cast.alice.team_id)
    unable = msgspec.structs.replace(cast.alice, key=mute)

    await hook(client, cast.alice, "late", START, **{"X-Cmserver-Sent-At": "1700000000", "X-Cmserver-Late": "1"})
    await hook(client, cast.alice, "no-start", PROMPT)
    await hook(client, unable, "mute", START)
    for number in range(8):
        await hook(client, ann, f"private{number}", START, **PRIVATE)
        await rows(db, "UPDATE teams SET untold_share = 50")
    body = {"projectId": PROJECT, "externalSessionId": "api"}
    await client.post("/v1/sessions/start", json=body, headers=cast.alice.headers)

    assert await rows(db, "SELECT content_session_id FROM server_sessions WHERE arm IS NOT NULL") == []
    assert len(await rows(db, "SELECT id FROM server_sessions")) == 12


async def test_only_a_session_that_starts_afresh_is_compared(client: httpx.AsyncClient, cast: Cast, db: Db):
    """One first known as it goes on knows already what it was told before."""
    await set_share(client, cast.alice, 50)

    for source in ("startup", "clear", "resume", "fork", "compact"):
        await hook(client, cast.alice, source, {**START, "source": source})

    drawn = await rows(db, "SELECT content_session_id AS name FROM server_sessions WHERE arm IS NOT NULL ORDER BY 1")
    assert [row["name"] for row in drawn] == ["clear", "startup"]
    assert len(await rows(db, "SELECT id FROM server_sessions")) == 5


async def test_a_session_made_private_leaves_the_comparison(client: httpx.AsyncClient, cast: Cast, db: Db):
    ann, _ = await make_two(db, cast.alice.team_id)
    await set_share(client, cast.alice, 50)
    name = await begin(client, ann, db, "untold")

    made = await client.post(f"/v1/sessions/{name}/private", json={}, headers=ann.headers)

    assert made.status_code == 200, made.text
    assert await arm_of(db, name) is None


async def test_both_arms_are_measured_and_what_differs_is_said(client: httpx.AsyncClient, cast: Cast, db: Db):
    await make_session(db, cast.alice, None, "Where is the VAT calculated?")
    for number in range(30):
        await make_session(db, cast.alice, "told", f"unlike {number} it", *[f"unlike {number} it"] * (number % 2), told=100)
        asked = "where is the VAT calculated" if number % 2 else "yes"
        await make_session(db, cast.alice, "untold", asked, *["go on"] * (3 + number % 2), failures=3)
    await make_session(db, cast.alice, "untold", "not yet over", has_ended=False)
    await make_session(db, cast.alice, "told")

    proof = await read_proof(client, cast.alice)

    assert (proof["told"], proof["untold"]) == ({"begun": 31, "compared": 30}, {"begun": 31, "compared": 30})
    measures = {row["name"]: row for row in proof["measures"]}
    means = {name: (row["told"]["mean"], row["untold"]["mean"]) for name, row in measures.items()}
    assert means == {
        "turns": (1.5, 4.5),
        "repeated_failures": (0, 2),
        "repeated_questions": (0, 0.5),
        "tokens": (200, 100),
    }
    verdicts = {name: row["verdict"] for name, row in measures.items()}
    assert verdicts == {"turns": "less", "repeated_failures": "too_few", "repeated_questions": "too_few", "tokens": "more"}
    difference = measures["turns"]["difference"]
    assert difference["mean"] == -3
    assert -4 < difference["low"] < -3 < difference["high"] < -2


async def test_a_question_is_asked_again_only_after_another_session(client: httpx.AsyncClient, cast: Cast, db: Db):
    """The first session that asked it twice has not asked it again until the second one did."""
    first = await make_session(db, cast.alice, "untold", "Where is the VAT?", "where is the vat")
    await make_session(db, cast.alice, "told", "Where is, the VAT", "where is the vat", "where is it now")
    turn = (new_id(), cast.alice.team_id, cast.alice.project.id, first, 3, "WHERE is the VAT")
    await make_session(db, cast.charlie, "told", "where is it now")
    for number in range(28):
        await make_session(db, cast.alice, "told", f"unlike {number} it")
        await make_session(db, cast.alice, "untold", f"unlike {number} them")
    await make_session(db, cast.alice, "told", "where is the vat", "where is the vat")
    await make_session(db, cast.alice, "untold", "yes", "yes")
    await rows(db, _TURN, *turn)

    (questions,) = [row for row in (await read_proof(client, cast.alice))["measures"] if row["name"] == "repeated_questions"]

    assert questions["told"]["mean"] == pytest.approx(4 / 30)
    assert questions["untold"]["mean"] == pytest.approx(1 / 30)


async def test_a_deleted_session_leaves_no_trace_in_the_figures(client: httpx.AsyncClient, cast: Cast, db: Db):
    await make_session(db, cast.alice, "told", "one")
    before = await read_proof(client, cast.alice)
    session_id = await make_session(db, cast.alice, "told", "two", "three")
    assert await read_proof(client, cast.alice) != before

    gone = await client.delete(f"/v1/sessions/{session_id}", headers=cast.alice.headers)

    assert gone.status_code == 200, gone.text
    assert await read_proof(client, cast.alice) == before


async def test_a_proof_is_of_what_the_key_sees(client: httpx.AsyncClient, cast: Cast, db: Db):
    await make_session(db, cast.alice, "told", "one")
    await make_session(db, cast.charlie, "told", "one")
    await make_session(db, cast.charlie, "told", "two")
    bound = await bound_to(db, cast.alice, "github.com/acme/other")

    assert (await read_proof(client, cast.alice))["told"]["begun"] == 1
    assert (await read_proof(client, bound))["told"]["begun"] == 0
    assert (await read_proof(client, cast.alice, project=PROJECT))["told"]["begun"] == 1
    assert (await client.get("/v1/proof", params={"project": PROJECT}, headers=bound.headers)).status_code == 404


@try_rows("share", [-1, 51, 2.5, "20", None], ids=["below", "above", "broken", "text", "null"])
async def test_a_share_is_of_0_to_50(client: httpx.AsyncClient, cast: Cast, db: Db, share: object):
    refused = await client.patch(f"/v1/teams/{cast.alice.team_id}", json={"untoldShare": share}, headers=cast.alice.headers)

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.untoldShare")
    assert await rows(db, "SELECT id FROM teams WHERE untold_share <> 0") == []


def test_fewer_than_thirty_sessions_of_an_arm_say_nothing():
    compared = compare(_of("told", 29, 1.0, 0.0), _of("untold", 500, 9.0, 0.0))
    assert compared is not None
    assert (compared.verdict, compared.difference) == ("too_few", None)
    alone = compare(None, _of("untold", 1, 9.0, None))
    assert alone is not None
    assert (alone.verdict, alone.told, alone.untold) == ("too_few", None, None)
    assert compare(None, None) is None


def test_fewer_than_ten_sessions_of_an_arm_with_any_say_nothing():
    compared = compare(_of("told", 500, 0.5, 0.25, 250), _of("untold", 30, 0.0, 0.0, 9))

    assert compared is not None
    assert (compared.verdict, compared.difference) == ("too_few", None)


def test_the_intervals_are_of_the_pooled_variance():
    compared = compare(_of("told", 40, 10.0, 16.0), _of("untold", 60, 12.0, 36.0))

    assert compared is not None
    assert compared.difference is not None  # by hand: the error is 1.081, with 98 degrees of freedom
    assert (compared.difference.low, compared.difference.high) == (pytest.approx(-4.839, abs=1e-3), pytest.approx(0.839, abs=1e-3))
    assert compared.verdict == "no_difference"


def test_no_difference_is_said_from_fewer_to_more():
    compared = compare(_of("told", 40, 10.0, 16.0), _of("untold", 60, 12.0, 36.0))
    assert compared is not None

    said = measure_out(compared, ArmOut(begun=40, compared=40), ArmOut(begun=60, compared=60)).sentence

    assert said == ("No difference yet in turns to the end: between 4.84 fewer and 0.84 more when told, and that may be none.")


def test_an_arms_own_interval_is_not_below_nothing_and_not_of_few():
    compared = compare(_of("told", 30, 0.1, 0.3), _of("untold", 29, 0.1, 0.3))

    assert compared is not None
    assert compared.told is not None
    assert (compared.told.low, compared.untold) == (0, None)


@try_rows("told, untold", [(270, 30), (570, 30)], ids=["270", "570"])
@try_rows("chance", [0.02, 0.03, 0.05, 0.5], ids=["2%", "3%", "5%", "50%"])
def test_equal_arms_seldom_differ(told: int, untold: int, chance: float):
    random = Random(7)
    verdicts = [compare(_draw(random, "told", told, chance), _draw(random, "untold", untold, chance)) for _ in range(1000)]

    assert sum(found is not None and found.verdict in {"less", "more"} for found in verdicts) <= 20


def _draw(random: Random, arm: Any, sessions: int, chance: float) -> ArmMeasure:
    """A count that is rare, and mostly one where it is not none."""
    values = [random.choice((1, 1, 1, 2)) if random.random() < chance else 0 for _ in range(sessions)]
    return _of(arm, sessions, fmean(values), variance(values), sum(map(bool, values)))


@try_rows("freedom, expected", [(29, 2.756), (58, 2.663), (120, 2.617), (1000, 2.581)], ids=["29", "58", "120", "1000"])
def test_the_quantiles_are_those_of_tables(freedom: float, expected: float):
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-3)


def _of(arm: Any, sessions: int, mean: float, variance: float | None, non_zero: int | None = None) -> ArmMeasure:
    non_zero = sessions if non_zero is None else non_zero
    return ArmMeasure(arm=arm, name="turns", sessions=sessions, non_zero=non_zero, mean=mean, variance=variance)
