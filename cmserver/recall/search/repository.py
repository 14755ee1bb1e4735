"""The SQL of search, a statement for each step: a query's words, what is near to it, what has the words, how far each stands out.

Words are looked up through the views `..._in_team`, because @@ cannot use an index under a row policy. Plans are kept by each
connection: without filters a statement reads its scope in one way, whatever the values. So each way stands in it by itself, behind
a condition on parameters alone, and rows are looked up where they are named (LATERAL, OFFSET 0). With filters it is planned for
each call. PLANS says which, for the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query, query
from cmserver.base.text import quote_lexeme
from cmserver.embeddings.model import QueryVector
from cmserver.observations.model import MEMORY_CONDITIONS
from cmserver.recall.model import FilePaths
from cmserver.recall.search.model import (
    Filters,
    MatchedWords,
    NearText,
    NeighbourRow,
    RankedRow,
    Ranking,
    ScopeStatistics,
    SearchRequest,
    SharedWord,
    WordSample,
    WordsOfText,
)

OWNS: set[str] = set()

SAMPLE = 200
"""How many of the newest documents are sampled for word frequencies."""
FIRST_TIER = 40
"""Documents of each arm in the first tier. More change nothing, because the neighbours of the best are there, too."""
WITH_NEIGHBOURS = 20
"""The first by words bring their neighbours into the first tier: the answer is often next to what has the words."""
PAGE_EXTRA = 20
"""How many more candidates than a page are scored: some say the same as others."""
MAX_COUNTED = 60_001
MAX_TURNS = 1_500
"""At most this many turns that have a word of the query are scored, the newest."""
SMALL_SCOPE = 2_000
"""A scope of up to this many documents is read whole: that is quicker than an index of all projects' words."""
_KNOWN_LANGUAGES = ["english", "german", "french", "spanish", "italian", "portuguese", "dutch"]
"""Languages of queries that are told from each other by their stop words."""
_LANGUAGE_CHARS = 1_000
"""The length of a query's beginning whose language is looked at."""
_MIN_STOP_WORDS, _MIN_LEAD = 3, 2
"""A query is in another language than the projects when it has so many stop words of it, and so many more than of theirs."""

WEIGHTS = (0.46, 0.69, 0.77, 1.0)
"""Weight of a word by field: D concepts and files, C narrative, B subtitle and facts (as 1), A title."""
_EVEN_WEIGHTS = (0.77, 0.77, 0.77, 0.77)
"""A turn has no fields."""

PLANS = Query(str, "SELECT set_config('plan_cache_mode', %(mode)s, true) || set_config('enable_seqscan', %(scans)s, true)")
"""Until the end of the transaction."""

_SEES_SHARED: LiteralString = "NOT EXISTS (SELECT FROM projects WHERE id = ANY(%(project_ids)s::uuid[]) AND isolated)"
"""An isolated project, which is searched alone, sees nothing that others share. Asked once a query."""
_IN_SCOPE: LiteralString = (
    f"(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]) OR (o.scope = 'team' AND {_SEES_SHARED}))"
)

# In the order of the text, so that the limit keeps the first. Projects may differ in language, and a query from its projects: then
# the stop words of the query's own language are left out, which would be rare words here. It is the language that has the most of
# the query's words as stop words, and clearly more than the projects' own. Two pairs of characters of a script without spaces count
# as one word; a character without a place is one of several in a row, of which the pairs say more.
#
# Beside each word stands in how many of the newest it is: the newest of each project and of the team's shared observations, each
# from the end of an index, or turns where there are no observations. What is too large to be counted is estimated by how many of
# the team's numbers its newest have.
_LANGUAGES_OF_SCOPE: LiteralString = """languages AS MATERIALIZED (
        SELECT DISTINCT search_language AS language FROM projects
         WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))
    )"""
_LEXEMES_OF_TEXT: LiteralString = """said AS MATERIALIZED (
        SELECT DISTINCT lower(word) AS word FROM regexp_split_to_table(left(%(text)s, %(language_chars)s), '[^[:alpha:]]+') AS word
         WHERE word <> ''
    ), stop_words AS MATERIALIZED (
        SELECT known.language, array_agg(w.word) AS words, count(*) AS found
          FROM unnest(%(known_languages)s::text[]) AS known (language) JOIN said w
            ON ts_lexize((known.language || '_stem')::regdictionary, w.word) = '{{}}'
         GROUP BY known.language
    ), left_out AS MATERIALIZED (
        SELECT l.language, unnest(tsvector_to_array(to_tsvector(('pg_catalog.' || l.language)::regconfig,
                                                                array_to_string(s.words, ' ')))) AS lexeme
          FROM languages l
         CROSS JOIN (SELECT * FROM stop_words ORDER BY found DESC, language LIMIT 1) s
         WHERE s.found >= %(min_stop_words)s
           AND s.found >= %(min_lead)s + coalesce((SELECT max(found) FROM stop_words JOIN languages USING (language)), 0)
    ), lexemes AS MATERIALIZED (
        SELECT u.lexeme, min(u.positions[1]) AS place
          FROM languages l
         CROSS JOIN LATERAL unnest(search_words(l.language, %(text)s)) u
         WHERE u.positions IS NOT NULL
           AND NOT EXISTS (SELECT FROM left_out o WHERE o.language = l.language AND o.lexeme = u.lexeme)
         GROUP BY u.lexeme
    )"""
