"""Pins of a team in which not all may read the words of others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.pins.guard import PinsBroken, check_upgrade
from tests.conftest import Cast, Person
from tests.doors.web.visitor import visit_as
from tests.personal.people import make_account, make_key
from tests.pins.tools import PROJECT
from tests.rows import rows

QUESTION = "what is the vault phrase"


@pytest.fixture
async def ann(db: Db, cast: Cast) -> Person:
    return await make_key(db, await make_account(db, cast.alice.team_id, "ann"))


@pytest.fixture
async def ben(db: Db, cast: Cast) -> Person:
    return await make_key(db, await make_account(db, cast.alice.team_id, "ben", is_owner=False))


@pytest.fixture
async def pinned(client: httpx.AsyncClient, ann: Person) -> None:
    """Ann's words, which nobody else may read, and a pin of hers on them."""
    await act(client, ann, "POST", "/v1/observations", {"projectId": PROJECT, "narrative": "The vault phrase is marmalade."}, 201)
    await act(client, ann, "PATCH", f"/v1/teams/{ann.team_id}", {"words": "nobody"})
    made = await add(client, ann)
    assert made["holds"]


async def act(client: httpx.AsyncClient, who: Person, method: str, path: str, body: object = None, status: int = 200) -> Any:
    answered = await client.request(method, path, json=body, headers=who.headers)
    assert answered.status_code == status, answered.text
    return answered.json()


async def add(client: httpx.AsyncClient, who: Person) -> Any:
    body = {"projectId": PROJECT, "question": QUESTION, "must": ["marmalade"], "onBreak": "refuse"}
    return await act(client, who, "POST", "/v1/pins", body, 201)


@pytest.mark.usefixtures("pinned")
async def test_an_upgrade_goes_by_all_words_whoever_checked_before(client: httpx.AsyncClient, db: Db, ben: Person):
    async with db.system() as conn:
        unchanged = await check_upgrade(conn)
    by_ben = await act(client, ben, "POST", "/v1/pins/check", {})
    await rows(db, "UPDATE observations SET ttl_seconds = 1, expires_at = now()")

    assert unchanged == []
    assert (by_ben["brokenCount"], by_ben["results"][0]["isLost"]) == (1, False)
    with pytest.raises(PinsBroken):
        async with db.system() as conn:
            await check_upgrade(conn)


@pytest.mark.usefixtures("pinned")
async def test_who_may_not_read_all_words_is_not_told_whether_they_answer_a_pin(
    client: httpx.AsyncClient, app: AsgiFrame, db: Db, ann: Person, ben: Person
):
    guess = await add(client, ben)
    await act(client, ann, "POST", "/v1/pins/check", {})
    told = [
        await act(client, ben, "GET", "/v1/pins"),
        await act(client, ben, "POST", "/v1/pins/check", {}),
        await act(client, ben, "PATCH", "/v1/pins/2", {"lines": 3}),
        await act(client, ben, "DELETE", "/v1/pins/2"),
    ]
    page = await (await visit_as(app, db, ben.team_id, "member")).get("/ui/pins")

    assert (guess["holds"], guess["isLost"]) == (False, False)
    assert [pin["holds"] for pin in told[0]["pins"]] == [None, None]
    assert [(result["holds"], result["isLost"]) for result in told[1]["results"]] == [(False, False)] * 2
    assert (told[2]["holds"], told[2]["isLost"], told[3]["holds"]) == (False, False, None)
    assert [row["holds"] for row in await rows(db, "SELECT holds FROM pins")] == [True]
    assert (QUESTION in page.text, ">holds<" in page.text, ">does not hold<" in page.text) == (True, False, False)
