"""All SQL on versions of observations, and on what supersedes what."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.observations.history.model import VERSION_COLUMNS, Change, ObservationVersion, PastLabels, take_snapshot
from cmserver.observations.model import OBSERVATION_COLUMNS, Observation

OWNS = {"observation_versions"}

# Before any row: whoever merges, stores without repeating, or undoes in a project does it alone. Deletions and purges do not ask
# for it. All lock an observation before what was merged into it, and else in the order of the ids.
LOCK_PROJECT = Query(str, "SELECT pg_advisory_xact_lock(%(namespace)s, hashtext(%(project_id)s::text))::text")
_CONSOLIDATION = 7_237_415
"""The first half of the advisory lock's key, for all cmserver processes on a database."""


ADD = Query(
    int,
    """
    INSERT INTO observation_versions (id, team_id, project_id, observation_id, version, action, before, source_ids, strategy,
                                      similarity, measured_by, performed_by)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(observation_id)s, %(version)s, %(action)s, %(before)s, %(source_ids)s,
            %(strategy)s, %(similarity)s, %(measured_by)s, %(performed_by)s)
    """,
)


async def lock_project(conn: Conn, project_id: UUID) -> None:
    """Alone in the project with whatever compares its observations, until the transaction ends. Take it before any row's lock."""
    await LOCK_PROJECT.run(conn, namespace=_CONSOLIDATION, project_id=project_id)


@query(f"""
    SELECT {OBSERVATION_COLUMNS} FROM observations
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s ORDER BY id FOR UPDATE
    """)
async def lock(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> list[Observation]:
    """Those of them that exist, live or not, locked in the order of their ids."""
    ...


async def add(conn: Conn, before: Observation, after: Observation, change: Change) -> None:
    """Record a change, in the transaction that makes it."""
    await ADD.run(
        conn,
        id=new_id(),
        team_id=after.team_id,
        project_id=after.project_id,
        observation_id=after.id,
        version=after.version,
        action=change.action,
        before=Jsonb(take_snapshot(before)),
        source_ids=change.source_ids,
        strategy=change.strategy,
        similarity=change.similarity,
        measured_by=change.measured_by,
        performed_by=change.performed_by,
    )


@query(f"""
    SELECT {VERSION_COLUMNS} FROM observation_versions
     WHERE observation_id = %(observation_id)s AND team_id = %(team_id)s ORDER BY version DESC LIMIT %(limit)s
    """)
async def of_observation(conn: Conn, team_id: UUID, observation_id: UUID, limit: int) -> list[ObservationVersion]:
    """The changes of the observation, the last first."""
    ...


@query("""
    SELECT (before ->> 'version')::integer AS version, before ?| '{title,subtitle,narrative,facts,content}' AS is_worded,
           before - '{title,subtitle,narrative,facts,concepts,content,summary,metadata,files_read,files_modified}'::text[] AS labels
      FROM past_values
     WHERE observation_id = %(observation_id)s AND team_id = %(team_id)s AND kind = 'observation' AND before ? 'version'
     ORDER BY id
    """)
async def past_labels(conn: Conn, team_id: UUID, observation_id: UUID) -> list[PastLabels]:
    """What its changes took the place of, the first first."""
    ...


@query(f"""
    SELECT {VERSION_COLUMNS} FROM observation_versions
     WHERE observation_id = %(observation_id)s AND team_id = %(team_id)s AND undone_at IS NULL ORDER BY version DESC LIMIT 1
    """)
async def last(conn: Conn, team_id: UUID, observation_id: UUID) -> ObservationVersion | None:
    """The last change that is not undone."""
    ...


# What it was before it is again, and what it was meanwhile must not be kept: it may hold a text that is deleted next.
@query("UPDATE observation_versions SET undone_at = now(), before = NULL WHERE id = %(version_id)s AND team_id = %(team_id)s")
async def mark_undone(conn: Conn, team_id: UUID, version_id: UUID) -> None: ...


@query("""
    UPDATE observations SET superseded_by = %(by)s, superseded_at = now()
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND superseded_at IS NULL
    """)
async def supersede(conn: Conn, team_id: UUID, ids: Collection[UUID], by: UUID) -> None:
    """Show the observation `by` in their place."""
    ...


# What expired meanwhile is wanted again.
@query("""
    UPDATE observations
       SET superseded_by = NULL, superseded_at = NULL,
           ttl_seconds = CASE WHEN expires_at > now() THEN ttl_seconds END,
           expires_at = CASE WHEN expires_at > now() THEN expires_at END
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND superseded_by = %(by)s
    RETURNING number
    """)
async def revive(conn: Conn, team_id: UUID, ids: Collection[UUID], by: UUID) -> list[int]:
    """Show those of them again that `by` superseded; returns their numbers."""
    ...
