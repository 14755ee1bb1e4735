"""Reads events. Ingest writes them, with their jobs and lanes, in one statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Query, RowCount, query, unprepared_query
from cmserver.events.model import (
    EVENT_COLUMNS,
    EventKind,
    KeyedTime,
    RecordedToolUse,
    StoredEvent,
    StoredToolUse,
    ToolUseFilter,
    ToolUseOfTurn,
    ToolUseWithText,
)

OWNS = {"agent_events"}

_E_COLUMNS: LiteralString = "e." + EVENT_COLUMNS.replace(", ", ", e.")
_E_COLUMNS_ON_REQUEST: LiteralString = _E_COLUMNS.replace("e.payload,", "CASE WHEN %(with_payload)s THEN e.payload END AS payload,")


_STORED_TOOL_USE: LiteralString = """
    SELECT e.id, e.project_id, p.canonical_id AS project, e.server_session_id,
           coalesce(s.external_session_id, s.content_session_id) AS session, e.platform_source, e.source_event_id,
           CASE WHEN e.payload_purged_at IS NULL THEN e.payload END AS payload, e.metadata, e.occurred_at,
           (SELECT max(t.prompt_number) FROM turns t
             WHERE t.server_session_id = e.server_session_id AND t.team_id = e.team_id AND t.created_at <= e.occurred_at)
           AS prompt_number,
           (SELECT o.number FROM observation_sources c JOIN observations o ON o.id = c.observation_id AND o.team_id = c.team_id
             WHERE c.agent_event_id = e.id AND c.team_id = e.team_id
               AND o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())
             ORDER BY o.number LIMIT 1) AS observation_number
"""
_WITH_NAMES: LiteralString = """
      JOIN projects p ON p.id = e.project_id AND p.team_id = e.team_id
      LEFT JOIN server_sessions s ON s.id = e.server_session_id AND s.team_id = e.team_id
"""
# `lows` and `highs` are bounds of ids.
TOOL_USES_BY_NAMES = Query(
    StoredToolUse,
    f"""
    WITH found AS (
        SELECT e.id FROM unnest(%(keys)s::text[]) AS key
          JOIN agent_events e ON e.idempotency_key = key AND e.team_id = %(team_id)s
         UNION
        SELECT e.id FROM unnest(%(lows)s::uuid[], %(highs)s::uuid[]) AS n (low, high)
          JOIN agent_events e ON e.id BETWEEN n.low AND n.high AND e.team_id = %(team_id)s)
    {_STORED_TOOL_USE}
      FROM found JOIN agent_events e ON e.id = found.id AND e.team_id = %(team_id)s {_WITH_NAMES}
     WHERE e.event_type IN ('tool_use', 'tool_use_failure')
       AND (%(session)s::text IS NULL OR coalesce(s.external_session_id, s.content_session_id) = %(session)s::text)
     ORDER BY e.occurred_at, e.id
    """,
    prepare=False,
)
# Of each project as many as the page may need.
LIST_TOOL_USES = Query(
    StoredToolUse,
    f"""
    WITH page AS MATERIALIZED (
        SELECT event.id, event.occurred_at
          FROM unnest(%(project_ids)s::uuid[]) AS project (id)
         CROSS JOIN LATERAL (
               SELECT e.id, e.occurred_at FROM agent_events e
                WHERE e.project_id = project.id AND e.team_id = %(team_id)s AND e.event_type IN ('tool_use', 'tool_use_failure')
                  AND (%(session)s::text IS NULL
                       OR e.server_session_id IN (SELECT s.id FROM server_sessions s
                                                   WHERE s.team_id = %(team_id)s AND s.content_session_id = %(session)s::text))
                  AND (%(tool_names)s::text[] IS NULL OR e.payload ->> 'tool_name' = ANY(%(tool_names)s::text[]))
                  AND (%(agent_id)s::text IS NULL OR e.metadata ->> 'agent_id' = %(agent_id)s::text)
                  AND (%(platforms)s::text[] IS NULL OR coalesce(e.platform_source, 'claude') = ANY(%(platforms)s::text[]))
                  AND (%(since)s::timestamptz IS NULL OR e.occurred_at >= %(since)s::timestamptz)
                  AND (%(until)s::timestamptz IS NULL OR e.occurred_at < %(until)s::timestamptz)
                ORDER BY CASE WHEN %(is_oldest_first)s THEN e.occurred_at END, e.occurred_at DESC
                LIMIT %(limit)s) event
         ORDER BY CASE WHEN %(is_oldest_first)s THEN event.occurred_at END, event.occurred_at DESC, event.id
         LIMIT %(limit)s)
    {_STORED_TOOL_USE}
      FROM page JOIN agent_events e ON e.id = page.id AND e.team_id = %(team_id)s {_WITH_NAMES}
     ORDER BY CASE WHEN %(is_oldest_first)s THEN e.occurred_at END, e.occurred_at DESC, e.id OFFSET %(offset)s
    """,
    prepare=False,
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


@query(f"SELECT {EVENT_COLUMNS} FROM agent_events WHERE id = %(event_id)s AND team_id = %(team_id)s")
async def by_id(conn: Conn, team_id: UUID, event_id: UUID) -> StoredEvent | None: ...


@query("""
    SELECT id, event_type, coalesce(payload ->> 'tool_name', payload ->> 'toolName') AS tool FROM agent_events
     WHERE id = ANY(%(event_ids)s) AND team_id = %(team_id)s
    """)
async def kinds(conn: Conn, team_id: UUID, event_ids: Sequence[UUID]) -> list[EventKind]: ...


@query(f"""
    SELECT {_E_COLUMNS}
      FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k(key, place)
      JOIN agent_events e ON e.idempotency_key = k.key AND e.team_id = %(team_id)s
     ORDER BY k.place
    """)
async def by_keys(conn: Conn, team_id: UUID, keys: list[str]) -> list[StoredEvent]:
    """One event for each key that is stored, in the keys' order."""
    ...


