"""What is remembered of a session does not depend on when a worker comes by: after each event, at some of them, or after all."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest

from cmserver.base.settings import Settings
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.model import Rules
from tests.conftest import Cast
from tests.evaluation.usefulness.corpus import HookCall, LabelledSession, load_projects, session_hooks
from tests.generation.tools import Hand, Outbox

SESSIONS = [session for half in ("dev", "stranger") for project in load_projects(half) for session in project.sessions][:24]
_DAYS = 29
_DAY_SECONDS = 86_400.0
_CHANCE = 0.3

# Without ids and times; numbers are replaced by places.
REMEMBERED = """
    SELECT s.content_session_id AS session, o.number, o.kind, o.type, o.title, o.subtitle, o.narrative, o.facts, o.concepts,
           o.files_read, o.files_modified, o.prompt_number, o.quote, o.anchors, o.state, o.closed_by, o.importance, o.metadata,
           o.summary,
           (SELECT count(*) FROM observation_sources q WHERE q.observation_id = o.id) AS sources,
           (SELECT concat(c.content_session_id, ':', t.prompt_number)
              FROM turns t JOIN server_sessions c ON c.id = t.server_session_id WHERE t.number = o.closed_by) AS closed_by_turn
      FROM observations o JOIN server_sessions s ON s.id = o.server_session_id
     ORDER BY s.content_session_id, o.number
"""
TURNS = """
    SELECT s.content_session_id AS session, t.prompt_number, t.prompt, t.reply, t.files, t.checks, t.commits
      FROM turns t JOIN server_sessions s ON s.id = t.server_session_id ORDER BY s.content_session_id, t.prompt_number
"""

LEDGER = """
    SELECT s.content_session_id AS session, t.prompt_number, l.kind, l.name, l.token, l.instead,
           c.content_session_id AS later_session, n.prompt_number AS later_prompt
      FROM turn_ledger l
      JOIN turns t ON t.id = l.earlier_id JOIN server_sessions s ON s.id = t.server_session_id
      JOIN turns n ON n.id = l.later_id JOIN server_sessions c ON c.id = n.server_session_id
     ORDER BY s.content_session_id, t.prompt_number, l.kind, l.name, l.token
"""
POINTERS = """
    SELECT s.content_session_id AS session, t.prompt_number, p.texts, p.later_places, p.nearness,
           ARRAY(SELECT concat(c.content_session_id, ':', n.prompt_number)
                   FROM unnest(p.later_ids) WITH ORDINALITY AS it (id, place)
                   LEFT JOIN turns n ON n.id = it.id LEFT JOIN server_sessions c ON c.id = n.server_session_id
                  ORDER BY it.place) AS later
      FROM turn_sentences p JOIN turns t ON t.id = p.turn_id JOIN server_sessions s ON s.id = t.server_session_id
     ORDER BY s.content_session_id, t.prompt_number
"""


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, database_url=database, generation_debounce_seconds=2, generation_gather_seconds=600)


class Player:
    """Plays sessions by their hooks in order, while the clock of the queue follows theirs; a worker comes by when it is told to."""

    def __init__(self, client: httpx.AsyncClient, cast: Cast, outbox: Outbox, hand: Hand) -> None:
        self._client = client
        self._cast = cast
        self._outbox = outbox
        self._hand = hand
        self._deliveries = count(1)

    async def play(self, session: LabelledSession, start: float, comes_by: Callable[[], bool]) -> None:
        """Send the session's hooks as they happened at that time, in seconds of the epoch."""
        seconds = 0.0
        for call in session_hooks(session):
            await self._let_pass(call.at_seconds - seconds)
            seconds = call.at_seconds
            await self._send(session, call, start)
            if comes_by():
                await self.work()

    async def work(self) -> None:
        while claims := await self._hand.claim(max_events=500, max_chars=8_000_000):
            for claim in claims:
                await self._hand.runner.run(claim)
        while await write_due_sentences(self._hand.db, None, 0):
            pass

    async def _send(self, session: LabelledSession, call: HookCall, start: float) -> None:
        headers = {
            **self._cast.alice.headers,
            "X-Cmserver-Project": f"github.com/acme/{session.project}",
            "X-Cmserver-Delivery": f"delivery-{next(self._deliveries)}",
            "X-Cmserver-Sent-At": str(int((start + call.at_seconds) * 1000)),
        }
        answer = await self._client.post(f"/v1/hooks/{session.agent}", json=call.payload, headers=headers)
        assert answer.status_code == 200, answer.text

    async def _let_pass(self, seconds: float) -> None:
        await self._outbox.rows("UPDATE generation_lanes SET due_at = due_at - make_interval(secs => %s)", seconds)


