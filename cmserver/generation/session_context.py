"""Loads what is known of the sessions of a batch, beside the events themselves, when their observations are worded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation import prompt
from cmserver.generation.model import ClaimedJob
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.reading.model import PROMPT_TYPES
from cmserver.sessions.turns import repository as turns


async def has_recorded(conn: Conn, job: ClaimedJob) -> bool:
    """Whether anything of the job's session is recorded."""
    session_id = job.server_session_id
    return session_id is None or bool(await observations.recorded(conn, job.team_id, job.project_id, session_id, 1))


async def load_sessions(conn: Conn, parts: Sequence[Sequence[ClaimedJob]]) -> list[prompt.SessionContext]:
    """The part of a prompt that is about the session: its prompts, observations, and what the agent said last.

    Each part is of one session of the same team: events, or (then it is alone) a summary. For events that is what the first prompt
    among them answers. What came after the events, or after the summary was asked for, is not part of it, however late a worker
    comes by.
    """
    first = parts[0][0]
    by_session = {jobs[0].server_session_id: jobs for jobs in parts if jobs[0].server_session_id}
    if not by_session:
        return [prompt.SessionContext() for _ in parts]
    ids, team_id = [*by_session], first.team_id
    prompts = await turns.prompts(
        conn,
        team_id,
        ids,
        [max(job.prompt_number or 0 for job in jobs) for jobs in by_session.values()],
        newest=prompt.MAX_REQUESTS,
        max_chars=prompt.MAX_REQUEST_CHARS,
    )
    project_ids = [jobs[0].project_id for jobs in by_session.values()]
    recorded = {session_id: list[Observation]() for session_id in ids}
    if first.source_type == "agent_event":
        for it in await observations.of_sessions(conn, team_id, project_ids, ids, prompt.MAX_PRIOR_OBSERVATIONS):
            if it.server_session_id is not None:
                recorded[it.server_session_id].append(it)
    else:
        limit = prompt.MAX_PRIOR_OBSERVATIONS
        recorded[ids[0]] = await observations.recorded(conn, team_id, first.project_id, ids[0], limit)
    closers = {it.closed_by for rows in recorded.values() for it in rows if it.closed_by}
    places = await turns.places(conn, team_id, closers) if closers else []
    open_ends = {
        session_id: await observations.open_ends(conn, team_id, jobs[0].project_id, prompt.MAX_OPEN_ENDS, reader_session=session_id)
        for session_id, jobs in by_session.items()
    }
    replies = await _load_replies(conn, by_session)
    contexts = {
        session_id: prompt.SessionContext(
            prompts=[it for it in prompts if it.session_id == session_id],
            observations=recorded[session_id],
            closed_elsewhere={place.number for place in places if place.session_id != session_id},
            open_ends=open_ends[session_id],
            last_message=replies.get(session_id),
        )
        for session_id in by_session
    }
    if first.source_type != "agent_event":
        return [await _add_to_summary(conn, first, ids[0], contexts[ids[0]])]
    return [contexts[it] if (it := jobs[0].server_session_id) else prompt.SessionContext() for jobs in parts]


async def _load_replies(conn: Conn, by_session: Mapping[UUID, Sequence[ClaimedJob]]) -> dict[UUID, str]:
    """What the agent had said last, by session, where the first prompt among the events answers it."""
    answering: dict[UUID, int] = {}
    for session_id, jobs in by_session.items():
        first = next((job.prompt_number for job in jobs if job.event_type in PROMPT_TYPES), None)
        if first and first > 1:
            answering[session_id] = first
    if not answering:
        return {}
    rows = await turns.replies_before(conn, next(iter(by_session.values()))[0].team_id, [*answering], [*answering.values()])
    return {row.session_id: row.reply for row in rows}


async def _add_to_summary(conn: Conn, job: ClaimedJob, session_id: UUID, session: prompt.SessionContext) -> prompt.SessionContext:
    return msgspec.structs.replace(
        session,
        last_message=await events.last_message(conn, job.team_id, job.project_id, session_id, until=job.created_at),
        earlier_summary=await observations.last_summary(conn, job.team_id, job.project_id, session_id),
        events=await events.count_of_session(conn, job.team_id, job.project_id, session_id, until=job.created_at),
    )