@query("""
    SELECT e.idempotency_key, e.occurred_at
      FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k(key, place)
      JOIN agent_events e ON e.idempotency_key = k.key AND e.team_id = %(team_id)s
     ORDER BY k.place
    """)
async def times_by_keys(conn: Conn, team_id: UUID, keys: Sequence[str]) -> list[KeyedTime]:
    """When the stored ones of these events happened, in the keys' order."""
    ...


# Of each project as many as the page may need, each read from the end of its index, and the newest of them all. Newest by when they
# happened, which never changes; what arrives late takes its place among the others.
@unprepared_query(f"""
    WITH page AS MATERIALIZED (
        SELECT event.id, event.occurred_at
          FROM projects p
         CROSS JOIN LATERAL (
               SELECT e.id, e.occurred_at FROM agent_events e
                WHERE e.project_id = p.id AND e.team_id = %(team_id)s
                  AND (%(session_id)s::uuid IS NULL OR e.server_session_id = %(session_id)s::uuid)
                  AND (%(event_type)s::text IS NULL OR e.event_type = %(event_type)s::text)
                  AND (%(before)s::timestamptz IS NULL
                       OR (e.occurred_at <= %(before)s::timestamptz
                           AND (e.occurred_at, e.id) < (%(before)s::timestamptz, %(before_id)s::uuid)))
                ORDER BY e.occurred_at DESC, e.id DESC LIMIT %(limit)s) event
         WHERE p.team_id = %(team_id)s
           AND (p.id = %(project_id)s::uuid
                OR (%(project_id)s::uuid IS NULL AND (NOT p.isolated OR %(session_id)s::uuid IS NOT NULL)))
         ORDER BY event.occurred_at DESC, event.id DESC LIMIT %(limit)s
    )
    SELECT {_E_COLUMNS_ON_REQUEST}
      FROM page JOIN agent_events e ON e.id = page.id AND e.team_id = %(team_id)s
     ORDER BY e.occurred_at DESC, e.id DESC
    """)
async def page(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    session_id: UUID | None,
    event_type: str | None,
    with_payload: bool,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
) -> list[StoredEvent]:
    """Newest first; `before` and `before_id` are the place of the last one on the page before. Without payloads they are None."""
    ...