async def differences(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox, sessions: Sequence[LabelledSession], seeds: Sequence[int]
) -> list[str]:
    """The names of the sessions of which something else is remembered in a burst, or with a worker that comes by at random.

    Each speed has projects of its own, each with several sessions: a burst is all of them, before the worker comes by.
    """
    player = Player(client, cast, outbox, await outbox.hand(Rules(), lease_seconds=86_400))
    chances = {f"random{seed}": random.Random(seed) for seed in seeds}
    speeds: dict[str, Callable[[], bool]] = {"live": lambda: True, "burst": lambda: False}
    speeds |= {name: lambda chance=chance: chance.random() < _CHANCE for name, chance in chances.items()}
    first = time.time() - _DAYS * _DAY_SECONDS
    for speed, comes_by in speeds.items():
        for place, session in enumerate(sessions):
            played = msgspec.structs.replace(session, project=f"{speed}+{session.project}")
            await player.play(played, first + place * _DAY_SECONDS, comes_by)
        await player.work()
    assert await outbox.statuses() == {"completed": (await outbox.value("SELECT count(*) FROM observation_generation_jobs"))}
    live, *others = [await read_memory(outbox, speed) for speed in speeds]
    assert sum(map(len, live.values())) > 5 * len(sessions) == 5 * len(live)
    return [
        f"{name}: {speed}" for speed, other in zip([*speeds][1:], others, strict=True) for name in live if live[name] != other[name]
    ]


async def read_memory(outbox: Outbox, speed: str) -> dict[str, list[str]]:
    """What is remembered of each session of that speed, a line of JSON for each row; numbers are replaced by places."""
    rows = [row for row in await outbox.rows(REMEMBERED) if str(row["session"]).startswith(f"{speed}+")]
    names: dict[str, str] = {}
    for row in rows:
        place = sum(name.startswith(f"{row['session']}:") for name in names.values()) + 1
        names[str(row["number"])] = f"{row['session']}:{place}"
    memory: dict[str, list[str]] = {}
    others = [row for query in (TURNS, LEDGER, POINTERS) for row in await outbox.rows(query)]
    for row in [*rows, *(row for row in others if str(row["session"]).startswith(f"{speed}+"))]:
        session = str(row["session"])
        if "number" in row:
            row |= {name: names.get(str(row[name])) for name in ("number", "closed_by")}
        line = re.sub(r"#(\d+)", lambda found: f"#{names.get(found[1], found[1])}", msgspec.json.encode(row, enc_hook=str).decode())
        memory.setdefault(session.removeprefix(f"{speed}+"), []).append(line.replace(f"{speed}+", ""))
    return memory


async def test_what_is_remembered_does_not_depend_on_when_a_worker_comes_by(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    sessions = [session for session in SESSIONS if session.project == SESSIONS[0].project][:3]

    assert await differences(client, cast, outbox, sessions, seeds=[1]) == []


@pytest.mark.slow
async def test_24_sessions_are_remembered_alike_at_all_speeds(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    assert len(SESSIONS) == 24
    assert await differences(client, cast, outbox, SESSIONS, seeds=[1, 2, 3]) == []
