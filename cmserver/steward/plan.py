"""Looks for what there is to do, and queues it, as far as the bounds of the queue allow; thresholds are tuned at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.models.providers import registry
from cmserver.steward import repository
from cmserver.steward.model import JOB_TYPES, MAX_QUEUED, MAX_QUEUED_OF_PROJECT, JobType, NewJob, TeamMode
from cmserver.steward.policies.tune import tune_policies

log = get_logger(__name__)

PERIODIC = "periodic"
"""Why a job is there that nobody asked for."""
_SUGGESTIONS_AT_ONCE = 40
_PROJECTS_AT_ONCE = 40
_RECHECK_EVERY_SECONDS = 600.0
_DERIVE_EVERY_SECONDS = 86_400.0


async def plan_all(db: Db, settings: Settings) -> int:
    """Queue what is due of all teams whose steward is on; returns how many jobs that were."""
    planned = 0
    for team_id in await db.in_system(repository.ACTIVE_TEAMS.all):
        try:
            planned += len(await plan_team(db, settings, team_id))
        except Exception as error:  # of one team: the others are planned
            log.exception("steward.plan_failed", team=str(team_id), exc_info=error)
    return planned


async def plan_team(
    db: Db,
    settings: Settings,
    team_id: UUID,
    *,
    project_id: UUID | None = None,
    job_types: Collection[JobType] = JOB_TYPES,
    trigger_reason: str = PERIODIC,
) -> list[UUID]:
    """Queue what is due of the team, or of one project, and return the new jobs. Asked for by a person, all is due."""
    request = _PlanRequest(team_id=team_id, project_id=project_id, job_types=job_types, trigger_reason=trigger_reason)
    async with db.tenant(team_id) as conn:
        jobs = await _find_work(conn, settings, request)
    planned = await db.in_system(lambda conn: enqueue(conn, jobs)) if jobs else []
    if project_id is None and "policy_tune" in job_types:
        try:
            async with db.tenant(team_id) as conn:
                await tune_policies(conn, team_id, is_asked_for=not request.is_periodic)
        except Exception as error:  # the jobs are queued all the same
            log.exception("steward.tune_failed", team=str(team_id), exc_info=error)
    return planned


async def enqueue(conn: Conn, jobs: Sequence[NewJob]) -> list[UUID]:
    """Queue the jobs, as the owner, as far as the bounds allow; returns the ids of those that are new."""
    await repository.LOCK_PLANNING.run(conn)
    rows = [{**msgspec.structs.asdict(job), "id": new_id(), "place": place} for place, job in enumerate(jobs)]
    return await intake.insert_steward_jobs(conn, rows, max_open=MAX_QUEUED, max_open_of_project=MAX_QUEUED_OF_PROJECT)


class _PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be planned, and why."""

    team_id: UUID
    project_id: UUID | None
    job_types: Collection[JobType]
    trigger_reason: str

    @property
    def is_periodic(self) -> bool:
        return self.trigger_reason == PERIODIC


class _Planner:
    """Finds the jobs that are due of one team."""

    def __init__(self, team: TeamMode, narrowed: Mapping[UUID, Collection[str]], request: _PlanRequest) -> None:
        self.jobs: list[NewJob] = []
        self._team = team
        self._narrowed = narrowed
        self._request = request

    async def add_merges(self, conn: Conn, settings: Settings) -> None:
        """A job for each suggestion that nobody has looked at as it is now."""
        name = registry.provider_settings(settings)[0].name
        asked = "rules" if name == "offline" else name
        team_id = self._request.team_id
        for row in await repository.unjudged_suggestions(
            conn, team_id, self._request.project_id, self._team.mode, asked, _SUGGESTIONS_AT_ONCE
        ):
            versions = [row.left_version, row.right_version]
            task: dict[str, object] = {"suggestionId": str(row.id), "versions": versions, "asked": asked}
            self._add("auto_merge", row.project_id, task, row.id, [row.left_id, row.right_id])

    async def add_rechecks(self, conn: Conn) -> None:
        """A job for each project with tool calls that were not read yet."""
        seconds = _RECHECK_EVERY_SECONDS if self._request.is_periodic else 0.0
        for due in await repository.projects_with_calls(
            conn, self._request.team_id, self._request.project_id, self._team.mode, every_seconds=seconds, limit=_PROJECTS_AT_ONCE
        ):
            since = None if due.since is None else due.since.isoformat()
            self._add("recheck", due.project_id, {"since": since, "until": due.until.isoformat()}, due.project_id, [])

    async def add_derivations(self, conn: Conn) -> None:
        """A job for each project with new observations."""
        seconds = _DERIVE_EVERY_SECONDS if self._request.is_periodic else 0.0
        for project_id in await repository.projects_with_news(
            conn, self._request.team_id, self._request.project_id, self._team.mode, every_seconds=seconds, limit=_PROJECTS_AT_ONCE
        ):
            self._add("derive", project_id, {}, project_id, [])

    def _add(self, job_type: JobType, project_id: UUID, task: dict[str, object], step_id: UUID, sources: list[UUID]) -> None:
        request = self._request
        if job_type not in self._narrowed.get(project_id, JOB_TYPES):
            return
        self.jobs.append(
            NewJob(
                team_id=request.team_id,
                project_id=project_id,
                job_type=job_type,
                source_id=step_id,
                payload={"trigger": request.trigger_reason, "sources": sources, "input": {"mode": self._team.mode, **task}},
            )
        )


async def _find_work(conn: Conn, settings: Settings, request: _PlanRequest) -> list[NewJob]:
    team = await repository.mode(conn, request.team_id)
    if team.mode == "off" or team.is_paused:
        return []
    narrowed = {row.project_id: row.executors for row in await repository.project_executors(conn, request.team_id)}
    planner = _Planner(team, narrowed, request)
    chosen = {job_type for job_type in request.job_types if job_type in team.executors}
    if "auto_merge" in chosen:
        await planner.add_merges(conn, settings)
    if "recheck" in chosen:
        await planner.add_rechecks(conn)
    if "derive" in chosen:
        await planner.add_derivations(conn)
    return planner.jobs
