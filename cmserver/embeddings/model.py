"""An embedding is the place of an observation, a turn or an entity among meanings: the vector that a model makes of its text."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

from cmserver.observations.model import Observation

State = Literal["building", "current", "retired"]

DOCUMENT_MOST = 16_000
"""How many characters of a text are embedded: a vector of everything is near to nothing."""


class EmbeddingModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that texts are embedded with, as the database remembers it; one for all teams.

    Search uses the `current` one. Another one that the operator chooses is `building` until every text has its vector; then it
    takes the place of the current one, which is `retired`, and goes when its vectors are gone.
    """

    id: int
    provider: str
    model: str
    base_url: str | None
    """Without a name and password, which only the settings have."""
    asked_dimensions: int | None
    """What was asked for; None left it to the model."""
    dimensions: int | None
    """How long its vectors are; None until its first answer."""
    state: State
    is_backfilled: bool
    """Whether every observation and turn that was there before it has its row, waiting or not."""
    document_prefix: str
    """What is put before each text, as the model expects it."""
    pulled_percent: int | None
    """How much of it its server has downloaded; None while it downloads nothing."""


MODEL_COLUMNS: LiteralString = (
    "id, provider, model, base_url, asked_dimensions, dimensions, state, is_backfilled, document_prefix, pulled_percent"
)


class ClaimedEmbedding(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the observation, turn or entity `id`, in a worker's hand until `claimed_until`; another moment there: lost."""

    id: UUID
    claimed_until: datetime


class ObservationText(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation says, as far as its meaning goes."""

    observation_id: UUID
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str] | None
    concepts: list[str] | None
    summary: dict[str, str | None] | None
    content: str


class TurnText(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a turn."""

    turn_id: UUID
    prompt: str
    reply: str | None


class EntityText(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an entity."""

    entity_id: UUID
    name: str
    type: str
    notes: str | None


class NewVector(ClaimedEmbedding, frozen=True, kw_only=True):
    """The vector of a claimed row."""

    embedding: list[float]


class WaitingCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many texts have no vector of the model yet; `failing` ones could not be embedded when last tried."""

    model_id: int
    waiting: int
    failing: int


class FailureReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why some of a team's texts could not be embedded. `given_up` ones are not tried again by themselves."""

    reason: str
    observations: int
    given_up: int


class LargeTeam(msgspec.Struct, frozen=True, kw_only=True):
    """A team with many vectors of a model."""

    team_id: UUID
    vectors: int


class VectorIndex(msgspec.Struct, frozen=True, kw_only=True):
    """An approximate index: into how many lists it puts what is near to each other. One that is not valid was never finished."""

    name: str
    is_valid: bool
    lists: int


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The log-odds that a title is one of the project: `intercept + slope * cosine`, of the title and its nearest document."""

    intercept: float
    slope: float


class QueryVector(msgspec.Struct, frozen=True, kw_only=True):
    """The embedding of a text of a request by the current model."""

    model_id: int
    provider: str
    """The name of its embedder, as in the settings."""
    model: str = ""
    dimensions: int
    vector: str
    """The vector in the text form of pgvector."""
    calibration: Calibration | None = None
    """What a cosine of the model means in the caller's team; None where it was not measured."""


def document_text(observation: Observation | ObservationText) -> str:
    """What is embedded of an observation. A summary, and what has no title, is its content; of all others that repeats the rest."""
    if observation.title is None or observation.summary is not None:
        return observation.content[:DOCUMENT_MOST]
    parts = [observation.title, observation.subtitle, observation.narrative, *(observation.facts or ())]
    parts.append(", ".join(observation.concepts or ()))
    return "\n".join(part for part in parts if part)[:DOCUMENT_MOST]


def turn_document(turn: TurnText) -> str:
    """What is embedded of a turn: what was asked, at most half of the room, and what was answered."""
    if not turn.reply:
        return turn.prompt[:DOCUMENT_MOST]
    return f"{turn.prompt[: DOCUMENT_MOST // 2]}\n\n{turn.reply}"[:DOCUMENT_MOST]


def entity_document(entity: EntityText) -> str:
    """What is embedded of an entity: "Redis (technology): holds the queue"."""
    return f"{entity.name} ({entity.type}): {entity.notes}" if entity.notes else f"{entity.name} ({entity.type})"
