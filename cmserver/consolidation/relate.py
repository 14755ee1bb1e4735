"""Relations between observations of a team: made, followed both ways, and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base.errors import Forbidden, Invalid, Issue, NotFound
from cmserver.base.sql import Conn
from cmserver.consolidation import repository
from cmserver.consolidation.model import SYSTEM_RELATIONSHIPS, NewRelation, Relation
from cmserver.observations import read as observations_read
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.redaction.redact import redact

RELATIONS_MOST = 200
"""How many relations are followed from one observation."""
NO_SUCH = "Relation not found."
_NOT_YOURS = "This observation is shared by another project. A key that is bound to a project may only read it."


class RelatedObservations(msgspec.Struct, frozen=True, kw_only=True):
    """What is related to an observation, nearest first, and the relations that lead there."""

    observations: list[Observation]
    relations: list[Relation]


async def relate(
    conn: Conn, principal: Principal, from_name: str, to_name: str, relationship: str, strength: float, context: str | None
) -> Relation:
    """Relate two observations; the same relation again gets the new strength and context. Errors name `$.from` or `$.to`."""
    if relationship in SYSTEM_RELATIONSHIPS:
        message = f"{relationship} is made by the system only"
        raise Invalid(f"{message}.", [Issue("$.relationship", message)])
    from_, to = await _find_end(conn, principal, from_name, "$.from"), await _find_end(conn, principal, to_name, "$.to")
    if from_.id == to.id:
        message = "An observation is not related to itself"
        raise Invalid(f"{message}.", [Issue("$.to", message)])
    new = NewRelation(
        from_id=from_.id,
        from_project_id=from_.project_id,
        to_id=to.id,
        to_project_id=to.project_id,
        relationship=relationship,
        strength=strength,
        context=redact(context)[0] if context else None,
    )
    relation_id = await repository.relate(conn, principal.team_id, new)
    await audit.record(
        conn, principal, "relation.created", "relation", relation_id, project_id=from_.project_id, relationship=relationship
    )
    return await _find(conn, principal, relation_id)


async def unrelate(conn: Conn, principal: Principal, relation_id: UUID) -> UUID:
    """Delete a relation; Forbidden for one that the system has made."""
    relation = await _find(conn, principal, relation_id)
    if relation.relationship in SYSTEM_RELATIONSHIPS:
        raise Forbidden("This relation was made by the system: undo the merge instead.")
    ends = await observations.any_by_names(conn, principal.team_id, {relation.from_id, relation.to_id})
    if not all(principal.sees(end.project_id) for end in ends):
        raise Forbidden(_NOT_YOURS)
    await repository.unrelate(conn, principal.team_id, relation_id)
    project_id = next(end.project_id for end in ends if end.id == relation.from_id)
    await audit.record(
        conn, principal, "relation.deleted", "relation", relation_id, project_id=project_id, relationship=relation.relationship
    )
    return relation_id


async def read_related(
    conn: Conn, principal: Principal, name: str, *, relationships: Sequence[str] | None, depth: int
) -> RelatedObservations:
    """Relations both ways over up to `depth` steps, and ends that may be seen; a superseded end leads nowhere."""
    start = await observations_read.find_any_observation(conn, principal, name)
    found: dict[UUID, Observation] = {}
    relations: dict[UUID, Relation] = {}
    seen, edge = {start.id}, [start.id]
    sees_shared = await observations_read.sees_shared_observations(conn, principal)
    for _ in range(depth):
        step = await repository.relations_of(conn, principal.team_id, edge, relationships, RELATIONS_MOST)
        ends = {end for relation in step for end in (relation.from_id, relation.to_id)} - seen
        rows_at_ends = await observations.by_ids(conn, principal.team_id, list(ends))
        shown = {row.id: row for row in rows_at_ends if observations_read.may_read(principal, row, sees_shared=sees_shared)}
        visible = {start.id, *found, *shown}
        for relation in step:
            ends_of_relation = {relation.from_id, relation.to_id}
            is_visible = ends_of_relation <= visible
            if is_visible or (relation.relationship in SYSTEM_RELATIONSHIPS and ends_of_relation & visible):
                relations.setdefault(relation.id, relation)
        found |= shown
        seen |= ends
        edge = list(shown)
        if not edge:
            break
    rows = list(found.values())
    await observations_read.audit_read(conn, principal, start.project_id, "related", rows)
    return RelatedObservations(observations=rows, relations=list(relations.values()))


async def _find_end(conn: Conn, principal: Principal, name: str, path: str) -> Observation:
    try:
        observation = await observations_read.find_observation(conn, principal, name)
    except NotFound as error:
        raise NotFound(str(error), [Issue(path, str(error))]) from error
    if not principal.sees(observation.project_id):
        raise Forbidden(_NOT_YOURS)
    return observation


async def _find(conn: Conn, principal: Principal, relation_id: UUID) -> Relation:
    relation = await repository.relation(conn, principal.team_id, relation_id)
    if relation is None:
        raise NotFound(NO_SUCH)
    ends = await observations.any_by_names(conn, principal.team_id, {relation.from_id, relation.to_id})
    sees_shared = await observations_read.sees_shared_observations(conn, principal)
    if not all(observations_read.may_read(principal, end, sees_shared=sees_shared) for end in ends):
        raise NotFound(NO_SUCH)
    return relation
