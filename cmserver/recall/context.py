"""What a session is told about its project when it starts: an index, from which it can fetch more, and a receipt for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from cmserver.access.model import Principal, Project
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.observations.model import estimate_tokens
from cmserver.observations.read import served
from cmserver.observations.wire import type_shown
from cmserver.recall.index import repository
from cmserver.recall.index.compose import Composed, Material, compose
from cmserver.recall.index.layout import Occasional, empty_text, title_shown
from cmserver.recall.index.model import Judged, LeftOut, Row
from cmserver.recall.model import Context, Entry, Index, Occasion, Shape
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.receipts.model import NewReceipt

# How many rows of each kind are looked at, and for how many files: none of it grows with the project.
_NEWEST, _TOUCHING, _SHARED, _OWN, _FULL, _FILES = 300, 100, 50, 100, 40, 20
_LEFT_OUT = 100


async def context(conn: Conn, principal: Principal, project: Project, occasion: Occasion, shape: Shape) -> Context:
    """The index for that occasion. Its text is empty when there is nothing that the session should hear.

    A receipt is written, unless somebody only looks.
    """
    about = Occasional(project_name=project.name, reason=occasion.reason, reader=occasion.reader, now=datetime.now(UTC))
    material = await _gather(conn, principal.team_id, project.id, occasion, shape)
    if material is None:
        return await _nothing_yet(conn, principal, project, occasion, shape)
    composed = compose(about, shape, material)
    index = _index(composed, shape)
    await served(conn, principal, project.id, "context", index.entries)
    told = Context(text=composed.text, tokens=estimate_tokens(composed.text), index=index)
    if told.text:
        await _note(conn, principal, project, occasion, told)
    return told


async def _gather(conn: Conn, team_id: UUID, project_id: UUID, occasion: Occasion, shape: Shape) -> Material | None:
    """What there is to choose from; None when nothing is known at all."""
    files, session_id = occasion.changed_files[:_FILES], occasion.session_id
    with_files = bool(files)
    newest = await repository.newest(conn, team_id, project_id, with_files=with_files, limit=_NEWEST)
    shared = await repository.shared(conn, team_id, project_id, with_files=with_files, limit=_SHARED)
    if not newest and not shared:
        return None
    summaries = await repository.summaries(conn, team_id, project_id, shape.summaries * 2 + 1) if shape.summaries else []
    names = [path.rstrip("/").rpartition("/")[2] for path in files]
    touching = await repository.touching(conn, team_id, project_id, names, _TOUCHING) if names else []
    is_own_wanted = session_id is not None and occasion.reason == "compact"
    own = (
        await repository.of_session(conn, team_id, project_id, session_id, with_files=with_files, limit=_OWN)
        if session_id is not None and is_own_wanted
        else []
    )
    shown: set[int] = set()
    since: datetime | None = None
    if session_id is not None and occasion.reason in {"resume", "asked"}:
        shown = await receipts.shown(conn, team_id, session_id)
        since = await receipts.last_at(conn, team_id, session_id) if occasion.reason == "resume" else None
    rows = list({row.number: row for row in [*newest, *shared, *summaries, *touching, *own]}.values())
    if shape.summaries == 0:
        rows = [row for row in rows if row.kind != "summary"]
    if occasion.reason == "resume":  # its own work stands in its transcript
        rows = [row for row in rows if row.server_session_id != session_id and (since is None or row.created_at > since)]
    news = _news(rows, newest, project_id, occasion, shape)
    news_text = await repository.summary(conn, team_id, news.number) if news else None
    full = [row.number for row in own if row.kind != "summary"][:_FULL]
    return Material(
        rows=rows,
        moments=[row.created_at for row in newest],
        news=news,
        news_text=news_text,
        details=await repository.details(conn, team_id, full) if full else {},
        shown=shown,
        changed_files=occasion.changed_files,
        continued=session_id if own else next((row.server_session_id for row in newest if row.server_session_id), None),
    )


def _news(rows: Sequence[Row], newest: Sequence[Row], project_id: UUID, occasion: Occasion, shape: Shape) -> Row | None:
    """The newest summary, of the session itself where it goes on, if it is news: not with an index's length of work after it.

    One of another project is told only where this one has none.
    """
    summaries = sorted((row for row in rows if row.kind == "summary"), key=lambda row: (row.created_at, row.number), reverse=True)
    summaries = [row for row in summaries if row.project_id == project_id] or summaries
    if occasion.reason == "compact":
        own = next((row for row in summaries if row.server_session_id == occasion.session_id), None)
        if own is not None:
            return own
    first = next(iter(summaries), None)
    if first is None or sum(row.created_at > first.created_at for row in newest) >= max(shape.observations, 1):
        return None
    return first


async def _nothing_yet(conn: Conn, principal: Principal, project: Project, occasion: Occasion, shape: Shape) -> Context:
    """Two helpful lines, once for a project's sessions; whoever asks is told each time."""
    is_told = not occasion.is_look and await receipts.has_any(conn, principal.team_id, project.id)
    text = "" if is_told or occasion.reason == "resume" else empty_text(project.name)
    told = Context(text=text, tokens=estimate_tokens(text), index=Index(budget_tokens=shape.tokens))
    if text:
        await _note(conn, principal, project, occasion, told)
    return told


async def _note(conn: Conn, principal: Principal, project: Project, occasion: Occasion, told: Context) -> None:
    """The receipt of a text that an agent is told."""
    if occasion.is_look or told.index is None:
        return
    index = told.index
    chronicle = index.entries[::-1]
    new = NewReceipt(
        reason=occasion.reason,
        server_session_id=occasion.session_id,
        platform_source=occasion.platform,
        numbers=[one.number for one in chronicle],
        summary_numbers=[one.number for one in chronicle if one.type == "summary"],
        left_out=[one.number for one in index.left_out if one.left_out in {"budget", "limit"}][:_LEFT_OUT],
        left_out_count=index.left_out_counts.get("budget", 0) + index.left_out_counts.get("limit", 0),
        tokens=told.tokens,
        budget_tokens=index.budget_tokens,
        chars=len(told.text),
        details={
            "lines": [{"number": one.number, "usefulness": one.usefulness, "parts": one.parts} for one in chronicle],
            "leftOut": index.left_out_counts,
        },
    )
    await receipts.insert(conn, new_id(), principal.team_id, project.id, new)


def _index(composed: Composed, shape: Shape) -> Index:
    lines = [*(one.judged for one in composed.choice.lines), *([composed.news] if composed.news else [])]
    lines.sort(key=lambda one: (one.row.created_at, one.row.number), reverse=True)
    left_out = composed.choice.left_out
    return Index(
        entries=[_entry(one) for one in lines] if composed.text else [],
        left_out=[_entry(one.judged, one) for one in left_out[:_LEFT_OUT]],
        left_out_counts=dict(Counter(one.why for one in left_out)),
        budget_tokens=shape.tokens,
    )


def _entry(judged: Judged, left_out: LeftOut | None = None) -> Entry:
    row = judged.row
    return Entry(
        number=row.number,
        type=type_shown(row.kind, row.type),
        title=title_shown(row),
        created_at=row.created_at,
        read_tokens=row.read_tokens,
        usefulness=judged.usefulness,
        parts=judged.parts,
        left_out=left_out.why if left_out else None,
    )
