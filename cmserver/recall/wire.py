"""What goes into the contexts of sessions, and what comes out."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.text import Key, Text
from cmserver.recall.model import Entry, Index, Start, Why
from cmserver.recall.receipts.model import Receipt


class ContextQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """GET /v1/context. `format=text`, or a request that accepts text/plain, gives only the text.

    `source` is how the session starts, which decides how much it is told; without one it is told as at its startup. With `session`
    (our id, which names the project, too) a receipt is written, and where the session goes on, what it has before it is left out.
    `changedFiles` are paths from the root of the repository, between commas. With `explain` the answer says how useful each line is
    by what, and no receipt is written; `limit` is the most observations, else the settings say it.
    """

    project: Key | None = None
    source: Start | None = None
    session: Text | None = None
    changed_files: Text | None = None
    explain: bool = False
    limit: Limit | None = None
    format: Literal["json", "text"] | None = None


class ReceiptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `explain` each receipt has its `details`: how useful each line was judged, by what, and what was left out, by why."""

    explain: bool = False
    limit: Limit = 50
    cursor: str | None = None


class LineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One line of the index. `type` is `summary` for a summary."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int


class JudgedOut(LineOut, rename="camel", frozen=True, kw_only=True):
    """How useful something was judged, the sum of its `parts`. `leftOut` says why it has no line: there was no room in the budget,
    as many as may be have one, the session was shown it, or another says the same.
    """

    usefulness: float
    parts: dict[str, float]
    left_out: Why | None


class ExplainedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What has a line, newest first; of what has none the most useful, at most a hundred; and how many those are in all, by why."""

    lines: list[JudgedOut]
    left_out: list[JudgedOut]
    left_out_counts: dict[str, int]
    budget_tokens: int


class IndexOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The index of a project as text, and its lines, newest first. `tokens` is an estimate for the text."""

    context: str
    observations: list[LineOut]
    tokens: int
    explained: ExplainedOut | UnsetType = UNSET


class ReceiptOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a session was told once. `numbers` are in order of time; of `leftOutCount` without a line `leftOut` are the best."""

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
    """Newest first; `nextCursor` is null on the last page."""

    receipts: list[ReceiptOut]
    next_cursor: str | None


def line_out(one: Entry) -> LineOut:
    return LineOut(
        number=one.number,
        type=one.type,
        title=one.title,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.read_tokens,
    )


def _judged(one: Entry) -> JudgedOut:
    return JudgedOut(
        number=one.number,
        type=one.type,
        title=one.title,
        created_at_epoch=epoch_ms(one.created_at),
        read_tokens=one.read_tokens,
        usefulness=one.usefulness,
        parts=dict(one.parts),
        left_out=one.left_out,
    )


def explained_out(index: Index) -> ExplainedOut:
    return ExplainedOut(
        lines=[_judged(one) for one in index.entries],
        left_out=[_judged(one) for one in index.left_out],
        left_out_counts=dict(index.left_out_counts),
        budget_tokens=index.budget_tokens,
    )


def receipt_out(one: Receipt, *, explain: bool) -> ReceiptOut:
    return ReceiptOut(
        id=one.id,
        reason=one.reason,
        platform_source=one.platform_source,
        numbers=one.numbers,
        summary_numbers=one.summary_numbers,
        left_out=one.left_out,
        left_out_count=one.left_out_count,
        tokens=one.tokens,
        budget_tokens=one.budget_tokens,
        chars=one.chars,
        created_at_epoch=epoch_ms(one.created_at),
        details=dict(one.details) if explain else UNSET,
    )
