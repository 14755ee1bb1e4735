"""Compares what was written since the last time with the rest of its project, and merges or suggests what says the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Consolidation, Principal
from cmserver.base.db import Db
from cmserver.base.follow import keep_position, read_position, reading_alone
from cmserver.base.log_position import LogPosition
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.combine import merge_alike
from cmserver.consolidation.comparison import repository
from cmserver.consolidation.comparison.model import NearPair, NewRow
from cmserver.consolidation.marks import TextMarks, compared_text, read_marks
from cmserver.consolidation.model import NewSuggestion
from cmserver.consolidation.similarity import TextComparison, Thresholds, change_other_files, compare_texts, find_thresholds
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.model import EmbeddingModel
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.history.model import SYSTEM, Change
from cmserver.observations.model import Observation

log = get_logger(__name__)

COMPARED = "comparison"
"""The name of the position up to which the observations of a team are compared."""
NEW_AT_ONCE = 5_000
"""How many new observations a round compares."""
ROUNDS = 10
"""How many rounds a team gets in a run."""
BLOCK = 5_000
"""With so many stored ones at a time: some 30 MB."""
PARTNERS = 3
"""At most this many suggestions for a new observation."""
WAIT_SECONDS = 600.0
"""So long a new observation is waited for that has no vector yet."""
_PAIRS_AT_ONCE = 200


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a pair."""

    newer: UUID
    older: UUID
    comparison: TextComparison


async def compare_new(db: Db) -> int:
    """Compare what is new in all teams, but for those that another process compares; returns how many observations that were."""
    compared = 0
    for team_id in await db.in_system(lambda conn: observations.list_teams_behind(conn, COMPARED)):
        try:
            async with reading_alone(db, COMPARED, team_id) as is_alone:
                for _ in range(ROUNDS if is_alone else 0):  # the next run continues
                    count = await _compare_team(db, team_id)
                    compared += count
                    if count < NEW_AT_ONCE:
                        break
        except Exception as error:  # of one team: the others are compared
            log.exception("consolidation.failed", team=str(team_id), exc_info=error)
    return compared


async def _compare_team(db: Db, team_id: UUID) -> int:
    """Compare the next observations of the team and remember how far; returns how many those were.

    Of one that dies the next repeats the round: a pair is suggested once, and what is merged is not compared again.
    """
    async with db.tenant(team_id) as conn:
        compared_to = (await read_position(conn, COMPARED, team_id=team_id)).read_to
        model = await embeddings.CURRENT.first(conn)
        rows = await repository.new(
            conn,
            team_id,
            after=compared_to,
            model_id=model.id if model else None,
            wait_seconds=WAIT_SECONDS,
            limit=NEW_AT_ONCE,
        )
    due = rows[: next((place for place, row in enumerate(rows) if row.waits), len(rows))]
    modes: dict[UUID, Consolidation] = {row.project_id: row.consolidation for row in due if row.consolidation != "off"}
    for project_id, mode in modes.items():
        mine = [row for row in due if row.project_id == project_id and row.is_compared]
        await _compare_project(db, team_id, project_id, mode, mine, model)
    if due:
        after = LogPosition(read_to=due[-1].number)
        await db.in_tenant(team_id, lambda conn: keep_position(conn, COMPARED, after, team_id=team_id, is_forward=True))
    return len(due)


async def _compare_project(
    db: Db, team_id: UUID, project_id: UUID, mode: Consolidation, new: Sequence[NewRow], model: EmbeddingModel | None
) -> None:
    if model is None or not any(row.has_vector for row in new):
        return
    async with db.tenant(team_id) as conn:
        policy = await access.retention_of(conn, team_id, project_id)
    thresholds = find_thresholds(model.provider, model.model, policy)
    pairs = await _find_pairs(db, team_id, project_id, [row.id for row in new if row.has_vector], model, thresholds)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        judgements = await _judge(db, team_id, pairs[start : start + _PAIRS_AT_ONCE], thresholds)
        await db.in_tenant(
            team_id, lambda conn, judgements=judgements: _apply(conn, team_id, project_id, mode, judgements), has_time_limit=False
        )


