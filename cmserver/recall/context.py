"""The context of a session that starts: an index of its project, from which it can read more, and a receipt for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.sql import Conn
from cmserver.base.text import LINE_MOST
from cmserver.git.clones.marks import NO_MARKS
from cmserver.git.clones.read_marks import read_branch_marks, read_marks
from cmserver.graph.overviews import repository as overviews
from cmserver.observations.model import estimate_tokens
from cmserver.observations.past.model import Moment, read_moment
from cmserver.observations.past.travel import VIA, travel
from cmserver.observations.plain import insert_lines
from cmserver.observations.read import audit_read
from cmserver.personal import repository as personal
from cmserver.recall import repository
from cmserver.recall.handoff.hand_over import take_handoffs
from cmserver.recall.handoff.model import HandoffPage
from cmserver.recall.handoff.page import PAGE_TOKENS
from cmserver.recall.index.layout import MAX_CHARS, IndexFrame, render_empty_index, render_yours, section_of
from cmserver.recall.index.selection import ComposedIndex, IndexInput, compose_index
from cmserver.recall.model import (
    MAX_CHANGED_FILES,
    Context,
    ContextBudget,
    ContextRequest,
    Index,
    IndexLine,
    IndexRow,
    NearProject,
    NewReceipt,
    ScoredRow,
    ToldNumber,
)
from cmserver.recall.others_work import describe_others_work
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.running_turns import describe_running_turns
from cmserver.recall.wire import ContextQuery
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.read import NO_SUCH, find_session
from cmserver.sessions.turns import repository as turns_repository
from cmserver.sessions.turns.sentences import repository as sentences

T = TypeVar("T", bound=msgspec.Struct)

# How many rows of each kind are looked at, and for how many files: none of it grows with the project.
_NEWEST, _TOUCHING, _SHARED, _OWN, _FULL, _FILES, _TURNS, _POINTING, _AGENTS = 300, 100, 50, 100, 40, 20, 120, 40, 60
_MAX_OMITTED = 100
_HISTORY = 5
"""Lines of the repository's history, until the project has turns of its own."""
_MAX_NEAR = 3
_PERSONAL = 100
_YOURS_SHARE = 5
"""What is the person's alone takes at most one in so many of the tokens."""
_OPENING_SHARE = 20
"""The overview's lines take at most one in so many of the tokens."""


async def build_context(
    conn: Conn, principal: Principal, project: Project, request: ContextRequest, budget: ContextBudget
) -> Context:
    """The index for the request, and its receipt. The text is empty when there is nothing to show."""
    named = await access.told_apart(conn, project)
    handed = await _take_handed(conn, principal, named, request, budget)
    source = await _gather(conn, principal, project.id, request, budget, handed.covered)
    running = await describe_running_turns(conn, principal.team_id, project.id, request.session_id, own=request.reason == "compact")
    others = (
        [] if request.at or request.reason in {"resume", "compact"} else await describe_others_work(conn, principal, project.id)
    )
    running = [*running, *others, *handed.lines]
    handed_chars = sum(map(len, handed.lines))
    yours = await _list_yours(conn, principal, request, budget)
    if source is None:
        return _add_yours(await _build_empty(conn, principal, project, named.name, request, budget, running), yours)
    opening, cited = await _open(conn, principal.team_id, project.id, request, budget)
    frame = IndexFrame(
        project_name=named.name,
        reason=request.reason,
        reader=request.reader,
        now=request.at or datetime.now(UTC),
        opening=opening,
        has_turns=bool(source.turns),
        has_history=bool(source.history),
    )
    composed = compose_index(frame, budget, source, taken_chars=sum(map(len, yours)) + handed_chars)
    index = _index(composed, budget)
    told = [*index.lines, *(ToldNumber(number=number) for number in handed.numbers)]
    await audit_read(conn, principal, project.id, VIA if request.at else "context", told)
    text = insert_lines(composed.text, running)
    context = Context(text=text, tokens=estimate_tokens(text), index=index)
    if context.text:
        of_team = compose_index(frame, budget, source, taken_chars=handed_chars) if yours else composed
        await _write_receipt(conn, principal, project, request, _hide_yours(context, of_team, running, budget), text, cited)
    return _add_yours(context, yours)


