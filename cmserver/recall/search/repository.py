"""The SQL of search: lexemes, BM25 and vector distance.

Words are looked up through the views `..._in_team`, because @@ cannot use an index under a row policy. A query that also names
the team lets PostgreSQL check the view's condition once instead of per row. Queries by words or scope are not prepared: the planner
needs the values to estimate the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query
from cmserver.recall.search.model import (
    Filters,
    NearObservation,
    QueryVector,
    RankedRow,
    Ranking,
    SessionNeighbours,
    Term,
    WordSample,
)

OWNS: set[str] = set()

SAMPLE = 200
"""How many of the newest documents are sampled for word frequencies."""
MAX_COUNTED = 60_001
_KNOWN_LANGUAGES = ["english", "german", "french", "spanish", "italian", "portuguese", "dutch"]
"""Languages of queries that are told from each other by their stop words."""
_JUDGED_CHARS = 1_000
"""So much of a query is looked at for its language."""
_MIN_STOP_WORDS, _MIN_LEAD = 3, 2
"""A query is in another language than the projects when it has so many stop words of it, and so many more than of theirs."""
MAX_PROMPTS = 1_500
"""So many of the newest prompts that have a word of the query are scored."""

WEIGHTS = (0.46, 0.69, 0.77, 1.0)
"""Weight of a word by field: D concepts and files, C narrative, B subtitle and facts (as 1), A title."""

# In the order of the text, so that the limit keeps the first. Projects may differ in language, and a query from its projects: then
# the stop words of the query's own language are left out, which would be rare words here. It is the language that has the most of
# the query's words as stop words, and clearly more than the projects' own.
LEXEMES = Query(
    str,
    """
    WITH languages AS MATERIALIZED (
        SELECT DISTINCT search_language AS language FROM projects
         WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))
    ), words AS MATERIALIZED (
        SELECT DISTINCT lower(word) AS word FROM regexp_split_to_table(left(%(text)s, %(judged_chars)s), '[^[:alpha:]]+') AS word
         WHERE word <> ''
    ), stop_words AS MATERIALIZED (
        SELECT known.language, array_agg(w.word) AS words, count(*) AS found
          FROM unnest(%(known_languages)s::text[]) AS known (language) JOIN words w
            ON ts_lexize((known.language || '_stem')::regdictionary, w.word) = '{}'
         GROUP BY known.language
    ), left_out AS MATERIALIZED (
        SELECT l.language, unnest(tsvector_to_array(to_tsvector(('pg_catalog.' || l.language)::regconfig,
                                                                array_to_string(s.words, ' ')))) AS lexeme
          FROM languages l
         CROSS JOIN (SELECT * FROM stop_words ORDER BY found DESC, language LIMIT 1) s
         WHERE s.found >= %(min_stop_words)s
           AND s.found >= %(min_lead)s + coalesce((SELECT max(found) FROM stop_words JOIN languages USING (language)), 0)
    )
    SELECT u.lexeme
      FROM languages l
     CROSS JOIN LATERAL unnest(search_words(l.language, %(text)s)) u
     WHERE NOT EXISTS (SELECT FROM left_out o WHERE o.language = l.language AND o.lexeme = u.lexeme)
     GROUP BY u.lexeme ORDER BY min(u.positions[1]), u.lexeme LIMIT %(limit)s
    """,
)

_IN_SCOPE: LiteralString = "(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]) OR o.scope = 'team')"

# A phrase of stop words only has no lexemes and is no condition.
_BOUND: LiteralString = """(%(must)s = ''
        OR numnode(websearch_to_tsquery(('pg_catalog.' || o.search_language)::regconfig, %(must)s)) = 0
        OR o.content_search @@ websearch_to_tsquery(('pg_catalog.' || o.search_language)::regconfig, %(must)s))"""

# For observations and prompts.
_WANTED_OF_ALL: LiteralString = (
    _BOUND
    + """
   AND (%(session_id)s::uuid IS NULL OR o.server_session_id = %(session_id)s::uuid)
   AND (%(agents)s::text[] IS NULL
        OR EXISTS (SELECT FROM server_sessions s
                    WHERE s.id = o.server_session_id AND s.team_id = o.team_id
                      AND lower(s.platform_source) = ANY(%(agents)s::text[])))
   AND (%(since)s::timestamptz IS NULL OR o.created_at >= %(since)s::timestamptz)
   AND (%(until)s::timestamptz IS NULL OR o.created_at < %(until)s::timestamptz)"""
)

# File lists are rarely long, and read only in rows that the index returns.
_WANTED: LiteralString = (
    _WANTED_OF_ALL
    + """
   AND (%(kinds)s::text[] IS NULL OR o.kind = ANY(%(kinds)s::text[]))
   AND (%(types)s::text[] IS NULL OR (o.kind <> 'summary' AND o.type = ANY(%(types)s::text[])))
   AND (%(concepts)s::text[] IS NULL OR EXISTS (SELECT FROM unnest(o.concepts) c WHERE lower(c) = ANY(%(concepts)s::text[])))
   AND (%(files)s::text[] IS NULL
        OR (coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) && %(files)s::text[])
   AND (%(file_prefix)s::text IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) f
                    WHERE starts_with(f, %(file_prefix)s::text)))
   AND (%(file_parts)s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) f,
                               unnest(%(file_parts)s::text[]) part
                    WHERE strpos(f, part) > 0))"""
)

_COUNT_WORDS: LiteralString = """
               (SELECT avg(content_words)::float8 FROM newest) AS words, (SELECT count(*) FROM newest) AS sampled,
               (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'observations'::regclass) AS rows
    )
    SELECT (SELECT count(*) FROM newest WHERE content_search @@ l.quoted::tsquery) AS found_in, s.sampled,
           coalesce(s.words, 1) AS words, s.documents, s.rows
      FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS l (quoted, place) CROSS JOIN scope s
     ORDER BY l.place
