"""All SQL that makes, lists and ends keys. `access.repository` looks them up for authentication."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from msgspec.structs import asdict
from psycopg import errors

from cmserver.access.keys.model import Key, KeyGrant
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query

OWNS = {"api_keys"}

_COLUMNS: LiteralString = """
    id, name, team_id, project_id, actor_id, user_id, made_by, scopes, requests_per_minute, events_per_month, last_used_at,
    expires_at, coalesce(expires_at <= now(), false) AS expired, revoked_at, replaced_by, created_at, updated_at
"""

INSERT = Query(
    Key,
    f"""
    INSERT INTO api_keys (id, key_hash, team_id, project_id, name, actor_id, user_id, made_by, scopes, expires_at,
                          requests_per_minute, events_per_month)
    VALUES (%(id)s, %(key_hash)s, %(team_id)s, %(project_id)s, %(name)s, %(actor_id)s, %(user_id)s, %(made_by)s, %(scopes)s,
            %(expires_at)s, %(requests_per_minute)s, %(events_per_month)s)
    RETURNING {_COLUMNS}
    """,
)


# A chain: what was rotated from one key, by the first of them.
LOCK_CHAIN = Query(
    Key,
    f"""
    SELECT {_COLUMNS}
      FROM api_keys
     WHERE team_id = %(team_id)s
       AND coalesce(counts_as, id) = (
               SELECT coalesce(o.counts_as, o.id) FROM api_keys o WHERE o.id = %(id)s AND o.team_id = %(team_id)s
           )
     ORDER BY id FOR NO KEY UPDATE
    """,
)


SET_SCOPES = Query(int, "UPDATE api_keys SET scopes = %(scopes)s, updated_at = now() WHERE id = %(id)s AND team_id = %(team_id)s")


REPLACE = Query(
    int,
    """
    UPDATE api_keys
       SET expires_at = least(expires_at, now() + make_interval(secs => %(overlap_seconds)s)), replaced_by = %(successor)s,
           updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

# A rotated key is counted as the first key of its chain.
COUNT_AS = Query(
    int,
    """
    UPDATE api_keys k SET counts_as = coalesce(o.counts_as, o.id) FROM api_keys o
     WHERE k.id = %(successor)s AND k.team_id = %(team_id)s AND o.id = %(id)s AND o.team_id = %(team_id)s
    """,
)


# Unused: no request, and no other key, event or project made with it.
@query(f"""
    SELECT {_COLUMNS}
      FROM api_keys k
     WHERE name = 'first key' AND last_used_at IS NULL AND revoked_at IS NULL AND expires_at IS NULL
       AND NOT EXISTS (SELECT FROM api_keys o WHERE o.id <> k.id AND (o.last_used_at IS NOT NULL OR o.replaced_by IS NULL))
       AND NOT EXISTS (SELECT FROM agent_events) AND NOT EXISTS (SELECT FROM projects)
    """)
async def unused_first(conn: Conn) -> Key | None:
    """The database's first key if it was never used and no other works."""
    ...


async def insert(conn: Conn, key_id: UUID, team_id: UUID, *, key_hash: str, name: str, grant: KeyGrant) -> Key:
    """Store a key; NotFound when its project was deleted meanwhile, Conflict when there is a key with that id."""
    try:
        fields = asdict(grant) | {"scopes": Jsonb(grant.scopes)}
        return await INSERT.one(conn, id=key_id, key_hash=key_hash, team_id=team_id, name=name, **fields)
    except errors.ForeignKeyViolation as error:  # deleted meanwhile
        raise NotFound("Project not found.") from error
    except errors.UniqueViolation as error:
        raise Conflict("This key was made already. Make another one.") from error


@query(f"SELECT {_COLUMNS} FROM api_keys WHERE id = %(key_id)s AND team_id = %(team_id)s")
async def by_id(conn: Conn, team_id: UUID, key_id: UUID) -> Key | None: ...


# NO KEY UPDATE: look-ups need not wait.
@query(f"SELECT {_COLUMNS} FROM api_keys WHERE id = %(key_id)s AND team_id = %(team_id)s FOR NO KEY UPDATE")
async def lock(conn: Conn, team_id: UUID, key_id: UUID) -> Key | None: ...


@query(f"""
    SELECT {_COLUMNS} FROM api_keys
     WHERE key_hash = %(key_hash)s AND (%(key_id)s::uuid IS NULL OR id = %(key_id)s) AND team_id = %(team_id)s
       FOR NO KEY UPDATE
    """)
async def lock_by_text(conn: Conn, team_id: UUID, key_id: UUID | None, key_hash: str) -> Key | None:
    """The team's key of that text, as `parse` reads it, locked."""
    ...


@query("SELECT EXISTS (SELECT FROM api_keys WHERE replaced_by = %(key_id)s AND team_id = %(team_id)s)")
async def came_of_rotation(conn: Conn, team_id: UUID, key_id: UUID) -> bool: ...


@query("""
    SELECT k.id FROM api_keys k
     WHERE k.id = ANY(%(key_ids)s) AND k.team_id = %(team_id)s
       AND (k.counts_as IS NOT NULL OR EXISTS (SELECT FROM api_keys o WHERE o.team_id = k.team_id AND o.counts_as = k.id))
    """)
async def rotated(conn: Conn, team_id: UUID, key_ids: Collection[UUID]) -> list[UUID]:
    """Those of the keys that were rotated, or came of a rotation."""
    ...


