"""The sentences of a turn that say most, with their words and vectors."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

MAX_DIMENSIONS = 256
"""Of a longer vector the first so many numbers are kept."""
CHAIN_NEARNESS = 0.35
"""A chain of pointers goes on from here: behind a weaker link mostly stands another matter, in the place of the right one."""


class DueTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn whose sentences a worker has in hand until `due_at`; another moment there: its text has changed meanwhile."""

    turn_id: UUID
    due_at: datetime | None
    prompt: str
    reply: str | None
    reply_before: str | None
    """What the agent said before the prompt."""
    own_line: str | None = None
    """What a person says its line shall be, see SessionTurn."""
    by_agents: str | None = None
    """What its sub-agents said last."""
    outputs: list[str] = []
    """What tools put out in it, each as JSON with its `tool` and the `response`."""


class ChosenSentences(msgspec.Struct, frozen=True, kw_only=True):
    """The sentences of a turn in hand that say most."""

    turn: DueTurn
    user: list[str]
    agent: list[str]
    borrowed: list[int]
    """Of the reply's sentences, see `find_borrowed`."""

    @property
    def texts(self) -> list[str]:
        return [*self.user, *self.agent]


class ClaimedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has taken in hand, see DueTurn."""

    turn_id: UUID
    due_at: datetime | None


class TurnSentences(ClaimedTurn, frozen=True, kw_only=True):
    """The sentences of a turn in hand; the first `of_user` are the user's.

    `model_id` is the model that was asked for the vectors, 0 for none.
    """

    texts: list[str]
    of_user: int
    borrowed: list[int]
    model_id: int = 0
    vectors: str | None = None
    """In hexadecimal, see `pack`."""


class NearTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with its sentences; `shared` has of each a bit for each of the asked words that it has, the first the lowest."""

    id: UUID
    number: int
    created_at: datetime
    ended_at: datetime | None
    files: list[str]
    texts: list[str]
    of_user: int
    shared: list[int]
    model_id: int
    vectors: bytes | None


class PlacedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn with what its sentences point to, see LaterWords."""

    turn_id: UUID
    created_at: datetime
    number: int
    texts: list[str]
    model_id: int = 0
    vectors: bytes | None
    later_ids: list[UUID | None]
    later_places: list[int | None]
    nearness: list[float | None]


class LaterWords(msgspec.Struct, frozen=True, kw_only=True):
    """What the sentences of a turn point to: for each the later turn with the nearest later sentence, its place, and how near."""

    turn_id: UUID
    later_ids: list[UUID | None]
    later_places: list[int | None]
    nearness: list[float | None]


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """That something was said later that is near to a sentence: the numbers of both turns, and the sentence."""

    number: int
    place: int
    text: str
    later_number: int
    later_place: int = 0
    nearness: float = 1.0
