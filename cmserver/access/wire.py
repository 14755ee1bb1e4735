"""Teams, projects and keys on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.model import Project
from cmserver.base.ids import epoch_ms


class ProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project on the wire."""

    id: UUID
    team_id: UUID
    canonical_id: str
    name: str
    metadata: dict[str, object]
    created_at_epoch: int
    updated_at_epoch: int


def project_out(project: Project) -> ProjectOut:
    """The project as it is shown."""
    return ProjectOut(
        id=project.id,
        team_id=project.team_id,
        canonical_id=project.canonical_id,
        name=project.name,
        metadata=project.metadata,
        created_at_epoch=epoch_ms(project.created_at),
        updated_at_epoch=epoch_ms(project.updated_at),
    )
