"""Ways to rank the same documents: search as it is, search without a part of it, and plain methods beside it."""

from __future__ import annotations

from typing import LiteralString

import msgspec


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """`request` has the fields that a search over HTTP sends beside the query, `sql` ranks the table `plain`: one of the two.

    `constants` of `cmserver/recall/search` are changed for it in the server that it asks.
    """

    what: str
    request: dict[str, object] | None = None
    sql: LiteralString | None = None
    needs_vectors: bool = False
    constants: dict[str, float] = {}

    @property
    def needs_own_server(self) -> bool:
        return bool(self.constants)

    @property
    def is_search(self) -> bool:
        """Whether it is search with nothing left out, so that its confidence can be judged."""
        return self.request == {}


SEARCH = "search"
PLAIN_ARMS = ("contextify", "ts_rank_or", "vectors")
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
    WITH query_words AS (
         SELECT string_agg(quote_literal(lexeme), ' | ')::tsquery AS query FROM unnest(to_tsvector('english', %(query)s)))
    SELECT id FROM plain, query_words WHERE project_id = %(project_id)s AND words @@ query
     ORDER BY ts_rank(words, query) DESC, created_at DESC LIMIT %(limit)s
"""

_VECTORS: LiteralString = """
    SELECT id FROM plain WHERE project_id = %(project_id)s AND embedding IS NOT NULL
     ORDER BY embedding <=> %(vector)s::halfvec, created_at DESC LIMIT %(limit)s
"""

ARMS = {
    SEARCH: Arm(what="search as it is by default", request={}),
    "words": Arm(what="search by words alone", request={"meaningWeight": 0}),
    "meaning": Arm(what="search by nearness in meaning alone", request={"meaningWeight": 1}, needs_vectors=True),
    "no-neighbours": Arm(what="search where the neighbours in the session lend nothing", request={"neighbours": False}),
    "contextify": Arm(
        what="0.7 of the cosine and 0.3 of ts_rank, for which all words must be there, as Contextify ranks",
        sql=_CONTEXTIFY,
        needs_vectors=True,
    ),
    "ts_rank_or": Arm(what="plain ts_rank over all text, for which any word is enough", sql=_TS_RANK_OR),
    "vectors": Arm(what="the cosine alone, by the same embedder", sql=_VECTORS, needs_vectors=True),
}
