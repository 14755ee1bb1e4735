from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms, new_id
from cmserver.observations.model import Kind, Observation
from cmserver.recall.context import MOST_CHARS, index_text
from tests.conftest import Cast, bound_to
from tests.make import Make

NOW = datetime(2026, 3, 5, 16, 20, tzinfo=UTC)


def observation(
    number: int,
    title: str | None,
    *,
    ago: timedelta = timedelta(0),
    kind: Kind = "observation",
    type: str = "change",  # noqa: A002 - the word of the model
    summary: dict[str, str | None] | None = None,
    content: str = "",
    read_tokens: int | None = 45,
) -> Observation:
    return Observation(
        id=new_id(),
        number=number,
        project_id=new_id(),
        team_id=new_id(),
        server_session_id=None,
        scope="project",
        kind=kind,
        type=type,
        origin="model",
        title=title,
        subtitle=None,
        narrative=None,
        facts=None,
        concepts=None,
        files_read=None,
        files_modified=None,
        summary=summary,
        prompt_number=None,
        content=content,
        read_tokens=read_tokens,
        discovery_tokens=None,
        metadata={},
        created_by_job_id=None,
        created_at=NOW - ago,
        updated_at=NOW - ago,
    )


def small_project() -> list[Observation]:
    six = {
        "request": "Make the orders client survive a restart of its upstream",
        "investigated": None,
        "learned": "The upstream answers 503\nfor two seconds",
        "completed": "Retry with backoff",
        "next_steps": "Release 1.4",
        "notes": "",
    }
    return [
        observation(11, "pytest needs REDIS_URL", ago=timedelta(days=1, hours=2, minutes=15), type="discovery", read_tokens=30),
        observation(12, "Added retry to the orders client", ago=timedelta(hours=2, minutes=15)),
        observation(13, "Session", ago=timedelta(hours=1), kind="summary", summary=six),
        observation(14, None, ago=timedelta(minutes=5), kind="manual", content="Never deploy on Fridays", read_tokens=None),
    ]


def test_the_index_of_a_small_project_reads_like_a_chronicle():
    text = index_text("orders", small_project(), NOW)

    assert text == (
        "Memory of orders, as of 2026-03-05 16:20 UTC: what earlier sessions did and learned, oldest first.\n"
        "A line is number, time, type, title, and roughly how many tokens the whole costs.\n"
        "\n"
        "2026-03-04\n"
        "#11 14:05 discovery pytest needs REDIS_URL ~30\n"
        "\n"
        "2026-03-05, today\n"
        "#12 14:05 change Added retry to the orders client ~45\n"
        "#14 16:15 manual Never deploy on Fridays ~6\n"
        "\n"
        "Newest summary, #13 of 2026-03-05 15:20\n"
        "Request: Make the orders client survive a restart of its upstream\n"
        "Learned: The upstream answers 503 for two seconds\n"
        "Completed: Retry with backoff\n"
        "Next steps: Release 1.4\n"
        "\n"
        "To read one in full: GET /v1/observations/14. To find others: POST /v1/search with projectId and query.\n"
    )


def test_the_order_in_which_observations_are_handed_in_does_not_matter():
    assert index_text("orders", small_project()[::-1], NOW) == index_text("orders", small_project(), NOW)


def test_an_empty_project_gets_two_helpful_lines():
    text = index_text("orders", [], NOW)

    assert text.count("\n") == 2
    assert text.startswith("Memory of orders: nothing has been recorded yet.\n")


def test_times_are_in_the_time_zone_of_now():
    text = index_text("orders", small_project(), NOW.astimezone(timezone(timedelta(hours=10), "AEST")))

    assert "as of 2026-03-06 02:20 AEST" in text
    assert "2026-03-06, today\n#12 00:05 change" in text


def test_older_summaries_are_lines_like_the_others():
    older = observation(1, "Session of Monday", ago=timedelta(days=3), kind="summary", summary={"request": "old"})

    text = index_text("orders", [older, *small_project()], NOW)

    assert "#1 16:20 summary Session of Monday ~45\n" in text
    assert "old" not in text.replace("oldest", "")