_SCOPE_OF_WORDS: LiteralString = f"""newest AS MATERIALIZED (
        SELECT * FROM ((SELECT o.content_search, o.content_words, o.number, o.created_at, o.id FROM observations_in_team o
                  WHERE %(project_ids)s::uuid[] IS NULL AND o.team_id = %(team_id)s
                  ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s)
                 UNION ALL
                SELECT p.* FROM unnest(%(project_ids)s::uuid[]) AS one (project_id)
                 CROSS JOIN LATERAL (
                       SELECT o.content_search, o.content_words, o.number, o.created_at, o.id FROM observations_in_team o
                        WHERE o.team_id = %(team_id)s AND o.project_id = one.project_id
                        ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s) p
                 UNION ALL
                (SELECT o.content_search, o.content_words, o.number, o.created_at, o.id FROM observations_in_team o
                  WHERE %(project_ids)s::uuid[] IS NOT NULL AND o.team_id = %(team_id)s AND o.scope = 'team'
                    AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND {_SEES_SHARED}
                  ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s)) n
         ORDER BY n.created_at DESC, n.id DESC LIMIT %(sample)s
    ), newest_turns AS MATERIALIZED (
        SELECT t.text_search
          FROM ((SELECT t.text_search, t.created_at FROM turns_in_team t
                  WHERE %(project_ids)s::uuid[] IS NULL AND t.team_id = %(team_id)s ORDER BY t.created_at DESC LIMIT %(sample)s)
                 UNION ALL
                SELECT p.* FROM unnest(%(project_ids)s::uuid[]) AS one (project_id)
                 CROSS JOIN LATERAL (SELECT t.text_search, t.created_at FROM turns_in_team t WHERE t.project_id = one.project_id
                                      ORDER BY t.created_at DESC LIMIT %(sample)s) p) t
         ORDER BY t.created_at DESC LIMIT %(sample)s
    ), sampled AS MATERIALIZED (
        SELECT content_search, row_number() OVER () AS place
          FROM (SELECT content_search FROM newest
                 UNION ALL SELECT text_search FROM newest_turns WHERE NOT EXISTS (SELECT FROM newest)) s
    ), counted AS MATERIALIZED (
        SELECT coalesce(%(documents)s::bigint,
                        CASE WHEN %(project_ids)s::uuid[] IS NULL
                             THEN coalesce((SELECT greatest(last_number %% 1000000000 - turns, 0) FROM observation_counters
                                             WHERE team_id = %(team_id)s), 0) END,
                        (SELECT count(*) FROM (SELECT FROM unnest(%(project_ids)s::uuid[]) AS one (project_id)
                                                CROSS JOIN LATERAL (SELECT FROM observations_in_team o
                                                                     WHERE o.project_id = one.project_id OFFSET 0) o
                                                LIMIT %(max_count)s) p)
                      + (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                                WHERE o.team_id = %(team_id)s AND o.scope = 'team' AND {_SEES_SHARED}
                                                  AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) LIMIT %(max_count)s) s)
                       ) AS documents
    ), scope AS MATERIALIZED (
        SELECT CASE WHEN %(documents)s::bigint IS NULL AND %(project_ids)s::uuid[] IS NOT NULL AND documents >= %(max_count)s
                    THEN greatest(documents, (SELECT last_number %% 1000000000 FROM observation_counters
                                               WHERE team_id = %(team_id)s)
                                             * (SELECT count(*) FROM newest) / (SELECT max(number) - min(number) + 1 FROM newest))
                    ELSE documents END AS documents,
               coalesce((SELECT avg(content_words)::float8 FROM newest), 1) AS words,
               coalesce((SELECT avg(length(text_search))::float8 FROM newest_turns), 1) AS turn_words,
               (SELECT count(*) FROM sampled) AS sampled,
               (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'observations'::regclass) AS rows,
               coalesce(cardinality(%(project_ids)s::uuid[]), (SELECT count(*)::int FROM projects WHERE team_id = %(team_id)s))
               AS projects,
               coalesce(%(turns)s::bigint,
                        CASE WHEN %(project_ids)s::uuid[] IS NULL
                             THEN (SELECT c.turns FROM observation_counters c WHERE c.team_id = %(team_id)s)
                             ELSE (SELECT count(*) FROM (SELECT FROM unnest(%(project_ids)s::uuid[]) AS one (project_id)
                                                          CROSS JOIN LATERAL (SELECT FROM turns_in_team t
                                                                               WHERE t.project_id = one.project_id OFFSET 0) t
                                                          LIMIT %(max_count)s) t) END, 0) AS turns
          FROM counted
    )"""

WORDS = Query(
    WordSample,
    f"""
    WITH {_LANGUAGES_OF_SCOPE}, {_LEXEMES_OF_TEXT}, {_SCOPE_OF_WORDS}
    SELECT l.lexeme,
           ARRAY(SELECT place FROM sampled
             WHERE content_search @@ ($$'$$ || replace(replace(l.lexeme, chr(92), repeat(chr(92), 2)), $$'$$, $$''$$)
                                      || $$'$$)::tsquery) AS found_in,
           s.sampled, s.words, s.turn_words, s.documents, s.rows, s.projects, s.turns
      FROM (SELECT lexeme, place, sum(CASE WHEN length(lexeme) = 2 AND is_unsegmented(lexeme) THEN 0.5 ELSE 1 END)
                                  OVER (ORDER BY place, lexeme) AS words FROM lexemes) l
     CROSS JOIN scope s
     WHERE l.words <= %(limit)s
     ORDER BY l.place, l.lexeme
    """,
    prepare=True,
)

# What the user has marked, once a query and language: reading 64 words takes longer than the rest of a row. A phrase of stop words
# only has no lexemes and is no condition.
_LANGUAGES: LiteralString = "(SELECT DISTINCT search_language AS language FROM projects)"
_MARKED: LiteralString = f"""(SELECT array_agg(CASE WHEN numnode(query) > 0 THEN query END ORDER BY language)
           FROM (SELECT language, search_marked(language, %(must)s) AS query FROM {_LANGUAGES} l OFFSET 0) marked)
         [array_position((SELECT array_agg(language ORDER BY language) FROM {_LANGUAGES} l), o.search_language)]"""
_BOUND: LiteralString = f"(%(must)s = '' OR (o.content_search @@ {_MARKED}) IS NOT FALSE)"

