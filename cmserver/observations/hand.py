"""Writing observations by hand as the doors ask for it: read from the wire, made tidy, and stored all or none."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Issue, NotFound
from cmserver.base.ids import from_epoch_ms
from cmserver.events.model import Origin
from cmserver.observations.model import Manual, Observation
from cmserver.observations.tidy import tidy
from cmserver.observations.wire import ObservationIn
from cmserver.observations.write import write


class Hand:
    """One per process."""

    def __init__(self, db: Db, projects: Projects, *, field_max_chars: int) -> None:
        self._db = db
        self._projects = projects
        self._field_max_chars = field_max_chars

    async def write(self, who: Principal, asked: ObservationIn, *, size_bytes: int, origin: Origin = "api") -> Observation:
        """One by itself, which is the whole of what was sent, in about so many bytes; nothing is generated from it."""
        given = await self._manual(who, asked, "$", size_bytes)
        (made,) = await self._db.in_tenant(who.team_id, lambda conn: write(conn, who, [given], origin=origin))
        return made

    async def write_all(self, who: Principal, asked: Sequence[ObservationIn], *, size_bytes: int) -> list[Observation]:
        """A batch, in its order, from the door `api`. What is wrong with one says which (`$[3].title`), and then none is stored."""
        given = [await self._manual(who, one, f"$[{place}]", size_bytes) for place, one in enumerate(asked)]
        return await self._db.in_tenant(who.team_id, lambda conn: write(conn, who, given))

    async def _manual(self, who: Principal, asked: ObservationIn, at: str, size_bytes: int) -> Manual:
        try:
            project = await self._projects.named_or_own(who, asked.project_id, at=f"{at}.projectId")
        except NotFound as error:
            raise NotFound(str(error), [] if at == "$" else [Issue(f"{at}.projectId", str(error))]) from error
        given = Manual(
            project_id=project.id,
            server_session_id=asked.session_id,
            type=asked.type,
            scope=asked.scope,
            title=asked.title,
            subtitle=asked.subtitle,
            narrative=asked.narrative,
            content=asked.content,
            facts=asked.facts,
            concepts=asked.concepts,
            files_read=asked.files_read,
            files_modified=asked.files_modified,
            metadata=asked.metadata,
            created_at=None if asked.created_at_epoch is None else from_epoch_ms(asked.created_at_epoch),
            at=at,
        )
        return await tidy(given, field_max_chars=self._field_max_chars, size_bytes=size_bytes)