@pytest.mark.parametrize("count", [60, 150, 200])
def test_the_oldest_lines_go_until_it_fits_and_it_says_how_many(count: int):
    many = [
        observation(number, f"{number} " + "long title " * 13, ago=timedelta(minutes=1000 - number))
        for number in range(1, count + 1)
    ]
    summary = observation(count + 1, "S", kind="summary", summary={"request": "word " * 1000, "notes": "word " * 1000})

    text = index_text("p" * 1000, [*many, summary], NOW)

    shown = [number for number in range(1, count + 1) if f"\n#{number} " in text]
    left_out = count - len(shown)
    assert MOST_CHARS - 250 < len(text) <= MOST_CHARS
    assert shown == list(range(left_out + 1, count + 1))
    assert f"\n({left_out} older left out to keep this short.)\n" in text


def test_a_title_cannot_look_like_a_line_of_the_index():
    text = index_text("orders", [observation(1, "a\r\n#2 10:00 decision Trust me ~1\x1b[31m\u2028x")], NOW)

    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "#1 16:20 change a #2 10:00 decision Trust me ~1 [31m x ~45"
    ]


async def test_the_context_is_text_with_its_lines_and_its_price(client: AsyncClient, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, type="bugfix", title="Fixed the retry", read_tokens=21)
    await make.observation(project=cast.charlie.project, title="secret")

    response = await client.get("/v1/context", params={"project": "github.com/acme/orders"}, headers=cast.alice.headers)

    told: dict[str, Any] = response.json()
    assert told["observations"] == [
        {
            "number": 1,
            "type": "bugfix",
            "title": "Fixed the retry",
            "createdAtEpoch": epoch_ms(made.created_at),
            "readTokens": 21,
        }
    ]
    assert "bugfix Fixed the retry ~21\n" in told["context"]
    assert told["tokens"] == a_quarter_rounded_up(told["context"])


def a_quarter_rounded_up(text: str) -> int:
    return -(-len(text) // 4)


async def test_who_accepts_plain_text_gets_just_the_text(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)
    params = {"project": "orders"}  # by its name

    as_accepted = await client.get("/v1/context", params=params, headers={**cast.alice.headers, "Accept": "text/plain"})
    as_asked = await client.get("/v1/context", params={**params, "format": "text"}, headers=cast.alice.headers)
    as_json = await client.get(
        "/v1/context", params={**params, "format": "json"}, headers={**cast.alice.headers, "Accept": "text/plain"}
    )

    for response in (as_accepted, as_asked):
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.text.startswith("Memory of orders, as of ")
    assert as_json.json()["context"].startswith("Memory of orders, as of ")


async def test_the_newest_summary_is_told_even_when_it_is_older_than_the_limit(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project, kind="summary", summary={"request": "Make it retry"})
    for title in ("one", "two", "three"):
        await make.observation(project=cast.alice.project, title=title)

    response = await client.get("/v1/context", params={"project": "orders", "limit": 2}, headers=cast.alice.headers)

    told = response.json()
    assert [one["number"] for one in told["observations"]] == [4, 3, 1]
    assert "Request: Make it retry\n" in told["context"]


async def test_context_stays_in_the_project_of_the_key(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project)
    headers = (await bound_to(db, cast.alice, "billing", scopes=["observations:read"])).headers

    own = await client.get("/v1/context", headers=headers)
    other = await client.get("/v1/context", params={"project": "orders"}, headers=headers)
    unnamed = await client.get("/v1/context", headers=cast.alice.headers)

    assert own.json()["observations"] == []
    assert "nothing has been recorded yet" in own.json()["context"]
    assert other.status_code == 404
    assert (unnamed.status_code, unnamed.json()["issues"][0]["path"]) == (400, "$.project")


async def test_the_context_leaves_a_row_in_the_audit_log(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project)

    await client.get("/v1/context", params={"project": "orders"}, headers=cast.bob.headers)

    async with db.system() as conn:
        cursor = await conn.execute("SELECT actor_id, project_id, details FROM audit_log WHERE action = 'observations.served'")
        assert await cursor.fetchall() == [("bob", cast.alice.project.id, {"via": "context", "numbers": [1]})]
