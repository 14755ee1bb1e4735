"""The requests and answers of the API on the timeline."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.ids import epoch_ms
from cmserver.base.text import Key, Line, QueryText
from cmserver.observations.model import Observation
from cmserver.observations.wire import type_shown
from cmserver.recall.timeline.model import MAX_ENTRIES, TimedTurn, TimelineKind

_TITLE_CHARS = 300

EntryCount = Annotated[int, Meta(ge=0, le=MAX_ENTRIES)]


class TimelineIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`anchor` is an observation or a turn by its number (12, #12, S12) or id, a turn also by the id of its prompt's event, or a
    time in ISO 8601. With `query` instead it is the best that a search finds.

    Without a project it is the anchor's; around a time, all that the key may see. `session` is our id of one, or its agent's, whose
    entries alone are listed then. `before` is how many come before the anchor at the most; `after` is how many come after the
    anchor at the most; `kinds` are which to list: without them all. With `format: "full"` the texts are whole.

    `asOf` is a time, in ISO 8601 with a zone or in milliseconds since 1970, of which only what held then is told; `knownAt` is such
    a time, of which only what was known then is.
    """

    anchor: Annotated[int, Meta(ge=1)] | Line | None = None
    query: QueryText | None = None
    project_id: Key | None = None
    session: Key | None = None
    before: EntryCount = 10
    after: EntryCount = 10
    kinds: Annotated[list[TimelineKind], Meta(min_length=1)] | None = None
    format: Literal["index", "full"] = "index"
    as_of: Line | None = None
    known_at: Line | None = None


class ItemOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One thing that happened, by its `number`. An observation or a summary has a `title`; a turn has a `reply` once it has one.

    `what` is whether it is an observation, a summary or a turn. `type` is the type of an observation, else `summary` or `turn`.
    `text` is the prompt of a turn or, in full, what an observation says; an index has the first 300 characters of prompts and
    replies. With an `agentId` it is a sub-agent's turn: its prompt is a task, and not the user's words. `id` is the id of the
    observation, or of the event of the prompt.
    """

    what: TimelineKind
    id: UUID
    number: int | None
    prompt_number: int | None
    project_id: UUID
    session_id: UUID | None
    type: str
    title: str | None
    text: str | None
    reply: str | None = None
    agent_id: str | None = None
    read_tokens: int
    created_at_epoch: int
    is_anchor: bool


class TimelineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Oldest first. `anchor` is what is in the middle, or null around a time, and where a query finds nothing. `atEpoch` is the
    time in the middle, or null where a query finds nothing.
    """

    anchor: ItemOut | None
    at_epoch: int | None
    items: list[ItemOut]


def item_out(entry: Observation | TimedTurn, *, is_anchor: bool, full: bool) -> ItemOut:
    if isinstance(entry, TimedTurn):
        return ItemOut(
            what="turn",
            id=entry.event_id or entry.id,
            number=entry.number,
            prompt_number=entry.prompt_number,
            project_id=entry.project_id,
            session_id=entry.server_session_id,
            type="turn",
            title=None,
            text=entry.prompt,
            reply=entry.reply,
            agent_id=entry.agent_id,
            read_tokens=entry.cost,
            created_at_epoch=epoch_ms(entry.created_at),
            is_anchor=is_anchor,
        )
    return ItemOut(
        what="summary" if entry.kind == "summary" else "observation",
        id=entry.id,
        number=entry.number,
        prompt_number=entry.prompt_number,
        project_id=entry.project_id,
        session_id=entry.server_session_id,
        type=type_shown(entry.kind, entry.type, entry.origin, entry.caller_type),
        title=entry.title or (entry.narrative or entry.content)[:_TITLE_CHARS],
        text=entry.content if full else None,
        read_tokens=entry.cost,
        created_at_epoch=epoch_ms(entry.created_at),
        is_anchor=is_anchor,
    )
