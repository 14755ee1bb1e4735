"""The requests and answers of the API on contexts and receipts."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.errors import Invalid
from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import LINE_MOST, Key, Label, Text, matching
from cmserver.observations.wire import type_shown
from cmserver.recall.index.layout import render_title
from cmserver.recall.model import Index, IndexLine, OmissionReason, Receipt, SessionStart
from cmserver.recall.readers import Readers
from cmserver.recall.why import How, Later, Why, WhyQuestion, read_time
from cmserver.sessions.turns.wire import TurnOut, turn_out


class ContextQuery(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """GET /v1/context. `format` is `text` for the text alone, as for a request that accepts text/plain.

    `source` is how the session starts, which decides how much it is shown: without it, its startup. With `session` (our id, which
    names the project, too) a receipt is written, and where the session goes on, what it can still see is left out. `changedFiles`
    are paths from the root of the repository, separated by commas. With `explain` the answer has the relevance score of each line
    and its parts, and no receipt is written. `limit` is the maximum of observations, in place of the setting.

    `asOf` is a time, in ISO 8601 with a zone or in milliseconds since 1970: the index of what held then. `knownAt` is such a time,
    too: what a session would have been told then, and at the very time of a receipt, what it was told. Neither tells what is a
    person's alone, nor what was erased since.
    """

    project: Key | None = None
    source: SessionStart | None = None
    session: Text | None = None
    changed_files: Text | None = None
    explain: bool = False
    limit: Limit | None = None
    format: Literal["json", "text"] | None = None
    as_of: Text | None = None
    known_at: Text | None = None


class WhyIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A line of a file, or without `text` the file. Git is where the file is: it says which commit a line is of.

    `file` is its path, from the project's root or whole; `otherPaths` are what else it is called, as in the commit. `text` is the
    line as it stands there; `occurrences` is how often it stands in the file, blanks aside: of one that is there twice the text
    alone does not tell who wrote it. `commit` is the hash of its commit, or its first seven digits; without it the line is in none
    yet.
    `writtenAtEpoch` is when its commit was written, in milliseconds: what turns did later is not looked at.
    """

    project_id: Key | None = None
    file: Annotated[Text, Meta(min_length=1, max_length=4_096)]
    other_paths: Annotated[list[Annotated[Text, Meta(min_length=1, max_length=4_096)]], Meta(max_length=5)] = []
    text: Annotated[Text, Meta(max_length=2_000)] | None = None
    occurrences: Annotated[int, Meta(ge=1)] | None = None
    commit: Annotated[str, matching(r"^[0-9a-f]{7,64}$", "A hash of git has 7 to 64 digits of 0-9a-f")] | None = None
    written_at_epoch: int | None = None


class LaterTurnOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A later turn. `how` is what it did: it `edited` the file, `changed` what the turn says, or `mentioned` it again. `line` is
    what was said and done in it, in short.
    """

    number: int
    created_at_epoch: int
    line: str
    how: Later


class WhyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a line is as it is. `how` is what the turn did: it `wrote` the line, or only `committed` it; null without a turn.

    `turn` is null where no agent is known to have written or committed it; `line` is what was said and done in it, in short, with
    marks of what is over. `later` are the turns that came to it later, oldest first. `history` is the number of the observation
    that is its commit, or null.
    """

    project_id: UUID
    how: How | None
    turn: TurnOut | None
    line: str
    later: list[LaterTurnOut]
    history: int | None


class HandoffIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is handed over. `branch` is a git branch, as events name it; empty is the whole project. `member` is the name of the
    member of the team whose next session in the project starts with the page; null is nobody.
    """

    project_id: Key | None = None
    branch: Annotated[Text, Meta(max_length=LINE_MOST)] = ""
    member: Label | None = None


class HandoffOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The page. `context` is its text; `numbers` are those of the turns and observations in it, oldest first. `branch` is the git
    branch, empty for the whole project; `member` is whose next session starts with the page, or null.
    """

    project_id: UUID
    branch: str
    member: str | None
    numbers: list[int]
    context: str


class ReceiptsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `explain` each receipt has its `details`: the relevance score of each line with its parts, and what was left out."""

    id: str
    explain: bool = False
    limit: Limit = 50
    cursor: str | None = None


def render_handoff(result: HandoffOut) -> str:
    """The page; of one that was handed over, to whom."""
    if result.member is None:
        return result.context
    of = f"branch {result.branch}" if result.branch else "the project"
    return f"The next session of {result.member} in this project starts with the page of {of}, from you. It is told once.\n"


class LineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One line of the index. `type` is the type of the observation, or `summary` for a summary."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int


class ScoredLineOut(LineOut, rename="camel", frozen=True, kw_only=True):
    """A line of the index, or what has none. `leftOut` is why it has no line, or null for one that has: there was no room in the
    budget, the limit of lines was reached, the session was shown it, another line says the same, it is done, or it no longer holds.
    `like` is the number of that other line, or null.
    """

    usefulness: float
    parts: dict[str, float]
    line_tokens: int
    left_out: OmissionReason | None
    like: int | None = None


class ExplanationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why the lines are these: `lines` are the observations in the index, newest first; `leftOut` are the most relevant of those
    that are not in it, at most a hundred, and as many of the newest that are done or no longer hold.
    """

    lines: list[ScoredLineOut]
    left_out: list[ScoredLineOut]
    left_out_counts: dict[str, int]
    budget_tokens: int


class IndexOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The index of a project: `context` is the text of the index; `observations` are the lines of it, newest first; `tokens` are
    what the text takes, estimated. `isReceipt` is whether it is what was told then, as its receipt has kept it, which has no lines.
    """

    context: str
    observations: list[LineOut]
    tokens: int
    is_receipt: bool = False
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
        **fields,
        usefulness=scored.score,
        parts=dict(scored.parts),
        line_tokens=line.tokens,
        left_out=line.omission,
        like=line.like,
    )


def receipt_out(receipt: Receipt, *, explain: bool) -> ReceiptOut:
    hidden = {"text", "made_of", "team_id", "server_session_id", "project_id", "created_at", "details"}
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


def why_question(sent: WhyIn) -> WhyQuestion:
    """What is asked. Raises Invalid."""
    if sent.text is None and sent.commit is None:
        raise Invalid.at("$.text", "Send the line's text, its commit, or both.")
    return WhyQuestion(
        paths=[sent.file, *sent.other_paths],
        text=sent.text,
        occurrences=sent.occurrences,
        commit=sent.commit,
        written_at=read_time(sent.written_at_epoch, "$.writtenAtEpoch"),
    )


def why_out(project_id: UUID, why: Why) -> WhyOut:
    """The answer."""
    later = [reshape(it, LaterTurnOut, created_at_epoch=epoch_ms(it.created_at)) for it in why.later]
    turn = turn_out(why.turn) if why.turn else None
    return WhyOut(project_id=project_id, how=why.how, turn=turn, line=why.line, later=later, history=why.history)
