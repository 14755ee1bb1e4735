"""All SQL on observations and their sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from msgspec import structs

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.observations import model

OWNS = {"observations", "observation_sources", "observation_counters"}

_LIVE_C: LiteralString = model.LIVE_O.replace("o.", "c.")

# What its person took from the team, and a rule without a yes, is listed nowhere.
_EXPIRED_O: LiteralString = """
    (o.superseded_at IS NULL AND o.expires_at <= now() AND o.taken_at IS NULL
     AND NOT EXISTS (SELECT FROM rule_approvals a
                      WHERE a.observation_id = o.id AND a.team_id = o.team_id AND a.state <> 'approved'))
    """

_O_COLUMNS: LiteralString = "o." + model.OBSERVATION_COLUMNS.replace(", ", ", o.")

# Its row lock is held until the transaction ends: take numbers last.
TAKE_NUMBERS = Query(
    int,
    """
    INSERT INTO observation_counters AS c (team_id, last_number, turns)
    VALUES (%(team_id)s, %(count)s::bigint, CASE WHEN %(for_turns)s THEN %(count)s::bigint ELSE 0 END)
    ON CONFLICT (team_id) DO UPDATE SET last_number = c.last_number + excluded.last_number, turns = c.turns + excluded.turns
    RETURNING last_number
    """,
)

# The project is held as its reference will do, but before its language is read: so no text is stored by a language of before.
INSERT = Query(
    model.StoredObservation,
    f"""
    INSERT INTO observations ({model.NEW_OBSERVATION_COLUMNS}, project_id, team_id, created_at, expires_at, turn_number, actor_id,
                              person_id, search_language)
    SELECT {model.NEW_OBSERVATION_COLUMNS}, %(project_id)s, %(team_id)s, coalesce(n.created_at, now()),
           now() + make_interval(secs => n.ttl_seconds),
           (SELECT t.number FROM turns t
             WHERE t.server_session_id = n.server_session_id AND t.prompt_number = n.prompt_number AND t.team_id = %(team_id)s),
           coalesce(n.actor_id, (SELECT s.actor_id FROM server_sessions s
                                  WHERE s.id = n.server_session_id AND s.team_id = %(team_id)s)),
           coalesce(n.person_id, CASE WHEN n.server_session_id IS NULL
               THEN (SELECT k.user_id FROM observation_generation_jobs j JOIN api_keys k ON k.id = j.api_key_id
                      WHERE j.id = n.created_by_job_id AND j.team_id = %(team_id)s)
               ELSE (SELECT s.person_id FROM server_sessions s WHERE s.id = n.server_session_id AND s.team_id = %(team_id)s) END),
           coalesce((SELECT p.search_language FROM projects p
                      WHERE p.id = %(project_id)s AND p.team_id = %(team_id)s FOR KEY SHARE), 'english')
      FROM jsonb_populate_recordset(NULL::observations, %(rows)s) AS n
    ON CONFLICT (team_id, project_id, generation_key) DO NOTHING
    RETURNING id, number, generation_key
    """,
)

# By the clock that stamps what has no time of its own.
IN_FUTURE = Query(
    datetime,
    "SELECT moment FROM unnest(%(moments)s::timestamptz[]) AS moment WHERE moment > now()",
)

BY_GENERATION_KEYS = Query(
    model.StoredObservation,
    """
    SELECT id, number, generation_key FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND generation_key = ANY(%(keys)s)
    """,
)

INSERT_SOURCES = Query(
    int,
    """
    INSERT INTO observation_sources (id, team_id, project_id, observation_id, agent_event_id, generation_job_id, source_type,
                                     source_id)
    SELECT n.id, %(team_id)s, %(project_id)s, n.observation_id, n.agent_event_id, n.generation_job_id, n.source_type, n.source_id
      FROM jsonb_to_recordset(%(rows)s) AS n(id uuid, observation_id uuid, agent_event_id uuid, generation_job_id uuid,
           source_type text, source_id uuid)
    ON CONFLICT DO NOTHING
    """,
)


# Newest first; `before` and `before_id` are the keyset of the last one on the page before. What was recorded without a session, or
# without a word of whose it is, counts as Claude's, as it does in claude-mem.
NEWEST = Query(
    model.Observation,
    f"""
    SELECT {model.OBSERVATION_COLUMNS}
      FROM observations o
     WHERE team_id = %(team_id)s AND CASE WHEN %(state)s::text = 'expired' THEN {_EXPIRED_O} ELSE {model.LIVE_O} END
       AND created_at > '-infinity' -- all are: the index by type says it, see rule 3 of migration 0001
       AND {IN_REACH}
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
       AND (NOT %(without_summaries)s::boolean OR kind <> 'summary')
       AND (NOT %(without_history)s::boolean OR origin <> 'git')
       AND (%(type)s::text IS NULL OR type = %(type)s::text)
       AND (%(scope)s::text IS NULL OR scope = %(scope)s::text)
       AND (%(state)s::text IS NULL OR %(state)s::text = 'expired' OR state = %(state)s::text)
       AND (%(platform)s::text IS NULL
            OR strpos(coalesce((SELECT lower(s.platform_source) FROM server_sessions s
                                 WHERE s.id = o.server_session_id AND s.team_id = o.team_id), 'claude'), %(platform)s::text) > 0)
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s OFFSET %(offset)s
    """,
    prepare=False,
)


CORRECT = Query(
    model.Observation,
    f"""
    UPDATE observations
       SET type = %(type)s, scope = %(scope)s, title = %(title)s, subtitle = %(subtitle)s, narrative = %(narrative)s,
           facts = %(facts)s, concepts = %(concepts)s, files_read = %(files_read)s, files_modified = %(files_modified)s,
           content = %(content)s, read_tokens = %(read_tokens)s, importance = %(importance)s, metadata = %(metadata)s,
           caller_type = %(caller_type)s, merged_from = %(merged_from)s, ttl_seconds = %(ttl_seconds)s, expires_at = %(expires_at)s,
           state = %(state)s, closed_by = %(closed_by)s, closed_at = %(closed_at)s,
           stale = %(stale)s, version = version + 1, updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    RETURNING {model.OBSERVATION_COLUMNS}
    """,
)

SET_DRAWN = Query(
    int,
    """
    UPDATE observations o
       SET quote = %(quote)s, anchors = %(anchors)s, summary = %(summary)s,
           quote_event_id = (SELECT e.id FROM agent_events e
                              WHERE e.id = %(quote_event_id)s AND e.project_id = o.project_id AND e.team_id = o.team_id)
     WHERE o.id = %(id)s AND o.team_id = %(team_id)s
    """,
)

_CORRECTED = (
    "type",
    "scope",
    "title",
    "subtitle",
    "narrative",
    "facts",
    "concepts",
    "files_read",
    "files_modified",
    "content",
    "read_tokens",
    "importance",
    "caller_type",
    "merged_from",
    "ttl_seconds",
    "expires_at",
    "state",
    "closed_by",
    "closed_at",
)


# As the reference to the project will do, but before the counter is locked: who purges the project makes nobody else wait.
HOLD_PROJECTS = Query(
    UUID,
    """
    SELECT id FROM projects
     WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND archived_at IS NULL ORDER BY id FOR KEY SHARE
    """,
)


MADE_OF_EVENTS = Query(
    model.EventObservation,
    f"""
    SELECT wanted.event_id, o.id, o.number
      FROM unnest(%(event_ids)s::uuid[]) AS wanted (event_id)
      JOIN observation_sources s ON s.agent_event_id = wanted.event_id AND s.team_id = %(team_id)s
      JOIN observations o ON o.id = s.observation_id AND o.team_id = s.team_id
     WHERE {model.LIVE_O}
     ORDER BY o.number
    """,
)


ANY_BY_NAMES = Query(
    model.Observation,
    f"""
    SELECT {model.OBSERVATION_COLUMNS} FROM observations
     WHERE (number = ANY(%(numbers)s::bigint[]) OR id = ANY(%(ids)s::uuid[])) AND team_id = %(team_id)s
    """,
)


# This one, the one below and that of `of_sessions` are asked by each batch: with all filters of NEWEST they would be planned anew.
RECORDED = Query(
    model.Observation,
    f"""
    WITH RECURSIVE recorded AS (
        SELECT id, superseded_by FROM observations
         WHERE project_id = %(project_id)s AND server_session_id = %(session_id)s AND team_id = %(team_id)s AND kind <> 'summary'
         UNION
        SELECT o.id, o.superseded_by FROM observations o JOIN recorded r ON o.id = r.superseded_by WHERE o.team_id = %(team_id)s
    )
    SELECT {model.OBSERVATION_COLUMNS} FROM observations
     WHERE id IN (SELECT id FROM recorded) AND team_id = %(team_id)s AND {model.LIVE}
     ORDER BY created_at DESC, number DESC LIMIT %(limit)s
    """,
)

OPEN_ENDS = Query(
    model.Observation,
    f"""
    SELECT {model.OBSERVATION_COLUMNS}
      FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND state = 'open' AND {model.LIVE}
       AND (%(reader_session)s::uuid IS NULL OR person_id IS NULL
            OR (SELECT words = 'members' FROM teams WHERE id = %(team_id)s)
            OR person_id = (SELECT s.person_id FROM server_sessions s
                             WHERE s.id = %(reader_session)s::uuid AND s.team_id = %(team_id)s))
     ORDER BY number DESC LIMIT %(limit)s
    """,
)


SET_STATES = Query(
    int,
    """
    UPDATE observations o
       SET state = n.state, closed_by = n.closed_by, closed_at = CASE WHEN n.state <> 'open' THEN now() END, updated_at = now()
      FROM jsonb_to_recordset(%(rows)s) AS n(number bigint, state text, closed_by bigint)
     WHERE o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND o.number = n.number AND o.version = 1
    """,
)


SUMMARIES_OF_SESSIONS = Query(
    model.Observation,
    f"""
    SELECT summary.*
      FROM unnest(%(session_ids)s::uuid[], %(project_ids)s::uuid[]) AS session(id, project_id)
     CROSS JOIN LATERAL (
           SELECT {model.OBSERVATION_COLUMNS} FROM observations
            WHERE project_id = session.project_id AND server_session_id = session.id AND team_id = %(team_id)s AND kind = 'summary'
              AND {model.LIVE}
            ORDER BY created_at DESC, number DESC LIMIT 1) summary
    """,
    prepare=False,
)


REINDEX = Query(
    model.Place,
    """
    WITH chunk AS (
        SELECT id FROM observations
         WHERE team_id = %(team_id)s AND project_id = %(project_id)s
           AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
           AND (%(observation_id)s::uuid IS NULL OR id = %(observation_id)s::uuid)
           AND (%(after)s::timestamptz IS NULL OR (created_at, id) > (%(after)s::timestamptz, %(after_id)s::uuid))
         ORDER BY created_at, id LIMIT %(limit)s FOR NO KEY UPDATE
    )
    UPDATE observations o SET content = o.content FROM chunk WHERE o.id = chunk.id AND o.team_id = %(team_id)s
    RETURNING o.created_at, o.id
    """,
    prepare=False,
)


async def take_numbers(conn: Conn, team_id: UUID, count: int, *, for_turns: bool = False) -> range:
    """The next `count` numbers of the team. Locks the team's counter: nothing slow may follow."""
    last = await TAKE_NUMBERS.one(conn, team_id=team_id, count=count, for_turns=for_turns)
    return range(last - count + 1, last + 1)


