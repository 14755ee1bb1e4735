"""What the pages of jobs, costs and analytics show: a failed job with its calls, costs, budgets, a pause, and receipts."""

from __future__ import annotations

from decimal import Decimal

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.models.budgets import manage
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Person
from tests.generation.tools import Outbox, Scripted
from tests.make import Make


async def seed_work(db: Db, notifier: JobNotifier, owner: Person, texts: list[str]) -> dict[str, str]:
    """Make it for the owner's team, with these texts; returns the `job` that failed."""

    def refuse(_: Prompt) -> Completion:
        said = Completion(text=texts[0] + texts[1], model=f"model {texts[3]}"[:60], input_tokens=1200, output_tokens=70)
        raise ProviderError(FailureKind.REFUSED, texts[1], completion=said)

    outbox = Outbox(db, notifier, owner.principal, owner.project)
    failed = await outbox.put(2, session="refused")
    hand = await outbox.hand(Scripted(refuse), lease_seconds=3600)
    await hand.work(max_events=1)
    await outbox.put(3, session="waiting")
    await outbox.rows("UPDATE generation_runs SET answer = %s RETURNING 1 AS done", texts[0] + texts[1])
    make = Make(db)
    for days_ago in range(0, 25, 2):
        await make.run(project=owner.project, input_tokens=4_000, output_tokens=900, cost_usd="0.42", days_ago=days_ago)
    await make.run(project=owner.project, provider="ollama", model=texts[0], input_tokens=500)
    async with db.tenant(owner.team_id) as conn:
        await manage.put(conn, owner.principal, None, "month", max_tokens=None, max_usd=Decimal("20.00"))
        await manage.put(conn, owner.principal, str(owner.project.id), "day", max_tokens=1_000, max_usd=None)
    async with db.system() as conn:
        await calls.pause_provider(conn, "anthropic", "quota_exhausted", texts[1][:500], 3600)
        await conn.execute(
            """
            INSERT INTO context_injections (id, team_id, project_id, reason, platform_source, numbers, summary_numbers, left_out,
                                            left_out_count, tokens, budget_tokens, chars, created_at)
            SELECT gen_random_uuid(), %(team)s, %(project)s, 'startup', 'claude-code', '{1,2,3}', '{}', '{}', 0, 300, 2000, 900,
                   now() - day * interval '1 day' FROM generate_series(0, 20, 3) day
            """,
            {"team": owner.team_id, "project": owner.project.id},
        )
        await conn.execute("UPDATE server_sessions SET arm = 'told' WHERE team_id = %s", [owner.team_id])
    assert failed[0].job is not None
    return {"job": str(failed[0].job.id)}
