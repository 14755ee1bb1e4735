"""Rules that wait for a person's yes, and the answers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

ApprovalState = Literal["pending", "approved", "rejected", "expired"]
"""What became of a rule that was asked about: `expired` is one that nobody answered in time. Only an approved one counts."""

WAIT_DAYS = 14
"""A rule waits so long for an answer."""


class RuleApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was asked about, and what became of it. `id` and `number` are the observation's.

    Made when a model or an agent's tool wrote the rule; a person answers, and may take the answer back. Until a yes the
    observation is not shown; it goes seven days after a no, or after nobody answered.
    """

    id: UUID
    number: int
    project_id: UUID
    origin: str
    """`model`, or the door that it came by."""
    actor_id: str | None
    turn_number: int | None
    title: str | None
    content: str
    state: ApprovalState
    asked_at: datetime
    expires_at: datetime
    """When a pending one expires."""
    answered_at: datetime | None
    is_merged: bool
    """Whether its observation was merged into another one."""


class UnansweredRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that nobody answered in time."""

    id: UUID
    number: int
    project_id: UUID
    team_id: UUID


class WaitingRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many rules wait for an answer, for how many days the oldest has waited, and how many got none in the last seven days."""

    waiting: int
    oldest_days: float
    expired: int