@query(f"{model.TEAMS_BEHIND} ORDER BY c.team_id")
async def list_teams_behind(conn: Conn, reader: str) -> list[UUID]:
    """The teams with observations behind the position of that name."""
    ...


async def insert(
    conn: Conn, team_id: UUID, project_id: UUID, rows: Sequence[model.NewObservation]
) -> list[model.StoredObservation]:
    """Store them; one whose generation key is known already is answered with the row that is there."""
    stored = await INSERT.all(conn, team_id=team_id, project_id=project_id, rows=Jsonb(list(rows)))
    missing = {row.generation_key for row in rows if row.generation_key} - {row.generation_key for row in stored}
    if missing:
        stored += await BY_GENERATION_KEYS.all(conn, team_id=team_id, project_id=project_id, keys=list(missing))
    return stored


async def in_future(conn: Conn, moments: Collection[datetime]) -> set[datetime]:
    """The given moments that are still in the future, by the database's clock."""
    return set(await IN_FUTURE.all(conn, moments=list(moments)))


async def insert_sources(conn: Conn, team_id: UUID, project_id: UUID, rows: Sequence[model.NewSource]) -> None:
    """Link observations to their sources; a link that exists is left alone."""
    await INSERT_SOURCES.run(conn, team_id=team_id, project_id=project_id, rows=Jsonb(list(rows)))


