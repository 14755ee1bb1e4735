"""Rules beside models: they answer without a call, so nothing of a call is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cmserver.base.db import Db
from cmserver.models.providers.model import Answer, Completion, FailureKind, Prompt, ProviderError, Rules
from cmserver.rules.batch import observe
from cmserver.rules.summaries import summarise
from tests.conftest import Cast
from tests.generation.test_calls import end_session
from tests.generation.tools import Outbox, Scripted

NOTE = {"text": "We decided to use Postgres because it is one process less to look after."}


def count_transactions(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that gets an item for each transaction of a batch; single statements are the claim's and the notifier's."""
    begun: list[None] = []
    in_system: Any = Db.in_system

    def counted(self: Db, *args: Any, **options: Any) -> Any:
        begun.append(None)
        return in_system(self, *args, **options)

    monkeypatch.setattr(Db, "in_system", counted)
    return begun


async def test_a_batch_takes_four_transactions_with_rules_and_six_with_a_model(outbox: Outbox, monkeypatch: pytest.MonkeyPatch):
    by_rules, by_model = await outbox.hand(Rules()), await outbox.hand(Scripted())
    await outbox.put(1, payload=NOTE)
    (claim,) = await by_rules.claim()

    begun = count_transactions(monkeypatch)
    await by_rules.runner.run(claim)
    rules = len(begun)
    await outbox.put(1, first=1, payload=NOTE)
    (claim,) = await by_model.claim()
    begun.clear()
    await by_model.runner.run(claim)

    assert (1 + rules, 1 + len(begun)) == (4, 6)  # with the claim


async def test_rules_word_a_batch_and_a_summary_beside_the_event_loop(outbox: Outbox, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    threads: list[threading.Thread] = []

    def note_thread(function: Callable[..., Answer]) -> Callable[..., Answer]:
        def noted(*args: object) -> Answer:
            threads.append(threading.current_thread())
            return function(*args)

        return noted

    monkeypatch.setattr("cmserver.generation.run_batch.observe", note_thread(observe))
    monkeypatch.setattr("cmserver.generation.run_batch.summarise", note_thread(summarise))
    (recorded,) = await outbox.put(1, payload=NOTE)
    hand = await outbox.hand(Rules())
    await hand.work()
    await end_session(outbox, cast, recorded.event.server_session_id)
    await hand.work()

    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_rules_leave_no_run_and_are_named_by_what_they_made(outbox: Outbox):
    await outbox.put(1, payload=NOTE)

    await (await outbox.hand(Rules())).work()

    made = await outbox.rows("SELECT origin, metadata ->> 'provider' AS provider, metadata ->> 'model' AS model FROM observations")
    assert made == [{"origin": "rules", "provider": "offline", "model": "rules"}]
    assert await outbox.value("SELECT count(*) FROM generation_runs") == 0
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE generation_run_id IS NOT NULL") == 0


async def test_a_model_s_failed_call_keeps_its_run_when_rules_take_over(outbox: Outbox):
    await outbox.put(1, payload=NOTE)

    async def refuse(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.QUOTA_EXHAUSTED, "No credit.")

    await (await outbox.hand(Scripted(refuse), Rules())).work()

    assert await outbox.statuses() == {"completed": 1}
    assert [row["status"] for row in await outbox.rows("SELECT status FROM generation_runs")] == ["failed"]
    assert await outbox.value("SELECT origin FROM observations") == "rules"