async def _take_handed(
    conn: Conn, principal: Principal, project: Project, request: ContextRequest, budget: ContextBudget
) -> HandoffPage:
    """What was handed over to the caller, for a session that begins: at most half of the tokens, and once."""
    if request.is_preview or request.session_id is None or request.reason not in {"startup", "clear", "fork"}:
        return HandoffPage()
    return await take_handoffs(conn, principal, project, tokens=min(PAGE_TOKENS, budget.tokens // 2))


async def _list_yours(conn: Conn, principal: Principal, request: ContextRequest, budget: ContextBudget) -> list[str]:
    """The lines of what is the person's alone, rules first; of a session that goes on what is new to it."""
    if principal.user_id is None or request.at is not None or request.without_yours or request.told_to is not None:
        return []
    rows = await personal.newest(conn, principal.team_id, principal.user_id, state="holds", limit=_PERSONAL)
    if request.reason == "resume" and request.session_id is not None:
        since = await receipts.last_index_at(conn, principal.team_id, request.session_id)
        rows = [row for row in rows if since is None or row.updated_at > since]
    return render_yours(rows, min(MAX_CHARS, budget.tokens * 4) // _YOURS_SHARE)


def _add_yours(context: Context, yours: Sequence[str]) -> Context:
    """The context as its person is shown it: what is theirs ends it."""
    text = insert_lines(context.text, yours)
    return msgspec.structs.replace(context, text=text, tokens=estimate_tokens(text))


def _hide_yours(context: Context, of_team: ComposedIndex, running: Sequence[str], budget: ContextBudget) -> Context:
    """The context as its receipt tells it, which owners read: sizes and what is left out are as if the person had nothing."""
    text = insert_lines(of_team.text, running)
    whole = _index(of_team, budget)
    shown = context.index or whole
    index = msgspec.structs.replace(shown, omitted=whole.omitted, omitted_counts=whole.omitted_counts)
    return Context(text=text, tokens=estimate_tokens(text), index=index)


async def render_requested_context(
    db: Db,
    projects: Projects,
    budget: ContextBudget,
    principal: Principal,
    query: ContextQuery,
    *,
    reader: str | None = None,
    at: str = "$.project",
    project_count: int = 1,
    without_yours: bool = False,
    told_to: str | None = None,
) -> Context:
    """The index that a request of the API or an MCP tool asks for. Raises Invalid or NotFound.

    `reader` is how the agent reads more, see ContextRequest; `at` is the path of the field that names the project. One of several
    projects has its share of the tokens, and `without_yours` leaves out what is the person's alone. `told_to` is who is told.
    """
    moment = read_moment(query.as_of, query.known_at)
    session = None
    if query.session:
        async with db.tenant(principal.team_id) as conn:
            session = await find_session(conn, principal, query.session)
    name = str(session.project_id) if session and query.project is None else query.project
    project = await projects.named_or_own(principal, name, at=at)
    if session is not None and session.project_id != project.id:
        raise NotFound(NO_SUCH)
    if session is not None and session.arm == "untold" and query.source is not None and not query.explain and moment is None:
        return Context(text="", tokens=0)  # its agent begins with it; what somebody asks for is answered
    budget = budget.share(project_count)
    if query.limit is not None:
        budget = msgspec.structs.replace(budget, observations=query.limit)
    request = ContextRequest(
        reason=query.source or "asked",
        session_id=session.id if session else None,
        platform=session.platform_source if session else None,
        changed_files=_split_files(query.changed_files or ""),
        is_preview=query.explain or session is None or moment is not None,
        without_yours=without_yours,
        told_to=told_to,
        reader=reader,
        at=moment.earliest if moment else None,
    )
    async with db.tenant(principal.team_id, principal.user_id) as conn:
        if moment is not None:
            kept = await _find_receipt(conn, principal, project.id, request, moment)
            if kept is not None:
                return kept
            await travel(conn, principal.team_id, [project.id], moment)
        context = await build_context(conn, principal, project, request, budget)
        if query.explain and context.index:  # an explanation shows the titles of what is omitted, too
            index = await _add_closed(conn, project, context.index)
            context = msgspec.structs.replace(context, index=index)
            await audit_read(conn, principal, project.id, VIA if moment else "context", index.omitted)
    return context


def _split_files(text: str) -> list[str]:
    paths = [path for path in text.split(",") if path][:MAX_CHANGED_FILES]
    if any(len(path) > LINE_MOST for path in paths):
        raise Invalid.at("$.changedFiles", f"A path of changedFiles has more than {LINE_MOST:,} characters.")
    return paths


async def _add_closed(conn: Conn, project: Project, index: Index) -> Index:
    """With what is told no more, as somebody has said: it is done, or no longer holds."""
    rows = await repository.closed(conn, project.team_id, project.id, looked_at=_NEWEST, limit=_MAX_OMITTED)
    closed = [
        IndexLine(scored=ScoredRow(row=row, score=0.0, parts={}), omission="done" if row.state == "done" else "dropped")
        for row in rows
    ]
    counts = {**index.omitted_counts, **Counter(line.omission for line in closed if line.omission)}
    return msgspec.structs.replace(index, omitted=[*index.omitted, *closed], omitted_counts=counts)


async def _open(
    conn: Conn, team_id: UUID, project_id: UUID, request: ContextRequest, budget: ContextBudget
) -> tuple[Sequence[str], Sequence[int]]:
    """The lines of the project's overview, for a session that begins, and the numbers of what the overview cites.

    None where they would take much of a small budget.
    """
    if request.reason in {"resume", "compact"}:
        return [], []
    overview = await overviews.of_project(conn, team_id, project_id)
    if overview is None or estimate_tokens("\n".join(overview.opening)) > budget.tokens // _OPENING_SHARE:
        return [], []
    return overview.opening, overview.numbers


def _name_others(principal: Principal, request: ContextRequest, rows: Iterable[T]) -> list[T]:
    """The rows, of which what is another one's has their name, and the reader's own has none."""
    own = request.told_to or principal.actor_id
    return [
        msgspec.structs.replace(row, actor_id=None) if getattr(row, "actor_id", None) == own else row
        for row in principal.named(rows)
    ]


async def _gather(
    conn: Conn,
    principal: Principal,
    project_id: UUID,
    request: ContextRequest,
    budget: ContextBudget,
    told: Collection[int] = (),
) -> IndexInput | None:
    """The observations and summaries to select the index from; None when nothing is known at all. What is `told` has its line."""
    team_id = principal.team_id
    files, session_id, reason = request.changed_files[:_FILES], request.session_id, request.reason
    code, places = await read_marks(conn, team_id, project_id, request.clone_id, request.head)
    with_files = bool(files) or code is not NO_MARKS
    newest = await repository.newest(conn, team_id, project_id, with_files=with_files, limit=_NEWEST)
    shared = await repository.shared(conn, team_id, project_id, with_files=with_files, limit=_SHARED)
    turns = await turns_repository.newest_ended(conn, team_id, project_id, _TURNS)
    history = [] if turns else await repository.history(conn, team_id, project_id, with_files=with_files, limit=_HISTORY)
    if not newest and not shared and not turns and not history:
        return None
    agents = await turns_repository.subagents(conn, team_id, {turn.server_session_id for turn in turns}, _AGENTS) if turns else []
    summaries = await repository.summaries(conn, team_id, project_id, budget.summaries * 2 + 1) if budget.summaries else []
    names = [path.rstrip("/").rpartition("/")[2] for path in files]
    touching = await repository.touching(conn, team_id, project_id, names, _TOUCHING) if names else []
    own: list[IndexRow] = []
    shown_numbers = set(told)
    since: datetime | None = None
    if session_id is not None and reason == "compact":
        own = await repository.of_session(conn, team_id, project_id, session_id, with_files=with_files, limit=_OWN)
    elif session_id is not None and reason in {"resume", "asked"}:
        shown_numbers |= await receipts.shown_numbers(conn, team_id, session_id)
        since = await receipts.last_index_at(conn, team_id, session_id) if reason == "resume" else None
    rows = list({row.number: row for row in [*newest, *shared, *summaries, *touching, *own]}.values())
    rows = _name_others(principal, request, rows)
    if budget.summaries == 0:
        rows = [row for row in rows if row.kind != "summary"]
    if reason == "resume":  # its own work stands in its transcript
        rows = [row for row in rows if row.server_session_id != session_id and (since is None or row.created_at > since)]
        turns = [turn for turn in turns if turn.server_session_id != session_id and (since is None or turn.created_at > since)]
    elif reason != "compact" and session_id is not None:
        turns = [turn for turn in turns if turn.server_session_id != session_id or turn.ended_at is not None]
    turns = _name_others(principal, request, turns)
    summary = _latest_summary(rows, newest, project_id, request, budget)
    of_rows = {row.turn_number for row in rows if row.turn_number is not None and section_of(row) is not None}
    pointing = [turn.number for place, turn in enumerate(turns) if place < _POINTING or turn.number in of_rows]
    full = [row.number for row in own if row.kind != "summary"][:_FULL]
    return IndexInput(
        rows=rows,
        code=code,
        branches=await read_branch_marks(conn, team_id, places, [turn.id for turn in turns]),
        history=[row for row in history if since is None],
        turns=turns,
        over=await ledger.of_turns(conn, team_id, [turn.number for turn in turns]) if turns else [],
        pointers=await sentences.pointers(conn, team_id, pointing) if pointing else [],
        agents=agents,
        newest_at=[row.created_at for row in newest],
        summary=summary,
        summary_text=await repository.summary(conn, team_id, summary.number) if summary else None,
        details=await repository.details(conn, team_id, full) if full else {},
        shown_numbers=shown_numbers,
        changed_files=request.changed_files,
        continued_session_id=session_id if own else next((row.server_session_id for row in newest if row.server_session_id), None),
    )


def _latest_summary(
    rows: Sequence[IndexRow], newest: Sequence[IndexRow], project_id: UUID, request: ContextRequest, budget: ContextBudget
) -> IndexRow | None:
    """The newest summary, of the session itself where it goes on, unless an index's length of work came after it.

    One of another project counts only where this one has none.
    """
    summaries = sorted((row for row in rows if row.kind == "summary"), key=lambda row: (row.created_at, row.number), reverse=True)
    summaries = [row for row in summaries if row.project_id == project_id] or summaries
    if request.reason == "compact":
        own = next((row for row in summaries if row.server_session_id == request.session_id), None)
        if own is not None:
            return own
    latest = next(iter(summaries), None)
    if latest is None or sum(row.created_at > latest.created_at for row in newest) >= max(budget.observations, 1):
        return None
    return latest


async def _build_empty(
    conn: Conn,
    principal: Principal,
    project: Project,
    title: str,
    request: ContextRequest,
    budget: ContextBudget,
    running: Sequence[str],
) -> Context:
    """Two helpful lines, once for a project's sessions; each time for a preview, or while there is memory near it."""
    near: list[NearProject] = []
    if request.folders and principal.project_id is None and not project.isolated:
        near = await repository.near(
            conn, principal.team_id, project.id, name=project.name, folders=request.folders, limit=_MAX_NEAR
        )
    was_shown = not request.is_preview and not near and await receipts.has_any(conn, principal.team_id, project.id)
    is_silent = was_shown or request.reason == "resume"
    text = insert_lines("" if is_silent else render_empty_index(title, project.canonical_id, near), running)
    index = Index(budget_tokens=budget.tokens)
    context = Context(text=text, tokens=estimate_tokens(text), index=index, knows_nothing=True)
    if text:
        await _write_receipt(conn, principal, project, request, context, text)
    return context


async def _find_receipt(
    conn: Conn, principal: Principal, project_id: UUID, request: ContextRequest, moment: Moment
) -> Context | None:
    """What a receipt of exactly that millisecond says, of the session where one is named; None without one."""
    if moment.known_at is None or moment.as_of is not None:
        return None
    receipt = await receipts.of_moment(conn, principal.team_id, project_id, request.session_id, moment.known_at)
    if receipt is None:
        return None
    numbers = ", ".join(f"#{number}" for number in receipt.numbers)
    text = receipt.text or f"Only numbers are known of what was told then: {numbers or 'none'}.\n"
    await audit_read(conn, principal, project_id, VIA, [ToldNumber(number=number) for number in receipt.numbers])
    return Context(text=text, numbers=receipt.numbers, tokens=estimate_tokens(text), is_receipt=True)


async def _write_receipt(
    conn: Conn,
    principal: Principal,
    project: Project,
    request: ContextRequest,
    context: Context,
    told: str,
    made_of: Sequence[int] = (),
) -> None:
    """Store what the index showed and left out, and the text that was `told`; nothing for a preview."""
    index = context.index
    if request.is_preview or index is None:
        return
    chronicle = index.lines[::-1]
    receipt = NewReceipt(
        reason=request.reason,
        server_session_id=request.session_id,
        platform_source=request.platform,
        numbers=[line.number for line in chronicle],
        summary_numbers=[line.number for line in chronicle if line.scored.row.kind == "summary"],
        left_out=[line.number for line in index.omitted if line.omission in {"budget", "limit"}][:_MAX_OMITTED],
        left_out_count=index.omitted_counts.get("budget", 0) + index.omitted_counts.get("limit", 0),
        tokens=context.tokens,
        budget_tokens=index.budget_tokens,
        chars=len(context.text),
        text=told,
        made_of=list(made_of),
        details={
            "lines": [{"number": line.number, "usefulness": line.scored.score, "parts": line.scored.parts} for line in chronicle],
            "leftOut": index.omitted_counts,
        },
    )
    await receipts.insert(conn, principal.team_id, project.id, receipt)


def _index(composed: ComposedIndex, budget: ContextBudget) -> Index:
    """The lines that the index shows, newest first, and those that it leaves out, with the reasons."""
    summary = [IndexLine(scored=composed.summary, text=composed.summary_block)] if composed.summary else []
    lines = sorted([*composed.lines, *summary], key=lambda line: (line.scored.row.created_at, line.number), reverse=True)
    return Index(
        lines=lines if composed.text else [],
        omitted=list(composed.omitted[:_MAX_OMITTED]),
        omitted_counts=dict(Counter(line.omission for line in composed.omitted if line.omission)),
        budget_tokens=budget.tokens,
    )