@query(f"SELECT {model.OBSERVATION_COLUMNS} FROM observations WHERE id = %(observation_id)s AND team_id = %(team_id)s")
async def by_id(conn: Conn, team_id: UUID, observation_id: UUID) -> model.Observation | None: ...


@query(f"""
    SELECT {model.OBSERVATION_COLUMNS} FROM observations WHERE number = %(number)s AND team_id = %(team_id)s
    """)
async def by_number(conn: Conn, team_id: UUID, number: int) -> model.Observation | None: ...


async def newest(
    conn: Conn,
    team_id: UUID,
    wanted: model.ObservationFilter,
    *,
    limit: int,
    before: datetime | None = None,
    before_id: UUID | None = None,
    offset: int = 0,
) -> list[model.Observation]:
    """A page of observations, newest first, from the position (`before`, `before_id`) or the offset on."""
    page = {"before": before, "before_id": before_id, "limit": limit, "offset": offset}
    return await NEWEST.all(conn, team_id=team_id, **structs.asdict(wanted), **page)


@unprepared_query(f"""
    SELECT {model.OBSERVATION_COLUMNS} FROM observations o
     WHERE team_id = %(team_id)s AND {model.LIVE_O} AND {IN_REACH} AND closed_at > %(since)s
       AND id IN (SELECT id FROM observations c
                   WHERE c.team_id = %(team_id)s AND c.closed_by IS NOT NULL AND c.closed_at > %(since)s AND {_LIVE_C}
                   UNION
                  SELECT observation_id FROM observation_versions v WHERE v.team_id = %(team_id)s AND v.created_at > %(since)s)
     ORDER BY closed_at DESC, number DESC LIMIT %(limit)s
    """)
