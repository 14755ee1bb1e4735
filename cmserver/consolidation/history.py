"""Reads the versions of an observation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cmserver.access.audit import repository as audit_log
from cmserver.access.audit.model import AuditFilter
from cmserver.access.model import Principal
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.history.acts import find_changed, find_past_changed, tell_act
from cmserver.observations.history.model import Act, ObservationVersion, Snapshot
from cmserver.observations.model import Observation
from cmserver.observations.read import NO_SUCH, audit_read, find_any_observation

_ENDS = 1_000
"""So many of the newest are looked at; what was forgotten more than a week ago is deleted."""


class ForgottenAct(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody ended the time of an observation. It is no version, as nothing of what it says changed."""

    performed_by: str
    created_at: datetime


class History(msgspec.Struct, frozen=True, kw_only=True):
    """An observation with its changes, the last first, and the number of the one that it was merged into."""

    observation: Observation
    versions: list[ObservationVersion]
    acts: dict[int, Act]
    """What was done, by version."""
    forgotten: list[ForgottenAct]
    """The last first, as far as the audit log goes back."""
    superseded_by: int | None


async def read_history(conn: Conn, principal: Principal, name: str, limit: int) -> History:
    """The changes of an observation, shown or not. NotFound also for what another project shares with the team."""
    observation = await find_any_observation(conn, principal, name)
    if not principal.sees(observation.project_id):
        raise NotFound(NO_SUCH)
    versions = await history.of_observation(conn, principal.team_id, observation.id, limit)
    gone = await observations.gone(conn, principal.team_id, ids=[observation.id])
    await audit_read(conn, principal, observation.project_id, "history", [observation])
    versions = [msgspec.structs.replace(version, performed_by=principal.name_of(version.performed_by)) for version in versions]
    ends = AuditFilter(action="observation.expired", resource_id=str(observation.id))
    forgotten = await audit_log.newest(conn, principal.team_id, ends, before=None, limit=limit)
    return History(
        observation=observation,
        versions=versions,
        acts=await _find_acts(conn, observation, versions),
        forgotten=[
            ForgottenAct(performed_by=principal.name_of(entry.actor_id) or "somebody", created_at=entry.created_at)
            for entry in forgotten
        ],
        superseded_by=next((row.superseded_by for row in gone), None),
    )


async def find_forgotten(conn: Conn, principal: Principal, expired: Sequence[Observation]) -> dict[int, ForgottenAct]:
    """Who forgot each of these, by number; the others of what has expired ended by themselves."""
    ends = AuditFilter(action="observation.expired", resource_type="observation")
    entries = await audit_log.newest(conn, principal.team_id, ends, before=None, limit=_ENDS)
    newest = {entry.resource_id: entry for entry in reversed(entries)}
    return {
        row.number: ForgottenAct(performed_by=principal.name_of(entry.actor_id) or "somebody", created_at=entry.created_at)
        for row in expired
        if (entry := newest.get(str(row.id))) is not None and row.expires_at is not None and row.expires_at <= entry.created_at
    }


async def _find_acts(conn: Conn, observation: Observation, versions: Sequence[ObservationVersion]) -> dict[int, Act]:
    is_any_undone = any(version.before is None for version in versions)
    past = await history.past_labels(conn, observation.team_id, observation.id) if is_any_undone else []
    acts: dict[int, Act] = {}
    after: Snapshot | Observation = observation
    for version in versions:
        if version.before is None:
            changed = find_past_changed(past, version.version, observation)
        else:
            changed = find_changed(version.before, after)
            after = version.before
        acts[version.version] = tell_act(version.action, changed, version.measured_by, version.created_at)
    return acts
