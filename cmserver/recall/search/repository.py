"""The SQL of search: its words, what shares them, and what is near in meaning.

Words are looked up through the views `..._in_team`, because @@ can use no index under a policy. Where a query names the team
besides, the view's own condition is looked at once, and not for each row, which took longer than all the rest. What looks for words
or for a scope is not prepared: only the real ones tell the planner how many rows they find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query
from cmserver.recall.search.model import Brief, Filters, Near, Ranked, Sampled, Sought, Term

OWNS: set[str] = set()

SAMPLE = 200
"""So many of the newest documents say how common a word is."""
COUNTED_MOST = 60_001

WEIGHTS = (0.46, 0.69, 0.77, 1.0)
"""How much a word says by where it stands: D concepts and files, C narrative, B subtitle and facts (which count 1), A title."""

# In the order in which the text has them, so that a limit keeps the first. Several projects may have several languages.
LEXEMES = Query(
    str,
    """
    SELECT u.lexeme
      FROM (SELECT DISTINCT search_language FROM projects
             WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))) l
     CROSS JOIN LATERAL unnest(search_words(l.search_language, %(text)s)) u
     GROUP BY u.lexeme ORDER BY min(u.positions[1]), u.lexeme LIMIT %(limit)s
    """,
)

_IN_SCOPE: LiteralString = "(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]) OR o.scope = 'team')"

# Of stop words nothing is left, and nothing binds.
_BOUND: LiteralString = """(%(must)s = ''
        OR numnode(websearch_to_tsquery(('pg_catalog.' || o.search_language)::regconfig, %(must)s)) = 0
        OR o.content_search @@ websearch_to_tsquery(('pg_catalog.' || o.search_language)::regconfig, %(must)s))"""

# Of observations and prompts alike.
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

# The file lists are long rarely, and looked at only in rows that the index has found.
_WANTED: LiteralString = (
    _WANTED_OF_ALL  # noqa: S608 - of constants
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

# The newest of each project and of what the team shares, and of them the newest: each from the end of an index. That alone says
# which they are: with their words asked for at once, the planner sorts the whole of a project that it takes for a small one.
SAMPLED = Query(
    Sampled,
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
                                       LIMIT %(most)s) p)
             + (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                       WHERE o.team_id = %(team_id)s AND o.scope = 'team'
                                         AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) LIMIT %(most)s) s) AS documents,
               (SELECT avg(content_words)::float8 FROM newest) AS words, (SELECT count(*) FROM newest) AS sampled,
               (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'observations'::regclass) AS rows
    )
    SELECT (SELECT count(*) FROM newest WHERE content_search @@ l.quoted::tsquery) AS found_in, s.sampled,
           coalesce(s.words, 1) AS words, s.documents, s.rows
      FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS l (quoted, place) CROSS JOIN scope s
     ORDER BY l.place
    """,
    prepare=False,
)

# The same of a whole team, which the number that it gave out last tells the size of.
SAMPLED_TEAM = Query(
    Sampled,
    """
    WITH newest AS MATERIALIZED (
        SELECT o.content_search, o.content_words FROM observations_in_team o
         WHERE o.team_id = %(team_id)s ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s
    ), scope AS MATERIALIZED (
        SELECT coalesce((SELECT last_number FROM observation_counters WHERE team_id = %(team_id)s), 0) AS documents,
               (SELECT avg(content_words)::float8 FROM newest) AS words, (SELECT count(*) FROM newest) AS sampled,
               (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'observations'::regclass) AS rows
    )
    SELECT (SELECT count(*) FROM newest WHERE content_search @@ l.quoted::tsquery) AS found_in, s.sampled,
           coalesce(s.words, 1) AS words, s.documents, s.rows
      FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS l (quoted, place) CROSS JOIN scope s
     ORDER BY l.place
    """,
    prepare=False,
)

# How often a word is in a document, without unpacking all of its words, which takes ten times as long: ts_rank() of one word with
# equal weights is the sum of 1/j² for j up to the count, divided by pi²/6; this turns it back, exactly for all that a document can
# hold (tests/recall/search/test_lexical.py). With our weights instead of equal ones it tells how high up the word stands.
_RANKS: LiteralString = (
    "(SELECT ts_rank('{1,1,1,1}', o.content_search, t.word)::float8 AS flat,"
    " ts_rank(%(weights)s::real[], o.content_search, t.word)::float8 AS high OFFSET 0)"
)
TIMES: LiteralString = "round(1 / (1.6449340668482264 * (1 - r.flat)) - 0.5)"
_STANDING: LiteralString = "r.high / r.flat / 0.77"

