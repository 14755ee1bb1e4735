"""All SQL on buckets and counters. Months are calendar months in UTC by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query, query

OWNS = {"rate_limits", "usage_counters"}


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket. Negative when several processes admitted too many requests."""

    id: UUID
    tokens: float


class StoredEventCount(msgspec.Struct, frozen=True):
    """Events that a key has stored in this month."""

    api_key_id: UUID
    events: int


class MonthUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a key or team in this month."""

    since: datetime
    requests: int
    events: int


# Rows are locked in the order of their ids, against deadlocks. `now()` is when the transaction began: it may be earlier than the
# last refill, and then refills nothing. Tokens are subtracted before the refill, because they were taken since the last one.
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


STORED = Query(
    StoredEventCount,
    """
    SELECT api_key_id, amount AS events FROM usage_counters
     WHERE team_id = %(team_id)s AND month = date_trunc('month', now() AT TIME ZONE 'UTC')::date AND kind = 'events'
    """,
)


async def take(conn: Conn, team_id: UUID, taken: Mapping[UUID, tuple[int, int]]) -> dict[UUID, float]:
    """Refill the buckets of these ids (requests per minute, requests taken) and subtract; returns the tokens left."""
    buckets = await TAKE.all(
        conn,
        team_id=team_id,
        ids=list(taken),
        per_minute=[per_minute for per_minute, _ in taken.values()],
        taken=[amount for _, amount in taken.values()],
    )
    return {bucket.id: bucket.tokens for bucket in buckets}


async def count(conn: Conn, team_id: UUID, amounts: Sequence[tuple[UUID, str, int]]) -> None:
    """Add (key, kind, amount) to this month's counters."""
    await COUNT.run(
        conn,
        team_id=team_id,
        ids=[key for key, _, _ in amounts],
        kinds=[kind for _, kind, _ in amounts],
        amounts=[amount for _, _, amount in amounts],
    )


# SKIP LOCKED: a key that is being changed is marked the next time.
@query("""
    WITH used AS (
        SELECT id FROM api_keys
         WHERE team_id = %(team_id)s AND id = ANY (%(ids)s)
           AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
           FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE api_keys k SET last_used_at = now() FROM used WHERE k.id = used.id AND k.team_id = %(team_id)s
    """)
async def mark_used(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> None:
    """Set the time of these keys' last use to now."""
    ...


async def stored(conn: Conn, team_id: UUID) -> dict[UUID, int]:
    """The month's stored events by key."""
    return {row.api_key_id: row.events for row in await STORED.all(conn, team_id=team_id)}


@query("""
    WITH month AS MATERIALIZED (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') AS since)
    SELECT m.since AT TIME ZONE 'UTC' AS since, c.requests, c.events
      FROM month m
     CROSS JOIN LATERAL (
        SELECT coalesce(sum(amount) FILTER (WHERE kind = 'requests'), 0)::bigint AS requests,
               coalesce(sum(amount) FILTER (WHERE kind = 'events'), 0)::bigint AS events
          FROM usage_counters
         WHERE team_id = %(team_id)s AND month = m.since::date
           AND (%(api_key_id)s::uuid IS NULL OR api_key_id = %(api_key_id)s)) c
    """)
async def used(conn: Conn, team_id: UUID, *, api_key_id: UUID | None) -> MonthUsage:
    """Usage of the team in this month, or of one of its keys."""
    ...
