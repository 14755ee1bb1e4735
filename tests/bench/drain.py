"""How fast one worker empties a queue when its provider costs no time."""

from __future__ import annotations

import time
from typing import cast

from tests.bench.instant import EVENTS_PER_OBSERVATION
from tests.bench.load import loader
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import SESSIONS, Place, World, role, value

HOW = (
    "A fresh database is filled by the statement of ingest, 100 events at a time over one connection: that rate is the "
    "yardstick. Then `cmserver run --role worker` starts with its default concurrency, no debounce, and in turn with rules, or "
    "with a provider that stands for a model and answers at once: 20 events a call, an observation of every third event, the "
    "others skipped. The time is from the first claim to the last end in the jobs' log."
)
PROVIDER = "tests.bench.instant:make"
RULES = "offline"
_LONGEST_SECONDS = 300.0
OPEN_JOBS = "SELECT count(*) FROM observation_generation_jobs WHERE status IN ('queued', 'processing')"
_SECONDS = """
    SELECT extract(epoch FROM max(created_at) FILTER (WHERE event_type = 'completed')
                            - min(created_at) FILTER (WHERE event_type = 'processing'))::float8
      FROM observation_generation_job_events
"""


def run(world: World, scale: Scale) -> list[Figure]:
    """Each round on fresh databases: fill one by the statement of ingest, then start a worker and let it work."""
    pairs: dict[str, list[tuple[float, float]]] = {PROVIDER: [], RULES: []}
    observations: dict[str, set[int]] = {PROVIDER: set(), RULES: set()}
    with loader() as filling:
        for _ in range(scale.drains):
            for provider in (RULES, PROVIDER):
                place = world.place()
                batches = scale.drained // scale.batch
                filled = filling.send(
                    place.sql(connections=1, seconds=_LONGEST_SECONDS, batch=scale.batch, requests=batches, delay_seconds=0)
                )
                with role(world, place, "worker", provider=provider, generation_debounce_seconds=0):
                    wait_until_ended(place)
                observations[provider].add(_checked(place, batches * scale.batch, provider))
                seconds = cast("float", value(place.url, _SECONDS))
                pairs[provider].append((scale.drained / seconds, filled.per_second))
    return [
        Figure(
            name=f"drain of {scale.drained:,} events of {SESSIONS} sessions, {by}",
            unit="events/s",
            yardstick="filling the queue by direct SQL",
            pairs=pairs[provider],
            aim=Aim(of="median", at_least=True, bound=1000),
            note=f"{max(observations[provider]):,} observations",
        )
        for provider, by in ((RULES, "one worker, rules"), (PROVIDER, "one worker"))
    ]


def wait_until_ended(place: Place) -> None:
    """Until no job is queued or in progress. RuntimeError when that takes too long."""
    end = time.monotonic() + _LONGEST_SECONDS
    while waiting := value(place.url, OPEN_JOBS):
        if time.monotonic() > end:
            raise RuntimeError(f"After {_LONGEST_SECONDS:.0f} s there are still {waiting} jobs to be done.")
        time.sleep(0.1)


def _checked(place: Place, events: int, provider: str) -> int:
    """The number of observations, if everything was done as the provider said."""
    completed = value(place.url, "SELECT count(*) FROM observation_generation_jobs WHERE status = 'completed'")
    observations = cast("int", value(place.url, "SELECT count(*) FROM observations"))
    if completed != events or (provider == PROVIDER and observations != events // EVENTS_PER_OBSERVATION):
        raise RuntimeError(f"Of {events} events {completed} were completed, with {observations} observations.")
    return observations