# BM25. Of a word whose hits are all looked at, they say in how many documents it is; what filters leave out counts there, too. With
# `whole` the scope is read and not the index of words, which the planner thinks cheaper than it is where words are common. What
# other projects share is asked for by itself: for both in one condition the rows of all projects would be read.
RANK = Query(
    Ranked,
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
    """,  # noqa: S608 - of constants above
    prepare=False,
)

# BM25 of documents that were found otherwise, by the same weights of the words.
RANK_THESE = Query(
    Ranked,
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
    """,  # noqa: S608 - of constants above
)

# Prompts are few and short: all that have any of the words are looked at.
PROMPTS = Query(
    Ranked,
    f"""
    WITH scope AS MATERIALIZED (
        SELECT count(*)::float8 AS documents, greatest(avg(length(n.text_search)), 1)::float8 AS words
          FROM (SELECT text_search FROM session_prompts_in_team
                 WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
                 LIMIT %(sample)s) n
    ), terms AS MATERIALIZED (
        SELECT place, quoted::tsquery AS word FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS t (quoted, place)
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.wanted, t.place, {TIMES} AS tf,
               %(k1)s * (1 - %(b)s + %(b)s * length(o.content_search) / s.words) AS damping
          FROM (SELECT o.id, o.created_at, o.content_search, {_WANTED_OF_ALL} AS wanted
                  FROM (SELECT p.*, p.text_search AS content_search FROM session_prompts_in_team p) o
                 WHERE o.content_search @@ %(any)s::tsquery
                   AND (%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]))
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
    """,  # noqa: S608 - of constants above
    prepare=False,
)

# Exact: the distance of all in the scope is computed. As a value and not as an order by the operator, so that no index steps in.
NEAREST = Query(
    Near,
    """
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))
             UNION ALL
            SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND e.embedding IS NOT NULL) near
     ORDER BY distance, id DESC LIMIT %(limit)s
    """,
    prepare=False,
)

NEAREST_WANTED = Query(
    Near,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE e.embedding IS NOT NULL AND {_IN_SCOPE} AND {_WANTED}) near
     ORDER BY distance, id DESC LIMIT %(limit)s
    """,  # noqa: S608 - of constants above
    prepare=False,
)

# By the index of the team's vectors (observations/embedding/indexes.py), nearest first until there are enough. To use it,
# PostgreSQL has to see the index's own expression, with the length of the vectors, its team and its model. What is shared comes
# exactly.
NEAREST_BY_INDEX = Query(
    Near,
    """
    SELECT id, 1 - distance AS cosine
      FROM ((SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
               FROM observation_embeddings e
              WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
                AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))
              ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s)
             UNION ALL
             SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
               FROM observations_in_team o
               JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
              WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND e.embedding IS NOT NULL) near
     ORDER BY distance, id DESC LIMIT %(limit)s
    """,
    prepare=False,
)

# The filters are looked at for one after the other, on the way: as a subquery in the place of a value, which is never made a join.
NEAREST_WANTED_BY_INDEX = Query(
    Near,
    f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (SELECT {_IN_SCOPE} AND {_WANTED} FROM observations_in_team o WHERE o.id = e.observation_id)
             ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s) near
     ORDER BY distance, id DESC
    """,  # noqa: S608 - of constants above
    prepare=False,
)

# Until the end of the transaction. The index goes on to further lists where too few pass the filters, to the last if need be. And
# the planner takes it: it knows neither how far that will be, nor how long everything else would take.
BY_INDEX = Query(
    str,
    """
    SELECT set_config('ivfflat.iterative_scan', 'relaxed_order', true) || set_config('ivfflat.probes', %(probes)s, true)
        || set_config('enable_sort', %(sorts)s, true)
    """,
)

NEARNESS = Query(
    Near,
    """
    SELECT observation_id AS id, 1 - (embedding <=> %(vector)s::halfvec) AS cosine
      FROM observation_embeddings
     WHERE observation_id = ANY(%(ids)s) AND model_id = %(model_id)s AND team_id = %(team_id)s AND embedding IS NOT NULL
    """,
)

# How near anything is to the query: what is not nearer than that says nothing. As if two more were there that are not near at all:
# a single document would never be nearer than itself.
BACKGROUND = Query(
    float,
    """
    SELECT coalesce(sum(1 - (n.embedding <=> %(vector)s::halfvec)), 0)::float8 / (count(*) + 2)
      FROM (SELECT e.embedding FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))
             LIMIT %(sample)s) n
    """,
    prepare=False,
)

