"""All SQL on the sentences of turns. A row begins with a trigger of its turn, and goes with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec import structs

from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.base.text import quote_lexeme
from cmserver.sessions.turns.sentences.model import (
    CHAIN_NEARNESS,
    ClaimedTurn,
    DueTurn,
    LaterWords,
    NearTurn,
    PlacedTurn,
    Pointer,
    TurnSentences,
)

OWNS = {"turn_sentences"}

_MOST_CHARS, _MOST_OUTPUTS = 64_000, 50
"""How many outputs of a turn are read, the newest; a larger one is not."""
_MOST_BEYOND = 100
"""At most this many more turns are read to find the ends of chains."""

# The newest first; then those of which another model was asked, which is read from both ends of an index.
CLAIM = Query(
    ClaimedTurn,
    """
    WITH due AS (
        SELECT turn_id FROM turn_sentences WHERE due_at <= now() ORDER BY turn_id DESC LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ), older AS (
        SELECT turn_id FROM turn_sentences
         WHERE model_id < %(model_id)s AND due_at IS NULL ORDER BY model_id DESC, turn_id DESC LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ), other AS (
        SELECT turn_id FROM turn_sentences
         WHERE model_id > %(model_id)s AND %(model_id)s > 0 AND due_at IS NULL
         ORDER BY model_id, turn_id LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ), chosen AS (
        SELECT turn_id FROM due UNION ALL SELECT turn_id FROM older UNION ALL SELECT turn_id FROM other LIMIT %(most)s
    )
    UPDATE turn_sentences s SET due_at = now() + make_interval(secs => %(lease_seconds)s)
      FROM chosen WHERE s.turn_id = chosen.turn_id
    RETURNING s.turn_id, s.due_at
    """,
)

# Only of events of the turn's time payloads are read, which are large: so they stand outside.
DUE = Query(
    DueTurn,
    """
    SELECT s.turn_id, s.due_at, t.prompt, t.reply, b.reply AS reply_before, t.own_line,
           (SELECT string_agg(a.reply, E'\n\n') FROM turns a
             WHERE a.server_session_id = t.server_session_id AND a.agent_id IS NOT NULL AND a.created_at >= t.created_at
               AND a.created_at < n.at) AS by_agents,
           ARRAY(SELECT jsonb_build_object(
                            'tool', e.payload -> 'tool_name',
                            'response', coalesce(e.payload -> 'tool_response', e.payload -> 'tool_output'))::text
                   FROM (SELECT e.payload, e.occurred_at
                           FROM agent_events e
                          WHERE t.reply IS NOT NULL AND e.project_id = t.project_id AND e.server_session_id = t.server_session_id
                            AND e.size_chars <= %(most_chars)s
                            AND time_of_event(e.occurred_at, e.received_at) >= t.created_at
                            AND time_of_event(e.occurred_at, e.received_at) < n.at
                         OFFSET 0) e
                  WHERE jsonb_typeof(e.payload -> 'tool_name') = 'string'
                  ORDER BY e.occurred_at DESC LIMIT %(most_outputs)s) AS outputs
      FROM turn_sentences s
      JOIN turns t ON t.id = s.turn_id
      LEFT JOIN turns b ON b.server_session_id = t.server_session_id AND b.prompt_number = t.prompt_number - 1
     CROSS JOIN LATERAL (SELECT coalesce(min(l.created_at), 'infinity') AS at FROM turns l
                          WHERE l.server_session_id = t.server_session_id AND l.prompt_number > t.prompt_number) n
     WHERE s.turn_id = ANY(%(ids)s)
    """,
)

# Turns are locked before their sentences, as by whoever changes or deletes a turn.
STORE_LINES = Query(
    int,
    """
    UPDATE turns t SET borrowed = n.borrowed
      FROM jsonb_to_recordset(%(rows)s) AS n(turn_id uuid, due_at timestamptz, borrowed integer[])
      JOIN turn_sentences s ON s.turn_id = n.turn_id AND s.due_at = n.due_at
     WHERE t.id = n.turn_id AND t.borrowed <> n.borrowed
    """,
)

# Returns those that changed; what had no text was emptied when its turn changed.
STORE = Query(
    UUID,
    """
    WITH stored AS (
        UPDATE turn_sentences s
           SET due_at = NULL, texts = n.texts, of_user = n.of_user, model_id = n.model_id,
               vectors = decode(n.vectors, 'hex'),
               words = ARRAY(SELECT strip(search_words(t.search_language, told.text))
                               FROM unnest(n.texts) WITH ORDINALITY AS told (text, place) ORDER BY told.place)
          FROM jsonb_to_recordset(%(rows)s) AS n(
               turn_id uuid, due_at timestamptz, texts text[], of_user smallint, model_id integer, vectors text)
          JOIN turns t ON t.id = n.turn_id
          JOIN turn_sentences b ON b.turn_id = n.turn_id
         WHERE s.turn_id = n.turn_id AND s.due_at = n.due_at
        RETURNING s.turn_id, b.texts = '{}' OR (b.texts, b.vectors) IS DISTINCT FROM (s.texts, s.vectors) AS is_changed
    )
    SELECT turn_id FROM stored WHERE is_changed
    """,
)

# Whoever points in a project waits for whoever does: each reads what the other has written.
LOCK_PROJECT = Query(str, "SELECT pg_advisory_xact_lock(hashtextextended('pointers ' || %(project_id)s::text, 0))::text")


# The turns themselves, those that may be pointed to from them, and the newest of the project.
TO_POINT = Query(
    PlacedTurn,
    """
    SELECT s.turn_id, t.created_at, t.number, s.texts, s.model_id, s.vectors, s.later_ids, s.later_places, s.nearness
      FROM turn_sentences s JOIN turns t ON t.id = s.turn_id
     WHERE s.project_id = %(project_id)s AND s.texts <> '{}'
       AND s.turn_id IN (SELECT unnest(%(ids)s::uuid[])
                          UNION ALL
                        (SELECT DISTINCT l.id
                           FROM unnest(%(ids)s::uuid[]) AS given (id)
                           JOIN turns o ON o.id = given.id AND o.project_id = %(project_id)s
                          CROSS JOIN LATERAL (SELECT n.id FROM turns n
                                               WHERE n.project_id = %(project_id)s AND (n.created_at, n.id) > (o.created_at, o.id)
                                               ORDER BY n.created_at, n.id LIMIT %(most)s) l
                          ORDER BY l.id DESC LIMIT %(most)s)
                          UNION ALL
                         (SELECT n.id FROM turns n WHERE n.project_id = %(project_id)s
                           ORDER BY n.created_at DESC, n.id DESC LIMIT %(most)s))
    """,
)

SAVE_POINTERS = Query(
    int,
    """
    UPDATE turn_sentences s SET later_ids = n.later_ids, later_places = n.later_places, nearness = n.nearness
      FROM jsonb_to_recordset(%(rows)s) AS n(turn_id uuid, later_ids uuid[], later_places smallint[], nearness real[])
     WHERE s.turn_id = n.turn_id AND cardinality(s.texts) = cardinality(n.nearness)
    """,
)

# Only forward, and only to what is still there and in the same project.
POINTERS = Query(
    Pointer,
    """
    SELECT t.number, p.place::int - 1 AS place, s.texts[p.place] AS text, l.number AS later_number,
           p.later_place::int AS later_place, coalesce(p.nearness, 0) AS nearness
      FROM turns t
      JOIN turn_sentences s ON s.turn_id = t.id
     CROSS JOIN LATERAL unnest(s.later_ids, s.later_places, s.nearness) WITH ORDINALITY
                        AS p (later_id, later_place, nearness, place)
      JOIN turns l ON l.id = p.later_id AND l.team_id = t.team_id AND l.project_id = t.project_id
     WHERE t.number = ANY(%(numbers)s::bigint[]) AND t.team_id = %(team_id)s
       AND (l.created_at, l.number) > (t.created_at, t.number) AND s.texts[p.place] IS NOT NULL
    """,
)


# For each word at most `most` turns are looked at. Through the view, as what has words is looked up elsewhere, too.
NEAR = Query(
    NearTurn,
    """
    WITH asked AS MATERIALIZED (
        SELECT a.quoted::tsquery AS word, a.weight, 1::bigint << (a.place::int - 1) AS bit
          FROM unnest(%(quoted)s::text[], %(weights)s::float8[]) WITH ORDINALITY AS a (quoted, weight, place)
    ), found AS MATERIALIZED (
        SELECT f.id, sum(a.weight) AS weight
          FROM asked a
         CROSS JOIN LATERAL (SELECT t.id FROM turns_in_team t
                              WHERE t.project_id = %(project_id)s AND t.text_search @@ a.word LIMIT %(most)s) f
         GROUP BY f.id ORDER BY weight DESC, f.id DESC LIMIT %(limit)s
    )
    SELECT t.id, t.number, t.created_at, t.ended_at, t.files, s.texts, s.of_user, s.model_id, s.vectors,
           ARRAY(SELECT coalesce((SELECT bit_or(a.bit) FROM asked a WHERE told.words @@ a.word), 0)
                   FROM unnest(s.words) WITH ORDINALITY AS told (words, place) ORDER BY told.place) AS shared
      FROM (SELECT id FROM found UNION SELECT unnest(%(near_ids)s::uuid[])) chosen
      JOIN turns t ON t.id = chosen.id AND t.team_id = %(team_id)s
      JOIN turn_sentences s ON s.turn_id = t.id AND s.team_id = t.team_id
     WHERE t.server_session_id IS DISTINCT FROM %(session_id)s::uuid AND s.texts <> '{}'
    """,
    prepare=False,
)


async def claim(conn: Conn, model_id: int, limit: int, lease_seconds: float) -> list[DueTurn]:
    """Take up to `limit` turns in hand whose sentences are to be written, or were written without this model (0 for none)."""
    claimed = await CLAIM.all(conn, model_id=model_id, most=limit, lease_seconds=lease_seconds)
    return (
        await DUE.all(conn, ids=[row.turn_id for row in claimed], most_chars=_MOST_CHARS, most_outputs=_MOST_OUTPUTS)
        if claimed
        else []
    )


async def store(conn: Conn, rows: Sequence[TurnSentences]) -> list[UUID]:
    """Store the sentences of turns that have not changed since they were claimed; returns those with another text or vector."""
    stored = Jsonb(list(rows))
    await STORE_LINES.run(conn, rows=stored)
    return await STORE.all(conn, rows=stored)


@query("SELECT DISTINCT project_id FROM turn_sentences WHERE turn_id = ANY(%(turn_ids)s) ORDER BY project_id")
async def projects(conn: Conn, turn_ids: Collection[UUID]) -> list[UUID]:
    """The projects of the turns, in the order in which they are to be locked."""
    ...


async def to_point(conn: Conn, project_id: UUID, turn_ids: Collection[UUID], most: int) -> list[PlacedTurn]:
    """Those of the turns that are the project's, up to `most` that follow, and its `most` newest.

    Nobody else points in the project until the transaction ends.
    """
    await LOCK_PROJECT.run(conn, project_id=project_id)
    return await TO_POINT.all(conn, project_id=project_id, ids=list(turn_ids), most=most)


async def save_pointers(conn: Conn, rows: Sequence[LaterWords]) -> None:
    if rows:
        await SAVE_POINTERS.run(conn, rows=Jsonb(list(rows)))


async def pointers(conn: Conn, team_id: UUID, numbers: Collection[int]) -> list[Pointer]:
    """What the sentences of the turns with these numbers point to, each the end of its chain, as far as its links are near."""
    steps: dict[tuple[int, int], Pointer] = {}
    read, unread = set[int](), set(numbers)
    while unread and len(read) < len(numbers) + _MOST_BEYOND:
        rows = await POINTERS.all(conn, team_id=team_id, numbers=list(unread))
        steps |= {(row.number, row.place): row for row in rows}
        read |= unread
        unread = {row.later_number for row in rows} - read
    ends: list[Pointer] = []
    for (number, _), step in steps.items():
        if number in numbers:
            end = step
            while (following := steps.get((end.later_number, end.later_place))) and following.nearness >= CHAIN_NEARNESS:
                end = following
            ends.append(structs.replace(step, later_number=end.later_number, later_place=end.later_place))
    return ends


@query("""
    SELECT count(*) FROM (SELECT FROM turns_in_team
                           WHERE project_id = %(project_id)s AND team_id = %(team_id)s LIMIT %(most)s) AS counted
    """)
async def count_turns(conn: Conn, team_id: UUID, project_id: UUID, most: int) -> int:
    """How many turns the project has, counted up to `most`."""
    ...


async def near(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    session_id: UUID | None,
    *,
    lexemes: Sequence[str],
    weights: Sequence[float],
    near_ids: Collection[UUID],
    most: int,
    limit: int,
) -> list[NearTurn]:
    """These turns of the project, and the `limit` ones with the heaviest of up to 63 lexemes; none of the session itself.

    Of turns with a lexeme at most `most` are looked at.
    """
    return await NEAR.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        session_id=session_id,
        quoted=[quote_lexeme(lexeme) for lexeme in lexemes],
        weights=list(weights),
        near_ids=list(near_ids),
        most=most,
        limit=limit,
    )
