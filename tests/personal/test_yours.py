"""What a session is told of what is its person's alone: at the end of its index, within its budget, and in no receipt."""

from __future__ import annotations

import re
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast, Person
from tests.personal.people import make_two
from tests.personal.test_personal import act, remember
from tests.rows import rows

Json = dict[str, Any]
PROJECT = "github.com/acme/orders"


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def start(client: AsyncClient, who: Person, session: str, source: str = "startup") -> str:
    began = {"hook_event_name": "SessionStart", "session_id": session, "source": source}
    answered = await client.post("/v1/hooks/claude-code", json=began, headers={**who.headers, "X-Cmserver-Project": PROJECT})
    return answered.json()["hookSpecificOutput"]["additionalContext"] if answered.content.strip() not in {b"", b"{}"} else ""


async def write(client: AsyncClient, who: Person, title: str) -> None:
    body = {"projectId": PROJECT, "type": "decision", "title": title, "narrative": f"{title} is what it says."}
    await act(client, who, "POST", "/v1/observations", body, 201)


async def test_each_has_their_own_taste_and_not_the_others(client: AsyncClient, two: tuple[Person, Person]):
    ann, ben = two
    await write(client, ann, "The queue retries")
    await remember(client, ann, "Answer me in German.")
    await remember(client, ben, "Answer me in English, no longer in German.")

    told = {who.principal.actor_id: await start(client, who, f"of {who.principal.actor_id}") for who in two}

    assert re.findall("^m.*$", told["ann"], re.MULTILINE) == ["m1 rule Answer me in German."]
    assert re.findall("^m.*$", told["ben"], re.MULTILINE) == ["m1 rule Answer me in English, no longer in German."]
    for text in told.values():
        assert "The queue retries" in text
        assert re.search(r"\nYours[^\n]*\nm1 [^\n]*\n</cmserver-context>\n$", text), text


async def test_a_project_that_knows_nothing_has_yours_and_a_key_of_nobodys_has_none(
    client: AsyncClient, two: tuple[Person, Person], cast: Cast
):
    ann, _ = two
    await remember(client, ann, "Answer me in German.")

    assert "Answer me in German." in await start(client, ann, "s")
    assert "Yours" not in await start(client, cast.alice, "t")


async def test_yours_takes_a_fifth_of_the_one_budget_and_no_receipt_tells_of_it(
    client: AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db
):
    ann, ben = two
    for place in range(60):
        await write(client, cast.alice, f"Thing number {place} of the {'long ' * 20} list")
    for place in range(40):
        await remember(client, ann, f"Law {place} {'of mine ' * 12}")

    told, other = await start(client, ann, "s"), await start(client, ben, "t")

    assert max(len(told), len(other)) <= 8_000 + 200
    yours = told[told.index("\nYours") :]
    assert "more: `cmserver mine list`" in yours
    assert 800 < len(yours) <= 1_640
    of_ann, of_ben = await rows(
        db,
        "SELECT left_out, left_out_count, tokens, budget_tokens, chars, details -> 'leftOut' AS counts, to_jsonb(c)::text AS whole"
        "  FROM context_injections c ORDER BY created_at",
    )
    assert "of mine" not in of_ann.pop("whole") + of_ben.pop("whole")
    assert of_ann == of_ben
    assert of_ann["left_out_count"] > 0


async def test_a_session_that_goes_on_is_told_what_is_new(client: AsyncClient, two: tuple[Person, Person]):
    ann, _ = two
    await write(client, ann, "The queue retries")
    await remember(client, ann, "Answer me in German.")
    await start(client, ann, "s")
    unchanged = await start(client, ann, "s", "resume")
    await remember(client, ann, "Be brief.")

    assert "Yours" not in unchanged
    assert re.findall("^m.*$", await start(client, ann, "s", "resume"), re.MULTILINE) == ["m2 rule Be brief."]
