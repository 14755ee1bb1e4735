"""The steward without a model on the labelled history: nothing wrong is merged, and its marks and derivations are right."""

from __future__ import annotations

import msgspec
import pytest

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.steward.corpus import Case, held_cases, open_cases
from tests.steward.tools import Keeper, Planted, plant


class Score(msgspec.Struct, kw_only=True):
    """What became of the cases, by their names."""

    merged_wrongly: list[str] = []
    merged_rightly: list[str] = []
    marked_rightly: list[str] = []
    marked_wrongly: list[str] = []
    not_marked: list[str] = []
    derived_rightly: list[str] = []
    derived_wrongly: list[str] = []
    not_derived: list[str] = []


async def judge(keeper: Keeper, cases: list[Case]) -> Score:
    planted = [await plant(keeper.db, keeper.principal, case) for case in cases]
    await keeper.switch("write")
    for _ in range(10):  # of one team so many jobs are queued at once at most
        if not await keeper.plan("auto_merge", "recheck", "derive"):
            break
        await keeper.drain()
    score = Score()
    for one in planted:
        await _score(keeper, one, score)
    return score


async def _score(keeper: Keeper, planted: Planted, score: Score) -> None:
    case = planted.case
    rows = {row.id: row for row in await keeper.observations(planted.project)}
    if case.same is not None and len(rows) < len(case.notes):
        (score.merged_rightly if case.same else score.merged_wrongly).append(case.name)
    for note, made in zip(case.notes, planted.notes, strict=True):
        is_marked = made.id in rows and rows[made.id].stale is not None
        if note.is_stale:
            (score.marked_rightly if is_marked else score.not_marked).append(case.name)
        elif is_marked:
            score.marked_wrongly.append(case.name)
    derived = [row for row in rows.values() if row.agent == "steward"]
    if derived:
        (score.derived_rightly if case.derives else score.derived_wrongly).append(case.name)
    elif case.derives:
        score.not_derived.append(case.name)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [open_cases(), held_cases()], ids=["open", "held"])
async def test_the_steward_without_a_model_makes_no_mistake_that_costs_something(
    keeper: Keeper, db: Db, cast: Cast, cases: list[Case]
):
    score = await judge(keeper, cases)

    assert score.merged_wrongly == []
    assert len(score.merged_rightly) >= 4
    marked = len(score.marked_rightly) + len(score.marked_wrongly)
    assert len(score.marked_rightly) >= 0.9 * marked, score.marked_wrongly
    assert len(score.marked_rightly) >= 0.6 * (len(score.marked_rightly) + len(score.not_marked)), score.not_marked
    derived = len(score.derived_rightly) + len(score.derived_wrongly)
    assert len(score.derived_wrongly) <= 0.05 * derived, score.derived_wrongly
    assert len(score.derived_rightly) >= 3
