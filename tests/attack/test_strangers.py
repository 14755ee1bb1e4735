"""Strangers send random requests to every route, tool and message, and learn and change nothing of Alice's.

CMSERVER_TEST_ATTACK_REQUESTS says how many (50,000 for the long form), CMSERVER_TEST_ATTACK_SEED repeats a run.
"""

from __future__ import annotations

import os
import re
from random import Random
from uuid import UUID

import httpx
import msgspec
import pytest

from cmserver.app import ROUTES
from cmserver.base.db import Db
from tests.attack.seed import attack_seed
from tests.attack.strangers import Attack, Attacker, keys_of_strangers, keys_of_the_other_project
from tests.conftest import Cast
from tests.house import walk
from tests.house.walk import MARK, Things
from tests.make import Make
from tests.process.program import measured

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("CMSERVER_TEST_ATTACK_REQUESTS", "600"))


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Alice's things, and the things of those who attack."""

    db: Db
    client: httpx.AsyncClient
    team_id: UUID
    strangers_team_id: UUID
    alices: Things
    charlies: Things
    others: Things
    """Of another project of Alice's team."""


@pytest.fixture
async def world(client: httpx.AsyncClient, db: Db, cast: Cast, make: Make) -> World:
    charlies = await walk.furnish(client, db, make, cast.charlie, "private")
    others = await walk.furnish(client, db, make, cast.alice, "ledger")
    await walk.set_apart(db, cast.alice.team_id)
    alices = await walk.furnish(client, db, make, cast.alice, MARK)
    await walk.set_apart(db, cast.alice.team_id)
    return World(
        db=db,
        client=client,
        team_id=cast.alice.team_id,
        strangers_team_id=cast.charlie.team_id,
        alices=alices,
        charlies=charlies,
        others=others,
    )


async def test_no_stranger_learns_or_changes_anything(world: World, cast: Cast):
    seed = attack_seed()
    charlie = Attacker(name="the other team", key=cast.charlie.key, own=world.charlies.own)
    attackers = await keys_of_strangers(world.db, charlie, world.strangers_team_id, world.team_id, cast.alice.key)
    attack = Attack(world.client, world.alices, Random(seed))
    before = await walk.rows_of(world.db, world.team_id)

    await attack.send_many(attackers, REQUESTS * 2 // 3)

    after = await walk.rows_of(world.db, world.team_id)
    measured(f"strangers, seed {seed}: {attack.report.summary}")
    assert not attack.report.complaints, f"seed {seed}:\n" + "\n".join(attack.report.complaints)
    assert after == before, f"seed {seed}"
    assert attack.report.statuses[200] > attack.report.requests // 20, "valid keys are let in"


async def test_no_key_of_another_project_learns_or_changes_anything(world: World):
    seed = attack_seed()
    bound = Attacker(name="the other project", key=world.others.key, own=world.others.own)
    attackers = await keys_of_the_other_project(world.db, bound, world.team_id, world.others.project_id)
    theirs = msgspec.structs.replace(world.alices, ways={**world.alices.ways, "team": [], "user": []})
    attack = Attack(world.client, theirs, Random(seed))
    before = await walk.rows_of(world.db, world.team_id, but_project=world.others.project_id)

    await attack.send_many(attackers, REQUESTS // 3)

    after = await walk.rows_of(world.db, world.team_id, but_project=world.others.project_id)
    measured(f"keys of another project, seed {seed}: {attack.report.summary}")
    assert not attack.report.complaints, f"seed {seed}:\n" + "\n".join(attack.report.complaints)
    assert after == before, f"seed {seed}"
    assert attack.report.statuses[200] > attack.report.requests // 20, "valid keys are let in"


async def test_the_same_requests_with_her_own_key_show_what_is_hers(world: World, cast: Cast):
    """Else the attack proves nothing: whoever asks in a wrong way finds nothing either."""
    # Without what would end her team or her key: then nothing of hers is left to be shown.
    hers = msgspec.structs.replace(world.alices, ways={**world.alices.ways, "team": [], "key": [], "user": []})
    attack = Attack(world.client, hers, Random(1))

    await attack.send_many([Attacker(name="Alice", key=cast.alice.key, own=world.alices.own)], 400)

    complaints = "\n".join(attack.report.complaints)
    assert f"shows {MARK}" in complaints
    assert "but for what does not exist" in complaints


async def test_every_route_is_attacked():
    known = {(stop.method, stop.path) for stop in walk.stops()}

    assert {(one.method, re.sub(r":\w+}", "}", one.path)) for one in ROUTES} == known
