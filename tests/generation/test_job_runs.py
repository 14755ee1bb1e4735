"""One job over HTTP, with the newest call of a provider that was made for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx

from cmserver.base.db import Db
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast, mint
from tests.generation.tools import Outbox, Scripted, completion, each_observed

RUN = {
    "id",
    "provider",
    "model",
    "status",
    "errorClass",
    "errorMessage",
    "inputTokens",
    "outputTokens",
    "costUsd",
    "latencyMs",
    "createdAtEpoch",
}
REFUSAL = "I am sorry, I cannot look at this."


def refusing(_: Prompt) -> Completion:
    completion = Completion(
        text=REFUSAL, model="script-2", input_tokens=100, cache_read_tokens=20, cache_write_tokens=3, output_tokens=7
    )
    raise ProviderError(FailureKind.REFUSED, "The model refused.", completion=completion)


def overloaded(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.TRANSIENT, "Too much to do.")


async def put(outbox: Outbox, session: str = "s1") -> UUID:
    (recorded,) = await outbox.put(1, session=session)
    assert recorded.job is not None
    return recorded.job.id


async def detail(client: httpx.AsyncClient, cast: Cast, job_id: UUID, **params: str) -> Any:
    response = await client.get(f"/v1/jobs/{job_id}", headers=cast.alice.headers, params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_job_that_nobody_was_asked_for_has_no_call(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job = await detail(client, cast, await put(outbox))

    assert job.keys() == {"generationJob", "run"}
    assert job["run"] is None


async def test_a_refused_job_shows_its_call_and_to_an_admin_what_was_said(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast, db: Db
):
    job_id = await put(outbox)
    await (await outbox.hand(Scripted(refusing))).work()
    _, reader = await mint(db, cast.alice.team_id, "reader", scopes=["jobs:read"])

    run = (await detail(client, cast, job_id))["run"]
    whole = (await detail(client, cast, job_id, include="payload"))["run"]
    refused = await client.get(f"/v1/jobs/{job_id}?include=payload", headers={"X-Api-Key": reader})

    assert run.keys() == RUN
    assert (run["provider"], run["model"], run["status"]) == ("scripted", "script-2", "unusable")
    assert (run["errorClass"], run["errorMessage"]) == ("refused", "The model refused.")
    assert (run["inputTokens"], run["outputTokens"], run["costUsd"]) == (123, 7, None)
    assert whole == run | {"answer": REFUSAL}
    assert refused.status_code == 403
    assert REFUSAL not in refused.text


async def test_a_completed_job_shows_the_call_but_no_answer_any_more(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await put(outbox)
    await (await outbox.hand(Scripted())).work()
    await outbox.rows("UPDATE generation_runs SET cost_usd = 0.0125")

    run = (await detail(client, cast, job_id, include="payload"))["run"]

    assert (run["status"], run["errorClass"], run["answer"], run["costUsd"]) == ("applied", None, None, "0.0125")


async def test_of_several_calls_the_newest_is_shown_whatever_the_job_waits_for(
    client: httpx.AsyncClient, outbox: Outbox, cast: Cast
):
    job_id = await put(outbox)
    await (await outbox.hand(Scripted(refusing))).work()
    await outbox.rows("SELECT retry_job(%s)", job_id)
    await (await outbox.hand(Scripted(overloaded))).work()

    job = await detail(client, cast, job_id)

    assert job["generationJob"]["status"] == "queued"
    assert (job["run"]["status"], job["run"]["errorClass"]) == ("failed", "transient")


async def test_a_call_that_is_under_way_is_shown(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    job_id = await put(outbox)
    seen: list[Any] = []

    async def reply(prompt: Prompt) -> Completion:
        seen.append(await detail(client, cast, job_id))
        return completion(each_observed(prompt))

    await (await outbox.hand(Scripted(reply))).work()

    (job,) = seen
    assert (job["generationJob"]["status"], job["run"]["status"]) == ("processing", "asked")


async def test_each_job_shows_its_own_call(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    first = await put(outbox, "s1")
    await (await outbox.hand(Scripted())).work()
    second = await put(outbox, "s2")
    await (await outbox.hand(Scripted(refusing))).work()

    statuses = [(await detail(client, cast, job_id))["run"]["status"] for job_id in (first, second)]

    assert statuses == ["applied", "unusable"]