# A sub-agent's report is not the session's last word, nor is the error that ended a turn.
@query("""
    SELECT payload ->> 'last_assistant_message' FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
       AND event_type NOT IN ('subagent_stop', 'turn_failed')
       AND payload ->> 'last_assistant_message' IS NOT NULL AND received_at <= %(until)s
     ORDER BY occurred_at DESC, id DESC LIMIT 1
    """)
async def last_message(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID, *, until: datetime) -> str | None:
    """The agent's last words in the session of those that had arrived until then, when it reported any."""
    ...


# Of each session what came after the last end of a turn. Most projects have one session at a time, and few events in a turn.
@query("""
    WITH recent AS MATERIALIZED (
        SELECT id, server_session_id, event_type, occurred_at, payload FROM agent_events
         WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND occurred_at > now() - interval '2 hours'
           AND server_session_id IS NOT NULL
         ORDER BY occurred_at DESC, id DESC LIMIT 300)
    SELECT r.server_session_id, r.payload ->> 'tool_name' AS tool_name, r.payload -> 'tool_input' AS tool_input,
           r.payload ->> 'cwd' AS cwd,
           (SELECT s.metadata ->> 'root' FROM server_sessions s
             WHERE s.id = r.server_session_id AND s.team_id = %(team_id)s) AS root
      FROM recent r
     WHERE r.event_type = 'tool_use'
       AND NOT EXISTS (
           SELECT 1 FROM recent e
            WHERE e.server_session_id = r.server_session_id AND (e.occurred_at, e.id) > (r.occurred_at, r.id)
              AND e.event_type IN ('assistant_message', 'turn_failed', 'session_end', 'user_prompt'))
     ORDER BY r.occurred_at, r.id
    """)
async def running_turns(conn: Conn, team_id: UUID, project_id: UUID) -> list[ToolUseOfTurn]:
    """The tool uses of the turns that are under way in the project, oldest first."""
    ...


@query("""
    SELECT count(*) FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
       AND received_at <= %(until)s
    """)
async def count_of_session(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID, *, until: datetime) -> int:
    """How many events of the session had arrived until then."""
    ...


