"""All SQL on embeddings and the models they are made with.

A row belongs to an observation, to a turn that has ended or to an entity, and begins with a trigger of it: nobody inserts them here
but who gives a new model what was there before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from psycopg import sql

from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.embeddings import model as embedding_model
from cmserver.observations.model import LIVE, LIVE_O

OWNS = {"embedding_models", "observation_embeddings"}

_INDEX = "embeddings_near_"

_WAITS: LiteralString = "(embedding IS NULL OR is_outdated)"
_WAITS_E: LiteralString = "(e.embedding IS NULL OR e.is_outdated)"
_CLAIMED: LiteralString = f"""
     WHERE (e.observation_id = n.id OR e.turn_id = n.id OR e.entity_id = n.id) AND e.model_id = %(model_id)s
       AND {_WAITS_E} AND e.next_at = n.claimed_until
"""
"""The rows that a worker has in hand, among the given `n`."""

# -- whether there can be vectors

# Whether vectors can be stored.
IS_POSSIBLE = Query(
    bool,
    """
    SELECT format_type(atttypid, NULL) <> 'real[]' FROM pg_attribute
     WHERE attrelid = 'observation_embeddings'::regclass AND attname = 'embedding'
    """,
)
HAS_EXTENSION = Query(bool, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')")
LOCK_EMBEDDINGS = Query(int, "LOCK TABLE observation_embeddings IN ACCESS EXCLUSIVE MODE")
# No row has a value yet: without the extension no model is wanted.
MAKE_VECTORS = Query(int, "ALTER TABLE observation_embeddings ALTER COLUMN embedding TYPE halfvec USING embedding::halfvec")

# -- models

# All models, the current one before the one that is building.
MODELS = Query(
    embedding_model.EmbeddingModel, f"SELECT {embedding_model.MODEL_COLUMNS} FROM embedding_models ORDER BY state = 'building', id"
)

# The one that search uses; None without one, or without pgvector.
CURRENT = Query(
    embedding_model.EmbeddingModel, f"SELECT {embedding_model.MODEL_COLUMNS} FROM embedding_models WHERE state = 'current'"
)

# Every transaction that writes an observation reads the models. Whoever changes them waits for those that have, and the next ones
# wait for him: so no observation is written for the models of before, unseen by who looks for what is missing of the new one.
LOCK_MODELS = Query(int, "LOCK TABLE embedding_models IN ACCESS EXCLUSIVE MODE")
SHORT_LOCK = Query(str, "SELECT set_config('lock_timeout', %(milliseconds)s, true)")


# From the newest down: what is young is looked for most. One worker at a time; the others find the row locked, and no batch. NO KEY
# because whoever writes an observation refers to the row, and does not wait. What is just being deleted is waited for and left out.
BACKFILL = Query(
    bool,
    f"""
    WITH model AS (
        SELECT id, coalesce(backfilled_to, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS below FROM embedding_models
         WHERE id = %(model_id)s AND state <> 'retired' AND NOT is_backfilled FOR NO KEY UPDATE SKIP LOCKED
    ), older AS (
        SELECT id, team_id, project_id, expires_at FROM observations
         WHERE id < (SELECT below FROM model) AND {LIVE} ORDER BY id DESC LIMIT %(most)s FOR KEY SHARE
    ), ended AS (
        SELECT id, team_id, project_id FROM turns
         WHERE id < (SELECT below FROM model) AND ended_at IS NOT NULL ORDER BY id DESC LIMIT %(most)s FOR KEY SHARE
    ), named AS (
        SELECT id, team_id, project_id FROM entities
         WHERE id < (SELECT below FROM model) AND is_found_by_meaning(type, notes) ORDER BY id DESC LIMIT %(most)s FOR KEY SHARE
    ), batch AS (
        SELECT id, id AS observation_id, NULL::uuid AS turn_id, NULL::uuid AS entity_id, team_id, project_id, expires_at FROM older
         UNION ALL
        SELECT id, NULL, id, NULL, team_id, project_id, NULL FROM ended
         UNION ALL
        SELECT id, NULL, NULL, id, team_id, project_id, NULL FROM named
         ORDER BY id DESC LIMIT %(most)s
    ), added AS (
        INSERT INTO observation_embeddings (observation_id, turn_id, entity_id, model_id, team_id, project_id, expires_at)
        SELECT batch.observation_id, batch.turn_id, batch.entity_id, model.id, batch.team_id, batch.project_id, batch.expires_at
          FROM batch CROSS JOIN model
        ON CONFLICT DO NOTHING
    )
    UPDATE embedding_models m
       SET backfilled_to = coalesce((SELECT id FROM batch ORDER BY id LIMIT 1), m.backfilled_to),
           is_backfilled = (SELECT count(*) FROM batch) < %(most)s
      FROM model WHERE m.id = model.id
    RETURNING m.is_backfilled
    """,
)

CLEAR = Query(
    int,
    """
    WITH model AS (
        SELECT id, coalesce(backfilled_to, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS below FROM embedding_models
         WHERE id = %(model_id)s AND state = 'retired' FOR NO KEY UPDATE SKIP LOCKED
    ), batch AS (
        (SELECT observation_id AS id FROM observation_embeddings
          WHERE observation_id < (SELECT below FROM model) AND model_id = (SELECT id FROM model)
          ORDER BY observation_id DESC LIMIT %(most)s)
         UNION ALL
        (SELECT turn_id FROM observation_embeddings
          WHERE turn_id < (SELECT below FROM model) AND model_id = (SELECT id FROM model)
          ORDER BY turn_id DESC LIMIT %(most)s)
         UNION ALL
        (SELECT entity_id FROM observation_embeddings
          WHERE entity_id < (SELECT below FROM model) AND model_id = (SELECT id FROM model)
          ORDER BY entity_id DESC LIMIT %(most)s)
         ORDER BY id DESC LIMIT %(most)s
    ), gone AS (
        DELETE FROM observation_embeddings e USING batch, model WHERE e.observation_id = batch.id AND e.model_id = model.id
    ), gone_of_turns AS (
        DELETE FROM observation_embeddings e USING batch, model WHERE e.turn_id = batch.id AND e.model_id = model.id
    ), gone_of_entities AS (
        DELETE FROM observation_embeddings e USING batch, model WHERE e.entity_id = batch.id AND e.model_id = model.id
    )
    UPDATE embedding_models m
       SET backfilled_to = coalesce((SELECT id FROM batch ORDER BY id LIMIT 1), m.backfilled_to)
      FROM model WHERE m.id = model.id
    RETURNING (SELECT count(*) FROM batch) AS cleared
    """,
)

FORGET = Query(
    int,
    """
    DELETE FROM embedding_models m
     WHERE m.id = %(model_id)s AND m.state = 'retired'
       AND NOT EXISTS (SELECT FROM observation_embeddings e WHERE e.model_id = m.id)
    """,
)

# -- work, of all teams


# Two statements of one transaction: when the texts are read, the rows are locked, and whoever changes a text from now on makes its
# row wait anew, with another moment. The rows are found again by their place, which cannot change while they are locked: by their
# ids, of which each has one of three, all rows were read for each of them. A row that was changed just before it was locked is not
# found at its new place, and stays due.
CLAIM = Query(
    embedding_model.ClaimedEmbedding,
    f"""
    WITH due AS (
        SELECT ctid FROM observation_embeddings
         WHERE model_id = %(model_id)s AND {_WAITS} AND next_at <= now()
         ORDER BY next_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
    )
    UPDATE observation_embeddings e SET next_at = now() + make_interval(secs => %(lease_seconds)s)
      FROM due WHERE e.ctid = due.ctid
    RETURNING coalesce(e.observation_id, e.turn_id, e.entity_id) AS id, e.next_at AS claimed_until
    """,
)

TEXTS = Query(
    embedding_model.ObservationText,
    """
    SELECT id AS observation_id, title, subtitle, narrative, facts, concepts, summary, content
      FROM observations WHERE id = ANY(%(ids)s)
    """,
)

TURN_TEXTS = Query(embedding_model.TurnText, "SELECT id AS turn_id, prompt, reply FROM turns WHERE id = ANY(%(ids)s)")

ENTITY_TEXTS = Query(embedding_model.EntityText, "SELECT id AS entity_id, name, type, notes FROM entities WHERE id = ANY(%(ids)s)")

# float8[] becomes a halfvec by assignment, where the column is one; real[] would refuse numbers that are next to nothing.
STORE = Query(
    int,
    f"""
    UPDATE observation_embeddings e SET embedding = n.embedding, is_outdated = false, embedded_at = now(), last_error = NULL
      FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, claimed_until timestamptz, embedding float8[])
    {_CLAIMED}
    """,
)


FAIL = Query(
    int,
    f"""
    UPDATE observation_embeddings e
       SET attempts = e.attempts + 1, last_error = %(reason)s,
           next_at = CASE WHEN e.attempts + 1 >= %(given_up_after)s::integer THEN 'infinity'::timestamptz
                          ELSE now() + least(%(longest_seconds)s, %(first_seconds)s * 2 ^ least(e.attempts, 20))
                                     * (0.5 + random() / 2) * interval '1 second' END
      FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, claimed_until timestamptz)
    {_CLAIMED}
    """,
)

GIVE_BACK = Query(
    int,
    f"""
    UPDATE observation_embeddings e SET next_at = now()
      FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, claimed_until timestamptz)
    {_CLAIMED}
    """,
)


# -- of one team, or of one project of it

# What was there before the model, and has no row yet, waits as well.
WAITING = Query(
    embedding_model.WaitingCount,
    f"""
    SELECT m.id AS model_id, count(e.last_error) AS failing,
           count(e.model_id) + CASE WHEN m.is_backfilled THEN 0 ELSE (
               SELECT count(*) FROM observations o
                WHERE o.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR o.project_id = %(project_id)s::uuid)
                  AND o.id < coalesce(m.backfilled_to, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                  AND {LIVE_O}
                  AND NOT EXISTS (SELECT FROM observation_embeddings w WHERE w.observation_id = o.id AND w.model_id = m.id)
           ) + (
               SELECT count(*) FROM turns t
                WHERE t.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR t.project_id = %(project_id)s::uuid)
                  AND t.id < coalesce(m.backfilled_to, 'ffffffff-ffff-ffff-ffff-ffffffffffff') AND t.ended_at IS NOT NULL
                  AND NOT EXISTS (SELECT FROM observation_embeddings w WHERE w.turn_id = t.id AND w.model_id = m.id)
           ) + (
               SELECT count(*) FROM entities n
                WHERE n.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR n.project_id = %(project_id)s::uuid)
                  AND n.id < coalesce(m.backfilled_to, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                  AND is_found_by_meaning(n.type, n.notes)
                  AND NOT EXISTS (SELECT FROM observation_embeddings w WHERE w.entity_id = n.id AND w.model_id = m.id)
           ) END AS waiting
      FROM embedding_models m
      LEFT JOIN observation_embeddings e
        ON e.model_id = m.id AND {_WAITS_E} AND e.team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR e.project_id = %(project_id)s::uuid)
     WHERE m.state <> 'retired'
     GROUP BY m.id
    """,
    prepare=False,
)


# -- indexes of large teams


# The approximate indexes, and what a CREATE has left that was broken off.
INDEXES = Query(
    embedding_model.VectorIndex,
    """
    SELECT c.relname::text AS name, i.indisvalid AS is_valid,
           coalesce((SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'lists'), 0) AS lists
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
     WHERE i.indrelid = 'observation_embeddings'::regclass AND c.relname LIKE 'embeddings\\_near\\_%%'
    """,
)

LISTS = Query(
    int,
    """
    SELECT option_value::int
      FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN pg_options_to_table(c.reloptions)
     WHERE i.indrelid = 'observation_embeddings'::regclass AND c.relname = %(name)s AND i.indisvalid AND option_name = 'lists'
    """,
)

TRY_TO_INDEX = Query(bool, "SELECT pg_try_advisory_lock(%(key)s)")
END_INDEXING = Query(bool, "SELECT pg_advisory_unlock(%(key)s)")
# What finding the middles of the lists takes, for as many and as long ones as there can be. By one process: several would share
# memory that containers have little of.
ROOM_TO_INDEX = Query(
    str,
    "SELECT set_config('maintenance_work_mem', '768MB', false) || set_config('max_parallel_maintenance_workers', '0', false)",
)
USUAL_MEMORY = Query(int, "RESET maintenance_work_mem")
USUAL_PROCESSES = Query(int, "RESET max_parallel_maintenance_workers")
_INDEXING = 7_237_415_014  # one number for all cmserver processes on a database


async def ensure_vectors(conn: Conn) -> bool:
    """Make the embeddings' column one of vectors if the extension came after it; whether it is one. As owner, at the start."""
    if await IS_POSSIBLE.one(conn):
        return True
    if not await HAS_EXTENSION.one(conn):
        return False
    await LOCK_EMBEDDINGS.run(conn)
    if not await IS_POSSIBLE.one(conn):
        await MAKE_VECTORS.run(conn)
    return True


