"""Later words among the hits of a search: named on the earlier hit, and before it where they fit about as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
from msgspec import structs

from cmserver.base.db import Db
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.reading.edit_tokens import find_tokens
from cmserver.recall.model import ContextRequest
from cmserver.recall.prompt_context import build_prompt_context
from cmserver.recall.search.later import put_later_first
from cmserver.recall.search.model import Hit
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.ledger.model import NewEntry, Scope
from cmserver.sessions.turns.model import SessionTurn
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.tools import post_search
from tests.recall.test_turn_line import turn

TEN = datetime(2026, 11, 2, 10, tzinfo=UTC)
TALK = [
    "Nobody knows why it rains.",
    "We had soup with bread.",
    "Trains were late again.",
    "A lamp is broken.",
    "Bees sleep in winter.",
]


async def test_a_hit_names_the_later_turn_which_stands_before_it(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    for text in TALK:
        await make.turn(project=cast.alice.project, prompt=text, reply="Indeed.", session="talk")
    old = await make.turn(project=cast.alice.project, prompt="The cache keeps invoices for 30 minutes.", reply="I see.")
    new = await make.turn(
        project=cast.alice.project, prompt="From now on the cache keeps invoices for 5 minutes.", reply="I see.", session="s2"
    )
    await write_due_sentences(db, None, 0)

    found = (await post_search(client, cast.alice, "how long are invoices in the cache?"))["prompts"]
    at_a_time = (await post_search(client, cast.alice, "how long were invoices in the cache in May 2020?"))["prompts"]

    assert [(hit["number"], hit["later"]) for hit in found] == [(new.number, []), (old.number, [new.number])]
    assert {hit["number"] for hit in at_a_time} == {old.number, new.number}


def hit(source: SessionTurn, score: float, *later: int) -> Hit:
    return Hit(id=source.id, source=source, score=score, later=later)


def test_only_what_fits_about_as_well_is_put_before():
    best, near, far = hit(turn(1, "a"), 0.8, 2, 3), hit(turn(2, "b"), 0.6), hit(turn(3, "c"), 0.5)

    assert put_later_first([best, near, far]) == [near, best, far]
    assert put_later_first([]) == []


def test_of_hits_that_fit_as_well_as_the_best_the_newest_is_first():
    old, new, newest = (
        hit(structs.replace(turn(number, "a"), created_at=TEN + timedelta(hours=number)), score)
        for number, score in ((1, 0.8), (2, 0.79), (3, 0.7))
    )

    assert put_later_first([old, new, newest]) == [new, old, newest]


async def test_what_an_edit_took_out_again_is_named_on_the_hit_and_not_told_on_a_prompt(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    project = cast.alice.project
    old = await make.turn(project=project, prompt="The cache keeps invoices for 30 minutes.", reply="I see.")
    new = await make.turn(project=project, prompt="Make the cache keep invoices for 5 minutes.", reply="Done.", session="s2")
    await write_due_sentences(db, None, 0)
    question = "how many minutes does the cache keep invoices?"
    async with db.system() as conn:
        tokens = sorted(find_tokens("for 30 minutes"))
        entries = [NewEntry(earlier_id=old.id, later_id=new.id, name="cache.py", token=token) for token in tokens]
        scope = Scope(turn_ids=[old.id, new.id], name="cache.py", tokens=tokens)
        await ledger.write(conn, project.team_id, project.id, "edit", [scope], entries)

    found = (await post_search(client, cast.alice, question))["prompts"]
    async with db.tenant(project.team_id) as conn:
        told = await build_prompt_context(conn, cast.alice.principal, project, ContextRequest(reason="prompt"), question)

    assert {hit["number"]: hit["changed"] for hit in found} == {old.number: new.number, new.number: None}
    assert told is not None
    assert told.numbers == [new.number]
