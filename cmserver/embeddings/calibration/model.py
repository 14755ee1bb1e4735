"""A calibration says what a cosine of an embedding model means, measured with a team's own documents."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.embeddings.model import Calibration, ObservationText

CALIBRATED_EMBEDDER = "local"
"""The embedder whose coefficients come with the program; of others they follow from a calibration."""
BUILT_IN = ("local", "l2-supercat-256", 256)
"""Provider, model and dimensions of the embedder whose coefficients come with the program."""


class StoredCalibration(Calibration, frozen=True, kw_only=True):
    """A calibration of a team, and how many of its titles it was measured with."""

    titles: int
    calibrated_at: datetime


class TitledText(ObservationText, frozen=True, kw_only=True):
    """An observation with a title, and its project."""

    project_id: UUID


class UncalibratedTeam(msgspec.Struct, frozen=True, kw_only=True):
    """A team that has enough documents for a calibration, and none."""

    team_id: UUID


def is_built_in(provider: str, model: str, dimensions: int | None) -> bool:
    """Whether the coefficients of this model come with the program."""
    return (provider, model, dimensions) == BUILT_IN
