"""A place in which much has happened: see crowd.sql."""

from __future__ import annotations

from pathlib import Path
from typing import LiteralString, cast
from uuid import UUID

import msgspec
import psycopg

from tests.bench.world import Place, World

_SQL = Path(__file__).with_suffix(".sql")
_WHOSE = "CREATE TEMP TABLE c (team_id uuid, project_id uuid, key_id uuid, events integer, per_session integer)"
_EVENTS_PER_SESSION = 50
_MIDDLE = """
    SELECT o.number, o.server_session_id, j.id, j.agent_event_id
      FROM observations o JOIN observation_generation_jobs j ON j.id = o.created_by_job_id
     WHERE o.kind = 'observation' ORDER BY o.number OFFSET (SELECT count(*) / 3 FROM observations) LIMIT 1
"""


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """The place, and things from the middle of it to ask for."""

    place: Place
    job_id: UUID
    event_id: UUID
    session_id: UUID
    number: int


def crowded(world: World, events: int) -> Crowd:
    """A fresh place with so many events in it, vacuumed and analysed as autovacuum would have."""
    place = world.place()
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        conn.execute(_WHOSE)
        whose = [place.team_id, place.project_id, place.key_id, events, _EVENTS_PER_SESSION]
        conn.execute("INSERT INTO c VALUES (%s, %s, %s, %s, %s)", whose)
        conn.execute(cast("LiteralString", _SQL.read_text(encoding="utf-8")))
        conn.execute("VACUUM ANALYZE")
        row = conn.execute(_MIDDLE).fetchone()
    assert row is not None
    return Crowd(place=place, number=row[0], session_id=row[1], job_id=row[2], event_id=row[3])