# For observations and turns.
_FILTERED_OF_ALL: LiteralString = (
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

_FILTERED_TURN: LiteralString = _FILTERED_OF_ALL + " AND (%(of_users)s::bool IS NOT TRUE OR o.agent_id IS NULL)"


def _in_files(name: LiteralString, fits: LiteralString) -> LiteralString:
    """Whether one of its files fits. File lists are rarely long, and read only in rows that the index returns."""
    return f"""(%({name})s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{{}}') || coalesce(o.files_read, '{{}}')) f,
                               unnest(%({name})s::text[], %({name}_in)s::uuid[]) AS n (path, project_id)
                    WHERE {fits} AND (n.project_id IS NULL OR n.project_id = o.project_id)))
   AND """


_FILTERED: LiteralString = (
    _FILTERED_OF_ALL
    + """
   AND (%(kinds)s::text[] IS NULL OR o.kind = ANY(%(kinds)s::text[]))
   AND (%(types)s::text[] IS NULL OR (o.kind <> 'summary'
            AND CASE WHEN o.origin = 'git' THEN o.caller_type ELSE o.type END = ANY(%(types)s::text[])))
   AND (%(concepts)s::text[] IS NULL OR EXISTS (SELECT FROM unnest(o.concepts) c WHERE lower(c) = ANY(%(concepts)s::text[])))
   AND (%(entity_ids)s::uuid[] IS NULL
        OR EXISTS (SELECT FROM entity_mentions m
                    WHERE m.observation_id = o.id AND m.team_id = o.team_id AND m.entity_id = ANY(%(entity_ids)s::uuid[])))
   AND """
    + _in_files("files", "(f = n.path OR n.path = '' OR starts_with(f, rtrim(n.path, '/') || '/'))")
    + _in_files("file_prefixes", "starts_with(f, n.path)")
    + _in_files("file_parts", "strpos(f, n.path) > 0")
    + MEMORY_CONDITIONS
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

_BM25: LiteralString = (
    f"{_STANDING} * {TIMES} * (%(k1)s + 1) / ({TIMES} + %(k1)s * (1 - %(b)s + %(b)s * o.content_words / %(mean_words)s))"
)
_SUM: LiteralString = "round(sum(t.idf * " + _BM25 + ") * 1e9) / 1e9"
"""Rounded, because sums of floats depend on their order."""
_IN_SAME_SESSION: LiteralString = """
               CASE WHEN c.place <= %(first_tier)s AND o.server_session_id IS NOT NULL THEN ARRAY(
                    SELECT n.id FROM observations_in_team n
                     WHERE n.project_id = o.project_id AND n.server_session_id = o.server_session_id
                       AND (n.project_id = ANY(%(project_ids)s::uuid[]) OR n.scope = 'team' OR %(project_ids)s::uuid[] IS NULL)"""


def _rows(table: LiteralString, columns: LiteralString) -> LiteralString:
    """What has any of the words: of a small scope read whole, of the team by the index of words, of projects by that and theirs."""
    return f"""
                SELECT o.* FROM projects p
                 CROSS JOIN LATERAL (SELECT {columns} FROM {table} o
                                      WHERE o.project_id = p.id AND (o.content_search @@ %(any)s::tsquery) IS TRUE OFFSET 0) o
                 WHERE %(whole)s AND p.team_id = %(team_id)s
                   AND (%(project_ids)s::uuid[] IS NULL OR p.id = ANY(%(project_ids)s::uuid[]))
                 UNION ALL
                SELECT {columns} FROM {table} o
                 WHERE NOT %(whole)s AND %(project_ids)s::uuid[] IS NULL AND o.content_search @@ %(any)s::tsquery
                 UNION ALL
                SELECT {columns} FROM {table} o
                 WHERE NOT %(whole)s AND %(project_ids)s::uuid[] IS NOT NULL
                   AND o.project_id = ANY(%(project_ids)s::uuid[]) AND o.content_search @@ %(any)s::tsquery"""


def _shared_rows(columns: LiteralString) -> LiteralString:
    return f"""
                 UNION ALL
                SELECT {columns} FROM observations_in_team o
                 WHERE %(project_ids)s::uuid[] IS NOT NULL AND o.scope = 'team' AND {_SEES_SHARED}
                   AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND (o.content_search @@ %(any)s::tsquery) IS TRUE"""


def _matched(table: LiteralString, shared: LiteralString, filters: LiteralString) -> LiteralString:
    """The first `limit` of the rows by BM25, and what it is in all of them.

    A word without a `known` count is counted in its hits, including those the filters exclude. The mean and deviation come from how
    many documents have each word and what it counts in these, as if words were independent: a sample has no rare words.
    """
    columns: LiteralString = "o.*" if filters else "o.id, o.created_at, o.content_words, o.content_search"
    rows = _rows(table, columns)
    rows = (
        f"{rows}{_shared_rows(columns)}"
        if shared
        else f"SELECT * FROM ({rows}) o ORDER BY o.created_at DESC, o.id DESC LIMIT %(max_turns)s"
    )
    return f"""
    WITH terms AS MATERIALIZED (
        SELECT place::int AS place, quoted::tsquery AS word, known, idf
          FROM unnest(%(quoted)s::text[], %(known)s::float8[], %(idfs)s::float8[]) WITH ORDINALITY AS t (quoted, known, idf, place)
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.passes, t.place, t.share
          FROM (SELECT o.id, o.created_at, o.content_words, o.content_search, {filters or "true"} AS passes
                  FROM ({rows}) o OFFSET 0) o
         CROSS JOIN LATERAL (SELECT t.place, {_BM25} AS share FROM terms t CROSS JOIN LATERAL {_RANKS} r
                              WHERE o.content_search @@ t.word OFFSET 0) t
    ), counted AS MATERIALIZED (
        SELECT place, count(*) AS documents, avg(share) AS mean, avg(share * share) AS square FROM parts GROUP BY place
    ), words AS MATERIALIZED (
        SELECT t.place, d.documents, coalesce(c.mean, 0) AS mean, coalesce(c.square, 0) AS square,
               least((d.documents + 0.5) / (%(documents)s + 1), 1) AS part,
               coalesce(t.idf, ln(1 + greatest(%(documents)s - d.documents + 0.5, 0.5) / (d.documents + 0.5))) AS idf
          FROM terms t LEFT JOIN counted c ON c.place = t.place
         CROSS JOIN LATERAL (SELECT coalesce(t.known, c.documents, 0)::float8 AS documents) d
    ), matched AS MATERIALIZED (
        SELECT p.id, min(p.created_at) AS created_at, bool_and(p.passes) AS passes,
               round(sum((SELECT array_agg(idf ORDER BY place) FROM words)[p.place] * p.share) * 1e9) / 1e9 AS bm25
          FROM parts p GROUP BY p.id
    )
    SELECT ARRAY(SELECT id FROM matched WHERE passes ORDER BY bm25 DESC, created_at DESC, id DESC LIMIT %(limit)s) AS ids,
           (SELECT coalesce(max(bm25), 0)::float8 FROM matched) AS best,
           (SELECT count(*)::int FROM matched WHERE passes) AS matching,
           array_agg(documents ORDER BY place) AS found_in, sum(part * idf * mean) AS mean,
           sqrt(greatest(sum(part * idf * idf * square - (part * idf * mean) ^ 2), 0)) AS deviation
      FROM words
    """


# Turns with the columns of observations that words need.
_TURNS: LiteralString = """(SELECT t.*, t.text_search AS content_search, length(t.text_search) AS content_words
                              FROM turns_in_team t)"""

MATCHED = Query(MatchedWords, _matched("observations_in_team", "shared", ""), prepare=True)
MATCHED_FILTERED = Query(MatchedWords, _matched("observations_in_team", "shared", f"({_FILTERED})"), prepare=True)
MATCHED_TURNS = Query(MatchedWords, _matched(_TURNS, "", ""), prepare=True)
MATCHED_TURNS_FILTERED = Query(MatchedWords, _matched(_TURNS, "", f"({_FILTERED_TURN})"), prepare=True)

_TERMS: LiteralString = """terms AS MATERIALIZED (
        SELECT quoted::tsquery AS word, idf FROM unnest(%(quoted)s::text[], %(idfs)s::float8[]) AS t (quoted, idf)
    )"""
_FOUND: LiteralString = "unnest(%(ids)s::uuid[], %(places)s::int[], %(with_neighbours)s::bool[]) AS f (id, place, has_neighbours)"

# The documents that were found, and the neighbours of the very first, with the BM25 of each and of those beside it in its session.
_RANKED: LiteralString = f"""
    WITH {_TERMS}, beside AS MATERIALIZED (
        SELECT c.id, c.place, c.has_neighbours, o.kind = 'summary' AS is_secondary, o.created_at,{_IN_SAME_SESSION}
                       AND (n.created_at, n.id) < (o.created_at, o.id)
                     ORDER BY n.created_at DESC, n.id DESC LIMIT 2) END AS before,{_IN_SAME_SESSION}
                       AND (n.created_at, n.id) > (o.created_at, o.id)
                     ORDER BY n.created_at, n.id LIMIT 2) END AS after
          FROM {_FOUND.replace("AS f ", "AS c ")}
         CROSS JOIN LATERAL (SELECT * FROM observations_in_team o WHERE o.id = c.id OFFSET 0) o
    ), ranked AS MATERIALIZED (
        SELECT id, place, is_secondary, created_at, before[1] AS before, after[1] AS after FROM beside
         UNION ALL
        SELECT o.id, l.place, o.kind = 'summary', o.created_at, l.before, l.after
          FROM (SELECT DISTINCT ON (id) *
                  FROM (SELECT before[1] AS id, place, before[2] AS before, id AS after FROM beside WHERE has_neighbours
                         UNION ALL SELECT after[1], place, id, after[2] FROM beside WHERE has_neighbours) lent
                 WHERE NOT id = ANY(%(ids)s::uuid[])
                 ORDER BY id, place) l
         CROSS JOIN LATERAL (SELECT * FROM observations_in_team o WHERE o.id = l.id OFFSET 0) o
         WHERE <filters>
    ), scored AS MATERIALIZED (
        SELECT n.id, s.bm25
          FROM (SELECT id FROM ranked UNION SELECT before FROM ranked UNION SELECT after FROM ranked) n
         CROSS JOIN LATERAL (SELECT * FROM observations_in_team o WHERE o.id = n.id OFFSET 0) o
         CROSS JOIN LATERAL (SELECT {_SUM} AS bm25 FROM terms t CROSS JOIN LATERAL {_RANKS} r WHERE o.content_search @@ t.word) s
         WHERE o.content_search @@ %(any)s::tsquery OR o.id = ANY(%(near)s::uuid[])
    )
    SELECT j.id, coalesce(own.bm25, 0) AS bm25, coalesce(before.bm25, 0) + coalesce(after.bm25, 0) AS neighbours,
           num_nonnulls(j.before, j.after) AS neighbour_count, j.place::int AS place, j.is_secondary, j.created_at,
           <cosine>::float8 AS cosine, 0::float8 AS mean, 0::float8 AS deviation, 0::float8 AS background
      FROM ranked j
      LEFT JOIN scored own ON own.id = j.id
      LEFT JOIN scored before ON before.id = j.before
      LEFT JOIN scored after ON after.id = j.after
"""
_RANKED_TURNS: LiteralString = f"""
    WITH {_TERMS}
    SELECT j.id, coalesce(s.bm25, 0) AS bm25, 0::float8 AS neighbours, 0 AS neighbour_count, f.place,
           (j.reply IS NULL OR j.agent_id IS NOT NULL
            OR EXISTS (SELECT FROM observations_in_team n
                        WHERE n.project_id = j.project_id AND n.server_session_id = j.server_session_id
                          AND n.turn_number = j.number AND n.kind <> 'summary')) AS is_secondary, j.created_at,
           <cosine>::float8 AS cosine, 0::float8 AS mean, 0::float8 AS deviation, 0::float8 AS background
      FROM {_FOUND}
     CROSS JOIN LATERAL (SELECT * FROM {_TURNS} o WHERE o.id = f.id OFFSET 0) j
     CROSS JOIN LATERAL (SELECT {_SUM.replace("o.", "j.")} AS bm25
                           FROM terms t CROSS JOIN LATERAL {_RANKS.replace("o.", "j.")} r WHERE j.content_search @@ t.word) s
"""
# What is said of the scope by a sample of it: as many of each project, or all would be of one; from where the index has the project
# on, so that nothing else is read.
_COSINES: LiteralString = """
     UNION ALL
    SELECT NULL, 0, 0, 0, 0, false, NULL, NULL, coalesce(avg(n.cosine), 0)::float8, coalesce(stddev_pop(n.cosine), 0)::float8,
           coalesce(sum(n.cosine), 0)::float8 / (count(*) + 2)
      FROM (SELECT id FROM projects
             WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))
             ORDER BY md5(id::text) LIMIT %(sample)s) p
     CROSS JOIN LATERAL (SELECT 1 - (e.embedding <=> %(vector)s::halfvec) AS cosine, e.project_id FROM <vectors>
                            AND e.project_id >= p.id ORDER BY e.project_id LIMIT greatest(%(sample)s / %(projects)s::int, 1)) n
     WHERE n.project_id = p.id
"""
_COSINE: LiteralString = """(SELECT 1 - (e.embedding <=> %(vector)s::halfvec) FROM observation_embeddings e
             WHERE e.observation_id = j.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
               AND NOT j.id = ANY(%(near)s::uuid[]))"""
_VECTORS: LiteralString = """observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND e.observation_id IS NOT NULL AND (e.expires_at IS NULL OR e.expires_at > now())"""


def _ranked(text: LiteralString, filters: LiteralString = "true", *, by_meaning: bool) -> LiteralString:
    text = text.replace("<filters>", filters)
    return (
        text.replace("<cosine>", _COSINE) + _COSINES.replace("<vectors>", _VECTORS)
        if by_meaning
        else text.replace("<cosine>", "NULL")
    )


RANKED = Query(RankedRow, _ranked(_RANKED, by_meaning=False), prepare=True)
RANKED_FILTERED = Query(RankedRow, _ranked(_RANKED, _FILTERED, by_meaning=False), prepare=True)
RANKED_BY_MEANING = Query(RankedRow, _ranked(_RANKED, by_meaning=True), prepare=True)
RANKED_FILTERED_BY_MEANING = Query(RankedRow, _ranked(_RANKED, _FILTERED, by_meaning=True), prepare=True)
RANKED_TURNS = Query(RankedRow, _ranked(_RANKED_TURNS, by_meaning=False), prepare=True)
RANKED_TURNS_BY_MEANING = Query(
    RankedRow, _ranked(_RANKED_TURNS, by_meaning=True).replace("e.observation_id", "e.turn_id"), prepare=True
)

_SHARED: LiteralString = f"""UNION ALL
            SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE %(project_ids)s::uuid[] IS NOT NULL AND o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[])
               AND e.embedding IS NOT NULL AND {_SEES_SHARED}"""

# Exact: computes the distance of every vector in the scope. The distance is a value, not an ORDER BY of the
# operator, so that no index is used.
_COMPARED: LiteralString = f"""(SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
               FROM {_VECTORS} AND %(project_ids)s::uuid[] IS NULL
              UNION ALL
             SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
               FROM unnest(%(project_ids)s::uuid[]) AS one (project_id)
              CROSS JOIN LATERAL (SELECT * FROM {_VECTORS} AND e.project_id = one.project_id OFFSET 0) e
             <shared>)"""
_NEAREST: LiteralString = f"""
    SELECT id, 1 - distance AS cosine FROM {_COMPARED} near ORDER BY distance, id DESC LIMIT %(limit)s
"""
_NEAREST_FILTERED: LiteralString = """
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE e.embedding IS NOT NULL AND <filters>) near
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# Of the nearest so many those that pass the filters. Where these are as many as the limit, it is exact, too, and reads a few rows
# in place of the scope's, which takes ten times as long as comparing its vectors.
_NEAREST_OVERSAMPLED: LiteralString = f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT id, distance FROM {_COMPARED} compared ORDER BY distance, id DESC LIMIT %(ahead)s) near
     WHERE (SELECT <filters> FROM observations_in_team o WHERE o.id = near.id)
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# By the index of the team's vectors (embeddings/indexes.py), nearest first up to the limit. PostgreSQL uses it only
# for the index's own expression: the vectors' dimensions, its team and its model. Shared observations are compared exactly.
_NEAREST_BY_INDEX: LiteralString = f"""
    SELECT id, 1 - distance AS cosine
      FROM ((SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
               FROM {_VECTORS} AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))
              ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s)
             <shared>) near
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# The filters are checked row by row during the index scan: a scalar subquery is never turned into a join.
_NEAREST_FILTERED_BY_INDEX: LiteralString = """
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (SELECT <filters> FROM observations_in_team o WHERE o.id = e.observation_id)
             ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s) near
     ORDER BY distance, id DESC
"""


