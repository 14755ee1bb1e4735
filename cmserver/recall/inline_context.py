"""Adds a few remembered lines to a prompt or an opened file, and keeps the receipt."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import fence, index_line
from cmserver.observations.read import audit_read
from cmserver.recall.index.layout import fetch_instructions
from cmserver.recall.model import Context, ContextRequest, NewReceipt
from cmserver.recall.receipts import repository as receipts


async def render_inline_context(
    conn: Conn,
    principal: Principal,
    project: Project,
    request: ContextRequest,
    heading: str,
    *,
    max_lines: int,
    scores: Mapping[UUID, Mapping[str, object]],
    criteria: Mapping[str, object],
) -> Context | None:
    """Render the best `max_lines` observations that the session has not seen, below `heading`; None when nothing is new.

    A prompt may be told what the session's index listed among much else: it points to the lines that matter now.
    `scores` has the observations' ids, the best first. It goes into the receipt, as do `criteria`.
    """
    team_id = principal.team_id
    observations_by_id = {observation.id: observation for observation in await observations.by_ids(conn, team_id, list(scores))}
    seen = set[int]()
    if request.session_id:
        seen = await receipts.shown_numbers(conn, team_id, request.session_id, inline=request.reason == "prompt")
    ranked = [observations_by_id[id_] for id_ in scores if id_ in observations_by_id]
    unseen = [observation for observation in ranked if observation.number not in seen]
    shown, omitted = unseen[:max_lines], [observation.number for observation in unseen[max_lines:]]
    if not shown:
        return None
    # The session's index already explained how to read more; repeating it would cost more than the lines.
    has_index = request.session_id is not None and await receipts.last_index_at(conn, team_id, request.session_id) is not None
    footer = [] if has_index else [fetch_instructions(request.reader)]
    text = fence([f"{heading}\n", *(f"{index_line(observation)}\n" for observation in shown), *footer])
    receipt = NewReceipt(
        reason=request.reason,
        server_session_id=request.session_id,
        platform_source=request.platform,
        numbers=[observation.number for observation in shown],
        summary_numbers=[observation.number for observation in shown if observation.kind == "summary"],
        left_out=omitted,
        left_out_count=len(omitted),
        tokens=estimate_tokens(text),
        chars=len(text),
        details={**criteria, "lines": [{"number": observation.number, **scores[observation.id]} for observation in shown]},
    )
    await receipts.insert(conn, team_id, project.id, receipt)
    await audit_read(conn, principal, project.id, request.reason, shown)
    return Context(text=text, observations=shown, tokens=receipt.tokens)
