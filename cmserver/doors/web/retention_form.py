"""The form of a policy of retention, of a team or a project."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.access.model import Days, MergeStrategy, RetentionPolicy, Share
from cmserver.base.structs import reshape


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