# What was observed in the same session just before, and just after.
BRIEFS = Query(
    Brief,
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
    return await LEXEMES.all(conn, team_id=team_id, project_ids=_listed(project_ids), text=text, limit=limit)


async def sampled(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, lexemes: Sequence[str]) -> list[Sampled]:
    """How common each of the lexemes is among the newest documents, in their order."""
    words = {"quoted": [quoted(one) for one in lexemes], "sample": SAMPLE}
    if project_ids is None:
        return await SAMPLED_TEAM.all(conn, team_id=team_id, **words)
    return await SAMPLED.all(conn, team_id=team_id, project_ids=_listed(project_ids), most=COUNTED_MOST, **words)


async def rank(
    conn: Conn,
    project_ids: Sequence[UUID] | None,
    terms: Sequence[Term],
    any_of: str,
    filters: Filters,
    *,
    k1: float,
    b: float,
    documents: int,
    words: float,
    whole: bool,
    limit: int,
) -> list[Ranked]:
    """What fits the tsquery `any_of`, and the filters, by how well it fits all the terms. `whole` reads all of the scope for it.

    The first row is there even where nothing fits, then without an id: `found_in` is the same in all.
    """
    return await RANK.all(
        conn,
        project_ids=_listed(project_ids),
        any=any_of,
        quoted=[quoted(term.lexeme) for term in terms],
        known=[term.documents for term in terms],
        weights=list(WEIGHTS),
        k1=k1,
        b=b,
        documents=documents,
        words=words,
        whole=whole,
        limit=limit,
        **_filters(filters),
    )


async def rank_these(
    conn: Conn, ids: Sequence[UUID], lexemes: Sequence[str], idfs: Sequence[float], *, k1: float, b: float, words: float
) -> list[Ranked]:
    """How well these observations of the team fit the words; those that have none of them are left out."""
    return await RANK_THESE.all(
        conn,
        ids=list(ids),
        quoted=[quoted(one) for one in lexemes],
        idfs=list(idfs),
        weights=list(WEIGHTS),
        k1=k1,
        b=b,
        words=words,
    )


async def prompts(
    conn: Conn,
    project_ids: Sequence[UUID] | None,
    lexemes: Sequence[str],
    filters: Filters,
    *,
    k1: float,
    b: float,
    limit: int,
) -> list[Ranked]:
    """The prompts of users that fit; their ids are those of session_prompts. As `rank`, the first row is always there."""
    words = [quoted(one) for one in lexemes]
    return await PROMPTS.all(
        conn,
        project_ids=_listed(project_ids),
        any=" | ".join(words),
        quoted=words,
        k1=k1,
        b=b,
        sample=COUNTED_MOST,
        limit=limit,
        **_filters(filters),
    )


async def nearest(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, sought: Sought, filters: Filters, limit: int
) -> list[Near]:
    """What is nearest in meaning of all in the scope that the filters leave, exactly."""
    params: dict[str, object] = {
        "team_id": team_id,
        "project_ids": _listed(project_ids),
        "model_id": sought.model_id,
        "vector": sought.vector,
        "limit": limit,
    }
    if filters.are_any:
        return await NEAREST_WANTED.all(conn, **params, **_filters(filters))
    return await NEAREST.all(conn, **params)


async def nearest_by_index(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, sought: Sought, filters: Filters, probes: int, limit: int
) -> list[Near]:
    """The same by the team's index, which has to be there: nearly exactly, from the `probes` nearest of its lists at the least."""
    params: dict[str, object] = {
        "team_id": team_id,
        "project_ids": _listed(project_ids),
        "model_id": sought.model_id,
        "dimensions": sought.dimensions,
        "vector": sought.vector,
        "limit": limit,
    }
    await BY_INDEX.run(conn, probes=str(probes), sorts="off")
    if filters.are_any:
        found = await NEAREST_WANTED_BY_INDEX.all(conn, **params, **_filters(filters))
    else:
        found = await NEAREST_BY_INDEX.all(conn, **params)
    await BY_INDEX.run(conn, probes=str(probes), sorts="on")
    return found


async def nearness(conn: Conn, team_id: UUID, ids: Sequence[UUID], sought: Sought) -> list[Near]:
    """How near these are; those that are not embedded yet are left out."""
    return await NEARNESS.all(conn, team_id=team_id, ids=list(ids), model_id=sought.model_id, vector=sought.vector)


async def background(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, sought: Sought) -> float:
    """The mean cosine between the query and whatever is in the scope."""
    return await BACKGROUND.one(
        conn,
        team_id=team_id,
        project_ids=_listed(project_ids),
        model_id=sought.model_id,
        vector=sought.vector,
        sample=SAMPLE,
    )


async def briefs(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[Brief]:
    """When and where these were observed."""
    return await BRIEFS.all(conn, team_id=team_id, ids=list(ids))


def quoted(lexeme: str) -> str:
    """A lexeme as a tsquery."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _listed(project_ids: Sequence[UUID] | None) -> list[UUID] | None:
    return None if project_ids is None else list(project_ids)


def _filters(filters: Filters) -> dict[str, object]:
    return msgspec.structs.asdict(filters)