# Their jobs and prompts go with them, where those are still there.
@unprepared_query("""
    DELETE FROM agent_events
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete all events of the project, or without one of the team; returns their number."""
    ...


@query("""
    SELECT received_at FROM agent_events
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND server_session_id = %(session_id)s
     ORDER BY received_at DESC LIMIT 1
    """)
async def last_received(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> datetime | None:
    """When the newest event of the session was received; None without events. Reads all events of the session."""
    ...


async def ends_a_turn(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> bool:
    """Whether the event that came in last is an agent's last message of a turn, sent over the API by the agent's own hook."""
    return bool(await ENDS_A_TURN.first(conn, team_id=team_id, project_id=project_id, session_id=session_id))


# In the order of receipt, by its index: what arrives late is read late.
@unprepared_query("""
    SELECT e.id, e.payload, e.occurred_at, e.received_at,
           (SELECT s.metadata ->> 'root' FROM server_sessions s
             WHERE s.id = e.server_session_id AND s.team_id = %(team_id)s) AS root
      FROM agent_events e
     WHERE e.project_id = %(project_id)s AND e.team_id = %(team_id)s AND e.payload_purged_at IS NULL
       AND (%(since)s::timestamptz IS NULL OR e.received_at > %(since)s::timestamptz) AND e.received_at <= %(until)s
       AND e.payload ? 'tool_name'
     ORDER BY e.received_at LIMIT %(limit)s
    """)
async def tool_uses(
    conn: Conn, team_id: UUID, project_id: UUID, *, since: datetime | None, until: datetime, limit: int
) -> list[RecordedToolUse]:
    """The project's tool calls that were received behind `since`, up to `until`, the first ones first."""
    ...


async def tool_uses_by_names(
    conn: Conn, team_id: UUID, keys: Sequence[str], bounds: Sequence[tuple[UUID, UUID]], session: str | None
) -> list[StoredToolUse]:
    """The tool calls with those keys, or with ids within those bounds, oldest first."""
    lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
    return await TOOL_USES_BY_NAMES.all(conn, team_id=team_id, keys=list(keys), lows=lows, highs=highs, session=session)


async def list_tool_uses(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID], filters: ToolUseFilter, *, limit: int, offset: int
) -> list[StoredToolUse]:
    """A page of the tool calls of the projects."""
    return await LIST_TOOL_USES.all(
        conn,
        team_id=team_id,
        project_ids=list(project_ids),
        limit=limit + offset,
        offset=offset,
        **msgspec.structs.asdict(filters),
    )


# What sessions of hooks call their agents: each value read from the beginning of its part of the index.
@query("""
    WITH RECURSIVE named AS (
        (SELECT coalesce(platform_source, '') AS name FROM server_sessions WHERE team_id = %(team_id)s AND from_hooks
          ORDER BY 1 LIMIT 1)
         UNION ALL
        SELECT (SELECT coalesce(s.platform_source, '') FROM server_sessions s
                 WHERE s.team_id = %(team_id)s AND s.from_hooks AND coalesce(s.platform_source, '') > named.name ORDER BY 1 LIMIT 1)
          FROM named WHERE named.name IS NOT NULL)
    SELECT name FROM named WHERE name IS NOT NULL LIMIT 50
    """)
async def platforms(conn: Conn, team_id: UUID) -> list[str]:
    """What the team's sessions call their agents; "" for none."""
    ...


# Events keep the key of the project that they came to, also after that was joined to another.
@unprepared_query("""
    SELECT id FROM projects
     WHERE team_id = %(team_id)s
       AND (%(project_id)s::uuid IS NULL OR id = %(project_id)s::uuid OR joined_to = %(project_id)s::uuid)
     ORDER BY updated_at DESC LIMIT %(limit)s
    """)
async def projects_of_events(conn: Conn, team_id: UUID, project_id: UUID | None, limit: int) -> list[UUID]:
    """The project with those that were joined to it, None for the team's newest ones."""
    ...


# Those of each turn, by its session's part of the index; a client's clock may be wrong by some minutes. The newest of each are
# looked through, so that a long turn costs no more.
@unprepared_query("""
    SELECT t.id AS turn_id, e.event_type, e.payload, s.metadata ->> 'root' AS root,
           time_of_event(e.occurred_at, e.received_at) AS at
      FROM turns t
      JOIN server_sessions s ON s.id = t.server_session_id AND s.team_id = t.team_id
     CROSS JOIN LATERAL (SELECT min(l.created_at) AS at FROM turns l
                          WHERE l.server_session_id = t.server_session_id AND l.team_id = t.team_id
                            AND l.prompt_number > t.prompt_number) following
     CROSS JOIN LATERAL (
           SELECT * FROM (
           SELECT * FROM agent_events e
            WHERE e.project_id = t.project_id AND e.server_session_id = t.server_session_id AND e.team_id = t.team_id
              AND e.occurred_at >= t.created_at - interval '10 minutes'
              AND e.occurred_at <= least(%(until)s, following.at) + interval '10 minutes'
              AND time_of_event(e.occurred_at, e.received_at) >= t.created_at
              AND time_of_event(e.occurred_at, e.received_at) <= %(until)s
              AND time_of_event(e.occurred_at, e.received_at) < coalesce(following.at, 'infinity')
              AND e.payload ? 'tool_name'
            ORDER BY e.occurred_at DESC LIMIT %(most)s) e
            WHERE strpos(e.payload::text, %(text)s) > 0 LIMIT %(limit)s) e
     WHERE t.id = ANY(%(turn_ids)s) AND t.team_id = %(team_id)s AND t.prompt_number IS NOT NULL
    """)
async def tool_uses_with(
    conn: Conn, team_id: UUID, turn_ids: Collection[UUID], text: str, *, until: datetime, most: int, limit: int
) -> list[ToolUseWithText]:
    """The tool calls of these turns, up to then, in whose payload the text stands as JSON writes it: of the newest `most` of each
    turn the newest `limit`.
    """
    ...