async def closed_since(conn: Conn, team_id: UUID, project_id: UUID | None, since: datetime, limit: int) -> list[model.Observation]:
    """What was closed since then and still is, the last first; of the whole team without a project."""
    ...


@query(f"SELECT {model.OBSERVATION_COLUMNS} FROM observations WHERE id = %(observation_id)s AND team_id = %(team_id)s FOR UPDATE")
async def lock(conn: Conn, team_id: UUID, observation_id: UUID) -> model.Observation | None:
    """The observation, locked until the transaction ends."""
    ...


async def correct(conn: Conn, team_id: UUID, to: model.Observation) -> model.Observation:
    """Store the changed observation as its next version."""
    return await CORRECT.one(
        conn,
        team_id=team_id,
        id=to.id,
        metadata=Jsonb(to.metadata),
        stale=to.stale and Jsonb(to.stale),
        **{name: getattr(to, name) for name in _CORRECTED},
    )


async def set_drawn(
    conn: Conn,
    team_id: UUID,
    observation_id: UUID,
    *,
    quote: str | None,
    quote_event_id: UUID | None,
    anchors: list[str] | None,
    summary: Mapping[str, str | None] | None,
) -> None:
    """Set what no person corrects: what stands there as it was said, and the fields of a summary."""
    await SET_DRAWN.run(
        conn,
        team_id=team_id,
        id=observation_id,
        quote=quote,
        quote_event_id=quote_event_id,
        anchors=anchors,
        summary=summary and Jsonb(summary),
    )


# Those that were merged into it, and into those; they are deleted with it.
@query("""
    WITH RECURSIVE merged AS (
        SELECT id FROM observations WHERE superseded_by = %(observation_id)s AND team_id = %(team_id)s
         UNION
        SELECT o.id FROM observations o JOIN merged m ON o.superseded_by = m.id WHERE o.team_id = %(team_id)s
    )
    SELECT id FROM merged ORDER BY id
    """)
async def merged_into(conn: Conn, team_id: UUID, observation_id: UUID) -> list[UUID]:
    """The ids of those that were merged into it, and into those; they are deleted with it."""
    ...


# By the index of a project's sessions.
@query("""
    SELECT s.id AS session_id, count(DISTINCT f.name) AS files
      FROM server_sessions s
      JOIN observations o ON o.project_id = s.project_id AND o.server_session_id = s.id AND o.team_id = s.team_id
     CROSS JOIN LATERAL unnest(o.files_modified) AS f(name)
     WHERE s.id = ANY(%(session_ids)s) AND s.team_id = %(team_id)s
     GROUP BY s.id
    """)
async def edited_files(conn: Conn, team_id: UUID, session_ids: Collection[UUID]) -> list[model.EditedFiles]:
    """Of sessions that edited files how many, as their observations say."""
    ...


