"""Cleans metadata of requests, and drops what this process remembers of a team."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.base.http.wire import dependency
from cmserver.base.notifications import NotificationListener
from cmserver.redaction.clean import clean_aside

Metadata = dict[str, object]


async def clean_metadata(metadata: Metadata | None, size_bytes: int) -> Metadata:
    """The metadata without secrets; empty for None."""
    cleaned = await clean_aside(metadata or {}, size_bytes=size_bytes, at="$.metadata")
    return cast("Metadata", cleaned.value)


def forget(request: Request, principal: Principal) -> None:
    """Drop this process's cached entries of the team before it answers; the others drop them when notified."""
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
