"""Turns are found by what was meant in them, beside observations and without taking their place."""

from __future__ import annotations

import msgspec

from cmserver.base.db import Db
from cmserver.recall.search import lexical
from cmserver.recall.search.model import Filters
from tests.conftest import Cast
from tests.make import Make
from tests.recall.search.tools import MEANT, PLAIN, Vectors, run_search

TURNS = Filters(kinds=["turn"])


async def test_a_turn_that_shares_no_word_is_found_by_its_meaning(db: Db, cast: Cast, make: Make, vectors: Vectors):
    observation = await make.observation(project=cast.alice.project, title="Pipelines are green")
    near = await make.turn(project=cast.alice.project, prompt="Why is it slow?", reply="The cache was cold.")
    far = await make.turn(project=cast.alice.project, prompt="Rename it", reply="Renamed.")
    theirs = await make.turn(project=cast.charlie.project, prompt="Why?", reply="Cold.")
    for text, vector in ((observation, [0, 1]), (near, [1, 0.1]), (far, [-1, 0.5]), (theirs, [1, 0])):
        vectors.give(text, vector)

    found = await run_search(db, cast.alice, "latency", ranking=MEANT, sought=vectors.near(1, 0))
    by_words = await run_search(db, cast.alice, "latency", ranking=PLAIN)
    only = await run_search(db, cast.alice, "latency", ranking=MEANT, sought=vectors.near(1, 0), filters=TURNS)

    assert [(hit.id, hit.match_type) for hit in found.hits if hit.turn] == [(near.id, "semantic")]
    assert [hit.id for hit in only.hits] == [near.id]
    assert by_words.hits == []


async def test_words_and_meaning_of_a_turn_count_together(db: Db, cast: Cast, make: Make, vectors: Vectors):
    vectors.give(await make.observation(project=cast.alice.project, title="Pipelines are green"), [0, 1])
    both, words, meaning = [
        await make.turn(project=cast.alice.project, prompt=prompt, reply="Done.") for prompt in ("quokka", "a quokka here", "other")
    ]
    for turn, vector in ((both, [1, 0]), (words, [-1, 0.2]), (meaning, [1, 0.1])):
        vectors.give(turn, vector)

    found = await run_search(db, cast.alice, "quokka", ranking=MEANT, sought=vectors.near(1, 0), filters=TURNS)

    assert found.hits[0].id == both.id
    assert {hit.id: set(hit.parts) >= {"cosine"} for hit in found.hits} == {both.id: True, words.id: True, meaning.id: True}


async def test_filters_hold_for_what_is_near(db: Db, cast: Cast, make: Make, vectors: Vectors):
    vectors.give(await make.observation(project=cast.alice.project, title="Pipelines are green"), [0, 1])
    first = await make.turn(project=cast.alice.project, reply="One.", session="s1")
    second = await make.turn(project=cast.alice.project, reply="Two.", session="s2")
    for turn in (first, second):
        vectors.give(turn, [1, 0])

    async def find(query: str = "latency", **filters: object) -> set[object]:
        wanted = msgspec.structs.replace(TURNS, **filters)
        page = await run_search(db, cast.alice, query, ranking=MEANT, sought=vectors.near(1, 0), filters=wanted)
        return {hit.id for hit in page.hits}

    assert await find() == {first.id, second.id}
    assert await find(session_id=second.server_session_id) == {second.id}
    assert await find(until=second.created_at) == {first.id}
    assert await find(agents=["codex"]) == set()
    assert await find('latency "two"') == {second.id}
    assert await find(types=["decision"]) == set()


async def test_turns_are_no_documents_of_a_team_and_no_neighbours_of_observations(db: Db, cast: Cast, make: Make, vectors: Vectors):
    for n in range(3):
        vectors.give(await make.observation(project=cast.alice.project, title=f"A wombat {n}"), [0, 1])
    for n in range(20):
        vectors.give(await make.turn(project=cast.alice.project, reply=f"A wombat {n}"), [1, 0])

    async with db.tenant(cast.alice.team_id) as conn:
        _, team = await lexical.read_words(conn, cast.alice.team_id, None, "wombat")
        _, project = await lexical.read_words(conn, cast.alice.team_id, [cast.alice.project.id], "wombat")
    found = await run_search(db, cast.alice, "wombat", ranking=MEANT, sought=vectors.near(1, 0), limit=100)

    assert (team.documents, team.found_in) == (project.documents, project.found_in) == (3, team.found_in)
    assert sum(1 for hit in found.hits if hit.observation) == 3


async def test_turns_of_a_project_without_observations_are_ordered(db: Db, cast: Cast, make: Make, vectors: Vectors):
    turns = [await make.turn(project=cast.alice.project, prompt=f"Prompt {n}", reply="Done.") for n in range(4)]
    best = await make.turn(project=cast.alice.project, prompt="Why the quokka?", reply="Because.")
    for turn, vector in ((best, [1, 0]), *((turn, [0.5, 1]) for turn in turns)):
        vectors.give(turn, vector)

    for ranking, sought in ((PLAIN, None), (MEANT, vectors.near(1, 0))):
        found = await run_search(db, cast.alice, "a prompt about the quokka", ranking=ranking, sought=sought)

        assert (found.hits[0].id, len(found.hits)) == (best.id, 5)
        assert found.hits[0].score > found.hits[1].score
        assert found.terms["quokka"] > 2 * found.terms["prompt"], "how rare a word is, the turns say"


async def test_a_turn_counts_in_full_unless_an_observation_was_made_of_it_or_nobody_answered(
    db: Db, cast: Cast, make: Make, vectors: Vectors
):
    covered, answered = [
        await make.turn(project=cast.alice.project, prompt="Why the quokka?", reply=f"Reply {n}") for n in range(2)
    ]
    asked = await make.turn(project=cast.alice.project, prompt="Why the quokka?")
    other = await make.turn(project=cast.alice.project, prompt="Rename it", reply="Done.")
    observation = await make.observation(project=cast.alice.project, server_session_id=covered.server_session_id)
    summary = await make.observation(project=cast.alice.project, server_session_id=covered.server_session_id, kind="summary")
    async with db.tenant(cast.alice.team_id) as conn:
        for made, turn in ((observation, covered), (summary, answered)):
            await conn.execute("UPDATE observations SET turn_number = %s WHERE id = %s", [turn.number, made.id])
    for turn, vector in ((covered, [1, 0]), (answered, [1, 0]), (asked, [1, 0]), (other, [-1, 0.2])):
        vectors.give(turn, vector)

    for query, ranking, sought in (("quokka", PLAIN, None), ("latency", MEANT, vectors.near(1, 0))):
        found = await run_search(db, cast.alice, query, ranking=ranking, sought=sought, filters=TURNS)

        assert {hit.id: "factor" in hit.parts for hit in found.hits} == {covered.id: True, answered.id: False, asked.id: True}
        assert found.hits[0].id == answered.id
