"""What is told of a moment afterwards is what was told then: made from the rows with their times, no receipt is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import pytest

from cmserver.base.settings import Settings
from cmserver.models.providers.model import Rules
from tests.conftest import Cast
from tests.doors.hooks.test_any_speed import Player
from tests.evaluation.usefulness.corpus import HALVES, STRANGERS, LabelledSession, load_projects, session_hooks
from tests.generation.tools import Hand, Outbox

SESSIONS = [session for half in (*HALVES, *STRANGERS) for project in load_projects(half) for session in project.sessions]
QUESTIONS = ["which test failed", "why was it changed", "what is still open"]
_DAY_SECONDS = 86_400.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of a project at a moment: its index, but for the line with the time, and the hits of a question."""

    project: str
    moment: str
    numbers: list[int]
    text: str
    question: str
    hits: list[int]


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, database_url=database, generation_debounce_seconds=2, generation_gather_seconds=600)


class Chronicler(Player):
    """Plays sessions, and writes down what is told in between, when the queue is empty."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, outbox: Outbox, hand: Hand) -> None:
        super().__init__(client, cast, outbox, hand)
        self.client, self.cast, self.outbox = client, cast, outbox
        self.acts: Counter[str] = Counter()

    async def chronicle(self, session: LabelledSession, start: float) -> AsyncGenerator[Told]:
        for place, call in enumerate(session_hooks(session)):
            await self._let_pass(60)
            await self._send(session, call, start)
            await self.work()
            project = f"github.com/acme/{session.project}"
            await self.act(project, place)
            yield await self.ask(project, QUESTIONS[place % len(QUESTIONS)])

    async def act(self, project: str, place: int) -> None:
        """What people do now and then; what cannot be done at the moment is not."""
        headers = self.cast.alice.headers
        listed = await self.client.get("/v1/observations", params={"project": project, "limit": 50}, headers=headers)
        numbers = [row["number"] for row in listed.raise_for_status().json()["observations"]]
        if place % 4 != 3 or len(numbers) < 3:
            return
        path = f"/v1/observations/{numbers[place % len(numbers)]}"
        acts: list[tuple[str, str, dict[str, object]]] = [
            ("PATCH", path, {"title": f"Said otherwise at {place}"}),
            ("PATCH", path, {"state": "dropped"}),
            ("POST", f"{path}/undo", {}),
            ("POST", f"/v1/observations/{numbers[0]}/merge", {"sources": [numbers[1]], "strategy": "latest_wins"}),
            ("POST", f"/v1/observations/{numbers[0]}/undo", {}),
            ("POST", f"{path}/expire", {}),
            ("PATCH", path, {"type": "decision", "importance": 0.9}),
        ]
        method, path, body = acts[place // 4 % len(acts)]
        answer = await self.client.request(method, path, json=body, headers=headers)
        self.acts[f"{method} {path.rpartition('/')[2] if method == 'POST' else 'correction'} {answer.status_code}"] += 1

    async def ask(self, project: str, question: str, moment: str | None = None) -> Told:
        """What is told now, or of that moment."""
        then = {} if moment is None else {"knownAt": moment}
        now = await self.outbox.value("SELECT clock_timestamp()")
        assert isinstance(now, datetime)
        headers = self.cast.alice.headers
        index = (
            (await self.client.get("/v1/context", params={"project": project, **then}, headers=headers)).raise_for_status().json()
        )
        body = {"query": question, "projectId": project, "format": "index", "limit": 10, **then}
        found = (await self.client.post("/v1/search", json=body, headers=headers)).raise_for_status().json()
        hits = sorted([*found["observations"], *found["prompts"]], key=lambda hit: (-hit["score"], hit["number"]))
        return Told(
            project=project,
            moment=moment or now.astimezone(UTC).isoformat(),
            numbers=[line["number"] for line in index["observations"]],
            text="\n".join(line for line in index["context"].splitlines() if not line.startswith("Memory of")),
            question=question,
            hits=[hit["number"] for hit in hits],
        )


async def differing(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox, sessions: Sequence[LabelledSession], most: int
) -> list[str]:
    """What is told otherwise of a moment than was told at it, at up to so many moments."""
    player = Chronicler(client, cast, outbox, await outbox.hand(Rules(), lease_seconds=86_400))
    start = datetime.now(UTC).timestamp() - 29 * _DAY_SECONDS
    told: list[Told] = []
    for place, session in enumerate(sessions):
        told += [it async for it in player.chronicle(session, start + place * _DAY_SECONDS)]
    assert len(told) >= most, len(told)
    wrong: list[str] = []
    for before in told[:: max(1, len(told) // most)][:most]:
        after = await player.ask(before.project, before.question, before.moment)
        if after != before:
            names = [name for name in ("numbers", "hits", "text") if getattr(after, name) != getattr(before, name)]
            wrong.append(f"{before.project} at {before.moment}: {names}")
            wrong += [f"  {getattr(before, name)!r}\n  {getattr(after, name)!r}" for name in names[:1]]
    return wrong


async def test_what_is_told_of_a_moment_is_what_was_told_then(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    assert await differing(client, cast, outbox, SESSIONS[:2], 40) == []


@pytest.mark.slow
async def test_a_thousand_moments_of_a_month_are_told_as_they_were(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    wrong = await differing(client, cast, outbox, SESSIONS, 1_000)

    assert not wrong, "\n".join(wrong)
