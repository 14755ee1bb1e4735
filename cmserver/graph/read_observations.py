"""Reads new and changed observations and turns for what they name, and keeps it as entities and mentions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.base.db import Db
from cmserver.base.follow import follow
from cmserver.base.ids import new_id
from cmserver.base.log_position import LogPosition
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.graph import repository
from cmserver.graph.find_names import find_names, read_names
from cmserver.graph.model import READER, EntityName, FoundBy, NewEntity, NewMention, ReadableText, fold_name
from cmserver.graph.overviews import repository as overviews
from cmserver.graph.overviews.model import SummaryCount

log = get_logger(__name__)

_AT_ONCE = 200
"""How many observations one transaction reads."""


async def read_new_observations(db: Db) -> bool:
    """Read the next observations of each team; whether there are more."""
    has_more = False
    for team_id in await db.in_system(lambda conn: repository.list_unread_teams(conn, READER)):
        try:
            has_more = await _read_team(db, team_id) or has_more
        except Exception as error:  # of one team: the others are read
            log.exception("entities.failed", team=str(team_id), exc_info=error)
    return has_more


async def _read_team(db: Db, team_id: UUID) -> bool:
    has_more = False

    async def act(before: LogPosition) -> LogPosition:
        nonlocal has_more
        read_to, has_more = await _read_next(conn, team_id, before.read_to)
        return LogPosition(read_to=read_to)

    async with db.tenant(team_id) as conn:
        await follow(conn, READER, act, team_id=team_id)
    return has_more


async def _read_next(conn: Conn, team_id: UUID, read_to: int) -> tuple[int, bool]:
    """Read the observations behind that number, and what has changed; how far it is read now, and whether there is more."""
    # Before the observations: all up to this number are there, or were deleted.
    last = await repository.read_last_number(conn, team_id)
    fresh = await repository.list_new_observations(conn, team_id, after=read_to, limit=_AT_ONCE)
    changed_ids = await repository.take_rereads(conn, team_id, _AT_ONCE)
    changed = await repository.list_changed(conn, team_id, changed_ids) if changed_ids else []
    texts = [*fresh, *changed]
    names = await asyncio.to_thread(_find_all, texts)
    summaries = Counter(row.project_id for row in fresh if row.kind == "summary" and row.is_live)
    if summaries:
        counts = [SummaryCount(project_id=project_id, summaries=count) for project_id, count in sorted(summaries.items())]
        await overviews.count_summaries(conn, team_id, counts)
    projects = {row.id: row.project_id for row in texts}
    mentions = await keep_names(conn, team_id, projects, names, "rules")
    named = {row.id: read_names(row.entities) for row in texts if row.is_live and row.entities}
    await keep_names(conn, team_id, projects, named, "model")
    if changed_ids:
        await repository.drop_stale(conn, team_id, changed_ids, mentions)
    is_full = len(fresh) == _AT_ONCE
    read_to = fresh[-1].number if is_full else max([last, *(row.number for row in fresh[-1:])])
    return read_to, is_full or len(changed_ids) == _AT_ONCE


def _find_all(texts: Sequence[ReadableText]) -> dict[UUID, list[EntityName]]:
    return {text.id: find_names(text) if text.is_live else [] for text in texts}


async def keep_names(
    conn: Conn, team_id: UUID, projects: Mapping[UUID, UUID], names: Mapping[UUID, Sequence[EntityName]], found_by: FoundBy
) -> list[NewMention]:
    """Store what observations and turns name, by their ids, as entities of their `projects` and mentions, which are returned."""
    by_project: dict[UUID, list[UUID]] = {}
    for place_id, found in names.items():
        if found:
            by_project.setdefault(projects[place_id], []).append(place_id)
    kept: list[NewMention] = []
    for project_id, ids in sorted(by_project.items()):
        entities = {name.key: name for id_ in ids for name in names[id_]}
        rows = [
            NewEntity(id=new_id(), type=name.type, name=name.name, folded_name=fold_name(name.name), notes=name.notes)
            for name in entities.values()
        ]
        mentions = [
            NewMention(place_id=id_, type=name.type, folded_name=fold_name(name.name)) for id_ in ids for name in names[id_]
        ]
        made = await repository.add_entities(conn, team_id, project_id, rows, found_by)
        await repository.add_mentions(conn, team_id, project_id, mentions, found_by)
        await repository.drop_unmentioned(conn, team_id, made)
        kept += mentions
    return kept
