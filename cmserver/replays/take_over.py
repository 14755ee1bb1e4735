"""Writes what a replay would remember into the memory, in one transaction, and takes that back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Forbidden
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.approval import repository as approvals
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import Change, restore
from cmserver.observations.model import NewObservation, NewSource, Observation, estimate_tokens
from cmserver.observations.write import delete_found
from cmserver.replays import repository
from cmserver.replays.change_replay import find_replay, require_all_words, say_state
from cmserver.replays.model import Replay, ReplayLine, ToldWork
from cmserver.sessions.turns import repository as turns

_PAGE = 500
_TEXTS = (
    *("type", "title", "subtitle", "narrative", "facts", "concepts", "files_read", "files_modified", "content", "read_tokens"),
    "importance",
)
"""What a reworded row gets of the new one, beside its quote and the fields of a summary."""


class TakeOverResult(msgspec.Struct, frozen=True, kw_only=True):
    """A replay, how many of its lines were written or taken back, and how many were left alone since their rows were changed."""

    replay: Replay
    written: int
    left: int


class _Undo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is needed to take a line back: the version that it made, and what no version of a row keeps."""

    version: int
    quote: str | None = None
    quote_event_id: UUID | None = None
    anchors: list[str] | None = None
    summary: dict[str, str | None] | None = None


async def take_over(conn: Conn, principal: Principal, id_: str) -> TakeOverResult:
    """Write the lines into the memory: what is new is stored, what is reworded is corrected, what is lost expires.

    Rows that were changed or have ended since they were compared are left alone. Conflict unless the replay is done.
    """
    replay = await _begin(conn, principal, id_, "done", "taken_over")
    written = left = 0
    async for line in _lines(conn, replay):
        if line.difference == "new":
            continue
        if line.is_shown and await _TAKE[line.what == "turn", line.difference](conn, principal, line):
            written += 1
        else:
            left += 1
    async for page in _pages(conn, replay):  # last of all: whoever takes numbers, as each prompt does, waits from here
        new = [line for line in page if line.difference == "new" and line.is_shown]
        added = await _add(conn, principal, new)
        written, left = written + added, left + len(new) - added
    details = {"number": replay.number, "written": written, "left": left}
    await audit.record(conn, principal, "replay.taken_over", "replay", replay.id, project_id=replay.project_id, **details)
    await announce.notify_stream(conn)
    return TakeOverResult(replay=await find_replay(conn, principal, id_), written=written, left=left)


async def undo_take_over(conn: Conn, principal: Principal, id_: str) -> TakeOverResult:
    """Take back what was written of the replay, as far as nobody has changed it since. Conflict unless it was taken over."""
    replay = await _begin(conn, principal, id_, "taken_over", "done")
    written = left = 0
    async for line in _lines(conn, replay):
        if line.undo is None:
            continue
        if await _UNDO[line.what == "turn", line.difference](conn, principal, line):
            written += 1
        else:
            left += 1
    details = {"number": replay.number, "written": written, "left": left}
    await audit.record(conn, principal, "replay.undone", "replay", replay.id, project_id=replay.project_id, **details)
    await announce.notify_stream(conn)
    return TakeOverResult(replay=await find_replay(conn, principal, id_), written=written, left=left)


async def _begin(conn: Conn, principal: Principal, id_: str, from_state: str, state: str) -> Replay:
    """Alone in the team with its replays, and in the projects with whoever merges."""
    await require_all_words(conn)
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    replay = await find_replay(conn, principal, id_)
    if not principal.is_person and await approvals.is_asking(conn, principal.team_id):
        raise Forbidden(
            "In this team a rule counts only after a person's yes: a person takes a replay over, signed in or by a key."
        )
    if not await repository.set_state(conn, principal.team_id, replay.id, state, [from_state]):
        act = "taken over" if state == "taken_over" else "undone"
        need = "done" if state == "taken_over" else "taken over"
        raise Conflict(f"Replay {replay.number} is {say_state(replay)}: only one that is {need} can be {act}.")
    projects = {line.project_id async for line in _lines(conn, replay)}
    await observations.hold_projects(conn, principal.team_id, projects)
    for project_id in sorted(projects):
        await history.lock_project(conn, project_id)
    return replay


async def _lines(conn: Conn, replay: Replay) -> AsyncIterator[ReplayLine]:
    async for page in _pages(conn, replay):
        for line in page:
            yield line


async def _pages(conn: Conn, replay: Replay) -> AsyncIterator[list[ReplayLine]]:
    after = 0
    while page := await repository.whole_lines(conn, replay.team_id, replay.id, after=after, limit=_PAGE):
        yield page
        after = page[-1].place


async def _lock_row(conn: Conn, principal: Principal, line: ReplayLine, version: int | None) -> Observation | None:
    """The row of the line, if it still is of that version."""
    row = await observations.lock(conn, principal.team_id, line.observation_id) if line.observation_id else None
    return row if row is not None and row.version == version and row.superseded_by is None else None


