"""The native tools: what REST does, for a model. Each word here is paid for in each session that lists them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta

from cmserver.base.text import Key, Text
from cmserver.generation.operate.plain import told
from cmserver.generation.operate.read import standing
from cmserver.ingest.wire import EventIn, EventsQuery, Placed
from cmserver.mcp.call import Call, Tool, taking
from cmserver.mcp.project import ANY, NOTHING_YET
from cmserver.observations import read as observations
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import summed_up, wholes, wrapped
from cmserver.observations.wire import BatchReadIn, ObservationIn
from cmserver.recall.index.layout import TOOLS as BY_TOOLS
from cmserver.recall.search.plain import at
from cmserver.recall.search.searcher import Found
from cmserver.recall.search.wire import ContextIn, SearchIn
from cmserver.recall.timeline.plain import in_lines
from cmserver.recall.timeline.wire import TimelineIn
from cmserver.recall.wire import ContextQuery

_WHICH_PROJECT = f'name or path; else this one; "{ANY}": all'


class ContextAsked(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The index of a project, or with a query the texts of what fits it best."""

    query: Annotated[Text, Meta(min_length=1)] | None = None
    project_id: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] | None = None


class EventAsked(EventIn, rename="camel", kw_only=True):
    """An event with the options of its request."""

    generate: bool = True
    wait: bool = False


