"""A weak model loses nothing: what the rules make of events stands where a model says nothing of them that can be used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.metrics import metrics
from cmserver.base.settings import Settings
from cmserver.doors.web.templates import plural
from cmserver.ingest.model import EventSubmission
from cmserver.models.providers.model import Answer, Completion, DraftObservation, FailureKind, Prompt, ProviderError, Rules, Skip
from cmserver.ops.doctor.database import check_database
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.generation.tools import Outbox, Scripted, completion

EDIT = {"tool_name": "Edit", "tool_input": {"file_path": "/w/src/retry.py", "old_string": "TRIES = 3", "new_string": "TRIES = 5"}}
FAILURE = {
    "tool_name": "Bash",
    "tool_input": {"command": "pytest tests/test_retry.py"},
    "error": "Exit code 1\nE   AssertionError: tried 4 times\n1 failed, 3 passed in 0.21s",
}
COMMIT = {
    "tool_name": "Bash",
    "tool_input": {"command": "git commit -m 'Try five times'"},
    "tool_response": {"stdout": "[main 1a2b3c4] Try five times\n 1 file changed", "stderr": ""},
}
EVENTS: list[tuple[str, dict[str, Any]]] = [("tool_use", EDIT), ("tool_use_failure", FAILURE), ("tool_use", COMMIT)]


async def put_work(outbox: Outbox, session: str) -> None:
    """A change, a test that fails, and a commit."""
    submissions = [
        EventSubmission(
            event_type=event_type,
            payload={"cwd": "/w", **payload},
            source_event_id=f"{session}-{place}",
            content_session_id=session,
            project=outbox.project,
            occurred_at=datetime.now(UTC),
            origin="api",
        )
        for place, (event_type, payload) in enumerate(EVENTS)
    ]
    await outbox.recorder.record(outbox.principal, submissions)


async def titles(outbox: Outbox, session: str) -> set[str]:
    rows = await outbox.rows(
        "SELECT o.title FROM observations o JOIN server_sessions s ON s.id = o.server_session_id WHERE s.content_session_id = %s",
        session,
    )
    return {str(row["title"]) for row in rows}


def refuse(_prompt: Prompt) -> Completion:
    raise ProviderError(FailureKind.REFUSED, "The model refused.", completion=Completion(text="I can't help.", model="m"))


def say(text: str, *, truncated: bool = False) -> Scripted:
    return Scripted(lambda _prompt: Completion(text=text, model="m", input_tokens=9, output_tokens=3, truncated=truncated))


def count_unusable() -> float:
    labels = {"provider": "scripted", "usable": "no"}
    return metrics().registry.get_sample_value("cmserver_answers_total", labels) or 0.0


WEAK: dict[str, tuple[Scripted, str]] = {
    "prose": (say("The agent raised the number of tries and committed it."), "failed"),
    "empty": (say(""), "failed"),
    "white space": (say(" \n"), "failed"),
    "nothing, in prose": (say("nothing worth recording"), "failed"),
    "an empty list": (say('{"observations": []}'), "completed"),
    "a skip mark": (say('<skip reason="nothing worth recording"/>'), "completed"),
    "skip marks": (say('{"observations": [], "skipped": [{"event": "e1", "reason": "nothing worth recording"}]}'), "completed"),
    "marks as in the example of the prompt": (
        say('{"observations": [], "skipped": [{"event": "e1", "reason": ""}, {"event": "e2", "reason": " "}, {"event": "e3"}]}'),
        "completed",
    ),
    "half of JSON": (say('{"observations": [{"type": "cha'), "completed"),
    "no observation": (say('{"observations": [{"type": "change"}, {"title": ""}]}'), "completed"),
    "another schema": (say('{"result": "ok", "items": [1, 2]}'), "failed"),
    "cut": (say("I think that the", truncated=True), "failed"),
    "a refusal": (Scripted(refuse), "failed"),
}


@pytest.mark.parametrize("name", WEAK)
async def test_what_rules_find_stands_beside_an_answer_that_cannot_be_used(
    outbox: Outbox, client: httpx.AsyncClient, cast: Cast, name: str
):
    weak, status = WEAK[name]
    before = count_unusable()
    await put_work(outbox, "by rules")
    await (await outbox.hand(Rules())).work()
    expected = await titles(outbox, "by rules")
    assert len(expected) >= 2

    await put_work(outbox, "weak")
    await (await outbox.hand(weak)).work()

    assert await titles(outbox, "weak") >= expected
    jobs = await outbox.rows(
        "SELECT status, outcome_reason, last_error ->> 'reason' AS error FROM observation_generation_jobs ORDER BY seq DESC LIMIT 3"
    )
    assert {job["status"] for job in jobs} == {status}
    if status == "failed":
        assert {job["error"] for job in jobs} <= {"unusable_answer", "refused"}
    else:
        assert all(str(job["outcome_reason"]).startswith("unusable answer") for job in jobs)
    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()
    assert info["answers"]["usable"] == 0
    assert info["answers"]["unusable"] > 0
    assert count_unusable() > before


async def test_an_event_that_an_answer_passes_over_is_read_by_rules(outbox: Outbox):
    def reply(_prompt: Prompt) -> Completion:
        told = DraftObservation(title="The model tells of the change", type="change", events=["e1"])
        return completion(Answer(observations=[told], skipped=[Skip(event="e3", reason="its commit")]))

    await put_work(outbox, "half")
    await (await outbox.hand(Scripted(reply))).work()

    found = await titles(outbox, "half")
    assert "The model tells of the change" in found
    assert any("test_retry" in title for title in found), found
    assert len(found) == 2
    reasons = await outbox.rows("SELECT outcome, outcome_reason FROM observation_generation_jobs ORDER BY seq")
    assert [row["outcome"] for row in reasons] == ["observed", "observed", "skipped"]
    assert "passes over" in str(reasons[1]["outcome_reason"])
    assert reasons[2]["outcome_reason"] == "its commit"
    assert await outbox.value("SELECT status FROM generation_runs") == "applied"


async def test_an_answer_that_tells_of_all_events_gets_nothing_beside_it(outbox: Outbox):
    await put_work(outbox, "strong")
    await (await outbox.hand(Scripted())).work()

    assert await titles(outbox, "strong") == {"saw e1", "saw e2", "saw e3"}


async def test_an_answer_with_nothing_to_tell_is_usable_where_rules_find_nothing_either(
    outbox: Outbox, client: httpx.AsyncClient, cast: Cast
):
    await outbox.put(1, payload={"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {"stdout": "a b"}})
    await (await outbox.hand(say('{"observations": []}'))).work()

    assert await outbox.value("SELECT outcome_reason FROM observation_generation_jobs") == "nothing worth recording"
    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()
    assert info["answers"].items() >= {"usable": 1, "unusable": 0, "unanswered": 0}.items()


async def test_the_doctor_and_today_say_that_answers_could_not_be_used(
    outbox: Outbox, app: AsgiFrame, db: Db, settings: Settings, cast: Cast
):
    await put_work(outbox, "weak")
    await (await outbox.hand(say('{"observations": []}'))).work()
    findings = await check_database(db, settings)
    alice = await visit_as(app, db, cast.alice.team_id, "owner")
    page = await alice.get("/ui")

    assert [finding.message for finding in findings if finding.code == "provider.answers"] == [
        "1 of 1 answers of models in 24 hours could not be used."
    ]
    assert "0 usable answers, 1 unusable" in page.text
    assert "could not be used" not in page.text


async def test_calls_that_bring_no_answer_are_told_where_people_look(
    outbox: Outbox, app: AsgiFrame, client: httpx.AsyncClient, db: Db, settings: Settings, cast: Cast
):
    def late(_prompt: Prompt) -> Completion:
        raise ProviderError(FailureKind.TRANSIENT, "scripted did not answer within 5 seconds.")

    await put_work(outbox, "slow")
    await (await outbox.hand(Scripted(late))).work()
    findings = {finding.code: finding.message for finding in await check_database(db, settings)}
    alice = await visit_as(app, db, cast.alice.team_id, "owner", is_operator=True)
    answers = (await client.get("/v1/info", headers=cast.alice.headers)).json()["answers"]

    calls = int(answers["unanswered"])
    assert answers.items() >= {"usable": 0, "unusable": 0, "unanswered": calls}.items()
    assert calls > 0
    told = f"{calls} of {calls} calls of models in 24 hours brought no answer"
    assert findings["provider.silent"] == f"{told}. The last: scripted did not answer within 5 seconds."
    assert f"0 unusable, {plural(calls, 'call')} without an answer" in (await alice.get("/ui")).text
    assert "calls without an answer" in (await alice.get("/ui/model")).text


async def test_a_reason_for_each_event_is_an_answer(outbox: Outbox, client: httpx.AsyncClient, cast: Cast):
    marks = [Skip(event=f"e{place}", reason="a try that was given up") for place in (1, 2, 3)]

    await put_work(outbox, "honest")
    await (await outbox.hand(Scripted(lambda _prompt: completion(Answer(skipped=marks))))).work()

    assert await titles(outbox, "honest") == set()
    assert {str(row["outcome_reason"]) for row in await outbox.rows("SELECT outcome_reason FROM observation_generation_jobs")} == {
        "a try that was given up"
    }
    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()
    assert info["answers"].items() >= {"usable": 1, "unusable": 0, "unanswered": 0}.items()


async def test_what_rules_made_of_a_failed_job_goes_when_a_model_words_it_later(outbox: Outbox):
    await put_work(outbox, "again")
    await (await outbox.hand(Scripted(refuse))).work()
    by_rules = await titles(outbox, "again")
    await outbox.rows(
        "UPDATE observation_generation_jobs SET status = 'queued', attempts = 0, completed_at = NULL, failed_at = NULL RETURNING id"
    )

    await (await outbox.hand(Scripted())).work()

    assert by_rules
    assert await titles(outbox, "again") == {"saw e1", "saw e2", "saw e3"}


async def test_what_a_user_laid_down_stays_when_a_model_words_its_job_later(outbox: Outbox):
    rule = EventSubmission(
        event_type="user_prompt",
        payload={"prompt": "From now on never deploy on Fridays."},
        source_event_id="rule-1",
        content_session_id="rule",
        project=outbox.project,
        occurred_at=datetime.now(UTC),
        origin="api",
    )
    await outbox.recorder.record(outbox.principal, [rule])
    await (await outbox.hand(Scripted(refuse))).work()
    laid_down = await titles(outbox, "rule")
    await outbox.rows(
        "UPDATE observation_generation_jobs SET status = 'queued', attempts = 0, completed_at = NULL, failed_at = NULL RETURNING id"
    )

    await (await outbox.hand(Scripted())).work()

    assert len(laid_down) == 1
    assert await titles(outbox, "rule") == laid_down | {"saw e1"}
