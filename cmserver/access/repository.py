"""All SQL on teams, projects and aliases, and the look-up of keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access.model import (
    FORMER_NAMES,
    Namesake,
    Project,
    ProjectRetention,
    RetentionPolicy,
    StoredKey,
    TakenName,
    Team,
    tell_apart,
)
from cmserver.base.db import SET_WORDS
from cmserver.base.errors import Conflict
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query

OWNS = {"teams", "projects", "project_aliases"}

_TEAM: LiteralString = """
    id, name, metadata, generation_policy AS policy, retention, approves_rules, untold_share, words, requests_per_minute,
    events_per_month, archived_at, created_at, updated_at
"""
_PROJECT: LiteralString = """
    p.id, f.id AS key_id, p.team_id, p.canonical_id, p.name,
    ARRAY(SELECT a.alias FROM project_aliases a WHERE a.project_id = p.id AND a.team_id = p.team_id ORDER BY a.alias) AS aliases,
    p.metadata, p.generation_policy AS policy, t.generation_policy AS team_policy, p.retention, p.search_language,
    p.consolidation, p.merge_with_model, p.isolated, p.joined_to, p.stays_apart, p.archived_at, p.created_at, p.updated_at
"""


PROJECT_RETENTION = Query(
    ProjectRetention,
    """
    SELECT jsonb_strip_nulls(t.retention) || jsonb_strip_nulls(p.retention) AS retention
      FROM projects p JOIN teams t ON t.id = p.team_id WHERE p.id = %(id)s AND p.team_id = %(team_id)s
    """,
)


INSERT_TEAM = Query(
    Team,
    f"""
    INSERT INTO teams (id, name, metadata) VALUES (%(id)s, %(name)s, %(metadata)s)
    RETURNING {_TEAM}
    """,
)

UPDATE_TEAM = Query(
    Team,
    f"""
    UPDATE teams
       SET name = %(name)s, metadata = %(metadata)s, generation_policy = %(policy)s, retention = %(retention)s,
           approves_rules = %(approves_rules)s, untold_share = %(untold_share)s, words = %(words)s,
           requests_per_minute = %(requests_per_minute)s, events_per_month = %(events_per_month)s,
           archived_at = CASE WHEN %(archived)s THEN coalesce(archived_at, now()) END, updated_at = now()
     WHERE id = %(id)s
    RETURNING {_TEAM}
    """,
)


NAMES_OF = Query(
    TakenName,
    """
    SELECT canonical_id AS name, id AS project_id, archived_at IS NOT NULL AS archived
      FROM projects WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s
    """,
)

# The projects, and the others of the team that have a name of theirs; one that was joined to another is that other one.
NAMESAKES = Query(
    Namesake,
    """
    SELECT id, name, canonical_id FROM projects
     WHERE team_id = %(team_id)s AND (id = ANY(%(ids)s) OR joined_to IS NULL)
       AND name IN (SELECT name FROM projects WHERE team_id = %(team_id)s AND id = ANY(%(ids)s))
    """,
)

ISOLATED = Query(UUID, "SELECT id FROM projects WHERE team_id = %(team_id)s AND isolated")


INSERT_PROJECT = Query(
    UUID,
    """
    INSERT INTO projects (id, team_id, canonical_id, name, metadata, search_language)
    VALUES (%(id)s, %(team_id)s, %(canonical_id)s, %(name)s, %(metadata)s, %(search_language)s)
    ON CONFLICT (team_id, canonical_id) DO NOTHING
    RETURNING id
    """,
)

LOCK_PROJECT = Query(UUID, "SELECT id FROM projects WHERE id = %(id)s AND team_id = %(team_id)s FOR NO KEY UPDATE")

# Whoever stores a text of the project reads its language, and holds the project as it is (KEY SHARE) until he is done.
LOCK_LANGUAGE = Query(UUID, "SELECT id FROM projects WHERE id = %(id)s AND team_id = %(team_id)s FOR UPDATE")

# A trigger gives another language to all the project's texts.
UPDATE_PROJECT = Query(
    int,
    """
    UPDATE projects
       SET canonical_id = %(canonical_id)s, name = %(name)s, metadata = %(metadata)s, generation_policy = %(policy)s,
           retention = %(retention)s, search_language = %(search_language)s, consolidation = %(consolidation)s,
           merge_with_model = %(merge_with_model)s, isolated = %(isolated)s,
           archived_at = CASE WHEN %(archived)s THEN coalesce(archived_at, now()) END, updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