"""

# The newest of each project and of the team's shared observations, each from the end of an index; then the newest of those. The ids
# come first: with the words in the same query, the planner sorts a whole project that it believes small.
SAMPLED = Query(
    WordSample,
    """
    WITH newest AS MATERIALIZED (
        SELECT o.content_search, o.content_words
          FROM (SELECT n.id
                  FROM (SELECT p.* FROM unnest(%(project_ids)s::uuid[]) AS one(project_id)
                         CROSS JOIN LATERAL (
                               SELECT o.id, o.created_at FROM observations_in_team o
                                WHERE o.team_id = %(team_id)s AND o.project_id = one.project_id
                                ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s) p
                         UNION ALL
                        (SELECT o.id, o.created_at FROM observations_in_team o
                          WHERE o.team_id = %(team_id)s AND o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[])
                          ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s)) n
                 ORDER BY n.created_at DESC, n.id DESC LIMIT %(sample)s) chosen
          JOIN observations_in_team o ON o.id = chosen.id AND o.team_id = %(team_id)s
    ), scope AS MATERIALIZED (
        SELECT (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                       WHERE o.team_id = %(team_id)s AND o.project_id = ANY(%(project_ids)s::uuid[])
                                       LIMIT %(max_count)s) p)
             + (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                       WHERE o.team_id = %(team_id)s AND o.scope = 'team'
                                         AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) LIMIT %(max_count)s) s) AS documents,
    """
    + _COUNT_WORDS,
    prepare=False,
)

# The same for a whole team; the last number it gave out is its size.
SAMPLED_TEAM = Query(
    WordSample,
    """
    WITH newest AS MATERIALIZED (
        SELECT o.content_search, o.content_words FROM observations_in_team o
         WHERE o.team_id = %(team_id)s ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s
    ), scope AS MATERIALIZED (
        SELECT coalesce((SELECT last_number FROM observation_counters WHERE team_id = %(team_id)s), 0) AS documents,
    """
    + _COUNT_WORDS,
    prepare=False,
)

# The frequency of a word in a document, without unpacking the tsvector, which takes ten times as long: ts_rank() of one word with
# equal weights is the sum of 1/j² for j up to the count, divided by pi²/6. TIMES inverts it exactly for every possible count
# (tests/recall/search/test_lexical.py). Dividing the rank with WEIGHTS by the flat one gives the weight of the word's fields.
_RANKS: LiteralString = (
    "(SELECT ts_rank('{1,1,1,1}', o.content_search, t.word)::float8 AS flat,"
    " ts_rank(%(weights)s::real[], o.content_search, t.word)::float8 AS high OFFSET 0)"
)
TIMES: LiteralString = "round(1 / (1.6449340668482264 * (1 - r.flat)) - 0.5)"
_STANDING: LiteralString = "r.high / r.flat / 0.77"

# BM25. A word without `known` document count is counted in its hits, including those the filters exclude. With `whole` the scope is
# scanned instead of the word index, whose cost the planner underestimates for common words. Observations that other projects
# share are a separate branch: one condition for both would read the rows of all projects.
RANK = Query(
    RankedRow,
    f"""
    WITH terms AS MATERIALIZED (
        SELECT place, quoted::tsquery AS word, known
          FROM unnest(%(quoted)s::text[], %(known)s::float8[]) WITH ORDINALITY AS t (quoted, known, place)
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.wanted, t.place, {_STANDING} AS standing, {TIMES} AS tf,
               %(k1)s * (1 - %(b)s + %(b)s * o.content_words / %(words)s) AS damping
          FROM (SELECT o.id, o.created_at, o.content_words, o.content_search, {_WANTED} AS wanted
                  FROM observations_in_team o
                 WHERE (%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]))
                   AND (%(whole)s OR o.content_search @@ %(any)s::tsquery)
                   AND (NOT %(whole)s OR (o.content_search @@ %(any)s::tsquery) IS TRUE)
                 UNION ALL
                SELECT o.id, o.created_at, o.content_words, o.content_search, {_WANTED}
                  FROM observations_in_team o
                 WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[])
                   AND (o.content_search @@ %(any)s::tsquery) IS TRUE
                OFFSET 0) o
          JOIN terms t ON o.content_search @@ t.word
         CROSS JOIN LATERAL {_RANKS} r
    ), counted AS MATERIALIZED (
        SELECT t.place, coalesce(t.known, count(p.id)) AS documents
          FROM terms t LEFT JOIN parts p ON p.place = t.place GROUP BY t.place, t.known
    ), idfs AS MATERIALIZED (
        SELECT place, documents, ln(1 + greatest(%(documents)s - documents + 0.5, 0.5) / (documents + 0.5)) AS idf FROM counted
    )
    SELECT r.id, coalesce(r.score, 0) AS score, %(documents)s::float8 AS documents,
           (SELECT array_agg(documents::float8 ORDER BY place) FROM idfs) AS found_in
      FROM (SELECT) AS always
      LEFT JOIN (SELECT p.id,
                        round(sum(i.idf * p.standing * p.tf * (%(k1)s + 1) / (p.tf + p.damping))::numeric, 9)::float8 AS score,
                        p.created_at
                   FROM parts p JOIN idfs i ON i.place = p.place
                  WHERE p.wanted
                  GROUP BY p.id, p.created_at
                  ORDER BY score DESC, p.created_at DESC, p.id DESC
                  LIMIT %(limit)s) r ON true
     ORDER BY r.score DESC, r.created_at DESC, r.id DESC
    """,
    prepare=False,
)

# BM25 of given documents, with the same weights.
RANK_THESE = Query(
    RankedRow,
    f"""
    SELECT o.id, round(sum(t.idf * {_STANDING} * {TIMES} * (%(k1)s + 1)
                           / ({TIMES} + %(k1)s * (1 - %(b)s + %(b)s * o.content_words / %(words)s)))::numeric, 9)::float8 AS score,
           0::float8 AS documents, '{{}}'::float8[] AS found_in
      FROM observations_in_team o
      JOIN (SELECT place, quoted::tsquery AS word, idf
              FROM unnest(%(quoted)s::text[], %(idfs)s::float8[]) WITH ORDINALITY AS u (quoted, idf, place)) t
        ON o.content_search @@ t.word
     CROSS JOIN LATERAL {_RANKS} r
     WHERE o.id = ANY(%(ids)s)
     GROUP BY o.id
    """,
)

# The newest prompts that contain any of the words; their texts are not counted by word.
PROMPTS = Query(
    RankedRow,
    f"""
    WITH scope AS MATERIALIZED (
        SELECT (SELECT count(*) FROM (SELECT FROM session_prompts_in_team
                                       WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
                                       LIMIT %(max_count)s) c)::float8 AS documents,
               (SELECT coalesce(greatest(avg(length(n.text_search)), 1), 1)
                  FROM (SELECT text_search FROM session_prompts_in_team
                         WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
                         LIMIT %(sample)s) n)::float8 AS words
    ), terms AS MATERIALIZED (
        SELECT place, quoted::tsquery AS word FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS t (quoted, place)
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.wanted, t.place, {TIMES} AS tf,
               %(k1)s * (1 - %(b)s + %(b)s * length(o.content_search) / s.words) AS damping
          FROM (SELECT o.id, o.created_at, o.content_search, {_WANTED_OF_ALL} AS wanted
                  FROM (SELECT p.*, p.text_search AS content_search FROM session_prompts_in_team p
                         WHERE p.text_search @@ %(any)s::tsquery
                           AND (%(project_ids)s::uuid[] IS NULL OR p.project_id = ANY(%(project_ids)s::uuid[]))
                         ORDER BY p.created_at DESC LIMIT %(max_prompts)s) o
                OFFSET 0) o
          JOIN terms t ON o.content_search @@ t.word
         CROSS JOIN LATERAL (SELECT ts_rank('{{1,1,1,1}}', o.content_search, t.word)::float8 AS flat OFFSET 0) r
         CROSS JOIN scope s
    ), idfs AS MATERIALIZED (
        SELECT t.place, count(p.id) AS documents,
               ln(1 + greatest(s.documents - count(p.id) + 0.5, 0.5) / (count(p.id) + 0.5)) AS idf
          FROM terms t CROSS JOIN scope s LEFT JOIN parts p ON p.place = t.place GROUP BY t.place, s.documents
    )
    SELECT r.id, coalesce(r.score, 0) AS score, (SELECT documents FROM scope) AS documents,
           (SELECT array_agg(documents::float8 ORDER BY place) FROM idfs) AS found_in
      FROM (SELECT) AS always
      LEFT JOIN (SELECT p.id, round(sum(i.idf * p.tf * (%(k1)s + 1) / (p.tf + p.damping))::numeric, 9)::float8 AS score,
                        p.created_at
                   FROM parts p JOIN idfs i ON i.place = p.place
                  WHERE p.wanted
                  GROUP BY p.id, p.created_at
                  ORDER BY score DESC, p.created_at DESC, p.id DESC
                  LIMIT %(limit)s) r ON true
     ORDER BY r.score DESC, r.created_at DESC, r.id DESC
    """,
    prepare=False,
)

_OWN_VECTORS: LiteralString = """observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))"""
_AND_SHARED: LiteralString = """UNION ALL
            SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND e.embedding IS NOT NULL) near
     ORDER BY distance, id DESC LIMIT %(limit)s"""

# Exact: computes the distance of every vector in the scope. The distance is a value, not an ORDER BY of the operator, so that
# no index is used.
NEAREST = Query(
    NearObservation,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM {_OWN_VECTORS}
             {_AND_SHARED}
    """,
    prepare=False,
)

