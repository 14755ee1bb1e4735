"""All SQL on personal observations. Each query names the team and the person, also for workers, whom no policy binds."""

from __future__ import annotations

from datetime import datetime
from typing import LiteralString
from uuid import UUID

from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query
from cmserver.personal.model import (
    PERSONAL_COLUMNS,
    FormerState,
    PersonalObservation,
    PersonalState,
    PersonalType,
    SourceTurn,
    WordsOwner,
)

OWNS = {"personal_observations", "personal_counters"}

# As the team's rows: that of its project. What is of none is read as most of the team's projects are.
_LANGUAGE: LiteralString = """
    coalesce((SELECT j.search_language FROM projects j WHERE j.id = %(project_id)s AND j.team_id = %(team_id)s),
             (SELECT mode() WITHIN GROUP (ORDER BY j.search_language) FROM projects j
               WHERE j.team_id = %(team_id)s AND j.archived_at IS NULL),
             'english')"""

INSERT = Query(
    PersonalObservation,
    f"""
    INSERT INTO personal_observations AS p
           (id, team_id, user_id, number, type, content, before, project_id, turn_id, actor_id, search_language)
    VALUES (%(id)s, %(team_id)s, %(user_id)s, %(number)s, %(type)s, %(content)s, %(before)s, %(project_id)s, %(turn_id)s,
            %(actor_id)s, {_LANGUAGE})
    RETURNING {PERSONAL_COLUMNS}
    """,
)

UPDATE = Query(
    PersonalObservation,
    f"""
    UPDATE personal_observations AS p
       SET type = %(type)s, content = %(content)s, state = %(state)s, before = %(before)s, project_id = %(project_id)s,
           turn_id = %(turn_id)s, observation_number = %(observation_number)s, search_language = {_LANGUAGE}, updated_at = now()
     WHERE p.id = %(id)s AND p.team_id = %(team_id)s AND p.user_id = %(user_id)s
    RETURNING {PERSONAL_COLUMNS}
    """,
)


@query("""
    INSERT INTO personal_counters AS c (team_id, user_id) VALUES (%(team_id)s, %(user_id)s)
    ON CONFLICT (team_id, user_id) DO UPDATE SET last_number = c.last_number
    """)
async def lock_numbers(conn: Conn, team_id: UUID, user_id: UUID) -> None:
    """Whoever writes for the person does it alone, until the transaction ends."""
    ...


@query("""
    UPDATE personal_counters SET last_number = last_number + 1 WHERE team_id = %(team_id)s AND user_id = %(user_id)s
    RETURNING last_number
    """)
async def take_number(conn: Conn, team_id: UUID, user_id: UUID) -> int: ...


@query(f"""
    SELECT {PERSONAL_COLUMNS} FROM personal_observations p
     WHERE p.team_id = %(team_id)s AND p.user_id = %(user_id)s
       AND (%(number)s::bigint IS NULL OR p.number = %(number)s) AND (%(id_)s::uuid IS NULL OR p.id = %(id_)s)
    """)
async def find(conn: Conn, team_id: UUID, user_id: UUID, *, number: int | None, id_: UUID | None) -> PersonalObservation | None:
    """The person's observation of that number, or else of that id: one of them is given."""
    ...


@query(f"""
    SELECT {PERSONAL_COLUMNS} FROM personal_observations p
     WHERE p.team_id = %(team_id)s AND p.user_id = %(user_id)s AND p.content = %(content)s
     ORDER BY p.state = 'holds' DESC, p.number DESC LIMIT 1
    """)
async def of_text(conn: Conn, team_id: UUID, user_id: UUID, content: str) -> PersonalObservation | None:
    """The person's observation with that text, whether it holds or not."""
    ...


@query(f"""
    SELECT {PERSONAL_COLUMNS} FROM personal_observations p
     WHERE p.team_id = %(team_id)s AND p.user_id = %(user_id)s AND (%(state)s::text IS NULL OR p.state = %(state)s)
       AND (%(type_)s::text IS NULL OR p.type = %(type_)s)
       AND (%(before)s::timestamptz IS NULL OR (p.created_at, p.id) < (%(before)s, %(before_id)s::uuid))
     ORDER BY p.created_at DESC, p.id DESC LIMIT %(limit)s
    """)
async def newest(
    conn: Conn,
    team_id: UUID,
    user_id: UUID,
    *,
    state: PersonalState | None,
    type_: PersonalType | None = None,
    before: datetime | None = None,
    before_id: UUID | None = None,
    limit: int,
) -> list[PersonalObservation]:
    """Newest first."""
    ...


