"""The requests and answers of the API on rules that wait for a person's yes."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.observations.approval.model import ApprovalState, RuleApproval


class RulesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """GET /v1/rules. `state` is what became of them: without it, those that wait."""

    project: Key | None = None
    state: ApprovalState = "pending"
    limit: Limit = 50
    cursor: str | None = None


class RuleOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A rule that was asked about, by the number of its observation. `origin` is `model`, or the door that it came by; `actorId` is
    whose key or session it came by. `state` is what became of it; `askedAtEpoch` is since when it waits; `expiresAtEpoch` is when a
    waiting one expires; `answeredAtEpoch` is when it was answered or expired, or null.
    """

    number: int
    project_id: UUID
    origin: str
    actor_id: str | None
    turn_number: int | None
    title: str | None
    content: str
    state: ApprovalState
    asked_at_epoch: int
    expires_at_epoch: int
    answered_at_epoch: int | None


class RulesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The last asked first."""

    rules: list[RuleOut]
    next_cursor: str | None


class OneRuleOut(msgspec.Struct, frozen=True, kw_only=True):
    """One rule."""

    rule: RuleOut


def rule_out(rule: RuleApproval) -> RuleOut:
    return reshape(
        rule,
        RuleOut,
        asked_at_epoch=epoch_ms(rule.asked_at),
        expires_at_epoch=epoch_ms(rule.expires_at),
        answered_at_epoch=epoch_ms(rule.answered_at) if rule.answered_at else None,
    )