def _find_observations(text: LiteralString) -> LiteralString:
    return text.replace("<shared>", _SHARED).replace("<filters>", f"{_IN_SCOPE} AND {_FILTERED}")


def _find_turns(text: LiteralString) -> LiteralString:
    """The same of turns, none of which is shared."""
    filters = "(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[])) AND " + _FILTERED_TURN
    filters = filters.replace("o.content_search", "o.text_search")
    of_turns = text.replace("e.observation_id", "e.turn_id").replace("observations_in_team", "turns_in_team")
    return of_turns.replace("<shared>", "").replace("<filters>", filters)


NEAREST = Query(NearText, _find_observations(_NEAREST), prepare=True)
NEAREST_FILTERED = Query(NearText, _find_observations(_NEAREST_FILTERED), prepare=True)
NEAREST_OVERSAMPLED = Query(NearText, _find_observations(_NEAREST_OVERSAMPLED), prepare=True)
NEAREST_BY_INDEX = Query(NearText, _find_observations(_NEAREST_BY_INDEX), prepare=False)
NEAREST_FILTERED_BY_INDEX = Query(NearText, _find_observations(_NEAREST_FILTERED_BY_INDEX), prepare=False)
NEAREST_TURNS = Query(NearText, _find_turns(_NEAREST), prepare=True)
NEAREST_TURNS_FILTERED = Query(NearText, _find_turns(_NEAREST_FILTERED), prepare=True)
NEAREST_TURNS_BY_INDEX = Query(NearText, _find_turns(_NEAREST_BY_INDEX), prepare=False)
NEAREST_TURNS_FILTERED_BY_INDEX = Query(NearText, _find_turns(_NEAREST_FILTERED_BY_INDEX), prepare=False)

