"""Sessions: a list by day, one session with its time line and receipts, and single events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base import paging
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.base.text import Label, Text
from cmserver.base.tolerant_json import array, field, record
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages import memory
from cmserver.doors.web.templates import plural
from cmserver.doors.web.visit import Visit
from cmserver.events import repository as events
from cmserver.events.model import StoredEvent
from cmserver.events.read import find_event
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest.session_lifecycle import end_session
from cmserver.observations import repository as observations
from cmserver.observations.model import Observation, ObservationFilter
from cmserver.observations.plain import labelled_summary, one_line
from cmserver.observations.read import list_observations, read_event_observations, read_summary
from cmserver.ops.erasure.session import delete_session
from cmserver.ops.joining.move_session import move_session
from cmserver.ops.privacy.mark import PrivateSessions, told_before
from cmserver.reading.model import PROMPT_TYPES
from cmserver.recall.model import Receipt
from cmserver.recall.others_work import describe_work
from cmserver.recall.receipts import repository as receipts
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import MAX_TITLE_CHARS, Session
from cmserver.sessions.read import audit_prompt_read, find_session
from cmserver.sessions.write import rename_session
from cmserver.tooluse.read import read_tool_use

_OTHERS = 20
_EVENTS = 40
_RECEIPTS = 20
_OBSERVATIONS = 50
_EXPLAINED = 3
_PROMPT_CHARS = 600
_PAYLOAD_CHARS = 30_000

REASONS = {
    "startup": "when the session started",
    "resume": "when the session was resumed",
    "clear": "after its context was cleared",
    "compact": "after its context was compacted",
    "fork": "when the session was forked",
    "prompt": "on a prompt",
    "file": "when a file was opened",
    "asked": "because somebody asked",
}
"""Why a session was shown something."""


class SessionsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filters in the address."""

    project: Text | None = None
    running: bool = False
    platform: Label | None = None
    cursor: str | None = None


