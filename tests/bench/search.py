"""How long search takes in projects of several sizes, and what the approximate index of vectors misses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import combinations, cycle
from statistics import median
from uuid import UUID

import httpx
import msgspec
import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.db import Db
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import QueryVector
from cmserver.models.providers.embedding.local import LocalEmbedder
from cmserver.recall.search import repository
from cmserver.recall.search.model import Filters, NearText, SearchRequest
from cmserver.recall.search.search import MAX_FILTERED, count_probes
from tests.bench.library import DIMENSIONS, Library, library, vector_text
from tests.bench.measure import Aim, Figure, percentile, shown, spread
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role

HOW = (
    "`cmserver run --role api` on databases of 10,000, 50,000 and 1,000,000 observations (tests/bench/library.py), with another "
    "team that has a tenth as many; without `--million` or `--write` on that of 50,000 only. A search over HTTP for 20 hits in "
    "lines, one after the other over one connection, each with another query: four to eight words of one of the documents that are "
    "searched, and in every fourth query a word that is nowhere. `words` goes by words alone, `words and meaning` as by default, "
    "the local embedder included. The figure is the median of a round's medians; p50 and p99 of all stand in the notes. Yardstick: "
    "the ranking of Contextify in SQL over the same rows, 0.7 of the cosine and 0.3 of ts_rank, both computed for each row; "
    "beyond 50,000 the same search in a project of 100. The recall of the approximate index is the share of the 20 nearest "
    "vectors that are among the first 20 it finds, of 100 queries; yardstick is the exact scan. It is used in a team that has more "
    "than 20,000, and in projects and with filters in what has more than 60,000; for a smaller scope the figure says what would "
    "be if it were used there, too. The commonest words are two of the eight that most documents have, in turn with the usual "
    "questions. A team that has nothing is a fresh database, whose server has just become ready."
)
_AIMS = {100: 12.0, 10_000: 12.0, 50_000: 30.0, 100_000: 30.0, 1_000_000: 60.0}
"""Milliseconds, by the size of what is searched."""
_RECALL_MIN = 95.0
_TOP = 20
_DEPTH = 100
"""How many each arm of a search is asked for."""
_YARDSTICK_MOST = 50_000
_FILTERS = {
    "": Filters(),
    ", a tenth of it": Filters(concepts=[f"area{number}" for number in range(10)]),
    ", a hundredth of it": Filters(concepts=["area7"]),
}
_ALL = "all"

_CONTEXTIFY = """
    SELECT id FROM (
        SELECT o.id, o.created_at, 1 - (e.embedding <=> %(vector)s::halfvec) AS nearness,
               ts_rank(to_tsvector('english', o.title || ' ' || o.content), plainto_tsquery('english', %(query)s)) AS words
          FROM observations o LEFT JOIN observation_embeddings e ON e.observation_id = o.id
         WHERE o.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR o.project_id = %(project_id)s::uuid)
         ORDER BY words DESC, nearness DESC, o.created_at DESC LIMIT 120) judged
     ORDER BY 0.7 * nearness + 0.3 * words DESC, created_at DESC LIMIT 20
"""
_COMMONEST = """
    SELECT word FROM ts_stat('SELECT content_search FROM observations LIMIT 3000') WHERE word ~ '^[a-z]{3,}$'
     ORDER BY ndoc DESC, word LIMIT 8
"""
# Words of one document each, from all over the scope.
_TEXTS = """
    SELECT title || ' ' || narrative FROM observations
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND number %% (SELECT greatest(count(*) / 1000, 1) FROM observations
                       WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)) = 0
     ORDER BY md5(id::text)
"""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, and where it stands among meanings."""

    text: str
    vector: str | None


def run(world: World, scale: Scale) -> list[Figure]:
    """Each round asks in all scopes, in turn; after that the index is asked directly."""
    figures: list[Figure] = []
    for documents in scale.libraries:
        here = library(world, documents)
        figures += timed(world, here, scale)
        figures.append(common_words(world, here, scale))
        if here.model_id is not None:
            figures += recall(here, here.model_id, scale)
        world.embedded.drop_database(str(conninfo_to_dict(here.place.url)["dbname"]))
    return [*figures, first_of_all(world, scale)]


# -- how long