async def lock_models(conn: Conn, milliseconds: int) -> None:
    """Nobody writes an observation, or has written one and not committed, until the transaction ends.

    `psycopg.errors.LockNotAvailable` when it takes longer than that: all who write wait as long.
    """
    await SHORT_LOCK.run(conn, milliseconds=str(milliseconds))
    await LOCK_MODELS.run(conn)


@query(f"""
    INSERT INTO embedding_models (provider, model, base_url, asked_dimensions, dimensions, document_prefix, state, switched_at)
    VALUES (%(provider)s, %(model)s, %(base_url)s, %(asked_dimensions)s, %(dimensions)s, %(document_prefix)s, %(state)s,
            CASE WHEN %(state)s::text = 'current' THEN now() END)
    RETURNING {embedding_model.MODEL_COLUMNS}
    """)
async def add_model(
    conn: Conn,
    *,
    provider: str,
    model: str,
    base_url: str | None,
    asked_dimensions: int | None,
    dimensions: int | None,
    document_prefix: str,
    state: embedding_model.State,
) -> embedding_model.EmbeddingModel: ...


@query("UPDATE embedding_models SET state = 'retired', backfilled_to = NULL WHERE id = %(model_id)s AND state <> 'retired'")
async def retire(conn: Conn, model_id: int) -> None: ...


