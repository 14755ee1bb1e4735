"""Pairs of users' words of which the later wins: it stands first, or the earlier points to it, in the index and in search.

By hand, as rules, and said in two sessions; each pair in a project of its own. `pytest -s` prints the figures.
"""

from __future__ import annotations

import re

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.embeddings.model import QueryVector, TurnText, turn_document
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.registry import make as make_embedder
from cmserver.recall.search.later import name_later, put_later_first
from cmserver.recall.search.model import Hit, Ranking
from tests.conftest import Cast, Person, bound_to
from tests.evaluation.labels.load import HALVES, Half, read_labels
from tests.make import Make
from tests.recall.search.conftest import vectors
from tests.recall.search.tools import Vectors, run_search

__all__ = ["vectors"]  # a fixture

SHARE = 0.8
LINE = re.compile(r"^#(\d+) .*", re.MULTILINE)


def comes_first(lines: list[str], earlier: int, later: int) -> bool:
    """Whether the later line stands above the earlier one, stands alone, or is what that points to."""
    places = {int(line[1:].split(" ", maxsplit=1)[0]): place for place, line in enumerate(lines)}
    if earlier not in places:
        return later in places
    return f"(later: #{later})" in lines[places[earlier]] or places.get(later, len(lines)) < places[earlier]


def line_of(hit: Hit) -> str:
    return f"#{hit.source.number} " + "".join(f"(later: #{number})" for number in hit.later)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("way", ["by hand", "said"])
async def test_the_later_word_stands_first_or_is_pointed_to(
    client: AsyncClient, db: Db, cast: Cast, make: Make, vectors: Vectors, way: str, half: Half
):
    embedder = make_embedder(EmbedderSettings(provider="local"))
    pairs = [pair for pair in read_labels("two_rules", half) if pair["kind"] == "later_wins"]
    stored: list[tuple[Person, int, int]] = []
    for place, pair in enumerate(pairs):
        person = await bound_to(db, cast.alice, f"later-{place}")
        numbers: list[int] = []
        for name in ("first", "second"):
            if way == "by hand":
                text = await make.observation(project=person.project, title=pair[name], type="decision", importance=0.9)
                (vector,) = await embedder.embed([pair[name]], "document")
            else:
                text = await make.turn(project=person.project, prompt=pair[name], reply="Noted.", session=f"{place} {name}")
                told = TurnText(turn_id=text.id, prompt=pair[name], reply="Noted.")
                (vector,) = await embedder.embed([turn_document(told)], "document")
            vectors.give(text, vector)
            numbers.append(text.number)
        stored.append((person, numbers[0], numbers[1]))
    while await write_due_sentences(db, embedder, vectors.model_id):
        pass

    in_index: list[bool] = []
    in_search: list[bool] = []
    for pair, (person, earlier, later) in zip(pairs, stored, strict=True):
        answer = await client.get("/v1/context", params={"project": person.project.canonical_id}, headers=person.headers)
        index = answer.json()["context"]
        in_index.append(comes_first([match[0] for match in LINE.finditer(index)], earlier, later))
        (asked,) = await embedder.embed([pair["question"]], "query")
        sought = QueryVector(model_id=vectors.model_id, provider="local", dimensions=256, vector=str(asked))
        page = await run_search(db, person, pair["question"], ranking=Ranking(), sought=sought)
        async with db.tenant(person.team_id) as conn:
            hits = put_later_first(await name_later(conn, person.team_id, page.hits))
        in_search.append(comes_first([line_of(hit) for hit in hits], earlier, later))
    print(f"{half}, {way}: index {sum(in_index)}, search {sum(in_search)} of {len(pairs)}")  # noqa: T201 - shown by pytest -s

    assert sum(in_index) >= SHARE * len(pairs)
    assert sum(in_search) >= SHARE * len(pairs)
