"""What recall gives back: hits of a search, and the context for a new session."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.observations.model import Observation


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """An observation's id and how well it fits: the sum over the query's lexemes, 0 or more, comparable within one search only."""

    id: UUID
    score: float


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that a search found."""

    observation: Observation
    score: float


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a new session is told about its project. `tokens` is an estimate of what reading the text costs a model."""

    text: str
    observations: list[Observation]
    tokens: int
