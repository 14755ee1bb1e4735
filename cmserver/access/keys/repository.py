"""All SQL that makes, shows and ends keys. `access.repository` looks them up for whoever comes in."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from psycopg import errors

from cmserver.access.keys.model import Grant, Key
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn, Jsonb, Query

OWNS = {"api_keys"}

INSERT = Query(
    Key,
    """
    INSERT INTO api_keys (id, key_hash, team_id, project_id, name, actor_id, scopes, expires_at, requests_per_minute,
                          events_per_month)
    VALUES (%(id)s, %(key_hash)s, %(team_id)s, %(project_id)s, %(name)s, %(actor_id)s, %(scopes)s, %(expires_at)s,
            %(requests_per_minute)s, %(events_per_month)s)
    RETURNING id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
              coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
    """,
)

BY_ID = Query(
    Key,
    """
    SELECT id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
           coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
      FROM api_keys WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

# NO KEY: nothing refers to a key, and what looks one up need not wait.
LOCK = Query(
    Key,
    """
    SELECT id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
           coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
      FROM api_keys WHERE id = %(id)s AND team_id = %(team_id)s FOR NO KEY UPDATE
    """,
)

LOCK_OF_ACTOR = Query(
    Key,
    """
    SELECT id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
           coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
      FROM api_keys
     WHERE team_id = %(team_id)s AND actor_id = %(actor_id)s AND revoked_at IS NULL
     ORDER BY id FOR NO KEY UPDATE
    """,
)

NEWEST = Query(
    Key,
    """
    SELECT id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
           coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
      FROM api_keys
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
       AND (%(active)s::boolean IS NULL OR %(active)s = (revoked_at IS NULL AND coalesce(expires_at > now(), true)))
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """,
    prepare=False,
)

REVOKE = Query(
    Key,
    """
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    RETURNING id, name, team_id, project_id, actor_id, scopes, requests_per_minute, events_per_month, last_used_at, expires_at,
              coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
    """,
)

REPLACE = Query(
    int,
    """
    UPDATE api_keys
       SET expires_at = least(expires_at, now() + make_interval(secs => %(overlap_seconds)s)), replaced_by = %(successor)s,
           updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

# What a rotation has made goes on where the old key stopped, however often that happens.
COUNT_AS = Query(
    int,
    """
    UPDATE api_keys k SET counts_as = coalesce(o.counts_as, o.id) FROM api_keys o
     WHERE k.id = %(successor)s AND k.team_id = %(team_id)s AND o.id = %(id)s AND o.team_id = %(team_id)s
    """,
)

IN_DAYS = Query(datetime, "SELECT now() + make_interval(days => %(days)s)")


async def insert(conn: Conn, key_id: UUID, team_id: UUID, *, key_hash: str, name: str, grant: Grant) -> Key:
    try:
        return await INSERT.one(
            conn,
            id=key_id,
            key_hash=key_hash,
            team_id=team_id,
            project_id=grant.project_id,
            name=name,
            actor_id=grant.actor_id,
            scopes=Jsonb(grant.scopes),
            expires_at=grant.expires_at,
            requests_per_minute=grant.requests_per_minute,
            events_per_month=grant.events_per_month,
        )
    except errors.ForeignKeyViolation as error:  # deleted since it was named
        raise NotFound("There is no such project.") from error


async def by_id(conn: Conn, team_id: UUID, key_id: UUID) -> Key | None:
    return await BY_ID.first(conn, id=key_id, team_id=team_id)


async def lock(conn: Conn, team_id: UUID, key_id: UUID) -> Key | None:
    return await LOCK.first(conn, id=key_id, team_id=team_id)


async def lock_of_actor(conn: Conn, team_id: UUID, actor_id: str) -> list[Key]:
    """The keys of that actor that are not revoked."""
    return await LOCK_OF_ACTOR.all(conn, team_id=team_id, actor_id=actor_id)


async def newest(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    active: bool | None,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
) -> list[Key]:
    """Newest first, of one project when it is given. `active`: neither revoked nor expired, or one of them."""
    return await NEWEST.all(
        conn, team_id=team_id, project_id=project_id, active=active, before=before, before_id=before_id, limit=limit
    )


async def revoke(conn: Conn, team_id: UUID, key_id: UUID) -> Key:
    return await REVOKE.one(conn, id=key_id, team_id=team_id)


async def replace(conn: Conn, team_id: UUID, key_id: UUID, *, successor: UUID, overlap_seconds: int) -> None:
    """The old key ends after the overlap, or sooner when it would have anyway; its successor goes on with its usage."""
    await REPLACE.run(conn, id=key_id, team_id=team_id, successor=successor, overlap_seconds=overlap_seconds)
    await COUNT_AS.run(conn, id=key_id, team_id=team_id, successor=successor)


async def in_days(conn: Conn, days: int) -> datetime:
    """That many days from now, by the database's clock."""
    return await IN_DAYS.one(conn, days=days)
