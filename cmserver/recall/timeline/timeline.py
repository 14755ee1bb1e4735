"""What happened around a moment, an observation or a prompt: what came before it and after it, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import from_iso, named_id
from cmserver.base.sql import Conn
from cmserver.observations.model import Observation
from cmserver.observations.read import NO_SUCH, find, number_of, served
from cmserver.recall.search.model import Ranking, Sought
from cmserver.recall.search.search import best
from cmserver.recall.timeline import repository
from cmserver.recall.timeline.model import Around, Place, TimedPrompt, Timeline
from cmserver.sessions.read import prompts_served

_FIRST_OF_ALL, _LAST_OF_ALL = UUID(int=0), UUID(int=2**128 - 1)
_NO_ANCHOR = (
    "An anchor is one of these: the number of an observation (12, #12), of a summary (S12), an id, "
    "or a time (2026-11-22T10:00:00Z)."
)


async def timeline(
    conn: Conn, principal: Principal, project_id: UUID | None, anchor: str, wanted: Around, *, via: str = "timeline"
) -> Timeline:
    """What happened around the anchor: an observation by number or id, a prompt by the id of its event, or a time in ISO 8601.

    A time without a zone is in UTC. Without a project it is that of the anchor; around a mere moment, all that the key may see.
    NotFound when there is no such thing.
    """
    if number_of(anchor) is not None or named_id(anchor):
        found = await _named(conn, principal, anchor, wanted)
        return await around(conn, principal, project_id, found, wanted, via=via)
    place = Place(at=_moment(anchor), observation_id=_FIRST_OF_ALL, event_id=_FIRST_OF_ALL)
    return await _around(conn, principal, project_id or principal.project_id, place, None, wanted, via)


async def around_best(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    query: str,
    wanted: Around,
    *,
    ranking: Ranking,
    sought: Sought | None = None,
    via: str = "timeline",
) -> Timeline | None:
    """What happened around the best that a search finds; None when it finds nothing."""
    found = await best(conn, principal, project_id, query, ranking, sought)
    return await around(conn, principal, project_id, found, wanted, via=via) if found else None


async def around(
    conn: Conn, principal: Principal, project_id: UUID | None, anchor: Observation | TimedPrompt, wanted: Around, *, via: str
) -> Timeline:
    """What happened around an observation or a prompt that the key may see."""
    if project_id is None:
        project_id = principal.project_id or anchor.project_id
    # Of what bears the same moment, a prompt stands before what came of it.
    if isinstance(anchor, Observation):
        place = Place(at=anchor.created_at, observation_id=anchor.id, event_id=_LAST_OF_ALL)
    else:
        place = Place(at=anchor.created_at, observation_id=_FIRST_OF_ALL, event_id=anchor.event_id)
    return await _around(conn, principal, project_id, place, anchor, wanted, via)


async def _around(
    conn: Conn,
    principal: Principal,
    project_id: UUID | None,
    place: Place,
    anchor: Observation | TimedPrompt | None,
    wanted: Around,
    via: str,
) -> Timeline:
    earlier = await repository.earlier(conn, principal.team_id, project_id, place, wanted)
    later = await repository.later(conn, principal.team_id, project_id, place, wanted)
    before = sorted(earlier, key=_order)[-wanted.before :] if wanted.before else []
    told = [*before, *([anchor] if anchor else []), *sorted(later, key=_order)[: wanted.after]]
    await _served(conn, principal, project_id, via, told)
    return Timeline(at=place.at, anchor=anchor, told=told)


def _order(one: Observation | TimedPrompt) -> tuple[datetime, bool, UUID]:
    if isinstance(one, Observation):
        return one.created_at, True, one.id
    return one.created_at, False, one.event_id


async def _served(
    conn: Conn, principal: Principal, project_id: UUID | None, via: str, told: Sequence[Observation | TimedPrompt]
) -> None:
    await served(conn, principal, project_id, via, [one for one in told if isinstance(one, Observation)])
    await prompts_served(conn, principal, project_id, sum(isinstance(one, TimedPrompt) for one in told))


async def _named(conn: Conn, principal: Principal, text: str, wanted: Around) -> Observation | TimedPrompt:
    try:
        return await find(conn, principal, text)
    except NotFound:
        named = named_id(text)
        prompt = await repository.prompt_of(conn, principal.team_id, named, wanted.prompt_chars) if named else None
        if prompt is None or not principal.sees(prompt.project_id):
            raise NotFound(NO_SUCH) from None
        return prompt


def _moment(text: str) -> datetime:
    try:
        return from_iso(text)
    except ValueError as error:
        raise Invalid.at("$.anchor", _NO_ANCHOR) from error
