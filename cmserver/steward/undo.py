"""Takes back everything that a run wrote, in one transaction, or says what stands in the way and changes nothing."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict
from cmserver.base.sql import Conn
from cmserver.consolidation import combine
from cmserver.generation import repository as outbox
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import Observation
from cmserver.observations.write import delete_found
from cmserver.steward.derivations import repository as derivations
from cmserver.steward.model import Effect, StewardRun, UndoneEffect
from cmserver.steward.operate import find_run
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs


async def undo_run(conn: Conn, principal: Principal, run_id: UUID | None) -> tuple[StewardRun, list[UndoneEffect]]:
    """Take back the run's effects, the last first. Conflict names the later act that stands in the way."""
    run = await find_run(conn, principal, run_id)
    await _lock_projects(conn, principal.team_id, run)
    await runs.lock(conn, principal.team_id, run.id)
    run = await find_run(conn, principal, run.id)
    if run.undone_at is not None:
        raise Conflict(f"The run was undone already, by {run.undone_by}.")
    effects = list_effects(run)
    if not effects:
        raise Conflict("The run wrote nothing, so there is nothing to undo.")
    undone = [await _undo_effect(conn, principal, run, effect) for effect in reversed(effects)]
    await runs.mark_undone(conn, principal.team_id, run.id, principal.actor_id)
    await outbox.add_event(conn, run.job_id, run.id, "run_undone", {"by": principal.actor_id, "effects": undone})
    await audit.record(conn, principal, "steward.run_undone", "steward_run", run.id, project_id=run.project_id, job=str(run.job_id))
    await announce.notify_stream(conn)
    return await find_run(conn, principal, run.id), undone


async def _lock_projects(conn: Conn, team_id: UUID, run: StewardRun) -> None:
    """Lock the projects that have what the run wrote: they may have been joined since, or a session moved."""
    ids = [effect.observation_id for effect in list_effects(run) if effect.observation_id is not None]
    project_ids = {row.project_id for row in await observations.by_ids(conn, team_id, ids)} if ids else set[UUID]()
    await observations.hold_projects(conn, team_id, project_ids)
    for project_id in sorted(project_ids):
        await history.lock_project(conn, project_id)


def list_effects(run: StewardRun) -> list[Effect]:
    """What the run wrote, in its order."""
    return msgspec.convert((run.output_snapshot or {}).get("effects", []), list[Effect])


async def _undo_effect(conn: Conn, principal: Principal, run: StewardRun, effect: Effect) -> UndoneEffect:
    if effect.kind == "policy_changed":
        return await _undo_policy(conn, principal, run, effect)
    observation = await _find_untouched(conn, principal, effect)
    if effect.kind == "derived":
        await derivations.mark_undone(conn, principal.team_id, observation.id)
        await delete_found(conn, principal, observation)
        return UndoneEffect(kind=effect.kind, number=effect.number)
    undone = await combine.undo(conn, principal, str(observation.number))
    return UndoneEffect(kind=effect.kind, number=effect.number, restored=undone.restored)


async def _find_untouched(conn: Conn, principal: Principal, effect: Effect) -> Observation:
    """The observation of the effect; Conflict when somebody changed, merged or deleted it since."""
    assert effect.observation_id is not None
    name = f"#{effect.number}"
    locked = await history.lock(conn, principal.team_id, [effect.observation_id])
    if not locked:
        raise Conflict(f"{name} was deleted since.")
    observation = locked[0]
    last = await history.last(conn, principal.team_id, observation.id)
    if observation.superseded_by is not None:
        into = await observations.by_id(conn, principal.team_id, observation.superseded_by)
        whose = await history.last(conn, principal.team_id, observation.superseded_by)
        by = f" by {whose.performed_by}" if whose and whose.action == "merged" else ""
        raise Conflict(f"{name} was merged into #{into.number if into else '?'}{by} since. Undo that first.")
    if observation.version != effect.version:
        made = f"{last.action} by {last.performed_by}" if last else "changed or undone"
        raise Conflict(f"{name} was {made} since (version {observation.version}). Undo that first.")
    if last is not None and last.sources_purged_at is not None:
        raise Conflict(f"The texts that were merged into {name} are purged, so the merge cannot be undone.")
    return observation


async def _undo_policy(conn: Conn, principal: Principal, run: StewardRun, effect: Effect) -> UndoneEffect:
    assert effect.policy_key is not None
    await policies.lock(conn, principal.team_id)
    last = await policies.last(conn, principal.team_id, effect.policy_key)
    if last is None or last.id != effect.policy_change_id:
        by = f" by {last.changed_by}" if last else ""
        raise Conflict(f"{effect.policy_key} was changed or rolled back{by} since. Take that back first.")
    await thresholds.take_back(conn, principal, last, run_id=run.id)
    return UndoneEffect(kind=effect.kind, number=None)