async def _add(conn: Conn, principal: Principal, lines: Sequence[ReplayLine]) -> int:
    """Store the new rows of these lines, a project's together; how many were stored."""
    if not lines:
        return 0
    numbers = await observations.take_numbers(conn, principal.team_id, len(lines))
    made = [(line, _new_row(line, number)) for line, number in zip(lines, numbers, strict=True)]
    added = 0
    for project_id in sorted({line.project_id for line in lines}):
        of_project = [it for it in made if it[0].project_id == project_id]
        ids = {it.id for it in await observations.insert(conn, principal.team_id, project_id, [row for _, row in of_project])}
        stored = [it for it in of_project if it[1].id in ids]  # others were made meanwhile
        sources = [
            msgspec.convert({**source, "id": new_id(), "observation_id": row.id}, NewSource, strict=False)
            for line, row in stored
            for source in _sources(line.new_row or {})
        ]
        await observations.insert_sources(conn, principal.team_id, project_id, sources)
        held = [row.id for _, row in stored if row.origin == "model" and row.type == "decision" and not principal.is_person]
        if held:
            await approvals.hold(conn, principal.team_id, held)
        await repository.note_stored(
            conn,
            principal.team_id,
            [line.id for line, _ in stored],
            undo=_Undo(version=1),
            observation_ids=[row.id for _, row in stored],
        )
        added += len(stored)
    return added


def _new_row(line: ReplayLine, number: int) -> NewObservation:
    fields = {field.name for field in msgspec.structs.fields(NewObservation)}
    given = {name: value for name, value in (line.new_row or {}).items() if name in fields}
    return msgspec.structs.replace(msgspec.convert(given, NewObservation, strict=False), id=new_id(), number=number)


def _sources(made: dict[str, Any]) -> list[dict[str, object]]:
    return made.get("sources") or []


async def _remove(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    row = await _lock_row(conn, principal, line, _undo_of(line).version)
    await repository.set_undo(conn, principal.team_id, line.id, undo=None, observation_id=None if row else line.observation_id)
    if row is None:
        return False
    await delete_found(conn, principal, row)
    return True


async def _reword(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    old = await _lock_row(conn, principal, line, line.version)
    if old is None or old.expires_at is not None:
        return False
    made = line.new_row or {}
    new = msgspec.structs.replace(
        old,
        **{name: made.get(name) for name in _TEXTS},
        metadata={**old.metadata, **(made.get("metadata") or {})},
    )
    is_open = bool((line.after or {}).get("is_open"))
    if is_open != (old.state is not None):
        new = msgspec.structs.replace(new, state="open" if is_open else None, closed_by=None, closed_at=None)
    new = msgspec.structs.replace(new, read_tokens=estimate_tokens(new.content))
    await _correct(conn, principal, line, old, new)
    await observations.set_drawn(
        conn,
        principal.team_id,
        old.id,
        quote=made.get("quote"),
        quote_event_id=made.get("quote_event_id"),
        anchors=made.get("anchors"),
        summary=made.get("summary"),
    )
    return True


async def _lose(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    old = await _lock_row(conn, principal, line, line.version)
    if old is None or old.expires_at is not None:
        return False
    expired = msgspec.structs.replace(old, ttl_seconds=old.ttl_seconds or 1, expires_at=datetime.now(UTC))
    await _correct(conn, principal, line, old, expired)
    return True


async def _correct(conn: Conn, principal: Principal, line: ReplayLine, old: Observation, new: Observation) -> None:
    corrected = await observations.correct(conn, principal.team_id, new)
    await history.add(conn, old, corrected, Change(action="corrected", performed_by=principal.actor_id))
    undo = _Undo(
        version=corrected.version,
        quote=old.quote,
        quote_event_id=old.quote_event_id,
        anchors=old.anchors,
        summary=old.summary,
    )
    await repository.set_undo(conn, principal.team_id, line.id, undo=undo, observation_id=old.id)


async def _restore(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    undo = _undo_of(line)
    row = await _lock_row(conn, principal, line, undo.version)
    last = await history.last(conn, principal.team_id, row.id) if row else None
    await repository.set_undo(conn, principal.team_id, line.id, undo=None, observation_id=line.observation_id)
    if row is None or last is None or last.before is None or last.version != undo.version:
        return False
    restored = await observations.correct(conn, principal.team_id, restore(row, last.before))
    await repository.set_undo(  # it may be taken over again
        conn, principal.team_id, line.id, undo=None, observation_id=row.id, version=restored.version
    )
    await history.mark_undone(conn, principal.team_id, last.id)
    await observations.set_drawn(
        conn,
        principal.team_id,
        row.id,
        quote=undo.quote,
        quote_event_id=undo.quote_event_id,
        anchors=undo.anchors,
        summary=undo.summary,
    )
    return True


async def _replace_work(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    is_taken = await _set_work(conn, principal, line, line.before, line.after)
    if is_taken:
        await repository.set_undo(conn, principal.team_id, line.id, undo=_Undo(version=1), observation_id=None)
    return is_taken


async def _restore_work(conn: Conn, principal: Principal, line: ReplayLine) -> bool:
    await repository.set_undo(conn, principal.team_id, line.id, undo=None, observation_id=None)
    return await _set_work(conn, principal, line, line.after, line.before)


async def _set_work(
    conn: Conn, principal: Principal, line: ReplayLine, old: dict[str, Any] | None, new: dict[str, Any] | None
) -> bool:
    before, after = msgspec.convert(old, ToldWork), msgspec.convert(new, ToldWork)
    if line.turn_id is None:
        return False
    return bool(
        await turns.replace_work(
            conn,
            principal.team_id,
            line.turn_id,
            files=after.files,
            checks=after.checks,
            commits=after.commits,
            old_files=before.files,
            old_checks=before.checks,
            old_commits=before.commits,
        )
    )


def _undo_of(line: ReplayLine) -> _Undo:
    return msgspec.convert(line.undo, _Undo)


_TAKE = {(False, "reworded"): _reword, (False, "lost"): _lose, (True, "reworded"): _replace_work}
_UNDO = {(False, "new"): _remove, (False, "reworded"): _restore, (False, "lost"): _restore, (True, "reworded"): _restore_work}
