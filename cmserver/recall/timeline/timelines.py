"""What every door to the timeline does."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.sql import Conn
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Ranking, Sought
from cmserver.recall.timeline.model import EVERYTHING, PROMPT_CHARS, Around, Timeline
from cmserver.recall.timeline.timeline import around_best, timeline
from cmserver.recall.timeline.wire import TimelineIn
from cmserver.sessions import read as sessions

_ALL = 2**31 - 1
_WHICH = "Say around what, in one way: `anchor` with a number, an id or a time, or `query` with words to search for."


class Timelines:
    """One per process."""

    def __init__(self, db: Db, projects: Projects, meaning: Meaning, ranking: Ranking) -> None:
        self._db = db
        self._projects = projects
        self.meaning = meaning
        self._ranking = ranking

    async def around(self, who: Principal, asked: TimelineIn) -> Timeline | None:
        """What happened around it; None where a query finds nothing. Invalid or NotFound for what cannot be asked."""
        if (asked.anchor is None) == (asked.query is None):
            raise Invalid.at("$.anchor", _WHICH)
        project_id = who.project_id
        if asked.project_id is not None:
            project_id = (await self._projects.named_or_own(who, asked.project_id, at="$.projectId")).id
        sought = await self.meaning.of(asked.query) if asked.query else None
        async with self._db.tenant(who.team_id) as conn:
            told = await _around(conn, who, project_id, asked, self._ranking, sought)
            projects = {one.project_id for one in told.told} if told else set[UUID]()
            if told is None or len(projects) < 2:
                return told
            return msgspec.structs.replace(told, names=await access.names_of(conn, who.team_id, projects))


async def _around(
    conn: Conn, who: Principal, project_id: UUID | None, asked: TimelineIn, by: Ranking, sought: Sought | None
) -> Timeline | None:
    session = await sessions.one(conn, who, asked.session) if asked.session else None
    if session is not None:
        if project_id not in {None, session.project_id}:
            raise NotFound(sessions.NO_SUCH)
        project_id = session.project_id
    full = asked.format == "full"
    wanted = Around(
        before=asked.before,
        after=asked.after,
        what=frozenset(asked.kinds) if asked.kinds else EVERYTHING,
        session_id=session.id if session else None,
        prompt_chars=_ALL if full else PROMPT_CHARS,
    )
    via = "timeline.full" if full else "timeline"
    if asked.query is not None:
        return await around_best(conn, who, project_id, asked.query, wanted, ranking=by, sought=sought, via=via)
    return await timeline(conn, who, project_id, str(asked.anchor).strip(), wanted, via=via)