FORGET_ALIASES = Query(
    int,
    "DELETE FROM project_aliases WHERE project_id = %(id)s AND team_id = %(team_id)s AND NOT alias = ANY (%(aliases)s)",
)

KEEP_ALIASES = Query(
    int,
    """
    INSERT INTO project_aliases (team_id, alias, project_id)
    SELECT %(team_id)s, alias, %(id)s FROM unnest(%(aliases)s::text[]) AS alias
    ON CONFLICT (team_id, alias) DO NOTHING
    """,
)


# Erasure: FOR UPDATE blocks new references to the row, and waits for transactions that have just made one.
LOCK_TEAM_TO_DELETE = Query(UUID, "SELECT id FROM teams WHERE id = %(team_id)s FOR UPDATE")


@query("SELECT EXISTS (SELECT FROM teams)")
async def any_team(conn: Conn) -> bool: ...


@query("SELECT pg_advisory_xact_lock(7237415002)::text")
async def lock_bootstrap(conn: Conn) -> None:
    """Take the lock under which one process checks that the database is empty and fills it."""
    ...


@query(f"SELECT {_TEAM} FROM teams WHERE private_of IS NULL ORDER BY created_at DESC, id DESC")
async def all_teams(conn: Conn) -> list[Team]:
    """All teams of people, archived ones too."""
    ...


async def insert_team(conn: Conn, team_id: UUID, name: str, metadata: Mapping[str, object] | None = None) -> Team:
    try:
        return await INSERT_TEAM.one(conn, id=team_id, name=name, metadata=Jsonb(metadata or {}))
    except errors.UniqueViolation as error:
        raise _name_taken(name) from error


@query(f"SELECT {_TEAM} FROM teams WHERE id = %(team_id)s AND (%(archived)s OR archived_at IS NULL)")
async def team(conn: Conn, team_id: UUID, *, archived: bool = False) -> Team | None:
    """The team; an archived one only with `archived`."""
    ...


# A trigger lets its numbers begin above those of every team.
@query("""
    INSERT INTO teams (id, name, private_of, private_to, generation_policy, retention)
    SELECT %(new_id)s::uuid, 'private ' || %(new_id)s::uuid, id, %(user_id)s, generation_policy, retention
      FROM teams WHERE id = %(team_id)s
    ON CONFLICT (private_of, private_to) WHERE private_of IS NOT NULL DO UPDATE SET updated_at = teams.updated_at
    RETURNING id
    """)
async def private_place(conn: Conn, team_id: UUID, user_id: UUID, *, new_id: UUID) -> UUID:
    """The private place of the person in the team, made with the id `new_id` where there is none. As the owner."""
    ...


@query(f"SELECT set_config('cmserver.team_id', %(team_id)s, true) || {SET_WORDS}")
async def set_team(conn: Conn, team_id: str) -> str:
    """Let the rest of the transaction be in another place of the same person."""
    ...


@query("DELETE FROM teams WHERE private_of = %(team_id)s AND private_to = %(user_id)s")
async def delete_private_place(conn: Conn, team_id: UUID, user_id: UUID) -> RowCount:
    """Delete the private place of the person in the team with all that is in it. As the owner."""
    ...


async def retention_of(conn: Conn, team_id: UUID, project_id: UUID) -> RetentionPolicy:
    """What holds for the project: what it says, else what its team says."""
    return (await PROJECT_RETENTION.one(conn, id=project_id, team_id=team_id)).retention


@query(f"""
    SELECT {_TEAM}
      FROM teams WHERE archived_at IS NULL AND private_of IS NULL AND (name = %(name)s OR id = %(team_id)s)
     ORDER BY name = %(name)s DESC LIMIT 1
    """)
async def team_named(conn: Conn, name: str, team_id: UUID | None) -> Team | None:
    """The team with that name, or else that id; never an archived one."""
    ...


@query(f"SELECT {_TEAM} FROM teams WHERE id = %(team_id)s FOR NO KEY UPDATE")
async def lock_team(conn: Conn, team_id: UUID) -> Team:
    """The team, archived or not, locked against other changes of it and its members."""
    ...


