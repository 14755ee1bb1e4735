"""What the verbs on memories work with: the caller, the projects that he names, and how memories go out to him."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec
from msgspec import UNSET

from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import named_id, request_id
from cmserver.base.sql import Conn
from cmserver.consolidation.wording import MergeWriter
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.events.model import Origin
from cmserver.memories import repository
from cmserver.memories.model import NO_PROJECT, TelemetryEvent
from cmserver.memories.wire import MemoryRecordOut, memory_out
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation
from cmserver.observations.read import may_read, sees_shared_observations
from cmserver.recall.search.model import Ranking
from cmserver.redaction.redact import redact

_NO_ID = "Invalid memory id: send the uuid of a memory."


class MemoryCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who works with memories, and by which door. `session_id` is in the caller's words, for the funnel."""

    principal: Principal
    origin: Origin = "api"
    session_id: str | None = None
    size_bytes: int = 0
    """About the size of the request."""

    @property
    def team_id(self) -> UUID:
        return self.principal.team_id

    def sized(self, size_bytes: int) -> MemoryCaller:
        """The caller, of a request of that size."""
        return msgspec.structs.replace(self, size_bytes=size_bytes)


class Memories:
    """The instances that verbs on memories share."""

    def __init__(
        self,
        db: Db,
        projects: Projects,
        embedder: QueryEmbedder,
        ranking: Ranking,
        merge_writer: MergeWriter,
    ) -> None:
        self.db = db
        self.embedder = embedder
        self.ranking = ranking
        self.merge_writer = merge_writer
        self.projects = projects

    async def project_to_write(self, principal: Principal, reference: str | None) -> Project:
        """The project of that name, made where there is none; without a name that of the key, or the one for such memories."""
        if not reference and principal.project_id is None:
            reference = NO_PROJECT
        return await self.projects.named_or_own(principal, reference or None, at="$.project_id", make=True)

    async def projects_to_read(self, principal: Principal, reference: str | None) -> list[UUID] | None:
        """The projects that a list is limited to; None for all of the team. None at all for one that is not known."""
        if not reference:
            return None if principal.project_id is None else [principal.project_id]
        try:
            return [(await self.projects.named_or_own(principal, reference, at="$.project_id")).id]
        except NotFound:
            return []

    async def project_to_count(self, principal: Principal, reference: str | None) -> UUID | None:
        """As `projects_to_read`, for statistics, which are of one project or of all; nobody's id for one that is not known."""
        projects = await self.projects_to_read(principal, reference)
        return None if projects is None else next(iter(projects), UUID(int=0))


def memory_id(text: str, at: str = "$.id") -> UUID:
    """The id that the text spells; Invalid for anything else."""
    id_ = named_id(text)
    if id_ is None:
        raise Invalid.at(at, _NO_ID)
    return id_


async def memories_out(conn: Conn, principal: Principal, rows: Sequence[Observation]) -> list[MemoryRecordOut]:
    """The memories as they go out, in their order."""
    names = await access.names_of(conn, principal.team_id, {row.project_id for row in rows}) if rows else {}
    outs: list[MemoryRecordOut] = []
    for row in rows:
        name = names.get(row.project_id, NO_PROJECT)
        outs.append(memory_out(row, UNSET if name == NO_PROJECT else name))
    return outs


async def by_ids(conn: Conn, principal: Principal, ids: Collection[UUID]) -> dict[UUID, Observation]:
    """Those of the observations that the caller may see, also when they are merged or expired."""
    rows = await observations.any_by_names(conn, principal.team_id, ids) if ids else []
    sees_shared = await sees_shared_observations(conn, principal)
    return {row.id: row for row in rows if may_read(principal, row, sees_shared=sees_shared)}


async def record(conn: Conn, caller: MemoryCaller, events: Sequence[TelemetryEvent]) -> None:
    """Store events of the funnel, each with the session and the request, and without secrets in the caller's words."""
    own_id, session_id = request_id(), _redact(caller.session_id)
    stamped = [
        msgspec.structs.replace(event, session_id=session_id, agent=_redact(event.agent), request_id=own_id) for event in events
    ]
    await repository.record(conn, caller.team_id, stamped)


def _redact(text: str | None) -> str | None:
    return text and redact(text)[0]