@query("UPDATE embedding_models SET state = 'current', switched_at = now() WHERE id = %(model_id)s AND state = 'building'")
async def promote(conn: Conn, model_id: int) -> None:
    """The one that is building becomes the current one, which must be retired already."""
    ...


@query("""
    UPDATE embedding_models SET pulled_percent = %(percent)s
     WHERE id = %(model_id)s AND pulled_percent IS DISTINCT FROM %(percent)s
    """)
async def set_pulled_percent(conn: Conn, model_id: int, percent: int | None) -> None:
    """`percent` is None when nothing is downloaded any more."""
    ...


@query("UPDATE embedding_models SET dimensions = %(dimensions)s WHERE id = %(model_id)s AND dimensions IS NULL")
async def set_dimensions(conn: Conn, model_id: int, dimensions: int) -> None:
    """Store the length of the model's vectors, which its first answer has shown."""
    ...


async def backfill(conn: Conn, model_id: int, limit: int) -> bool:
    """Queue up to `limit` older rows for the model; returns whether more are left, False while another process does it."""
    return await BACKFILL.first(conn, model_id=model_id, most=limit) is False


async def clear(conn: Conn, model_id: int, limit: int) -> bool:
    """Delete up to `limit` rows of a retired model, and at last the model; returns whether there is more to do."""
    cleared = await CLEAR.first(conn, model_id=model_id, most=limit)
    if cleared is None:
        return False
    return cleared == limit or await FORGET.run(conn, model_id=model_id) == 0