async def update_team(conn: Conn, changed: Team, *, archived: bool) -> Team:
    """Store the changeable fields of the team. The database sets the time of archiving."""
    try:
        return await UPDATE_TEAM.one(
            conn,
            id=changed.id,
            name=changed.name,
            metadata=Jsonb(changed.metadata),
            policy=Jsonb(changed.policy),
            retention=Jsonb(changed.retention),
            approves_rules=changed.approves_rules,
            untold_share=changed.untold_share,
            words=changed.words,
            requests_per_minute=changed.requests_per_minute,
            events_per_month=changed.events_per_month,
            archived=archived,
        )
    except errors.UniqueViolation as error:
        raise _name_taken(changed.name) from error


def _name_taken(name: str) -> Conflict:
    return Conflict(f"A team named {name!r} exists already. Choose another name.")


@query(f"""
    SELECT k.id, k.key_hash, k.team_id, t.name AS team_name, coalesce(p.joined_to, k.project_id) AS project_id,
           k.actor_id, k.user_id, v.id AS private_id, v.private_to, {FORMER_NAMES} AS names,
           k.scopes, k.revoked_at, k.expires_at,
           coalesce(k.expires_at <= now(), false) AS expired, t.archived_at AS team_archived_at,
           coalesce(k.counts_as, k.id) AS counts_as,
           k.requests_per_minute, k.events_per_month, t.requests_per_minute AS team_requests_per_minute,
           t.events_per_month AS team_events_per_month
      FROM api_keys k JOIN teams t ON t.id = k.team_id
      LEFT JOIN projects p ON p.id = k.project_id AND p.team_id = k.team_id
      LEFT JOIN teams v ON v.private_of = k.team_id AND v.private_to = k.user_id
     WHERE k.id = ANY (%(ids)s) OR k.key_hash = ANY (%(hashes)s)
    """)
async def find_keys(conn: Conn, ids: Sequence[UUID], hashes: Sequence[str]) -> list[StoredKey]:
    """The existing keys, unordered."""
    ...


@query(f"""
    SELECT {_PROJECT}
      FROM projects f
      JOIN projects p ON p.id = CASE WHEN %(archived)s THEN f.id ELSE coalesce(f.joined_to, f.id) END AND p.team_id = f.team_id
      JOIN teams t ON t.id = p.team_id
     WHERE f.id = %(project_id)s AND f.team_id = %(team_id)s AND (%(archived)s OR p.archived_at IS NULL)
    """)
async def project(conn: Conn, team_id: UUID, project_id: UUID, *, archived: bool = False) -> Project | None:
    """The project; an archived one only with `archived`."""
    ...


# The best match first: the canonical id, an alias, then a name that only one project of the team has; but no name that could be an
# address or a path, since whoever makes a project calls it as he likes, and would get what others send there. With `only`, that
# project alone is there, so that a key that is bound to it cannot learn from a name whether another project has it, too.
@query(f"""
    SELECT {_PROJECT}
      FROM projects f JOIN projects p ON p.id = coalesce(f.joined_to, f.id) AND p.team_id = f.team_id
      JOIN teams t ON t.id = p.team_id
      LEFT JOIN project_aliases n ON n.project_id = f.id AND n.team_id = f.team_id AND n.alias = %(name)s
     WHERE f.team_id = %(team_id)s AND p.archived_at IS NULL AND (%(only)s::uuid IS NULL OR p.id = %(only)s)
       AND (f.canonical_id = %(name)s OR n.alias IS NOT NULL
            OR (f.name = %(name)s AND strpos(f.name, '/') = 0 AND f.archived_at IS NULL AND NOT EXISTS (
                    SELECT FROM projects q
                     WHERE q.team_id = f.team_id AND q.name = f.name AND q.id <> f.id AND q.archived_at IS NULL
                       AND %(only)s::uuid IS NULL)))
     ORDER BY f.canonical_id = %(name)s DESC, n.alias IS NOT NULL DESC
     LIMIT 1
    """)
async def project_named(conn: Conn, team_id: UUID, name: str, *, only: UUID | None) -> Project | None:
    """The project with that name; with `only` no other project than that."""
    ...


