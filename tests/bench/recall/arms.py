"""Ways to rank the same documents: search as it is, with parts of it left out or added, and what it is compared with."""

from __future__ import annotations

from typing import LiteralString

import msgspec


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """`asks` is what a search over HTTP asks beside the query, `sql` a ranking of the table `plain`. One of the two is there."""

    what: str
    asks: dict[str, object] | None = None
    sql: LiteralString | None = None
    needs_meaning: bool = False
    """It cannot be without an embedder."""
    counts_tokens: bool = False
    """Whether the answer is asked for as text, too: with the same hits it is as long in all of them."""
    with_alike: bool = False
    """Whether hits that search only names at another one count as hits."""


OURS = "ours"
UNBOUND = "unbound"
AIMED = ("contextify", "ts_rank_or", "vectors")
"""What search has to beat."""

PLAIN: LiteralString = """
    CREATE TEMP TABLE plain AS
    SELECT o.id, o.project_id, o.created_at, e.embedding,
           to_tsvector('english', concat_ws(' ', o.content, array_to_string(o.concepts, ' '), array_to_string(o.files_read, ' '),
                                            array_to_string(o.files_modified, ' '))) AS words
      FROM observations o
      LEFT JOIN (observation_embeddings e JOIN embedding_models m ON m.id = e.model_id AND m.state = 'current')
        ON e.observation_id = o.id
"""
"""What the plain methods are given: all text of an observation, as PostgreSQL sees it, and the same embedding."""

# 120 candidates (six times the limit), in whose choice the words come first: AND of all words, so mostly none has any. There is no
# minimum.
_CONTEXTIFY: LiteralString = """
    WITH judged AS (
         SELECT id, created_at, 1 - (embedding <=> %(vector)s::halfvec) AS nearness,
                ts_rank(words, plainto_tsquery('english', %(query)s)) AS rank
           FROM plain WHERE project_id = %(project_id)s AND embedding IS NOT NULL
          ORDER BY rank DESC, nearness DESC, created_at DESC LIMIT 120)
    SELECT id FROM judged ORDER BY 0.7 * nearness + 0.3 * rank DESC, created_at DESC LIMIT %(limit)s
"""

_TS_RANK_OR: LiteralString = """
    WITH asked AS (
         SELECT string_agg(quote_literal(lexeme), ' | ')::tsquery AS query FROM unnest(to_tsvector('english', %(query)s)))
    SELECT id FROM plain, asked WHERE project_id = %(project_id)s AND words @@ query
     ORDER BY ts_rank(words, query) DESC, created_at DESC LIMIT %(limit)s
"""

_VECTORS: LiteralString = """
    SELECT id FROM plain WHERE project_id = %(project_id)s AND embedding IS NOT NULL
     ORDER BY embedding <=> %(vector)s::halfvec, created_at DESC LIMIT %(limit)s
"""

# What differs from `unbound` by one thing is compared without a minimum, which was chosen for the whole.
ARMS = {
    OURS: Arm(what="search as it is by default", asks={}, counts_tokens=True),
    UNBOUND: Arm(what="the same without a minimum score, whatever the server is set to", asks={"minScore": 0}),
    "words": Arm(what="words alone, as the server is set", asks={"meaningWeight": 0}),
    "words-unbound": Arm(what="words alone, without a minimum score", asks={"meaningWeight": 0, "minScore": 0}),
    "meaning": Arm(
        what="nearness in meaning alone, without a minimum score", asks={"meaningWeight": 1, "minScore": 0}, needs_meaning=True
    ),
    "no-neighbours": Arm(
        what="`unbound`, and no hit speaks for what was observed just before and after it",
        asks={"minScore": 0, "neighbours": False},
    ),
    "no-recency": Arm(what="`unbound`, and old hits are worth as much as new ones", asks={"minScore": 0, "recency": 0}),
    "fusion": Arm(
        what="`unbound` by words and meaning only: without neighbours and recency",
        asks={"minScore": 0, "neighbours": False, "recency": 0},
    ),
    "duplicates": Arm(what="`unbound`, and what says the same as a hit stands behind it", asks={"minScore": 0}, with_alike=True),
    "prompts": Arm(
        what="`unbound`, with prompts among the hits",
        asks={"minScore": 0, "kinds": ["observation", "summary", "manual", "prompt"]},
    ),
    "contextify": Arm(
        what="0.7 of the cosine and 0.3 of ts_rank, for which all words must be there, as Contextify ranks",
        sql=_CONTEXTIFY,
        needs_meaning=True,
    ),
    "ts_rank_or": Arm(what="plain ts_rank over all text, for which any word is enough", sql=_TS_RANK_OR),
    "vectors": Arm(what="the cosine alone, by the same embedder", sql=_VECTORS, needs_meaning=True),
}
