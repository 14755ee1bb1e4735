"""Two people of one team that lets only owners, or nobody, read the words of others.

Ben names what Ann and her agents said in every way, on every route, tool and page, and is shown no word of it.
CMSERVER_TEST_WALK_REQUESTS says how many requests the long walk makes, CMSERVER_TEST_WALK_SEED repeats their order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.models.providers.model import Rules
from tests.conftest import Cast, Person
from tests.doors.web.visitor import visit_as
from tests.generation.tools import Outbox
from tests.house import walk
from tests.house.test_teammates_walk import QUICK_REQUESTS, REQUESTS, SEED, Wanderer
from tests.house.test_walk import MARK, told
from tests.house.walk import Walker, Way
from tests.make import Make
from tests.personal.people import make_account, make_key
from tests.process.program import measured

OF_SEVERAL = {"POST /v1/entities", "POST /entities", "POST /v1/projects/{project}/overview", "POST /projects/{id}/summarize"}
"""What makes something of the words of several people, and so is refused to who may not read them all."""
SENTENCES = [f"Never forget the {MARK}", f"{MARK} by hand", f"The {MARK} is remembered now"]
"""What she and her agents said, of which he may send a word himself."""


class Speech(msgspec.Struct, frozen=True, kw_only=True):
    """Ann owns a team and has said something in it. Ben is a member who may do everything but read it."""

    db: Db
    ann: Person
    ben: Walker
    bens: Person
    ways: dict[walk.Kind, list[Way]]

    @property
    def names(self) -> list[str]:
        return [way.hers for ways in self.ways.values() for way in ways]


@pytest.fixture
async def speech(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, outbox: Outbox) -> Speech:
    team_id = cast.alice.team_id
    ann = await make_key(db, await make_account(db, team_id, "ann"))
    ben = await make_key(db, await make_account(db, team_id, "ben", is_owner=False))
    bens = await walk.furnish(client, db, make, ben, "shared")
    ways = await walk.furnish_with_words(client, db, ann, bens.own["project"])
    await (await outbox.hand(Rules())).work()
    await walk.set_apart(db, team_id)
    return Speech(db=db, ann=ann, ben=Walker(client, ben.key, bens.own), bens=ben, ways=ways)


async def set_words(db: Db, speech: Speech, words: str) -> None:
    async with db.system() as conn:
        await conn.execute("UPDATE teams SET words = %s WHERE id = %s", [words, speech.ann.team_id])


async def bens_walk(speech: Speech) -> list[str]:
    """What Ben is shown of Ann's words, wherever he names what is hers, and in every list."""
    said: list[str] = []
    for name, answered in (await walk.seen_in_lists(speech.ben, walk.stops())).items():
        said += [f"{name} lists it: {answered.body[:3000]}"] * (MARK in answered.body)
    for stop in walk.stops():
        for slot in stop.slots if stop.path not in walk.ENDLESS else []:
            for way in speech.ways.get(slot.kind, []):
                answered = (await speech.ben.send(stop, slot, way.hers)).without(way.hers)
                said += [f"{stop.name} with {slot.name}={way.hers} shows it: {answered.body[:3000]}"] * (MARK in answered.body)
                said += [f"{stop.name} with {slot.name}={way.hers} fails: {answered.body}"] * (answered.status >= 500)
    return said


@pytest.mark.parametrize("words", ["owners", "nobody"])
async def test_a_teammate_is_shown_no_word_of_what_another_said(speech: Speech, db: Db, words: str):
    await set_words(db, speech, words)

    said = await bens_walk(speech)

    assert not said, told(said)


@pytest.mark.parametrize("words", ["owners", "nobody"])
async def test_whoever_may_not_read_all_can_do_all_with_what_is_theirs(speech: Speech, db: Db, words: str):
    await set_words(db, speech, words)

    every = [stop for stop in walk.stops() if stop.method != "DELETE" and stop.path not in walk.ENDLESS | walk.NO_KEY_OPENS]
    answers = {stop.name: await speech.ben.send(stop) for stop in every}

    assert {name: one for name, one in answers.items() if one.status >= 500 or MARK in one.body} == {}
    assert {name for name, one in answers.items() if "what several people said" in one.body} == OF_SEVERAL


async def test_where_every_member_may_read_them_the_walk_notices(speech: Speech):
    """Else it would show nothing: whatever is asked for in a wrong way is missing."""
    said = await bens_walk(speech)

    assert len(said) > 40, told(said)


async def test_an_owner_reads_all_where_owners_may_and_nobody_elses_where_nobody_may(
    speech: Speech, client: httpx.AsyncClient, db: Db, cast: Cast
):
    owner = await make_key(db, await make_account(db, cast.alice.team_id, "ora"))
    walker = Walker(client, owner.key, speech.ben.own)

    await set_words(db, speech, "owners")
    among_owners = await walk.seen_in_lists(walker, walk.stops())
    await set_words(db, speech, "nobody")
    among_nobody = await walk.seen_in_lists(walker, walk.stops())

    assert len([name for name, answered in among_owners.items() if MARK in answered.body]) > 15
    assert [name for name, answered in among_nobody.items() if MARK in answered.body] == []


