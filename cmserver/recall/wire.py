"""The requests and answers of the API on contexts and receipts."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Text
from cmserver.observations.wire import type_shown
from cmserver.recall.index.layout import render_title
from cmserver.recall.model import Index, IndexLine, OmissionReason, Receipt, SessionStart
from cmserver.recall.readers import Readers


class ContextQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """GET /v1/context. `format` is `text` for the text alone, as for a request that accepts text/plain.

    `source` is how the session starts, which decides how much it is shown: without it, its startup. With `session` (our id, which
    names the project, too) a receipt is written, and where the session goes on, what it can still see is left out. `changedFiles`
    are paths from the root of the repository, separated by commas. With `explain` the answer has the relevance score of each line
    and its parts, and no receipt is written. `limit` is the maximum of observations, in place of the setting.
    """

    project: Key | None = None
    source: SessionStart | None = None
    session: Text | None = None
    changed_files: Text | None = None
    explain: bool = False
    limit: Limit | None = None
    format: Literal["json", "text"] | None = None


class ReceiptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `explain` each receipt has its `details`: the relevance score of each line with its parts, and what was left out."""

    explain: bool = False
    limit: Limit = 50
    cursor: str | None = None


class LineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One line of the index. `type` is the type of the observation, or `summary` for a summary."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int


class ScoredLineOut(LineOut, rename="camel", frozen=True, kw_only=True):
    """A line of the index, or what has none. `leftOut` is why it has no line, or null for one that has: there was no room in the
    budget, the limit of lines was reached, the session was shown it, or another line says the same.
    """

    usefulness: float
    parts: dict[str, float]
    line_tokens: int
    left_out: OmissionReason | None


class ExplanationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why the lines are these: `lines` are the observations in the index, newest first; `leftOut` are the most relevant of those
    that are not in it, at most a hundred.
    """

    lines: list[ScoredLineOut]
    left_out: list[ScoredLineOut]
    left_out_counts: dict[str, int]
    budget_tokens: int


class IndexOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The index of a project: `context` is the text of the index; `observations` are the lines of it, newest first; `tokens` are
    what the text takes, estimated.
    """

    context: str
    observations: list[LineOut]
    tokens: int
    explained: ExplanationOut | UnsetType = UNSET


class ReceiptOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One text that a session was shown.

    `numbers` are those of the observations in the text, in order of time; `leftOut` are the numbers of the best of `leftOutCount`
    others. `details` are the score of each line with its parts, and how many were left out, by reason.
    """

    id: UUID
    reason: str
    platform_source: str | None
    numbers: list[int]
    summary_numbers: list[int]
    left_out: list[int]
    left_out_count: int
    tokens: int
    budget_tokens: int
    chars: int
    created_at_epoch: int
    details: dict[str, object] | UnsetType = UNSET


class ReceiptsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    receipts: list[ReceiptOut]
    next_cursor: str | None


def line_out(line: IndexLine) -> LineOut:
    row = line.scored.row
    return LineOut(
        number=row.number,
        type=type_shown(row.kind, row.type),
        title=render_title(row),
        created_at_epoch=epoch_ms(row.created_at),
        read_tokens=row.read_tokens,
    )


def explained_out(index: Index) -> ExplanationOut:
    return ExplanationOut(
        lines=[_scored_line_out(line) for line in index.lines],
        left_out=[_scored_line_out(line) for line in index.omitted],
        left_out_counts=dict(index.omitted_counts),
        budget_tokens=index.budget_tokens,
    )


def _scored_line_out(line: IndexLine) -> ScoredLineOut:
    scored = line.scored
    fields = msgspec.structs.asdict(line_out(line))
    return ScoredLineOut(
        **fields, usefulness=scored.score, parts=dict(scored.parts), line_tokens=line.tokens, left_out=line.omission
    )


def receipt_out(receipt: Receipt, *, explain: bool) -> ReceiptOut:
    hidden = {"team_id", "server_session_id", "project_id", "created_at", "details"}
    fields = {name: value for name, value in msgspec.structs.asdict(receipt).items() if name not in hidden}
    return ReceiptOut(**fields, created_at_epoch=epoch_ms(receipt.created_at), details=receipt.details if explain else UNSET)


class ShownReceiptOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """That a session was shown the observation: why (its start, a prompt, a file) and when."""

    session_id: UUID | None
    project_id: UUID
    reason: str
    platform_source: str | None
    created_at_epoch: int


class ReaderCountOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who read it in one way (`get`, `search`, `list`, ...): `count` is how often; `lastAtEpoch` is when they did it last."""

    actor_id: str | None
    via: str
    count: int
    last_at_epoch: int


class ReadersOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who was given an observation, the last first: the sessions that were shown it, and who read it.

    `shown` are the sessions that were shown it; `readers` are who read it, or null without the scope `admin`, which the audit log
    needs. They are looked for among the newest 1,000 receipts of a project and the newest 10,000 rows of the audit log.
    `accessCount` and `lastAccessedAtEpoch` count all reads of the whole text.
    """

    number: int
    shown: list[ShownReceiptOut]
    readers: list[ReaderCountOut] | None
    access_count: int
    last_accessed_at_epoch: int | None


def readers_out(readers: Readers) -> ReadersOut:
    observation = readers.observation
    return ReadersOut(
        number=observation.number,
        shown=[reshape(receipt, ShownReceiptOut, session_id=receipt.server_session_id) for receipt in readers.shown],
        readers=None if readers.people is None else [reshape(person, ReaderCountOut) for person in readers.people],
        access_count=observation.access_count,
        last_accessed_at_epoch=epoch_ms(observation.last_accessed_at) if observation.last_accessed_at else None,
    )
