"""All SQL on calibrations, and what they are measured with."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Query, query, unprepared_query
from cmserver.embeddings.calibration.model import StoredCalibration, TitledText, UncalibratedTeam
from cmserver.embeddings.model import Calibration
from cmserver.observations.model import LIVE_O

OWNS = {"embedding_calibrations"}

_COLUMNS: LiteralString = "intercept, slope, titles, calibrated_at"
_COMPARED = 500
"""A title is compared with so many of the project's newest documents: in more of them anything is near to something."""


SAVE = Query(
    StoredCalibration,
    f"""
    INSERT INTO embedding_calibrations AS c (team_id, model_id, intercept, slope, titles)
    VALUES (%(team_id)s, %(model_id)s, %(intercept)s, %(slope)s, %(titles)s)
    ON CONFLICT (team_id, model_id) DO UPDATE
       SET intercept = excluded.intercept, slope = excluded.slope, titles = excluded.titles, calibrated_at = now()
    RETURNING {_COLUMNS}
    """,
)


NEAREST = Query(
    float,
    """
    SELECT coalesce(max(1 - (n.embedding <=> %(vector)s::halfvec)), 0)::float8
      FROM (SELECT embedding FROM observation_embeddings
             WHERE team_id = %(team_id)s AND model_id = %(model_id)s AND project_id = %(project_id)s AND embedding IS NOT NULL
               AND observation_id IS NOT NULL AND observation_id IS DISTINCT FROM %(except_id)s::uuid
             ORDER BY observation_id DESC LIMIT %(compared)s) n
    """,
    prepare=False,
)


@query(f"SELECT {_COLUMNS} FROM embedding_calibrations WHERE team_id = %(team_id)s AND model_id = %(model_id)s")
async def find(conn: Conn, team_id: UUID, model_id: int) -> StoredCalibration | None:
    """The team's calibration of the model; None when it was not measured yet."""
    ...


async def save(conn: Conn, team_id: UUID, model_id: int, calibration: Calibration, titles: int) -> StoredCalibration:
    """In place of the one before."""
    return await SAVE.one(
        conn, team_id=team_id, model_id=model_id, intercept=calibration.intercept, slope=calibration.slope, titles=titles
    )


# Of the team's project that has most of them, any: the order of the hashes has nothing to do with what they say.
@unprepared_query(f"""
    WITH titled AS (
        SELECT o.id, o.project_id
          FROM observation_embeddings e JOIN observations o ON o.id = e.observation_id
         WHERE e.team_id = %(team_id)s AND e.model_id = %(model_id)s AND e.embedding IS NOT NULL AND o.team_id = %(team_id)s
           AND o.title IS NOT NULL AND o.summary IS NULL AND {LIVE_O}
         ORDER BY o.id DESC LIMIT 20000
    )
    SELECT o.id AS observation_id, o.project_id, o.title, o.subtitle, o.narrative, o.facts, o.concepts, o.summary, o.content
      FROM observations o JOIN titled t ON t.id = o.id
     WHERE t.project_id = (SELECT project_id FROM titled GROUP BY project_id ORDER BY count(*) DESC, project_id LIMIT 1)
     ORDER BY md5(o.id::text) LIMIT %(limit)s
    """)
async def sample_titled(conn: Conn, team_id: UUID, model_id: int, limit: int) -> list[TitledText]:
    """Up to `limit` embedded observations with titles, of the team's project that has most of them."""
    ...


async def find_nearest_cosine(
    conn: Conn, team_id: UUID, project_id: UUID, model_id: int, vector: str, except_id: UUID | None
) -> float:
    """The cosine of the vector and the nearest document of the project, but for the one with `except_id`."""
    return await NEAREST.one(
        conn,
        team_id=team_id,
        project_id=project_id,
        model_id=model_id,
        vector=vector,
        except_id=except_id,
        compared=_COMPARED,
    )


@query("""
    SELECT p.team_id
      FROM (SELECT project_id, count(*) AS vectors FROM observation_embeddings
             WHERE model_id = %(model_id)s AND embedding IS NOT NULL AND observation_id IS NOT NULL GROUP BY project_id) e
      JOIN projects p ON p.id = e.project_id
     WHERE e.vectors >= %(at_least)s
       AND NOT EXISTS (SELECT FROM embedding_calibrations c WHERE c.team_id = p.team_id AND c.model_id = %(model_id)s)
     GROUP BY p.team_id ORDER BY p.team_id
    """)
async def list_uncalibrated(conn: Conn, model_id: int, at_least: int) -> list[UncalibratedTeam]:
    """Of all teams, those with a project of so many vectors of the model, and without a calibration of it."""
    ...
