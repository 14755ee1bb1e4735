"""A few lines in between: how what belongs to a prompt or a file is told, and the receipt for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.access.model import Principal, Project
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import summed_up, wrapped
from cmserver.observations.read import served
from cmserver.recall.index.layout import how_to_fetch
from cmserver.recall.model import Context, Occasion
from cmserver.recall.receipts import repository as receipts
from cmserver.recall.receipts.model import NewReceipt


async def tell(
    conn: Conn,
    principal: Principal,
    project: Project,
    occasion: Occasion,
    head: str,
    ids: Sequence[UUID],
    most: int,
    details: Mapping[UUID, Mapping[str, object]],
    judged_by: Mapping[str, object],
) -> Context | None:
    """The first `most` of them that the session has not before it, below the line `head`; None when there are none.

    `details` say how each was judged and `judged_by` against what; both go into the receipt.
    """
    team_id = principal.team_id
    found = {one.id: one for one in await observations.by_ids(conn, team_id, ids)}
    before = await receipts.shown(conn, team_id, occasion.session_id) if occasion.session_id else set[int]()
    new = [found[each] for each in ids if each in found and found[each].number not in before]
    told, left_out = new[:most], [one.number for one in new[most:]]
    if not told:
        return None
    # The index has said how to read more; said again at each prompt it would cost more than the lines.
    has_index = occasion.session_id is not None and await receipts.last_at(conn, team_id, occasion.session_id) is not None
    means = [] if has_index else [how_to_fetch(occasion.reader)]
    text = wrapped([f"{head}\n", *(f"{summed_up(one)}\n" for one in told), *means])
    await served(conn, principal, project.id, occasion.reason, told)
    receipt = NewReceipt(
        reason=occasion.reason,
        server_session_id=occasion.session_id,
        platform_source=occasion.platform,
        numbers=[one.number for one in told],
        summary_numbers=[one.number for one in told if one.kind == "summary"],
        left_out=left_out,
        left_out_count=len(left_out),
        tokens=estimate_tokens(text),
        chars=len(text),
        details={**judged_by, "lines": [{"number": one.number, **details[one.id]} for one in told]},
    )
    await receipts.insert(conn, new_id(), team_id, project.id, receipt)
    return Context(text=text, observations=told, tokens=receipt.tokens)
