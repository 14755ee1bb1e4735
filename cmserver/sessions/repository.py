"""All SQL on sessions and prompts."""

from __future__ import annotations

from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query
from cmserver.sessions.model import NewSession, Session, SessionPrompt

OWNS = {"server_sessions", "session_prompts"}

INSERT = Query(
    Session,
    """
    INSERT INTO server_sessions (id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type,
                                 platform_source, metadata)
    VALUES (%(id)s, %(project_id)s, %(team_id)s, %(external_session_id)s, %(content_session_id)s, %(agent_id)s, %(agent_type)s,
            %(platform_source)s, %(metadata)s)
    ON CONFLICT DO NOTHING
    RETURNING id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
              generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
    """,
)

BY_ID = Query(
    Session,
    """
    SELECT id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
           generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
      FROM server_sessions WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

# By the id the agent gave it; without a platform, the newest of any platform.
BY_EXTERNAL_ID = Query(
    Session,
    """
    SELECT id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
           generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
      FROM server_sessions
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s
       AND (external_session_id = %(named)s OR content_session_id = %(named)s)
       AND (%(platform_source)s::text IS NULL OR coalesce(platform_source, '') = %(platform_source)s::text)
     ORDER BY external_session_id = %(named)s DESC NULLS LAST, started_at DESC LIMIT 1
    """,
)

# NO KEY: a foreign key's check on the session, which every ingest makes while it holds its lane, must not wait for this.
LOCK = Query(
    Session,
    """
    SELECT id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
           generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
      FROM server_sessions WHERE id = %(id)s AND team_id = %(team_id)s FOR NO KEY UPDATE
    """,
)

END = Query(
    Session,
    """
    UPDATE server_sessions SET ended_at = coalesce(ended_at, now()), updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    RETURNING id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
              generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
    """,
)

RESUME = Query(
    Session,
    """
    UPDATE server_sessions SET ended_at = NULL, updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s AND ended_at IS NOT NULL
    RETURNING id, project_id, team_id, external_session_id, content_session_id, agent_id, agent_type, platform_source,
              generation_status, metadata, started_at, ended_at, last_generated_at, created_at, updated_at
    """,
)

GENERATED = Query(
    int,
    """
    UPDATE server_sessions SET generation_status = %(status)s, last_generated_at = now(), updated_at = now()
     WHERE id = %(id)s AND team_id = %(team_id)s
    """,
)

INSERT_PROMPT = Query(
    int,
    """
    INSERT INTO session_prompts (id, team_id, project_id, server_session_id, agent_event_id, prompt_number, text)
    SELECT %(id)s, %(team_id)s, %(project_id)s, %(session_id)s, %(event_id)s, coalesce(max(prompt_number), 0) + 1, %(text)s
      FROM session_prompts WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
    ON CONFLICT (agent_event_id) DO NOTHING
    RETURNING prompt_number
    """,
)

PROMPTS = Query(
    SessionPrompt,
    """
    SELECT prompt_number, left(text, %(max_chars)s) AS text, created_at FROM session_prompts
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
       AND (prompt_number = 1 OR prompt_number > (SELECT max(prompt_number) - %(newest)s FROM session_prompts
                                                   WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s))
     ORDER BY prompt_number
    """,
)


async def insert(conn: Conn, session_id: UUID, team_id: UUID, project_id: UUID, new: NewSession) -> Session | None:
    """The new session, or None when the agent's id is taken."""
    return await INSERT.first(
        conn,
        id=session_id,
        team_id=team_id,
        project_id=project_id,
        external_session_id=new.external_session_id,
        content_session_id=new.content_session_id,
        agent_id=new.agent_id,
        agent_type=new.agent_type,
        platform_source=new.platform_source,
        metadata=Jsonb(new.metadata),
    )


async def by_id(conn: Conn, team_id: UUID, session_id: UUID) -> Session | None:
    return await BY_ID.first(conn, id=session_id, team_id=team_id)


async def by_external_id(conn: Conn, team_id: UUID, project_id: UUID, named: str, platform_source: str | None) -> Session | None:
    return await BY_EXTERNAL_ID.first(conn, team_id=team_id, project_id=project_id, named=named, platform_source=platform_source)


async def lock(conn: Conn, team_id: UUID, session_id: UUID) -> Session | None:
    """The session, locked until the transaction ends."""
    return await LOCK.first(conn, id=session_id, team_id=team_id)


async def end(conn: Conn, team_id: UUID, session_id: UUID) -> Session:
    return await END.one(conn, id=session_id, team_id=team_id)


async def resume(conn: Conn, team_id: UUID, session_id: UUID) -> Session | None:
    """The session as it is when it had ended, else None."""
    return await RESUME.first(conn, id=session_id, team_id=team_id)


async def generated(conn: Conn, team_id: UUID, session_id: UUID, status: str) -> None:
    """Note that generation has worked on the session (`completed` or `failed`)."""
    await GENERATED.run(conn, id=session_id, team_id=team_id, status=status)


async def insert_prompt(
    conn: Conn, prompt_id: UUID, *, team_id: UUID, project_id: UUID, session_id: UUID, event_id: UUID, text: str
) -> int | None:
    """The prompt's number in its session, which the caller has locked; None when its event has one already."""
    return await INSERT_PROMPT.first(
        conn, id=prompt_id, team_id=team_id, project_id=project_id, session_id=session_id, event_id=event_id, text=text
    )


async def prompts(conn: Conn, team_id: UUID, session_id: UUID, *, newest: int, max_chars: int) -> list[SessionPrompt]:
    """The first prompt and the newest ones, oldest first, each cut to so many characters."""
    return await PROMPTS.all(conn, session_id=session_id, team_id=team_id, newest=newest, max_chars=max_chars)
