"""SQL of exports and imports: whole rows of a team's memory, out and in. As owner, for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import LiteralString, TypeVar
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn, Jsonb, Query, query
from cmserver.base.text import storable
from cmserver.ops.transfer import model

OWNS: set[str] = set()
BORROWS = {
    "projects",
    "project_aliases",
    "server_sessions",
    "agent_events",
    "turns",
    "observations",
    "observation_counters",
    "observation_sources",
    "observation_versions",
    "observation_relationships",
    "entities",
    "entity_relations",
    "entity_relation_evidence",
    "pins",
}  # an import writes rows as they are, with their ids and times


class SessionMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is here with another id than it has in a source."""

    other_id: UUID
    id: UUID


class ObservationNumber(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    number: int


L = TypeVar("L", bound=model.DataLine)
_PAGE_ROWS = 1_000

_IN_TEAM: LiteralString = """
     WHERE r.team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR r.project_id = ANY(%(project_ids)s::uuid[]))
       AND (%(after)s::uuid IS NULL OR r.id > %(after)s::uuid)"""
_PAGE: LiteralString = " ORDER BY r.id LIMIT %(limit)s"
_OF_TEAM: LiteralString = f"{_IN_TEAM}{_PAGE}"
_UNANSWERED: LiteralString = """(
       SELECT a.observation_id FROM rule_approvals a WHERE a.team_id = %(team_id)s AND a.state <> 'approved')"""
"""Rules to which nobody has said yes: where they are imported nobody would be asked."""

PROJECTS = Query(
    model.ProjectLine,
    """
    SELECT r.id, r.canonical_id, r.name, r.metadata, r.archived_at, r.generation_policy, r.search_language, r.consolidation,
           r.retention, r.stays_apart, r.merge_with_model, r.isolated, r.created_at,
           ARRAY(SELECT a.alias FROM project_aliases a WHERE a.project_id = r.id AND a.team_id = r.team_id
                  UNION
                 SELECT j.canonical_id FROM projects j WHERE j.joined_to = r.id AND j.team_id = r.team_id
                  UNION
                 SELECT a.alias FROM projects j JOIN project_aliases a ON a.project_id = j.id AND a.team_id = j.team_id
                  WHERE j.joined_to = r.id AND j.team_id = r.team_id
                  ORDER BY 1) AS aliases
      FROM projects r
     WHERE r.team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR r.id = ANY(%(project_ids)s::uuid[]))
       AND r.joined_to IS NULL AND (%(after)s::uuid IS NULL OR r.id > %(after)s::uuid)
     ORDER BY r.id LIMIT %(limit)s
    """,
    prepare=False,
)
SESSIONS = Query(
    model.SessionLine,
    f"""
    SELECT r.id, r.project_id, r.external_session_id, r.content_session_id, r.agent_id, r.agent_type, r.actor_id, r.platform_source,
           r.title, r.metadata, r.started_at, r.ended_at
      FROM server_sessions r {_OF_TEAM}
    """,
    prepare=False,
)
EVENTS = Query(
    model.EventLine,
    f"""
    SELECT r.id, r.project_id, r.server_session_id, r.source_adapter, r.source_event_id, r.event_type, r.platform_source, r.payload,
           r.metadata, r.occurred_at, r.received_at, r.payload_purged_at
      FROM agent_events r {_OF_TEAM}
    """,
    prepare=False,
)
TURNS = Query(
    model.TurnLine,
    f"""
    SELECT r.id, r.number, r.project_id, r.server_session_id, r.agent_event_id, r.prompt_number, r.agent_id, r.prompt AS text,
           r.reply, r.files, r.checks, r.commits, r.actor_id, r.created_at, r.ended_at, r.own_line
      FROM turns r {_OF_TEAM}
    """,
    prepare=False,
)
_OBSERVATION_COLUMNS: LiteralString = (
    "id, number, project_id, server_session_id, scope, kind, type, title, subtitle, narrative, facts, concepts, files_read,"
    " files_modified, summary, prompt_number, actor_id, importance, quote, quote_event_id, anchors, state, closed_by, closed_at,"
    " stale, content, discovery_tokens, read_tokens, metadata, agent, caller_type, ttl_seconds, expires_at, version, superseded_by,"
    " superseded_at, merged_from, access_count, last_accessed_at, created_at, updated_at"
)
OBSERVATIONS = Query(
    model.ObservationLine,
    f"SELECT {_OBSERVATION_COLUMNS} FROM observations r {_IN_TEAM} AND r.id NOT IN {_UNANSWERED} {_PAGE}",
    prepare=False,
)
SOURCES = Query(
    model.SourceLine,
    f"""
    SELECT r.id, r.project_id, r.observation_id, r.source_type, r.source_id, r.metadata, r.created_at
      FROM observation_sources r {_IN_TEAM} AND r.observation_id NOT IN {_UNANSWERED} {_PAGE}
    """,
    prepare=False,
)
VERSIONS = Query(
    model.VersionLine,
    f"""
    SELECT r.id, r.project_id, r.observation_id, r.version, r.action, r.before, r.source_ids, r.strategy, r.similarity,
           r.measured_by,
           r.performed_by, r.created_at, r.undone_at, r.sources_purged_at
      FROM observation_versions r {_IN_TEAM} AND r.observation_id NOT IN {_UNANSWERED} {_PAGE}
    """,
    prepare=False,
)
RELATIONSHIPS = Query(
    model.RelationshipLine,
    f"""
    SELECT r.id, r.from_id, r.from_project_id, r.to_id, r.to_project_id, r.relationship, r.strength, r.context, r.created_at
      FROM observation_relationships r
     WHERE r.team_id = %(team_id)s
       AND (%(project_ids)s::uuid[] IS NULL
            OR (r.from_project_id = ANY(%(project_ids)s::uuid[]) AND r.to_project_id = ANY(%(project_ids)s::uuid[])))
       AND r.from_id NOT IN {_UNANSWERED} AND r.to_id NOT IN {_UNANSWERED}
       AND (%(after)s::uuid IS NULL OR r.id > %(after)s::uuid)
     ORDER BY r.id LIMIT %(limit)s
    """,
    prepare=False,
)
# What rules found alone is found again, unless something that people said refers to it.
ENTITIES = Query(
    model.EntityLine,
    """
    SELECT r.id, r.project_id, r.type, r.name, r.folded_name, r.notes, r.found_by, r.created_at,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('id', a.id, 'type', a.type, 'name', a.name, 'folded_name', a.folded_name)
                                      ORDER BY a.id), '[]')
              FROM entities a WHERE a.merged_into = r.id AND a.team_id = r.team_id) AS aliases
      FROM entities r
     WHERE r.team_id = %(team_id)s AND (%(project_ids)s::uuid[] IS NULL OR r.project_id = ANY(%(project_ids)s::uuid[]))
       AND r.merged_into IS NULL
       AND (r.found_by = 'people' OR EXISTS (SELECT FROM entities a WHERE a.merged_into = r.id AND a.team_id = r.team_id))
       AND (%(after)s::uuid IS NULL OR r.id > %(after)s::uuid)
     ORDER BY r.id LIMIT %(limit)s
    """,
    prepare=False,
)
ENTITY_RELATIONS = Query(
    model.EntityRelationLine,
    f"""
    SELECT r.id, r.project_id, r.from_id, r.to_id, r.label, r.created_at,
           ARRAY(SELECT v.observation_id FROM entity_relation_evidence v
                  WHERE v.relation_id = r.id AND v.team_id = r.team_id AND v.observation_id NOT IN {_UNANSWERED}
                  ORDER BY v.observation_id) AS source_ids
      FROM entity_relations r {_OF_TEAM}
    """,
    prepare=False,
)
# The memory of a joined project is exported as that of the other one, and so is what is asked of it.
PINS = Query(
    model.PinLine,
    """
    SELECT r.id, coalesce(j.joined_to, r.project_id) AS project_id, r.number, r.question, r.must, r.must_not, r.lines, r.on_break,
           r.from_file, r.created_at, r.updated_at
      FROM pins r JOIN projects j ON j.id = r.project_id AND j.team_id = r.team_id
     WHERE r.team_id = %(team_id)s
       AND (%(project_ids)s::uuid[] IS NULL OR coalesce(j.joined_to, r.project_id) = ANY(%(project_ids)s::uuid[]))
       AND (%(after)s::uuid IS NULL OR r.id > %(after)s::uuid)
     ORDER BY r.id LIMIT %(limit)s
    """,
    prepare=False,
)
_BY_TYPE: dict[type[model.DataLine], Query[model.DataLine]] = {  # pyright: ignore[reportAssignmentType] - each makes the lines of its type
    model.ProjectLine: PROJECTS,
    model.SessionLine: SESSIONS,
    model.EventLine: EVENTS,
    model.TurnLine: TURNS,
    model.ObservationLine: OBSERVATIONS,
    model.SourceLine: SOURCES,
    model.VersionLine: VERSIONS,
    model.RelationshipLine: RELATIONSHIPS,
    model.EntityLine: ENTITIES,
    model.EntityRelationLine: ENTITY_RELATIONS,
    model.PinLine: PINS,
}


PRESENT_SESSIONS = Query(UUID, "SELECT id FROM server_sessions WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_EVENTS = Query(UUID, "SELECT id FROM agent_events WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_TURNS = Query(UUID, "SELECT id FROM turns WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_OBSERVATIONS = Query(UUID, "SELECT id FROM observations WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_SOURCES = Query(UUID, "SELECT id FROM observation_sources WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_VERSIONS = Query(UUID, "SELECT id FROM observation_versions WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_RELATIONSHIPS = Query(UUID, "SELECT id FROM observation_relationships WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_ENTITIES = Query(UUID, "SELECT id FROM entities WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_ENTITY_RELATIONS = Query(UUID, "SELECT id FROM entity_relations WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
PRESENT_PINS = Query(UUID, "SELECT id FROM pins WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s")
_PRESENT: dict[type[model.DataLine], Query[UUID]] = {
    model.SessionLine: PRESENT_SESSIONS,
    model.EventLine: PRESENT_EVENTS,
    model.TurnLine: PRESENT_TURNS,
    model.ObservationLine: PRESENT_OBSERVATIONS,
    model.SourceLine: PRESENT_SOURCES,
    model.VersionLine: PRESENT_VERSIONS,
    model.RelationshipLine: PRESENT_RELATIONSHIPS,
    model.EntityLine: PRESENT_ENTITIES,
    model.EntityRelationLine: PRESENT_ENTITY_RELATIONS,
    model.PinLine: PRESENT_PINS,
}

MATCH_SESSIONS = Query(
    SessionMatch,
    """
    SELECT n.id AS other_id, s.id
      FROM jsonb_populate_recordset(NULL::server_sessions, %(rows)s) n
      JOIN server_sessions s ON coalesce(s.origin_project_id, s.project_id) = n.project_id AND s.team_id = %(team_id)s
       AND coalesce(s.platform_source, '') = coalesce(n.platform_source, '') AND s.external_session_id = n.external_session_id
     WHERE s.id <> n.id
    """,
)

SET_PROJECT = Query(
    int,
    """
    UPDATE projects SET archived_at = %(archived_at)s, generation_policy = %(generation_policy)s, consolidation = %(consolidation)s,
           retention = %(retention)s, stays_apart = %(stays_apart)s, merge_with_model = %(merge_with_model)s,
           isolated = %(isolated)s,
           created_at = %(created_at)s
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)
ADD_ALIASES = Query(
    int,
    """
    INSERT INTO project_aliases (team_id, alias, project_id) SELECT %(team_id)s, alias, %(id)s
      FROM unnest(%(aliases)s::text[]) AS alias
    ON CONFLICT DO NOTHING
    """,
)

# A session without a sign of life would be ended and summarised; what was imported is over.
ADD_SESSIONS = Query(
    UUID,
    """
    INSERT INTO server_sessions (id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type,
                                 actor_id, person_id, platform_source, title, metadata, started_at, ended_at,
                                 generation_status, idle_from)
    SELECT id, project_id, %(team_id)s, external_session_id, content_session_id, agent_id, agent_type, actor_id,
           CASE WHEN actor_id IS NULL THEN %(person_id)s::uuid ELSE person_of_name(%(team_id)s, actor_id) END, platform_source,
           title, coalesce(metadata, '{}'), started_at, ended_at, 'completed', NULL
      FROM jsonb_populate_recordset(NULL::server_sessions, %(rows)s)
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_EVENTS = Query(
    UUID,
    """
    INSERT INTO agent_events (id, project_id, team_id, server_session_id, source_adapter, source_event_id, idempotency_key,
                              event_type,
                              platform_source, origin, generate, size_chars, payload, metadata, occurred_at, received_at,
                              payload_purged_at)
    SELECT id, project_id, %(team_id)s, server_session_id, source_adapter, source_event_id, idempotency_key, event_type,
           platform_source, 'import', false, size_chars, coalesce(payload, 'null'), coalesce(metadata, '{}'), occurred_at,
           received_at,
           payload_purged_at
      FROM jsonb_populate_recordset(NULL::agent_events, %(rows)s)
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_TURNS = Query(
    UUID,
    """
    INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, agent_id, prompt, reply,
                       files, checks, commits, actor_id, created_at, ended_at, own_line, search_language)
    SELECT n.id, n.number, %(team_id)s, n.project_id, n.server_session_id, n.agent_event_id, n.prompt_number, n.agent_id, n.text,
           n.reply, coalesce(n.files, '{}'), coalesce(n.checks, '{}'), coalesce(n.commits, '{}'), n.actor_id, n.created_at,
           n.ended_at, n.own_line, p.search_language
      FROM jsonb_to_recordset(%(rows)s) AS n(
           id uuid, number bigint, project_id uuid, server_session_id uuid, agent_event_id uuid, prompt_number integer,
           agent_id text, text text, reply text, files text[], checks text[], commits text[], actor_id text,
           created_at timestamptz, ended_at timestamptz, own_line text)
      JOIN projects p ON p.id = n.project_id AND p.team_id = %(team_id)s
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
# What they were merged into, and closed by, may come later.
ADD_OBSERVATIONS = Query(
    UUID,
    """
    INSERT INTO observations (id, number, project_id, team_id, server_session_id, scope, kind, type, origin, generation_key, title,
                              subtitle, narrative,
                              facts, concepts, files_read, files_modified, summary, prompt_number, actor_id, importance, quote,
                              quote_event_id,
                              anchors, state, closed_at, stale, content, discovery_tokens, read_tokens, metadata, agent,
                              caller_type,
                              ttl_seconds, expires_at, version, merged_from, access_count, last_accessed_at, created_at, updated_at,
                              search_language, person_id)
    SELECT n.id, n.number, n.project_id, %(team_id)s, n.server_session_id, coalesce(n.scope, 'project'),
           coalesce(n.kind, 'observation'), coalesce(n.type, 'change'), coalesce(git.origin, 'import'), git.key, n.title,
           n.subtitle, n.narrative, n.facts, n.concepts,
           n.files_read, n.files_modified, n.summary, n.prompt_number, n.actor_id, coalesce(n.importance, 0.5), n.quote,
           n.quote_event_id,
           n.anchors, n.state, n.closed_at, n.stale, n.content, n.discovery_tokens, n.read_tokens, coalesce(n.metadata, '{}'),
           n.agent, n.caller_type, n.ttl_seconds, n.expires_at, coalesce(n.version, 1), coalesce(n.merged_from, '{}'),
           coalesce(n.access_count, 0), n.last_accessed_at, n.created_at, n.updated_at, p.search_language,
           CASE WHEN git.origin IS NOT NULL THEN NULL
                WHEN n.merged_from <> '{}' OR n.agent = 'steward' THEN '00000000-0000-0000-0000-000000000000'
                WHEN n.actor_id IS NULL THEN %(person_id)s::uuid ELSE person_of_name(%(team_id)s, n.actor_id) END
      FROM jsonb_populate_recordset(NULL::observations, %(rows)s) n
      JOIN projects p ON p.id = n.project_id AND p.team_id = %(team_id)s
      LEFT JOIN LATERAL (SELECT 'git' AS origin, 'git:' || (n.metadata ->> 'git') AS key
                          WHERE (n.caller_type = 'commit' AND n.metadata ->> 'git' ~ '^([0-9a-f]{40}|[0-9a-f]{64})$')
                             OR (n.caller_type = 'document' AND n.metadata ->> 'git' LIKE 'document:_%%')) git ON true
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_SOURCES = Query(
    UUID,
    """
    INSERT INTO observation_sources (id, team_id, project_id, observation_id, agent_event_id, source_type, source_id, metadata,
                                     created_at)
    SELECT id, %(team_id)s, project_id, observation_id, CASE WHEN source_type = 'agent_event' THEN source_id END, source_type,
           source_id, coalesce(metadata, '{}'), created_at
      FROM jsonb_populate_recordset(NULL::observation_sources, %(rows)s)
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_VERSIONS = Query(
    UUID,
    """
    INSERT INTO observation_versions (id, team_id, project_id, observation_id, version, action, before, source_ids, strategy,
                                      similarity, measured_by, performed_by, created_at, undone_at, sources_purged_at)
    SELECT id, %(team_id)s, project_id, observation_id, version, action, before, coalesce(source_ids, '{}'), strategy, similarity,
           measured_by, performed_by, created_at, undone_at, sources_purged_at
      FROM jsonb_populate_recordset(NULL::observation_versions, %(rows)s)
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_RELATIONSHIPS = Query(
    UUID,
    """
    INSERT INTO observation_relationships (id, team_id, from_id, from_project_id, to_id, to_project_id, relationship,
                                           strength, context,
                                           created_at)
    SELECT id, %(team_id)s, from_id, from_project_id, to_id, to_project_id, relationship, coalesce(strength, 0.5), context,
           created_at
      FROM jsonb_populate_recordset(NULL::observation_relationships, %(rows)s)
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
ADD_ENTITIES = Query(
    UUID,
    """
    WITH added AS (
        INSERT INTO entities (id, team_id, project_id, type, name, folded_name, notes, found_by, created_at)
        SELECT n.id, %(team_id)s, n.project_id, n.type, n.name, n.folded_name, n.notes, coalesce(n.found_by, 'people'), n.created_at
          FROM jsonb_populate_recordset(NULL::entities, %(rows)s) n
        ON CONFLICT DO NOTHING
        RETURNING id, project_id
    ), aliases AS (
        INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by, merged_into)
        SELECT a.id, %(team_id)s, added.project_id, a.type, a.name, a.folded_name, 'rules', added.id
          FROM jsonb_to_recordset(%(rows)s) AS n (id uuid, aliases jsonb)
          JOIN added ON added.id = n.id
         CROSS JOIN LATERAL jsonb_to_recordset(coalesce(n.aliases, '[]')) AS a (id uuid, type text, name text, folded_name text)
        ON CONFLICT DO NOTHING
    )
    SELECT id FROM added
    """,
)
ADD_ENTITY_RELATIONS = Query(
    UUID,
    """
    WITH added AS (
        INSERT INTO entity_relations (id, team_id, project_id, from_id, to_id, label, created_at)
        SELECT id, %(team_id)s, project_id, from_id, to_id, label, created_at
          FROM jsonb_populate_recordset(NULL::entity_relations, %(rows)s)
        ON CONFLICT DO NOTHING
        RETURNING id
    ), evidence AS (
        INSERT INTO entity_relation_evidence (relation_id, observation_id, project_id, team_id)
        SELECT added.id, o.id, o.project_id, o.team_id
          FROM jsonb_to_recordset(%(rows)s) AS n (id uuid, source_ids uuid[])
          JOIN added ON added.id = n.id
         CROSS JOIN LATERAL unnest(n.source_ids) AS source_id
          JOIN observations o ON o.id = source_id AND o.team_id = %(team_id)s
        ON CONFLICT DO NOTHING
    )
    SELECT id FROM added
    """,
)
# A number that another pin has is replaced: nothing refers to it.
ADD_PINS = Query(
    UUID,
    """
    WITH new AS (
        SELECT n.*, EXISTS (SELECT FROM pins p WHERE p.team_id = %(team_id)s AND p.number = n.number) AS is_taken
          FROM jsonb_populate_recordset(NULL::pins, %(rows)s) n
    ), highest AS (
        SELECT max(number) AS number
          FROM (SELECT number FROM pins WHERE team_id = %(team_id)s UNION ALL SELECT number FROM new) numbers
    )
    INSERT INTO pins (id, team_id, project_id, number, question, must, must_not, lines, on_break, from_file, holds, created_at,
                      updated_at)
    SELECT n.id, %(team_id)s, n.project_id,
           CASE WHEN n.is_taken THEN h.number + row_number() OVER (PARTITION BY n.is_taken ORDER BY n.number) ELSE n.number END,
           n.question, coalesce(n.must, '{}'), coalesce(n.must_not, '{}'), n.lines, coalesce(n.on_break, 'report'),
           coalesce(n.from_file, false), false, n.created_at, n.updated_at
      FROM new n CROSS JOIN highest h
    ON CONFLICT DO NOTHING
    RETURNING id
    """,
)
_ADD: dict[type[model.DataLine], Query[UUID]] = {
    model.SessionLine: ADD_SESSIONS,
    model.EventLine: ADD_EVENTS,
    model.TurnLine: ADD_TURNS,
    model.ObservationLine: ADD_OBSERVATIONS,
    model.SourceLine: ADD_SOURCES,
    model.VersionLine: ADD_VERSIONS,
    model.RelationshipLine: ADD_RELATIONSHIPS,
    model.EntityLine: ADD_ENTITIES,
    model.EntityRelationLine: ADD_ENTITY_RELATIONS,
    model.PinLine: ADD_PINS,
}

TAKEN_NUMBERS = Query(
    int,
    """
    SELECT number FROM observations WHERE team_id = %(team_id)s AND number = ANY(%(numbers)s::bigint[])
     UNION ALL
    SELECT number FROM turns WHERE team_id = %(team_id)s AND number = ANY(%(numbers)s::bigint[])
    """,
)

LINK = Query(
    int,
    """
    UPDATE observations o
       SET superseded_by = n.superseded_by, superseded_at = n.superseded_at, closed_by = n.closed_by
      FROM jsonb_to_recordset(%(rows)s) AS n (id uuid, superseded_by uuid, superseded_at timestamptz, closed_by bigint)
     WHERE o.id = n.id AND o.team_id = %(team_id)s
       AND (o.superseded_by, o.closed_by) IS DISTINCT FROM (n.superseded_by, n.closed_by)
       AND (n.superseded_by IS NULL
            OR EXISTS (SELECT FROM observations t
                        WHERE t.id = n.superseded_by AND t.team_id = o.team_id AND t.project_id = o.project_id))
    """,
)


@query("""
    SELECT a.attname FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey)
     WHERE c.conname = %(name)s AND c.conrelid = to_regclass(%(table)s) AND a.attname <> 'team_id'
     ORDER BY a.attnum
    """)
async def constraint_columns(conn: Conn, table: str, name: str) -> list[str]:
    """The columns that the constraint of that name is about, without the team's."""
    ...


async def lines(conn: Conn, team_id: UUID, project_ids: Sequence[UUID] | None, line_type: type[L]) -> AsyncIterator[L]:
    """The lines of that type, in the order of their ids; None for the whole team."""
    query, after = _BY_TYPE[line_type], None
    while True:
        rows = await query.all(conn, team_id=team_id, project_ids=project_ids, after=after, limit=_PAGE_ROWS)
        for row in rows:
            yield row  # pyright: ignore[reportReturnType]
        if len(rows) < _PAGE_ROWS:
            return
        after = rows[-1].id


@query("SELECT set_config('TimeZone', 'UTC', true)")
async def show_times_in_utc(conn: Conn) -> None:
    """For the rest of the transaction."""
    ...


@query("SELECT EXISTS (SELECT FROM projects WHERE id = ANY(%(project_ids)s) AND team_id <> %(team_id)s)")
async def are_of_other_teams(conn: Conn, team_id: UUID, project_ids: Collection[UUID]) -> bool:
    """Whether one of the projects is there in another team."""
    ...


async def present(conn: Conn, team_id: UUID, line_type: type[model.DataLine], ids: Collection[UUID]) -> set[UUID]:
    """Those of the ids that the team has rows of."""
    return set(await _PRESENT[line_type].all(conn, team_id=team_id, ids=list(ids)))


async def match_sessions(conn: Conn, team_id: UUID, sessions: Sequence[model.SessionLine]) -> dict[UUID, UUID]:
    """By the id of those of the sessions that the team has with another id: that one."""
    rows = [
        {
            "id": session.id,
            "project_id": session.project_id,
            "platform_source": session.platform_source and storable(session.platform_source),
            "external_session_id": session.external_session_id and storable(session.external_session_id),
        }
        for session in sessions
    ]
    matches = await MATCH_SESSIONS.all(conn, team_id=team_id, rows=Jsonb(rows))
    return {match.other_id: match.id for match in matches}


async def set_project(conn: Conn, team_id: UUID, project: model.ProjectLine) -> None:
    """Give a new project the settings and names of the line; a name that another project has stays that one's."""
    fields = msgspec.structs.asdict(project)
    names = ("id", "archived_at", "consolidation", "stays_apart", "merge_with_model", "isolated", "created_at")
    policies = {name: Jsonb(fields[name]) for name in ("generation_policy", "retention")}
    await SET_PROJECT.run(conn, team_id=team_id, **{name: fields[name] for name in names}, **policies)
    await ADD_ALIASES.run(conn, team_id=team_id, id=project.id, aliases=project.aliases)


async def add(
    conn: Conn, team_id: UUID, line_type: type[model.DataLine], rows: Sequence[object], *, person_id: UUID | None
) -> set[UUID]:
    """Store rows of that type; returns the ids of those that were not there. Words that name nobody are those of the person."""
    return set(await _ADD[line_type].all(conn, team_id=team_id, rows=Jsonb(list(rows)), person_id=person_id))


# Locks the team's counter until the transaction ends, as every writer of observations does.
@query("""
    INSERT INTO observation_counters AS c (team_id, last_number, turns) VALUES (%(team_id)s, %(highest)s, %(turns)s)
    ON CONFLICT (team_id) DO UPDATE
       SET last_number = greatest(c.last_number, excluded.last_number), turns = c.turns + excluded.turns
    RETURNING last_number
    """)
async def raise_numbers(conn: Conn, team_id: UUID, highest: int, *, turns: int = 0) -> int:
    """Let the team's numbers go on after `highest`, so many of which are `turns`'; returns the last number. Locks the counter."""
    ...


async def taken_numbers(conn: Conn, team_id: UUID, numbers: Collection[int]) -> set[int]:
    """Those of the numbers that observations and turns of the team have."""
    return set(await TAKEN_NUMBERS.all(conn, team_id=team_id, numbers=list(numbers)))


async def link(conn: Conn, team_id: UUID, rows: Sequence[object]) -> int:
    """Set what observations were merged into and closed by; returns how many were changed."""
    return await LINK.run(conn, team_id=team_id, rows=Jsonb(list(rows)))


@query("SELECT id, number FROM observations WHERE team_id = %(team_id)s AND id = ANY(%(ids)s::uuid[])")
async def numbers_of(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[ObservationNumber]:
    """The numbers of those of the observations that the team has."""
    ...


REVIVE = Query(int, "SELECT revive_what_words_replaced()")
"""An export of before 2026-11-28 may hold what later words alone had hidden."""


@query("""
    UPDATE observations o SET turn_number = t.number
      FROM turns t
     WHERE o.team_id = %(team_id)s AND o.origin = 'import' AND o.turn_number IS NULL AND t.team_id = o.team_id
       AND t.server_session_id = o.server_session_id AND t.prompt_number = o.prompt_number
    """)
async def point_to_turns(conn: Conn, team_id: UUID) -> None:
    """Let imported observations name the turns that they were made of, whose numbers come last."""
    ...
