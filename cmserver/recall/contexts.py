"""What every door to a project's index does, when somebody asks for it."""

from __future__ import annotations

import msgspec

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.observations.read import served
from cmserver.recall.context import context
from cmserver.recall.model import MOST_CHANGED_FILES, Context, Occasion, Shape
from cmserver.recall.wire import ContextQuery
from cmserver.sessions import read as sessions


class Contexts:
    """One per process."""

    def __init__(self, db: Db, projects: Projects, shape: Shape) -> None:
        self._db = db
        self._projects = projects
        self._shape = shape

    async def told(
        self, who: Principal, asked: ContextQuery, *, reader: str | None = None, at: str = "$.project", among: int = 1
    ) -> Context:
        """The index that a session of the project is told. Invalid or NotFound for what cannot be asked.

        `reader` says by what means the agent reads more, see `Occasion`; `at` is the path of what names the project. One `among`
        several has its share of the tokens.
        """
        session = None
        if asked.session:
            async with self._db.tenant(who.team_id) as conn:
                session = await sessions.one(conn, who, asked.session)
        named = str(session.project_id) if session and asked.project is None else asked.project
        project = await self._projects.named_or_own(who, named, at=at)
        if session is not None and session.project_id != project.id:
            raise NotFound(sessions.NO_SUCH)
        shape = self._shape.among(among)
        if asked.limit is not None:
            shape = msgspec.structs.replace(shape, observations=asked.limit)
        async with self._db.tenant(who.team_id) as conn:
            occasion = Occasion(
                reason=asked.source or "asked",
                session_id=session.id if session else None,
                platform=session.platform_source if session else None,
                changed_files=[path for path in (asked.changed_files or "").split(",") if path][:MOST_CHANGED_FILES],
                is_look=asked.explain or session is None,
                reader=reader,
            )
            told = await context(conn, who, project, occasion, shape)
            if asked.explain and told.index:  # whoever has it explained sees the titles of what is left out, too
                await served(conn, who, project.id, "context", told.index.left_out)
        return told
