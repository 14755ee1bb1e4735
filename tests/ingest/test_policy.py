"""When observations are made, by the policy of a project or its team: each event by itself, in bursts, at the end, or never."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import httpx
import msgspec
import pytest

from cmserver.access import announce
from cmserver.access.model import GenerationPolicy, Project
from cmserver.base import notifications
from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.ingest import session_lifecycle as sessions
from cmserver.ingest.door import LATEST_SECONDS, resolve_policy
from cmserver.ingest.model import EventSubmission
from cmserver.models.providers.model import Completion, Prompt
from cmserver.ops.repository import CONSERVATION
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted, completion, each_observed
from tests.ingest.test_api import event
from tests.timeouts import ENOUGH_SECONDS

AT_END = GenerationPolicy(mode="at_end")
PER_EVENT = GenerationPolicy(mode="per_event")


@pytest.fixture
def outbox(db: Db, notifier: JobNotifier, cast: Cast) -> Outbox:
    """Bursts are waited for: what is due at once was made so."""
    return Outbox(db, notifier, cast.alice.principal, cast.alice.project, debounce_seconds=3600)


def governed(project: Project, own: GenerationPolicy, team: GenerationPolicy | None = None) -> Project:
    return msgspec.structs.replace(project, policy=own, team_policy=team or GenerationPolicy())


async def session_of(outbox: Outbox) -> object:
    return await outbox.value("SELECT id FROM server_sessions")


async def end(outbox: Outbox) -> None:
    session_id = await session_of(outbox)
    async with outbox.db.tenant(outbox.principal.team_id) as conn:
        await sessions.end(conn, outbox.principal, session_id, source_adapter="api")  # pyright: ignore[reportArgumentType]


async def due_in_seconds(outbox: Outbox) -> float:
    found = await outbox.value("SELECT extract(epoch FROM due_at - now())::float8 FROM generation_lanes")
    assert isinstance(found, float)
    return found


def test_a_project_says_it_for_itself_its_team_for_what_it_leaves_open_and_the_settings_for_the_rest(cast: Cast):
    team = GenerationPolicy(mode="at_end", debounce_seconds=7, skip_event_types=["noise"], skip_tools=["Read"])
    own = GenerationPolicy(mode="burst", skip_event_types=["chatter"])

    both = resolve_policy(governed(cast.alice.project, own, team), 2)
    only_team = resolve_policy(governed(cast.alice.project, GenerationPolicy(), team), 2)
    neither = resolve_policy(cast.alice.project, 2)

    assert (both.mode, both.debounce_seconds) == ("burst", 7)
    assert (both.skip_event_types, both.skip_tools) == ({"noise", "chatter"}, {"Read"})
    assert (only_team.mode, only_team.debounce_seconds) == ("at_end", 7)
    assert (neither.mode, neither.debounce_seconds, neither.skip_tools) == ("burst", 2, frozenset())


def test_a_debounce_of_zero_is_one(cast: Cast):
    policy = resolve_policy(
        governed(cast.alice.project, GenerationPolicy(debounce_seconds=0), GenerationPolicy(debounce_seconds=7)), 2
    )

    assert (policy.debounce_seconds, policy.allows_gathering) == (0, False)


async def test_a_burst_waits_as_long_as_its_policy_says(outbox: Outbox):
    outbox.project = governed(outbox.project, GenerationPolicy(debounce_seconds=100))

    await outbox.put(3)

    assert 90 < await due_in_seconds(outbox) <= 100
    assert await (await outbox.hand(Scripted())).work() == 0


async def test_per_event_is_one_call_for_each_and_at_once(outbox: Outbox):
    outbox.project = governed(outbox.project, PER_EVENT)
    await outbox.put(3)
    provider = Scripted()

    batches = await (await outbox.hand(provider)).work()

    assert batches == 3
    assert [len(prompt.events) for prompt in provider.prompts] == [1, 1, 1]
    assert await outbox.statuses() == {"completed": 3}


async def test_a_policy_that_goes_back_to_bursts_gathers_again(outbox: Outbox):
    plain = outbox.project
    outbox.project = governed(plain, PER_EVENT)
    await outbox.put(2)
    outbox.project = governed(plain, GenerationPolicy(debounce_seconds=0))
    await outbox.put(2, first=2)
    provider = Scripted()

    await (await outbox.hand(provider)).work()

    assert [len(prompt.events) for prompt in provider.prompts] == [4]


async def test_a_stored_answer_is_applied_to_its_whole_batch_even_where_each_event_gets_its_own_call_now(outbox: Outbox):
    plain = outbox.project
    await outbox.put(3, at_once=True)
    hand = await outbox.hand(Scripted())
    (claim,) = await hand.claim()
    run = await outbox.value(
        "INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status, answer)"
        " SELECT gen_random_uuid(), %s, %s, %s, %s, 'observations', 'scripted', 'm', %s, 'answered', %s RETURNING id",
        claim.team_id,
        claim.project_id,
        claim.lane,
        claim.claim,
        claim.job_ids,
        '{"observations": [{"title": "of all three", "events": ["e1", "e2", "e3"]}]}',
    )
    await outbox.rows("UPDATE observation_generation_jobs SET generation_run_id = %s", run)
    async with outbox.db.system() as conn:
        await leases.requeue_all(conn, hand.worker_id)
    outbox.project = governed(plain, PER_EVENT)
    await outbox.put(1, first=3)

    claims = await (await outbox.hand(Scripted())).claim()

    assert [len(claim.job_ids) for claim in claims] == [3]


async def test_at_end_nothing_is_made_before_the_end_and_everything_then(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(45)
    provider = Scripted()
    hand = await outbox.hand(provider)

    before = await hand.work()
    async with outbox.db.system() as conn:
        woken = await leases.MAKE_STRAY_LANES_DUE.one(conn)
    still_before = await hand.work()
    await end(outbox)
    await hand.work()

    assert (before, woken, still_before) == (0, 0, 0)
    assert [(prompt.kind, len(prompt.events)) for prompt in provider.prompts[:3]] == [("observations", n) for n in (20, 20, 5)]
    assert provider.prompts[3].kind == "summary"
    assert await outbox.statuses() == {"completed": 46}


async def test_at_end_has_a_net_for_sessions_that_nothing_ever_ends(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(1)

    assert LATEST_SECONDS - 60 < await due_in_seconds(outbox) <= LATEST_SECONDS


async def test_at_end_an_event_without_a_session_has_no_end_to_wait_for(outbox: Outbox):
    outbox.project = governed(outbox.project, GenerationPolicy(mode="at_end", debounce_seconds=0))
    await outbox.put(2, session=None)

    assert await (await outbox.hand(Scripted())).work() == 2


async def test_at_end_whoever_waits_for_an_answer_gets_it_with_what_the_session_has_so_far(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(25)
    await outbox.put(1, first=25, at_once=True)
    provider = Scripted()

    await (await outbox.hand(provider)).work()

    assert [len(prompt.events) for prompt in provider.prompts] == [20, 6]


async def test_at_end_what_arrives_while_somebody_waits_for_a_batch_waits_for_the_end(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(1, at_once=True)

    async def late(prompt: Prompt) -> Completion:
        if len(provider.prompts) == 1:
            await outbox.put(3, first=1)
        return completion(each_observed(prompt))

    provider = Scripted(late)
    hand = await outbox.hand(provider)
    batches = await hand.work()
    after_it = await outbox.statuses()
    lane = await outbox.rows("SELECT worker_id, due_at > now() + interval '29 days' AS sleeps FROM generation_lanes")
    await end(outbox)
    await hand.work()

    assert batches == 1
    assert after_it == {"completed": 1, "queued": 3}
    assert lane == [{"worker_id": None, "sleeps": True}]
    assert await outbox.statuses() == {"completed": 5}


async def test_at_end_the_end_that_comes_while_a_batch_runs_is_not_lost(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(1, at_once=True)

    async def late(prompt: Prompt) -> Completion:
        if len(provider.prompts) == 1:
            await outbox.put(3, first=1)
            await end(outbox)
        return completion(each_observed(prompt))

    provider = Scripted(late)
    await (await outbox.hand(provider)).work()

    assert await outbox.statuses() == {"completed": 5}


async def test_at_end_a_policy_that_changes_to_bursts_takes_along_what_waits(outbox: Outbox):
    plain = outbox.project
    outbox.project = governed(plain, AT_END)
    await outbox.put(2)
    outbox.project = governed(plain, GenerationPolicy(debounce_seconds=0))
    await outbox.put(1, first=2)

    await (await outbox.hand(Scripted())).work()

    assert await outbox.statuses() == {"completed": 3}


@pytest.mark.parametrize("count", [1, 2])
async def test_a_lane_that_is_due_already_is_written_again_only_when_that_changes(outbox: Outbox, count: int):
    await outbox.put(count)
    before = await outbox.rows("SELECT xmin::text, due_at FROM generation_lanes")

    await outbox.put(count, first=count)
    after = await outbox.rows("SELECT xmin::text, due_at FROM generation_lanes")
    await outbox.rows("UPDATE generation_lanes SET due_at = NULL")  # as a claim does
    await outbox.put(count, first=2 * count)
    anew = await due_in_seconds(outbox)
    outbox.project = governed(outbox.project, PER_EVENT)
    await outbox.put(count, first=3 * count)

    assert after == before
    assert anew > 3000
    assert await outbox.rows("SELECT at_most, due_at <= now() AS is_due FROM generation_lanes") == [{"at_most": 1, "is_due": True}]


async def test_at_end_a_job_that_was_begun_and_put_back_does_not_wait_again(outbox: Outbox):
    outbox.project = governed(outbox.project, AT_END)
    await outbox.put(3)
    await outbox.rows("UPDATE generation_lanes SET due_at = now()")
    stopping = await outbox.hand(Scripted())
    await stopping.claim(max_events=2)
    async with outbox.db.system() as conn:
        await leases.requeue_all(conn, stopping.worker_id)

    await (await outbox.hand(Scripted())).work(max_events=1)

    assert await outbox.statuses() == {"completed": 2, "queued": 1}


async def test_what_a_policy_skips_is_stored_and_has_no_job_and_the_sums_hold(outbox: Outbox):
    outbox.project = governed(
        outbox.project, GenerationPolicy(skip_tools=["Read"]), GenerationPolicy(skip_event_types=["noise"], skip_tools=["Glob"])
    )
    recorded = [
        await outbox.recorder.record(
            outbox.principal,
            [
                EventSubmission(
                    event_type=event_type,
                    payload={"tool_name": tool},
                    content_session_id="s1",
                    project=outbox.project,
                    occurred_at=datetime.now(UTC),
                    origin="api",
                )
            ],
        )
        for event_type, tool in [("tool_use", "Read"), ("tool_use", "Glob"), ("noise", "Write"), ("tool_use", "Write")]
    ]

    assert [event.event.generate for (event,) in recorded] == [False, False, False, True]
    assert [event.job is not None for (event,) in recorded] == [False, False, False, True]
    async with outbox.db.system() as conn:
        (blue,) = [sums for sums in await CONSERVATION.all(conn) if sums.team_id == outbox.principal.team_id]
    assert blue.holds
    assert (blue.events, blue.jobs) == (1, 1)


async def test_a_teams_policy_holds_until_a_project_has_its_own(
    client: httpx.AsyncClient, cast: Cast, db: Db, notifier: JobNotifier
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    await outbox.rows(
        """UPDATE teams SET generation_policy = '{"mode": "at_end", "skipTools": ["Read"]}' WHERE id = %s""", cast.alice.team_id
    )
    provider = Scripted()
    hand = await outbox.hand(provider)

    await client.post("/v1/events", json=event(contentSessionId="c1"), headers=cast.alice.headers)
    by_team = await hand.work()
    await outbox.rows("""UPDATE projects SET generation_policy = '{"mode": "per_event"}' WHERE id = %s""", cast.alice.project.id)
    await client.post("/v1/events", json=event(contentSessionId="c1", payload={"tool_name": "Edit"}), headers=cast.alice.headers)
    skipped = await client.post("/v1/events", json=event(payload={"tool_name": "Read"}), headers=cast.alice.headers)
    by_project = await hand.work()

    assert (by_team, by_project) == (0, 2)
    assert "generationJob" not in skipped.json()


async def test_a_change_of_policy_is_effective_at_once_in_every_process(
    client: httpx.AsyncClient, cast: Cast, db: Db, hub: NotificationListener, notifier: JobNotifier
):
    changed = asyncio.Event()
    listening = asyncio.create_task(hub.listen([announce.CHANNEL]))
    try:
        await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
        first = await client.post("/v1/events", json=event(), headers=cast.alice.headers)
        hub.subscribe(announce.CHANNEL, lambda _: changed.set())
        async with db.tenant(cast.alice.team_id) as conn:  # as another process would
            await conn.execute("""UPDATE projects SET generation_policy = '{"skipEventTypes": ["tool_use"]}'""")
            await announce.drop_cached(conn, cast.alice.team_id)
        await asyncio.wait_for(changed.wait(), ENOUGH_SECONDS)

        second = await client.post("/v1/events", json=event(payload={"n": 2}), headers=cast.alice.headers)
    finally:
        listening.cancel()

    assert "generationJob" in first.json()
    assert "generationJob" not in second.json()


async def test_a_change_of_policy_that_no_process_hears_of_is_effective_after_half_a_minute(
    client: httpx.AsyncClient, cast: Cast, db: Db, hub: NotificationListener, monkeypatch: pytest.MonkeyPatch
):
    now = 0.0
    monkeypatch.setattr(notifications, "time", SimpleNamespace(monotonic=lambda: now))
    hub.listening.set()

    async def asks_for_a_job(number: int) -> bool:
        response = await client.post("/v1/events", json=event(payload={"n": number}), headers=cast.alice.headers)
        return "generationJob" in response.json()

    assert await asks_for_a_job(1)
    async with db.tenant(cast.alice.team_id) as conn:
        await conn.execute("""UPDATE projects SET generation_policy = '{"skipEventTypes": ["tool_use"]}'""")
    now = 29.9
    assert await asks_for_a_job(2)
    now = 30.0
    assert not await asks_for_a_job(3)
