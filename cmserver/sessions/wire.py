"""A session on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.ids import epoch_ms, epoch_ms_or_none
from cmserver.sessions.model import Session


class SessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session on the wire."""

    id: UUID
    project_id: UUID
    team_id: UUID
    external_session_id: str | None
    content_session_id: str | None
    agent_id: str | None
    agent_type: str | None
    platform_source: str | None
    generation_status: str
    metadata: dict[str, object]
    started_at_epoch: int
    ended_at_epoch: int | None
    last_generated_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


def session_out(session: Session) -> SessionOut:
    """The session as it is shown."""
    return SessionOut(
        id=session.id,
        project_id=session.project_id,
        team_id=session.team_id,
        external_session_id=session.external_session_id,
        content_session_id=session.content_session_id,
        agent_id=session.agent_id,
        agent_type=session.agent_type,
        platform_source=session.platform_source,
        generation_status=session.generation_status,
        metadata=session.metadata,
        started_at_epoch=epoch_ms(session.started_at),
        ended_at_epoch=epoch_ms_or_none(session.ended_at),
        last_generated_at_epoch=epoch_ms_or_none(session.last_generated_at),
        created_at_epoch=epoch_ms(session.created_at),
        updated_at_epoch=epoch_ms(session.updated_at),
    )