@query("""
    SELECT DISTINCT t.number
      FROM observation_derivations d
      JOIN observations o ON o.id = d.derived_observation_id AND o.team_id = d.team_id
      JOIN observations t ON t.id = o.superseded_by AND t.team_id = o.team_id
     WHERE d.team_id = %(team_id)s AND d.source_observation_ids && %(observation_ids)s::uuid[] ORDER BY 1
    """)
async def holders_of_derived(conn: Conn, team_id: UUID, observation_ids: Collection[UUID]) -> list[int]:
    """The numbers of observations into which something was merged that the steward derived from these."""
    ...


@query("""
    SELECT DISTINCT o.id, o.number, o.project_id
      FROM observation_derivations d
      JOIN observations o ON o.id = d.derived_observation_id AND o.team_id = d.team_id
      JOIN observations s ON s.id = ANY(d.source_observation_ids) AND s.team_id = d.team_id
     WHERE d.team_id = %(team_id)s AND (s.id = ANY(%(observation_ids)s::uuid[]) OR s.server_session_id = %(session_id)s)
     ORDER BY o.number
    """)
async def derived_from(
    conn: Conn, team_id: UUID, observation_ids: Collection[UUID] = (), *, session_id: UUID | None = None
) -> list[model.DerivedObservation]:
    """What the steward derived from these observations, and from those of the session."""
    ...


@query("SELECT erase_observation(%(observation_id)s, %(team_id)s)")
async def delete(conn: Conn, team_id: UUID, observation_id: UUID) -> bool:
    """Delete the observation, its source links, and what the steward derived from it; returns whether it was there."""
    ...


