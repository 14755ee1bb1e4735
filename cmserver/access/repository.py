"""All SQL on teams, projects, aliases, keys and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from cmserver.access.model import Project, StoredKey, Team
from cmserver.base.sql import Conn, Jsonb, Query

OWNS = {"teams", "projects", "project_aliases", "team_members", "api_keys", "audit_log"}

ANY_TEAM = Query(bool, "SELECT EXISTS (SELECT FROM teams)")

LOCK_BOOTSTRAP = Query(str, "SELECT pg_advisory_xact_lock(7237415002)::text")

TEAM_BY_ID = Query(Team, "SELECT id, name, created_at FROM teams WHERE id = %(id)s AND archived_at IS NULL")

INSERT_TEAM = Query(
    Team,
    """
    INSERT INTO teams (id, name) VALUES (%(id)s, %(name)s)
    RETURNING id, name, created_at
    """,
)

INSERT_KEY = Query(
    UUID,
    """
    INSERT INTO api_keys (id, key_hash, team_id, project_id, name, actor_id, scopes, expires_at)
    VALUES (%(id)s, %(key_hash)s, %(team_id)s, %(project_id)s, %(name)s, %(actor_id)s, %(scopes)s, %(expires_at)s)
    RETURNING id
    """,
)

KEY_BY_ID = Query(
    StoredKey,
    """
    SELECT id, key_hash, team_id, project_id, actor_id, scopes, revoked_at, expires_at
      FROM api_keys WHERE id = %(id)s
    """,
)

KEY_BY_HASH = Query(
    StoredKey,
    """
    SELECT id, key_hash, team_id, project_id, actor_id, scopes, revoked_at, expires_at
      FROM api_keys WHERE key_hash = %(key_hash)s
    """,
)

PROJECT = Query(
    Project,
    """
    SELECT id, team_id, canonical_id, name, metadata, created_at, updated_at
      FROM projects WHERE id = %(id)s AND team_id = %(team_id)s AND archived_at IS NULL
    """,
)

# The best match first: the canonical id, an alias, then a name that only one project of the team has.
PROJECT_NAMED = Query(
    Project,
    """
    SELECT p.id, p.team_id, p.canonical_id, p.name, p.metadata, p.created_at, p.updated_at
      FROM projects p
      LEFT JOIN project_aliases a ON a.project_id = p.id AND a.team_id = p.team_id AND a.alias = %(named)s
     WHERE p.team_id = %(team_id)s AND p.archived_at IS NULL
       AND (p.canonical_id = %(named)s OR a.alias IS NOT NULL
            OR (p.name = %(named)s AND NOT EXISTS (
                    SELECT FROM projects q
                     WHERE q.team_id = p.team_id AND q.name = p.name AND q.id <> p.id AND q.archived_at IS NULL)))
     ORDER BY p.canonical_id = %(named)s DESC, a.alias IS NOT NULL DESC
     LIMIT 1
    """,
)

INSERT_PROJECT = Query(
    Project,
    """
    INSERT INTO projects (id, team_id, canonical_id, name, metadata)
    VALUES (%(id)s, %(team_id)s, %(canonical_id)s, %(name)s, %(metadata)s)
    ON CONFLICT (team_id, canonical_id) DO NOTHING
    RETURNING id, team_id, canonical_id, name, metadata, created_at, updated_at
    """,
)

AUDIT = Query(
    int,
    """
    INSERT INTO audit_log (team_id, project_id, actor_id, api_key_id, action, resource_type, resource_id, request_id, details)
    VALUES (%(team_id)s, %(project_id)s, %(actor_id)s, %(api_key_id)s, %(action)s, %(resource_type)s, %(resource_id)s,
            %(request_id)s, %(details)s)
    """,
)

NOTIFY = Query(str, "SELECT pg_notify(%(channel)s, %(payload)s)::text")


async def any_team(conn: Conn) -> bool:
    return await ANY_TEAM.one(conn)


async def lock_bootstrap(conn: Conn) -> None:
    """Only one process at a time looks whether the database is empty and fills it."""
    await LOCK_BOOTSTRAP.run(conn)


async def insert_team(conn: Conn, team_id: UUID, name: str) -> Team:
    return await INSERT_TEAM.one(conn, id=team_id, name=name)


async def team(conn: Conn, team_id: UUID) -> Team | None:
    return await TEAM_BY_ID.first(conn, id=team_id)


async def insert_key(
    conn: Conn,
    *,
    key_id: UUID,
    key_hash: str,
    team_id: UUID,
    project_id: UUID | None,
    name: str,
    actor_id: str,
    scopes: list[str],
    expires_at: datetime | None,
) -> None:
    await INSERT_KEY.one(
        conn,
        id=key_id,
        key_hash=key_hash,
        team_id=team_id,
        project_id=project_id,
        name=name,
        actor_id=actor_id,
        scopes=Jsonb(scopes),
        expires_at=expires_at,
    )


async def key_by_id(conn: Conn, key_id: UUID) -> StoredKey | None:
    return await KEY_BY_ID.first(conn, id=key_id)


async def key_by_hash(conn: Conn, key_hash: str) -> StoredKey | None:
    return await KEY_BY_HASH.first(conn, key_hash=key_hash)


async def project(conn: Conn, team_id: UUID, project_id: UUID) -> Project | None:
    return await PROJECT.first(conn, id=project_id, team_id=team_id)


async def project_named(conn: Conn, team_id: UUID, named: str) -> Project | None:
    return await PROJECT_NAMED.first(conn, team_id=team_id, named=named)


async def insert_project(
    conn: Conn, project_id: UUID, team_id: UUID, canonical_id: str, name: str, metadata: Mapping[str, object]
) -> Project | None:
    """The new project, or None when another process made it first."""
    return await INSERT_PROJECT.first(
        conn, id=project_id, team_id=team_id, canonical_id=canonical_id, name=name, metadata=Jsonb(metadata)
    )


async def audit(
    conn: Conn,
    *,
    team_id: UUID,
    project_id: UUID | None,
    actor_id: str | None,
    api_key_id: UUID | None,
    action: str,
    resource_type: str,
    resource_id: str | None,
    request_id: str | None,
    details: Mapping[str, object],
) -> None:
    await AUDIT.run(
        conn,
        team_id=team_id,
        project_id=project_id,
        actor_id=actor_id,
        api_key_id=api_key_id,
        action=action,
        resource_type=resource_type,
        resource_id=resource_id,
        request_id=request_id,
        details=Jsonb(details),
    )


async def notify(conn: Conn, channel: str, payload: str) -> None:
    """Heard by every process that listens on the channel, when the transaction commits."""
    await NOTIFY.run(conn, channel=channel, payload=payload)
