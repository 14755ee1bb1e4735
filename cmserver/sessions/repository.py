"""All SQL on sessions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import asdict

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.sessions import model

OWNS = {"server_sessions"}

INSERT = Query(
    model.Session,
    f"""
    INSERT INTO server_sessions (id, project_id, origin_project_id, team_id, external_session_id, content_session_id, agent_id,
                                 agent_type, actor_id, person_id, platform_source, metadata, started_at, from_hooks, arm)
    VALUES (%(id)s, %(project_id)s, nullif(%(key_id)s::uuid, %(project_id)s), %(team_id)s, %(external_session_id)s,
            %(content_session_id)s, %(agent_id)s, %(agent_type)s, %(actor_id)s, %(person_id)s, %(platform_source)s, %(metadata)s,
            time_of_event(coalesce(%(started_at)s::timestamptz, now()), now()), %(from_hooks)s,
            CASE WHEN %(is_comparable)s THEN (
                SELECT CASE WHEN (hashtextextended(%(id)s::uuid::text, 0) & 9223372036854775807) %% 100 < t.untold_share
                            THEN 'untold' ELSE 'told' END
                  FROM teams t WHERE t.id = %(team_id)s AND t.untold_share > 0 AND t.private_of IS NULL) END)
    ON CONFLICT DO NOTHING
    RETURNING {model.SESSION_COLUMNS}
    """,
)


# The one that a hook called before; else the one of the API that was alive last, which the hook's call makes its own. The index has
# the id at the agent behind the team.
BY_HOOK = Query(
    model.Session,
    f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE team_id = %(team_id)s AND content_session_id = %(external_id)s AND coalesce(platform_source, '') = %(platform_source)s
       AND (%(only)s::uuid IS NULL OR project_id = %(only)s::uuid)
     ORDER BY from_hooks DESC, greatest(started_at, idle_from, ended_at) DESC, id LIMIT 1
    """,
)

STILL_ALIVE = Query(
    UUID,
    """
    UPDATE server_sessions SET idle_from = %(seen_at)s
     WHERE id = %(id)s AND team_id = %(team_id)s AND %(seen_at)s > now() - make_interval(secs => %(idle_seconds)s)
    RETURNING id
    """,
)


# How many sessions of all teams have not ended.
OPEN_COUNT_OF_ALL = Query(int, "SELECT count(*) FROM server_sessions WHERE ended_at IS NULL")

LABELS = Query(
    model.SessionLabel,
    """
    SELECT s.id, s.title, left(p.prompt, %(max_chars)s) AS first_prompt, s.started_at
      FROM server_sessions s
      LEFT JOIN turns p ON p.server_session_id = s.id AND p.team_id = s.team_id AND p.prompt_number = 1
     WHERE s.id = ANY(%(ids)s) AND s.team_id = %(team_id)s
       AND NOT (%(unless_isolated)s AND s.project_id IN (SELECT id FROM projects WHERE isolated))
    """,
)


async def insert(
    conn: Conn, session_id: UUID, team_id: UUID, project_id: UUID, key_id: UUID, new: model.NewSession
) -> model.Session | None:
    """The new session, or None when the agent's id is taken. `key_id` is the project's by whose name it came."""
    fields = asdict(new) | {"metadata": Jsonb(new.metadata)}
    return await INSERT.first(conn, id=session_id, team_id=team_id, project_id=project_id, key_id=key_id, **fields)


@query(f"SELECT {model.SESSION_COLUMNS} FROM server_sessions WHERE id = %(session_id)s AND team_id = %(team_id)s")
async def by_id(conn: Conn, team_id: UUID, session_id: UUID) -> model.Session | None: ...


@query("""
    SELECT n.name FROM unnest(%(names)s::text[]) AS n (name)
     WHERE EXISTS (SELECT FROM server_sessions s
                    WHERE s.team_id = %(team_id)s AND (s.content_session_id = n.name OR s.id::text = n.name))
    """)
async def named(conn: Conn, team_id: UUID, names: Sequence[str]) -> list[str]:
    """Those of the names that are the id, or the agent's id, of a session. For a private place, which has few."""
    ...