# A person has few: none of it is looked up by an index of words. At least half of the query's words must be there.
@query(f"""
    WITH asked AS MATERIALIZED (
         SELECT l.search_language, tsvector_to_array(search_words(l.search_language, %(words)s, false)) AS words
           FROM (SELECT DISTINCT search_language FROM personal_observations
                  WHERE team_id = %(team_id)s AND user_id = %(user_id)s AND state = %(state)s) l)
    SELECT {PERSONAL_COLUMNS}
      FROM personal_observations p
      JOIN asked USING (search_language)
     CROSS JOIN LATERAL (SELECT count(*) AS shared FROM unnest(asked.words) AS word
                          WHERE word = ANY(tsvector_to_array(p.content_search))) AS found
     WHERE p.team_id = %(team_id)s AND p.user_id = %(user_id)s AND p.state = %(state)s
       AND (%(type_)s::text IS NULL OR p.type = %(type_)s)
       AND found.shared > 0 AND found.shared * 2 >= cardinality(asked.words)
     ORDER BY found.shared DESC, p.number DESC LIMIT %(limit)s
    """)
async def by_words(
    conn: Conn, team_id: UUID, user_id: UUID, words: str, *, state: PersonalState, type_: PersonalType | None = None, limit: int
) -> list[PersonalObservation]:
    """What of the person's own, in that state, has most of the words, the most of them first."""
    ...


@query("""
    SELECT id AS turn_id, project_id, created_at AS said_at FROM turns
     WHERE number = %(number)s AND team_id = %(team_id)s
    """)
async def turn_of_number(conn: Conn, team_id: UUID, number: int) -> SourceTurn | None: ...


# A job that was retried by another one has their key, and its turn another name.
@query("""
    SELECT j.id AS job_id, u.id AS user_id, k.actor_id, t.id AS turn_id, t.project_id, t.created_at AS said_at
      FROM observation_generation_jobs j
      JOIN turns t ON t.agent_event_id = j.agent_event_id AND t.team_id = j.team_id AND t.agent_id IS NULL
      JOIN api_keys k ON k.id = j.api_key_id AND k.team_id = j.team_id AND k.actor_id = t.actor_id
      JOIN users u ON u.id = k.user_id
     WHERE j.id = ANY(%(job_ids)s) AND j.team_id = %(team_id)s
    """)
async def owners(conn: Conn, team_id: UUID, job_ids: list[UUID]) -> list[WordsOwner]:
    """Whose words the prompts of these jobs are; none for those of a key that is nobody's."""
    ...


@query("SELECT server_session_id FROM turns WHERE id = %(turn_id)s AND team_id = %(team_id)s")
async def session_of_turn(conn: Conn, team_id: UUID, turn_id: UUID) -> UUID | None: ...


@query("""
    DELETE FROM personal_observations
     WHERE id = %(id_)s AND team_id = %(team_id)s AND (%(user_id)s::uuid IS NULL OR user_id = %(user_id)s)
    """)
async def delete(conn: Conn, team_id: UUID, id_: UUID, *, user_id: UUID | None) -> RowCount:
    """Delete that of the person; a restore, which repeats it by the id, knows none. Returns how many."""
    ...


async def insert(
    conn: Conn,
    *,
    id_: UUID,
    team_id: UUID,
    user_id: UUID,
    number: int,
    type_: PersonalType,
    content: str,
    before: FormerState | None,
    project_id: UUID | None,
    turn_id: UUID | None,
    actor_id: str,
) -> PersonalObservation:
    return await INSERT.one(
        conn,
        id=id_,
        team_id=team_id,
        user_id=user_id,
        number=number,
        type=type_,
        content=content,
        before=None if before is None else Jsonb(before),
        project_id=project_id,
        turn_id=turn_id,
        actor_id=actor_id,
    )


async def update(conn: Conn, changed: PersonalObservation) -> PersonalObservation:
    """Store it as it is given; NotFound when it was deleted meanwhile."""
    return await UPDATE.one(
        conn,
        id=changed.id,
        team_id=changed.team_id,
        user_id=changed.user_id,
        type=changed.type,
        content=changed.content,
        state=changed.state,
        before=None if changed.before is None else Jsonb(changed.before),
        project_id=changed.project_id,
        turn_id=changed.turn_id,
        observation_number=changed.observation_number,
    )