# The one that the first start has made; those of other teams may do less. Nobody made it by a key or while signed in, and no key
# of the team is older.
@query(f"""
    SELECT {_COLUMNS} FROM api_keys k
     WHERE team_id = %(team_id)s AND name = 'first key' AND scopes = '["*"]' AND made_by IS NULL AND user_id IS NULL
       AND revoked_at IS NULL AND expires_at IS NULL AND replaced_by IS NULL
       AND NOT EXISTS (SELECT FROM api_keys o WHERE o.team_id = k.team_id AND (o.created_at, o.id) < (k.created_at, k.id))
       FOR NO KEY UPDATE
    """)
async def lock_first(conn: Conn, team_id: UUID) -> Key | None:
    """The team's first key, locked, while it works and is nobody's."""
    ...


@query("""
    SELECT EXISTS (SELECT FROM team_members m LEFT JOIN users u ON u.id = m.account_id
                    WHERE m.team_id = %(team_id)s AND m.account_id IS DISTINCT FROM %(user_id)s
                      AND (m.account_id IS NOT NULL OR NOT %(signs_in)s)
                      AND lower(%(actor_id)s) IN (lower(m.user_id), lower(u.name)))
    """)
async def is_of_another_member(conn: Conn, team_id: UUID, actor_id: str, user_id: UUID, *, signs_in: bool) -> bool:
    """Whether another member of the team has that name; with `signs_in` one with an account."""
    ...


@query("""
    SELECT EXISTS (SELECT FROM api_keys
                    WHERE team_id = %(team_id)s AND lower(former_actor) = lower(%(name)s) AND user_id <> %(user_id)s)
    """)
async def was_name_of_another(conn: Conn, team_id: UUID, name: str, user_id: UUID) -> bool:
    """Whether another person's key of the team had that name before it was bound."""
    ...


@query(f"""
    UPDATE api_keys
       SET user_id = %(user_id)s, made_by = coalesce(made_by, %(user_id)s), actor_id = %(name)s,
           former_actor = nullif(actor_id, %(name)s), updated_at = now()
     WHERE id = %(key_id)s AND team_id = %(team_id)s
    RETURNING {_COLUMNS}
    """)
async def bind(conn: Conn, team_id: UUID, key_id: UUID, user_id: UUID, name: str) -> Key:
    """Make it the key of the account of that name, under which it acts from then on."""
    ...


async def lock_chain(conn: Conn, team_id: UUID, key_id: UUID) -> list[Key]:
    """The key, and those that were rotated from the same one, locked; none can be rotated until the transaction ends."""
    chain: list[Key] = []
    while len(found := await LOCK_CHAIN.all(conn, team_id=team_id, id=key_id)) > len(chain):  # a rotation may have been waited for
        chain = found
    return chain


@unprepared_query(f"""
    SELECT {_COLUMNS}
      FROM api_keys
     WHERE made_by = %(user_id)s AND (%(team_id)s::uuid IS NULL OR team_id = %(team_id)s) AND revoked_at IS NULL
     ORDER BY id FOR NO KEY UPDATE
    """)
async def lock_of_maker(conn: Conn, user_id: UUID, team_id: UUID | None) -> list[Key]:
    """The keys that a person made in the team, or in any for None, and that are not revoked, locked."""
    ...


async def set_scopes(conn: Conn, team_id: UUID, key_id: UUID, scopes: list[str]) -> None:
    await SET_SCOPES.run(conn, team_id=team_id, id=key_id, scopes=Jsonb(scopes))


@query(f"""
    SELECT {_COLUMNS}
      FROM api_keys
     WHERE team_id = %(team_id)s AND actor_id = %(actor_id)s AND revoked_at IS NULL
     ORDER BY id FOR NO KEY UPDATE
    """)
async def lock_of_actor(conn: Conn, team_id: UUID, actor_id: str) -> list[Key]:
    """The actor's keys that are not revoked, locked."""
    ...


@unprepared_query(f"""
    SELECT {_COLUMNS}
      FROM api_keys
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s)
       AND (%(active)s::boolean IS NULL OR %(active)s = (revoked_at IS NULL AND coalesce(expires_at > now(), true)))
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s
    """)
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
    """Newest first, of all projects for None. `active`: True for keys neither revoked nor expired, False for the others."""
    ...


@query(f"""
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), updated_at = now()
     WHERE id = %(key_id)s AND team_id = %(team_id)s
    RETURNING {_COLUMNS}
    """)
async def revoke(conn: Conn, team_id: UUID, key_id: UUID) -> Key: ...


@query("UPDATE api_keys SET revoked_at = now(), updated_at = now() WHERE revoked_at IS NULL")
async def revoke_all(conn: Conn) -> RowCount:
    """Revoke every key of every team; returns how many."""
    ...


async def replace(conn: Conn, team_id: UUID, key_id: UUID, *, successor: UUID, overlap_seconds: int) -> None:
    """End the old key after the overlap, or at its earlier expiry; the successor continues its usage."""
    await REPLACE.run(conn, id=key_id, team_id=team_id, successor=successor, overlap_seconds=overlap_seconds)
    await COUNT_AS.run(conn, id=key_id, team_id=team_id, successor=successor)


# Also their rate-limit buckets, which have no foreign key.
@unprepared_query("""
    WITH gone AS (
        DELETE FROM api_keys
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
        RETURNING id
    ), buckets AS (
        DELETE FROM rate_limits r USING gone WHERE r.id = gone.id AND r.team_id = %(team_id)s
    )
    SELECT count(*) FROM gone
    """)
async def delete(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Delete the keys bound to the project, or all of the team for None; returns how many."""
    ...


@query("SELECT now() + make_interval(days => %(days)s)")
async def in_days(conn: Conn, days: int) -> datetime:
    """The time that many days from now by the database's clock."""
    ...
