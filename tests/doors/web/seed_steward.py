"""What the pages of the steward show: a merge, a dry run, jobs that were given up, and a threshold that was moved."""

from __future__ import annotations

import msgspec

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.steward.model import PolicyChange
from cmserver.steward.policies import repository as policies
from tests.conftest import Person
from tests.steward.corpus import all_cases
from tests.steward.tools import Keeper, plant


async def seed_steward(db: Db, settings: Settings, owner: Person, texts: list[str]) -> dict[str, str]:
    """Make it for the owner's team, with these texts; returns a `run` that wrote, and a `dry_run`."""
    keeper = Keeper(db, msgspec.structs.replace(settings, provider="offline"), owner.principal)
    for name in ("exact-0", "derivable-0", "deleted-0"):
        await plant(db, owner.principal, next(case for case in all_cases() if case.name == name))
    await keeper.switch("dry_run")
    dry_runs = {run.job_type: run for run in await keeper.work()}
    await keeper.switch("write")
    await keeper.enqueue(texts[0][:200], {"mode": "write", "note": texts[1]})
    await keeper.enqueue("auto_merge", {"mode": "write", "suggestionId": texts[1][:300]})
    runs = {run.job_type: run for run in await keeper.work("auto_merge", "recheck") if run.status == "succeeded"}
    await keeper.enqueue("derive", {"mode": "write"})
    change = PolicyChange(
        id=new_id(),
        policy_key="auto_merge.threshold",
        prior_value=0.92,
        new_value=0.93,
        reason="few_accepted",
        changed_by=texts[3][:100],
        sample_size=120,
        evidence={"accepted": 30, "dismissed": 90},
    )
    async with db.tenant(owner.team_id) as conn:
        await policies.add(conn, owner.team_id, change)
    return {"run": str(runs["auto_merge"].id), "dry_run": str(dry_runs["derive"].id)}
