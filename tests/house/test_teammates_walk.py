"""Two people of one team who may do everything in it: 20,000 requests of one of them, on every route, tool and page, in random
order, that name what is the other's alone in every way, or nothing. None of them shows it, and none changes it.

CMSERVER_TEST_WALK_REQUESTS says how many, CMSERVER_TEST_WALK_SEED repeats their order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.doors.web.page import Page
from cmserver.doors.web.routes import PAGES
from tests.conftest import Cast
from tests.doors.web.visitor import Visitor, visit_as
from tests.house import walk
from tests.house.test_walk import MARK, Teammates, forgetting_the_person, personal_rows, teammates, told
from tests.house.walk import Walker
from tests.process.program import measured

__all__ = ["teammates"]  # a fixture

REQUESTS = int(os.environ.get("CMSERVER_TEST_WALK_REQUESTS", "20000"))
SEED = int(os.environ.get("CMSERVER_TEST_WALK_SEED", "50"))
QUICK_REQUESTS = 400
_MAKES = frozenset({"project", "user", "team", "service_project", "key"})
"""What a request may make of a name that it is given."""
_FORMS = {"text": "x", "content": "x", "type": "note", "kind": "note", "confirm": "x", "version": "1", "once": "x", "scope": "user"}


class Wanderer:
    """Ben, with his key and signed in, who makes one request after the other that names what is `hers`.

    None may show one of the `sentences`, of which he may send a word himself.
    """

    def __init__(self, ben: Walker, hers: Sequence[str], sentences: Sequence[str], visitor: Visitor, random: Random) -> None:
        self._ben, self._sentences, self._visitor, self._random = ben, sentences, visitor, random
        self._stops = [stop for stop in walk.stops() if stop.path not in walk.ENDLESS]
        self._pages = [page for page in PAGES if isinstance(page, Page) and page.scope is not None and page.path != "/ui/live"]
        numbers = [name for name in hers if name.startswith("m")]
        self._names = [
            *hers,
            *(f"#{name}" for name in numbers),
            *(name.upper() for name in numbers),
            *(name[1:] for name in numbers),
        ]

    async def go(self, requests: int, token: str) -> list[str]:
        """What was shown in so many requests."""
        said: list[str] = []
        for _ in range(requests):
            said += await (self._open_page(token) if self._random.random() < 0.2 else self._call())
        return said

    async def _call(self) -> list[str]:
        stop = self._random.choice(self._stops)
        slots = [slot for slot in stop.slots if stop.reads or slot.kind not in _MAKES]
        if not slots and not stop.reads:
            return []
        values = {
            slot: self._name() for slot in self._random.sample(slots, self._random.randint(0 if stop.reads else 1, len(slots)))
        }
        answered = (await self._ben.send_values(stop, values)).without(*values.values())
        return [f"{stop.name} with {sorted(values.values())} shows it: {answered.body[:300]}"] if MARK in answered.body else []

    async def _open_page(self, token: str) -> list[str]:
        page = self._random.choice(self._pages)
        path = re.sub(r"\{\w+\}", lambda _: quote(self._name(), safe=""), page.path)
        if page.method == "GET":
            answered = await self._visitor.get(f"{path}?q={quote(self._random.choice([MARK, 'one', *self._names]))}")
        elif "{" in page.path and page.path.startswith(("/ui/mine/", "/ui/observations/")):
            form: dict[str, Any] = {**_FORMS, "back": f"/ui/mine/{self._name()}"}
            answered = await self._visitor.post(path, token=token, **form)
        else:
            return []
        text = answered.text.replace(f'value="{MARK}"', "")  # his own words in the box of the search
        return [f"{page.method} {path} shows it"] if any(sentence in text for sentence in self._sentences) else []

    def _name(self) -> str:
        return self._random.choice(self._names)


async def wander(mates: Teammates, app: AsgiFrame, db: Db, cast: Cast, *, requests: int, seed: int) -> Sequence[str]:
    """What Ben is shown of Ann's in so many requests."""
    visitor = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    token = await visitor.token("/ui/profile")
    hers = [way.hers for way in mates.anns.ways["personal"]]
    sentences = [f"{MARK} {word}, at {MARK}" for word in ("one", "two")]
    said = await Wanderer(mates.ben, hers, sentences, visitor, Random(seed)).go(requests, token)
    (own,) = [stop for stop in walk.stops() if stop.name == "GET /v1/personal-observations"]
    assert (await mates.ben.send(own)).status == 200, "he has asked for something until the end"
    return said


async def test_some_hundred_requests_of_a_teammate_show_nothing(teammates: Teammates, app: AsgiFrame, db: Db, cast: Cast):
    before = await personal_rows(db)

    said = await wander(teammates, app, db, cast, requests=QUICK_REQUESTS, seed=SEED)

    assert not said, told([*said])
    assert await personal_rows(db) == before


@pytest.mark.slow
async def test_many_requests_of_a_teammate_show_nothing_and_without_the_policy_they_do(
    teammates: Teammates, app: AsgiFrame, db: Db, cast: Cast
):
    before = await personal_rows(db)

    said = await wander(teammates, app, db, cast, requests=REQUESTS, seed=SEED)
    after = await personal_rows(db)
    with forgetting_the_person():
        behind_policy = await wander(teammates, app, db, cast, requests=REQUESTS // 10, seed=SEED + 1)
        unchanged = await personal_rows(db)
        async with walk.removed_policy(db, "personal_observations"):
            without_policy = await wander(teammates, app, db, cast, requests=REQUESTS // 10, seed=SEED + 1)

    assert not said, told([*said])
    assert not behind_policy, told([*behind_policy])
    assert before == after == unchanged
    assert without_policy, "the walk notices"
    measured(f"{REQUESTS} requests: {len(said)} leaks; {REQUESTS // 10} without the policy: {len(without_policy)} leaks")
