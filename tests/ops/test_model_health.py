"""How the models do: their answers, the last error and today's cost, wherever people look."""

from __future__ import annotations

import re
from typing import Any

import httpx
from msgspec import structs

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.ops.model_health import describe_wording, read_model_health
from cmserver.ops.spending.wire import BudgetOut
from cmserver.ops.wire import AnswersOut, LastErrorOut
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as
from tests.make import Make
from tests.table import try_rows

NO_CREDIT: Any = {"status": "failed", "error": ("quota_exhausted", "anthropic answered 402: No credit.")}
SILENT: Any = {"status": "failed", "error": ("transient", "")}


async def make_calls(make: Make, project: Project, *calls: dict[str, Any]) -> None:
    for call in calls:
        await make.run(project=project, **call)


@try_rows(
    "name, calls, counts, error, tokens, cost",
    [
        ("no-call", [], (0, 0, 0), None, 0, "0.00"),
        ("usable", [{"input_tokens": 70, "output_tokens": 5, "cost_usd": "0.25"}], (1, 0, 0), None, 75, "0.25"),
        ("yesterday", [{"input_tokens": 70, "cost_usd": "0.25", "days_ago": 2}], (0, 0, 0), None, 0, "0.00"),
        ("failed", [{}, NO_CREDIT], (1, 0, 1), ("anthropic answered 402: No credit", "no answer since"), 0, "0.00"),
        ("over", [NO_CREDIT, {}], (1, 0, 1), ("anthropic answered 402: No credit", "answered since"), 0, "0.00"),
        (
            "by-another",
            [NO_CREDIT, {"provider": "ollama"}],
            (1, 0, 1),
            ("anthropic answered 402: No credit", "ollama has answered since"),
            0,
            "0.00",
        ),
        (
            "its-own-answer-first",
            [NO_CREDIT, {}, {"provider": "ollama"}],
            (2, 0, 1),
            ("anthropic answered 402: No credit", "answered since"),
            0,
            "0.00",
        ),
        ("newest", [NO_CREDIT, SILENT], (0, 0, 2), ("gave no answer this time", "no answer since"), 0, "0.00"),
        ("unusable", [{"status": "unusable", "error": ("unusable_answer", "x")}], (0, 1, 0), ("x", "no answer since"), 0, "0.00"),
        ("refused", [{"status": "failed", "error": ("refused", "No.")}], (0, 1, 0), ("No", "no answer since"), 0, "0.00"),
    ],
    ids=["no call", "usable", "yesterday", "failed", "over", "by another", "own first", "newest", "unusable", "refused"],
)
async def test_answers_error_and_cost_of_a_project(
    db: Db,
    settings: Settings,
    cast: Cast,
    make: Make,
    client: httpx.AsyncClient,
    name: str,
    calls: list[dict[str, Any]],
    counts: tuple[int, int, int],
    error: tuple[str, str] | None,
    tokens: int,
    cost: str,
):
    made = (await client.post("/v1/projects", json={"canonicalId": name}, headers=cast.alice.headers)).json()["project"]
    await make_calls(make, structs.replace(cast.alice.project, id=made["id"]), *calls)

    async with db.tenant(cast.alice.team_id) as conn:
        health = await read_model_health(conn, structs.replace(settings, provider="anthropic"), cast.alice.principal, made["id"])

    assert health is not None
    assert (health.usable, health.unusable, health.unanswered) == counts
    told = health.last_error
    assert (told and (told.sentence.removeprefix("anthropic (claude-haiku-5-5): "), health.since)) == error
    assert (health.tokens_today, health.cost_usd_today) == (tokens, cost)


async def test_rules_alone_say_nothing_of_models(app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)

    assert "answers" not in (await client.get("/v1/info", headers=cast.alice.headers)).json()
    assert (await client.get("/v1/doctor", headers=cast.alice.headers)).json()["answers"] is None
    for path in ("/ui", "/ui/model", "/ui/doctor", "/ui/jobs/providers"):
        page = await operator.get(path)
        assert page.status_code == 200
        assert "usable answer" not in page.text, path


