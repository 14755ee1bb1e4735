"""An event on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.events.model import Event


class EventOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Times in epoch milliseconds; the payload as it was stored (redacted, long fields cut)."""

    id: UUID
    project_id: UUID
    team_id: UUID
    server_session_id: UUID | None
    source_adapter: str
    source_event_id: str | None
    event_type: str
    platform_source: str | None
    origin: str
    generate: bool
    payload: object
    metadata: dict[str, object]
    occurred_at_epoch: int
    received_at_epoch: int
    created_at_epoch: int


def event_out(event: Event) -> EventOut:
    """The event as it is shown."""
    return EventOut(
        id=event.id,
        project_id=event.project_id,
        team_id=event.team_id,
        server_session_id=event.server_session_id,
        source_adapter=event.source_adapter,
        source_event_id=event.source_event_id,
        event_type=event.event_type,
        platform_source=event.platform_source,
        origin=event.origin,
        generate=event.generate,
        payload=event.payload,
        metadata=event.metadata,
        occurred_at_epoch=epoch_ms(event.occurred_at),
        received_at_epoch=epoch_ms(event.received_at),
        created_at_epoch=epoch_ms(event.created_at),
    )