# The index scan continues through further lists until enough rows pass the filters. `sorts` = off makes the planner choose the
# index, whose cost it cannot estimate, and it must know the values to choose it.
BY_INDEX = Query(
    str,
    """
    SELECT current_setting('plan_cache_mode') || left(
               set_config('ivfflat.iterative_scan', 'relaxed_order', true) || set_config('ivfflat.probes', %(probes)s, true)
            || set_config('enable_sort', %(sorts)s, true) || set_config('plan_cache_mode', %(mode)s, true), 0)
    """,
)
"""What the plans were before; until the end of the transaction."""


async def keep_plans(conn: Conn, *, filtered: bool) -> None:
    """Until `forget_plans` a statement has one plan for all values, which reads its scope by indexes; with `filtered` each call is
    planned.
    """
    if conn.prepare_threshold is None:  # behind a pooler of transactions psycopg prepares nothing
        return
    if filtered:
        await PLANS.run(conn, mode="force_custom_plan", scans="on")
    else:
        await PLANS.run(conn, mode="force_generic_plan", scans="off")


async def forget_plans(conn: Conn, *, scans: str = "on") -> None:
    """Let statements be planned as PostgreSQL does by default; with `scans` "off" still by indexes."""
    await PLANS.run(conn, mode="auto", scans=scans)


