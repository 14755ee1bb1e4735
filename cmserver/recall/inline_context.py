"""Adds a few remembered lines to a prompt or an opened file, and keeps the receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.git.clones.marks import CodeMark
from cmserver.observations.model import Observation, estimate_tokens
from cmserver.observations.plain import fence, index_line
from cmserver.observations.read import audit_read
from cmserver.recall.index.layout import fetch_instructions
from cmserver.recall.model import Context, ContextRequest, NewReceipt
from cmserver.recall.receipts import repository as receipts

_WEIGHTS = {"changed": 1, "moved": 2, "removed": 3}
"""How much a mark says."""


class InlineLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line about an observation or a turn; `figures` are why it is shown, and its mark is not in its text."""

    number: int
    created_at: datetime
    text: str
    is_summary: bool = False
    code_mark: CodeMark | None = None
    figures: Mapping[str, object] = {}


def observation_line(observation: Observation, figures: Mapping[str, object]) -> InlineLine:
    return InlineLine(
        number=observation.number,
        created_at=observation.created_at,
        text=index_line(observation),
        is_summary=observation.kind == "summary",
        figures=figures,
    )


async def render_inline_context(
    conn: Conn,
    principal: Principal,
    project: Project,
    request: ContextRequest,
    heading: str,
    *,
    max_lines: int,
    lines: Sequence[InlineLine],
    criteria: Mapping[str, object],
) -> Context | None:
    """Render the first `max_lines` lines that the session has not seen, below `heading`; None when nothing is new.

    A prompt may be told what the session's index listed among much else: it points to the lines that matter now. A line that was
    told is new when its mark says more: a file was removed since, not only changed once more. The lines' figures and the
    kinds of their marks go into the receipt, as do `criteria`.
    """
    team_id = principal.team_id
    seen = set[int]()
    if request.session_id and lines:
        seen = await receipts.shown_numbers(conn, team_id, request.session_id, inline=request.reason == "prompt")
        marks = {line.number: line.code_mark.kind for line in lines if line.code_mark and line.number in seen}
        if request.session_id and marks:
            told = await receipts.told_marks(conn, team_id, request.session_id, list(marks))
            seen -= {number for number, kind in marks.items() if _WEIGHTS[kind] > _WEIGHTS.get(told.get(number) or "", 0)}
    unseen = [line for line in lines if line.number not in seen]
    shown, omitted = unseen[:max_lines], [line.number for line in unseen[max_lines:]]
    if not shown:
        return None
    # The session's index already explained how to read more; repeating it would cost more than the lines.
    has_index = request.session_id is not None and await receipts.last_index_at(conn, team_id, request.session_id) is not None
    footer = [] if has_index else [fetch_instructions(request.reader)]
    text = fence([f"{heading}\n", *(f"{line.text}{line.code_mark.text if line.code_mark else ''}\n" for line in shown), *footer])
    numbers = [line.number for line in shown]
    receipt = NewReceipt(
        reason=request.reason,
        server_session_id=request.session_id,
        platform_source=request.platform,
        numbers=numbers,
        summary_numbers=[line.number for line in shown if line.is_summary],
        left_out=omitted,
        left_out_count=len(omitted),
        tokens=estimate_tokens(text),
        chars=len(text),
        text=text,
        details={**criteria, "lines": [_explain(line) for line in shown]},
    )
    await receipts.insert(conn, team_id, project.id, receipt)
    await audit_read(conn, principal, project.id, request.reason, shown)
    return Context(text=text, numbers=numbers, tokens=receipt.tokens)


def _explain(line: InlineLine) -> dict[str, object]:
    mark = {"mark": line.code_mark.kind} if line.code_mark else {}
    return {"number": line.number, **line.figures, **mark}
