"""What every door to search does: who asks says what, and gets what was found, and it is noted what was read."""

from __future__ import annotations

import base64
import binascii
import struct
from datetime import datetime
from math import isfinite
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.ids import from_epoch_ms, from_iso
from cmserver.base.paging import no_cursor
from cmserver.base.sql import Conn
from cmserver.observations.read import served
from cmserver.recall.search.meaning import Meaning
from cmserver.recall.search.model import Asked, Filters, Page, Place, Ranking
from cmserver.recall.search.plain import hit_text, project_of
from cmserver.recall.search.search import find
from cmserver.recall.search.wire import ContextIn, SearchIn
from cmserver.sessions.read import prompts_served


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits. `texts` are what an agent reads of each, in their order; `next_cursor` is None on the last page."""

    page: Page
    texts: list[str]
    next_cursor: str | None
    by_meaning: bool


class Searcher:
    """One per process."""

    def __init__(self, db: Db, projects: Projects, meaning: Meaning, ranking: Ranking) -> None:
        self._db = db
        self._projects = projects
        self.meaning = meaning
        self._ranking = ranking

    async def search(self, who: Principal, asked: SearchIn, *, full: bool) -> Found:
        """The best first. `full` says whether whole texts are read, or lines. Invalid or NotFound for what cannot be asked."""
        project_ids = await self._project_ids(who, asked)
        ranking = self._wished(asked)
        search = Asked(
            query=asked.query,
            project_ids=project_ids,
            filters=_filters(asked),
            limit=asked.limit,
            after=_place(asked.cursor),
            min_score=asked.min_score,
        )
        sought = await self.meaning.of(asked.query) if ranking.meaning_weight > 0 else None
        async with self._db.tenant(who.team_id) as conn:
            page = await find(conn, who, search, ranking, sought)
            await _served(conn, who, project_ids, page, via="search.full" if full else "search")
            is_one = project_ids is not None and len(project_ids) == 1
            names = {} if is_one else await access.names_of(conn, who.team_id, {project_of(hit) for hit in page.hits})
        return Found(
            page=page,
            texts=[hit_text(hit, names, full=full) for hit in page.hits],
            next_cursor=_cursor(page.next),
            by_meaning=sought is not None,
        )

    async def best(self, who: Principal, asked: ContextIn) -> Page:
        """The best of one project, to be read whole."""
        project = await self._projects.named_or_own(who, asked.project_id, at="$.projectId")
        search = Asked(query=asked.query, project_ids=[project.id], limit=asked.limit)
        sought = await self.meaning.of(asked.query)
        async with self._db.tenant(who.team_id) as conn:
            page = await find(conn, who, search, self._ranking, sought)
            await _served(conn, who, [project.id], page, via="context.search")
        return page

    def _wished(self, asked: SearchIn) -> Ranking:
        usual = self._ranking
        return msgspec.structs.replace(
            usual,
            meaning_weight=usual.meaning_weight if asked.meaning_weight is None else asked.meaning_weight,
            recency=usual.recency if asked.recency is None else asked.recency,
            neighbours=usual.neighbours if asked.neighbours is None else asked.neighbours,
        )

    async def _project_ids(self, who: Principal, asked: SearchIn) -> list[UUID] | None:
        """None for the whole team."""
        named = asked.project_id or asked.project
        if asked.projects is not None and named is not None:
            raise Invalid.at("$.projects", "Say `projectId` for one project, or `projects` for several.")
        if asked.projects is not None:
            found = [
                await self._projects.named_or_own(who, one, at=f"$.projects[{place}]") for place, one in enumerate(asked.projects)
            ]
            return list(dict.fromkeys(one.id for one in found))
        if named is None and who.project_id is None:
            return None
        return [(await self._projects.named_or_own(who, named, at="$.projectId")).id]


def _filters(asked: SearchIn) -> Filters:
    since, until = _moment(asked.since, "$.since"), _moment(asked.until, "$.until")
    if since is not None and until is not None and since >= until:
        raise Invalid.at("$.until", "`until` must be later than `since`.")
    return Filters(
        kinds=asked.kinds,
        types=asked.types,
        concepts=None if asked.concepts is None else [one.lower() for one in asked.concepts],
        files=asked.files,
        file_prefix=asked.file_prefix,
        session_id=asked.session,
        agents=None if asked.agents is None else [one.lower() for one in asked.agents],
        since=since,
        until=until,
    )


def _moment(said: int | str | None, at: str) -> datetime | None:
    if said is None:
        return None
    try:
        return from_epoch_ms(said) if isinstance(said, int) else from_iso(said)
    except ValueError as error:
        raise Invalid.at(at, "This is no time: send 2026-11-22, 2026-11-22T10:00:00Z or epoch milliseconds.") from error


async def _served(conn: Conn, who: Principal, project_ids: list[UUID] | None, page: Page, *, via: str) -> None:
    one = project_ids[0] if project_ids and len(project_ids) == 1 else None
    await served(conn, who, one, via, [hit.observation for hit in page.hits if hit.observation])
    await prompts_served(conn, who, one, sum(1 for hit in page.hits if hit.prompt))


def _cursor(place: Place | None) -> str | None:
    if place is None:
        return None
    return base64.urlsafe_b64encode(struct.pack(">dI", place.score, place.seen) + place.id.bytes).decode()


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        score, seen = struct.unpack(">dI", raw[:12])
        if not isfinite(score):
            raise no_cursor()
        return Place(score=score, id=UUID(bytes=raw[12:]), seen=seen)
    except (binascii.Error, ValueError, struct.error) as error:
        raise no_cursor() from error
