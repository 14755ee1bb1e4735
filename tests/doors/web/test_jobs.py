"""The pages of jobs: states, filters, one job's life with its provider calls, retry and cancel of one and many, lanes, pauses."""

from __future__ import annotations

import re
from uuid import UUID, uuid4

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast
from tests.doors.web.visitor import signed_out, visit_as
from tests.generation.tools import Outbox, Scripted

HOSTILE = '<script>alert(1)</script>\u202e "><img src=x>' + "w" * 5000


def refusing(_: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, HOSTILE)


async def fail_jobs(outbox: Outbox, count: int = 1, session: str = "s1") -> list[UUID]:
    """Jobs that a provider refused for good."""
    recorded = await outbox.put(count, session=session)
    await (await outbox.hand(Scripted(refusing))).work(max_events=1)
    return [event.job.id for event in recorded if event.job]


async def test_a_failed_job_shows_with_its_error_and_its_project(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await fail_jobs(outbox)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page = await viewer.get("/ui/jobs?status=failed")

    assert page.status_code == 200
    assert "1 job<" in page.text
    assert "refused" in page.text
    assert cast.alice.project.name in page.text
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text
    assert "/ui/jobs/selected" not in re.sub(r'<form method="get" action="/ui/jobs/selected">', "", page.text)
    assert 'type="checkbox" name="id"' not in page.text, "a viewer chooses nothing"


async def test_filters_stand_in_the_address(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await fail_jobs(outbox)
    await outbox.put(2, session="waiting")
    alice = await visit_as(app, db, cast.alice.team_id)

    queued = await alice.get("/ui/jobs?status=queued")
    events = await alice.get("/ui/jobs?status=queued&source_type=session_summary")
    wrong = await alice.get("/ui/jobs?status=lost")
    wrong_time = await alice.get("/ui/jobs?since=yesterday")

    assert "2 jobs" in queued.text
    assert "No job matches the filter." in events.text
    assert wrong.status_code == 400
    assert wrong_time.status_code == 400


async def test_a_job_shows_its_log_and_the_provider_calls_with_answer_and_error(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    (job_id,) = await fail_jobs(outbox)
    owner = await visit_as(app, db, cast.alice.team_id, "owner")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")
    async with db.system() as conn:
        await conn.execute("UPDATE generation_runs SET answer = 'kept words of the model', status = 'unusable'")

    seen, less = await owner.get(f"/ui/jobs/{job_id}"), await viewer.get(f"/ui/jobs/{job_id}")

    assert seen.status_code == less.status_code == 200
    for text in (seen.text, less.text):
        assert "script-1" in text
        assert "What happened to the job" in text
        assert "<script>alert" not in text
    assert "kept words of the model" in seen.text
    assert "What a model was asked is not kept." in seen.text
    assert "Such a failure is not tried again by itself" in seen.text
    assert "cmserver jobs retry" not in seen.text
    assert "kept words of the model" not in less.text
    assert "Owners of the team see the answer" in less.text


async def test_one_job_is_retried_and_cancelled(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    (job_id,) = await fail_jobs(outbox)
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    retried = await alice.post(f"/ui/jobs/{job_id}/retry")
    cancelled = await alice.post(f"/ui/jobs/{job_id}/cancel")
    refused = await alice.post(f"/ui/jobs/{uuid4()}/retry")

    assert (retried.status_code, cancelled.status_code) == (200, 200)
    assert "The job is queued again." in retried.text
    assert "<dd>1 of 4: a retry by a person allows three more</dd>" in retried.text
    assert "Cancel the job" in retried.text
    assert "The job is cancelled." in cancelled.text
    assert await outbox.value("SELECT status FROM observation_generation_jobs WHERE id = %s", job_id) == "cancelled"
    assert refused.status_code == 404


async def test_many_jobs_are_counted_before_they_are_retried(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    failed = await fail_jobs(outbox, 3)
    await outbox.put(1, session="waiting")
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    chosen = await alice.get(f"/ui/jobs/selected?act=retry&id={failed[0]}&id={failed[1]}")
    counted = await alice.get("/ui/jobs/selected?act=retry&status=failed")
    none = await alice.get("/ui/jobs/selected?act=retry&status=cancelled")
    done = await alice.post("/ui/jobs/selected", act="retry", status="failed")

    assert "Retry 2 jobs" in chosen.text
    assert "Retry 3 jobs" in counted.text
    assert "None of these jobs can be retried" in none.text
    assert "3 jobs were queued again." in done.text
    assert await outbox.value("SELECT count(*) FROM observation_generation_jobs WHERE status = 'failed'") == 0
    assert await outbox.value("SELECT sum((details ->> 'jobs')::int) FROM audit_log WHERE action = 'jobs.retried'") == 3


async def test_the_bar_above_the_list_says_how_many_its_acts_are_for(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await fail_jobs(outbox, 3)
    await outbox.put(1, session="waiting")
    alice = await visit_as(app, db, cast.alice.team_id, "member")
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")

    page, queued = await alice.get("/ui/jobs"), await alice.get("/ui/jobs?status=queued")
    link = re.search(r'href="([^"]+)">Retry 3 failed\u2026<', page.text)
    assert link is not None
    counted = await alice.get(link[1].replace("&amp;", "&"))
    none_chosen = await alice.get("/ui/jobs/selected?act=retry&chosen=true&status=failed")

    assert page.text.index("Retry 3 failed") < page.text.index("<table")
    assert "Cancel 1 queued or running\u2026" in page.text
    assert ("Retry 3" in queued.text, "Cancel 1 queued\u2026" in queued.text) == (False, True)
    assert "Retry 3 jobs" in counted.text
    assert none_chosen.status_code == 400
    assert "No job is chosen" in none_chosen.text
    assert "Retry" not in (await viewer.get("/ui/jobs")).text


async def test_queued_jobs_are_cancelled_together(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await outbox.put(2)
    alice = await visit_as(app, db, cast.alice.team_id, "member")

    done = await alice.post("/ui/jobs/selected", act="cancel", status="queued")
    impossible = await alice.get("/ui/jobs/selected?act=cancel&status=failed")

    assert "2 jobs were cancelled." in done.text
    assert impossible.status_code == 400


async def test_another_team_and_a_signed_out_visitor_see_nothing(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    (job_id,) = await fail_jobs(outbox)
    charlie = await visit_as(app, db, cast.charlie.team_id)

    listed = await charlie.get("/ui/jobs")
    one = await charlie.get(f"/ui/jobs/{job_id}")
    acted = await charlie.post("/ui/jobs/selected", act="retry", id=job_id)
    away = await signed_out(app).client.get(f"/ui/jobs/{job_id}")

    assert "There are no jobs yet" in listed.text
    assert one.status_code == 404
    assert "0 jobs were queued again." in acted.text
    assert (away.status_code, away.headers["location"][:11]) == (303, "/ui/sign-in")


async def test_lists_of_many_jobs_have_pages(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await outbox.put(120)
    alice = await visit_as(app, db, cast.alice.team_id)

    first = await alice.get("/ui/jobs")
    next_page = re.search(r'rel="next" href="([^"]+)"', first.text)
    assert next_page is not None
    second = await alice.get(next_page[1].replace("&amp;", "&"))

    lists = [page.text.partition('<section aria-labelledby="hours"')[0] for page in (first, second)]
    assert [text.count("data-row") for text in lists] == [50, 50]
    assert len(first.content) < 100_000


async def test_lanes_show_what_they_wait_for(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await outbox.put(2)
    viewer = await visit_as(app, db, cast.alice.team_id, "viewer")
    charlie = await visit_as(app, db, cast.charlie.team_id)

    mine, theirs = await viewer.get("/ui/jobs/lanes"), await charlie.get("/ui/jobs/lanes")
    held = await viewer.get("/ui/jobs/lanes?state=held")

    assert "a free worker" in mine.text
    assert re.search('<td[^>]* class="number">2</td>', mine.text)
    assert "No lane has work." in theirs.text
    assert "No lane has work." in held.text


async def test_a_paused_provider_is_resumed_by_an_operator_only(app: AsgiFrame, db: Db, cast: Cast):
    async with db.system() as conn:
        await calls.pause_provider(conn, "anthropic", "quota_exhausted", HOSTILE, 600)
    owner = await visit_as(app, db, cast.alice.team_id)
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    seen = await owner.get("/ui/jobs/providers")
    refused = await owner.post("/ui/jobs/providers/anthropic/resume")
    resumed = await operator.post("/ui/jobs/providers/anthropic/resume")
    unknown = await operator.post("/ui/jobs/providers/nobody/resume")

    assert "An operator of the server can end the pause." in seen.text
    assert re.search(r"in use</span>.*Paused .* and is asked again <time[^>]*>in 10 minutes", seen.text, re.DOTALL)
    assert re.search(r"<strong>anthropic</strong>[^<]*<span[^>]*>paused</span> <span[^>]*>not in use now", seen.text)
    assert "wwww" not in seen.text, "the provider's own words may quote any team's request"
    assert refused.status_code == 403
    assert "anthropic is asked again." in resumed.text
    assert unknown.status_code == 404


async def test_workers_are_for_operators(app: AsgiFrame, db: Db, outbox: Outbox, cast: Cast):
    await outbox.hand(Scripted())
    owner = await visit_as(app, db, cast.alice.team_id)
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    refused, seen = await owner.get("/ui/jobs/workers"), await operator.get("/ui/jobs/workers")

    assert refused.status_code == 403
    assert "alive" in seen.text
    await outbox.rows("UPDATE generation_workers SET lease_seconds = 3600")
    await outbox.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '28 minutes'")
    silent = (await operator.get("/ui/jobs/workers")).text
    assert re.search(r">silent</span> for 28 min; its lease ends <time[^>]*>in 32 minutes<", silent)
    assert "alive" not in silent
