"""Reads what goes on in a project."""

from __future__ import annotations

import msgspec

from cmserver.access.model import Principal
from cmserver.access.projects import require_project
from cmserver.base.sql import Conn
from cmserver.ops.activity import repository
from cmserver.ops.activity.repository import ActivityDay, FileCount, ObservationKindCount

DAYS = 30
NEWEST = 2_000
"""Observations of which kinds and files are counted."""
_NEWEST_OF_DAYS = 20_000
_FILES = 15


class ProjectActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What goes on in a project. Kinds and files are those of its newest observations, NEWEST at most."""

    days: list[ActivityDay]
    kinds: list[ObservationKindCount]
    files: list[FileCount]


async def read_activity(conn: Conn, principal: Principal, reference: str) -> ProjectActivity:
    """Of the project with that id or name; NotFound as everywhere."""
    project = await require_project(conn, principal, reference)
    return ProjectActivity(
        days=await repository.days(conn, principal.team_id, project.id, DAYS, newest=_NEWEST_OF_DAYS),
        kinds=await repository.kinds(conn, principal.team_id, project.id, newest=NEWEST),
        files=await repository.files(conn, principal.team_id, project.id, newest=NEWEST, limit=_FILES),
    )
