"""What a person finds from the first page in at most five clicks on links and buttons, without JavaScript."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.providers.model import Completion, FailureKind, Prompt, ProviderError
from tests.conftest import Cast
from tests.generation.tools import Outbox, Scripted
from tests.make import Make
from tests.web.visitor import Visitor, visit_as

MAX_CLICKS = 5
_LINK = re.compile(r'<a [^>]*href="([^"]+)"[^>]*>(.*?)</a>', re.DOTALL)


class Walker:
    """A person who clicks on what they read, and never types an address but the first."""

    def __init__(self, visitor: Visitor, page: httpx.Response) -> None:
        self.visitor = visitor
        self.page = page
        self.clicks = 0

    @classmethod
    async def begin(cls, visitor: Visitor) -> Walker:
        return cls(visitor, await visitor.get("/"))

    async def click(self, text: str) -> None:
        """Follow the first link on the page that reads so."""
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS
        for address, label in _LINK.findall(self.page.text):
            if " ".join(unescape(re.sub(r"<[^>]+>", " ", label)).split()) == text:
                self.page = await self.visitor.get(unescape(address))
                assert self.page.status_code == 200
                return
        raise AssertionError(f"there is no link {text!r} on {self.page.url}")

    async def send(self, action: str, **fields: str) -> None:
        """Fill in the form of that address and press its button."""
        self.clicks += 1
        assert self.clicks <= MAX_CLICKS
        assert f'action="{action}"' in self.page.text
        for name in fields:
            assert f'name="{name}"' in self.page.text
        self.page = await self.visitor.post(action, token=None, follow=True, **fields)
        assert self.page.status_code == 200, self.page.text


@pytest.fixture
async def walker(app: AsgiFrame, db: Db, cast: Cast) -> Walker:
    return await Walker.begin(await visit_as(app, db, cast.alice.team_id))


async def test_the_failed_job_and_its_providers_answer(walker: Walker, outbox: Outbox):
    def refuse(_: Prompt) -> Completion:
        said = Completion(text="I had rather not say.", model="script-1", input_tokens=10, output_tokens=5)
        raise ProviderError(FailureKind.REFUSED, "The model refused.", completion=said)

    await outbox.put(1)
    await (await outbox.hand(Scripted(refuse))).work()
    await outbox.put(3, session="waiting")

    await walker.click("Jobs")
    await walker.click("1 failed")
    await walker.click("event")

    assert "The model refused." in walker.page.text
    assert "I had rather not say." in walker.page.text


async def test_what_today_cost(walker: Walker, cast: Cast, make: Make):
    await make.run(project=cast.alice.project, input_tokens=1_000, cost_usd="1.75")

    await walker.click("Costs")

    assert "<strong>$1.75</strong> <span>today" in walker.page.text


async def test_a_budget_is_made(walker: Walker):
    await walker.click("Costs")
    await walker.click("Budgets")
    await walker.send("/ui/costs/budgets", period="month", max_usd="20.00")

    assert "$0.00 of $20.00" in walker.page.text
