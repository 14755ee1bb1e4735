"""Undoing a run restores all that it wrote, or names what stands in the way and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from cmserver.base.db import Db
from cmserver.base.errors import Conflict
from cmserver.consolidation.combine import merge_observations
from cmserver.observations.model import Correction
from cmserver.observations.write import correct
from cmserver.ops.joining.join import join_projects
from cmserver.steward.model import StewardRun, UndoneEffect
from cmserver.steward.undo import undo_run
from tests.conftest import Cast
from tests.rows import rows
from tests.steward.test_runs import plant_pair
from tests.steward.tools import Keeper, Planted, write_note

NOT_COMPARED = {"version", "updated_at", "created_at", "content_search", "last_accessed_at"}


async def snapshot(db: Db, planted: list[Planted]) -> list[dict[str, Any]]:
    """All observations, relations and suggestions of these projects, but for versions and times."""
    ids = [one.project.id for one in planted]
    found = await rows(db, "SELECT * FROM observations WHERE project_id = ANY(%s) ORDER BY number", ids)
    found += await rows(db, "SELECT from_id, to_id, relationship FROM observation_relationships ORDER BY 1, 2")
    return [{name: value for name, value in row.items() if name not in NOT_COMPARED} for row in found]


async def undo(keeper: Keeper, run: StewardRun) -> list[UndoneEffect]:
    _, undone = await keeper.db.in_tenant(keeper.team_id, lambda conn: undo_run(conn, keeper.principal, run.id))
    return undone


async def test_undo_restores_everything_that_runs_wrote(keeper: Keeper):
    planted = [await plant_pair(keeper, name) for name in ("exact-0", "exact-1", "derivable-0", "deleted-0", "value-0")]
    before = await snapshot(keeper.db, planted)
    await keeper.switch("write")
    runs = [run for run in await keeper.work() if run.status == "succeeded"]
    assert await snapshot(keeper.db, planted) != before
    await keeper.switch("off")

    undone = [effect.kind for run in reversed(runs) for effect in await undo(keeper, run)]

    assert sorted(undone) == ["derived", "marked_stale", "marked_stale", "merged", "merged"]
    assert await snapshot(keeper.db, planted) == before
    assert all(run.undone_by == "alice" for run in await keeper.runs() if run.status == "succeeded")
    assert (await keeper.events(runs[0].job_id))[-1] == "run_undone"
    with pytest.raises(Conflict, match="undone already"):
        await undo(keeper, runs[0])
    await keeper.switch("write")
    await keeper.work("auto_merge", "derive")
    assert await snapshot(keeper.db, planted) == before, "what people took back is not done again"


async def test_undo_names_the_later_act_and_changes_nothing(keeper: Keeper, cast: Cast):
    merged, corrected, derived = [await plant_pair(keeper, name) for name in ("exact-0", "exact-1", "derivable-0")]
    await keeper.switch("write")
    runs = {run.project: run for run in await keeper.work("auto_merge", "derive") if run.status == "succeeded"}
    bob, db = cast.bob.principal, keeper.db
    other = await write_note(db, merged.project, merged.case.notes[0])
    rows_of = {one.case.name: await keeper.observations(one.project) for one in (merged, corrected, derived)}
    async with db.tenant(keeper.team_id) as conn:
        target = rows_of["exact-0"][0]
        await merge_observations(conn, bob, str(other.number), [target.number], "smart_merge")
        for name in ("exact-1", "derivable-0"):
            await correct(conn, bob, str(rows_of[name][-1].number), Correction(title="Bob knows better"))
    before = await snapshot(db, [merged, corrected, derived])

    refusals: list[str] = []
    for one in (merged, corrected, derived):
        with pytest.raises(Conflict) as caught:
            await undo(keeper, runs[one.project.canonical_id])
        refusals.append(str(caught.value))

    assert f"was merged into #{other.number} by bob" in refusals[0]
    assert all("corrected by bob" in refusal for refusal in refusals[1:])
    assert await snapshot(db, [merged, corrected, derived]) == before


async def test_undo_refuses_what_is_purged_or_wrote_nothing(keeper: Keeper):
    await plant_pair(keeper)
    await keeper.switch("write")
    (run,) = await keeper.work("auto_merge")
    await rows(keeper.db, "DELETE FROM observations WHERE superseded_at IS NOT NULL")
    await rows(keeper.db, "UPDATE observation_versions SET sources_purged_at = now()")

    with pytest.raises(Conflict, match="purged"):
        await undo(keeper, run)
    await keeper.work("policy_tune")
    with pytest.raises(Conflict, match="nothing to undo"):
        await undo(keeper, (await keeper.runs())[-1])


async def test_a_person_who_words_it_anew_takes_the_mark_away(keeper: Keeper, cast: Cast):
    planted = await plant_pair(keeper, "deleted-0")
    await keeper.switch("write")
    (run,) = await keeper.work("recheck")
    (stale,) = await keeper.observations(planted.project)
    assert stale.stale is not None

    async with keeper.db.tenant(keeper.team_id) as conn:
        fresh = await correct(conn, cast.bob.principal, str(stale.number), Correction(facts=["It lives elsewhere now."]))

    assert fresh.stale is None
    with pytest.raises(Conflict, match="corrected by bob"):
        await undo(keeper, run)


async def test_what_joins_another_project_can_still_be_undone_and_is_not_done_again(keeper: Keeper, cast: Cast):
    pair, derived, stays = [await plant_pair(keeper, name) for name in ("exact-0", "derivable-0", "derivable-1")]
    await keeper.switch("write")
    runs = {run.project: run for run in await keeper.work("auto_merge", "derive") if run.status == "succeeded"}
    await keeper.plan("derive")  # waits for a project that is joined meanwhile
    for joined in (pair, derived):
        await join_projects(keeper.db, keeper.principal, joined.project.canonical_id, stays.project.canonical_id)

    await keeper.drain()
    undone = [(await undo(keeper, runs[one.project.canonical_id]))[0].kind for one in (pair, derived)]
    await keeper.work("auto_merge", "derive")

    assert undone == ["merged", "derived"]
    rows_now = await keeper.observations(stays.project)
    assert len(rows_now) == sum(len(one.notes) for one in (pair, derived, stays)) + 1
    assert [row.agent for row in rows_now].count("steward") == 1
    assert all(run.status in ("succeeded", "skipped") for run in await keeper.runs())
