"""How fast the memory of another program comes in."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.ops.transfer.claude_mem import ClaudeMemSource
from cmserver.ops.transfer.export import export_team
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import Place, World
from tests.ops.claude_mem_databases import make_v13

HOW = (
    "`cmserver import claude-mem` into an embedded PostgreSQL with its usual durability: a generated database of its schema of "
    "version 13, with so many observations of 25 words, redacted as they come in. The yardstick is the aim: 100,000 observations "
    "in 60 seconds."
)
_AIM_PER_SECOND = 100_000 / 60
_AIM = Aim(of="ratio", at_least=True, bound=1.0)


def run(world: World, scale: Scale) -> list[Figure]:
    """One import, then one that finds everything there, then an export."""
    place = world.place()
    folder = world.free_folder()
    folder.mkdir(exist_ok=True)
    file = make_v13(folder / "claude-mem.db", observations=scale.imported)
    principal = Principal(
        kind="operator",
        team_id=place.team_id,
        team_name="bench",
        project_id=None,
        key_id=None,
        actor_id="operator",
        scopes=frozenset({"*"}),
    )
    report = asyncio.run(_import(place, principal, file))
    again = asyncio.run(_import(place, principal, file))
    began = time.perf_counter()
    size = asyncio.run(_export(place, principal, []))
    seconds = time.perf_counter() - began
    return [
        Figure(
            name=f"import claude-mem, {scale.imported:,} observations",
            unit="observations/s",
            yardstick="the aim",
            pairs=[(report.taken["observation"] / max(report.seconds, 0.1), _AIM_PER_SECOND)],
            aim=_AIM,
            note=f"{report.seconds:g} s; once more, with nothing to take, {again.seconds:g} s; the export of all, "
            f"{size / 1e6:,.0f} MB, {seconds:.1f} s",
        )
    ]


async def _import(place: Place, principal: Principal, file: Path) -> ImportReport:
    async with Db(place.url, size=3) as db:
        importer = Importer(db, principal, ClaudeMemSource(file), journal=file.parent / "none")
        return await importer.run(lambda _done: None)


async def _export(place: Place, principal: Principal, sizes: list[int]) -> int:
    await export_team(place.url, principal.team_id, None, lambda line: sizes.append(len(line)))
    return sum(sizes)