class SessionDay(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that began on a day (UTC)."""

    name: str
    sessions: list[memory.SessionItem]


async def get_sessions(visit: Visit) -> Response:
    """Sessions of coding agents, newest first, by day."""
    filters = visit.query(SessionsPageQuery)
    project_id = await visit.dependency(Projects).within(visit.principal, filters.project)
    async with visit.tenant() as conn:
        lines, next_cursor = await memory.list_sessions(
            conn,
            visit.principal,
            project_id=project_id,
            running=filters.running,
            platform=filters.platform,
            cursor=filters.cursor,
        )
        projects = await memory.list_projects(conn, visit.principal)
        others = await sessions.others_work(conn, visit.team_id, project_id, limit=_OTHERS)
    return visit.render(
        "sessions.html",
        title="Sessions",
        days=_by_day(lines),
        others=[] if filters.cursor else [(work, describe_work(work)) for work in visit.principal.named(others)],
        projects=projects,
        filters=filters,
        has_filters=bool(filters.project or filters.running or filters.platform),
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
    )


def _by_day(lines: Sequence[memory.SessionItem]) -> list[SessionDay]:
    today = datetime.now(UTC).date()
    days: dict[date, list[memory.SessionItem]] = {}
    for line in lines:
        days.setdefault(line.session.started_at.astimezone(UTC).date(), []).append(line)
    return [SessionDay(name=_day_name(day, today), sessions=of_day) for day, of_day in days.items()]


def _day_name(day: date, today: date) -> str:
    near = {today: "Today", today - timedelta(days=1): "Yesterday"}
    return near.get(day, f"{day:%A, %-d %B %Y}")


class SessionPageQuery(msgspec.Struct, frozen=True):
    """The page of the time line."""

    cursor: str | None = None


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the time line: what happened, and the observations that were made of it."""

    id: UUID
    at: datetime
    kind: str
    """prompt, tool, reply, or the event's own type."""
    text: str
    made: list[memory.ObservationItem]
    made_numbers: list[int]
    """All of them, also those of which no line is shown."""


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt in the list, and the cursor of the page that begins with it."""

    receipt: Receipt
    cursor: str | None


async def get_session(visit: Visit) -> Response:
    """One session: what was asked, done and remembered in it, newest first, and what it was told."""
    filters = visit.query(SessionPageQuery)
    before, before_id = paging.place(filters.cursor)
    principal, team_id = visit.principal, visit.team_id
    async with visit.tenant() as conn:
        session = await find_session(conn, principal, visit.parameter("session"))
        label = (await memory.session_labels(conn, team_id, [session.id]))[session.id]
        project = (await memory.names_of_projects(conn, principal, [session.project_id])).get(session.project_id, "")
        rows = await events.page(
            conn,
            team_id,
            project_id=session.project_id,
            session_id=session.id,
            event_type=None,
            with_payload=True,
            before=before,
            before_id=before_id,
            limit=_EVENTS + 1,
        )
        page, next_cursor = paging.page(rows, _EVENTS, lambda event: (event.occurred_at, event.id))
        of_session = ObservationFilter(project_id=session.project_id, session_id=session.id)
        made, next_observations = await list_observations(conn, principal, of_session, limit=_OBSERVATIONS)
        timeline = await _timeline(conn, visit.principal, page, made)
        await audit_prompt_read(conn, principal, session.project_id, sum(event.kind == "prompt" for event in timeline))
        shown = await receipts.of_session(conn, team_id, session.id, before=None, before_id=None, limit=_RECEIPTS + 1)
        try:
            summary = await read_summary(conn, principal, session)
        except NotFound:
            summary = None
        others = [other for other in await memory.list_projects(conn, principal) if other.id != session.project_id]
    lines = [memory.observation_line(visit.principal, row, {session.project_id: project}) for row in made]
    return visit.render(
        "session.html",
        title=label[:60],
        session=session,
        label=label,
        project=project,
        place=_place(session),
        others=others if visit.may("admin") and principal.project_id is None else [],
        timeline=timeline,
        observations=lines,
        has_more_observations=next_observations is not None,
        summary=_summary_parts(summary),
        summary_number=summary.number if summary else None,
        receipts=_receipt_lines(shown[:_RECEIPTS]),
        has_more_receipts=len(shown) > _RECEIPTS,
        reasons=REASONS,
        who=principal.name_of(session.actor_id),
        is_private=principal.home is not None,
        told=told_before(session),
        badges=memory.BADGES,
        filters=filters,
        next_cursor=next_cursor,
        max_title_chars=MAX_TITLE_CHARS,
    )


async def _timeline(
    conn: Conn, principal: Principal, page: Sequence[StoredEvent], shown: Sequence[Observation]
) -> list[TimelineEvent]:
    made = await observations.made_of_events(conn, principal.team_id, [event.id for event in page])
    lines = {row.number: memory.observation_line(principal, row, {}) for row in shown}
    return [_timeline_event(event, [observation.number for observation in made.get(event.id, [])], lines) for event in page]


def _timeline_event(event: StoredEvent, numbers: list[int], lines: dict[int, memory.ObservationItem]) -> TimelineEvent:
    kind, text = _describe(event)
    return TimelineEvent(
        id=event.id,
        at=event.occurred_at,
        kind=kind,
        text=text,
        made=[lines[number] for number in numbers if number in lines],
        made_numbers=numbers,
    )


def _describe(event: StoredEvent) -> tuple[str, str]:
    """What an event is, and its text in a few lines."""
    if event.payload_purged_at is not None:
        return event.event_type, "Its content was emptied by retention."
    fields = record(event.payload)
    if event.event_type in PROMPT_TYPES:
        text = event.payload if isinstance(event.payload, str) else field(fields, "prompt", "text", "content")
        return "prompt", _cut(text)
    tool = field(fields, "tool_name", "toolName")
    if tool:
        use = read_tool_use(tool, fields.get("tool_input", fields.get("toolInput")))
        subject = use.command or ", ".join(use.paths[:3]) or field(use.fields, "query", "pattern", "url", "description", "prompt")
        return "tool", one_line(f"{tool}  {subject}", memory.TITLE_CHARS)
    reply = field(fields, "last_assistant_message", "message", "text", "content")
    return ("reply", _cut(reply)) if reply else (event.event_type, "")


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _PROMPT_CHARS else text[: _PROMPT_CHARS - 1].rstrip() + "\u2026"


def _place(session: Session) -> str | None:
    """The folder in which the agent worked."""
    return field(record(session.metadata), "root", "cwd") or None


def _summary_parts(summary: Observation | None) -> list[tuple[str, str]]:
    if summary is None:
        return []
    return labelled_summary(summary.summary) or [("Summary", summary.content)]


def _receipt_lines(page: Sequence[Receipt]) -> list[ReceiptLine]:
    cursors = [None, *(paging.cursor(receipt.created_at, receipt.id) for receipt in page)]
    return [ReceiptLine(receipt=receipt, cursor=cursor) for receipt, cursor in zip(page, cursors, strict=False)]


class ShownLine(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that a session was shown. `title` is None where it is not shown any more."""

    number: int
    title: str | None
    score: float | None
    parts: dict[str, float]
    was_read: bool
    """Whether anybody has read its whole text since."""
    is_summary: bool


class ReceiptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt with its lines, in the order of time, and the most relevant of what had no room."""

    receipt: Receipt
    lines: list[ShownLine]
    left_out: list[ShownLine]


async def get_receipts(visit: Visit) -> Response:
    """What a session was told, line by line with the reason and the score of each, and which of it was read."""
    filters = visit.query(SessionPageQuery)
    before, before_id = paging.place(filters.cursor)
    async with visit.tenant() as conn:
        session = await find_session(conn, visit.principal, visit.parameter("session"))
        rows = await receipts.of_session(conn, visit.team_id, session.id, before=before, before_id=before_id, limit=_EXPLAINED + 1)
        page, next_cursor = paging.page(rows, _EXPLAINED, lambda receipt: (receipt.created_at, receipt.id))
        numbers = {number for receipt in page for number in (*receipt.numbers, *receipt.left_out[:_RECEIPTS])}
        by_number = await memory.lines_of_numbers(conn, visit.principal, numbers) if numbers else {}
        label = (await memory.session_labels(conn, visit.team_id, [session.id]))[session.id]
    return visit.render(
        "session_receipts.html",
        title=f"Shown: {label[:50]}",
        session=session,
        label=label,
        receipts=[_read_receipt(receipt, by_number) for receipt in page],
        reasons=REASONS,
        filters=filters,
        next_cursor=next_cursor,
    )


def _read_receipt(receipt: Receipt, by_number: dict[int, Observation]) -> ReceiptDetails:
    scores: dict[int, tuple[float, dict[str, float]]] = {}
    for line in array(receipt.details.get("lines")):
        explained = record(line)
        number, usefulness = explained.get("number"), explained.get("usefulness")
        if isinstance(number, int) and isinstance(usefulness, int | float):
            parts = {name: float(value) for name, value in record(explained.get("parts")).items() if isinstance(value, int | float)}
            scores[number] = (float(usefulness), parts)
    unknown: tuple[None, dict[str, float]] = (None, {})

    def shown_line(number: int) -> ShownLine:
        observation = by_number.get(number)
        score, parts = scores.get(number, unknown)
        read_at = observation.last_accessed_at if observation else None
        return ShownLine(
            number=number,
            title=memory.title_of(observation) if observation else None,
            score=score,
            parts=parts,
            was_read=read_at is not None and read_at >= receipt.created_at,
            is_summary=number in receipt.summary_numbers,
        )

    return ReceiptDetails(
        receipt=receipt,
        lines=[shown_line(number) for number in receipt.numbers],
        left_out=[shown_line(number) for number in receipt.left_out[:_RECEIPTS]],
    )


class RenameForm(msgspec.Struct, frozen=True):
    """A title; an empty one removes it."""

    title: Annotated[Text, Meta(max_length=MAX_TITLE_CHARS)] | None = None


async def post_rename(visit: Visit) -> Response:
    """Give a session a title."""
    form = await visit.form(RenameForm)
    name = visit.parameter("session")
    session = await visit.db.in_tenant(visit.team_id, lambda conn: rename_session(conn, visit.principal, name, form.title))
    return visit.redirect(f"/ui/sessions/{session.id}", "The title is set." if session.title else "The title is removed.")


async def post_end(visit: Visit) -> Response:
    """End a session, and ask for its summary."""
    async with visit.tenant() as conn:
        session = await find_session(conn, visit.principal, visit.parameter("session"))
    await end_session(visit.db, visit.dependency(JobNotifier), visit.principal, session.id)
    return visit.redirect(f"/ui/sessions/{session.id}", "The session is ended; its summary comes in a minute.")


class MoveForm(msgspec.Struct, frozen=True):
    """The project that gets the session."""

    into: str


async def post_move(visit: Visit) -> Response:
    """Move a session with all that was drawn from it to another project."""
    form = await visit.form(MoveForm)
    session = await move_session(visit.db, visit.principal, visit.parameter("session"), form.into)
    return visit.redirect(f"/ui/sessions/{session.id}", "The session is moved with all that was drawn from it.")


class PrivateForm(msgspec.Struct, frozen=True):
    """Whether the session is to be the visitor's alone, or the team's again."""

    undo: bool = False


async def post_private(visit: Visit) -> Response:
    """Make a session the visitor's alone, or give it back to the team; its page is where it is then."""
    form = await visit.form(PrivateForm)
    private_sessions = visit.dependency(PrivateSessions)
    change = private_sessions.give_back if form.undo else private_sessions.make_private
    changed = await change(visit.principal, visit.parameter("session"))
    page = f"/ui/sessions/{changed.session.id}"
    notice = (
        "The team reads this session again." if form.undo else "This session is yours alone: nobody else of the team is shown it."
    )
    if visit.signed_in is None or visit.signed_in.user is None:  # with a key one stays where one is
        return visit.redirect(page if changed.session.team_id == visit.team_id else "/ui/sessions", notice)
    return visit.redirect(f"/ui/switch/{changed.session.team_id}", notice, next=page)


async def get_deletion(visit: Visit) -> Response:
    """What would be deleted with a session, in numbers, before it is done."""
    session_id, rows = await delete_session(visit.db, visit.principal, visit.parameter("session"), dry_run=True)
    async with visit.tenant() as conn:
        label = (await memory.session_labels(conn, visit.team_id, [session_id]))[session_id]
    counts = {kind: count for kind, count in msgspec.structs.asdict(rows).items() if kind != "merged"}
    return visit.render(
        "session_delete.html", title="Delete a session", session_id=session_id, label=label, counts=counts, merged=rows.merged
    )


class DeletionForm(msgspec.Struct, frozen=True):
    """How many events the page named, and the words that confirm it."""

    events: int
    confirm: str = ""


async def post_deletion(visit: Visit) -> Response:
    """Delete a session for ever with all that was drawn from it."""
    form = await visit.form(DeletionForm)
    visit.confirm(form.confirm, f"delete {form.events} events")
    _, rows = await delete_session(visit.db, visit.principal, visit.parameter("session"), dry_run=False)
    gone = f"{plural(rows.events, 'event')} and {plural(rows.observations, 'observation')}"
    return visit.redirect("/ui/sessions", f"The session is deleted, with {gone}.")


async def get_event(visit: Visit) -> Response:
    """One event as it was stored, redacted, and what was made of it."""
    principal = visit.principal
    async with visit.tenant() as conn:
        event = await find_event(conn, principal, visit.parameter("id"))
        made = await read_event_observations(conn, principal, event.project_id, event.id)
        names = await memory.names_of_projects(conn, principal, [event.project_id])
        session_id = event.server_session_id
        labels = await memory.session_labels(conn, visit.team_id, [session_id]) if session_id else {}
    kind, text = _describe(event)
    payload = json.dumps(event.payload, indent=2, ensure_ascii=False) if event.payload_purged_at is None else None
    return visit.render(
        "event.html",
        title=f"Event: {kind}",
        event=event,
        kind=kind,
        text=text,
        payload=payload[:_PAYLOAD_CHARS] if payload else None,
        is_cut=bool(payload) and len(payload) > _PAYLOAD_CHARS,
        made=[memory.observation_line(visit.principal, observation, names) for observation, _ in made],
        project=names.get(event.project_id, ""),
        session_label=labels.get(session_id) if session_id else None,
        badges=memory.BADGES,
    )


_READ, _WRITE = "observations:read", "sessions:write"

routes = [
    Page("GET", "/ui/sessions", get_sessions, scope=_READ),
    Page("GET", "/ui/sessions/{session}", get_session, scope=_READ),
    Page("GET", "/ui/sessions/{session}/receipts", get_receipts, scope=_READ),
    Page("POST", "/ui/sessions/{session}/rename", post_rename, scope=_WRITE, form_of=get_session),
    Page("POST", "/ui/sessions/{session}/end", post_end, scope=_WRITE, form_of=get_session),
    Page("POST", "/ui/sessions/{session}/private", post_private, scope=_WRITE, form_of=get_session),
    Page("POST", "/ui/sessions/{session}/move", post_move, scope="admin", form_of=get_session),
    Page("GET", "/ui/sessions/{session}/delete", get_deletion, scope="observations:write"),
    Page("POST", "/ui/sessions/{session}/delete", post_deletion, scope="observations:write", form_of=get_deletion),
    Page("GET", "/ui/events/{id}", get_event, scope=_READ),
]
