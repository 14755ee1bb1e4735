"""Sessions of an agent with turns of several kinds, and their replay by a worker in the hand."""

from __future__ import annotations

import random
from typing import Any

import httpx

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.models.providers.model import Rules
from cmserver.replays.run_replay import run_replays
from tests.conftest import Cast
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox
from tests.rows import rows

PROJECT = "github.com/acme/orders"
_PROMPTS = (
    "Raise the limit of {name} to {n}00, please.",
    "Why does the export of {name} fail since {n}?",
    "never use floats for {name}, we agreed on integer cents since version {n}",
    "Deploy {name} with `make deploy-{n}`, never by hand. Remember that.",
    "#{number} is done, we shipped {name}.",
)
_REPLIES = (
    "Done. {name} never checks `order.status` before it retries, so customers were charged {n} times.",
    "All done!\n\nNot done: the refund path of {name} does not yet increase `order.attempt` {n}.",
    "The root cause is that {name} reads the file before it is written, by {n} milliseconds.",
)


class Corpus:
    """Plays sessions, the same for the same seed."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, outbox: Outbox, seed: int = 7) -> None:
        self.agent = Agent(client, cast, outbox)
        self.outbox = outbox
        self.chosen = random.Random(seed)

    async def play(self, sessions: int, turns: int, *, at_once: bool = True, together: int = 1) -> None:
        """So many sessions of so many turns; a worker comes by after each turn, or not at all."""
        for first in range(0, sessions, together):
            names = [f"session-{first + place}" for place in range(min(together, sessions - first))]
            for _ in range(turns):
                for name in names:
                    self.agent.session = name
                    await self.turn()
                if at_once:
                    await self.drain()
            for name in names:
                self.agent.session = name
                await self.agent.send("SessionEnd", reason="other")
            if at_once:
                await self.drain()

    async def turn(self) -> None:
        """A prompt, some work, and an answer."""
        chosen, n = self.chosen, self.chosen.randrange(2, 900)
        name = chosen.choice(["payments", "invoices", "refunds", "exports", "carts"])
        words = {"name": name, "n": n, "number": self.chosen.randrange(1, 60)}
        await self.agent.prompt(chosen.choice(_PROMPTS).format(**words))
        for step in range(chosen.randrange(1, 5)):
            await self.agent.edit(f"src/{name}.py", f"LIMIT_{step} = {n + step}", f"LIMIT_{step} = {n + step + 1}")
        if chosen.random() < 0.6:
            failed = chosen.random() < 0.5
            output = f"FAILED tests/test_{name}.py::test_{n}\n1 failed" if failed else f"{n} passed"
            await self.agent.run(f"pytest tests/test_{name}.py", output, failed=failed)
        if chosen.random() < 0.3:
            await self.agent.run(f"git commit -am 'Change {name} {n}'", f"[main {n:07x}] Change {name} {n}")
        await self.agent.send("Stop", last_assistant_message=chosen.choice(_REPLIES).format(**words))

    async def drain(self) -> None:
        hand = await self.outbox.hand(Rules())
        while claims := await hand.claim(slots=100, max_events=500, max_chars=8_000_000):
            for claim in claims:
                await hand.runner.run(claim)


class Replays:
    """Replays of Alice, over HTTP."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, db: Db, settings: Settings) -> None:
        self.client, self.cast, self.db, self.settings = client, cast, db, settings

    async def send(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        answer = await self.client.request(method, f"/v1/replays{path}", json=body, headers=self.cast.alice.headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def act(self, method: str, path: str, body: object = None) -> Any:
        """What Alice does beside it."""
        answer = await self.client.request(method, f"/v1/{path}", json=body, headers=self.cast.alice.headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def begin(self, **fields: object) -> dict[str, Any]:
        return await self.send("POST", "", fields, 201)

    async def run(self, **fields: object) -> dict[str, Any]:
        """A replay from its beginning to its end."""
        begun = await self.begin(**fields)
        await self.work()
        return await self.send("GET", f"/{begun['number']}")

    async def work(self) -> None:
        while await run_replays(self.db, self.settings):
            pass

    async def lines(self, number: int, **query: object) -> list[dict[str, Any]]:
        words = "&".join(f"{name}={value}" for name, value in {"limit": 500, **query}.items())
        return (await self.send("GET", f"/{number}/lines?{words}"))["lines"]

    async def rows(self, statement: str) -> list[dict[str, object]]:
        return await rows(self.db, statement)
