"""The native tools: REST's operations for a model. Each session that lists them pays for each word here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta

from cmserver.access.private import is_private_number, look_home, look_inside
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.structs import reshape
from cmserver.base.text import Key, QueryText, split_commas
from cmserver.consolidation.model import list_others
from cmserver.consolidation.store import store_observations
from cmserver.doors.mcp.call import Call, Tool, handle
from cmserver.doors.mcp.project import ANY, NOTHING_YET, render_context
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.generation.operate.manage import find_job_status, render_job_status
from cmserver.ingest.intake import EventIntake
from cmserver.ingest.wire import EventIn, RecordOptions
from cmserver.observations.model import TYPES, Correction, estimate_tokens
from cmserver.observations.plain import fence, index_line, render_observations, render_turns
from cmserver.observations.read import read_batch
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import BatchReadIn, CorrectionIn, ObservationIn
from cmserver.observations.write import correct
from cmserver.personal.keep import read_personal_batch, write_personal
from cmserver.personal.model import parse_personal_name
from cmserver.personal.plain import personal_line, render_personal
from cmserver.personal.wire import personal_out
from cmserver.recall.search.model import OBSERVATION_KINDS
from cmserver.recall.search.searcher import Searcher, SearchResult
from cmserver.recall.search.wire import ContextIn, SearchIn, render_remarks
from cmserver.recall.timeline.timeline import Timelines, render_timeline
from cmserver.recall.timeline.wire import TimelineIn
from cmserver.recall.why import find_why, render_why
from cmserver.recall.wire import ContextQuery, WhyIn, why_question

_WHICH_PROJECT = f'name or path; else this one; "{ANY}": all'


class ContextArguments(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The index of a project, or with a query the full texts of the best hits."""

    query: QueryText | None = None
    project_id: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] | None = None
    as_of: Key | None = None
    known_at: Key | None = None


class EventArguments(EventIn, rename="camel", kw_only=True):
    """An event with the options of its request."""

    generate: bool = True
    wait: bool = False