@query(f"""
    SELECT count(*) >= %(limit)s FROM (
        SELECT FROM observation_embeddings
         WHERE model_id = %(model_id)s AND {_WAITS} AND next_at < 'infinity' LIMIT %(limit)s) AS waiting
    """)
async def is_ahead(conn: Conn, model_id: int, limit: int) -> bool:
    """Whether `limit` texts wait for the model already."""
    ...


# What was given up does not wait.
@query(f"""
    SELECT EXISTS (SELECT FROM observation_embeddings
                    WHERE model_id = %(model_id)s AND {_WAITS} AND next_at < 'infinity')
    """)
async def has_waiting(conn: Conn, model_id: int) -> bool: ...


async def claim(conn: Conn, model_id: int, limit: int, lease_seconds: float) -> list[tuple[embedding_model.ClaimedEmbedding, str]]:
    """Take up to `limit` that are due, longest due first, with the texts that are embedded of them."""
    claimed = {row.id: row for row in await CLAIM.all(conn, model_id=model_id, most=limit, lease_seconds=lease_seconds)}
    texts = (
        {text.observation_id: embedding_model.document_text(text) for text in await TEXTS.all(conn, ids=list(claimed))}
        if claimed
        else {}
    )
    if turn_ids := claimed.keys() - texts.keys():
        texts |= {text.turn_id: embedding_model.turn_document(text) for text in await TURN_TEXTS.all(conn, ids=list(turn_ids))}
    if entity_ids := claimed.keys() - texts.keys():
        texts |= {
            text.entity_id: embedding_model.entity_document(text) for text in await ENTITY_TEXTS.all(conn, ids=list(entity_ids))
        }
    return [(claimed[id_], text) for id_, text in texts.items()]