async def test_status_doctor_and_pages_say_the_same(app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    await make_calls(make, cast.alice.project, {"input_tokens": 70, "output_tokens": 5, "cost_usd": "0.25"}, NO_CREDIT)
    await client.put("/v1/budgets", json={"period": "day", "maxUsd": "5"}, headers=cast.alice.headers)
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    wording = "own rules word the memory, without a model."
    sentence = "anthropic (claude-haiku-5-5): anthropic answered 402: No credit; anthropic is not in use now"

    info = (await client.get("/v1/info", headers=cast.alice.headers)).json()["answers"]
    doctor = (await client.get("/v1/doctor", headers=cast.alice.headers)).json()["answers"]

    assert [budget["spentUsd"] for budget in info["budgets"]] == ["0.25"]
    assert doctor == {**info, "budgets": []}
    for path in ("/ui", "/ui/model", "/ui/doctor", "/ui/jobs/providers"):
        text = (await operator.get(path)).text
        assert sentence in text, path
        assert "$0.25" in text, path
        assert wording in text, path
        assert "also of anthropic, not in use now" in text, path
        assert not re.search('class="warning"[^>]*>\\s*<p>(Last error|The server)', text), path
    assert (
        '<a href="/ui/model">Models</a> in 24 hours, of your team, also of anthropic, not in use now:'
        in (await operator.get("/ui")).text
    )
    assert "budget of the team by day: $0.25 of $5.00" in (await operator.get("/ui")).text


async def test_another_team_and_who_may_not_read_jobs_are_told_nothing(
    app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    await make_calls(make, cast.alice.project, NO_CREDIT)
    stranger = await visit_as(app, db, cast.charlie.team_id, "owner")

    assert "answers" not in (await client.get("/v1/info", headers=cast.charlie.headers)).json()
    assert "No credit" not in (await stranger.get("/ui")).text


def test_a_hostile_message_stays_on_one_line():
    error = LastErrorOut(
        provider="openai", model="m\x1b[2J", reason="transient", message="a\nb\x1b[2J\u202e", at_epoch=1, answered_by=None
    )

    assert error.sentence.isprintable()


@try_rows(
    "caps, text",
    [
        ({"max_usd": "5.00", "spent_usd": "0.25"}, "budget of the team by day: $0.25 of $5.00"),
        ({"max_tokens": 1000, "spent_tokens": 20}, "budget of the team by day: 20 of 1,000 tokens"),
        (
            {"max_usd": "5.00", "spent_usd": "0.25", "max_tokens": 1000, "spent_tokens": 20, "project": "shop"},
            "budget of the project shop by day: $0.25 of $5.00 and 20 of 1,000 tokens",
        ),
        ({"max_usd": "5.00"}, "budget of the team by day: nearly spent"),
    ],
)
def test_a_budget_in_words(caps: dict[str, Any], text: str):
    fields = ("project_id", "project", "max_tokens", "max_usd", "spent_tokens", "spent_usd", "share")
    given: dict[str, Any] = {**dict.fromkeys(fields), "period": "day", "state": "warned", "resets_at_epoch": 0, **caps}
    assert BudgetOut(**given).describe() == text


@try_rows(
    "provider, counts, answered_by, said",
    [
        ("offline", None, None, "The server's own rules word the memory, without a model."),
        ("ollama", None, None, "ollama words the memory."),
        ("ollama", (1, 0), None, "ollama words the memory. It works: the last answer could be used."),
        ("ollama", (1, 1), "ollama", "ollama words the memory. It works: the last answer could be used."),
        (
            "ollama,openai",
            (1, 1),
            "openai",
            "ollama words the memory, and where it fails openai. It works: the last answer, of openai, could be used.",
        ),
        ("openai", (1, 0), None, "openai words the memory."),
        ("openai", (1, 1), "", "openai words the memory."),
        ("openai", (1, 1), "ollama", "openai words the memory."),
        ("openai", (1, 1), "openai", "openai words the memory. It works: the last answer could be used."),
        (
            "ollama,offline",
            (0, 1),
            "",
            "ollama words the memory, and where it fails offline. It does not work now: no answer could be used since the last error.",  # noqa: E501
        ),
    ],
)
def test_one_sentence_says_who_words_the_memory(
    settings: Settings, provider: str, counts: tuple[int, int] | None, answered_by: str | None, said: str
):
    fields: dict[str, Any] = {"provider": "ollama", "model": "m", "reason": "transient", "message": "No.", "at_epoch": 1}
    error = None if answered_by is None else LastErrorOut(**fields, answered_by=answered_by or None)
    today: dict[str, Any] = {"tokens_today": 0, "cost_usd_today": "0", "unpriced_calls_today": 0, "budgets": []}
    not_in_use = [name for name in ["ollama"] if name not in provider]
    answers = counts and AnswersOut(
        usable=counts[0], unusable=0, unanswered=counts[1], last_error=error, not_in_use=not_in_use, **today
    )

    assert describe_wording(structs.replace(settings, provider=provider, model="m"), answers or None).replace(" (m)", "") == said
