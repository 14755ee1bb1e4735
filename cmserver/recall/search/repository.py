"""The SQL of search: lexemes, BM25 and vector distance.

Words are looked up through the views `..._in_team`, because @@ cannot use an index under a row policy. A query that also names
the team lets PostgreSQL check the view's condition once instead of per row.

Queries by words or scope are prepared, since it takes a millisecond to parse them. In a large scope each call is planned, since the
planner needs the values to estimate the rows. In a small one that takes longer than the query itself. So the first page without
filters is planned once a connection and team (`plan_once`), and reads by one index of its scope, which may be a small part of a
large table. LEXEMES, which comes first, says which it is for the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import LiteralString, TypeVar, cast
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query
from cmserver.base.text import quote_lexeme
from cmserver.observations.embedding.model import QueryVector
from cmserver.observations.model import MEMORY_CONDITIONS
from cmserver.recall.model import FilePaths
from cmserver.recall.search.model import (
    Filters,
    NearText,
    RankedRow,
    Ranking,
    ScopeStatistics,
    SearchRequest,
    WordSample,
)

OWNS: set[str] = set()

Row = TypeVar("Row")

SAMPLE = 200
"""How many of the newest documents are sampled for word frequencies."""
JUDGED = 40
"""So many documents of either arm are in the first tier. More change nothing where the neighbours of the best are there, too."""
LENDING = 20
"""The documents beside so many of the first by words are in the first tier: the answer is often next to what has the words."""
LOOKED_AHEAD = 4
"""Of so many times as many as are needed the kinds are looked at first."""
PAGE_EXTRA = 20
"""How many more candidates than a page are scored: some say the same as others."""
MAX_COUNTED = 60_001
SMALL_SCOPE = 2_000
"""A scope of up to this many documents is read whole: that is quicker than an index of all projects' words."""
_KNOWN_LANGUAGES = ["english", "german", "french", "spanish", "italian", "portuguese", "dutch"]
"""Languages of queries that are told from each other by their stop words."""
_JUDGED_CHARS = 1_000
"""So much of a query is looked at for its language."""
_MIN_STOP_WORDS, _MIN_LEAD = 3, 2
"""A query is in another language than the projects when it has so many stop words of it, and so many more than of theirs."""
MAX_TURNS = 1_500
"""So many of the newest turns that have a word of the query are scored."""
_PLANNED = {"whole": "true", "limit": JUDGED, "sample": SAMPLE, "max_count": MAX_COUNTED, "max_turns": MAX_TURNS}
"""The parameters that matter to a plan, and their values in what is planned once."""

WEIGHTS = (0.46, 0.69, 0.77, 1.0)
"""Weight of a word by field: D concepts and files, C narrative, B subtitle and facts (as 1), A title."""

# In the order of the text, so that the limit keeps the first. Projects may differ in language, and a query from its projects: then
# the stop words of the query's own language are left out, which would be rare words here. It is the language that has the most of
# the query's words as stop words, and clearly more than the projects' own. Two pairs of characters of a script without spaces count
# as one word; a character without a place is one of several in a row, of which the pairs say more.
LEXEMES = Query(
    str,
    """
    WITH languages AS MATERIALIZED (
        SELECT DISTINCT search_language AS language FROM projects
         WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))
           AND set_config('plan_cache_mode', %(plans)s, true) || set_config('enable_seqscan', %(scans)s, true)
               || set_config('enable_bitmapscan', %(scans)s, true) <> ''
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
    ), lexemes AS MATERIALIZED (
        SELECT u.lexeme, min(u.positions[1]) AS place
          FROM languages l
         CROSS JOIN LATERAL unnest(search_words(l.language, %(text)s)) u
         WHERE u.positions IS NOT NULL
           AND NOT EXISTS (SELECT FROM left_out o WHERE o.language = l.language AND o.lexeme = u.lexeme)
         GROUP BY u.lexeme
    )
    SELECT lexeme
      FROM (SELECT lexeme, place, sum(CASE WHEN length(lexeme) = 2 AND is_unsegmented(lexeme) THEN 0.5 ELSE 1 END)
                                  OVER (ORDER BY place, lexeme) AS words FROM lexemes) counted
     WHERE words <= %(limit)s
     ORDER BY place, lexeme
    """,
)

PLAN_EACH_CALL = Query(
    str,
    """
    SELECT set_config('plan_cache_mode', 'force_custom_plan', true) || set_config('enable_seqscan', 'on', true)
        || set_config('enable_bitmapscan', 'on', true)
    """,
)
"""Until the end of the transaction."""

_SEES_SHARED: LiteralString = "NOT EXISTS (SELECT FROM projects WHERE id = ANY(%(project_ids)s::uuid[]) AND isolated)"
"""An isolated project, which is searched alone, sees nothing that others share. Asked once a query."""
_IN_SCOPE: LiteralString = (
    f"(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]) OR (o.scope = 'team' AND {_SEES_SHARED}))"
)