async def words(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID] | None,
    text: str,
    limit: int,
    documents: int | None = None,
    turns: int | None = None,
) -> list[WordSample]:
    """The lexemes of the first `limit` different words of the text, as the search index has them, and how common each is.

    Words are stemmed, names whole and in parts; two pairs of characters of a script without spaces count as a word. `documents` and
    `turns` are how many the scope has, where it is known; otherwise those of a project are counted.
    """
    return await WORDS.all(
        conn,
        known_languages=_KNOWN_LANGUAGES,
        language_chars=_LANGUAGE_CHARS,
        min_stop_words=_MIN_STOP_WORDS,
        min_lead=_MIN_LEAD,
        team_id=team_id,
        project_ids=_listed(project_ids),
        text=text,
        limit=limit,
        sample=SAMPLE,
        max_count=MAX_COUNTED,
        documents=documents,
        turns=turns,
    )


async def matched(
    conn: Conn,
    team_id: UUID,
    request: SearchRequest,
    lexemes: Sequence[str],
    statistics: ScopeStatistics,
    ranking: Ranking,
    limit: int,
    *,
    turns: bool = False,
    apart: bool = False,
) -> MatchedWords:
    """The first `limit` observations, or `turns`, by their words.

    They have a leading word, or those that are to be there together; `apart`, a leading word but not all of these. Documents with a
    leading word are counted, unless a page before has done it, or some are looked for together. What turns have is weighed as in
    observations.
    """
    values = _values(team_id, request, lexemes, statistics, ranking, turns=turns)
    quoted = [quote_lexeme(lexeme) for lexeme in lexemes]
    together = [] if turns else statistics.together
    is_counted = turns or (request.after is None and not together)
    values |= {
        "documents": min(statistics.turn_count, MAX_TURNS) if turns else statistics.documents,
        "idfs": statistics.idfs if turns else [None] * len(quoted),
        "known": [
            None if is_counted and (turns or place in statistics.leading) else found_in
            for place, found_in in enumerate(statistics.found_in)
        ],
        "limit": limit,
        "max_turns": MAX_TURNS,
    }
    if together:
        all_of_them = " & ".join(quoted[place] for place in together)
        values["any"] = f"({values['any']}) & !({all_of_them})" if apart else all_of_them
    plain, filtered = (MATCHED_TURNS, MATCHED_TURNS_FILTERED) if turns else (MATCHED, MATCHED_FILTERED)
    return await (filtered if request.filters.are_any else plain).one(conn, **values)


async def ranked(
    conn: Conn,
    team_id: UUID,
    request: SearchRequest,
    lexemes: Sequence[str],
    statistics: ScopeStatistics,
    ranking: Ranking,
    by_words: Sequence[UUID],
    near: Sequence[UUID],
    vector: QueryVector | None,
    *,
    turns: bool = False,
) -> list[RankedRow]:
    """What was found by words and what is near, each in its order, and the neighbours of the very first, in no order.

    With the `vector`, rows that are not near have cosines, and a row without an id says what those of the scope are.
    """
    places = {id_: place for place, id_ in enumerate(near, 1)}
    with_neighbours = set(by_words[:WITH_NEIGHBOURS])
    for place, id_ in enumerate(by_words, 1):
        places[id_] = min(place, places.get(id_, place))
    values = _values(team_id, request, lexemes, statistics, ranking, turns=turns)
    values |= {
        "ids": list(places),
        "places": list(places.values()),
        "with_neighbours": [id_ in with_neighbours for id_ in places],
        "near": list(near),
        "idfs": statistics.idfs,
        "first_tier": FIRST_TIER if ranking.neighbours else 0,
        "sample": SAMPLE,
        "projects": max(statistics.projects, 1),
    }
    is_filtered = request.filters.are_any
    if vector is None:
        return await (RANKED_TURNS if turns else RANKED_FILTERED if is_filtered else RANKED).all(conn, **values)
    values |= {"model_id": vector.model_id, "vector": vector.vector}
    by_meaning = RANKED_TURNS_BY_MEANING if turns else RANKED_FILTERED_BY_MEANING if is_filtered else RANKED_BY_MEANING
    return await by_meaning.all(conn, **values)


