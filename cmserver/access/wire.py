"""Teams, projects and keys on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.audit.model import AuditEntry
from cmserver.access.keys.model import Key
from cmserver.access.model import GenerationPolicy, Member, Project, Role, Team
from cmserver.base.ids import epoch_ms, epoch_ms_or_none


class ProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project on the wire."""

    id: UUID
    team_id: UUID
    canonical_id: str
    name: str
    aliases: list[str]
    metadata: dict[str, object]
    generation_policy: GenerationPolicy
    search_language: str
    archived_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


def project_out(project: Project) -> ProjectOut:
    """The project as it is shown."""
    return ProjectOut(
        id=project.id,
        team_id=project.team_id,
        canonical_id=project.canonical_id,
        name=project.name,
        aliases=project.aliases,
        metadata=project.metadata,
        generation_policy=project.policy,
        search_language=project.search_language,
        archived_at_epoch=epoch_ms_or_none(project.archived_at),
        created_at_epoch=epoch_ms(project.created_at),
        updated_at_epoch=epoch_ms(project.updated_at),
    )


class TeamOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A team on the wire. Its limits are for all its keys together; null is no limit."""

    id: UUID
    name: str
    metadata: dict[str, object]
    generation_policy: GenerationPolicy
    requests_per_minute: int | None
    events_per_month: int | None
    archived_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


def team_out(team: Team) -> TeamOut:
    """The team as it is shown."""
    return TeamOut(
        id=team.id,
        name=team.name,
        metadata=team.metadata,
        generation_policy=team.policy,
        requests_per_minute=team.requests_per_minute,
        events_per_month=team.events_per_month,
        archived_at_epoch=epoch_ms_or_none(team.archived_at),
        created_at_epoch=epoch_ms(team.created_at),
        updated_at_epoch=epoch_ms(team.updated_at),
    )


class MemberOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A member of a team on the wire."""

    team_id: UUID
    user_id: str
    role: Role
    metadata: dict[str, object]
    created_at_epoch: int
    updated_at_epoch: int


def member_out(member: Member) -> MemberOut:
    """The member as it is shown."""
    return MemberOut(
        team_id=member.team_id,
        user_id=member.user_id,
        role=member.role,
        metadata=member.metadata,
        created_at_epoch=epoch_ms(member.created_at),
        updated_at_epoch=epoch_ms(member.updated_at),
    )


class KeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key on the wire: all but its text. `lastUsedAtEpoch` is known to the minute."""

    id: UUID
    name: str
    team_id: UUID
    project_id: UUID | None
    actor_id: str
    scopes: list[str]
    requests_per_minute: int | None
    events_per_month: int | None
    last_used_at_epoch: int | None
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    replaced_by: UUID | None
    created_at_epoch: int
    updated_at_epoch: int


def key_out(key: Key) -> KeyOut:
    """The key as it is shown."""
    return KeyOut(
        id=key.id,
        name=key.name,
        team_id=key.team_id,
        project_id=key.project_id,
        actor_id=key.actor_id,
        scopes=key.scopes,
        requests_per_minute=key.requests_per_minute,
        events_per_month=key.events_per_month,
        last_used_at_epoch=epoch_ms_or_none(key.last_used_at),
        expires_at_epoch=epoch_ms_or_none(key.expires_at),
        revoked_at_epoch=epoch_ms_or_none(key.revoked_at),
        replaced_by=key.replaced_by,
        created_at_epoch=epoch_ms(key.created_at),
        updated_at_epoch=epoch_ms(key.updated_at),
    )


class AuditEntryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A row of the audit log on the wire."""

    id: str
    action: str
    resource_type: str
    resource_id: str | None
    project_id: UUID | None
    actor_id: str | None
    api_key_id: UUID | None
    request_id: str | None
    details: dict[str, object]
    created_at_epoch: int


def audit_entry_out(entry: AuditEntry, sealed_id: str) -> AuditEntryOut:
    """The row as it is shown: its number counts all teams together, and is sealed."""
    return AuditEntryOut(
        id=sealed_id,
        action=entry.action,
        resource_type=entry.resource_type,
        resource_id=entry.resource_id,
        project_id=entry.project_id,
        actor_id=entry.actor_id,
        api_key_id=entry.api_key_id,
        request_id=entry.request_id,
        details=entry.details,
        created_at_epoch=epoch_ms(entry.created_at),
    )