# What the user has marked, once a query and language: reading 64 words takes longer than the rest of a row. A phrase of stop words
# only has no lexemes and is no condition.
_LANGUAGES: LiteralString = "(SELECT DISTINCT search_language AS language FROM projects)"
_MARKED: LiteralString = f"""(SELECT array_agg(CASE WHEN numnode(query) > 0 THEN query END ORDER BY language)
           FROM (SELECT language, search_marked(language, %(must)s) AS query FROM {_LANGUAGES} l OFFSET 0) marked)
         [array_position((SELECT array_agg(language ORDER BY language) FROM {_LANGUAGES} l), o.search_language)]"""
_BOUND: LiteralString = f"(%(must)s = '' OR (o.content_search @@ {_MARKED}) IS NOT FALSE)"

# For observations and turns.
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

_WANTED_TURN: LiteralString = _WANTED_OF_ALL + " AND (%(of_users)s::bool IS NOT TRUE OR o.agent_id IS NULL)"

# File lists are rarely long, and read only in rows that the index returns.
_WANTED: LiteralString = (
    _WANTED_OF_ALL
    + """
   AND (%(kinds)s::text[] IS NULL OR o.kind = ANY(%(kinds)s::text[]))
   AND (%(types)s::text[] IS NULL OR (o.kind <> 'summary' AND o.type = ANY(%(types)s::text[])))
   AND (%(concepts)s::text[] IS NULL OR EXISTS (SELECT FROM unnest(o.concepts) c WHERE lower(c) = ANY(%(concepts)s::text[])))
   AND (%(files)s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) f,
                               unnest(%(files)s::text[], %(files_in)s::uuid[]) AS n (path, project_id)
                    WHERE (f = n.path OR n.path = '' OR starts_with(f, rtrim(n.path, '/') || '/'))
                      AND (n.project_id IS NULL OR n.project_id = o.project_id)))
   AND (%(file_prefixes)s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) f,
                               unnest(%(file_prefixes)s::text[], %(file_prefixes_in)s::uuid[]) AS n (path, project_id)
                    WHERE starts_with(f, n.path) AND (n.project_id IS NULL OR n.project_id = o.project_id)))
   AND (%(entity_ids)s::uuid[] IS NULL
        OR EXISTS (SELECT FROM entity_mentions m
                    WHERE m.observation_id = o.id AND m.team_id = o.team_id AND m.entity_id = ANY(%(entity_ids)s::uuid[])))
   AND (%(file_parts)s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(coalesce(o.files_modified, '{}') || coalesce(o.files_read, '{}')) f,
                               unnest(%(file_parts)s::text[], %(file_parts_in)s::uuid[]) AS n (path, project_id)
                    WHERE strpos(f, n.path) > 0 AND (n.project_id IS NULL OR n.project_id = o.project_id)))
   AND """
    + MEMORY_CONDITIONS
)

_COUNT_WORDS: LiteralString = """
               (SELECT avg(content_words)::float8 FROM newest) AS words, (SELECT count(*) FROM newest) AS sampled,
               (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'observations'::regclass) AS rows,
               coalesce(cardinality(%(project_ids)s::uuid[]), (SELECT count(*)::int FROM projects WHERE team_id = %(team_id)s))
               AS projects,
               coalesce(%(turns)s::bigint, (SELECT CASE WHEN %(project_ids)s::uuid[] IS NULL OR c.turns < %(max_count)s THEN c.turns
                                                        ELSE (SELECT count(*) FROM (SELECT FROM turns_in_team
                                                                                     WHERE project_id = ANY(%(project_ids)s::uuid[])
                                                                                     LIMIT %(max_count)s) t) END
                                              FROM observation_counters c WHERE c.team_id = %(team_id)s), 0) AS turns
<counted>    )
    SELECT (SELECT count(*) FROM newest WHERE content_search @@ l.quoted::tsquery) AS found_in, s.sampled,
           coalesce(s.words, 1) AS words, s.documents, s.rows, s.projects, s.turns
      FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS l (quoted, place) CROSS JOIN scope s
     ORDER BY l.place
"""

# Turns of projects are counted only where the team has more than are compared one by one.
# The newest of each project and of the team's shared observations, each from the end of an index; then the newest of those. The ids
# come first: with the words in the same query, the planner sorts a whole project that it believes small. What is too large to be
# counted is estimated by how many of the team's numbers its newest have.
SAMPLED = Query(
    WordSample,
    f"""
    WITH newest AS MATERIALIZED (
        SELECT o.content_search, o.content_words, o.number
          FROM (SELECT n.id
                  FROM (SELECT p.* FROM unnest(%(project_ids)s::uuid[]) AS one(project_id)
                         CROSS JOIN LATERAL (
                               SELECT o.id, o.created_at FROM observations_in_team o
                                WHERE o.team_id = %(team_id)s AND o.project_id = one.project_id
                                ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s) p
                         UNION ALL
                        (SELECT o.id, o.created_at FROM observations_in_team o
                          WHERE o.team_id = %(team_id)s AND o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[])
                            AND {_SEES_SHARED}
                          ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s)) n
                 ORDER BY n.created_at DESC, n.id DESC LIMIT %(sample)s) chosen
          JOIN observations_in_team o ON o.id = chosen.id AND o.team_id = %(team_id)s
    ), counted AS MATERIALIZED (
        SELECT coalesce(%(documents)s::bigint,
                        (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                                WHERE o.team_id = %(team_id)s AND o.project_id = ANY(%(project_ids)s::uuid[])
                                                LIMIT %(max_count)s) p)
                      + (SELECT count(*) FROM (SELECT FROM observations_in_team o
                                                WHERE o.team_id = %(team_id)s AND o.scope = 'team'
                                                  AND {_SEES_SHARED}
                                                  AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) LIMIT %(max_count)s) s)
                       ) AS documents
    ), scope AS MATERIALIZED (
        SELECT CASE WHEN %(documents)s::bigint IS NULL AND documents >= %(max_count)s
                    THEN greatest(documents, (SELECT last_number FROM observation_counters WHERE team_id = %(team_id)s)
                                             * (SELECT count(*) FROM newest) / (SELECT max(number) - min(number) + 1 FROM newest))
                    ELSE documents END AS documents,
    """
    + _COUNT_WORDS.replace("<counted>", "          FROM counted\n"),
    prepare=True,
)

