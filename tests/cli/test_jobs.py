from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.wire import JobsOut
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.cli.conftest import Cms
from tests.conftest import Cast, Person, mint
from tests.generation.tools import Outbox, Scripted, all_skipped, completion
from tests.steward.tools import insert_job

ORDERS = "github.com/acme/orders"


class Stored(msgspec.Struct, rename="camel"):
    generation_job: Named


class Named(msgspec.Struct):
    id: str


@pytest.fixture
async def job(client: httpx.AsyncClient, cast: Cast) -> str:
    """A waiting job of Alice's."""
    return await queued(client, cast.alice)


async def queued(client: httpx.AsyncClient, who: Person, project: str = ORDERS, **fields: str) -> str:
    event = {
        **fields,
        "projectId": project,
        "sourceType": "hook",
        "eventType": "tool_use",
        "occurredAtEpoch": 1_750_000_000_000,
        "payload": {"tool_name": "Bash"},
    }
    answer = await client.post("/v1/events", headers=who.headers, json=event)
    assert answer.status_code == 201, answer.text
    return msgspec.json.decode(answer.content, type=Stored).generation_job.id


async def test_the_queue_is_told_in_numbers(cms: Cms, cast: Cast, job: str):
    said = await cms("jobs", "status", key=cast.alice.key)

    told = dict(line.rsplit("  ", 1) for line in said.out.splitlines())
    assert {name.strip(): value for name, value in told.items()}["waiting"] == "1"


async def test_jobs_are_listed_by_state_and_project(client: httpx.AsyncClient, cms: Cms, cast: Cast, job: str):
    other = await queued(client, cast.alice, "github.com/acme/bills")

    everything = await cms("jobs", "list", key=cast.alice.key)
    of_bills = await cms("jobs", "list", "--project", "github.com/acme/bills", key=cast.alice.key)
    failed = await cms("jobs", "list", "--status", "failed", key=cast.alice.key)

    assert set(everything.column("id")) == {job, other}
    assert of_bills.column("id") == [other]
    assert failed.out == "There are no such jobs.\n"


async def test_jobs_are_listed_by_the_names_of_project_and_session(client: httpx.AsyncClient, cms: Cms, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "jobs", scopes=["jobs:read"])
    session = await client.post(
        "/v1/sessions/start", headers=cast.alice.headers, json={"projectId": ORDERS, "contentSessionId": "s"}
    )
    session_id = session.json()["session"]["id"]
    await client.patch(f"/v1/sessions/{session_id}", headers=cast.alice.headers, json={"title": "Retry the upload"})
    await queued(client, cast.alice, contentSessionId="s")

    named = await cms("jobs", "list", key=cast.alice.key)
    blind = await cms("jobs", "list", key=key)

    assert (named.column("project"), named.column("session")) == ([ORDERS], ["Retry the upload"])
    assert (blind.column("project"), blind.column("session")) == ([str(cast.alice.project.id)], [session_id])


async def test_a_list_that_goes_on_says_so_beside_it(client: httpx.AsyncClient, cms: Cms, cast: Cast, job: str):
    other = await queued(client, cast.alice, "github.com/acme/bills")

    said = await cms("jobs", "list", "--limit", "1", "--json", key=cast.alice.key)
    shown = await cms("jobs", "list", "--limit", "1", key=cast.alice.key)

    assert [str(job.id) for job in said.read(JobsOut).jobs] == [other]
    assert "--limit" in shown.err


async def test_failed_jobs_are_shown_with_their_reason(cms: Cms, cast: Cast, db: Db, notifier: JobNotifier):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.put()
    await (await outbox.hand(Scripted(refuse))).work()

    said = await cms("jobs", "failed", key=cast.alice.key)
    (job,) = said.column("id")

    assert said.column("status") == ["failed"]
    assert said.out.endswith("  the provider refused to answer: The model refused.\n")
    assert "the provider refused to answer: The model refused." in (await cms("jobs", "show", job, key=cast.alice.key)).out


def refuse(_prompt: Prompt) -> Completion:
    said = Completion(text="I am sorry.\nNo\x1b[2J.", model="script-2", input_tokens=1200, output_tokens=7)
    raise ProviderError(FailureKind.REFUSED, "The model refused.", completion=said)


async def test_a_job_is_shown_with_its_call_and_what_was_said(cms: Cms, cast: Cast, outbox: Outbox):
    await outbox.put()
    await (await outbox.hand(Scripted(refuse))).work()
    (job,) = (await cms("jobs", "failed", key=cast.alice.key)).column("id")

    shown = (await cms("jobs", "show", job, key=cast.alice.key)).out
    whole = (await cms("jobs", "show", job, "--answer", key=cast.alice.key)).out

    assert "scripted (script-2): unusable" in shown
    assert "1,200 tokens in, 7 out\n" in shown
    assert "the provider refused to answer: The model refused." in shown
    assert "I am sorry." not in shown
    assert whole.endswith("\n\nI am sorry.\nNo.\n")