@query(f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE team_id = %(team_id)s AND actor_id = %(actor_id)s AND started_at > now() - interval '7 days'
       AND (%(folder)s::text IS NULL OR metadata ->> 'root' = %(folder)s::text OR metadata ->> 'cwd' = %(folder)s::text)
     ORDER BY greatest(started_at, idle_from) DESC, id DESC LIMIT 1
    """)
async def newest_of(conn: Conn, team_id: UUID, actor_id: str, folder: str | None) -> model.Session | None:
    """The newest of the last week that the actor began, where their agent works in that folder."""
    ...


SET_TOLD = Query(
    int,
    """
    UPDATE server_sessions
       SET metadata = CASE WHEN %(told)s::jsonb IS NULL THEN metadata - 'told'
                           ELSE metadata || jsonb_build_object('told', %(told)s::jsonb) END
     WHERE id = %(session_id)s AND team_id = %(team_id)s
    """,
)


async def set_told(conn: Conn, team_id: UUID, session_id: UUID, told: object | None) -> None:
    """Keep with a private session who had been told of it; None takes that away."""
    await SET_TOLD.run(conn, session_id=session_id, team_id=team_id, told=None if told is None else Jsonb(told))


@query("SELECT arm = 'untold' FROM server_sessions WHERE id = %(session_id)s AND team_id = %(team_id)s")
async def _is_untold(conn: Conn, team_id: UUID, session_id: UUID) -> bool | None: ...


async def is_untold(conn: Conn, team_id: UUID, session_id: UUID) -> bool:
    """Whether the session is told only what it asks for."""
    return bool(await _is_untold(conn, team_id, session_id))


@query("UPDATE server_sessions SET arm = NULL WHERE id = %(session_id)s AND team_id = %(team_id)s")
async def stop_comparing(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Let the session be told as ever, and counted in no comparison."""
    ...


# The index has the id at the agent behind the team.
@query(f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE team_id = %(team_id)s AND content_session_id = %(external_id)s
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
     ORDER BY started_at DESC, id DESC LIMIT 1
    """)
async def by_content_id(conn: Conn, team_id: UUID, external_id: str, *, project_id: UUID | None) -> model.Session | None:
    """The newest with that id at its agent, in the project or else in any."""
    ...


# By the id the agent gave it; without a platform, the newest of any platform.
@query(f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE coalesce(origin_project_id, project_id) = %(key_id)s AND team_id = %(team_id)s
       AND (external_session_id = %(external_id)s OR content_session_id = %(external_id)s)
       AND (%(platform_source)s::text IS NULL OR coalesce(platform_source, '') = %(platform_source)s::text)
     ORDER BY external_session_id = %(external_id)s DESC NULLS LAST, started_at DESC LIMIT 1
    """)
async def by_external_id(
    conn: Conn, team_id: UUID, key_id: UUID, external_id: str, platform_source: str | None
) -> model.Session | None:
    """The session that its agent gave that id, in the project by whose `key_id` it was made, wherever it is now."""
    ...


async def by_hook(
    conn: Conn, team_id: UUID, external_id: str, platform_source: str | None, *, only: UUID | None
) -> model.Session | None:
    """The session that a hook means by its agent and the agent's id, in the project `only` or else in any."""
    return await BY_HOOK.first(conn, team_id=team_id, external_id=external_id, platform_source=platform_source or "", only=only)


@query("""
    UPDATE server_sessions s SET from_hooks = true
     WHERE s.id = %(session_id)s AND s.team_id = %(team_id)s
       AND NOT EXISTS (SELECT FROM server_sessions o
                        WHERE o.from_hooks AND o.team_id = %(team_id)s AND o.external_session_id = s.external_session_id
                          AND coalesce(o.platform_source, '') = coalesce(s.platform_source, ''))
    """)
async def adopt(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Let hooks find the session by its agent's id alone, unless they know another one by it."""
    ...


# NO KEY: a foreign key's check on the session, which every ingest makes while it holds its lane, must not wait for this.
@query(f"SELECT {model.SESSION_COLUMNS} FROM server_sessions WHERE id = %(session_id)s AND team_id = %(team_id)s FOR NO KEY UPDATE")
async def lock(conn: Conn, team_id: UUID, session_id: UUID) -> model.Session | None:
    """The session, locked until the transaction ends."""
    ...


@query(f"""
    UPDATE server_sessions
       SET ended_at = CASE WHEN %(anew)s OR ended_at IS NULL
                           THEN greatest(started_at, time_of_event(coalesce(%(occurred_at)s::timestamptz, now()), now()))
                           ELSE ended_at END,
           updated_at = CASE WHEN %(anew)s OR ended_at IS NULL THEN now() ELSE updated_at END,
           idle_from = NULL
     WHERE id = %(session_id)s AND team_id = %(team_id)s
    RETURNING {model.SESSION_COLUMNS}
    """)
async def end(
    conn: Conn, team_id: UUID, session_id: UUID, *, anew: bool = False, occurred_at: datetime | None = None
) -> model.Session:
    """Ended now, or when its client says, if that was delivered late.

    One that had ended already keeps its time, unless something has happened in it since: then it ends `anew`.
    """
    ...


@query(f"""
    UPDATE server_sessions SET title = %(title)s, updated_at = now()
     WHERE id = %(session_id)s AND team_id = %(team_id)s
    RETURNING {model.SESSION_COLUMNS}
    """)
async def rename(conn: Conn, team_id: UUID, session_id: UUID, title: str | None) -> model.Session:
    """The session with its new title, or without one."""
    ...


@query(f"""
    UPDATE server_sessions SET ended_at = NULL, idle_from = now(), updated_at = now()
     WHERE id = %(session_id)s AND team_id = %(team_id)s AND ended_at IS NOT NULL
    RETURNING {model.SESSION_COLUMNS}
    """)
async def resume(conn: Conn, team_id: UUID, session_id: UUID) -> model.Session | None:
    """Reopen the session; None when it had not ended."""
    ...


@query("""
    SELECT id, project_id, coalesce(origin_project_id, project_id) AS key_id
      FROM server_sessions WHERE id = ANY(%(session_ids)s) AND team_id = %(team_id)s
    """)
async def places(conn: Conn, team_id: UUID, session_ids: Collection[UUID]) -> list[model.SessionPlace]:
    """The existing ones of these sessions, with their projects."""
    ...


async def projects_of(conn: Conn, team_id: UUID, session_ids: Collection[UUID]) -> dict[UUID, UUID]:
    """The project of each of the sessions that exist."""
    return {place.id: place.project_id for place in await places(conn, team_id, session_ids)}


# Before everything else of the project is locked: who applies a batch, or ends a session, has its session first.
@unprepared_query("""
    WITH locked AS MATERIALIZED (
        SELECT id FROM server_sessions
         WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
         ORDER BY id FOR NO KEY UPDATE
    )
    SELECT count(*) FROM locked
    """)
async def lock_all(conn: Conn, team_id: UUID, project_id: UUID | None) -> None:
    """Lock every session of the project, or without one of the team."""
    ...


@unprepared_query("""
    DELETE FROM server_sessions
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete all rows of the project, or without one of the team; returns their number."""
    ...


@query("""
    WITH worked AS MATERIALIZED (
        SELECT s.id, n.status, n.news
          FROM unnest(%(session_ids)s::uuid[], %(statuses)s::text[], %(news)s::boolean[]) AS n(id, status, news)
          JOIN server_sessions s ON s.id = n.id AND s.team_id = %(team_id)s
         ORDER BY s.id FOR NO KEY UPDATE OF s
    )
    UPDATE server_sessions s
       SET generation_status = w.status, last_generated_at = now(), updated_at = now(),
           idle_from = CASE WHEN w.news THEN coalesce(s.idle_from, now()) ELSE s.idle_from END
      FROM worked w WHERE s.id = w.id AND s.team_id = %(team_id)s
    """)
async def generated(conn: Conn, team_id: UUID, session_ids: Sequence[UUID], statuses: Sequence[str], news: Sequence[bool]) -> None:
    """Note that generation has worked on the sessions, each `completed` or `failed`.

    With `news` it worked on events: they may have come after the session's summary, so the idle sweep looks at it again.
    """
    ...


@query("""
    UPDATE server_sessions SET generation_status = 'processing', updated_at = now()
     WHERE id = %(session_id)s AND team_id = %(team_id)s AND generation_status <> 'processing'
    """)
async def mark_processing(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """A worker has begun a batch of the session; `generated` ends that status."""
    ...


# Newest first; `before` and `before_id` are the keyset of the last one on the page before.
@unprepared_query(f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE team_id = %(team_id)s AND started_at > '-infinity' -- all are: see rule 3 of migration 0001
       AND {IN_REACH}
       AND (%(active)s::boolean IS NULL OR (ended_at IS NULL) = %(active)s::boolean)
       AND (%(platform_source)s::text IS NULL OR platform_source = %(platform_source)s::text)
       AND (%(before)s::timestamptz IS NULL OR (started_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY started_at DESC, id DESC
     LIMIT %(limit)s OFFSET %(offset)s
    """)
async def newest(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    active: bool | None,
    platform_source: str | None,
    before: datetime | None,
    before_id: UUID | None,
    limit: int,
    offset: int = 0,
) -> list[model.Session]:
    """A page of sessions, newest first; None for no filter. `active`: True for those that have not ended."""
    ...


@query("""
    UPDATE server_sessions SET metadata = metadata || jsonb_build_object('indexOwed', %(source)s::text)
     WHERE id = %(session_id)s AND team_id = %(team_id)s
    """)
async def owe_index(conn: Conn, team_id: UUID, session_id: UUID, source: str) -> None:
    """Note that the session has begun in that way, and that its model is to be given the index with the next prompt."""
    ...


@query("""
    UPDATE server_sessions s SET metadata = s.metadata - 'indexOwed'
      FROM (SELECT id, coalesce(metadata ->> 'indexOwed', '') AS source FROM server_sessions
             WHERE id = %(session_id)s AND team_id = %(team_id)s AND metadata ? 'indexOwed' FOR UPDATE) owed
     WHERE s.id = owed.id AND s.team_id = %(team_id)s
    RETURNING owed.source
    """)
async def take_owed_index(conn: Conn, team_id: UUID, session_id: UUID) -> str | None:
    """How the session has begun, if its model has not been given the index for that; the next call returns None."""
    ...


@query("UPDATE server_sessions SET idle_from = now() WHERE id = %(session_id)s AND team_id = %(team_id)s")
async def seen(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Note that the session is alive."""
    ...


@query("UPDATE server_sessions SET idle_from = now() WHERE id = %(session_id)s AND team_id = %(team_id)s AND idle_from IS NULL")
async def news(conn: Conn, team_id: UUID, session_id: UUID) -> None:
    """Make the idle sweep look at the session again: it has new events or prompts to summarize."""
    ...


# Sessions of archived projects are left alone: nothing would be generated for them.
@query("""
    SELECT s.id, s.team_id FROM server_sessions s
      JOIN projects p ON p.id = s.project_id AND p.team_id = s.team_id AND p.archived_at IS NULL
      JOIN teams t ON t.id = s.team_id AND t.archived_at IS NULL
     WHERE s.idle_from < now() - make_interval(secs => %(idle_seconds)s)
     ORDER BY s.idle_from LIMIT %(limit)s
    """)
async def seem_idle(conn: Conn, *, idle_seconds: float, limit: int) -> list[model.SessionOfTeam]:
    """Sessions of all teams that seem idle, the longest idle first; their events are not looked at."""
    ...


@query(f"""
    SELECT {model.SESSION_COLUMNS}
      FROM server_sessions
     WHERE id = %(session_id)s AND team_id = %(team_id)s AND idle_from < now() - make_interval(secs => %(idle_seconds)s)
       FOR NO KEY UPDATE SKIP LOCKED
    """)
async def lock_idle(conn: Conn, team_id: UUID, session_id: UUID, *, idle_seconds: float) -> model.Session | None:
    """The session, locked; None when it no longer seems idle, or another transaction holds it."""
    ...


async def still_alive(conn: Conn, team_id: UUID, session_id: UUID, seen_at: datetime, *, idle_seconds: float) -> bool:
    """Whether `seen_at` is recent enough; if so, it is stored."""
    alive = await STILL_ALIVE.first(conn, id=session_id, team_id=team_id, seen_at=seen_at, idle_seconds=idle_seconds)
    return alive is not None


@query("""
    SELECT id, coalesce(content_session_id, external_session_id) AS external_id, platform_source
      FROM server_sessions WHERE id = ANY(%(session_ids)s) AND team_id = %(team_id)s
    """)
async def briefs(conn: Conn, team_id: UUID, session_ids: Collection[UUID]) -> list[model.SessionBrief]:
    """The existing ones of these sessions."""
    ...


async def labels(
    conn: Conn, team_id: UUID, session_ids: Collection[UUID], *, unless_isolated: bool = False
) -> dict[UUID, model.SessionLabel]:
    """Titles and first prompts (cut to MAX_LABEL_CHARS) of these sessions; `unless_isolated` leaves out isolated projects."""
    rows = await LABELS.all(
        conn, team_id=team_id, ids=list(session_ids), max_chars=model.MAX_LABEL_CHARS, unless_isolated=unless_isolated
    )
    return {row.id: row for row in rows}


@query("""
    SELECT DISTINCT project_id, platform_source FROM server_sessions
     WHERE project_id = ANY(%(project_ids)s) AND team_id = %(team_id)s
    """)
async def platforms(conn: Conn, team_id: UUID, project_ids: Collection[UUID]) -> list[model.PlatformOfProject]:
    """The kinds of agents that have worked on each of the projects."""
    ...


@unprepared_query(f"""
    SELECT count(*) AS sessions, count(*) FILTER (WHERE ended_at IS NULL) AS active FROM server_sessions
     WHERE team_id = %(team_id)s AND {IN_REACH}
    """)
async def counts(conn: Conn, team_id: UUID, project_id: UUID | None) -> model.SessionCounts: ...


@unprepared_query("""
    SELECT count(*) FROM server_sessions
     WHERE team_id = %(team_id)s AND ended_at IS NULL
       AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def open_count(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """How many sessions of the team, or of one of its projects, have not ended."""
    ...


@query("""
    SELECT s.id, s.project_id, coalesce(p.prompt_number, 0) AS prompt_count,
           coalesce(p.prompt ~ '^(\\s|\\[redacted:private\\])*$', false) AS is_private,
           coalesce(p.prompt = %(prompt)s::text AND p.created_at > now() - make_interval(secs => %(within_seconds)s), false)
               AS is_repeated
      FROM server_sessions s
      LEFT JOIN LATERAL (SELECT prompt_number, prompt, created_at FROM turns
                          WHERE server_session_id = s.id AND team_id = %(team_id)s AND agent_id IS NULL
                          ORDER BY prompt_number DESC LIMIT 1) p ON true
     WHERE s.team_id = %(team_id)s AND s.content_session_id = %(external_id)s AND s.platform_source = %(platform_source)s
       AND (%(only)s::uuid IS NULL OR s.project_id = %(only)s::uuid)
     ORDER BY s.from_hooks DESC, greatest(s.started_at, s.idle_from, s.ended_at) DESC, s.id LIMIT 1
    """)
async def session_and_last_prompt(
    conn: Conn,
    team_id: UUID,
    external_id: str,
    platform_source: str,
    *,
    only: UUID | None,
    prompt: str | None,
    within_seconds: float,
) -> model.SessionAndLastPrompt | None:
    """The session of that external id, in `only` if named, and whether `prompt` is its newest and came within the seconds."""
    ...


# What was neither changed, checked nor committed is nothing to tell.
@query(f"""
    SELECT id, project_id, actor_id, started_at, files, checks, commits
      FROM work_in_team
     WHERE team_id = %(team_id)s AND {IN_REACH} AND (files > 0 OR checks IS NOT NULL OR commits <> '{{}}')
       AND (%(before)s::timestamptz IS NULL OR (started_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY started_at DESC, id DESC LIMIT %(limit)s
    """)
async def others_work(
    conn: Conn, team_id: UUID, project_id: UUID | None, *, limit: int, before: datetime | None = None, before_id: UUID | None = None
) -> list[model.OthersWork]:
    """What others did whose words the reader may not read, newest first; none where all may be read."""
    ...
