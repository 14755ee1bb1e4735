"""Reading events. They are written by ingest, together with their jobs and lanes, in one statement."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from cmserver.base.sql import Conn, Query
from cmserver.events.model import Event

OWNS = {"agent_events"}

BY_ID = Query(
    Event,
    """
    SELECT id, project_id, team_id, server_session_id, source_adapter, source_event_id, event_type, platform_source, origin,
           generate, payload, metadata, occurred_at, received_at, created_at
      FROM agent_events WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

BY_KEYS = Query(
    Event,
    """
    SELECT e.id, e.project_id, e.team_id, e.server_session_id, e.source_adapter, e.source_event_id, e.event_type, e.platform_source,
           e.origin, e.generate, e.payload, e.metadata, e.occurred_at, e.received_at, e.created_at
      FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k(key, place)
      JOIN agent_events e ON e.idempotency_key = k.key AND e.team_id = %(team_id)s
     ORDER BY k.place
    """,
)

# A sub-agent's report is not the session's last word, nor is the error that ended a turn.
LAST_MESSAGE = Query(
    str,
    """
    SELECT payload ->> 'last_assistant_message' FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
       AND event_type NOT IN ('subagent_stop', 'turn_failed')
       AND payload ->> 'last_assistant_message' IS NOT NULL
     ORDER BY occurred_at DESC, id DESC LIMIT 1
    """,
)

COUNT_OF_SESSION = Query(
    int,
    """
    SELECT count(*) FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
    """,
)

# Their jobs and prompts go with them, where those are still there.
ERASE = Query(
    int,
    """
    DELETE FROM agent_events
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)

LAST_RECEIVED = Query(
    datetime,
    """
    SELECT received_at FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
     ORDER BY received_at DESC LIMIT 1
    """,
)

# Hooks that speak our API themselves, as claude-mem's do, say `hook` there; what comes through the hooks' door has another origin.
ENDS_A_TURN = Query(
    bool,
    """
    SELECT event_type = 'assistant_message' AND source_adapter = 'hook' AND origin = 'api' FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
     ORDER BY received_at DESC, id DESC LIMIT 1
    """,
)


async def by_id(conn: Conn, team_id: UUID, event_id: UUID) -> Event | None:
    return await BY_ID.first(conn, id=event_id, team_id=team_id)


async def by_keys(conn: Conn, team_id: UUID, keys: list[str]) -> list[Event]:
    """One event for each key that is stored, in the keys' order."""
    return await BY_KEYS.all(conn, team_id=team_id, keys=keys)


async def last_message(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> str | None:
    """The agent's last words in the session, when it reported any."""
    return await LAST_MESSAGE.first(conn, team_id=team_id, project_id=project_id, session_id=session_id)


async def count_of_session(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> int:
    return await COUNT_OF_SESSION.one(conn, team_id=team_id, project_id=project_id, session_id=session_id)


async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """All of the project, or of the team without one; how many."""
    return await ERASE.run(conn, team_id=team_id, project_id=project_id)


async def last_received(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> datetime | None:
    """When the newest event of the session came in. Looks at all of them."""
    return await LAST_RECEIVED.first(conn, team_id=team_id, project_id=project_id, session_id=session_id)


async def ends_a_turn(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> bool:
    """Whether the event that came in last is an agent's last message of a turn, told over the API by the agent's own hook."""
    return bool(await ENDS_A_TURN.first(conn, team_id=team_id, project_id=project_id, session_id=session_id))