def timed(world: World, here: Library, scale: Scale) -> list[Figure]:
    ways = {"words": 0.0, "words and meaning": None} if here.model_id is not None else {"words": 0.0}
    scopes = _scopes(here, lambda size: size in _AIMS)
    queries = {scope: cycle(questions(here, project_id)) for scope, project_id in scopes.items()}
    taken: dict[tuple[str, str], list[list[float]]] = {(scope, way): [] for scope in scopes for way in ways}
    beside: dict[str, list[float]] = {scope: [] for scope in scopes}
    headers = {"Authorization": f"Bearer {here.place.key}"}
    with (
        role(world, here.place, "api") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client,
        psycopg.connect(here.place.superuser_url, autocommit=True, prepare_threshold=None) as conn,
    ):

        def search(scope: str, weight: float | None) -> None:
            asked = {"query": next(queries[scope]).text, "format": "index", "limit": 20}
            asked |= {} if scopes[scope] is None else {"projectId": str(scopes[scope])}
            asked |= {} if weight is None else {"meaningWeight": weight}
            client.post("/v1/search", json=asked).raise_for_status()

        for scope, project_id in scopes.items():
            for weight in ways.values():
                _milliseconds(lambda s=scope, w=weight: search(s, w), 10)  # what it needs is in memory now
            for _ in range(scale.rounds):
                for way, weight in ways.items():
                    taken[scope, way].append(_milliseconds(lambda s=scope, w=weight: search(s, w), scale.asked))
                if _size(here, scope) <= _YARDSTICK_MOST:
                    few = max(1, min(scale.asked, 20_000 // _size(here, scope)))
                    yardstick = _milliseconds(lambda p=project_id, s=scope: _contextify(conn, here, p, next(queries[s])), few)
                    beside[scope].append(median(yardstick))
    first = next(iter(scopes))
    return [
        _figure(here, scope, way, rounds, beside[scope] or [percentile(one, 50) for one in taken[first, way]])
        for (scope, way), rounds in taken.items()
    ]


def _figure(here: Library, scope: str, way: str, rounds: list[list[float]], beside: Sequence[float]) -> Figure:
    size = _size(here, scope)
    return Figure(
        name=f"POST /v1/search by {way}, {scope} of {here.documents:,}",
        unit="ms",
        yardstick="Contextify's ranking of the same" if size <= _YARDSTICK_MOST else "the same in a project of 100",
        pairs=[(percentile(one, 50), other) for one, other in zip(rounds, beside, strict=True)],
        aim=Aim(of="median", at_least=False, bound=min(bound for most, bound in _AIMS.items() if size <= most)),
        note=spread([each for one in rounds for each in one]),
    )


def _scopes(here: Library, takes: Callable[[int], bool]) -> dict[str, UUID | None]:
    return {f"{size:,}": project_id for size, project_id in here.projects.items() if takes(size)} | {_ALL: None}


def _size(here: Library, scope: str) -> int:
    return here.documents if scope == _ALL else int(scope.replace(",", ""))


def questions(here: Library, project_id: UUID | None) -> list[Query]:
    """Of as many documents as there are, up to some thousand: the same every time."""
    rng = np.random.default_rng(3)
    asked: list[str] = []
    with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
        for (text,) in conn.execute(_TEXTS, {"team_id": here.place.team_id, "project_id": project_id}):
            words = sorted(set(text.split()))
            said = [words[int(place)] for place in rng.permutation(len(words))[: int(rng.integers(4, 9))]]
            asked.append(" ".join([*said[1:], "zyzzyva"] if len(asked) % 4 == 0 else said))
    if here.model_id is None:
        return [Query(text=text, vector=None) for text in asked]
    vectors = asyncio.run(LocalEmbedder(DIMENSIONS).embed(asked, "query"))
    return [Query(text=text, vector=vector_text(vector)) for text, vector in zip(asked, vectors, strict=True)]


def _contextify(conn: psycopg.Connection, here: Library, project_id: UUID | None, query: Query) -> None:
    params = {"team_id": here.place.team_id, "project_id": project_id, "query": query.text, "vector": query.vector}
    conn.execute(_CONTEXTIFY, params).fetchall()


def _milliseconds(ask: Callable[[], object], times: int) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def common_words(world: World, here: Library, scale: Scale) -> Figure:
    """Question by question in turn with the usual ones."""
    with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
        common = [str(row[0]) for row in conn.execute(_COMMONEST)]
    hard = cycle(f"{one} {other}" for one, other in combinations(common, 2))
    usual = cycle(query.text for query in questions(here, None))
    with _asking(world, here.place) as ask:
        _ = [ask(next(texts)) for texts in (hard, usual) for _ in range(10)]
        rounds = [[(ask(next(hard)), ask(next(usual))) for _ in range(scale.asked)] for _ in range(scale.rounds)]
    return Figure(
        name=f"POST /v1/search, two of the commonest words, all of {here.documents:,}",
        unit="ms",
        yardstick="the usual question",
        pairs=[(median(common for common, _ in one), median(usual for _, usual in one)) for one in rounds],
        aim=Aim(of="ratio", at_least=False, bound=1.3),
        note=spread([common for one in rounds for common, _ in one]),
    )


def first_of_all(world: World, scale: Scale) -> Figure:
    """Each round in a database of its own."""
    pairs: list[tuple[float, float]] = []
    for _ in range(scale.rounds):
        with _asking(world, world.place()) as ask:
            pairs.append((ask("how is the pause between two attempts chosen"), ask("which port does the gateway listen on")))
    return Figure(
        name="POST /v1/search, the first one of a team that has nothing",
        unit="ms",
        yardstick="its second one",
        pairs=pairs,
        aim=Aim(of="median", at_least=False, bound=1000),
    )


@contextmanager
def _asking(world: World, place: Place) -> Generator[Callable[[str], float]]:
    """A function that searches all of the team, and returns the milliseconds."""
    headers = {"Authorization": f"Bearer {place.key}"}
    with (
        role(world, place, "api") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client,
    ):
        asked = {"format": "index", "limit": 20}
        yield lambda text: _milliseconds(lambda: client.post("/v1/search", json={"query": text, **asked}).raise_for_status(), 1)[0]


# -- what the index misses


def recall(here: Library, model_id: int, scale: Scale) -> list[Figure]:
    """Of each scope, with filters and without."""
    scopes = _scopes(here, lambda size: size >= _YARDSTICK_MOST)
    figures: list[Figure] = []
    for scope, project_id in scopes.items():
        queries = questions(here, project_id)[: scale.rounds * scale.asked // 2]
        for named, wanted in _FILTERS.items():
            if wanted.are_any and (project_id is not None or here.documents <= MAX_FILTERED):
                continue  # compared one by one, see search.py
            compared = asyncio.run(_compared(here, model_id, project_id, queries, wanted))
            figures.append(_recalled(f"{scope} of {here.documents:,}{named}", compared, scale.rounds))
    return figures


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One query by both ways: what they took, and the share of the nearest that the index has found; None where it gave up."""

    share: float | None
    by_index_ms: float
    exact_ms: float


def _recalled(what: str, compared: Sequence[Compared], rounds: int) -> Figure:
    """Where the index gives up, search compares all."""
    shares = [1.0 if one.share is None else one.share for one in compared]
    per = len(shares) // rounds
    means = [100 * sum(shares[at * per : (at + 1) * per]) / per for at in range(rounds)]
    gave_up = sum(one.share is None for one in compared)
    by_index, exact = median(one.by_index_ms for one in compared), median(one.exact_ms for one in compared)
    return Figure(
        name=f"recall@20 of the approximate index, {what}",
        unit="%",
        yardstick="the exact scan",
        pairs=[(mean, 100.0) for mean in means],
        aim=Aim(of="median", at_least=True, bound=_RECALL_MIN),
        note=f"p50 {shown(by_index)} ms, exactly {shown(exact)} ms; {gave_up} of {len(compared)} go on to the exact scan",
    )


async def _compared(
    here: Library, model_id: int, project_id: UUID | None, queries: Sequence[Query], wanted: Filters
) -> list[Compared]:
    scope = None if project_id is None else [project_id]
    done: list[Compared] = []
    async with Db(here.place.url) as db:
        for query in queries:
            sought = QueryVector(model_id=model_id, provider="local", dimensions=DIMENSIONS, vector=query.vector or "")
            async with db.tenant(here.place.team_id) as conn:
                began = time.perf_counter()
                lists = await embeddings.lists(conn, here.place.team_id, model_id) or 0
                request = SearchRequest(query="", project_ids=scope, filters=wanted)
                near = await repository.nearest(conn, here.place.team_id, request, sought, _DEPTH, probes=count_probes(lists))
                between = time.perf_counter()
                exact = await repository.nearest(conn, here.place.team_id, request, sought, _DEPTH)
                end = time.perf_counter()
            share = _share(near, exact) if len(near) == _DEPTH else None
            done.append(Compared(share=share, by_index_ms=(between - began) * 1000, exact_ms=(end - between) * 1000))
    return done


def _share(near: Sequence[NearText], exact: Sequence[NearText]) -> float:
    """What is as near as the twentieth is as good as it."""
    best = exact[:_TOP]
    return sum(one.cosine >= best[-1].cosine - 1e-6 for one in near[:_TOP]) / len(best) if best else 1.0
