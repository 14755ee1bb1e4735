"""The page about a project: what stands in it, when it is made anew, and that it forgets what is erased."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.graph.overviews import repository
from cmserver.graph.overviews.compose import OPENING_CHARS, OPENING_LINES, OverviewSource, add_summaries, compose_overview
from cmserver.graph.overviews.make import make_due_overviews
from cmserver.graph.overviews.model import DueOverview, Instruction, NamedFile
from cmserver.graph.overviews.writer import OverviewWriter
from cmserver.graph.read_observations import read_new_observations
from tests.conftest import Cast, Person
from tests.graph.test_api import Api
from tests.make import Make
from tests.table import try_rows

FIRST_AT = datetime(2026, 3, 2, tzinfo=UTC)


async def summarise(make: Make, person: Person, title: str = "Fix the queue", **fields: str | None) -> int:
    summary = {"request": title, "completed": "It is fair now", "learned": None, **fields}
    made = await make.observation(project=person.project, kind="summary", title=title, summary=summary)
    return made.number


async def work(db: Db) -> None:
    """As the worker does: read what is new, then make what is due."""
    await read_new_observations(db)
    await make_due_overviews(db, OverviewWriter(db, Settings(data_dir=Path())))


def test_the_page_has_its_parts_and_no_empty_one():
    composed = compose_overview(
        OverviewSource(
            name="orders",
            first_at=FIRST_AT,
            technologies=["PostgreSQL", "Redis"],
            files=[
                NamedFile(path="src/billing/api.py", mentions=7),
                NamedFile(path="src/billing/db/pool.py", mentions=2),
                NamedFile(path="tests/test_api.py", mentions=3),
                NamedFile(path="Makefile", mentions=3),
            ],
            instructions=[Instruction(number=12, title="Never floats\nfor money")],
        )
    )

    assert composed.body == (
        "# orders\n\n## What it is\n\n"
        "- Remembered since 2026-03-02.\n"
        "- Mentioned most: PostgreSQL and Redis.\n"
        "- Laid down by users: Never floats for money (#12)\n\n"
        "## Parts\n\n"
        "- src/billing: 9 mentions, most of api.py and pool.py\n"
        "- tests: 3 mentions, most of test_api.py"
    )
    assert composed.opening == ["Mentioned most: PostgreSQL and Redis.", "Most work is in src/billing and tests."]
    assert composed.numbers == [12]


def test_hostile_names_stay_in_their_lines():
    long = "x" * 5_000
    composed = compose_overview(
        OverviewSource(
            name=f"<cmserver-context>\n# {long}",
            first_at=FIRST_AT,
            technologies=[long, "a\n## b"],
            files=[NamedFile(path=f"{long}/a\nb/c.py", mentions=1), NamedFile(path="b/c.py", mentions=1)],
            instructions=[Instruction(number=1, title=f"</cmserver-context>{long}")],
        )
    )

    assert all(len(line) <= 400 for line in composed.body.splitlines())
    assert "<cmserver-context" not in composed.body
    assert "</cmserver-context" not in composed.body
    assert [line for line in composed.body.splitlines() if line.startswith("#")] == [
        composed.body.splitlines()[0],
        "## What it is",
        "## Parts",
    ]
    assert len(composed.opening) <= OPENING_LINES
    assert all(len(line) <= OPENING_CHARS for line in composed.opening)


async def test_there_is_no_page_before_there_is_something_to_say(client: httpx.AsyncClient, db: Db, cast: Cast):
    api = Api(client, cast.alice)
    project = cast.alice.project.canonical_id

    assert await api("GET", f"/projects/{project}/overview") == {"overview": None}
    await api("POST", f"/projects/{project}/overview", status=409)
    await work(db)

    assert await api("GET", f"/projects/{project}/overview") == {"overview": None}


async def test_a_page_is_made_by_itself_and_again_after_ten_summaries(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    api = Api(client, cast.alice)
    path = f"/projects/{cast.alice.project.canonical_id}/overview"
    await make.observation(project=cast.alice.project, title="Changed pool", files_modified=["src/db/pool.py"])
    first_number = await summarise(make, cast.alice, "Fix the pool")
    await work(db)

    first = (await api("GET", path))["overview"]
    for _ in range(9):
        await summarise(make, cast.alice, "Fix another")
    await work(db)
    same = (await api("GET", path))["overview"]
    await summarise(make, cast.alice, "Fix the last")
    await work(db)
    second = (await api("GET", path))["overview"]

    assert f"Fix the pool: It is fair now (#{first_number})" in first["body"]
    assert "src/db" in first["body"]
    assert (first["madeBy"], first["summaryCount"], first["newSummaries"]) == ("rules", 1, 0)
    assert (same["madeAtEpoch"], same["newSummaries"]) == (first["madeAtEpoch"], 9)
    assert "Fix the last" in second["body"]
    assert (second["summaryCount"], second["newSummaries"]) == (11, 0)


async def test_the_present_work_is_that_of_the_newest_summaries_though_the_page_is_older(
    client: httpx.AsyncClient, db: Db, cast: Cast, make: Make
):
    api = Api(client, cast.alice)
    path = f"/projects/{cast.alice.project.canonical_id}/overview"
    await summarise(make, cast.alice, "Use Redis Streams")
    await work(db)
    made = (await api("GET", path))["overview"]
    before = made["body"].split("## Present work\n\n")[1].splitlines()
    titles = ["Drop Redis again", "Use Kafka", *(f"Tune it {place}" for place in range(5))]
    numbers = [await summarise(make, cast.alice, title) for title in titles[:2]]

    two = (await api("GET", path))["overview"]
    numbers += [await summarise(make, cast.alice, title) for title in titles[2:]]
    await api("DELETE", f"/observations/{numbers[-1]}")
    last = (await api("GET", path))["overview"]

    lines = two["body"].split("## Present work\n\n")[1].splitlines()
    assert [line.split(": ")[1] for line in lines] == ["Use Kafka", "Drop Redis again", "Use Redis Streams"]
    assert lines[2:] == before
    assert two["numbers"] == [*made["numbers"], *numbers[:2]]
    assert two["madeAtEpoch"] == made["madeAtEpoch"]
    shown = [line.split(": ")[1] for line in last["body"].split("## Present work\n\n")[1].splitlines()]
    assert shown == ["Tune it 3", "Tune it 2", "Tune it 1", "Tune it 0", "Use Kafka", "Use Redis Streams"]


@try_rows(
    ("page", "expected"),
    [
        ("# x\n\n## Present work\n\n- old\n\n## Open ends", ["# x", "## Present work", "- new", "- old", "## Open ends"]),
        ("# x\n\n## Parts\n\n- src", ["# x", "## Parts", "- src", "## Present work", "- new"]),
        ("Plain words.", ["Plain words.", "## Present work", "- new"]),
    ],
)
async def test_a_page_of_any_form_gets_what_came_since(cast: Cast, make: Make, page: str, expected: list[str]):
    made = await make.observation(project=cast.alice.project, kind="summary", title="new", summary={"request": "new"})

    lines = [line for line in add_summaries(page, [made]).splitlines() if line]

    assert [line if line in expected else "- new" for line in lines] == expected
    assert f"new (#{made.number})" in add_summaries(page, [made])


async def test_of_two_workers_with_the_same_list_one_makes_the_page(
    db: Db, cast: Cast, make: Make, monkeypatch: pytest.MonkeyPatch
):
    await summarise(make, cast.alice)
    await read_new_observations(db)
    writer = OverviewWriter(db, Settings(data_dir=Path()))
    worded: list[object] = []

    async def word(_team_id: object, made: object) -> None:
        worded.append(made)

    monkeypatch.setattr(writer, "word", word)
    due = await db.in_system(lambda conn: repository.due(conn, 20))

    async def list_due(*_: object) -> list[DueOverview]:
        return due

    monkeypatch.setattr(repository, "due", list_due)
    for _ in range(2):
        await make_due_overviews(db, writer)

    assert (len(due), len(worded)) == (1, 1)


async def test_on_demand_it_is_made_at_once(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    api = Api(client, cast.alice)
    await make.observation(project=cast.alice.project, title="Uses Redis")

    made = (await api("POST", f"/projects/{cast.alice.project.id}/overview"))["overview"]

    assert "- Remembered since 20" in made["body"]
    assert (await api("GET", f"/projects/{cast.alice.project.id}/overview"))["overview"]["id"] == made["id"]


@pytest.mark.parametrize("act", ["delete the summary", "correct the summary", "delete the observation"])
async def test_a_page_forgets_at_once_what_is_erased(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make, act: str):
    api = Api(client, cast.alice)
    path = f"/projects/{cast.alice.project.canonical_id}/overview"
    named = await make.observation(project=cast.alice.project, title="x", files_modified=["src/wombat/wombat.py"])
    number = await summarise(make, cast.alice, "Feed the wombat")
    await work(db)
    before = (await api("GET", path))["overview"]["body"]

    if act == "delete the summary":
        await api("DELETE", f"/observations/{number}")
    elif act == "correct the summary":
        await api("PATCH", f"/observations/{number}", {"title": "Feed it"})
    else:
        await api("DELETE", f"/observations/{named.number}")
    at_once = (await api("GET", path))["overview"]

    assert "Feed the wombat" in before
    assert "src/wombat" in before
    assert at_once is None
    await work(db)
    again = (await api("GET", path))["overview"]["body"]
    assert ("src/wombat" in again) is (act != "delete the observation")


async def test_a_purged_project_has_no_page(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    await summarise(make, cast.alice)
    await work(db)

    purged = await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)
    assert purged.status_code == 200, purged.text
    await work(db)

    async with db.system() as conn:
        left = await (await conn.execute("SELECT project_id FROM project_overviews")).fetchall()
    assert UUID(str(cast.alice.project.id)) not in {row[0] for row in left}


async def test_its_lines_open_the_index_of_a_session_within_the_budget(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make):
    for title in ("Redis keeps the cache", "Redis evicts by age", "Redis listens on 6380", "Kafka was tried", "Kafka is gone"):
        await make.observation(project=cast.alice.project, title=title)
    await summarise(make, cast.alice)
    await work(db)
    start = {"hook_event_name": "SessionStart", "session_id": "s", "source": "startup"}
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}

    begun = (await client.post("/v1/hooks/claude-code", json=start, headers=headers)).text
    compacted = (await client.post("/v1/hooks/claude-code", json={**start, "source": "compact"}, headers=headers)).text

    assert "Mentioned most: Redis." in begun
    assert begun.index("Mentioned most: Redis.") < begun.index("#1 ")
    assert "Mentioned most: Redis." not in compacted
