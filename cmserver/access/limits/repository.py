"""All SQL on buckets and counters. The month is the calendar's in UTC, and by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.access.limits.model import Bucket, Stored, Used
from cmserver.base.sql import Conn, Query

OWNS = {"rate_limits", "usage_counters"}

# Rows are taken in the order of their ids, so that two processes never wait for each other. `now()` is when the transaction began:
# one that then waited for another's may come with an earlier time, and refills nothing. What was taken was taken since the bucket
# was last refilled, so it is poured out first: a bucket that was full has been refilling since.
TAKE = Query(
    Bucket,
    """
    INSERT INTO rate_limits AS r (id, team_id, per_minute, tokens, refilled_at)
    SELECT u.id, %(team_id)s, u.per_minute, greatest(-u.per_minute, u.per_minute - u.taken), now()
      FROM unnest(%(ids)s::uuid[], %(per_minute)s::int[], %(taken)s::bigint[]) AS u (id, per_minute, taken)
     ORDER BY u.id
    ON CONFLICT (id) DO UPDATE
       SET per_minute = excluded.per_minute,
           tokens = greatest(
               -excluded.per_minute,
               least(excluded.per_minute,
                     least(excluded.per_minute, r.tokens) - (excluded.per_minute - excluded.tokens)
                     + excluded.per_minute / 60.0 * greatest(0, extract(epoch FROM excluded.refilled_at - r.refilled_at)))),
           refilled_at = greatest(r.refilled_at, excluded.refilled_at)
     WHERE r.team_id = %(team_id)s
    RETURNING id, tokens
    """,
)

COUNT = Query(
    int,
    """
    INSERT INTO usage_counters AS c (team_id, month, kind, api_key_id, amount)
    SELECT %(team_id)s, date_trunc('month', now() AT TIME ZONE 'UTC'), u.kind, u.id, u.amount
      FROM unnest(%(ids)s::uuid[], %(kinds)s::text[], %(amounts)s::bigint[]) AS u (id, kind, amount)
     ORDER BY u.kind, u.id
    ON CONFLICT (team_id, month, kind, api_key_id) DO UPDATE SET amount = c.amount + excluded.amount, updated_at = now()
     WHERE c.team_id = %(team_id)s
    """,
)

# Not worth waiting for: a key that somebody is just changing is marked the next time.
MARK_USED = Query(
    int,
    """
    WITH used AS (
        SELECT id FROM api_keys
         WHERE team_id = %(team_id)s AND id = ANY (%(ids)s)
           AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
           FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE api_keys k SET last_used_at = now() FROM used WHERE k.id = used.id AND k.team_id = %(team_id)s
    """,
)

STORED = Query(
    Stored,
    """
    SELECT api_key_id, amount AS events FROM usage_counters
     WHERE team_id = %(team_id)s AND month = date_trunc('month', now() AT TIME ZONE 'UTC')::date AND kind = 'events'
    """,
)

USED = Query(
    Used,
    """
    WITH month AS MATERIALIZED (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') AS since)
    SELECT m.since AT TIME ZONE 'UTC' AS since, c.requests, c.events
      FROM month m
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(amount) FILTER (WHERE kind = 'requests'), 0)::bigint AS requests,
               coalesce(sum(amount) FILTER (WHERE kind = 'events'), 0)::bigint AS events
          FROM usage_counters
         WHERE team_id = %(team_id)s AND month = m.since::date
           AND (%(api_key_id)s::uuid IS NULL OR api_key_id = %(api_key_id)s)) c
    """,
)


async def take(conn: Conn, team_id: UUID, taken: Mapping[UUID, tuple[int, int]]) -> dict[UUID, float]:
    """Refill the buckets of these ids (requests per minute, requests taken) and pour out what was taken; what is left."""
    left = await TAKE.all(
        conn,
        team_id=team_id,
        ids=list(taken),
        per_minute=[per_minute for per_minute, _ in taken.values()],
        taken=[amount for _, amount in taken.values()],
    )
    return {bucket.id: bucket.tokens for bucket in left}


async def count(conn: Conn, team_id: UUID, amounts: Sequence[tuple[UUID, str, int]]) -> None:
    """Add to this month's counters: key, kind, amount."""
    await COUNT.run(
        conn,
        team_id=team_id,
        ids=[key for key, _, _ in amounts],
        kinds=[kind for _, kind, _ in amounts],
        amounts=[amount for _, _, amount in amounts],
    )


async def mark_used(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> None:
    """These keys were used, now."""
    await MARK_USED.run(conn, team_id=team_id, ids=list(ids))


async def stored(conn: Conn, team_id: UUID) -> dict[UUID, int]:
    """The events of this month, by key."""
    return {one.api_key_id: one.events for one in await STORED.all(conn, team_id=team_id)}


async def used(conn: Conn, team_id: UUID, *, api_key_id: UUID | None) -> Used:
    """Of the team since the month began; or of one of its keys."""
    return await USED.one(conn, team_id=team_id, api_key_id=api_key_id)
