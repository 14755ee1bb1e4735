"""The form of a policy of retention, of a team or a project."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.access.model import Days, MergeStrategy, RetentionPolicy, Share
from cmserver.base.structs import reshape
from cmserver.memories.model import DEFAULT_TTL_SECONDS, PERMANENT_IMPORTANCE
from cmserver.observations.lifetime.repository import EXTEND_FACTOR, PROMOTE_ACCESSES
from cmserver.retention.model import RetentionDefaults


class RetentionForm(msgspec.Struct, frozen=True, kw_only=True):
    """How long what is kept, in days, and what is merged; 0 is for good, and empty as the team or the server says."""

    observations_days: Days | None = None
    min_importance: Share | None = None
    promote_accesses: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    events_days: Days | None = None
    job_log_days: Days | None = None
    receipts_days: Days | None = None
    audit_days: Days | None = None
    default_ttl_seconds: Annotated[int, Meta(ge=1, le=3_155_760_000)] | None = None
    extend_factor: Annotated[float, Meta(ge=0, le=100)] | None = None
    promote_importance: Share | None = None
    cleanup_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    suggest_above: Share | None = None
    auto_merge_above: Share | None = None
    merge_strategy: MergeStrategy | None = None

    @property
    def policy(self) -> RetentionPolicy:
        """What was typed."""
        return reshape(self, RetentionPolicy)


def usual_values(policy: RetentionPolicy) -> dict[str, str]:
    """For each field of the form that may be empty what holds then: what the policy says of it, else what the server does."""
    defaults = RetentionDefaults()
    server: dict[str, float | str] = {
        "observations_days": defaults.observations_days,
        "min_importance": defaults.min_importance,
        "promote_accesses": PROMOTE_ACCESSES,
        "events_days": defaults.events_days,
        "job_log_days": defaults.job_log_days,
        "receipts_days": defaults.receipts_days,
        "audit_days": defaults.audit_days,
        "default_ttl_seconds": DEFAULT_TTL_SECONDS,
        "extend_factor": EXTEND_FACTOR,
        "promote_importance": PERMANENT_IMPORTANCE,
        "cleanup_seconds": "at each sweep",
        "suggest_above": "as the embedder was measured",
        "auto_merge_above": "only what is equal",
    }
    said = {name: getattr(policy, name) for name in server}
    shown = {name: value if said[name] is None else said[name] for name, value in server.items()}
    return {name: value if isinstance(value, str) else f"{value:.12g}" for name, value in shown.items()}