# The same for a whole team; the numbers that it gave to observations are its size.
SAMPLED_TEAM = Query(
    WordSample,
    """
    WITH newest AS MATERIALIZED (
        SELECT o.content_search, o.content_words FROM observations_in_team o
         WHERE o.team_id = %(team_id)s ORDER BY o.created_at DESC, o.id DESC LIMIT %(sample)s
    ), scope AS MATERIALIZED (
        SELECT coalesce((SELECT greatest(last_number - turns, 0) FROM observation_counters
                          WHERE team_id = %(team_id)s), 0) AS documents,
    """
    + _COUNT_WORDS.replace("<counted>", ""),
    prepare=True,
)

# Of a scope without observations: how common each word is among its newest turns.
SAMPLED_TURNS = Query(
    WordSample,
    """
    WITH turns AS MATERIALIZED (
        SELECT text_search, created_at FROM turns_in_team
         WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
         ORDER BY created_at DESC LIMIT %(sample)s
    )
    SELECT (SELECT count(*) FROM turns WHERE text_search @@ l.quoted::tsquery) AS found_in, (SELECT count(*) FROM turns) AS sampled,
           1::float8 AS words, %(turns)s::bigint AS documents, 0::float8 AS rows, %(projects)s::int AS projects,
           %(turns)s::bigint AS turns
      FROM unnest(%(quoted)s::text[]) WITH ORDINALITY AS l (quoted, place)
     ORDER BY l.place
    """,
    prepare=True,
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
_IN_SAME_SESSION: LiteralString = """
               CASE WHEN c.place <= %(judged)s AND o.server_session_id IS NOT NULL THEN ARRAY(
                    SELECT n.id FROM observations_in_team n
                     WHERE n.project_id = o.project_id AND n.server_session_id = o.server_session_id
                       AND (n.project_id = ANY(%(project_ids)s::uuid[]) OR n.scope = 'team' OR %(project_ids)s::uuid[] IS NULL)"""

_VECTORS: LiteralString = """observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND e.observation_id IS NOT NULL AND (e.expires_at IS NULL OR e.expires_at > now())"""
_OWN_VECTORS: LiteralString = f"""{_VECTORS}
               AND (%(project_ids)s::uuid[] IS NULL OR e.project_id = ANY(%(project_ids)s::uuid[]))"""

# The first `limit` by BM25, those that are `near`, and the neighbours of the very first, with the BM25 of each and of the documents
# beside it in its session. A word without a `known` count is counted in its hits, including those the filters exclude. With `whole`
# the scope is scanned instead of the word index, whose cost the planner underestimates for common words. What other projects share
# is a separate branch: one condition for both would read the rows of all projects. The mean and deviation of the BM25 come from how
# many documents have each word and what it counts in these, as if words were independent: a sample has no rare words.
_CANDIDATES: LiteralString = f"""
    WITH terms AS MATERIALIZED (
        SELECT place, quoted::tsquery AS word, known
          FROM unnest(%(quoted)s::text[], %(known)s::float8[]) WITH ORDINALITY AS t (quoted, known, place)
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.wanted, t.place, {_BM25} AS share
          FROM (SELECT o.id, o.created_at, o.content_words, o.content_search, <wanted> AS wanted
                  FROM observations_in_team o
                 WHERE (%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[]))
                   AND (%(whole)s OR o.content_search @@ %(any)s::tsquery)
                   AND (NOT %(whole)s OR (o.content_search @@ %(any)s::tsquery) IS TRUE)
                 UNION ALL
                SELECT o.id, o.created_at, o.content_words, o.content_search, <wanted>
                  FROM observations_in_team o
                 WHERE o.scope = 'team' AND {_SEES_SHARED} AND NOT o.project_id = ANY(%(project_ids)s::uuid[])
                   AND (o.content_search @@ %(any)s::tsquery) IS TRUE
                OFFSET 0) o
          JOIN terms t ON o.content_search @@ t.word
         CROSS JOIN LATERAL {_RANKS} r
    ), idfs AS MATERIALIZED (
        SELECT *, ln(1 + greatest(%(documents)s - documents + 0.5, 0.5) / (documents + 0.5)) AS idf,
               least((documents + 0.5) / (%(documents)s + 1), 1) AS part
          FROM (SELECT t.place, t.word, coalesce(t.known, count(p.id))::float8 AS documents, coalesce(avg(p.share), 0) AS mean,
                       coalesce(avg(p.share * p.share), 0) AS square
                  FROM terms t LEFT JOIN parts p ON p.place = t.place GROUP BY t.place, t.word, t.known) counted
    ), matched AS MATERIALIZED (
        SELECT p.id, p.created_at, p.wanted, round(sum(i.idf * p.share) * 1e9) / 1e9 AS bm25
          FROM parts p JOIN idfs i ON i.place = p.place GROUP BY p.id, p.created_at, p.wanted
    ), first AS MATERIALIZED (
        SELECT id, min(place) AS place, coalesce(min(place) FILTER (WHERE is_match) <= %(lending)s, false) AS is_lending
          FROM ((SELECT id, row_number() OVER (ORDER BY bm25 DESC, created_at DESC, id DESC) AS place, true AS is_match
                   FROM matched WHERE wanted ORDER BY bm25 DESC, created_at DESC, id DESC LIMIT %(limit)s)
                 UNION ALL SELECT id, place, false FROM unnest(%(near)s::uuid[]) WITH ORDINALITY AS near (id, place)) found
         GROUP BY id
    ), beside AS MATERIALIZED (
        SELECT c.id, c.place, c.is_lending, o.kind = 'summary' AS is_secondary, o.created_at,{_IN_SAME_SESSION}
                       AND (n.created_at, n.id) < (o.created_at, o.id)
                     ORDER BY n.created_at DESC, n.id DESC LIMIT 2) END AS before,{_IN_SAME_SESSION}
                       AND (n.created_at, n.id) > (o.created_at, o.id)
                     ORDER BY n.created_at, n.id LIMIT 2) END AS after
          FROM first c JOIN observations_in_team o ON o.id = c.id
    ), judged AS MATERIALIZED (
        SELECT id, place, is_secondary, created_at, before[1] AS before, after[1] AS after FROM beside
         UNION ALL
        SELECT o.id, l.place, o.kind = 'summary', o.created_at, l.before, l.after
          FROM (SELECT DISTINCT ON (id) *
                  FROM (SELECT before[1] AS id, place, before[2] AS before, id AS after FROM beside WHERE is_lending
                         UNION ALL SELECT after[1], place, id, after[2] FROM beside WHERE is_lending) lent
                 WHERE NOT EXISTS (SELECT FROM first f WHERE f.id = lent.id)
                 ORDER BY id, place) l
          JOIN observations_in_team o ON o.id = l.id
         WHERE <wanted>
    ), scored AS MATERIALIZED (
        SELECT id, bm25 FROM matched
         UNION ALL
        SELECT o.id, round(sum(t.idf * {_BM25}) * 1e9) / 1e9
          FROM observations_in_team o JOIN idfs t ON o.content_search @@ t.word CROSS JOIN LATERAL {_RANKS} r
         WHERE o.id = ANY(ARRAY(SELECT unnest(%(unmatched)s::uuid[]) EXCEPT SELECT id FROM matched))
         GROUP BY o.id
    )
"""
_HITS: LiteralString = """
    SELECT j.id, coalesce(own.bm25, 0) AS bm25, coalesce(before.bm25, 0) + coalesce(after.bm25, 0) AS neighbours,
           num_nonnulls(j.before, j.after) AS neighbour_count, j.place::int AS place, j.is_secondary, j.created_at,
           <cosine>::float8 AS cosine, NULL::float8[] AS found_in, 0::float8 AS mean, 0::float8 AS deviation, 0 AS matching,
           0::float8 AS cosine_mean, 0::float8 AS cosine_deviation, 0::float8 AS background
      FROM judged j
      LEFT JOIN scored own ON own.id = j.id
      LEFT JOIN scored before ON before.id = j.before
      LEFT JOIN scored after ON after.id = j.after
      <vectors>
     UNION ALL
    SELECT NULL, coalesce((SELECT max(bm25) FROM matched), 0), 0, 0, 0, false, NULL, NULL,
           array_agg(documents ORDER BY place), sum(part * idf * mean),
           sqrt(greatest(sum(part * idf * idf * square - (part * idf * mean) ^ 2), 0)),
           (SELECT count(*)::int FROM matched WHERE wanted), <sample>
      FROM idfs
"""
_WITHOUT_MEANING: LiteralString = _HITS.replace("<cosine>", "NULL").replace("<vectors>", "").replace("<sample>", "0, 0, 0")
_WITH_MEANING: LiteralString = (
    _HITS.replace("<cosine>", "1 - (e.embedding <=> %(vector)s::halfvec)")
    .replace(
        "<vectors>",
        "LEFT JOIN observation_embeddings e ON e.observation_id = CASE WHEN NOT j.id = ANY(%(near)s::uuid[]) THEN j.id END"
        " AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s",
    )
    .replace("<sample>", "(SELECT mean FROM sample), (SELECT deviation FROM sample), (SELECT background FROM sample)")
)
# As many of each project, or all would be of one: from where the index has the project on, so that nothing else is read.
_SAMPLED_COSINES: LiteralString = f"""
        SELECT coalesce(avg(n.cosine), 0)::float8 AS mean, coalesce(stddev_pop(n.cosine), 0)::float8 AS deviation,
               coalesce(sum(n.cosine), 0)::float8 / (count(*) + 2) AS background
          FROM (SELECT id FROM projects
                 WHERE team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR id = ANY(%(project_ids)s::uuid[]))
                 ORDER BY md5(id::text) LIMIT %(sample)s) p
         CROSS JOIN LATERAL (SELECT 1 - (e.embedding <=> %(vector)s::halfvec) AS cosine, e.project_id FROM {_VECTORS}
                                AND e.project_id >= p.id ORDER BY e.project_id LIMIT greatest(%(sample)s / %(projects)s::int, 1)) n
         WHERE n.project_id = p.id
"""
_SAMPLE: LiteralString = f"""
    , sample AS MATERIALIZED ({_SAMPLED_COSINES})
"""

RANK = Query(RankedRow, _CANDIDATES.replace("<wanted>", "true") + _WITHOUT_MEANING, prepare=True)
RANK_WANTED = Query(RankedRow, _CANDIDATES.replace("<wanted>", f"({_WANTED})") + _WITHOUT_MEANING, prepare=True)
RANK_BY_MEANING = Query(RankedRow, _CANDIDATES.replace("<wanted>", "true") + _SAMPLE + _WITH_MEANING, prepare=True)
RANK_WANTED_BY_MEANING = Query(RankedRow, _CANDIDATES.replace("<wanted>", f"({_WANTED})") + _SAMPLE + _WITH_MEANING, prepare=True)
"""With the cosines of those that are not near, and what a sample of the scope says of them."""

_IS_SECONDARY: LiteralString = """(p.reply IS NULL OR p.agent_id IS NOT NULL
            OR EXISTS (SELECT FROM observations_in_team n
                        WHERE n.project_id = p.project_id AND n.server_session_id = p.server_session_id
                          AND n.turn_number = p.number AND n.kind <> 'summary')) AS is_secondary"""

# The newest turns that have any of the words, by what these weigh among the observations; and those that are `near`, whatever words
# they have. The row without an id has the statistics, as above, of turns: there may be no observations.
_TURNS: LiteralString = f"""
    WITH terms AS MATERIALIZED (
        SELECT quoted::tsquery AS word, idf, place
          FROM unnest(%(quoted)s::text[], %(idfs)s::float8[]) WITH ORDINALITY AS t (quoted, idf, place)
    ), scope AS MATERIALIZED (
        SELECT coalesce(greatest(avg(length(n.text_search)), 1), 1)::float8 AS mean_words,
               (SELECT count(*) FROM (SELECT FROM turns_in_team
                                       WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
                                       LIMIT %(max_turns)s) c) AS turns
          FROM (SELECT text_search FROM turns_in_team
                 WHERE %(project_ids)s::uuid[] IS NULL OR project_id = ANY(%(project_ids)s::uuid[])
                 LIMIT %(sample)s) n
    ), parts AS MATERIALIZED (
        SELECT o.id, o.created_at, o.wanted, t.place, t.idf,
               {TIMES} * (%(k1)s + 1) / ({TIMES} + %(k1)s * (1 - %(b)s + %(b)s * o.words / s.mean_words)) AS share
          FROM (SELECT o.id, o.created_at, o.content_search, length(o.content_search) AS words, {_WANTED_TURN} AS wanted
                  FROM (SELECT p.*, p.text_search AS content_search FROM turns_in_team p
                         WHERE p.text_search @@ %(any)s::tsquery
                           AND (%(project_ids)s::uuid[] IS NULL OR p.project_id = ANY(%(project_ids)s::uuid[]))
                         ORDER BY p.created_at DESC LIMIT %(max_turns)s) o
                OFFSET 0) o
          JOIN terms t ON o.content_search @@ t.word
         CROSS JOIN LATERAL (SELECT ts_rank('{{1,1,1,1}}', o.content_search, t.word)::float8 AS flat OFFSET 0) r
         CROSS JOIN scope s
    ), matched AS MATERIALIZED (
        SELECT id, created_at, round(sum(idf * share) * 1e9) / 1e9 AS bm25 FROM parts WHERE wanted GROUP BY id, created_at
    ), shares AS MATERIALIZED (
        SELECT idf, avg(share) AS mean, avg(share * share) AS square,
               least((count(*) + 0.5) / ((SELECT turns FROM scope) + 1), 1) AS part
          FROM parts GROUP BY place, idf
    ), best AS MATERIALIZED (
        SELECT id, created_at, bm25, row_number() OVER (ORDER BY bm25 DESC, created_at DESC, id DESC)::int AS place FROM matched
    ), sample AS MATERIALIZED (
        <sample>
    )
    SELECT b.id, b.created_at, {_IS_SECONDARY}, b.bm25, b.place, <cosine>::float8 AS cosine, 0::float8 AS mean,
           0::float8 AS deviation, 0 AS matching, 0::float8 AS cosine_mean, 0::float8 AS cosine_deviation, 0::float8 AS background
      FROM best b JOIN turns_in_team p ON p.id = b.id <vectors>
     WHERE b.place <= %(limit)s OR b.id = ANY(%(near)s::uuid[])
     UNION ALL
    SELECT p.id, p.created_at, {_IS_SECONDARY}, 0, %(limit)s::int, NULL, 0, 0, 0, 0, 0, 0
      FROM turns_in_team p
     WHERE p.id = ANY(%(near)s::uuid[]) AND NOT EXISTS (SELECT FROM best b WHERE b.id = p.id)
     UNION ALL
    SELECT NULL, NULL, false, coalesce((SELECT max(bm25) FROM matched), 0), 0, NULL,
           coalesce(sum(part * idf * mean), 0),
           coalesce(sqrt(greatest(sum(part * idf * idf * square - (part * idf * mean) ^ 2), 0)), 0),
           (SELECT count(*)::int FROM matched),
           (SELECT mean FROM sample), (SELECT deviation FROM sample), (SELECT background FROM sample)
      FROM shares
"""
TURNS = Query(
    RankedRow,
    _TURNS.replace("<cosine>", "NULL")
    .replace("<vectors>", "")
    .replace("<sample>", "SELECT 0::float8 AS mean, 0::float8 AS deviation, 0::float8 AS background"),
    prepare=True,
)
TURNS_BY_MEANING = Query(
    RankedRow,
    _TURNS.replace("<cosine>", "1 - (e.embedding <=> %(vector)s::halfvec)")
    .replace(
        "<vectors>",
        "LEFT JOIN observation_embeddings e ON e.turn_id = CASE WHEN NOT b.id = ANY(%(near)s::uuid[]) THEN b.id END"
        " AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s",
    )
    .replace("<sample>", _SAMPLED_COSINES.replace("e.observation_id", "e.turn_id")),
    prepare=True,
)

_SHARED: LiteralString = f"""UNION ALL
            SELECT e.observation_id, e.embedding <=> %(vector)s::halfvec
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE o.scope = 'team' AND NOT o.project_id = ANY(%(project_ids)s::uuid[]) AND e.embedding IS NOT NULL
               AND {_SEES_SHARED}"""

# Exact: computes the distance of every vector in the scope. The distance is a value, not an ORDER BY of the operator, so that
# no index is used.
_NEAREST: LiteralString = f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM {_OWN_VECTORS}
             <shared>) near
     ORDER BY distance, id DESC LIMIT %(limit)s
