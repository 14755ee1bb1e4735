"""How long it takes from an event's coming in to a worker's claim, without debounce."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

import psycopg

from tests.bench.drain import PROVIDER, wait_until_ended
from tests.bench.load import Loader, loader
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role, value

HOW = (
    "20 events a second over HTTP, no debounce, the same provider; `cmserver run`, which starts its worker itself, in turn with "
    "`--role api` and `--role worker` started apart; both workers are woken by NOTIFY. The time is from the start of the statement "
    "that stores the event to the claim's entry in the jobs' log, both by the database's clock. It has the commit in it, so commit "
    "to claim is shorter than shown."
)
EVENTS_PER_SECOND = 20.0
_ROUNDS_ARE_LONGER = 2.0
_AIM = Aim(of="median", at_least=False, bound=10)

# From the start of the statement that stores the event to the claim's own entry in the log. The commit lies between them, so
# the way from commit to claim is shorter than this.
_LATENCIES = """
    SELECT extract(epoch FROM min(c.created_at) - e.received_at)::float8 * 1000
      FROM agent_events e
      JOIN observation_generation_jobs j ON j.agent_event_id = e.id
      JOIN observation_generation_job_events c ON c.generation_job_id = j.id AND c.event_type = 'processing'
     WHERE e.received_at > %s
     GROUP BY e.id, e.received_at
"""


def run(world: World, scale: Scale) -> list[Figure]:
    """The worker that `cmserver run` starts, and one that was started apart; in turn."""
    pairs: list[tuple[float, float]] = []
    all_here: list[float] = []
    all_there: list[float] = []
    here, there = world.place(), world.place()
    settings = {"provider": PROVIDER, "generation_debounce_seconds": 0}
    with ExitStack() as stack:
        sender = stack.enter_context(loader())
        here_port = stack.enter_context(role(world, here, "all", **settings))
        there_port = stack.enter_context(role(world, there, "api", **settings))
        stack.enter_context(role(world, there, "worker", **settings))
        for place, port in ((here, here_port), (there, there_port)):
            _measured(sender, place, port, 0.3)
        for _ in range(scale.rounds):
            in_process = _measured(sender, here, here_port, scale.seconds * _ROUNDS_ARE_LONGER)
            by_notify = _measured(sender, there, there_port, scale.seconds * _ROUNDS_ARE_LONGER)
            all_here += in_process
            all_there += by_notify
            pairs.append((percentile(in_process, 50), percentile(by_notify, 50)))
    return [
        Figure(
            name="from event to claim, `cmserver run`",
            unit="ms",
            yardstick="API and worker started apart",
            pairs=pairs,
            aim=_AIM,
            note=f"{spread(all_here)} of {len(all_here)} events",
        ),
        Figure(
            name="from event to claim, API and worker started apart",
            unit="ms",
            yardstick="`cmserver run`",
            pairs=[(by_notify, in_process) for in_process, by_notify in pairs],
            aim=_AIM,
            note=f"{spread(all_there)} of {len(all_there)} events",
        ),
    ]


def _measured(sender: Loader, place: Place, port: int, seconds: float) -> list[float]:
    since = value(place.url, "SELECT clock_timestamp()")
    sender.send(place.http(port, connections=1, seconds=seconds, per_second=EVENTS_PER_SECOND))
    wait_until_ended(place)
    with psycopg.connect(place.url, autocommit=True) as conn:
        return [cast("float", row[0]) for row in conn.execute(_LATENCIES, [since]).fetchall()]
