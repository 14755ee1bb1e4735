"""Teams, projects and keys on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.audit.model import AuditEntry
from cmserver.access.model import Consolidation, GenerationPolicy, Project, RetentionPolicy, Role, Team, WordsFor
from cmserver.base.columns import Cell, Columns, render_fields
from cmserver.base.structs import reshape


class ProjectOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A project."""

    id: UUID
    team_id: UUID
    canonical_id: str
    name: str
    aliases: list[str]
    metadata: dict[str, object]
    generation_policy: GenerationPolicy
    retention: RetentionPolicy
    search_language: str
    consolidation: Consolidation
    merge_with_model: bool
    isolated: bool
    joined_to: UUID | None
    archived_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


def project_out(project: Project) -> ProjectOut:
    return reshape(project, ProjectOut, generation_policy=project.policy)


def policy_fields(policy: GenerationPolicy) -> tuple[tuple[str, Cell], ...]:
    """The policy for `render_fields`."""
    return (
        ("mode", policy.mode),
        ("debounce seconds", None if policy.debounce_seconds is None else f"{policy.debounce_seconds:g}"),
        ("skipped event types", ", ".join(policy.skip_event_types)),
        ("skipped tools", ", ".join(policy.skip_tools)),
        ("verbosity", policy.verbosity),
        ("language", policy.language),
        *((("skip rule", rule) for rule in policy.skip_rules) if policy.skip_rules else (("skip rules", None),)),
    )


class TeamOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A team. Its limits are for all its keys together; null is no limit. `approvesRules` is whether a rule that a model or an
    agent's tool writes counts only after a person's yes; `untoldShare` is how many of a hundred new sessions are told nothing, to
    be compared with the others. `words` is who reads what others of the team and their agents said: `members`, `owners`, or
    `nobody` but the person.
    """

    id: UUID
    name: str
    metadata: dict[str, object]
    generation_policy: GenerationPolicy
    retention: RetentionPolicy
    approves_rules: bool
    untold_share: int
    words: WordsFor
    requests_per_minute: int | None
    events_per_month: int | None
    archived_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


def team_out(team: Team) -> TeamOut:
    return reshape(team, TeamOut, generation_policy=team.policy)


class MemberOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A member of a team: `userId` is their name, as it stands in their keys; `accountId` is the account by which they sign in, or
    null for who has none and works with keys.
    """

    team_id: UUID
    user_id: str
    account_id: UUID | None
    role: Role
    metadata: dict[str, object]
    created_at_epoch: int
    updated_at_epoch: int


class KeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key: all but its text. `actorId` is the name under which it acts; `lastUsedAtEpoch` is when it was used the last time, to
    the minute, or null for never.
    """

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


class AuditEntryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A row of the audit log. `userId` is the person who acted, by their account or a key of theirs, or null; `details` are ids,
    names and numbers of what was done, never texts of memory.
    """

    id: str
    action: str
    resource_type: str
    resource_id: str | None
    project_id: UUID | None
    actor_id: str | None
    api_key_id: UUID | None
    user_id: UUID | None = None
    request_id: str | None
    details: dict[str, object]
    created_at_epoch: int


def audit_entry_out(entry: AuditEntry, encrypted_id: str) -> AuditEntryOut:
    """The id is encrypted: it counts the rows of all teams."""
    return reshape(entry, AuditEntryOut, id=encrypted_id)


class AuditOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    entries: list[AuditEntryOut]
    next_cursor: str | None


class ListedKeyOut(KeyOut, rename="camel", frozen=True, kw_only=True):
    """A key in a list. `project` is the canonical id of the project that it is bound to."""

    project: str | None = None


class KeysOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    keys: list[ListedKeyOut]
    next_cursor: str | None


class OneKeyOut(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    key: KeyOut


class NewKeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A new key. Its text is shown only now."""

    id: UUID
    api_key: str
    scopes: list[str]
    expires_at: str | None
    mcp_url: str
    connect_command: str
    key: KeyOut


class RevokedKeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The key that opens nothing any more. `alsoRevoked` are the keys of its chain of rotations that ended with it."""

    revoked: bool
    id: UUID
    key: KeyOut
    also_revoked: list[KeyOut]


class OneProjectOut(msgspec.Struct, frozen=True, kw_only=True):
    """One project."""

    project: ProjectOut


class ProjectsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    projects: list[ProjectOut]
    next_cursor: str | None


class TeamsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The one team that a key knows."""

    teams: list[TeamOut]
    next_cursor: str | None


class OneTeamOut(msgspec.Struct, frozen=True, kw_only=True):
    """One team."""

    team: TeamOut


class NewTeamOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A new team with its first key, whose text is shown only now."""

    team: TeamOut
    key: KeyOut
    api_key: str


class MembersOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    members: list[MemberOut]
    next_cursor: str | None


class OneMemberOut(msgspec.Struct, frozen=True, kw_only=True):
    """One member."""

    member: MemberOut


class EndedKeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key that ended with the member who had made it for another actor."""

    id: UUID
    name: str
    actor_id: str


class RemovedMemberOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who was removed, and how many keys and open invitations ended with it: `userId` is their name.

    `otherKeys` are those of the keys that they had made for other actors: whoever used them needs new ones.
    `withdrawnInvitations` is how many of their invitations were still open.
    """

    deleted: bool
    user_id: str
    revoked_keys: int
    other_keys: list[EndedKeyOut]
    withdrawn_invitations: int


def render_project(result: OneProjectOut, _: object = None) -> str:
    project = result.project
    return render_fields(
        *Columns(ProjectOut, "id, project=canonical_id, name, aliases").fields(project),
        *policy_fields(project.generation_policy),
        ("search language", project.search_language),
        ("consolidation", project.consolidation),
        ("merges worded by", "model" if project.merge_with_model else "rules"),
        ("isolated", "yes" if project.isolated else "no"),
        *Columns(ProjectOut, "created, archived, joined to").fields(project),
    )
