"""Why a job waits, why one failed and what helps, and the steward's codes, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx

from cmserver.generation.operate.model import WaitingJob
from cmserver.generation.operate.words import (
    explain_details,
    explain_error,
    explain_help,
    explain_outcome,
    explain_waiting,
    in_words,
)
from cmserver.models.calls.budget import BUDGET
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.table import try_rows

LATER = datetime(2030, 1, 2, 14, 2, tzinfo=UTC)
SPENT = "The team's budget of this day is spent; generation continues when it is raised, or at 2030-01-02 14:02 UTC."


@try_rows(
    "fields, words",
    [
        ({"state": "due"}, "due; waits for a free worker"),
        ({"state": "due", "before": 1}, "due; waits for a free worker; behind 1 other of its session"),
        ({"state": "working", "before": 1200}, "behind 1,200 others of its session; a worker has its session now"),
        ({"state": "working"}, "next; a worker has its session now"),
        ({"state": "working", "is_of_steward": True}, "next; a worker has its project now"),
        ({"state": "waiting"}, "waits for the rest of its turn; due at 2030-01-02 14:02 UTC"),
        ({"state": "waiting", "is_of_steward": True}, "due at 2030-01-02 14:02 UTC"),
        ({"state": "waiting", "waits_for_end": True}, "waits for the end of its session, as its project wants it"),
        ({"state": "idle", "waits_for_end": True}, "waits for the end of its session, as its project wants it"),
        ({"state": "idle"}, "is made due within a minute"),
        (
            {"state": "held", "held_for": "anthropic", "held_reason": "paused: quota_exhausted"},
            "the provider anthropic is paused, as it has no credit or quota left; tried again at 2030-01-02 14:02 UTC",
        ),
        (
            {"state": "held", "held_for": "anthropic", "held_reason": "paused: by hand"},
            "the provider anthropic is paused; tried again at 2030-01-02 14:02 UTC",
        ),
        (
            {"state": "held", "held_reason": "back-off: transient", "before": 2},
            "the provider gave no answer this time; tried again at 2030-01-02 14:02 UTC; behind 2 others of its session",
        ),
        (
            {"state": "held", "held_reason": "back-off: executor_error", "is_of_steward": True},
            "an error of the program; tried again at 2030-01-02 14:02 UTC",
        ),
        (
            {"state": "held", "held_for": BUDGET, "held_reason": SPENT},
            f"{SPENT[:-1]}; tried again at 2030-01-02 14:02 UTC",
        ),
        ({"state": "held"}, "the last try failed; tried again at 2030-01-02 14:02 UTC"),
    ],
)
def test_why_a_job_waits(fields: dict[str, Any], words: str):
    usual: dict[str, Any] = {
        "id": "00000000-0000-0000-0000-000000000000",
        "is_of_steward": False,
        "waits_for_end": False,
        "before": 0,
        "due_at": LATER,
        "held_until": LATER,
        "held_reason": None,
        "held_for": None,
    }
    assert explain_waiting(WaitingJob(**{**usual, **fields})) == words


@try_rows(
    "error, words, helps",
    [
        (
            {"reason": "auth_invalid", "message": "anthropic answered 401."},
            "the provider refused the key: anthropic answered 401.",
            "Check the key of the provider; then retry it.",
        ),
        (
            {"reason": "refused", "message": "No."},
            "the provider refused to answer: No.",
            "Use another model or provider, then retry the job.",
        ),
        ({"reason": "key_revoked"}, "its key may no longer ask for it", "Retry it: it then runs with your key."),
        (
            {"reason": "bad_payload", "message": "Missing `target`"},
            "what it was told could not be read: Missing `target`",
            "Nothing is to be done: another version made it, and what is due is planned again.",
        ),
        (
            {"reason": "worker lost", "worker": "host:1"},
            "its worker was lost",
            "Retry it; when it fails so again,",
        ),
        *(
            (
                {"reason": "transient", "message": f"Ollama cannot be reached: {why}"},
                f"the provider gave no answer this time: Ollama cannot be reached: {why}",
                helps,
            )
            for why, helps in (
                ("nothing listens at http://127.0.0.1:11434/v1.", "Start the program that should listen there"),
                ("http://192.168.1.7:11434/v1: no connection", "Start the program that should listen there"),
                ("http://[::1]:11434/v1: no connection", "Start the program that should listen there"),
                ("http://localhost/v1: no connection", "Start the program that should listen there"),
                ("https://api.openai.com/v1: no connection", "Wait; if it persists"),
                ("no connection in time.", "Wait; if it persists"),
            )
        ),
        ({"reason": "new_code"}, "new code", "Retry it."),
        (None, "", "Retry it."),
    ],
)
def test_why_a_job_failed_and_what_helps(error: dict[str, object] | None, words: str, helps: str):
    assert explain_error(error) == words
    assert explain_help(error).startswith(helps)


@try_rows(
    "source_type, reason, words",
    [
        ("steward", "keep: below_threshold", "left to a person: less alike than the threshold of the team"),
        ("steward", "keep: differs, number", "left to a person: they differ, in a number"),
        ("steward", "merge: same_text, dry_run", "merge: the texts are the same, a dry run, which writes nothing"),
        ("steward", "mark: deleted, #3 changed_meanwhile", "mark as stale: a file is gone, #3 a text was changed meanwhile"),
        ("steward", "nothing: off", "nothing is to be done: the steward is off"),
        ("steward", "keep: some_new_code", "left to a person: some new code"),
        ("agent_event", "skip rule: read_only", "skip rule: read_only"),
        ("agent_event", None, ""),
    ],
)
def test_how_a_job_ended(source_type: str, reason: str | None, words: str):
    assert explain_outcome(source_type, reason) == words


@try_rows(
    "details, words",
    [
        ({"reason": "refused", "message": "No."}, "reason: the provider refused to answer; message: No."),
        ({"decision": "keep", "reasons": ["differs", "path"]}, "decision: left to a person; reasons: they differ, in a path"),
        ({"run": None, "job_type": "auto_merge", "tokens": 7}, "job type: auto_merge; tokens: 7"),
        ({}, ""),
    ],
)
def test_an_entry_of_a_history(details: dict[str, object], words: str):
    assert explain_details(details) == words


def test_a_text_that_is_no_code_stays():
    assert in_words("asked for by ann_b: Fix It") == "asked for by ann b: Fix It"
    assert in_words(["differs", "path"]) == "they differ, in a path"


async def test_the_list_and_one_job_say_why_it_waits(client: httpx.AsyncClient, outbox: Outbox, cast: Cast):
    await outbox.put(2, session="s1")

    async def list_reasons() -> list[str | None]:
        listed = (await client.get("/v1/jobs", headers=cast.alice.headers)).json()["jobs"]
        shown = [(await client.get(f"/v1/jobs/{job['id']}", headers=cast.alice.headers)).json() for job in listed]
        reasons = [job["waitsFor"] for job in listed]
        assert [one["generationJob"]["waitsFor"] for one in shown] == reasons
        return reasons

    assert await list_reasons() == ["due; waits for a free worker; behind 1 other of its session", "due; waits for a free worker"]
    await outbox.rows(
        "UPDATE generation_lanes SET held_until = '2030-01-02 14:02+00', due_at = '2030-01-02 14:02+00', held_for = 'ollama',"
        " held_reason = 'paused: transient'"
    )
    why = "the provider ollama is paused, as it gave no answer this time; tried again at 2030-01-02 14:02 UTC"
    assert await list_reasons() == [f"{why}; behind 1 other of its session", why]
    await outbox.rows("UPDATE generation_lanes SET held_until = NULL, due_at = now()")
    await (await outbox.hand(Scripted())).work()
    assert await list_reasons() == [None, None]
