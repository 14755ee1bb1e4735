"""The queries of the pages use their indexes, as the tenant's role."""

from __future__ import annotations

from cmserver.access.audit.repository import readers
from cmserver.base.db import Db
from cmserver.ops.activity.repository import days, files, kinds
from cmserver.recall.receipts.repository import that_show
from tests.conftest import Cast
from tests.house.test_plans import WHOLE_SORT, cast, crowd, crowded, database, plan

__all__ = ["cast", "crowd", "crowded", "database"]  # fixtures


def of_project(cast: Cast, **values: object) -> dict[str, object]:
    return {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, **values}


async def test_days_kinds_and_files_read_the_newest_from_the_end_of_an_index(db: Db, crowd: Cast):
    for query, values in (
        (days.query, {"count": 30, "newest": 200}),
        (kinds.query, {"newest": 200}),
        (files.query, {"newest": 200, "limit": 15}),
    ):
        found = await plan(db, crowd.alice.team_id, query.text, of_project(crowd, **values))

        read = found[: found.index(" on observations")].rpartition("Limit")[2]
        assert "Backward using observations_" in read
        assert WHOLE_SORT.search(read) is None


async def test_the_readers_of_an_observation_are_looked_for_in_the_end_of_the_log(db: Db, crowd: Cast):
    async with db.system() as conn:
        await conn.execute(
            """
            INSERT INTO audit_log (team_id, actor_id, action, resource_type, details)
            SELECT CASE WHEN n %% 2 = 0 THEN %s::uuid ELSE %s::uuid END, 'somebody', 'observations.served', 'team',
                   '{"via": "get", "numbers": [1]}' FROM generate_series(1, 20000) n
            """,
            [crowd.alice.team_id, crowd.charlie.team_id],
        )
        await conn.execute("ANALYZE audit_log")
    values: dict[str, object] = {"team_id": crowd.alice.team_id, "number": 1, "project_id": None, "looked_at": 1_000, "limit": 20}

    found = await plan(db, crowd.alice.team_id, readers.query.text, values)

    assert "using audit_log_team" in found or "audit_log_pkey" in found
    assert "Seq Scan on audit_log" not in found


async def test_the_receipts_that_show_an_observation_are_read_from_the_end_of_their_index(db: Db, crowd: Cast):
    async with db.system() as conn:
        await conn.execute(
            """
            INSERT INTO context_injections (id, team_id, project_id, reason, numbers, summary_numbers, left_out, left_out_count,
                                            tokens, budget_tokens, chars, created_at)
            SELECT gen_random_uuid(), %s, %s, 'startup', ARRAY[n, n + 1], '{}', '{}', 0, 0, 0, 0, now() - n * interval '1 minute'
              FROM generate_series(1, 20000) n
            """,
            [crowd.alice.team_id, crowd.alice.project.id],
        )
        await conn.execute("ANALYZE context_injections")
    values = of_project(crowd, number=5, looked_at=1_000, limit=20)

    found = await plan(db, crowd.alice.team_id, that_show.query.text, values)

    assert "using context_injections_project" in found
    assert "Seq Scan on context_injections" not in found
    assert WHOLE_SORT.search(found.partition("Limit")[2].partition("Limit")[2]) is None