async def store(conn: Conn, model_id: int, vectors: Sequence[embedding_model.NewVector]) -> int:
    """Store the vectors whose claim holds: the text has not changed, and no other worker has claimed it. Returns their count."""
    return await STORE.run(conn, model_id=model_id, rows=Jsonb(list(vectors)))


# Made before the observation was stored, whose row waits since the same transaction.
@query("""
    UPDATE observation_embeddings SET embedding = %(vector)s::halfvec, embedded_at = now()
     WHERE observation_id = %(observation_id)s AND model_id = %(model_id)s AND team_id = %(team_id)s AND embedding IS NULL
    """)
async def fill(conn: Conn, team_id: UUID, observation_id: UUID, model_id: int, vector: str) -> None:
    """Store the vector of a new observation, in pgvector's text form, in the transaction that stores the observation."""
    ...


async def fail(
    conn: Conn,
    model_id: int,
    claimed: Sequence[embedding_model.ClaimedEmbedding],
    reason: str,
    *,
    first_seconds: float,
    longest_seconds: float,
    given_up_after: int | None = None,
) -> None:
    """Record the failure: the claimed embeddings are due again later, or never after their last attempt."""
    await FAIL.run(
        conn,
        model_id=model_id,
        rows=Jsonb(list(claimed)),
        reason=reason,
        first_seconds=first_seconds,
        longest_seconds=longest_seconds,
        given_up_after=given_up_after,
    )


async def give_back(conn: Conn, model_id: int, claimed: Sequence[embedding_model.ClaimedEmbedding]) -> None:
    """Make the claimed embeddings due again at once."""
    await GIVE_BACK.run(conn, model_id=model_id, rows=Jsonb(list(claimed)))