"""
_NEAREST_WANTED: LiteralString = """
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
              FROM observations_in_team o
              JOIN observation_embeddings e ON e.observation_id = o.id AND e.model_id = %(model_id)s AND e.team_id = %(team_id)s
             WHERE e.embedding IS NOT NULL AND <wanted>) near
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# Of the nearest so many those that pass the filters. Where these are as many as the limit, it is exact, too, and reads a few rows
# in place of the scope's, which takes ten times as long as comparing its vectors.
_NEAREST_WANTED_AHEAD: LiteralString = f"""
    SELECT id, 1 - distance AS cosine
      FROM (SELECT id, distance
              FROM (SELECT e.observation_id AS id, e.embedding <=> %(vector)s::halfvec AS distance
                      FROM {_OWN_VECTORS}
                     <shared>) compared
             ORDER BY distance, id DESC LIMIT %(ahead)s) near
     WHERE (SELECT <wanted> FROM observations_in_team o WHERE o.id = near.id)
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# By the index of the team's vectors (observations/embedding/indexes.py), nearest first up to the limit. PostgreSQL uses it only
# for the index's own expression: the vectors' dimensions, its team and its model. Shared observations are compared exactly.
_NEAREST_BY_INDEX: LiteralString = f"""
    SELECT id, 1 - distance AS cosine
      FROM ((SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
               FROM {_OWN_VECTORS}
              ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s)
             <shared>) near
     ORDER BY distance, id DESC LIMIT %(limit)s
