"""How long a replay takes beside the first drain of the same events: printed, not judged."""

from __future__ import annotations

import time
from itertools import groupby

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.generation import repository
from cmserver.models.providers.model import Rules
from tests.conftest import Cast
from tests.generation.tools import Outbox
from tests.replays.tools import Corpus, Replays

SESSIONS, TURNS = 60, 8


@pytest.mark.slow
async def test_a_replay_beside_the_first_drain(client: httpx.AsyncClient, cast: Cast, outbox: Outbox, db: Db, settings: Settings):
    corpus = Corpus(client, cast, outbox)
    await corpus.play(SESSIONS, TURNS, at_once=False, together=SESSIONS)
    hand = await outbox.hand(Rules())

    drained = time.monotonic(), time.process_time()
    while True:
        async with db.system_statement() as conn:
            claims = await repository.claim(
                conn,
                worker_id=hand.worker_id,
                label="test",
                lease_seconds=3600,
                slots=4,
                max_events=500,
                max_chars=8_000_000,
                set_lanes=32,
            )
        if not claims:
            break
        for _, claim_set in groupby(claims, lambda claim: claim.set_number):
            await hand.runner.run(*claim_set)
    replayed = time.monotonic(), time.process_time()
    replay = await Replays(client, cast, db, settings).run()
    ended = time.monotonic(), time.process_time()

    assert (replay["state"], replay["lost"], replay["new"], replay["reworded"]) == ("done", 0, 0, 0)
    assert replay["eventsDone"] == replay["events"]
    wall, cpu = ((ended[at] - replayed[at]) / (replayed[at] - drained[at]) for at in (0, 1))
    print(f"{replay['events']} events: a replay takes {wall:.2f} of the time of the first drain, {cpu:.2f} of its CPU")  # noqa: T201
