"""How fast events come in over HTTP, beside the same statement sent straight by psycopg."""

from __future__ import annotations

from tests.bench.load import loader
from tests.bench.measure import Aim, Figure, spread
from tests.bench.scale import Scale
from tests.bench.world import World, role

HOW = (
    "`cmserver run --role api` with default settings and no worker; a load generator of its own process sends events of 2 "
    "kB (a file edit) of 64 sessions over keep-alive connections, one request after the other on each. The yardstick is the "
    "very statement that the server sends, with the same rows, sent by psycopg from another process: prepared, in "
    "autocommit, as the tenant's role, over as many connections. A batch is of one session. Rates count events; p50 and p99 "
    "are of requests."
)
_AIM = Aim(of="ratio", at_least=True, bound=0.6)


def run(world: World, scale: Scale) -> list[Figure]:
    """One API process without a worker. Each round is HTTP, then SQL, for the same time, on the same tables."""
    figures: list[Figure] = []
    place = world.place()
    with role(world, place, "api") as port, loader() as over_http, loader() as over_sql:
        for batch in (1, scale.batch):
            for connections in (1, 8):
                pairs: list[tuple[float, float]] = []
                http_ms: list[float] = []
                sql_ms: list[float] = []
                for _ in range(scale.rounds):
                    http = over_http.send(place.http(port, connections=connections, seconds=scale.seconds, batch=batch))
                    sql = over_sql.send(place.sql(connections=connections, seconds=scale.seconds, batch=batch))
                    pairs.append((http.per_second, sql.per_second))
                    http_ms += http.milliseconds
                    sql_ms += sql.milliseconds
                path = "/v1/events" if batch == 1 else f"/v1/events/batch of {batch}"
                figures.append(
                    Figure(
                        name=f"POST {path}, {connections} connection{'s' if connections > 1 else ''}",
                        unit="events/s",
                        yardstick="direct SQL",
                        pairs=pairs,
                        aim=_AIM,
                        note=f"HTTP {spread(http_ms)}; SQL {spread(sql_ms)}",
                    )
                )
    return figures