async def _find_pairs(
    db: Db, team_id: UUID, project_id: UUID, new_ids: Sequence[UUID], model: EmbeddingModel, thresholds: Thresholds
) -> list[NearPair]:
    """The older observations nearest to each new one, by their vectors."""
    from cmserver.consolidation.comparison.blocks import BlockComparison  # noqa: PLC0415 - with numpy, which most never need

    async with db.tenant(team_id, has_time_limit=False) as conn:
        new = await repository.vectors(conn, team_id, project_id, model.id, ids=new_ids, after=UUID(int=0), limit=NEW_AT_ONCE)
        comparison = BlockComparison(new, at_least=thresholds.suggest, most=PARTNERS)
        after: UUID | None = UUID(int=0)
        while after is not None:
            block = await repository.vectors(conn, team_id, project_id, model.id, after=after, limit=BLOCK)
            await asyncio.to_thread(comparison.compare, block)
            after = block[-1].id if len(block) == BLOCK else None
    return comparison.pairs()


async def _judge(db: Db, team_id: UUID, pairs: Sequence[NearPair], thresholds: Thresholds) -> list[Judgement]:
    """What is to become of each pair of which both are still shown."""
    ids = {id_ for pair in pairs for id_ in (pair.newer, pair.older)}
    async with db.tenant(team_id) as conn:
        rows = {row.id: row for row in await observations.by_ids(conn, team_id, list(ids))}
        hashes = await repository.hashes(conn, team_id, ids)
    return await asyncio.to_thread(_judge_all, pairs, rows, hashes, thresholds)


def _judge_all(
    pairs: Sequence[NearPair], rows: Mapping[UUID, Observation], hashes: Mapping[UUID, bytes], thresholds: Thresholds
) -> list[Judgement]:
    marks: dict[UUID, TextMarks] = {id_: read_marks(compared_text(row)) for id_, row in rows.items()}
    judgements: list[Judgement] = []
    for pair in pairs:
        if pair.newer not in marks or pair.older not in marks:
            continue
        if change_other_files(rows[pair.newer].files_modified, rows[pair.older].files_modified):
            continue
        is_equal = hashes.get(pair.newer, b"") == hashes.get(pair.older)
        comparison = compare_texts(marks[pair.newer], marks[pair.older], pair.cosine, thresholds, is_equal=is_equal)
        judgements.append(Judgement(newer=pair.newer, older=pair.older, comparison=comparison))
    return judgements


async def _apply(conn: Conn, team_id: UUID, project_id: UUID, mode: Consolidation, judgements: Sequence[Judgement]) -> None:
    """Merge what the project lets be merged, and suggest the rest."""
    await history.lock_project(conn, project_id)
    pairs: list[NewSuggestion] = []
    for judgement in judgements:
        is_merged = mode == "merge" and judgement.comparison.decision == "merge" and await _merge(conn, team_id, judgement)
        if judgement.comparison.decision != "none" and not is_merged:
            pairs.append(judgement.comparison.suggest(judgement.newer, judgement.older))
    await consolidation.suggest(conn, team_id, project_id, pairs)


async def _follow(conn: Conn, team_id: UUID, observation_id: UUID) -> UUID:
    """The observation, or the one that is shown in its place."""
    while rows := await observations.any_by_names(conn, team_id, {observation_id}):
        if rows[0].superseded_by is None:
            break
        observation_id = rows[0].superseded_by
    return observation_id


async def _merge(conn: Conn, team_id: UUID, judgement: Judgement) -> bool:
    """Merge the newer into the older, or what that became, if their texts are still equal; False also if too long or dismissed."""
    target_id = await _follow(conn, team_id, judgement.older)
    locked = await history.lock(conn, team_id, [judgement.newer, target_id])
    live = {row.id: row for row in await observations.by_ids(conn, team_id, [row.id for row in locked])}
    newer, older = live.get(judgement.newer), live.get(target_id)
    if newer is None or older is None or newer.id == older.id:
        return False
    if await consolidation.is_dismissed(conn, team_id, newer.id, older.id):
        return False
    if not await repository.are_equal(conn, team_id, newer.id, older.id):
        return False
    change = Change(
        action="merged", performed_by=SYSTEM, source_ids=[newer.id], strategy="smart_merge", similarity=1.0, measured_by="text"
    )
    return await merge_alike(conn, Principal.of_server(team_id), older, newer, change) is not None
