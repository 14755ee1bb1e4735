"""SQL that measures sessions in two arms. Owns no table."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH
from cmserver.base.sql import Conn, unprepared_query
from cmserver.ops.proof.model import ArmMeasure, ArmSessions

OWNS: set[str] = set()

_SINCE: LiteralString = "now() - make_interval(days => %(days)s::int)"
_ARMS: LiteralString = f"""
    arms AS MATERIALIZED (
        SELECT s.id, s.project_id, s.arm, s.ended_at IS NOT NULL AS has_ended,
               (SELECT count(*) FROM turns t
                 WHERE t.server_session_id = s.id AND t.team_id = s.team_id AND t.prompt_number IS NOT NULL) AS turns
          FROM server_sessions s
         WHERE s.team_id = %(team_id)s AND s.arm IS NOT NULL AND s.started_at >= {_SINCE} AND {IN_REACH}
    )"""
_WORDS: LiteralString = r"btrim(regexp_replace(lower(left(t.prompt, 500)), '\W+', ' ', 'g'))"
"""A prompt without case and signs, to tell whether two are the same question."""


@unprepared_query(f"""
    WITH {_ARMS}
    SELECT arm, count(*) AS begun, count(*) FILTER (WHERE has_ended AND turns > 0) AS compared FROM arms GROUP BY arm
    """)
async def count_sessions(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> list[ArmSessions]:
    """The arms that have sessions of the last `days`."""
    ...


# A failing check is repeated by each further failure of the same command in the session. A question is asked again whose words are
# those of a prompt of an earlier session of the project; fewer than three are none: the first two sessions that asked it tell, the
# second where the first is the session itself. Each part is read once for all sessions.
@unprepared_query(f"""
    WITH {_ARMS},
    compared AS MATERIALIZED (SELECT * FROM arms WHERE has_ended AND turns > 0),
    failures AS (
        SELECT f.id, sum(f.count - 1) AS repeated
          FROM (SELECT c.id, count(*) AS count
                  FROM compared c
                  JOIN turns t ON t.server_session_id = c.id AND t.team_id = %(team_id)s
                  JOIN turn_traces r ON r.turn_id = t.id AND r.team_id = t.team_id AND r.kind = 'check'
                 CROSS JOIN LATERAL jsonb_path_query(r.results, '$[*].results[*] ? (@.passed == false)') result
                 GROUP BY c.id, result ->> 'command', result ->> 'folder', result -> 'selectors') f
         GROUP BY f.id
    ),
    prompts AS MATERIALIZED (
        SELECT t.project_id, t.server_session_id, t.created_at, {_WORDS} AS words
          FROM turns t
         WHERE t.team_id = %(team_id)s AND t.prompt_number IS NOT NULL AND t.created_at > '-infinity'
           AND t.created_at >= {_SINCE} AND length(t.prompt) <= 500 AND t.project_id IN (SELECT project_id FROM compared)
    ),
    asked AS (
        SELECT project_id, words, server_session_id AS session_id, min(created_at) AS at
          FROM prompts
         WHERE words LIKE '%% %% %%'
         GROUP BY project_id, words, server_session_id
    ),
    firsts AS (
        SELECT project_id, words, (array_agg(session_id ORDER BY at, session_id))[1] AS session_id,
               min(at) AS at, (array_agg(at ORDER BY at, session_id))[2] AS next_at
          FROM asked
         GROUP BY project_id, words
    ),
    questions AS (
        SELECT c.id, count(*) AS repeated
          FROM compared c
          JOIN prompts p ON p.server_session_id = c.id
          JOIN firsts f ON f.project_id = p.project_id AND f.words = p.words
         WHERE p.created_at > CASE WHEN f.session_id = c.id THEN f.next_at ELSE f.at END
         GROUP BY c.id
    ),
    sizes AS (
        SELECT c.id, coalesce(sum(e.size_chars), 0) / 4 AS tokens
          FROM compared c
          JOIN agent_events e ON e.project_id = c.project_id AND e.server_session_id = c.id AND e.team_id = %(team_id)s
         GROUP BY c.id
    ),
    told AS (
        SELECT c.id, sum(i.tokens) AS tokens
          FROM compared c JOIN context_injections i ON i.server_session_id = c.id AND i.team_id = %(team_id)s
         GROUP BY c.id
    )
    SELECT c.arm, m.name, count(*) AS sessions, count(*) FILTER (WHERE m.value <> 0) AS non_zero,
           avg(m.value)::float8 AS mean, var_samp(m.value)::float8 AS variance
      FROM compared c
      LEFT JOIN failures ON failures.id = c.id
      LEFT JOIN questions ON questions.id = c.id
      LEFT JOIN sizes ON sizes.id = c.id
      LEFT JOIN told ON told.id = c.id
     CROSS JOIN LATERAL (VALUES ('turns', c.turns::numeric), ('repeated_failures', coalesce(failures.repeated, 0)),
                                ('repeated_questions', coalesce(questions.repeated, 0)),
                                ('tokens', coalesce(sizes.tokens, 0) + coalesce(told.tokens, 0))) AS m (name, value)
     GROUP BY c.arm, m.name
    """)
async def measure(conn: Conn, team_id: UUID, project_id: UUID | None, days: int) -> list[ArmMeasure]:
    """The measures of the arms' sessions that ended, in no order."""
    ...