class StatusArguments(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The id of a job."""

    job_id: Key


async def observation_search(call: Call, search: SearchIn) -> str:
    """The hits, as lines or as full texts, and how to get the next page."""
    singular = [search.type] if isinstance(search.type, str) else search.type or []
    search = msgspec.structs.replace(search, types=read_types([*(search.types or []), *singular]), type=None)
    full = search.format == "full"
    result = await call.dependency(Searcher).search(call.principal, search, full=full)
    is_empty = not (result.texts or result.personal or result.private or search.cursor)
    if is_empty and search.project_id and call.principal.project_id is None:
        nothing = f'Nothing fits in this project. With projectId "{ANY}" all that this key may see is searched.'
        return f"{nothing} {render_remarks(result.page)}".rstrip()
    return render_hits(result, full=full, next_page=f'cursor "{result.next_cursor}"')


def read_types(texts: Sequence[str]) -> list[str] | None:
    """The types that are searched for; Invalid for one that no observation has, or a model would take it for an empty memory."""
    types = [name.lower() for text in texts for name in split_commas(text)]
    for name in types:
        if name not in TYPES:
            kind = " It is one of the `kinds`." if name in OBSERVATION_KINDS else ""
            raise Invalid.at("$.types", f"There is no type {name[:60]!r}.{kind} Types are {', '.join(sorted(TYPES))}.")
    return types or None


def render_hits(
    result: SearchResult,
    *,
    next_page: str,
    full: bool = False,
    skip: int = 0,
    order: Literal["date_desc", "date_asc"] | None = None,
) -> str:
    """A page of hits without its first `skip`. `next_page` tells the model how to get the next one, when there is one."""
    hits = list(zip(result.page.hits, result.texts, strict=True))[skip:]
    remarks = render_remarks(result.page)
    own = [*(f"{personal_line(personal_out(row))}\n" for row in result.personal), *result.private] if skip == 0 else []
    if not hits:
        return fence(own) + remarks if own else f"Nothing fits. {remarks}".rstrip()
    if order is not None:
        hits.sort(key=lambda pair: pair[0].source.created_at, reverse=order == "date_desc")
    page = result.page
    total = f"{'about ' if page.is_estimate else ''}{max(page.total, skip + len(hits))}"
    shown = [hit.observation for hit, _ in hits if hit.observation]
    cost = f" Whole, these take ~{estimate_tokens(render_observations(shown))} tokens." if shown and not full else ""
    more = f" Next page: {next_page}." if result.next_cursor and next_page else ""
    return f"{fence([*(text for _, text in hits), *own])}{len(hits)} of {total}.{remarks and f' {remarks}'}{cost}{more}"


async def observation_timeline(call: Call, request: TimelineIn) -> str:
    """What happened around it, as lines or as full texts."""
    timeline = await call.dependency(Timelines).read(call.principal, request)
    if timeline is None:
        return "Nothing fits."
    if not timeline.entries:
        return "There is nothing around it."
    return render_timeline(timeline, full=request.format == "full")


async def observation_get(call: Call, request: BatchReadIn) -> str:
    """The full texts of the observations, and the ids that do not exist."""
    own_numbers = {name: number for name in request.ids if (number := parse_personal_name(str(name))) is not None}
    private = [name for name in request.ids if is_private_number(str(name))]
    async with call.read() as conn:
        own = await read_personal_batch(conn, call.principal, [*own_numbers.values()])
        async with look_inside(conn, call.principal) as inside:
            sees_all = call.principal.project_id is None  # a key of one project stays in it
            hidden = await read_batch(conn, inside, private) if inside and private and sees_all else None
        others = [name for name in request.ids if name not in own_numbers and (hidden is None or name not in private)]
        batch = await read_batch(conn, call.principal, others)
        async with look_home(conn, call.principal) as home:
            if home is not None and batch.missing:
                hidden, batch = await read_batch(conn, home, batch.missing), msgspec.structs.replace(batch, missing=[])
    if hidden is not None:
        batch = msgspec.structs.replace(
            batch,
            observations=[*batch.observations, *hidden.observations],
            turns=[*batch.turns, *hidden.turns],
            missing=[*batch.missing, *hidden.missing],
        )
    known = {row.number for row in own}
    missing_names = [*batch.missing, *(name for name, number in own_numbers.items() if number not in known)]
    missing = f"There is no observation {', '.join(map(str, missing_names))}." if missing_names else ""
    parts = [
        render_observations(batch.observations) if batch.observations else "",
        render_turns(batch.turns) if batch.turns else "",
        render_personal(map(personal_out, own)) if own else "",
    ]
    return "".join([*parts, missing])


async def observation_why(call: Call, given: WhyIn) -> str:
    """The turn that wrote the line, with what was said there and what came later."""
    question = why_question(given)
    project = await call.dependency(Projects).named_or_own(call.principal, given.project_id, at="$.projectId")
    async with call.read() as conn:
        return render_why(await find_why(conn, call.principal, project.id, question))


async def observation_context(call: Call, arguments: ContextArguments) -> str:
    """The index that a session starts with; with a query the full texts of the best hits."""
    if arguments.query is None:
        query = ContextQuery(
            project=arguments.project_id, limit=arguments.limit, as_of=arguments.as_of, known_at=arguments.known_at
        )
        return await render_context(call, query, at="$.projectId") or NOTHING_YET
    if arguments.as_of is not None or arguments.known_at is not None:
        at = "$.asOf" if arguments.as_of is not None else "$.knownAt"
        raise Invalid.at(at, "With a query another time is asked of observation_search.")
    search = ContextIn(query=arguments.query, project_id=arguments.project_id, limit=arguments.limit or 10)
    page = await call.dependency(Searcher).find_best(call.principal, search)
    hits = [hit.observation for hit in page.hits if hit.observation]
    return f"{render_observations(hits) if hits else 'Nothing fits. '}{render_remarks(page)}".rstrip(" ")


async def observation_add(call: Call, observation: ObservationIn) -> str:
    """Store the observation, unless one says the same already; returns its line. With scope `user` it is the person's alone."""
    if observation.scope == "user":
        own = msgspec.structs.replace(observation, project_id=None)  # which the client may have named for its folder
        kept, is_new = await write_personal(call.dependency(Db), call.principal, own, size_bytes=call.size_bytes)
        return f"{_ACTIONS['created' if is_new else 'repeated']}\n{fence([personal_line(personal_out(kept)), chr(10)])}"
    (result,) = await store_observations(
        call.dependency(Db),
        call.dependency(Projects),
        call.dependency(QueryEmbedder),
        call.principal,
        [observation],
        on_duplicate="suggest",
        size_bytes=call.size_bytes,
        origin="mcp",
    )
    near = list_others(result.suggestions, result.observation.number)
    return "".join(
        [
            f"{_ACTIONS[result.action]}\n",
            fence([index_line(result.observation), "\n"]),
            f"\nIt is near to {', '.join(f'#{number}' for number in near)}: look whether they say the same." if near else "",
        ]
    )


_ACTIONS = {
    "created": "Stored:",
    "held": "It counts only after a person's yes, and is told to nobody until then:",
    "repeated": "It was there already:",
    "merged": "Merged into:",
}


async def observation_record_event(call: Call, event: EventArguments) -> str:
    """Store the event; returns its job, or the observations that were made of it."""
    options = RecordOptions(generate=event.generate, wait=event.wait)
    (recorded,) = await call.dependency(EventIntake).accept(
        call.principal, {"$": event}, options, size_bytes=call.size_bytes, origin="mcp"
    )
    text = f"Recorded event {recorded.event.id}."
    numbers = recorded.observation_numbers
    if numbers is not UNSET and numbers:
        return f"{text} Observations: {', '.join(f'#{number}' for number in numbers)}."
    job = recorded.generation_job
    if job is UNSET:
        return text
    timed_out = " The wait is over, the job goes on." if recorded.wait_timed_out is True else ""
    return f"{text} Job {job.id} is {job.status}.{timed_out}"


async def observation_generation_status(call: Call, arguments: StatusArguments) -> str:
    """The status of a job."""
    async with call.dependency(Db).tenant(call.principal.team_id) as conn:
        return render_job_status(await find_job_status(conn, call.principal, arguments.job_id))


class CorrectionArguments(CorrectionIn, rename="camel", kw_only=True):
    """A correction with the number of its observation."""

    id: Annotated[int, Meta(ge=1)] | Key


async def observation_correct(call: Call, arguments: CorrectionArguments) -> str:
    """Correct the observation; returns its line."""
    correction = await tidy_correction(reshape(arguments, Correction), size_bytes=call.size_bytes)
    db, name = call.dependency(Db), str(arguments.id)
    corrected = await db.in_tenant(call.principal.team_id, lambda conn: correct(conn, call.principal, name, correction))
    return f"Corrected:\n{fence([index_line(corrected), chr(10)])}"


TOOLS: list[Tool] = [
    Tool(
        name="observation_search",
        title="Search what is remembered",
        description=(
            "Search observations of earlier sessions. Gives lines: #number day type title ~tokens (to read whole) "
            'score. A "quoted phrase" must occur, a -word must not.'
        ),
        shown_fields={
            "query": "",
            "projectId": _WHICH_PROJECT,
            "kinds": "",
            "types": "bugfix, feature, decision, ...",
            "files": "paths",
            "since": "ISO time",
            "until": "",
            "asOf": "held then",
            "knownAt": "known then",
            "limit": "",
            "cursor": "",
        },
        scope="observations:read",
        handler=handle(SearchIn, observation_search),
        project_field="projectId",
        project_alternatives=("project", "projects", "session"),
    ),
    Tool(
        name="observation_timeline",
        title="What happened around it",
        description="What happened before and after an observation, a time, or the best hit of a query; oldest first.",
        shown_fields={"anchor": "number, or ISO time", "query": "instead of anchor", "projectId": "", "before": "", "after": ""},
        scope="observations:read",
        handler=handle(TimelineIn, observation_timeline),
        project_field="projectId",
        project_alternatives=("anchor", "session"),
    ),
    Tool(
        name="observation_get",
        title="Read whole observations",
        description="Read observations and turns whole.",
        shown_fields={"ids": "numbers"},
        scope="observations:read",
        handler=handle(BatchReadIn, observation_get),
    ),
    Tool(
        name="observation_why",
        title="Why a line is so",
        description="The turn that wrote a line of a file.",
        shown_fields={"file": "", "text": "the line", "commit": "by git blame"},
        scope="observations:read",
        handler=handle(WhyIn, observation_why),
        project_field="projectId",
    ),
    Tool(
        name="observation_context",
        title="Context of a project",
        description="The project's index, as told at the start; with a query the best hits whole.",
        shown_fields={"query": "", "projectId": "", "limit": ""},
        scope="observations:read",
        handler=handle(ContextArguments, observation_context),
        project_field="projectId",
    ),
    Tool(
        name="observation_add",
        title="Remember something",
        description="Remember something for later sessions: a decision, its reason, a trap. Not what the code says; no secrets.",
        shown_fields={
            "title": "",
            "narrative": "",
            "facts": "",
            "type": "",
            "concepts": "",
            "filesModified": "",
            "projectId": "",
            "scope": "user: theirs alone",
        },
        scope="observations:write",
        handler=handle(ObservationIn, observation_add),
        writes=True,
        project_field="projectId",
    ),
    Tool(
        name="observation_correct",
        title="Correct it",
        description="Correct or close it.",
        shown_fields={
            "id": "",
            "state": "",
            "title": "",
            "narrative": "",
        },
        scope="observations:write",
        handler=handle(CorrectionArguments, observation_correct),
        writes=True,
    ),
    Tool(
        name="observation_record_event",
        title="Record an event",
        description="Record something that happened, for a model to make observations of, as hooks do.",
        shown_fields={
            "eventType": "",
            "payload": "of a tool_use: tool_name, tool_input",
            "contentSessionId": "",
            "projectId": "",
            "wait": "for its observations",
        },
        scope="events:write",
        handler=handle(EventArguments, observation_record_event),
        writes=True,
        project_field="projectId",
    ),
    Tool(
        name="observation_generation_status",
        title="How far a job is",
        description="How far the job of a recorded event is.",
        shown_fields={"jobId": ""},
        scope="jobs:read",
        handler=handle(StatusArguments, observation_generation_status),
    ),
]