# It is there again: what failed need not wait for its time. What was given up has its reason in itself.
@query(f"""
    UPDATE observation_embeddings SET next_at = now()
     WHERE model_id = %(model_id)s AND {_WAITS} AND last_error IS NOT NULL AND next_at > now() AND next_at < 'infinity'
    """)
async def hurry(conn: Conn, model_id: int) -> None:
    """Make all embeddings of the model due now that failed and were not given up."""
    ...


async def waiting(conn: Conn, team_id: UUID, project_id: UUID | None) -> dict[int, embedding_model.WaitingCount]:
    """How much of the team, or of its project, waits for a vector, by model; retired models are left out."""
    return {row.model_id: row for row in await WAITING.all(conn, team_id=team_id, project_id=project_id)}


@unprepared_query(f"""
    SELECT coalesce(last_error, '') AS reason, count(DISTINCT coalesce(observation_id, turn_id, entity_id)) AS observations,
           count(DISTINCT coalesce(observation_id, turn_id, entity_id)) FILTER (WHERE next_at = 'infinity') AS given_up
      FROM observation_embeddings
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND {_WAITS} AND last_error IS NOT NULL
     GROUP BY last_error ORDER BY observations DESC, reason
    """)
async def reasons(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[embedding_model.FailureReason]:
    """Why texts of the team, or of its project, could not be embedded; the most frequent reason first."""
    ...


@unprepared_query(f"""
    UPDATE observation_embeddings SET next_at = now(), attempts = 0
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
       AND {_WAITS} AND last_error IS NOT NULL
    """)
async def retry(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Make all failed embeddings of the team, or its project, due now; returns their count."""
    ...


def index_name(team_id: UUID, model_id: int) -> str:
    return f"{_INDEX}{team_id.hex}_{model_id}"


async def lists(conn: Conn, team_id: UUID, model_id: int) -> int | None:
    """Into how many lists the team's approximate index of that model's vectors puts them; None without one that can be used."""
    return await LISTS.first(conn, name=index_name(team_id, model_id))


@query("""
    SELECT p.team_id, sum(e.vectors)::bigint AS vectors
      FROM (SELECT project_id, count(*) AS vectors FROM observation_embeddings
             WHERE model_id = %(model_id)s AND embedding IS NOT NULL GROUP BY project_id) AS e
      JOIN projects p ON p.id = e.project_id
     GROUP BY p.team_id HAVING sum(e.vectors) > %(more_than)s
    """)
async def large_teams(conn: Conn, model_id: int, more_than: int) -> list[embedding_model.LargeTeam]:
    """The teams with more vectors than that."""
    ...


async def try_to_index(conn: Conn) -> bool:
    """Whether nobody else makes indexes now. Holds until `end_indexing`, or the end of the connection."""
    if not await TRY_TO_INDEX.one(conn, key=_INDEXING):
        return False
    await ROOM_TO_INDEX.run(conn)
    return True


async def end_indexing(conn: Conn) -> None:
    await END_INDEXING.run(conn, key=_INDEXING)
    await USUAL_MEMORY.run(conn)
    await USUAL_PROCESSES.run(conn)


async def create_index(conn: Conn, team_id: UUID, model_id: int, dimensions: int, lists: int) -> None:
    """Beside everything that goes on; not in a transaction. Of a million vectors that takes about a minute."""
    statement = sql.SQL(
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON observation_embeddings"
        " USING ivfflat ((embedding::halfvec({dimensions})) halfvec_cosine_ops) WITH (lists = {lists})"
        " WHERE team_id = {team} AND model_id = {model}"
    )
    await conn.execute(
        statement.format(
            name=sql.Identifier(index_name(team_id, model_id)),
            dimensions=sql.Literal(dimensions),
            lists=sql.Literal(lists),
            team=sql.Literal(str(team_id)),
            model=sql.Literal(model_id),
        )
    )


async def drop_index(conn: Conn, name: str) -> None:
    """Beside everything that goes on; not in a transaction."""
    await conn.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
