"""Many searches at once find what each finds by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cmserver.access.model import Project
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.recall.search import repository, search
from cmserver.recall.search.model import Hit, Ranking, SearchRequest
from cmserver.recall.search.search import find_first_hits, find_page
from cmserver.sessions.model import NewSession
from cmserver.sessions.write import find_or_make
from tests.conftest import Cast, Person
from tests.make import Make

_VERBS = ["moved", "fixed", "dropped", "raised", "renamed", "cached", "retried", "measured"]
_THINGS = ["retry", "queue", "ledger", "cache", "pooler", "migration", "schema", "worker", "index", "token", "budget", "receipt"]
_PLACES = ["orders", "billing", "staging", "Überweisung", "8443", "8080", "psycopg-3", "worker.py", "東京の倉庫", "nightly"]
QUERIES = [
    "which port does staging use",
    "why was the retry of the orders client raised",
    "what did we do to the cache last week",
    "Wie läuft die Überweisung im Ledger",
    "the of and",
    "nothing here knows wibblewobble",
    "東京の倉庫 token",
    "billing's `worker.py`: budget & receipt? it's 100% 'quoted'",
    'exactly "retry queue" here',
    "cache -orders",
    "psycopg-3",
    "",
    "retry queue ledger cache pooler migration schema worker index token budget receipt orders billing staging",
]


async def test_they_find_the_same_hits_in_the_same_order(db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(51)
    queries = [*QUERIES, *(_sentence(chance) for _ in range(40))]
    await _fill(db, cast.alice, make, chance)

    for small, most, at_once in ((2_000, 1_500, 250), (30, 60, 7), (30, 5, 250)):
        monkeypatch.setattr(repository, "SMALL_SCOPE", small)
        monkeypatch.setattr("cmserver.recall.search.word_index.SMALL_SCOPE", small)
        monkeypatch.setattr("cmserver.recall.search.lexical._MAX_ROWS", most)
        monkeypatch.setattr("cmserver.recall.search.lexical._MIN_TOGETHER", 4)
        monkeypatch.setattr(search, "_SEARCHED_AT_ONCE", at_once)
        asked = [(query, chance.randint(1, search.MAX_FIRST_HITS)) for query in queries]
        for ranking in (Ranking(), Ranking(neighbours=False)):
            one_by_one, at_once_found = await _search_both(db, cast.alice, asked, ranking)
            assert sum(map(len, one_by_one)) > 300
            for (query, limit), alone, together in zip(asked, one_by_one, at_once_found, strict=True):
                assert _shape(together) == _shape(alone), (query, limit, small)


async def test_they_find_turns_where_nothing_else_is(db: Db, cast: Cast, make: Make):
    for place in range(12):
        await make.turn(
            project=cast.alice.project,
            prompt=f"Why is staging slow {place}?",
            reply="The port 8443 is shut." if place % 2 else None,
        )

    alone, together = await _search_both(db, cast.alice, [("staging port 8443", 5), ("slow 7", 3)], Ranking())

    assert [len(hits) for hits in together] == [5, 3]
    assert [*map(_shape, together)] == [*map(_shape, alone)]


async def _search_both(
    db: Db, person: Person, asked: Sequence[tuple[str, int]], ranking: Ranking
) -> tuple[list[list[Hit]], list[list[Hit]]]:
    async with db.tenant(person.team_id) as conn:
        alone = [
            (
                await find_page(
                    conn, person.principal, SearchRequest(query=query, project_ids=[person.project.id], limit=limit), ranking
                )
            ).hits
            for query, limit in asked
        ]
        return alone, await find_first_hits(conn, person.principal, person.project.id, asked, ranking)


def _shape(hits: Sequence[Hit]) -> list[object]:
    return [(hit.source.number, pytest.approx(hit.score, abs=1e-9), list(hit.alike)) for hit in hits]


def _sentence(chance: random.Random, count: int = 1) -> str:
    return " ".join(
        f"{chance.choice(_VERBS)} the {chance.choice(_THINGS)} of {chance.choice(_PLACES)} {chance.choice(_THINGS)}"
        for _ in range(count)
    )


async def _fill(db: Db, person: Person, make: Make, chance: random.Random) -> None:
    """Observations with neighbours, summaries, some that are shared, some that say the same; turns with and without a reply."""
    async with db.tenant(person.team_id) as conn:
        sessions = [
            (await find_or_make(conn, person.team_id, person.project.id, NewSession(external_session_id=f"s{n}")))[0].id
            for n in range(6)
        ]
    other = await _other_project(db, person)
    for place in range(90):
        await make.observation(
            project=other if place % 11 == 0 else person.project,
            scope="team" if place % 22 == 0 else "project",
            title=_sentence(chance),
            narrative=_sentence(chance, chance.randint(1, 5)) if place % 7 else "Moved the cache of billing queue.",
            facts=[_sentence(chance)],
            concepts=[chance.choice(_THINGS)],
            kind="summary" if place % 13 == 0 else "observation",
            server_session_id=None if place % 11 == 0 or place % 5 == 0 else chance.choice(sessions),
        )
    for place in range(60):
        prompt, reply = _sentence(chance, 2), _sentence(chance, 3) if place % 3 else None
        await make.turn(project=person.project, prompt=prompt, reply=reply, session=f"s{place % 6}")


async def _other_project(db: Db, person: Person) -> Project:
    async with db.tenant(person.team_id) as conn:
        return (await make_project(conn, person.principal, "github.com/acme/shared"))[0]