# The oldest, where there are several. Only asked for a name that nothing else is known by.
@query(f"""
    SELECT {_PROJECT}
      FROM projects f JOIN projects p ON p.id = coalesce(f.joined_to, f.id) AND p.team_id = f.team_id
      JOIN teams t ON t.id = p.team_id
     WHERE f.team_id = %(team_id)s AND p.archived_at IS NULL AND (%(only)s::uuid IS NULL OR p.id = %(only)s)
       AND (lower(f.canonical_id COLLATE "C") = %(name)s
            OR EXISTS (SELECT FROM project_aliases n
                        WHERE n.project_id = f.id AND n.team_id = f.team_id AND lower(n.alias COLLATE "C") = %(name)s))
     ORDER BY lower(f.canonical_id COLLATE "C") = %(name)s DESC, f.created_at, f.id
     LIMIT 1
    """)
async def project_in_any_case(conn: Conn, team_id: UUID, name: str, *, only: UUID | None) -> Project | None:
    """The project with that name in any case; with `only` no other project than that. `name` is in lower case (of ASCII)."""
    ...


@unprepared_query(f"""
    SELECT {_PROJECT}
      FROM projects p JOIN teams t ON t.id = p.team_id CROSS JOIN LATERAL (SELECT p.id) f
     WHERE p.team_id = %(team_id)s AND (%(only)s::uuid IS NULL OR p.id = %(only)s)
       AND %(archived)s = (p.archived_at IS NOT NULL)
       AND (%(isolated)s::boolean OR NOT p.isolated OR %(only)s::uuid IS NOT NULL)
       AND p.id IS DISTINCT FROM %(without)s::uuid
       AND (%(before)s::timestamptz IS NULL OR (p.created_at, p.id) < (%(before)s, %(before_id)s::uuid))
     ORDER BY p.created_at DESC, p.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def projects(
    conn: Conn,
    team_id: UUID,
    *,
    only: UUID | None,
    archived: bool,
    isolated: bool = True,
    without: UUID | None = None,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
    offset: int = 0,
) -> list[Project]:
    """Newest first: only archived ones, or none of them. Isolated ones as well, or only if it is the one with `only`."""
    ...


# Canonical ids and aliases are names of the same kind, which no constraint can say: whoever gives one holds this.
@query("SELECT pg_advisory_xact_lock(hashtextextended(%(team_id)s::text, 7237415002))::text")
async def lock_names(conn: Conn, team_id: UUID) -> None:
    """Take the lock for naming projects of the team."""
    ...


@query("""
    SELECT p.canonical_id AS name, p.id AS project_id, p.archived_at IS NOT NULL AS archived
      FROM projects p WHERE p.team_id = %(team_id)s AND p.canonical_id = ANY (%(names)s)
     UNION ALL
    SELECT a.alias, p.id, p.archived_at IS NOT NULL
      FROM project_aliases a JOIN projects p ON p.id = a.project_id AND p.team_id = a.team_id
     WHERE a.team_id = %(team_id)s AND a.alias = ANY (%(names)s)
     ORDER BY 1
    """)
async def names_taken(conn: Conn, team_id: UUID, names: Sequence[str]) -> list[TakenName]:
    """The given names that a project, archived or not, already has as canonical id or alias."""
    ...


async def names_of(conn: Conn, team_id: UUID, project_ids: Collection[UUID]) -> dict[UUID, str]:
    """Canonical ids by project id, archived projects included."""
    rows = await NAMES_OF.all(conn, team_id=team_id, ids=list(project_ids))
    return {row.project_id: row.name for row in rows}


async def short_names(conn: Conn, team_id: UUID, project_ids: Collection[UUID]) -> dict[UUID, str]:
    """What a person calls the projects, by project id, archived projects included: the shortest that tells them apart."""
    rows = await NAMESAKES.all(conn, team_id=team_id, ids=list(project_ids))
    return {row.id: tell_apart(row, rows) for row in rows if row.id in project_ids}


async def told_apart(conn: Conn, project: Project) -> Project:
    """The project by the shortest name that tells it from the others of its team: for a text, not for a look-up."""
    names = await short_names(conn, project.team_id, [project.id])
    return msgspec.structs.replace(project, name=names.get(project.id, project.name))


async def isolated(conn: Conn, team_id: UUID) -> set[UUID]:
    """The projects that are found from nowhere else."""
    return set(await ISOLATED.all(conn, team_id=team_id))


@query("SELECT id FROM projects WHERE team_id = %(team_id)s AND NOT isolated ORDER BY id")
async def not_isolated(conn: Conn, team_id: UUID) -> list[UUID]:
    """All other projects."""
    ...


async def insert_project(
    conn: Conn,
    project_id: UUID,
    team_id: UUID,
    canonical_id: str,
    name: str,
    metadata: Mapping[str, object],
    search_language: str,
) -> bool:
    """Insert the project; False when the canonical id is taken."""
    inserted = await INSERT_PROJECT.first(
        conn,
        id=project_id,
        team_id=team_id,
        canonical_id=canonical_id,
        name=name,
        metadata=Jsonb(metadata),
        search_language=search_language,
    )
    return inserted is not None


async def lock_project(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Lock the project; False when it does not exist."""
    return await LOCK_PROJECT.first(conn, id=project_id, team_id=team_id) is not None


async def lock_language(conn: Conn, team_id: UUID, project_id: UUID) -> None:
    """Lock the project's search language, so that no text is stored with the old one meanwhile."""
    await LOCK_LANGUAGE.first(conn, id=project_id, team_id=team_id)


async def update_project(conn: Conn, changed: Project, *, archived: bool) -> None:
    """Store the changeable fields of the project and its aliases. The database sets the time of archiving."""
    await UPDATE_PROJECT.run(
        conn,
        id=changed.id,
        team_id=changed.team_id,
        canonical_id=changed.canonical_id,
        name=changed.name,
        metadata=Jsonb(changed.metadata),
        policy=Jsonb(changed.policy),
        retention=Jsonb(changed.retention),
        search_language=changed.search_language,
        consolidation=changed.consolidation,
        merge_with_model=changed.merge_with_model,
        isolated=changed.isolated,
        archived=archived,
    )
    await FORGET_ALIASES.run(conn, id=changed.id, team_id=changed.team_id, aliases=changed.aliases)
    await KEEP_ALIASES.run(conn, id=changed.id, team_id=changed.team_id, aliases=changed.aliases)


@query("""
    INSERT INTO project_aliases (team_id, alias, project_id, name_until) VALUES (%(team_id)s, %(name)s, %(project_id)s, now())
    ON CONFLICT (team_id, alias) DO NOTHING
    """)
async def keep_former_name(conn: Conn, team_id: UUID, project_id: UUID, name: str) -> None:
    """Keep the canonical id that the project has until now as an alias, and note that it gets another one by itself."""
    ...


@query("""
    SELECT alias FROM project_aliases
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND name_until IS NOT NULL
     ORDER BY name_until DESC LIMIT 1
    """)
async def former_name(conn: Conn, team_id: UUID, project_id: UUID) -> str | None:
    """The canonical id that the project had before it got its present one by itself, the last time."""
    ...


@query("UPDATE projects SET stays_apart = true, updated_at = now() WHERE id = %(project_id)s AND team_id = %(team_id)s")
async def keep_apart(conn: Conn, team_id: UUID, project_id: UUID) -> None:
    """Let nothing but people join the project to another one, or name it."""
    ...


async def lock_team_to_delete(conn: Conn, team_id: UUID) -> bool:
    """Lock the team against all changes; False when it does not exist."""
    return await LOCK_TEAM_TO_DELETE.first(conn, team_id=team_id) is not None


@unprepared_query("""
    WITH locked AS MATERIALIZED (
        SELECT id FROM projects
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR id = %(project_id)s::uuid) ORDER BY id FOR UPDATE
    )
    SELECT count(*) FROM locked
    """)
async def lock_projects_to_delete(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Lock the project, or all of the team for None, against all changes; returns how many."""
    ...


@unprepared_query("""
    DELETE FROM projects WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR id = %(project_id)s::uuid)
    """)
async def delete_projects(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete the project, or all of the team for None; returns how many."""
    ...


@query("DELETE FROM teams WHERE id = %(team_id)s")
async def delete_team(conn: Conn, team_id: UUID) -> None: ...


@query("SELECT pg_notify(%(channel)s, %(payload)s)::text")
async def notify(conn: Conn, channel: str, payload: str) -> None:
    """Notify the channel's listeners when the transaction commits."""
    ...
