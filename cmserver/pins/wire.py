"""Pins on the wire."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, QueryText
from cmserver.pins.model import MAX_PINS, NewPin, OnBreak, Pin, PinLines, PinResult, PinWords


class PinsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`project` limits the list to one."""

    project: Key | None = None
    limit: Limit = 50
    cursor: str | None = None


class PinIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """In the first `lines` hits of a search for the `question` must come all words of `must`, and none of `mustNot`.

    `lines` is how many of the first hits are looked at. A word may be several, which then stand in this order; they are whole
    words, in any case. `onBreak` is whether an upgrade, or a merge of the steward, that would lose the answer is refused or
    reported. `projectId` is the project that is asked; without it that of the key.
    """

    question: QueryText
    must: PinWords = []
    must_not: PinWords = []
    lines: PinLines = 5
    on_break: OnBreak = "report"
    project_id: Key | None = None


class FilePinIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """A pin of the file. `lines` is how many of the first hits are looked at; `must` and `mustNot` are words that must come in
    them, or must not; `onBreak` is whether an upgrade, or a merge of the steward, that would lose the answer is refused or
    reported.
    """

    question: QueryText
    must: PinWords = []
    must_not: PinWords = []
    lines: PinLines = 5
    on_break: OnBreak = "report"


class PinsIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What stands in `.cmserver/pins.toml`. `pins` are all of it: what stood there before and does not now is removed.

    `projectId` is the project that is asked; without it that of the key.
    """

    pins: Annotated[list[FilePinIn], Meta(max_length=MAX_PINS)]
    project_id: Key | None = None


class PinEditIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """What is not sent stays as it is. `must` and `mustNot` are all words that must come, or must not; `lines` is in how many of
    the first hits; `onBreak` is whether an upgrade, or a merge of the steward, that would lose the answer is refused or reported.
    """

    id: Key
    question: QueryText | UnsetType = UNSET
    must: PinWords | UnsetType = UNSET
    must_not: PinWords | UnsetType = UNSET
    lines: PinLines | UnsetType = UNSET
    on_break: OnBreak | UnsetType = UNSET


class PinCheckIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`projectId` limits the check to one; without it all pins that the key may see are checked."""

    project_id: Key | None = None


class PinOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A pin. `number` is counted for the team. `must` and `mustNot` are words that must come in the first `lines` hits of a search
    for the `question`, or must not. `onBreak` is whether an upgrade, or a merge of the steward, that would lose the answer is
    refused or reported. `fromFile` is whether it stands in the repository's `.cmserver/pins.toml`. `holds` is what its last check
    said, or null for who may not read all words of the team.
    """

    id: UUID
    number: int
    project_id: UUID
    question: str
    must: list[str]
    must_not: list[str]
    lines: int
    on_break: OnBreak
    from_file: bool
    holds: bool | None


class PinsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of pins, newest first."""

    pins: list[PinOut]
    next_cursor: str | None


class PinResultOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a check found. `holds` is whether the memory answers as it must. `hits` are the numbers of the first hits. `missing` are
    words that must come and do not; `unwanted` are words that must not come and do. `isLost` is whether it held at the
    check before. `reason` says why it does not hold, or is empty.
    """

    pin: PinOut
    holds: bool
    is_lost: bool
    hits: list[int]
    missing: list[str]
    unwanted: list[str]
    reason: str


class PinChecksOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What the check found of each pin. `brokenCount` is how many do not hold."""

    results: list[PinResultOut]
    broken_count: int


def pin_out(pin: Pin) -> PinOut:
    return reshape(pin, PinOut)


def result_out(result: PinResult) -> PinResultOut:
    return PinResultOut(
        pin=msgspec.structs.replace(pin_out(result.pin), holds=result.holds),
        holds=result.holds,
        is_lost=result.is_lost,
        hits=result.hits,
        missing=result.missing,
        unwanted=result.unwanted,
        reason=result.reason,
    )


def checks_out(results: list[PinResult]) -> PinChecksOut:
    return PinChecksOut(results=[*map(result_out, results)], broken_count=sum(not result.holds for result in results))


def new_pin(pin: PinIn | FilePinIn) -> NewPin:
    return NewPin(question=pin.question, must=pin.must, must_not=pin.must_not, lines=pin.lines, on_break=pin.on_break)