# Their sources go with them.
@unprepared_query("""
    DELETE FROM observations
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete all observations of the project, or without one of the team; returns their number."""
    ...


# Not what people merged something into, which goes with it.
@unprepared_query("""
    DELETE FROM observations o
     WHERE o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND o.origin = 'git'
       AND NOT EXISTS (SELECT FROM observations s WHERE s.superseded_by = o.id AND s.team_id = o.team_id)
    RETURNING o.id, o.number, o.project_id
    """)
async def delete_history(conn: Conn, team_id: UUID, project_id: UUID) -> list[model.DerivedObservation]:
    """Delete what was taken over of the project's repository; returns which rows."""
    ...


# One that something was merged into stays, without the key: it is the target's.
@query("""
    WITH known AS (
        SELECT o.id, EXISTS (SELECT FROM observations s WHERE s.superseded_by = o.id AND s.team_id = o.team_id) AS is_merged
          FROM observations o
          JOIN observations t ON t.generation_key = o.generation_key AND t.project_id = %(target_id)s AND t.team_id = o.team_id
         WHERE o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND o.origin = 'git' AND t.origin = 'git'
    ), kept AS (
        UPDATE observations o SET generation_key = NULL FROM known k WHERE o.id = k.id AND o.team_id = %(team_id)s AND k.is_merged
    )
    DELETE FROM observations o USING known k WHERE o.id = k.id AND o.team_id = %(team_id)s AND NOT k.is_merged
    """)
async def delete_known_history(conn: Conn, team_id: UUID, project_id: UUID, target_id: UUID) -> None:
    """Delete what the project has of a repository's history that the target has, too, but for what something was merged into."""
    ...


async def hold_projects(conn: Conn, team_id: UUID, project_ids: Collection[UUID]) -> set[UUID]:
    """Lock the given projects until the transaction ends; returns the ids of those that exist."""
    return set(await HOLD_PROJECTS.all(conn, team_id=team_id, ids=list(project_ids)))


@query(f"""
    SELECT {_O_COLUMNS}
      FROM observation_sources s
      JOIN observations o ON o.id = s.observation_id AND o.team_id = s.team_id
     WHERE s.agent_event_id = %(event_id)s AND s.team_id = %(team_id)s AND {model.LIVE_O}
     ORDER BY o.number
    """)
async def of_event(conn: Conn, team_id: UUID, event_id: UUID) -> list[model.Observation]: ...


async def made_of_events(conn: Conn, team_id: UUID, event_ids: Sequence[UUID]) -> dict[UUID, list[model.EventObservation]]:
    """The observations made of the events, by event, in the order of their numbers."""
    observations_by_event: dict[UUID, list[model.EventObservation]] = {}
    for row in await MADE_OF_EVENTS.all(conn, team_id=team_id, event_ids=list(event_ids)):
        observations_by_event.setdefault(row.event_id, []).append(row)
    return observations_by_event


@query(f"""
    SELECT o.number
      FROM observation_sources s
      JOIN observations o ON o.id = s.observation_id AND o.team_id = s.team_id
     WHERE s.generation_job_id = %(job_id)s AND s.team_id = %(team_id)s AND {model.LIVE_O}
     ORDER BY o.number
    """)
async def numbers_of_job(conn: Conn, team_id: UUID, job_id: UUID) -> list[int]:
    """The numbers of the observations that the job made."""
    ...


@query(f"""
    SELECT s.id, s.observation_id, s.source_type, s.source_id, s.generation_job_id, o.generation_key, s.created_at
      FROM observation_sources s
      JOIN observations o ON o.id = s.observation_id AND o.team_id = s.team_id
     WHERE s.agent_event_id = %(event_id)s AND s.team_id = %(team_id)s AND {model.LIVE_O}
    """)
async def links_of_event(conn: Conn, team_id: UUID, event_id: UUID) -> list[model.EventLink]: ...


@query(f"SELECT {model.OBSERVATION_COLUMNS} FROM observations WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s AND {model.LIVE}")
async def by_ids(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[model.Observation]:
    """The observations with these ids, those that exist, in no order."""
    ...


async def any_by_names(conn: Conn, team_id: UUID, names: Collection[int | UUID]) -> list[model.Observation]:
    """The observations with these numbers and ids, those that exist, shown or not, in no order."""
    numbers = [name for name in names if isinstance(name, int)]
    ids = [name for name in names if isinstance(name, UUID)]
    return await ANY_BY_NAMES.all(conn, team_id=team_id, numbers=numbers, ids=ids)


@query(f"""
    SELECT o.id, o.number, o.project_id, o.scope, s.number AS superseded_by,
           CASE WHEN o.superseded_at IS NULL THEN o.expires_at END AS expired_at
      FROM observations o LEFT JOIN observations s ON s.id = o.superseded_by AND s.team_id = o.team_id
     WHERE (o.number = ANY(%(numbers)s::bigint[]) OR o.id = ANY(%(ids)s::uuid[])) AND o.team_id = %(team_id)s
       AND NOT ({model.LIVE_O})
    """)
async def gone(
    conn: Conn, team_id: UUID, *, numbers: Collection[int] = (), ids: Collection[UUID] = ()
) -> list[model.GoneObservation]:
    """Those of these numbers and ids that are stored, but superseded or expired."""
    ...


@query(f"""
    SELECT o.*
      FROM unnest(%(project_ids)s::uuid[], %(session_ids)s::uuid[]) AS wanted(project_id, session_id)
     CROSS JOIN LATERAL (
           SELECT {model.OBSERVATION_COLUMNS}
             FROM observations
            WHERE project_id = wanted.project_id AND server_session_id = wanted.session_id AND team_id = %(team_id)s
              AND kind = 'observation' AND {model.LIVE}
            ORDER BY created_at DESC, number DESC LIMIT %(limit)s) o
     ORDER BY o.created_at, o.number
    """)
async def of_sessions(
    conn: Conn, team_id: UUID, project_ids: Sequence[UUID], session_ids: Sequence[UUID], limit: int
) -> list[model.Observation]:
    """The newest `limit` observations that were generated in each of the sessions of these projects, oldest first."""
    ...


async def recorded(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID, limit: int) -> list[model.Observation]:
    """The newest `limit` of what the session recorded, by itself or by hand, or of what that was merged into, oldest first."""
    rows = await RECORDED.all(conn, team_id=team_id, project_id=project_id, session_id=session_id, limit=limit)
    return rows[::-1]


@unprepared_query("""
    SELECT number FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND metadata ? 'currentOn'
       AND md5(lower(metadata ->> 'currentOn')) = md5(lower(%(matter)s))
       AND superseded_at IS NULL AND state IS DISTINCT FROM 'dropped'
    """)
async def current_on(conn: Conn, team_id: UUID, project_id: UUID, matter: str) -> int | None:
    """The number of what people say is the current word on the matter."""
    ...


@query("""
    UPDATE observations SET metadata = metadata - 'currentOn'
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND metadata ? 'currentOn'
       AND md5(lower(metadata ->> 'currentOn')) = md5(lower(%(matter)s)) AND expires_at <= now()
    """)
async def end_expired_word(conn: Conn, team_id: UUID, project_id: UUID, matter: str) -> RowCount:
    """Take the matter from what was the current word on it, and has expired."""
    ...


async def open_ends(
    conn: Conn, team_id: UUID, project_id: UUID, limit: int, *, reader_session: UUID | None = None
) -> list[model.Observation]:
    """What is open in the project, oldest first; at most the newest `limit`.

    With a session, only what its person may read: theirs and nobody's, unless every member of the team reads the words of others.
    """
    rows = await OPEN_ENDS.all(conn, team_id=team_id, project_id=project_id, limit=limit, reader_session=reader_session)
    return rows[::-1]


# One that somebody corrects at this moment stays open. What a turn has closed is closed by what its own session says of it. Where a
# team does not let every member read others' words, nobody closes what they may not read.
@query(f"""
    WITH ending AS (
        SELECT id FROM observations
         WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND number = ANY(%(numbers)s)
           AND (state = 'open' OR EXISTS (SELECT FROM turns t WHERE t.team_id = %(team_id)s AND t.number = closed_by))
           AND number <> %(closed_by)s AND {model.LIVE}
           AND (person_id IS NULL OR (SELECT words = 'members' FROM teams WHERE id = %(team_id)s)
                OR person_id = (SELECT c.person_id FROM observations c
                                 WHERE c.team_id = %(team_id)s AND c.project_id = %(project_id)s AND c.number = %(closed_by)s))
         ORDER BY number FOR UPDATE SKIP LOCKED
    )
    UPDATE observations o SET state = %(state)s, closed_by = %(closed_by)s, closed_at = now(), updated_at = now()
      FROM ending WHERE o.id = ending.id AND o.team_id = %(team_id)s
    """)
async def close(
    conn: Conn, team_id: UUID, project_id: UUID, numbers: Sequence[int], closed_by: int, state: model.ObservationState
) -> None:
    """Mark those of them that are open as done or dropped by the observation of the number `closed_by`."""
    ...


# The newest that are open, and all that was ever open of these turns.
@query(f"""
    WITH chosen AS (
        (SELECT id FROM observations
          WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND state = 'open' ORDER BY number DESC LIMIT %(limit)s)
        UNION
        SELECT id FROM observations
         WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND server_session_id = ANY(%(session_ids)s)
           AND turn_number = ANY(%(turn_numbers)s) AND state IS NOT NULL
    )
    SELECT o.number, t.server_session_id, o.state, o.closed_by, o.metadata, t.number AS turn_number, t.created_at AS asked_at,
           o.version = 1 AND (o.state = 'open' OR c.id IS NOT NULL) AS may_change
      FROM chosen
      JOIN observations o USING (id)
      JOIN turns t ON t.team_id = o.team_id AND t.number = o.turn_number
      LEFT JOIN turns c ON c.team_id = o.team_id AND c.number = o.closed_by
     WHERE {model.LIVE_O} AND o.metadata ? 'commands'
    """)
async def failures(
    conn: Conn, team_id: UUID, project_id: UUID, session_ids: Collection[UUID], turn_numbers: Collection[int], limit: int
) -> list[model.RecordedFailure]:
    """What is or was open of these turns, and the newest `limit` of what is open in the project, if it says how commands ended."""
    ...


async def set_states(conn: Conn, team_id: UUID, project_id: UUID, rows: Sequence[model.StateByTurn]) -> None:
    """Set the states of these observations, and by which turn they are closed."""
    await SET_STATES.run(conn, team_id=team_id, project_id=project_id, rows=Jsonb(list(rows)))


# Not what a person said, changed or closed since, nor what something was merged into.
@query("""
    DELETE FROM observations o
     WHERE o.created_by_job_id = ANY(%(job_ids)s) AND o.team_id = %(team_id)s AND o.origin = 'rules' AND o.version = 1
       AND o.type <> 'decision' AND (o.state IS NULL OR o.state = 'open')
       AND NOT EXISTS (SELECT FROM observations s WHERE s.superseded_by = o.id AND s.team_id = o.team_id)
    """)
async def remove_rules_rows(conn: Conn, team_id: UUID, job_ids: Sequence[UUID]) -> None:
    """Delete what rules had made of these jobs when a model's call failed: the model has worded them since."""
    ...


@query(f"""
    SELECT {model.OBSERVATION_COLUMNS} FROM observations
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND kind = 'summary' AND server_session_id IS NULL
       AND origin = 'api' AND {model.LIVE}
     ORDER BY created_at DESC, id DESC LIMIT 1
    """)
async def project_summary(conn: Conn, team_id: UUID, project_id: UUID) -> model.Observation | None:
    """The newest summary of the project itself, which somebody wrote."""
    ...


@query(f"""
    SELECT content FROM observations
     WHERE project_id = %(project_id)s AND server_session_id = %(session_id)s AND team_id = %(team_id)s AND kind = 'summary'
       AND {model.LIVE}
     ORDER BY created_at DESC, number DESC LIMIT 1
    """)
async def last_summary(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID) -> str | None:
    """The text of the session's newest summary."""
    ...


async def summaries_of_sessions(conn: Conn, team_id: UUID, projects: Mapping[UUID, UUID]) -> list[model.Observation]:
    """The newest summary of each of the sessions that has one. `projects` has the project of each session."""
    return await SUMMARIES_OF_SESSIONS.all(conn, team_id=team_id, session_ids=list(projects), project_ids=list(projects.values()))


@query("""
    SELECT id, observation_id, source_type, source_id, generation_job_id, created_at FROM observation_sources
     WHERE observation_id = ANY(%(observation_ids)s) AND team_id = %(team_id)s
     ORDER BY created_at, id
    """)
async def sources(conn: Conn, team_id: UUID, observation_ids: Sequence[UUID]) -> list[model.ObservationSource]: ...


@unprepared_query(f"""
    SELECT {model.OBSERVATION_COLUMNS}
      FROM observations
     WHERE number = ANY(%(numbers)s::bigint[]) AND team_id = %(team_id)s AND {model.LIVE}
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def by_numbers(
    conn: Conn, team_id: UUID, numbers: Collection[int], *, project_id: UUID | None = None
) -> list[model.Observation]:
    """The observations with these numbers, those that exist (in the project, if one is given), in no order."""
    ...


# Without their kind, those of a project are counted by its index alone.
@unprepared_query(f"""
    SELECT every.count - summaries.count AS observations, summaries.count AS summaries, every.first_at
      FROM (SELECT count(*) AS count, min(created_at) AS first_at FROM observations
             WHERE team_id = %(team_id)s AND {IN_REACH} AND {model.LIVE}) every,
           (SELECT count(*) AS count FROM observations
             WHERE team_id = %(team_id)s AND {IN_REACH} AND {model.LIVE} AND kind = 'summary') summaries
    """)
async def counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> model.ObservationCounts: ...


# A trigger keeps the search columns: they are computed anew when a column that they are made of is set, be it to what it was.
@unprepared_query("""
    SELECT count(*) FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s
       AND (%(session_id)s::uuid IS NULL OR server_session_id = %(session_id)s::uuid)
       AND (%(observation_id)s::uuid IS NULL OR id = %(observation_id)s::uuid)
    """)
async def count_for_reindex(
    conn: Conn, team_id: UUID, project_id: UUID, *, session_id: UUID | None, observation_id: UUID | None
) -> int:
    """How many observations `reindex` goes through."""
    ...


async def reindex(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    *,
    session_id: UUID | None,
    observation_id: UUID | None,
    after: model.Place | None,
    limit: int,
) -> list[model.Place]:
    """Recompute the search columns of the next observations (of the project, a session, or only one); returns their places."""
    return await REINDEX.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        session_id=session_id,
        observation_id=observation_id,
        after=after and after.created_at,
        after_id=after and after.id,
        limit=limit,
    )


# Through all that the project has: asked for when files were deleted, moved or edited.
@unprepared_query(f"""
    SELECT {model.OBSERVATION_COLUMNS} FROM observations
     WHERE team_id = %(team_id)s AND project_id = %(project_id)s AND kind <> 'summary' AND origin <> 'git' AND stale IS NULL
       AND {model.LIVE}
       AND EXISTS (SELECT FROM unnest(%(names)s::text[]) AS name WHERE strpos(content, name) > 0)
     ORDER BY number DESC LIMIT %(limit)s
    """)
async def naming_files(conn: Conn, team_id: UUID, project_id: UUID, names: Collection[str], limit: int) -> list[model.Observation]:
    """The newest of the project whose text has one of these names of files and folders, and which are not stale yet."""
    ...
