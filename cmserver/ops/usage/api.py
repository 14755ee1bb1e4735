"""What was used this month, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.limits import repository as limits
from cmserver.access.model import Principal
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db
from cmserver.generation.calls import repository as calls


class AmountsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What was used: requests that were let in, events that were stored, and what the providers said they read and wrote."""

    requests: int
    events: int
    provider_calls: int
    input_tokens: int
    output_tokens: int


class LimitsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How much the key may use, and all keys of its team together; null is no limit."""

    requests_per_minute: int | None
    events_per_month: int | None
    team_requests_per_minute: int | None
    team_events_per_month: int | None


class UsageOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The month so far (UTC), as it was about a second ago."""

    since: datetime
    usage: AmountsOut
    limits: LimitsOut


async def get_usage(request: Request) -> Response:
    """What the team has used this month.

    A key that is bound to a project sees its own requests and events, with those of the keys it was rotated from, and its project's
    calls of providers.
    """
    who = await caller(request, Principal)
    only = (who.counts_as or who.key_id) if who.project_id is not None else None
    async with db(request).tenant(who.team_id) as conn:
        used = await limits.used(conn, who.team_id, api_key_id=only)
        spent = await calls.spent(conn, who.team_id, since=used.since, project_id=who.project_id)
    return answer(
        UsageOut(
            since=used.since.astimezone(UTC),
            usage=AmountsOut(
                requests=used.requests,
                events=used.events,
                provider_calls=spent.calls,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
            ),
            limits=LimitsOut(
                requests_per_minute=who.limits.requests_per_minute,
                events_per_month=who.limits.events_per_month,
                team_requests_per_minute=who.limits.team_requests_per_minute,
                team_events_per_month=who.limits.team_events_per_month,
            ),
        )
    )


routes = [
    Operation("GET", "/v1/usage", get_usage, scope="jobs:read", answers={200: UsageOut}),
]
