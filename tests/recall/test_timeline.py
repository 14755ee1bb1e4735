"""What happened around an observation stays in the project of the key."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.recall.timeline import timeline
from tests.conftest import Cast, bound_to
from tests.make import Make


async def test_around_what_another_project_shares_a_bound_key_is_told_its_own_project(db: Db, cast: Cast, make: Make):
    billing = await bound_to(db, cast.alice, "billing")
    await make.observation(project=cast.alice.project, title="theirs")
    await make.observation(project=billing.project, title="own")
    shared = await make.observation(project=cast.alice.project, title="shared", scope="team")

    async with db.tenant(cast.alice.team_id) as conn:
        of_team = await timeline(conn, cast.alice.principal, None, f"#{shared.number}", before=5, after=5)
        of_project = await timeline(conn, billing.principal, None, f"#{shared.number}", before=5, after=5)

    assert [one.title for one in of_team.observations] == ["theirs", "shared"]
    assert [one.title for one in of_project.observations] == ["own", "shared"]
