"""What turns put into files and took out of them, how their checks ended, and what of an earlier turn is over by a later one."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.reading.model import CommandResult, EditedPlace

TraceKind = Literal["edit", "check"]
COMMIT_DIGITS = 7
"""By so many of its first digits a turn's commit is found."""


class CheckRun(msgspec.Struct, frozen=True, kw_only=True):
    """A check as its turn names it, and how its commands ended."""

    text: str
    results: list[CommandResult]


class EarlierUndo(msgspec.Struct, frozen=True, kw_only=True):
    """What git did to edits of earlier turns: took them back, put them away, brought them back, or reverted a commit."""

    verb: Literal["takes", "stashes", "pops", "reverts"]
    paths: list[str] = []
    commit: str = ""


class TurnTraces(msgspec.Struct, kw_only=True):
    """What events of a turn did."""

    edits: dict[str, list[EditedPlace]] = {}
    """The places that were changed, by file."""
    removed: set[str] = set()
    moved: list[tuple[str, str]] = []
    """Old and new names of files."""
    taken: list[EarlierUndo] = []
    commits: list[str] = []
    """The hashes of commits, "" where one is not known."""
    loose: set[str] = set()
    """Files that were edited after the last commit."""
    checks: list[CheckRun] = []

    @property
    def is_empty(self) -> bool:
        return not (self.edits or self.removed or self.moved or self.taken or self.commits or self.checks)


class TracedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has traces."""

    id: UUID
    project_id: UUID
    server_session_id: UUID


class UntracedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of which was not noted what it did when it ended."""

    id: UUID
    team_id: UUID
    server_session_id: UUID
    prompt_number: int
    lacks_work: bool
    """Whether it has no files, checks and commits."""


class NewTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn did to a file, or how it ran a program's checks. See the table's comments."""

    turn_id: UUID
    name: str
    put_in: list[int] = []
    took_out: list[int] = []
    results: list[object] = []


class Trace(NewTrace, frozen=True, kw_only=True):
    """A trace with the commit that has it."""

    commit: str | None


class FileTrace(msgspec.Struct, frozen=True, kw_only=True):
    """That a turn edited a file, with the commit that has it; `number` and `created_at` are the turn's."""

    turn_id: UUID
    number: int
    created_at: datetime
    commit: str | None


class TurnCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that a turn made, by the hash that git printed."""

    turn_id: UUID
    commit: str


class TurnRuns(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ran a program's checks, with the turn's place in the order of all."""

    number: int
    created_at: datetime
    server_session_id: UUID
    results: list[object]

    @property
    def runs(self) -> list[CheckRun]:
        """Empty where they have another shape."""
        return decode_runs(self.results)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The entries about these tokens of turns, of one file or one text of a check."""

    turn_ids: list[UUID]
    name: str
    tokens: list[int]


class NewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What of an earlier turn is over by a later one. `instead` is what the same place of the file got."""

    earlier_id: UUID
    later_id: UUID
    name: str
    token: int = 0
    instead: list[int] = []


class Entry(NewEntry, frozen=True, kw_only=True):
    """An entry with its kind, and the place of its later turn in the order of all."""

    kind: TraceKind
    later_number: int
    later_at: datetime


def decode_runs(results: list[object]) -> list[CheckRun]:
    """The runs as they were noted; empty where they have another shape."""
    try:
        return msgspec.convert(results, list[CheckRun])
    except msgspec.ValidationError:
        return []


def encode_places(places: list[EditedPlace]) -> tuple[list[int], list[int]]:
    """What places put in and took out, each side in one list with a 0 between two places."""
    put: list[int] = []
    took: list[int] = []
    for at, place in enumerate(places):
        put += [*([0] if at else []), *sorted(place.put_in)]
        took += [*([0] if at else []), *sorted(place.took_out)]
    return put, took


def decode_places(put_in: list[int], took_out: list[int]) -> list[EditedPlace]:
    """The reverse of encode_places."""
    return [EditedPlace(frozenset(put), frozenset(took)) for put, took in zip(_split(put_in), _split(took_out), strict=False)]


def _split(tokens: list[int]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