def _values(
    team_id: UUID,
    request: SearchRequest,
    lexemes: Sequence[str],
    statistics: ScopeStatistics,
    ranking: Ranking,
    *,
    turns: bool,
) -> dict[str, object]:
    quoted = [quote_lexeme(lexeme) for lexeme in lexemes]
    leading = quoted if turns else [quoted[place] for place in statistics.leading]
    return {
        "team_id": team_id,
        "project_ids": _listed(request.project_ids),
        "quoted": quoted,
        "any": " | ".join(leading),
        "weights": list(_EVEN_WEIGHTS if turns else WEIGHTS),
        "k1": ranking.k1,
        "b": ranking.b,
        "mean_words": statistics.turn_words if turns else statistics.mean_words,
        "whole": (statistics.turn_count if turns else statistics.documents) <= SMALL_SCOPE,
        **_filter_values(request.filters),
    }


async def nearest(
    conn: Conn,
    team_id: UUID,
    request: SearchRequest,
    vector: QueryVector,
    limit: int,
    *,
    turns: bool = False,
    probes: int = 0,
    ahead: int = 0,
) -> list[NearText]:
    """The observations of the scope, or the `turns`, nearest to the vector that pass the filters.

    Exactly; with `probes` approximately, by at least so many lists of the team's index, which must exist; with `ahead` those of so
    many nearest observations that pass the filters: if there are `limit` of them, the same.
    """
    values: dict[str, object] = {"team_id": team_id, "project_ids": _listed(request.project_ids), "limit": limit}
    values |= {"model_id": vector.model_id, "vector": vector.vector}
    if request.filters.are_any:
        values |= _filter_values(request.filters)
        exact, by_index = NEAREST_FILTERED, NEAREST_FILTERED_BY_INDEX
        if turns:
            exact, by_index = NEAREST_TURNS_FILTERED, NEAREST_TURNS_FILTERED_BY_INDEX
    else:
        exact, by_index = (NEAREST_TURNS, NEAREST_TURNS_BY_INDEX) if turns else (NEAREST, NEAREST_BY_INDEX)
    if ahead:
        return await NEAREST_OVERSAMPLED.all(conn, **values, ahead=ahead)
    if not probes:
        return await exact.all(conn, **values)
    before = await BY_INDEX.one(conn, probes=str(probes), sorts="off", mode="force_custom_plan")
    rows = await by_index.all(conn, **values, dimensions=vector.dimensions)
    await BY_INDEX.run(conn, probes=str(probes), sorts="on", mode=before)
    return rows


def _filter_values(filters: Filters) -> dict[str, object]:
    values = msgspec.structs.asdict(filters)
    for name in ("files", "file_prefixes", "file_parts"):
        paths: FilePaths | None = values[name]
        values |= {name: paths and paths.paths, f"{name}_in": paths and paths.project_ids}
    return values


def _listed(project_ids: Sequence[UUID] | None) -> list[UUID] | None:
    return None if project_ids is None else list(dict.fromkeys(project_ids))


# Many searches of one scope: the words of all queries, what has any of them, and what stands beside what was found.
WORDS_OF_MANY = Query(
    SharedWord,
    f"""
    WITH {_LANGUAGES_OF_SCOPE}, asked AS MATERIALIZED (
        SELECT q.text, l.lexeme, row_number() OVER (PARTITION BY q.text ORDER BY l.place, l.lexeme) AS place,
               sum(CASE WHEN length(l.lexeme) = 2 AND is_unsegmented(l.lexeme) THEN 0.5 ELSE 1 END)
                   OVER (PARTITION BY q.text ORDER BY l.place, l.lexeme) AS words
          FROM unnest(%(texts)s::text[]) WITH ORDINALITY AS q (words, text)
         CROSS JOIN LATERAL (WITH {_LEXEMES_OF_TEXT.replace("%(text)s", "q.words")} SELECT lexeme, place FROM lexemes) l
    ), chosen AS MATERIALIZED (
        SELECT lexeme, array_agg(text::int ORDER BY text) AS texts, array_agg(place::int ORDER BY text) AS places
          FROM asked WHERE words <= %(limit)s GROUP BY lexeme
    ), {_SCOPE_OF_WORDS}, found AS MATERIALIZED (
        SELECT u.lexeme, array_agg(place ORDER BY place) AS found_in
          FROM sampled CROSS JOIN LATERAL unnest(content_search) u WHERE u.lexeme IN (SELECT lexeme FROM chosen) GROUP BY u.lexeme
    )
    SELECT c.lexeme, coalesce(f.found_in, '{{}}') AS found_in, c.texts, c.places,
           s.sampled, s.words, s.turn_words, s.documents, s.rows, s.projects, s.turns
      FROM chosen c LEFT JOIN found f ON f.lexeme = c.lexeme CROSS JOIN scope s
    """,
    prepare=False,
)

_TERMS_OF_MANY: LiteralString = """terms AS MATERIALIZED (
        SELECT lexeme, quoted::tsquery AS word, place::int AS place
          FROM unnest(%(lexemes)s::text[], %(quoted)s::text[]) WITH ORDINALITY AS t (lexeme, quoted, place)
    )"""
