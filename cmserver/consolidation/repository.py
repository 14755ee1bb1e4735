"""All SQL on relations, suggestions, and how far observations are compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH_O
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query, query, unprepared_query
from cmserver.consolidation.model import MergeRecord, NewRelation, NewSuggestion, Relation, Suggestion, SuggestionStatus
from cmserver.observations.model import LIVE_O, Observation

OWNS = {"observation_relationships", "consolidation_suggestions"}

_LIVE_OTHER: LiteralString = LIVE_O.replace("o.", "other.")

# -- relations

# Related again, a pair keeps its first relation, with the new strength and context.
RELATE = Query(
    UUID,
    """
    INSERT INTO observation_relationships AS r
           (id, team_id, from_id, from_project_id, to_id, to_project_id, relationship, strength, context)
    VALUES (%(id)s, %(team_id)s, %(from_id)s, %(from_project_id)s, %(to_id)s, %(to_project_id)s, %(relationship)s, %(strength)s,
            %(context)s)
    ON CONFLICT (from_id, to_id, relationship) DO UPDATE SET strength = excluded.strength, context = excluded.context
    RETURNING id
    """,
)

_RELATION: LiteralString = """
    SELECT r.id, r.from_id, f.number AS from_number, r.to_id, t.number AS to_number, r.relationship, r.strength, r.context,
           r.created_at
      FROM observation_relationships r
      JOIN observations f ON f.id = r.from_id AND f.team_id = r.team_id
      JOIN observations t ON t.id = r.to_id AND t.team_id = r.team_id
     WHERE r.team_id = %(team_id)s
"""


# Both ways. What is not shown is no end and leads nowhere, but for the sources of a merge, which are named by their numbers only.
RELATIONS_OF = Query(
    Relation,
    f"""
    {_RELATION} AND (r.from_id = ANY(%(ids)s) OR r.to_id = ANY(%(ids)s))
       AND (%(relationships)s::text[] IS NULL OR r.relationship = ANY(%(relationships)s::text[]))
     ORDER BY r.strength DESC, r.created_at, r.id LIMIT %(limit)s
    """,
    prepare=False,
)

UNRELATE = Query(int, "DELETE FROM observation_relationships WHERE id = %(id)s AND team_id = %(team_id)s")


# -- suggestions

# Only of observations that are still shown: they were compared without a lock on them.
SUGGEST = Query(
    int,
    f"""
    INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
    SELECT n.id, %(team_id)s, %(project_id)s, least(n.left_id, n.right_id), greatest(n.left_id, n.right_id), n.similarity,
           n.measured_by, n.reason
      FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, left_id uuid, right_id uuid, similarity real, measured_by text, reason text)
      JOIN observations o ON o.id = n.left_id AND o.team_id = %(team_id)s AND {LIVE_O}
      JOIN observations other ON other.id = n.right_id AND other.team_id = %(team_id)s AND {_LIVE_OTHER}
    ON CONFLICT (left_id, right_id) DO NOTHING
    """,
)

_SUGGESTION: LiteralString = """
    SELECT s.id, s.project_id, s.left_id, o.number AS left_number, left(coalesce(o.title, o.content), 200) AS left_title,
           s.right_id, other.number AS right_number, left(coalesce(other.title, other.content), 200) AS right_title, s.similarity,
           s.measured_by, s.reason, s.status, s.created_at, s.resolved_at, s.resolved_by
      FROM consolidation_suggestions s
      JOIN observations o ON o.id = s.left_id AND o.team_id = s.team_id
      JOIN observations other ON other.id = s.right_id AND other.team_id = s.team_id
     WHERE s.team_id = %(team_id)s
