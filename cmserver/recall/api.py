"""The API of recall: the contexts of sessions, search, and timelines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access import verb
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.verb import Typed, VerbCall, command, option
from cmserver.base import paging
from cmserver.base.columns import Cell, Columns, format_time, render_table
from cmserver.base.http import operation
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, caller, db, dependency, query, read, wants_text
from cmserver.base.ids import epoch_ms
from cmserver.base.sql import Conn
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import fence, render_observations
from cmserver.personal.plain import personal_line
from cmserver.personal.wire import personal_out
from cmserver.recall import wire
from cmserver.recall.context import render_requested_context
from cmserver.recall.handoff.hand_over import hand_over, read_handoff
from cmserver.recall.handoff.model import MAX_BRANCH_CHARS
from cmserver.recall.model import ContextBudget, Index
from cmserver.recall.readers import read_readers
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.search.wire import (
    ContextIn,
    ContextOut,
    SearchAnswerOut,
    SearchIn,
    SearchIndexOut,
    SearchOut,
    full_hit_out,
    hit_out,
    render_remarks,
    rounded,
    turn_hit_out,
)
from cmserver.recall.timeline.timeline import Timelines, render_timeline
from cmserver.recall.timeline.wire import TimelineIn, TimelineOut, item_out
from cmserver.recall.why import find_why
from cmserver.sessions.read import find_session


async def get_context(request: Request) -> Response:
    """The index that a session of the project is shown when it starts; `format=text` gives only the text."""
    principal = await caller(request, Principal)
    parameters = query(request, wire.ContextQuery)
    budget, projects = dependency(request, ContextBudget), dependency(request, Projects)
    context = await render_requested_context(db(request), projects, budget, principal, parameters)
    if parameters.format == "text" or (parameters.format is None and wants_text(request)):
        return PlainTextResponse(context.text)
    index = context.index or Index()
    explained = wire.explained_out(index) if parameters.explain else UNSET
    lines = [wire.line_out(line) for line in index.lines]
    return answer(
        wire.IndexOut(
            context=context.text, observations=lines, tokens=context.tokens, is_receipt=context.is_receipt, explained=explained
        )
    )


_RECEIPT_COLUMNS = Columns(
    wire.ReceiptOut,
    "at=created, because of=reason, tokens, left out=left_out_count, observations",
    tokens=lambda receipt: f"{receipt.tokens} of {receipt.budget_tokens}" if receipt.budget_tokens else receipt.tokens,
    observations=lambda receipt: " ".join(f"#{number}" for number in receipt.numbers),
)


@command(
    "sessions context",
    _RECEIPT_COLUMNS.page("receipts", "The session was not shown anything.", shrink=("observations",)),
    text="List what a session was shown, newest first; with --json also the score of each line and its parts.",
    sets={"explain": True},
)
@option("SESSION_ID", field="id")
@verb.get("/v1/sessions/{id}/context", "observations:read")
async def get_session_context(call: VerbCall, given: wire.ReceiptsQuery) -> wire.ReceiptsOut:
    """What the session was shown of the memory, newest first: receipts, without the texts."""
    team_id, limit = call.principal.team_id, given.limit
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        session = await find_session(conn, call.principal, given.id)
        rows = await receipts.of_session(conn, team_id, session.id, before=before, before_id=before_id, limit=limit + 1)
    page, next_cursor = paging.page(rows, limit, lambda receipt: (receipt.created_at, receipt.id))
    shown = [wire.receipt_out(receipt, explain=given.explain) for receipt in page]
    return wire.ReceiptsOut(receipts=shown, next_cursor=next_cursor)


def _render_readers(result: wire.ReadersOut, _: Typed) -> str:
    rows: list[Sequence[Cell]] = [
        (format_time(receipt.created_at_epoch), "shown", receipt.reason, receipt.platform_source, receipt.session_id)
        for receipt in result.shown
    ]
    rows += [
        (format_time(reader.last_at_epoch), f"read {reader.count}\u00d7", reader.via, reader.actor_id, None)
        for reader in result.readers or []
    ]
    table = render_table(["LAST", "HOW", "WHY", "WHO", "SESSION"], rows, empty="Nobody was given it lately.")
    return f"{table}\nIts whole text was read {result.access_count} times."


@command(
    "readers",
    _render_readers,
    text="""Show who was given an observation: sessions that were shown it, and who read it.

    Who read it needs a key with the scope admin.
    """,
)
@option("NUMBER", field="id")
@verb.get("/v1/observations/{id}/readers", "observations:read")
async def get_readers(call: VerbCall, given: str) -> wire.ReadersOut:
    """Who was given an observation: the sessions that were shown it, and who read it, also of one that is not shown any more."""
    async with call.read() as conn:
        return wire.readers_out(await read_readers(conn, call.principal, given))


_TEXT = operation.TextAnswer("text/plain", "The index as text, when `format=text` or only text/plain is accepted.")


async def post_search(request: Request) -> Response:
    """Search observations, summaries and prompts, the best first; who accepts only text/plain gets a line for each."""
    principal = await caller(request, Principal)
    body = await read(request, SearchIn)
    as_text = wants_text(request)
    full = body.format == "full" or (body.format is None and not as_text)
    result = await dependency(request, Searcher).search(principal, body, full=full)
    if as_text:
        remarks = render_remarks(result.page)
        lines = [*result.texts, *(f"{personal_line(personal_out(row))}\n" for row in result.personal), *result.private]
        return PlainTextResponse((fence(lines) if lines else "Nothing fits.\n") + (remarks and f"{remarks}\n"))
    page, explain = result.page, body.explain
    hits = [(hit, hit.observation) for hit in page.hits if hit.observation]
    shared = SearchAnswerOut(
        prompts=[turn_hit_out(hit, hit.turn, full=full, explain=explain) for hit in page.hits if hit.turn],
        next_cursor=result.next_cursor,
        total=page.total,
        total_is_estimate=page.is_estimate,
        by_meaning=result.by_meaning,
        confidence=rounded(page.confidence),
        ignores_quotes=page.ignores_quotes,
        tokens=estimate_tokens("".join(result.texts)),
        personal=[*map(personal_out, result.personal)],
        private=result.private,
        terms={word: round(weight, 3) for word, weight in page.terms.items()} if explain else UNSET,
    )
    fields = msgspec.structs.asdict(shared)
    if full:
        hits_out = [full_hit_out(hit, observation, explain=explain) for hit, observation in hits]
        return answer(SearchOut(**fields, observations=hits_out))
    return answer(SearchIndexOut(**fields, observations=[hit_out(hit, observation, explain=explain) for hit, observation in hits]))


@verb.post("/v1/context", "observations:read")
async def post_context(call: VerbCall, given: ContextIn) -> ContextOut:
    """Search, with the texts of what was found in one, ready for a model."""
    page = await call.dependency(Searcher).find_best(call.principal, given)
    hits = [(hit, hit.observation) for hit in page.hits if hit.observation]
    text = render_observations(observation for _, observation in hits) if hits else ""
    hits_out = [full_hit_out(hit, observation, explain=False) for hit, observation in hits]
    confidence = rounded(page.confidence)
    return ContextOut(observations=hits_out, context=text, confidence=confidence, ignores_quotes=page.ignores_quotes)


_HIT_LINES = operation.TextAnswer("text/plain", "A line for each, or its whole text, when only text/plain is accepted.")


async def post_timeline(request: Request) -> Response:
    """What happened before and after an observation, a prompt, a moment or the best hit of a search.

    Prompts, observations and summaries, oldest first; who accepts only text/plain gets it as lines.
    """
    principal = await caller(request, Principal)
    body = await read(request, TimelineIn)
    timeline = await dependency(request, Timelines).read(principal, body)
    full = body.format == "full"
    if wants_text(request):
        if timeline is None:
            return PlainTextResponse("Nothing fits.\n")
        return PlainTextResponse(render_timeline(timeline, full=full) if timeline.entries else "There is nothing around it.\n")
    if timeline is None:
        return answer(TimelineOut(anchor=None, at_epoch=None, items=[]))
    items = [item_out(entry, is_anchor=entry is timeline.anchor, full=full) for entry in timeline.entries]
    anchor = next((item for item in items if item.is_anchor), None)
    return answer(TimelineOut(anchor=anchor, at_epoch=epoch_ms(timeline.at), items=items))


@verb.post("/v1/why", "observations:read")
async def post_why(call: VerbCall, given: wire.WhyIn) -> wire.WhyOut:
    """Why a line of a file, or the file, is as it is: the turn that wrote it, what was said there, and what came later."""
    question = wire.why_question(given)
    project = await call.dependency(Projects).named_or_own(call.principal, given.project_id, at="$.projectId")
    async with call.read() as conn:
        return wire.why_out(project.id, await find_why(conn, call.principal, project.id, question))


@verb.post("/v1/handoff", "observations:read", plain=wire.render_handoff)
async def post_handoff(call: VerbCall, given: wire.HandoffIn) -> wire.HandoffOut:
    """One page of what is open, was decided and changed on a branch; with `member` their next session starts with it.

    To hand it over the key also needs the scope sessions:write.
    """
    principal, branch, member = call.principal, given.branch[:MAX_BRANCH_CHARS], given.member
    if member is not None:
        principal.require("sessions:write")
    project = await call.dependency(Projects).named_or_own(principal, given.project_id, at="$.projectId")

    async def act(conn: Conn) -> wire.HandoffOut:
        context, page = await read_handoff(conn, principal, project, branch)
        receiver = None if member is None else await hand_over(conn, principal, project, branch, page, member)
        return wire.HandoffOut(project_id=project.id, branch=branch, member=receiver, numbers=[*page.numbers], context=context)

    return await call.write(act)


_TIMELINE_LINES = operation.TextAnswer(
    "text/plain", "A line for each, below its day and session, when only text/plain is accepted."
)

routes = [
    get("/v1/context", get_context, "observations:read", (wire.IndexOut, _TEXT), query=wire.ContextQuery),
    get_session_context,
    get_readers,
    post("/v1/search", post_search, "observations:read", (SearchOut, SearchIndexOut, _HIT_LINES), body=SearchIn),
    post_context,
    post("/v1/timeline", post_timeline, "observations:read", (TimelineOut, _TIMELINE_LINES), body=TimelineIn),
    post_why,
    post_handoff,
]
