"""Thresholds move by what people decided: enough of them, inside bounds, one step at a time; and every step is taken back."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from cmserver.base.errors import Conflict
from cmserver.base.ids import new_id
from cmserver.observations.model import Observation
from cmserver.steward.model import POLICIES, DerivationCounts, PolicyChange, SuggestionCounts
from cmserver.steward.plan import plan_team
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.policies.tune import choose_change
from cmserver.steward.undo import undo_run
from tests.conftest import Cast
from tests.steward.corpus import Note
from tests.steward.test_runs import plant_pair
from tests.steward.tools import Keeper, write_note

USUAL = {key: bounds.usual for key, bounds in POLICIES.items()}
MERGE, CONFIDENCE, NOVELTY = "auto_merge.threshold", "derive.confidence", "derive.novelty"
NONE = (0, 0)


def test_the_first_change_that_enough_people_speak_for():
    table: list[tuple[str, dict[str, float], tuple[int, int], tuple[int, int], tuple[str, float] | None]] = [
        ("few decisions", {}, (0, 99), (0, 99), None),
        ("few accepted", {}, (34, 66), NONE, (MERGE, 0.93)),
        ("most accepted", {}, (81, 19), NONE, (MERGE, 0.915)),
        ("neither", {}, (50, 50), NONE, None),
        ("at the top", {MERGE: 0.97}, (0, 100), NONE, None),
        ("near the top", {MERGE: 0.965}, (0, 100), NONE, (MERGE, 0.97)),
        ("at the bottom", {MERGE: 0.90}, (100, 0), NONE, None),
        ("few kept", {}, NONE, (49, 51), (CONFIDENCE, 0.82)),
        ("most kept", {}, NONE, (76, 24), (NOVELTY, 0.19)),
        ("confidence at its top", {CONFIDENCE: 0.90}, NONE, (0, 100), None),
        ("novelty at its bottom", {NOVELTY: 0.15}, NONE, (100, 0), None),
        ("one at a time", {}, (0, 100), (0, 100), (MERGE, 0.93)),
    ]

    found = {
        name: choose_change(
            {**USUAL, **values},
            SuggestionCounts(accepted=accepted, dismissed=dismissed),
            DerivationCounts(kept=kept, rejected=rejected),
        )
        for name, values, (accepted, dismissed), (kept, rejected), _ in table
    }

    assert {name: change and (change.policy_key, change.new_value) for name, change in found.items()} == {
        row[0]: row[4] for row in table
    }


class Decisions:
    """Pairs of Alice's project about which somebody decides."""

    def __init__(self, keeper: Keeper, notes: list[Observation]) -> None:
        self._keeper = keeper
        self._pairs = iter(itertools.combinations(sorted(note.id for note in notes), 2))
        self._project = notes[0].project_id

    async def add(self, count: int, status: str, *, by: str = "bob", similarity: float = 0.95) -> None:
        """So many that were just accepted or dismissed."""
        async with self._keeper.db.system() as conn, conn.cursor() as cursor:
            await cursor.executemany(
                """
                INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason,
                                                       status, resolved_by, resolved_at)
                VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, 'vector', 'same', %s, %s, clock_timestamp())
                """,
                [
                    (self._keeper.team_id, self._project, left, right, similarity, status, by)
                    for left, right in itertools.islice(self._pairs, count)
                ],
            )


@pytest.fixture
async def decisions(keeper: Keeper, cast: Cast) -> Decisions:
    notes = [await write_note(keeper.db, cast.alice.project, Note(title=f"Note {number}")) for number in range(27)]
    return Decisions(keeper, notes)


async def tune(keeper: Keeper) -> str:
    """The reason of the run's decision."""
    await keeper.work("policy_tune")
    output = (await keeper.runs())[-1].output_snapshot or {}
    return str(msgspec.convert(output["reasons"], list[str])[0])


async def read(keeper: Keeper) -> dict[str, float]:
    async with keeper.db.tenant(keeper.team_id) as conn:
        return await thresholds.read_values(conn, keeper.team_id)


async def test_a_change_needs_a_hundred_new_decisions_of_people_and_is_taken_back(keeper: Keeper, decisions: Decisions):
    await keeper.switch("write")
    await decisions.add(99, "dismissed")
    await decisions.add(50, "dismissed", by="steward")
    await decisions.add(20, "dismissed", similarity=0.8)
    found = [await tune(keeper)]
    await decisions.add(1, "accepted")
    found += [await tune(keeper), await tune(keeper)]
    moved = await read(keeper)
    run = next(run for run in await keeper.runs() if run.status == "succeeded")
    async with keeper.db.tenant(keeper.team_id) as conn:
        (change,) = await policies.history(conn, keeper.team_id, limit=10)
        _, undone = await undo_run(conn, keeper.principal, run.id)
        with pytest.raises(Conflict):
            await thresholds.roll_back(conn, keeper.principal, MERGE)

    assert found == ["sample_too_small", "few_accepted", "sample_too_small"]
    assert moved == {**USUAL, MERGE: 0.93}
    assert (change.prior_value, change.sample_size, change.evidence) == (0.92, 100, {"accepted": 1, "dismissed": 99})
    assert [effect.kind for effect in undone] == ["policy_changed"]
    assert await read(keeper) == USUAL
    assert await tune(keeper) == "sample_too_small", "what people took back is not done again for the same reasons"


async def test_a_dry_run_moves_nothing_and_a_day_has_one_run_by_itself(keeper: Keeper, decisions: Decisions):
    await keeper.switch("dry_run")
    await decisions.add(100, "dismissed")

    assert await tune(keeper) == "few_accepted"
    assert await read(keeper) == USUAL
    for _ in range(2):
        await plan_team(keeper.db, keeper.settings, keeper.team_id)
    assert len(await keeper.runs()) == 1
    await keeper.switch("write")
    for _ in range(2):
        await plan_team(keeper.db, keeper.settings, keeper.team_id)
    assert [run.status for run in await keeper.runs()] == ["skipped", "succeeded"]


async def test_whatever_the_thresholds_are_without_a_model_only_the_same_text_is_merged(keeper: Keeper):
    """Also a value that somebody wrote by hand counts as its bound."""
    planted = await plant_pair(keeper, "longer")
    change = PolicyChange(id=new_id(), policy_key=MERGE, prior_value=0.92, new_value=0.1, reason="by hand", changed_by="alice")
    async with keeper.db.tenant(keeper.team_id) as conn:
        await policies.add(conn, keeper.team_id, change)
    await keeper.switch("write")

    await keeper.work("auto_merge")

    assert (await read(keeper))[MERGE] == POLICIES[MERGE].least
    assert len(await keeper.observations(planted.project)) == 2