"""


# Whoever undoes a merge does not want it suggested again.
DISMISS = Query(
    int,
    """
    INSERT INTO consolidation_suggestions
           (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason, status, resolved_at, resolved_by)
    SELECT n.id, %(team_id)s, %(project_id)s, least(n.other_id, %(observation_id)s), greatest(n.other_id, %(observation_id)s),
           %(similarity)s, 'words', 'same', 'dismissed', now(), %(resolved_by)s
      FROM unnest(%(ids)s::uuid[], %(other_ids)s::uuid[]) AS n(id, other_id)
    ON CONFLICT (left_id, right_id)
    DO UPDATE SET status = 'dismissed', resolved_at = excluded.resolved_at, resolved_by = excluded.resolved_by
    """,
)

IS_DISMISSED = Query(
    bool,
    """
    SELECT EXISTS (SELECT FROM consolidation_suggestions
                    WHERE team_id = %(team_id)s AND left_id = %(left_id)s AND right_id = %(right_id)s AND status = 'dismissed')
    """,
)

# -- the log of merges


async def relate(conn: Conn, team_id: UUID, relation: NewRelation) -> UUID:
    """Store the relation; returns the id of the one that is there now."""
    return await RELATE.one(
        conn,
        id=new_id(),
        team_id=team_id,
        from_id=relation.from_id,
        from_project_id=relation.from_project_id,
        to_id=relation.to_id,
        to_project_id=relation.to_project_id,
        relationship=relation.relationship,
        strength=relation.strength,
        context=relation.context,
    )


@query(f"{_RELATION} AND r.id = %(relation_id)s")
async def relation(conn: Conn, team_id: UUID, relation_id: UUID) -> Relation | None: ...


async def relations_of(
    conn: Conn, team_id: UUID, ids: Collection[UUID], relationships: Sequence[str] | None, limit: int
) -> list[Relation]:
    """The relations from and to these observations, the strongest first."""
    names = None if relationships is None else list(relationships)
    return await RELATIONS_OF.all(conn, team_id=team_id, ids=list(ids), relationships=names, limit=limit)


async def unrelate(conn: Conn, team_id: UUID, relation_id: UUID) -> bool:
    return await UNRELATE.run(conn, team_id=team_id, id=relation_id) > 0


@query("""
    DELETE FROM observation_relationships
     WHERE from_id = %(from_id)s AND to_id = ANY(%(to_ids)s) AND relationship = 'SUPERSEDES' AND team_id = %(team_id)s
    """)
async def unrelate_superseded(conn: Conn, team_id: UUID, from_id: UUID, to_ids: Collection[UUID]) -> None: ...


async def suggest(conn: Conn, team_id: UUID, project_id: UUID, pairs: Sequence[NewSuggestion]) -> int:
    """Suggest the pairs that never were, in either order, and of which both are shown; returns how many those are."""
    rows = [{"id": new_id(), "left_id": p.left_id, "right_id": p.right_id, "similarity": p.similarity} for p in pairs]
    rows = [row | {"measured_by": p.measured_by, "reason": p.reason} for row, p in zip(rows, pairs, strict=True)]
    return await SUGGEST.run(conn, team_id=team_id, project_id=project_id, rows=Jsonb(rows))


# A pair of which either is not shown any more waits for nobody: it is left out while it is open.
@unprepared_query(f"""
    {_SUGGESTION}
       AND ((%(project_id)s::uuid IS NULL AND %(observation_id)s::uuid IS NOT NULL)
            OR {IN_REACH_O.replace("o.project_id", "s.project_id")})
       AND (%(status)s::text IS NULL OR s.status = %(status)s::text)
       AND (%(observation_id)s::uuid IS NULL OR s.left_id = %(observation_id)s::uuid OR s.right_id = %(observation_id)s::uuid)
       AND (%(contradictions)s::boolean IS NULL OR (s.reason = 'contradicts') = %(contradictions)s::boolean)
       AND (s.status <> 'open' OR (({LIVE_O}) AND ({_LIVE_OTHER})))
       AND (%(before)s::timestamptz IS NULL OR (s.created_at, s.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY s.created_at DESC, s.id DESC LIMIT %(limit)s
    """)
async def suggestions(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    status: SuggestionStatus | None = None,
    observation_id: UUID | None = None,
    contradictions: bool | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
) -> list[Suggestion]:
    """A page, newest first; None for no filter. Open ones only of shown observations; `contradictions` alone, or none."""
    ...


@query(f"{_SUGGESTION} AND s.id = %(suggestion_id)s")
async def suggestion(conn: Conn, team_id: UUID, suggestion_id: UUID) -> Suggestion | None:
    """The suggestion, whatever became of the pair."""
    ...


@query("""
    UPDATE consolidation_suggestions SET status = %(status)s, resolved_at = now(), resolved_by = %(resolved_by)s
     WHERE team_id = %(team_id)s AND id = %(suggestion_id)s
    """)
async def resolve(conn: Conn, team_id: UUID, suggestion_id: UUID, status: SuggestionStatus, resolved_by: str) -> None:
    """Mark it as accepted or dismissed."""
    ...


# Whoever merges what was suggested has accepted it.
@query("""
    UPDATE consolidation_suggestions SET status = 'open', resolved_at = NULL, resolved_by = NULL
     WHERE team_id = %(team_id)s AND id = %(suggestion_id)s
    """)
async def reopen(conn: Conn, team_id: UUID, suggestion_id: UUID) -> None: ...


@query("""
    UPDATE consolidation_suggestions SET status = 'accepted', resolved_at = now(), resolved_by = %(resolved_by)s
     WHERE team_id = %(team_id)s AND left_id = ANY(%(ids)s) AND right_id = ANY(%(ids)s) AND status = 'open'
    """)
async def accept_among(conn: Conn, team_id: UUID, ids: Collection[UUID], resolved_by: str) -> None:
    """Mark the open suggestions between any two of these observations as accepted."""
    ...


async def dismiss(conn: Conn, observation: Observation, other_ids: Sequence[UUID], *, similarity: float, resolved_by: str) -> None:
    """Mark the observation with each of the others as a pair that is not suggested again."""
    await DISMISS.run(
        conn,
        team_id=observation.team_id,
        project_id=observation.project_id,
        observation_id=observation.id,
        ids=[new_id() for _ in other_ids],
        other_ids=list(other_ids),
        similarity=similarity,
        resolved_by=resolved_by,
    )


async def is_dismissed(conn: Conn, team_id: UUID, left_id: UUID, right_id: UUID) -> bool:
    """Whether somebody decided that the two stay apart."""
    return await IS_DISMISSED.one(conn, team_id=team_id, left_id=min(left_id, right_id), right_id=max(left_id, right_id))


@unprepared_query(f"""
    SELECT v.id, v.project_id, v.observation_id, o.number, v.version, v.source_ids, v.strategy, v.similarity, v.measured_by,
           v.performed_by, v.before ->> 'content' AS content_before,
           coalesce((SELECT later.before ->> 'content' FROM observation_versions later
                      WHERE later.observation_id = v.observation_id AND later.team_id = v.team_id AND later.version > v.version
                        AND later.before IS NOT NULL
                      ORDER BY later.version LIMIT 1), o.content) AS content_after,
           v.created_at, v.undone_at
      FROM observation_versions v JOIN observations o ON o.id = v.observation_id AND o.team_id = v.team_id
     WHERE v.team_id = %(team_id)s AND v.action = 'merged'
       AND ((%(project_id)s::uuid IS NULL AND %(target_id)s::uuid IS NOT NULL)
            OR {IN_REACH_O.replace("o.project_id", "v.project_id")})
       AND (%(target_id)s::uuid IS NULL OR v.observation_id = %(target_id)s::uuid)
       AND (%(before)s::timestamptz IS NULL OR (v.created_at, v.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY v.created_at DESC, v.id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def merges(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    target_id: UUID | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
    offset: int = 0,
) -> list[MergeRecord]:
    """A page of the log of merges, newest first; None for no filter."""
    ...