async def test_whose_words_they_are_reads_them_where_nobody_else_may(speech: Speech, client: httpx.AsyncClient, db: Db):
    await set_words(db, speech, "nobody")
    ann = Walker(client, speech.ann.key, speech.ben.own)

    seen = await walk.seen_in_lists(ann, walk.stops())

    assert {name for name, answered in seen.items() if MARK in answered.body} >= {
        *("GET /v1/sessions", "GET /v1/turns", "GET /v1/events", "GET /v1/observations", "GET /v1/jobs", "GET /v1/context"),
    }


@asynccontextmanager
async def without_policies(db: Db, *, views: bool) -> AsyncGenerator[None]:
    """The policies `words` dropped, for the moment, and the same condition of the views of search."""
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT polrelid::regclass::text, pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polname = 'words'"
        )
        policies = await cursor.fetchall()
        cursor = await conn.execute(
            "SELECT c.oid::regclass::text, pg_get_viewdef(c.oid) FROM pg_class c"
            " WHERE c.relname IN ('observations_in_team', 'turns_in_team') AND c.relnamespace = 'public'::regnamespace"
        )
        texts = await cursor.fetchall()
    try:
        async with db.system() as conn:
            for table, _ in policies:
                await conn.execute(f"DROP POLICY words ON {table}".encode())
            for view, text in texts if views else []:
                unbound = text.replace("'own'::text", "'none'::text")
                await conn.execute(f"CREATE OR REPLACE VIEW {view} AS {unbound}".encode())
        yield
    finally:
        async with db.system() as conn:
            for table, condition in policies:
                await conn.execute(f"CREATE POLICY words ON {table} AS RESTRICTIVE FOR SELECT USING ({condition})".encode())
            for view, text in texts:
                await conn.execute(f"CREATE OR REPLACE VIEW {view} AS {text}".encode())


async def test_without_the_policies_they_are_shown(speech: Speech, db: Db):
    await set_words(db, speech, "nobody")

    async with without_policies(db, views=False):
        without_policies_said = await bens_walk(speech)

    assert len(without_policies_said) > 30, told(without_policies_said)


async def test_without_the_condition_of_the_views_search_finds_them(speech: Speech, client: httpx.AsyncClient, db: Db):
    await set_words(db, speech, "nobody")
    asked = {"query": MARK, "projectId": speech.ben.own["project"]}

    async def find() -> list[object]:
        return (await client.post("/v1/search", json=asked, headers=speech.bens.headers)).json()["observations"]

    hidden = await find()
    async with without_policies(db, views=True):
        shown = await find()

    assert hidden == []
    assert shown != []


async def test_a_search_for_hidden_words_answers_as_one_for_unsaid_words(speech: Speech, client: httpx.AsyncClient, db: Db):
    await set_words(db, speech, "nobody")

    async def find(word: str) -> str:
        asked = {"query": f"shared {word}", "projectId": speech.ben.own["project"]}
        answered = await client.post("/v1/search", json=asked, headers=speech.bens.headers)
        return walk.Answered(answered.status_code, answered.text).without(word).body

    assert await find(MARK) == await find("xylophon")


async def wander(speech: Speech, app: AsgiFrame, db: Db, *, requests: int, seed: int) -> list[str]:
    """What Ben is shown of Ann's words in so many requests, and on pages."""
    visitor = await visit_as(app, db, speech.ann.team_id, "member")
    token = await visitor.token("/ui/profile")
    wanderer = Wanderer(speech.ben, speech.names, SENTENCES, visitor, Random(seed))
    return list(await wanderer.go(requests, token))


@pytest.mark.parametrize("words", ["owners", "nobody"])
async def test_some_hundred_requests_in_random_order_show_no_word(speech: Speech, app: AsgiFrame, db: Db, words: str):
    await set_words(db, speech, words)

    said = await wander(speech, app, db, requests=QUICK_REQUESTS, seed=SEED)

    assert not said, told(said)


@pytest.mark.slow
@pytest.mark.parametrize("words", ["owners", "nobody"])
async def test_many_requests_show_no_word_and_without_the_policies_they_do(speech: Speech, app: AsgiFrame, db: Db, words: str):
    await set_words(db, speech, words)

    said = await wander(speech, app, db, requests=REQUESTS, seed=SEED)
    async with without_policies(db, views=True):
        without = await wander(speech, app, db, requests=REQUESTS // 10, seed=SEED + 1)

    assert not said, told(said)
    assert without, "the walk notices"
    measured(f"{words}, {REQUESTS} requests: {len(said)} leaks; {REQUESTS // 10} without the policies: {len(without)} leaks")
