"""Sessions in two arms, and what is compared of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from cmserver.sessions.model import SessionArm

MeasureName = Literal["turns", "repeated_failures", "repeated_questions", "tokens"]
USUAL_DAYS = 90
MAX_DAYS = 366
Verdict = Literal["too_few", "no_difference", "less", "more"]


class ArmSessions(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions are in an arm, and how many of them have ended with a prompt: those are compared."""

    arm: SessionArm
    begun: int
    compared: int


class ArmMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of an arm's compared sessions; `non_zero` is of how many it is not 0; `variance` is None for fewer than two."""

    arm: SessionArm
    name: MeasureName
    sessions: int
    non_zero: int
    mean: float
    variance: float | None


class MeanInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean a session, with the interval that has it with a confidence of 99 %."""

    mean: float
    low: float
    high: float


class MeasureComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One measure in both arms; `difference` is what the told sessions have more. None where there are too few sessions to say."""

    name: MeasureName
    told: MeanInterval | None
    untold: MeanInterval | None
    difference: MeanInterval | None
    verdict: Verdict
