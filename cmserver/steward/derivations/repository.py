"""All SQL of derivations."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.steward import model

OWNS = {"observation_derivations"}

FINGERPRINTS = Query(
    str,
    """
    SELECT fingerprint FROM observation_derivations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND (%(with_candidates)s OR status <> 'candidate')
    """,
    prepare=False,
)

# A candidate may be stored later; what was stored, taken back or refused stays so. The caller is alone with the project.
KEEP = Query(
    UUID,
    """
    WITH known AS (
        SELECT id, status FROM observation_derivations
         WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND fingerprint = %(fingerprint)s
    ), candidate AS (
        UPDATE observation_derivations d
           SET run_id = %(run_id)s, source_observation_ids = %(source_ids)s, confidence = %(confidence)s, novelty = %(novelty)s,
               status = %(status)s, model = %(model)s, payload = %(payload)s, updated_at = now()
         WHERE d.team_id = %(team_id)s AND d.id = (SELECT id FROM known LIMIT 1)
           AND NOT EXISTS (SELECT FROM known WHERE status <> 'candidate')
        RETURNING d.id
    ), added AS (
        INSERT INTO observation_derivations (id, team_id, project_id, run_id, fingerprint, source_observation_ids, derivation_type,
                                             confidence, novelty, status, model, payload)
        SELECT %(id)s, %(team_id)s, %(project_id)s, %(run_id)s, %(fingerprint)s, %(source_ids)s, %(derivation_type)s,
               %(confidence)s, %(novelty)s, %(status)s, %(model)s, %(payload)s
         WHERE NOT EXISTS (SELECT FROM known)
        RETURNING id
    )
    SELECT id FROM candidate UNION ALL SELECT id FROM added
    """,
)


# -- what people did, by which thresholds move


async def fingerprints(conn: Conn, team_id: UUID, project_id: UUID, *, with_candidates: bool) -> set[str]:
    """What is not to be derived (again)."""
    return set(await FINGERPRINTS.all(conn, team_id=team_id, project_id=project_id, with_candidates=with_candidates))


async def keep(conn: Conn, new: model.NewDerivation) -> UUID | None:
    """Keep what was derived, in place of a candidate; None when it was stored, taken back or refused before."""
    values = {**msgspec.structs.asdict(new), "id": new_id(), "payload": Jsonb(new.payload)}
    return await KEEP.first(conn, **values)


@query("""
    UPDATE observation_derivations SET derived_observation_id = %(observation_id)s
     WHERE team_id = %(team_id)s AND id = %(derivation_id)s
    """)
async def set_observation(conn: Conn, team_id: UUID, derivation_id: UUID, observation_id: UUID) -> None: ...


@query("""
    UPDATE observation_derivations SET status = 'undone', updated_at = now()
     WHERE team_id = %(team_id)s AND derived_observation_id = %(observation_id)s
    """)
async def mark_undone(conn: Conn, team_id: UUID, observation_id: UUID) -> None:
    """Remember, before the observation goes, that it is not wanted."""
    ...


@query("""
    SELECT count(*) FILTER (WHERE d.status = 'accepted' AND o.superseded_at IS NULL) AS kept,
           count(*) FILTER (WHERE d.status = 'undone') AS rejected
      FROM observation_derivations d
      LEFT JOIN observations o ON o.id = d.derived_observation_id AND o.team_id = d.team_id
     WHERE d.team_id = %(team_id)s AND d.created_at > %(since)s
    """)
async def counts(conn: Conn, team_id: UUID, since: datetime) -> model.DerivationCounts: ...