NEAREST_WANTED = Query(
    NearObservation,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE e.embedding IS NOT NULL AND {_IN_SCOPE} AND {_WANTED}) near
     ORDER BY distance, id DESC LIMIT %(limit)s
    """,
    prepare=False,
)

# By the index of the team's vectors (observations/embedding/indexes.py), nearest first up to the limit. PostgreSQL uses it only
# for the index's own expression: the vectors' dimensions, its team and its model. Shared observations are compared exactly.
NEAREST_BY_INDEX = Query(
    NearObservation,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM ((SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
               FROM {_OWN_VECTORS}
              ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s)
             {_AND_SHARED}
    """,
    prepare=False,
)

# The filters are checked row by row during the index scan: a scalar subquery is never turned into a join.
NEAREST_WANTED_BY_INDEX = Query(
    NearObservation,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (SELECT {_IN_SCOPE} AND {_WANTED} FROM observations_in_team o WHERE o.id = e.observation_id)
             ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s) near
     ORDER BY distance, id DESC
    """,
    prepare=False,
)

# Until the end of the transaction. The index scan continues through further lists until enough rows pass the filters. `sorts` = off
# makes the planner choose the index, whose cost it cannot estimate.
BY_INDEX = Query(
    str,
    """
    SELECT set_config('ivfflat.iterative_scan', 'relaxed_order', true) || set_config('ivfflat.probes', %(probes)s, true)
        || set_config('enable_sort', %(sorts)s, true)
    """,
)

NEARNESS = Query(
    NearObservation,
    """
    SELECT observation_id AS id, 1 - (embedding <=> %(vector)s::halfvec) AS cosine
      FROM observation_embeddings
     WHERE observation_id = ANY(%(ids)s) AND model_id = %(model_id)s AND team_id = %(team_id)s AND embedding IS NOT NULL
    """,
)

# The mean cosine in the scope, which a hit has to exceed. Two documents of cosine 0 are added: otherwise a single document could
# never exceed its own.
BACKGROUND = Query(
    float,
    f"""
    SELECT coalesce(sum(1 - (n.embedding <=> %(vector)s::halfvec)), 0)::float8 / (count(*) + 2)
      FROM (SELECT e.embedding FROM {_OWN_VECTORS}
             LIMIT %(sample)s) n
    """,
    prepare=False,
)

# The observations just before and just after in the same session.
BRIEFS = Query(
    SessionNeighbours,
    """
    SELECT o.id, o.kind, o.created_at,
           (SELECT b.id FROM observations b
             WHERE b.project_id = o.project_id AND b.server_session_id = o.server_session_id AND b.team_id = o.team_id
               AND (b.created_at, b.id) < (o.created_at, o.id)
             ORDER BY b.created_at DESC, b.id DESC LIMIT 1) AS before,
           (SELECT a.id FROM observations a
             WHERE a.project_id = o.project_id AND a.server_session_id = o.server_session_id AND a.team_id = o.team_id
               AND (a.created_at, a.id) > (o.created_at, o.id)
             ORDER BY a.created_at, a.id LIMIT 1) AS after
      FROM observations o WHERE o.id = ANY(%(ids)s) AND o.team_id = %(team_id)s
    """,
)


async def lexemes(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, text: str, limit: int) -> list[str]:
    """The first `limit` different lexemes of the text, as the search index has them: words stemmed, names whole and in parts."""
    return await LEXEMES.all(
        conn,
        known_languages=_KNOWN_LANGUAGES,
        judged_chars=_JUDGED_CHARS,
        min_stop_words=_MIN_STOP_WORDS,
        min_lead=_MIN_LEAD,
        team_id=team_id,
        project_ids=_listed(project_ids),
        text=text,
        limit=limit,
    )


async def sampled(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, lexemes: Sequence[str]) -> list[WordSample]:
    """How common each of the lexemes is among the newest documents, in their order."""
    words = {"quoted": [quote_lexeme(lexeme) for lexeme in lexemes], "sample": SAMPLE}
    if project_ids is None:
        return await SAMPLED_TEAM.all(conn, team_id=team_id, **words)
    return await SAMPLED.all(conn, team_id=team_id, project_ids=_listed(project_ids), max_count=MAX_COUNTED, **words)


async def rank(
    conn: Conn,
    project_ids: Sequence[UUID] | None,
    terms: Sequence[Term],
    any_of: str,
    filters: Filters,
    ranking: Ranking,
    *,
    documents: int,
    words: float,
    whole: bool,
    limit: int,
) -> list[RankedRow]:
    """Documents that match the tsquery `any_of` and the filters, ranked by all the terms. `whole` scans the scope without an index.

    There is always a first row, without an id when nothing matches: `found_in` is the same in all.
    """
    return await RANK.all(
        conn,
        project_ids=_listed(project_ids),
        any=any_of,
        quoted=[quote_lexeme(term.lexeme) for term in terms],
        known=[term.documents for term in terms],
        weights=list(WEIGHTS),
        k1=ranking.k1,
        b=ranking.b,
        documents=documents,
        words=words,
        whole=whole,
        limit=limit,
        **msgspec.structs.asdict(filters),
    )


async def rank_these(
    conn: Conn, ids: Sequence[UUID], lexemes: Sequence[str], idfs: Sequence[float], ranking: Ranking, words: float
) -> list[RankedRow]:
    """BM25 of these observations of the team; those without any of the words are left out."""
    return await RANK_THESE.all(
        conn,
        ids=list(ids),
        quoted=[quote_lexeme(lexeme) for lexeme in lexemes],
        idfs=list(idfs),
        weights=list(WEIGHTS),
        k1=ranking.k1,
        b=ranking.b,
        words=words,
    )


async def prompts(
    conn: Conn,
    project_ids: Sequence[UUID] | None,
    lexemes: Sequence[str],
    filters: Filters,
    ranking: Ranking,
    limit: int,
) -> list[RankedRow]:
    """The matching prompts, by the ids of session_prompts. As in `rank`, there is always a first row."""
    words = [quote_lexeme(lexeme) for lexeme in lexemes]
    return await PROMPTS.all(
        conn,
        project_ids=_listed(project_ids),
        any=" | ".join(words),
        quoted=words,
        k1=ranking.k1,
        b=ranking.b,
        sample=SAMPLE,
        max_count=MAX_COUNTED,
        max_prompts=MAX_PROMPTS,
        limit=limit,
        **msgspec.structs.asdict(filters),
    )


async def nearest(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, vector: QueryVector, filters: Filters, limit: int
) -> list[NearObservation]:
    """The observations of the scope nearest to the vector that pass the filters, exactly."""
    scope = _nearest_scope(team_id, project_ids, vector, limit)
    if filters.are_any:
        return await NEAREST_WANTED.all(conn, **scope, **msgspec.structs.asdict(filters))
    return await NEAREST.all(conn, **scope)


async def nearest_by_index(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, vector: QueryVector, filters: Filters, probes: int, limit: int
) -> list[NearObservation]:
    """The observations nearest to the vector that pass the filters, approximately: by at least `probes` lists of the team's index.

    The index must exist.
    """
    scope = _nearest_scope(team_id, project_ids, vector, limit) | {"dimensions": vector.dimensions}
    await BY_INDEX.run(conn, probes=str(probes), sorts="off")
    if filters.are_any:
        nearest = await NEAREST_WANTED_BY_INDEX.all(conn, **scope, **msgspec.structs.asdict(filters))
    else:
        nearest = await NEAREST_BY_INDEX.all(conn, **scope)
    await BY_INDEX.run(conn, probes=str(probes), sorts="on")
    return nearest


def _nearest_scope(team_id: UUID, project_ids: Sequence[UUID] | None, vector: QueryVector, limit: int) -> dict[str, object]:
    scope: dict[str, object] = {"team_id": team_id, "project_ids": _listed(project_ids), "limit": limit}
    return scope | {"model_id": vector.model_id, "vector": vector.vector}


async def nearness(conn: Conn, team_id: UUID, ids: Sequence[UUID], vector: QueryVector) -> list[NearObservation]:
    """The cosines of these; those not embedded yet are left out."""
    return await NEARNESS.all(conn, team_id=team_id, ids=list(ids), model_id=vector.model_id, vector=vector.vector)


async def background(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, vector: QueryVector) -> float:
    """The mean cosine between the query and a sample of the scope."""
    return await BACKGROUND.one(
        conn,
        team_id=team_id,
        project_ids=_listed(project_ids),
        model_id=vector.model_id,
        vector=vector.vector,
        sample=SAMPLE,
    )


async def briefs(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[SessionNeighbours]:
    """The kind, time and session neighbours of these."""
    return await BRIEFS.all(conn, team_id=team_id, ids=list(ids))


def quote_lexeme(lexeme: str) -> str:
    """A lexeme as a tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _listed(project_ids: Sequence[UUID] | None) -> list[UUID] | None:
    return None if project_ids is None else list(project_ids)
