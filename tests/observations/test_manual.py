"""Writing by hand without HTTP, as more than one door does."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.consolidation.store import store_observations
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.events.model import Origin
from cmserver.observations import read
from cmserver.observations.model import Observation
from cmserver.observations.wire import ObservationIn
from tests.conftest import Cast


class Writer(msgspec.Struct):
    """Writes as a handler does."""

    db: Db
    projects: Projects
    embedder: QueryEmbedder

    async def write(self, principal: Principal, observation: ObservationIn, *, origin: Origin = "api") -> Observation:
        return (await self.write_all(principal, [observation], origin=origin, is_batch=False))[0]

    async def write_all(
        self, principal: Principal, observations: list[ObservationIn], *, origin: Origin = "api", is_batch: bool = True
    ) -> list[Observation]:
        results = await store_observations(
            self.db,
            self.projects,
            self.embedder,
            principal,
            observations,
            size_bytes=0,
            origin=origin,
            is_batch=is_batch,
        )
        return [result.observation for result in results]


@pytest.fixture
def writer(settings: Settings, db: Db, hub: NotificationListener) -> Writer:
    return Writer(db, Projects(db, hub), QueryEmbedder(settings, db))


async def test_an_observation_says_by_which_door_it_came(writer: Writer, cast: Cast, db: Db):
    who = cast.alice.principal
    drafts = [ObservationIn(project_id="github.com/acme/orders", title=title) for title in ("one", "two")]

    by_default = await writer.write(who, drafts[0])
    alone = await writer.write(who, drafts[0], origin="mcp")
    together = await writer.write_all(who, drafts)

    numbers = [one.number for one in (by_default, alone, *together)]
    async with db.tenant(who.team_id) as conn:
        found = await read.read_batch(conn, who, numbers)
    assert [(one.number, one.title, one.origin) for one in found.observations] == [
        (1, "one", "api"),
        (2, "one", "mcp"),
        (3, "one", "api"),
        (4, "two", "api"),
    ]


async def test_what_is_wrong_is_named_by_where_it_stands(writer: Writer, cast: Cast):
    who = cast.alice.principal
    nowhere = ObservationIn(project_id="nowhere", title="x")

    with pytest.raises(NotFound) as alone:
        await writer.write(who, nowhere)
    with pytest.raises(NotFound) as together:
        await writer.write_all(who, [nowhere])

    assert alone.value.issues == []
    assert [issue.path for issue in together.value.issues] == ["$[0].projectId"]


class Refused(msgspec.Struct):
    path: str


class Refusal(msgspec.Struct):
    issues: list[Refused] = []

    @property
    def paths(self) -> list[str]:
        return [issue.path for issue in self.issues]


async def test_a_text_that_would_lose_its_middle_is_refused_with_its_path(client: httpx.AsyncClient, cast: Cast):
    bodies = {
        "$.narrative": {"narrative": "x" * 16_001},
        "$.content": {"content": "x" * 19_999},
        "$.facts[1]": {"facts": ["a", "x" * 2_001]},
    }

    paths: dict[str, object] = {}
    for path, body in bodies.items():
        response = await client.post(
            "/v1/observations",
            json={"projectId": str(cast.alice.project.id), "title": "Runbook", **body},
            headers=cast.alice.headers,
        )
        paths[path] = response.status_code, msgspec.json.decode(response.content, type=Refusal).paths

    assert paths == {path: (400, [path]) for path in bodies}
