"""How fast events come in, beside another commit of this repository: the price of what was added since."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import httpx
import msgspec

from cmserver.base.ids import new_id
from tests.bench.events import session_name
from tests.bench.load import ROOT, Http, loader
from tests.bench.measure import Aim, Figure, spread
from tests.bench.scale import Scale
from tests.bench.world import SESSIONS, World, free_port, program

HOW = (
    "Two `cmserver run --role api`, this tree's and that of an older commit ({commit}), each on a database of its own with its own "
    "schema. The same load as in `ingest`, over 8 connections, goes to one, then to the other."
)
_AIM = Aim(of="ratio", at_least=True, bound=0.85)


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """A running one, with a project and its sessions."""

    port: int
    key: str
    project_id: UUID
    sessions: list[UUID]

    def order(self, seconds: float, batch: int) -> Http:
        return Http(
            project_id=self.project_id,
            sessions=self.sessions,
            connections=8,
            seconds=seconds,
            batch=batch,
            port=self.port,
            key=self.key,
        )


def run(world: World, scale: Scale, commit: str) -> list[Figure]:
    """The commit must be in the repository, and run with the dependencies of today."""
    figures: list[Figure] = []
    with _tree(world.folder / "older", commit) as older, _api(world, ROOT) as new, _api(world, older) as old, loader() as load:
        for batch in (1, scale.batch):
            pairs: list[tuple[float, float]] = []
            milliseconds: list[float] = []
            for _ in range(scale.rounds):
                ours = load.send(new.order(scale.seconds, batch))
                theirs = load.send(old.order(scale.seconds, batch))
                pairs.append((ours.per_second, theirs.per_second))
                milliseconds += ours.milliseconds
            path = "/v1/events" if batch == 1 else f"/v1/events/batch of {batch}"
            figures.append(
                Figure(
                    name=f"POST {path}, beside an older commit",
                    unit="events/s",
                    yardstick=f"commit {commit}",
                    pairs=pairs,
                    aim=_AIM,
                    note=spread(milliseconds),
                )
            )
    return figures


@contextmanager
def _tree(folder: Path, commit: str) -> Generator[Path]:
    """The files of that commit. The repository is left as it is."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "cmserver", "sql"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    yield folder


@contextmanager
def _api(world: World, tree: Path) -> Generator[Api]:
    name = f"against_{secrets.token_hex(4)}"
    world.embedded.create_database(name)
    key = f"cms_{new_id().hex}_{secrets.token_hex(24)}"
    port = free_port()
    given = {"database_url": world.embedded.url_for(name), "bootstrap_key": key, "log_format": "json"}
    with program([sys.executable, "-m", "cmserver", "run", "--role", "api"], given, world.free_folder(), port=port, tree=tree):
        yield _furnished(port, key)


def _furnished(port: int, key: str) -> Api:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}) as client:
        made = [
            client.post("/v1/sessions/start", json={"projectId": "github.com/acme/orders", "contentSessionId": session_name(place)})
            .raise_for_status()
            .json()["session"]
            for place in range(SESSIONS)
        ]
    return Api(port=port, key=key, project_id=UUID(made[0]["projectId"]), sessions=[UUID(one["id"]) for one in made])
