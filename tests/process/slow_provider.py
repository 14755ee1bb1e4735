"""A provider that a test holds in its hand: it says that it was asked, and answers once the gate is open."""

from __future__ import annotations

import asyncio
import os
import random
from itertools import count
from pathlib import Path

import msgspec

from cmserver.models.providers.model import Completion, Prompt
from tests.rules.as_model import RulesAsModel

GATE = "CMSERVER_TEST_GATE"
"""The folder; without it there is no gate."""
WORK = "CMSERVER_TEST_WORK_SECONDS"
"""How long an answer takes at the most, as if it were work."""
OPEN = "open"


class SlowProvider:
    """Answers as the rules do, only later; asked by the steward, that both say the same."""

    def __init__(self) -> None:
        gate = os.environ.get(GATE)
        self._gate = Path(gate) if gate else None
        self._work_seconds = float(os.environ.get(WORK, "0"))
        self._asked = count(1)
        self._offline = RulesAsModel()

    @property
    def name(self) -> str:
        return "slow"

    @property
    def model(self) -> str:
        return "slow"

    async def complete(self, prompt: Prompt) -> Completion:
        if self._gate is not None:
            (self._gate / f"asked-{os.getpid()}-{next(self._asked)}").touch()
            while not (self._gate / OPEN).exists():
                await asyncio.sleep(0.02)
        if self._work_seconds:
            await asyncio.sleep(random.uniform(0, self._work_seconds))
        if prompt.kind == "guard":
            return Completion(text='{"same": true, "conflict": false, "confidence": 0.97, "reason": ""}', model=self.model)
        return msgspec.structs.replace(await self._offline.complete(prompt), input_tokens=1000, output_tokens=100)


def make() -> SlowProvider:
    return SlowProvider()


class Gate:
    """The test's side of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    @property
    def settings(self) -> dict[str, str]:
        return {"CMSERVER_PROVIDER": f"{__name__}:make", GATE: str(self._folder)}

    def asked(self) -> list[int]:
        """The pids of those who have asked, in no order; one entry for each call."""
        return [int(path.name.split("-")[1]) for path in self._folder.glob("asked-*")]

    def open(self) -> None:
        (self._folder / OPEN).touch()
