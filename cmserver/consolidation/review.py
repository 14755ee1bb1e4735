"""Suggestions to merge: listed, accepted and dismissed."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn
from cmserver.consolidation import repository
from cmserver.consolidation.combine import MergeWording, merge_observations
from cmserver.consolidation.model import Merge, Suggestion, SuggestionStatus
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import MergeStrategy

NO_SUCH = "Suggestion not found."


async def list_suggestions(
    conn: Conn,
    principal: Principal,
    *,
    project_id: UUID | None,
    status: SuggestionStatus | None,
    limit: int,
    contradictions: bool | None = None,
    cursor: str | None = None,
) -> tuple[list[Suggestion], str | None]:
    """A page of suggestions, newest first, and the cursor of the next page."""
    before, before_id = paging.place(cursor)
    rows = await repository.suggestions(
        conn,
        principal.team_id,
        project_id=project_id,
        status=status,
        contradictions=contradictions,
        before=before,
        before_id=before_id,
        limit=limit + 1,
    )
    return paging.page(rows, limit, lambda suggestion: (suggestion.created_at, suggestion.id))


async def find_suggestion(conn: Conn, principal: Principal, suggestion_id: UUID) -> Suggestion:
    """The suggestion, or NotFound also when the key may not see its project."""
    suggestion = await repository.suggestion(conn, principal.team_id, suggestion_id)
    if suggestion is None or not principal.sees(suggestion.project_id):
        raise NotFound(NO_SUCH)
    return suggestion


async def _lock_suggestion(conn: Conn, principal: Principal, suggestion_id: UUID) -> Suggestion:
    """The suggestion as it is when nobody else decides in its project."""
    await history.lock_project(conn, (await find_suggestion(conn, principal, suggestion_id)).project_id)
    return await find_suggestion(conn, principal, suggestion_id)


async def resolve_suggestion(
    conn: Conn,
    principal: Principal,
    suggestion_id: UUID,
    status: Literal["accepted", "dismissed"],
    strategy: MergeStrategy = "smart_merge",
    wording: MergeWording | None = None,
    into: int | None = None,
) -> tuple[Suggestion, Merge | None]:
    """Accept the suggestion, which merges the newer observation into the older (or the other into that numbered `into`), or dismiss
    it for good.

    `wording` is a model's, for that merge. What is resolved in the same way already stays as it is.
    Conflict when it is resolved the other way, or when either observation is not shown any more.
    """
    suggestion = await _lock_suggestion(conn, principal, suggestion_id)
    if suggestion.status == status:
        return suggestion, None
    if suggestion.status != "open":
        raise Conflict(f"The suggestion is {suggestion.status} already.")
    merge = None
    if status == "accepted":
        target, source = suggestion.merge_order(into)
        merge = await merge_observations(conn, principal, str(target), [source], strategy, wording)
        if not merge.merged:
            raise Conflict(f"#{source} cannot be merged any more ({merge.skipped[0].reason}).")
    await repository.resolve(conn, principal.team_id, suggestion_id, status, principal.actor_id)
    await audit.record(conn, principal, f"suggestion.{status}", "suggestion", suggestion_id, project_id=suggestion.project_id)
    return await find_suggestion(conn, principal, suggestion_id), merge


async def reopen_suggestion(conn: Conn, principal: Principal, suggestion_id: UUID) -> Suggestion:
    """Suggest a dismissed pair again; an open one stays. Conflict for a merged one: undoing the merge dismisses it first."""
    suggestion = await _lock_suggestion(conn, principal, suggestion_id)
    if suggestion.status == "open":
        return suggestion
    if suggestion.status == "accepted":
        raise Conflict(f"The pair was merged. Undo that first, of #{suggestion.merge_order()[0]}.")
    await repository.reopen(conn, principal.team_id, suggestion_id)
    await audit.record(conn, principal, "suggestion.reopened", "suggestion", suggestion_id, project_id=suggestion.project_id)
    return await find_suggestion(conn, principal, suggestion_id)
