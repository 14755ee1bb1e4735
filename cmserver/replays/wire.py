"""Replays on the wire."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.ids import EpochMs, epoch_ms
from cmserver.base.paging import Limit, no_cursor
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.replays.change_replay import Estimate
from cmserver.replays.model import Difference, Replay, ReplayLine, ReplayState, What


class ReplayIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is run again. `projectId` is the project whose sessions are; without it those of all that the key sees. `since` is a
    time, in ISO 8601 with a zone or in milliseconds since 1970: only sessions that began then or later are run. `provider` is who
    words the events: a provider of the server, or `offline` for the rules, as without it.
    """

    project_id: Key | None = None
    since: Key | None = None
    provider: Key | None = None


class ReplayEstimateOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a replay would run: `sessions` of agents and their `events`. `purged` sessions are left out, since retention has taken
    what was said in them, and `waiting` ones, of which something is not worded yet. `calls` of the `provider`'s `model`, with
    `inputTokens` and `outputTokens`, would cost `costUsd` at most; it is null where no price is known.
    """

    provider: str
    model: str | None
    sessions: int
    events: int
    purged: int
    waiting: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


class ReplayOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A replay. `number` is counted for the team. `projectId` is null for all projects; `sinceEpoch` is null for sessions of all
    times. `state` is `running` also while no worker has come by yet; `reason` is why it stopped by itself. `program` is the
    version whose rules it runs. `sessions` and `events` are what it began with; `sessionsDone` is how many sessions are done;
    `eventsDone` is how many events are. `purged` is how many sessions were left out, since retention has taken what was said in
    them. `kept` is how many rows would be the same; `lost` is how many would not be remembered; `new` is how many would be
    besides; `reworded` is how many would say something else. `byPeople` is how many people have changed, merged or deleted since,
    which are not compared.
    """

    id: UUID
    number: int
    project_id: UUID | None
    since_epoch: EpochMs | None
    provider: str
    program: str
    state: ReplayState
    reason: str | None
    sessions: int
    events: int
    purged: int
    sessions_done: int
    events_done: int
    kept: int
    lost: int
    new: int
    reworded: int
    by_people: int
    created_at_epoch: EpochMs


class ReplaysQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of the list."""

    limit: Limit = 50
    cursor: str | None = None


class ReplaysOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of replays, newest first."""

    replays: list[ReplayOut]
    next_cursor: str | None


class ReplayLinesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`difference` is whether only what would be lost, new or reworded is listed."""

    id: Key
    difference: Difference | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: str | None = None


class ToldRowOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What is told of a row. `title` is that of an observation or summary; `text` is the text of it. `files` are what it or a turn
    has changed or read; `checks` are those that ran in a turn; `commits` are those of a turn. `type` is that of an observation;
    `isOpen` is whether it is something to be done; `importance` is what it counts in search.
    """

    type: str | None = None
    title: str | None = None
    text: str = ""
    files: list[str] = []
    checks: list[str] = []
    commits: list[str] = []
    is_open: bool = False
    importance: float | None = None


class ReplayLineOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A difference. `difference` is whether the row would be lost, new or reworded. `what` is of what kind the row is; `number` is
    its number, or that of its turn; null for what is new. `sessionId` is the session that it was drawn of. `before` is what is
    remembered; `after` is what would be.
    """

    difference: Difference
    what: What
    number: int | None
    project_id: UUID
    session_id: UUID
    before: ToldRowOut | None
    after: ToldRowOut | None


class ReplayLinesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of differences, in the order of the sessions."""

    lines: list[ReplayLineOut]
    next_cursor: str | None


class TakeOverOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of a take-over, or of its undo. `written` is how many lines were written into the memory, or taken back from it;
    `left` is how many stay as they are, since somebody had changed what they are about.
    """

    replay: ReplayOut
    written: int
    left: int


def read_place(cursor: str | None) -> int:
    """The place behind which a page of lines begins; Invalid when it is no cursor."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise no_cursor()
    return int(cursor)


def replay_out(replay: Replay) -> ReplayOut:
    return reshape(
        replay,
        ReplayOut,
        since_epoch=None if replay.since is None else epoch_ms(replay.since),
        sessions=replay.session_count,
        events=replay.event_count,
        purged=replay.purged_count,
        created_at_epoch=epoch_ms(replay.created_at),
    )


def estimate_out(measured: Estimate) -> ReplayEstimateOut:
    scope = measured.scope
    return reshape(
        measured, ReplayEstimateOut, sessions=scope.sessions, events=scope.events, purged=scope.purged, waiting=scope.waiting
    )


def line_out(line: ReplayLine) -> ReplayLineOut:
    return ReplayLineOut(
        difference=line.difference,
        what=line.what,
        number=line.number,
        project_id=line.project_id,
        session_id=line.server_session_id,
        before=_told_out(line.before),
        after=_told_out(line.after),
    )


def _told_out(told: dict[str, object] | None) -> ToldRowOut | None:
    if told is None:
        return None
    if "content" not in told:
        return msgspec.convert(told, _TurnFields).out
    return msgspec.convert(told, _RowFields).out


class _TurnFields(msgspec.Struct, frozen=True):
    files: list[str] = []
    checks: list[str] = []
    commits: list[str] = []

    @property
    def out(self) -> ToldRowOut:
        return ToldRowOut(files=self.files, checks=self.checks, commits=self.commits)


class _RowFields(msgspec.Struct, frozen=True):
    type: str
    content: str
    title: str | None = None
    files_read: list[str] = []
    files_modified: list[str] = []
    is_open: bool = False
    importance: float = 0.5

    @property
    def out(self) -> ToldRowOut:
        files = [*dict.fromkeys([*self.files_modified, *self.files_read])]
        return ToldRowOut(
            type=self.type, title=self.title, text=self.content, files=files, is_open=self.is_open, importance=self.importance
        )