async def test_a_skipped_job_shows_why(cms: Cms, cast: Cast, outbox: Outbox):
    await outbox.put()
    await (await outbox.hand(Scripted(lambda prompt: completion(all_skipped(prompt))))).work()
    (job,) = (await cms("jobs", "list", key=cast.alice.key)).column("id")

    shown = (await cms("jobs", "show", job, key=cast.alice.key)).out

    assert any(line.split() == ["outcome", "skipped:", "not", "worth", "it"] for line in shown.splitlines()), shown


async def test_a_running_job_is_told_to_stop(cms: Cms, cast: Cast, db: Db, notifier: JobNotifier):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.put()
    await (await outbox.hand(Scripted())).claim()
    (job,) = (await cms("jobs", "list", "--status", "processing", key=cast.alice.key)).column("id")

    assert (await cms("jobs", "cancel", job, key=cast.alice.key)).out == f"The job {job} is being stopped; it writes nothing.\n"


async def test_the_queue_is_not_told_to_a_key_that_may_not_read_jobs(cms: Cms, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "hooks", scopes=["events:write"])

    said = await cms("jobs", "status", key=key)

    assert (said.code, said.out) == (1, "")
    assert "jobs:read" in said.err


async def test_the_operator_is_told_the_queue_of_the_team(cms: Cms, cast: Cast, job: str):
    blue = await cms("jobs", "status", "--operator", "--team", "blue")
    red = await cms("jobs", "status", "--operator", "--team", "red")

    assert [line.split()[-1] for line in (blue.out + red.out).splitlines() if line.startswith("waiting")] == ["1", "0"]


async def test_a_job_is_shown_with_its_life(cms: Cms, cast: Cast, job: str):
    said = await cms("jobs", "show", job, key=cast.alice.key)

    about, _, life = said.out.partition("\n\n")
    assert "status       queued" in about
    assert life.splitlines()[0].split() == ["when", "what", "details"]
    assert " queued" in life.splitlines()[1]


async def test_a_job_is_cancelled_and_retried(cms: Cms, cast: Cast, job: str):
    async def alice(*words: str) -> str:
        return (await cms("jobs", *words, job, key=cast.alice.key)).out

    assert await alice("cancel") == f"The job {job} is cancelled.\n"
    assert await alice("cancel") == f"The job {job} was cancelled already.\n"
    assert await alice("retry") == f"The job {job} is queued again.\n"
    assert await alice("retry") == f"The job {job} was queued already.\n"


async def test_the_operator_cancels_for_the_team(cms: Cms, cast: Cast, job: str):
    said = await cms("jobs", "cancel", job, "--operator", "--team", "blue")

    assert said.out == f"The job {job} is cancelled.\n"
    assert (await cms("jobs", "cancel", job, "--operator", "--team", "red")).code == 1


async def test_many_jobs_are_retried_after_a_question_with_their_number(cms: Cms, cast: Cast, db: Db, notifier: JobNotifier):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.put(2, session="refused")
    await (await outbox.hand(Scripted(refuse))).work(max_events=1)

    unsure = await cms("jobs", "retry", "--all", key=cast.alice.key)
    both = await cms("jobs", "retry", "x", "--all", key=cast.alice.key)
    done = await cms("jobs", "retry", "--all", "--yes", key=cast.alice.key)
    cancelled = await cms("jobs", "cancel", "--all", "--yes", key=cast.alice.key)

    assert "pass --yes" in unsure.err
    assert "Name one job, or pass --all." in both.err
    assert done.out == "2 jobs are queued again.\n"
    assert "2 jobs are cancelled." in cancelled.out


async def test_lanes_workers_and_calls_are_listed(cms: Cms, cast: Cast, db: Db, notifier: JobNotifier):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    recorded = await outbox.put(1, session="refused")
    hand = await outbox.hand(Scripted(refuse))

    lanes = await cms("jobs", "lanes", key=cast.alice.key)
    workers = await cms("jobs", "workers", key=cast.alice.key)
    await hand.work()
    assert recorded[0].job is not None
    calls = await cms("jobs", "calls", str(recorded[0].job.id), key=cast.alice.key)

    assert lanes.column("state") == ["due"]
    assert workers.column("state") == ["alive"]
    assert "the provider refused to answer: The model refused." in calls.out


async def test_the_steward_s_jobs_are_listed_and_changed_as_all_others(cms: Cms, cast: Cast, db: Db, job: str):
    async with db.system() as conn:
        mine = str(await insert_job(conn, cast.alice.team_id, cast.alice.project.id, "derive", status="queued"))

    listed = await cms("jobs", "list", "--source", "steward", "--type", "derive", key=cast.alice.key)
    cancelled = await cms("jobs", "cancel", "--all", "--source", "steward", "--yes", key=cast.alice.key)
    moved = [await cms("steward", word, mine, key=cast.alice.key) for word in ("jobs", "retry", "cancel")]

    assert listed.column("id") == [mine]
    assert "steward: derive" in listed.out
    assert cancelled.out == "1 job is cancelled.\n"
    assert (await cms("jobs", "list", "--status", "queued", key=cast.alice.key)).column("id") == [job]
    assert [(said.code, "cmserver jobs " in said.err) for said in moved] == [(2, True)] * 3