class StatusAsked(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A job."""

    job_id: Key


async def observation_search(call: Call, asked: SearchIn) -> str:
    """The hits in lines, unless whole texts are wanted, and how to get the next page."""
    full = asked.format == "full"
    found = await call.verbs.searcher.search(call.who, asked, full=full)
    if not (found.texts or asked.cursor) and asked.project_id and call.who.project_id is None:
        return f'Nothing fits in this project. With projectId "{ANY}" all that this key may see is searched.'
    return hits_told(found, full=full, next_page=f'cursor "{found.next_cursor}"')


def hits_told(
    found: Found, *, next_page: str, full: bool = False, skip: int = 0, order: Literal["date_desc", "date_asc"] | None = None
) -> str:
    """A page of hits. Whole ones say themselves what they take; `skip` leaves out the first of the page. `next_page` is what the
    model sends to get the next one, and is told where there is one.
    """
    hits = list(zip(found.page.hits, found.texts, strict=True))[skip:]
    if not hits:
        return "Nothing fits."
    if order is not None:
        hits.sort(key=lambda one: at(one[0]), reverse=order == "date_desc")
    page = found.page
    of = f"{'about ' if page.is_estimate else ''}{max(page.total, skip + len(hits))}"
    observed = [hit.observation for hit, _ in hits if hit.observation]
    whole = f" Whole, these take ~{estimate_tokens(wholes(observed))} tokens." if observed and not full else ""
    more = f" Next page: {next_page}." if found.next_cursor and next_page else ""
    return f"{wrapped(text for _, text in hits)}{len(hits)} of {of}.{whole}{more}"


async def observation_timeline(call: Call, asked: TimelineIn) -> str:
    """What happened around it, in lines or whole."""
    around = await call.verbs.timelines.around(call.who, asked)
    if around is None:
        return "Nothing fits."
    if not around.told:
        return "There is nothing around it."
    return in_lines(around, full=asked.format == "full")


async def observation_get(call: Call, asked: BatchReadIn) -> str:
    """The observations whole, and which there are not."""
    async with call.verbs.db.tenant(call.who.team_id) as conn:
        found = await observations.several(conn, call.who, asked.ids)
    missing = f"There is no observation {', '.join(str(one) for one in found.missing)}." if found.missing else ""
    return (wholes(found.observations) if found.observations else "") + missing


async def observation_context(call: Call, asked: ContextAsked) -> str:
    """What a session is told at its start; with a query the texts of what fits it."""
    if asked.query is None:
        usual = ContextQuery(project=asked.project_id, limit=asked.limit)
        index = await call.verbs.contexts.told(call.who, usual, reader=BY_TOOLS, at="$.projectId")
        return index.text or NOTHING_YET
    wanted = ContextIn(query=asked.query, project_id=asked.project_id, limit=asked.limit or 10)
    page = await call.verbs.searcher.best(call.who, wanted)
    found = [hit.observation for hit in page.hits if hit.observation]
    return wholes(found) if found else "Nothing fits."


async def observation_add(call: Call, asked: ObservationIn) -> str:
    """Stored, as a line."""
    made = await call.verbs.hand.write(call.who, asked, size_bytes=call.size_bytes, origin="mcp")
    return "Stored:\n" + wrapped([summed_up(made), "\n"])


async def observation_record_event(call: Call, asked: EventAsked) -> str:
    """Stored; and the job that will make observations of it, or the observations."""
    options = EventsQuery(generate=asked.generate, wait=asked.wait)
    placed = Placed(at="$", event=asked, size_bytes=call.size_bytes)
    (recorded,) = await call.verbs.acceptance.accept(call.who, [placed], options, origin="mcp")
    said = f"Recorded event {recorded.event.id}."
    numbers = recorded.observation_numbers
    if numbers is not UNSET and numbers:
        return f"{said} Observations: {', '.join(f'#{number}' for number in numbers)}."
    job = recorded.generation_job
    if job is UNSET:
        return said
    late = " The wait is over, the job goes on." if recorded.wait_timed_out is True else ""
    return f"{said} Job {job.id} is {job.status}.{late}"


async def observation_generation_status(call: Call, asked: StatusAsked) -> str:
    """How far a job is."""
    async with call.verbs.db.tenant(call.who.team_id) as conn:
        return told(await standing(conn, call.who, asked.job_id))


TOOLS: list[Tool] = [
    Tool(
        name="observation_search",
        title="Search what is remembered",
        description=(
            "Search observations of earlier sessions. Gives lines: #number day type title ~tokens score, where ~tokens is what "
            'reading it whole takes. A "quoted phrase" must occur, a -word must not.'
        ),
        shows={
            "query": "",
            "projectId": _WHICH_PROJECT,
            "kinds": "",
            "types": "bugfix, feature, decision, ...",
            "files": "paths",
            "since": "ISO time",
            "until": "",
            "limit": "",
            "cursor": "of the page before",
        },
        scope="observations:read",
        takes=taking(SearchIn, observation_search),
        project_in="projectId",
        unless=("project", "projects", "session"),
    ),
    Tool(
        name="observation_timeline",
        title="What happened around it",
        description="What happened before and after an observation, a time, or the best hit of a query: lines, oldest first.",
        shows={"anchor": "number, or ISO time", "query": "instead of anchor", "projectId": "", "before": "", "after": ""},
        scope="observations:read",
        takes=taking(TimelineIn, observation_timeline),
        project_in="projectId",
        unless=("anchor", "session"),
    ),
    Tool(
        name="observation_get",
        title="Read whole observations",
        description="Read observations whole, several at once.",
        shows={"ids": "numbers"},
        scope="observations:read",
        takes=taking(BatchReadIn, observation_get),
    ),
    Tool(
        name="observation_context",
        title="Context of a project",
        description="The index of the project, as told when a session starts; with a query the whole texts of what fits it best.",
        shows={"query": "", "projectId": "", "limit": ""},
        scope="observations:read",
        takes=taking(ContextAsked, observation_context),
        project_in="projectId",
    ),
    Tool(
        name="observation_add",
        title="Remember something",
        description="Remember something for later sessions: a decision, its reason, a trap. Not what the code says; no secrets.",
        shows={
            "title": "",
            "narrative": "",
            "facts": "",
            "type": "",
            "concepts": "",
            "filesModified": "",
            "projectId": "",
        },
        scope="observations:write",
        takes=taking(ObservationIn, observation_add),
        writes=True,
        project_in="projectId",
    ),
    Tool(
        name="observation_record_event",
        title="Record an event",
        description="Record something that happened, for a model to make observations of, as hooks do.",
        shows={
            "eventType": "",
            "payload": "of a tool_use: tool_name, tool_input",
            "contentSessionId": "",
            "projectId": "",
            "wait": "for its observations",
        },
        scope="events:write",
        takes=taking(EventAsked, observation_record_event),
        writes=True,
        project_in="projectId",
    ),
    Tool(
        name="observation_generation_status",
        title="How far a job is",
        description="How far the job of a recorded event is.",
        shows={"jobId": ""},
        scope="jobs:read",
        takes=taking(StatusAsked, observation_generation_status),
    ),
]