"""

# The filters are checked row by row during the index scan: a scalar subquery is never turned into a join.
_NEAREST_WANTED_BY_INDEX: LiteralString = """
    SELECT id, 1 - distance AS cosine
      FROM (SELECT e.observation_id AS id, halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec AS distance
              FROM observation_embeddings e
             WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL
               AND (SELECT <wanted> FROM observations_in_team o WHERE o.id = e.observation_id)
             ORDER BY halfvec(e.embedding, %(dimensions)s::int, true) <=> %(vector)s::halfvec LIMIT %(limit)s) near
     ORDER BY distance, id DESC
"""


def _find_observations(text: LiteralString) -> LiteralString:
    return text.replace("<shared>", _SHARED).replace("<wanted>", f"{_IN_SCOPE} AND {_WANTED}")


def _find_turns(text: LiteralString) -> LiteralString:
    """The same of turns, none of which is shared."""
    wanted = "(%(project_ids)s::uuid[] IS NULL OR o.project_id = ANY(%(project_ids)s::uuid[])) AND " + _WANTED_TURN
    wanted = wanted.replace("o.content_search", "o.text_search")
    of_turns = text.replace("e.observation_id", "e.turn_id").replace("observations_in_team", "turns_in_team")
    return of_turns.replace("<shared>", "").replace("<wanted>", wanted)


NEAREST = Query(NearText, _find_observations(_NEAREST), prepare=True)
NEAREST_WANTED = Query(NearText, _find_observations(_NEAREST_WANTED), prepare=True)
NEAREST_WANTED_AHEAD = Query(NearText, _find_observations(_NEAREST_WANTED_AHEAD), prepare=True)
NEAREST_BY_INDEX = Query(NearText, _find_observations(_NEAREST_BY_INDEX), prepare=False)
NEAREST_WANTED_BY_INDEX = Query(NearText, _find_observations(_NEAREST_WANTED_BY_INDEX), prepare=False)
NEAREST_TURNS = Query(NearText, _find_turns(_NEAREST), prepare=True)
NEAREST_TURNS_WANTED = Query(NearText, _find_turns(_NEAREST_WANTED), prepare=True)
NEAREST_TURNS_BY_INDEX = Query(NearText, _find_turns(_NEAREST_BY_INDEX), prepare=False)
NEAREST_TURNS_WANTED_BY_INDEX = Query(NearText, _find_turns(_NEAREST_WANTED_BY_INDEX), prepare=False)

# Until the end of the transaction. The index scan continues through further lists until enough rows pass the filters. `sorts` = off
# makes the planner choose the index, whose cost it cannot estimate.
BY_INDEX = Query(
    str,
    """
    SELECT set_config('ivfflat.iterative_scan', 'relaxed_order', true) || set_config('ivfflat.probes', %(probes)s, true)
        || set_config('enable_sort', %(sorts)s, true)
    """,
)


def is_planned_once(request: SearchRequest, project_ids: Sequence[UUID] | None) -> bool:
    """Whether plans that are made once do for the request, if its scope is small."""
    is_one_scope = project_ids is None or len(project_ids) == 1
    return is_one_scope and request.after is None and not request.filters.are_any and request.limit + PAGE_EXTRA <= JUDGED


@lru_cache(maxsize=1_000)
def plan_once(query: Query[Row], team_id: UUID, *, is_team: bool) -> Query[Row]:
    """The query for the first page of a small scope of the team, its own or that of one project, whose plan does for all values.

    The team is named, so that each has a plan of its own: the planner estimates what the views have by the team it is made for.
    """
    text = f"-- {team_id}\n{query.text}"
    if is_team:
        text = text.replace("%(project_ids)s::uuid[]", "NULL::uuid[]")
    else:
        text = text.replace("%(project_ids)s::uuid[] IS NULL", "false")
        text = text.replace("= ANY(%(project_ids)s::uuid[])", "= (%(project_ids)s::uuid[])[1]")
    for name, value in _PLANNED.items():
        text = text.replace(f"%({name})s", str(value))
    return Query(query.row, cast("LiteralString", text), prepare=True)


def _planned(query: Query[Row], team_id: UUID, project_ids: Sequence[UUID] | None, *, once: bool) -> Query[Row]:
    return plan_once(query, team_id, is_team=project_ids is None) if once else query


async def lexemes(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, text: str, limit: int, *, once: bool = False
) -> list[str]:
    """The lexemes of the first `limit` different words of the text, as the search index has them.

    Words are stemmed, names whole and in parts; two pairs of characters of a script without spaces count as a word. `once` says for
    the whole transaction whether its queries are planned once.
    """
    return await LEXEMES.all(
        conn,
        plans="force_generic_plan" if once else "force_custom_plan",
        scans="off" if once else "on",
        known_languages=_KNOWN_LANGUAGES,
        judged_chars=_JUDGED_CHARS,
        min_stop_words=_MIN_STOP_WORDS,
        min_lead=_MIN_LEAD,
        team_id=team_id,
        project_ids=_listed(project_ids),
        text=text,
        limit=limit,
    )


async def plan_each_call(conn: Conn) -> None:
    """What follows in the transaction is planned for its values."""
    await PLAN_EACH_CALL.run(conn)


async def sampled(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID] | None,
    lexemes: Sequence[str],
    documents: int | None,
    turns: int | None,
    *,
    once: bool = False,
) -> list[WordSample]:
    """How common each of the lexemes is among the newest documents, in their order.

    `documents` and `turns` are how many the scope has, where it is known; otherwise those of a project are counted.
    """
    quoted = [quote_lexeme(lexeme) for lexeme in lexemes]
    words: dict[str, object] = {"project_ids": _listed(project_ids), "quoted": quoted, "sample": SAMPLE, "turns": turns}
    query = _planned(SAMPLED_TEAM if project_ids is None else SAMPLED, team_id, project_ids, once=once)
    return await query.all(conn, team_id=team_id, documents=documents, max_count=MAX_COUNTED, **words)


async def sampled_turns(
    conn: Conn,
    team_id: UUID,
    project_ids: Sequence[UUID] | None,
    lexemes: Sequence[str],
    turns: int,
    projects: int,
    *,
    once: bool = False,
) -> list[WordSample]:
    """The same among the newest of so many turns."""
    words: dict[str, object] = {"project_ids": _listed(project_ids), "quoted": [quote_lexeme(lexeme) for lexeme in lexemes]}
    query = _planned(SAMPLED_TURNS, team_id, project_ids, once=once)
    return await query.all(conn, sample=SAMPLE, turns=turns, projects=projects, **words)


async def rank(
    conn: Conn,
    team_id: UUID,
    request: SearchRequest,
    lexemes: Sequence[str],
    statistics: ScopeStatistics,
    ranking: Ranking,
    near_ids: Sequence[UUID],
    vector: QueryVector | None,
    limit: int,
    *,
    turns: bool = False,
    once: bool = False,
) -> list[RankedRow]:
    """The first `limit` observations, or `turns`, by their words, those of `near_ids`, and the statistics, in no order.

    With the `vector`, rows that are not near have cosines. The documents with a leading word are counted in the hits, unless a page
    before has done it.
    """
    quoted = [quote_lexeme(lexeme) for lexeme in lexemes]
    leading = quoted if turns else [quoted[place] for place in statistics.leading]
    by_pairs = statistics.by_pairs and not turns
    is_counted = request.after is None and not by_pairs
    values: dict[str, object] = {
        "team_id": team_id,
        "project_ids": _listed(request.project_ids),
        "any": " | ".join(map(" & ".join, combinations(leading, 2)) if by_pairs else leading),
        "quoted": quoted,
        "idfs": statistics.idfs,
        "known": [
            None if is_counted and place in statistics.leading else found_in for place, found_in in enumerate(statistics.found_in)
        ],
        "near": list(near_ids),
        "unmatched": list(near_ids) if by_pairs or len(leading) < len(quoted) else [],
        "weights": list(WEIGHTS),
        "k1": ranking.k1,
        "b": ranking.b,
        "documents": statistics.documents,
        "projects": max(statistics.projects, 1),
        "mean_words": statistics.mean_words,
        "judged": JUDGED if ranking.neighbours else 0,
        "lending": LENDING,
        "whole": statistics.documents <= SMALL_SCOPE,
        "sample": SAMPLE,
        "max_turns": MAX_TURNS,
        "limit": limit,
        **_filter_values(request.filters),
    }
    if vector is not None:
        values |= {"model_id": vector.model_id, "vector": vector.vector}
    if turns:
        query = TURNS_BY_MEANING if vector else TURNS
    elif request.filters.are_any:
        query = RANK_WANTED_BY_MEANING if vector else RANK_WANTED
    else:
        query = RANK_BY_MEANING if vector else RANK
    return await _planned(query, team_id, request.project_ids, once=once).all(conn, **values)


async def nearest(
    conn: Conn,
    team_id: UUID,
    request: SearchRequest,
    vector: QueryVector,
    limit: int,
    *,
    turns: bool = False,
    probes: int = 0,
    once: bool = False,
) -> list[NearText]:
    """The observations of the scope, or the `turns`, nearest to the vector that pass the filters.

    Exactly; with `probes` approximately, by at least so many lists of the team's index, which must exist.
    """
    values: dict[str, object] = {"team_id": team_id, "project_ids": _listed(request.project_ids), "limit": limit}
    values |= {"model_id": vector.model_id, "vector": vector.vector}
    if request.filters.are_any:
        values |= _filter_values(request.filters)
        exact, by_index = (
            (NEAREST_TURNS_WANTED, NEAREST_TURNS_WANTED_BY_INDEX) if turns else (NEAREST_WANTED, NEAREST_WANTED_BY_INDEX)
        )
    else:
        exact, by_index = (NEAREST_TURNS, NEAREST_TURNS_BY_INDEX) if turns else (NEAREST, NEAREST_BY_INDEX)
    if not probes:
        return await _planned(exact, team_id, request.project_ids, once=once).all(conn, **values)
    await BY_INDEX.run(conn, probes=str(probes), sorts="off")
    rows = await by_index.all(conn, **values, dimensions=vector.dimensions)
    await BY_INDEX.run(conn, probes=str(probes), sorts="on")
    return rows


async def nearest_ahead(conn: Conn, team_id: UUID, request: SearchRequest, vector: QueryVector, limit: int) -> list[NearText]:
    """Of the nearest `LOOKED_AHEAD` times `limit`, the first `limit` that pass the filters. As many are what `nearest` finds."""
    return await NEAREST_WANTED_AHEAD.all(
        conn,
        team_id=team_id,
        project_ids=_listed(request.project_ids),
        model_id=vector.model_id,
        vector=vector.vector,
        ahead=LOOKED_AHEAD * limit,
        limit=limit,
        **_filter_values(request.filters),
    )


def _filter_values(filters: Filters) -> dict[str, object]:
    values = msgspec.structs.asdict(filters)
    for name in ("files", "file_prefixes", "file_parts"):
        paths: FilePaths | None = values[name]
        values |= {name: paths and paths.paths, f"{name}_in": paths and paths.project_ids}
    return values


def _listed(project_ids: Sequence[UUID] | None) -> list[UUID] | None:
    return None if project_ids is None else list(project_ids)
