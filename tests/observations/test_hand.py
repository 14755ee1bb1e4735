"""Writing by hand without HTTP, as more than one door does."""

from __future__ import annotations

import pytest

from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.live import Hub
from cmserver.observations import read
from cmserver.observations.hand import Hand
from cmserver.observations.wire import ObservationIn
from tests.conftest import Cast


@pytest.fixture
def hand(db: Db, hub: Hub) -> Hand:
    return Hand(db, Projects(db, hub), field_max_chars=16_000)


async def test_an_observation_says_by_which_door_it_came(hand: Hand, cast: Cast, db: Db):
    who = cast.alice.principal
    told = [ObservationIn(project_id="github.com/acme/orders", title=title) for title in ("one", "two")]

    by_default = await hand.write(who, told[0], size_bytes=0)
    alone = await hand.write(who, told[0], size_bytes=0, origin="mcp")
    together = await hand.write_all(who, told, size_bytes=0)

    numbers = [one.number for one in (by_default, alone, *together)]
    async with db.tenant(who.team_id) as conn:
        found = await read.several(conn, who, numbers)
    assert [(one.number, one.title, one.origin) for one in found.observations] == [
        (1, "one", "api"),
        (2, "one", "mcp"),
        (3, "one", "api"),
        (4, "two", "api"),
    ]


async def test_what_is_wrong_is_named_by_where_it_stands(hand: Hand, cast: Cast):
    who = cast.alice.principal
    nowhere = ObservationIn(project_id="nowhere", title="x")

    with pytest.raises(NotFound) as alone:
        await hand.write(who, nowhere, size_bytes=0)
    with pytest.raises(NotFound) as together:
        await hand.write_all(who, [nowhere], size_bytes=0)

    assert alone.value.issues == []
    assert [issue.path for issue in together.value.issues] == ["$[0].projectId"]
