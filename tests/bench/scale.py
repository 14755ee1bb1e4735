"""How large the benchmarks are."""

from __future__ import annotations

import msgspec


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of all benchmarks. Figures of another scale than FULL say nothing but that the benchmarks run."""

    rounds: int
    """How often the two sides of each figure alternate."""
    seconds: float
    """How long one side of a round lasts."""
    batch: int
    """Events in one POST /v1/events/batch."""
    drained: int
    """Events of which a queue is emptied."""
    drains: int
    starts: int
    backlog: int
    """Jobs beside which a claim is made."""
    claims: int
    """Claims in one round."""
    crowd: int
    """Events in the large database of the lists."""
    asked: int
    """How often each list is asked for in one round."""
    session: int
    """Tool uses of one session."""
    libraries: tuple[int, ...]
    """Observations in the databases that are searched, one after the other."""
    remembered: int
    """Observations in the project that agents ask for."""
    agents: int
    """Sessions of agents at once."""
    think_seconds: float
    """How long an agent thinks between two calls, about."""
    retained: int
    """Rows that retention takes."""
    backed_up: tuple[int, int]
    """Events and observations in the database that is backed up."""
    imported: int
    """Observations in the database of claude-mem that is imported."""
    body_bytes: int
    """The largest body that is sent."""
    consolidated: tuple[int, int]
    """Observations in the project in which some are stored, and in the one in which a tenth as many new ones are compared."""


FULL = Scale(
    rounds=5,
    seconds=1.5,
    batch=100,
    drained=5000,
    drains=3,
    starts=3,
    backlog=100_000,
    claims=50,
    crowd=1_000_000,
    asked=40,
    session=200,
    libraries=(50_000,),
    remembered=10_000,
    agents=100,
    think_seconds=2.0,
    retained=200_000,
    consolidated=(10_000, 100_000),
    body_bytes=7_900_000,
    backed_up=(1_000_000, 200_000),
    imported=100_000,
)
MILLION = msgspec.structs.replace(FULL, libraries=(10_000, 50_000, 1_000_000))
"""As FULL, with a database that takes some ten minutes to make."""
QUICK = Scale(
    rounds=2,
    seconds=0.2,
    batch=10,
    drained=200,
    drains=1,
    starts=1,
    backlog=1000,
    claims=5,
    crowd=2000,
    asked=3,
    session=8,
    libraries=(2000,),
    remembered=500,
    agents=4,
    think_seconds=0.02,
    retained=400,
    consolidated=(300, 300),
    body_bytes=40_000,
    backed_up=(300, 100),
    imported=200,
)