_WORD_COLUMNS: LiteralString = "o.id, o.created_at, o.content_words, o.content_search"
_HAS_ANY: LiteralString = "o.content_search @@ %(any)s::tsquery"
_PARTS: LiteralString = f"""
        SELECT o.id, o.created_at, t.place, {_BM25} AS share
          FROM documents o
         CROSS JOIN LATERAL unnest(o.content_search) u
          JOIN terms t ON t.lexeme = u.lexeme
         CROSS JOIN LATERAL {_RANKS} r"""
_BY_TEXT: LiteralString = "SELECT id, created_at, array_agg(place) AS places, array_agg(share) AS shares"

WORDS_OF_OBSERVATIONS = Query(
    WordsOfText,
    f"""
    WITH {_TERMS_OF_MANY}, documents AS MATERIALIZED (
        SELECT {_WORD_COLUMNS} FROM observations_in_team o WHERE %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[])
         UNION ALL
        SELECT {_WORD_COLUMNS} FROM observations_in_team o
         WHERE NOT %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[]) AND {_HAS_ANY}
         UNION ALL
        SELECT {_WORD_COLUMNS} FROM observations_in_team o
         WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND {_SEES_SHARED} AND ({_HAS_ANY}) IS TRUE
    )
    {_BY_TEXT} FROM ({_PARTS}) parts GROUP BY id, created_at
    """,
    prepare=False,
)
WORDS_OF_TURNS = Query(
    WordsOfText,
    f"""
    WITH {_TERMS_OF_MANY}, documents AS MATERIALIZED (
        SELECT {_WORD_COLUMNS} FROM {_TURNS} o WHERE %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[])
         UNION ALL
        SELECT {_WORD_COLUMNS} FROM {_TURNS} o WHERE NOT %(whole)s AND o.project_id = ANY(%(project_ids)s::uuid[]) AND {_HAS_ANY}
    )
    {_BY_TEXT}
      FROM (SELECT *, row_number() OVER (PARTITION BY place ORDER BY created_at DESC, id DESC) AS age FROM ({_PARTS}) p) parts
     WHERE age <= %(most)s GROUP BY id, created_at
    """,
    prepare=False,
)

_IN_SAME_PROJECTS_SESSION: LiteralString = """
               SELECT n.id FROM observations_in_team n
                WHERE n.project_id = o.project_id AND n.server_session_id = o.server_session_id
                  AND (n.project_id = ANY(%(project_ids)s::uuid[]) OR n.scope = 'team')"""


@query(f"""
    SELECT o.id, o.created_at, o.kind = 'summary' AS is_secondary,
           ARRAY({_IN_SAME_PROJECTS_SESSION}
                  AND (n.created_at, n.id) < (o.created_at, o.id) ORDER BY n.created_at DESC, n.id DESC LIMIT 2) AS before,
           ARRAY({_IN_SAME_PROJECTS_SESSION}
                  AND (n.created_at, n.id) > (o.created_at, o.id) ORDER BY n.created_at, n.id LIMIT 2) AS after
      FROM unnest(%(ids)s::uuid[]) AS f (id)
     CROSS JOIN LATERAL (SELECT * FROM observations_in_team o WHERE o.id = f.id OFFSET 0) o
""")
async def beside(conn: Conn, project_ids: Sequence[UUID], ids: Collection[UUID]) -> list[NeighbourRow]: ...


@query("""
    SELECT j.id, j.created_at, '{}'::uuid[] AS before, '{}'::uuid[] AS after,
           (j.reply IS NULL OR j.agent_id IS NOT NULL
            OR EXISTS (SELECT FROM observations_in_team n
                        WHERE n.project_id = j.project_id AND n.server_session_id = j.server_session_id
                          AND n.turn_number = j.number AND n.kind <> 'summary')) AS is_secondary
      FROM unnest(%(ids)s::uuid[]) AS f (id)
     CROSS JOIN LATERAL (SELECT * FROM turns_in_team o WHERE o.id = f.id OFFSET 0) j
""")
async def found_turns(conn: Conn, ids: Collection[UUID]) -> list[NeighbourRow]: ...


async def words_of_many(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID],
    texts: Sequence[str],
    limit: int,
    documents: int | None,
    turns: int | None,
) -> list[SharedWord]:
    """The lexemes of the first `limit` words of each text, and how common each is; the rest as of one search."""
    return await WORDS_OF_MANY.all(
        conn,
        known_languages=_KNOWN_LANGUAGES,
        language_chars=_LANGUAGE_CHARS,
        min_stop_words=_MIN_STOP_WORDS,
        min_lead=_MIN_LEAD,
        team_id=team_id,
        project_ids=list(project_ids),
        texts=list(texts),
        limit=limit,
        sample=SAMPLE,
        max_count=MAX_COUNTED,
        documents=documents,
        turns=turns,
    )


async def read_texts(
    conn: Conn,
    project_ids: Sequence[UUID],
    lexemes: Sequence[str],
    leading: Sequence[str],
    ranking: Ranking,
    mean_words: float,
    *,
    whole: bool,
    turns: bool,
) -> list[WordsOfText]:
    """What the observations of the projects, or their `turns`, have of the words. Without `whole` only what has a leading word; of
    a word that many turns have, the newest that a search may score.
    """
    return await (WORDS_OF_TURNS if turns else WORDS_OF_OBSERVATIONS).all(
        conn,
        project_ids=list(project_ids),
        lexemes=list(lexemes),
        quoted=[quote_lexeme(lexeme) for lexeme in lexemes],
        any=" | ".join(map(quote_lexeme, leading)),
        weights=list(_EVEN_WEIGHTS if turns else WEIGHTS),
        k1=ranking.k1,
        b=ranking.b,
        mean_words=mean_words,
        whole=whole,
        most=MAX_TURNS,
    )
