"""What it takes to store an observation without repeating what is there, and to compare new observations with the others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import cast
from uuid import UUID

import httpx
import msgspec
import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict

from cmserver.base.db import Db
from cmserver.consolidation.comparison.compare import compare_new
from tests.bench.cpu import cpu_seconds
from tests.bench.library import Library, library
from tests.bench.load import ROOT
from tests.bench.measure import Aim, Figure, percentile, shown, spread
from tests.bench.scale import Scale
from tests.bench.world import World, free_port, program

HOW = (
    "Storing: `cmserver run --role api` with the local embedder, and a project of 10,000 observations (tests/bench/library.py); "
    "one POST /v1/observations after the other over one connection, with a title of 7 and a narrative of 60 words that are drawn "
    "from stored ones. Every fifth repeats an earlier one with other punctuation and is merged. The figure is the median with "
    "`onDuplicate: merge`, by the clock and in CPU time of the program and PostgreSQL together, in which the machine's other load "
    "has little part; the yardstick is the same with `keep`. Comparing: the job that follows generation, in a process of its own, "
    "with 10,000 new observations in a project of 100,000 others, all embedded. The figure is its time; the notes have its CPU "
    "time and the most memory that the process ever held. The yardstick is the same job with nothing new."
)
_STORE_AIM = Aim(of="median", at_least=False, bound=12)
_COMPARE_AIM = Aim(of="median", at_least=False, bound=60)
_WORDS = 67
_TITLE_WORDS = 7
_REPEATED_EVERY = 5

_TEXTS = """
    SELECT title || ' ' || narrative || ' ' || array_to_string(facts, ' ') FROM observations
     WHERE project_id = %s AND kind <> 'manual' ORDER BY md5(id::text) LIMIT 4000
"""
# So that as many of the project's observations are new.
_PROGRESS = """
    INSERT INTO read_positions (name, team_id, read_to)
    SELECT 'comparison', %(team_id)s, (SELECT number FROM observations WHERE project_id = %(project_id)s
                          ORDER BY number DESC OFFSET %(new)s LIMIT 1)
    ON CONFLICT (team_id, name) DO UPDATE SET read_to = excluded.read_to
"""


class ComparisonReport(msgspec.Struct, frozen=True):
    """What a process measured that ran the job."""

    compared: int
    seconds: float
    cpu_seconds: float
    peak_mib: float


def run(world: World, scale: Scale) -> list[Figure]:
    """Storing first, then comparing."""
    figures: list[Figure] = []
    stored, compared = scale.consolidated
    for measure, documents in ((_measure_storing, stored), (_measure_comparing, compared + compared // 10)):
        here = library(world, documents + 1, sizes=(documents,))
        if here.model_id is not None:
            figures += measure(world, here, scale)
        world.embedded.drop_database(str(conninfo_to_dict(here.place.url)["dbname"]))
    return figures


def _measure_storing(world: World, here: Library, scale: Scale) -> list[Figure]:
    (project_id,) = here.projects.values()
    texts = {choice: _draw_texts(here, project_id, first) for choice, first in (("merge", 1), ("keep", 1_000_000))}
    pairs: list[tuple[float, float]] = []
    cpu_pairs: list[tuple[float, float]] = []
    all_ms: list[float] = []
    actions: dict[str, int] = {}
    headers = {"Authorization": f"Bearer {here.place.key}"}
    port = free_port()
    command = [sys.executable, "-m", "cmserver", "run", "--role", "api"]
    settings = {"database_url": here.place.url, "log_format": "json"}
    with (
        program(command, settings, world.free_folder(), port=port) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client,
    ):

        def store(choice: str) -> float:
            title, narrative = next(texts[choice])
            body = {"projectId": str(project_id), "title": title, "narrative": narrative, "onDuplicate": choice}
            began = time.perf_counter()
            answer = client.post("/v1/observations", json=body)
            taken = (time.perf_counter() - began) * 1000
            action = str(answer.raise_for_status().json()["action"])
            if choice == "merge":
                actions[action] = actions.get(action, 0) + 1
            return taken

        def store_many(choice: str) -> tuple[list[float], float]:
            """The milliseconds of each, and the CPU time of one on average, in milliseconds."""
            began = cpu_seconds(process.pid) + cpu_seconds(world.postmaster)
            taken = [store(choice) for _ in range(scale.asked)]
            return taken, (cpu_seconds(process.pid) + cpu_seconds(world.postmaster) - began) * 1000 / scale.asked

        for choice in texts:
            for _ in range(10):
                store(choice)  # what it needs is in memory now
        for _ in range(scale.rounds):
            (merging, merging_cpu), (keeping, keeping_cpu) = store_many("merge"), store_many("keep")
            pairs.append((percentile(merging, 50), percentile(keeping, 50)))
            cpu_pairs.append((merging_cpu, max(keeping_cpu, 0.01)))
            all_ms += merging
    became = ", ".join(f"{times} {action}" for action, times in sorted(actions.items()))
    name, yardstick = f"POST /v1/observations with `merge`, in a project of {here.documents - 1:,}", "the same with `keep`"
    note = f"{spread(all_ms)}; of all that were stored: {became}"
    return [
        Figure(name=name, unit="ms", yardstick=yardstick, pairs=pairs, aim=_STORE_AIM, note=note),
        Figure(name=f"CPU time of {name}", unit="ms", yardstick=yardstick, pairs=cpu_pairs, aim=_STORE_AIM),
    ]


def _draw_texts(here: Library, project_id: UUID, first: int) -> Iterator[tuple[str, str]]:
    """Titles and narratives of words that one stored observation has, in another order; every fifth repeats the one before."""
    with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
        rows = conn.execute(_TEXTS, [project_id]).fetchall()
    words: list[str] = []
    for number in count(first):
        if number % _REPEATED_EVERY or not words:
            words = cast("str", rows[number % len(rows)][0]).split()
            words = [words[int(place)] for place in np.random.default_rng(number).permutation(len(words))[:_WORDS]]
            yield " ".join(words[:_TITLE_WORDS]), f"{' '.join(words[_TITLE_WORDS:])} {number}."
        else:
            yield " ".join(words[:_TITLE_WORDS]).capitalize(), f"{' '.join(words[_TITLE_WORDS:])} {number - 1}!"


def _measure_comparing(world: World, here: Library, scale: Scale) -> list[Figure]:
    (project_id,) = here.projects.values()
    new = max(1, (here.documents - 1) // 11)
    pairs: list[tuple[float, float]] = []
    reports: list[ComparisonReport] = []
    suggested = 0
    for _ in range(min(scale.rounds, 2)):
        with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
            conn.execute("TRUNCATE consolidation_suggestions")
            conn.execute(_PROGRESS, {"team_id": here.place.team_id, "project_id": project_id, "new": new})
        reports.append(_run_job(world, here))
        with psycopg.connect(here.place.superuser_url, autocommit=True) as conn:
            suggested = cast("tuple[int]", conn.execute("SELECT count(*) FROM consolidation_suggestions").fetchone())[0]
        pairs.append((reports[-1].seconds, _run_job(world, here).seconds))
    memory, cpu = max(report.peak_mib for report in reports), max(report.cpu_seconds for report in reports)
    return [
        Figure(
            name=f"comparing {new:,} new observations with {here.documents - 1 - new:,} others of their project",
            unit="s",
            yardstick="with nothing new",
            pairs=pairs,
            aim=_COMPARE_AIM,
            note=f"{shown(cpu)} s of CPU time of the job and PostgreSQL; at most {memory:,.0f} MiB of memory; "
            f"{suggested:,} pairs suggested",
        )
    ]


def _run_job(world: World, here: Library) -> ComparisonReport:
    command = [sys.executable, "-m", "tests.bench.consolidation", here.place.url]
    postgres_began = cpu_seconds(world.postmaster)
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    report = msgspec.json.decode(run.stdout.splitlines()[-1], type=ComparisonReport)
    return msgspec.structs.replace(report, cpu_seconds=report.cpu_seconds + cpu_seconds(world.postmaster) - postgres_began)


async def _compare(url: str) -> ComparisonReport:
    async with Db(url, size=2) as db:
        began = time.perf_counter()
        compared = await compare_new(db)
        seconds = time.perf_counter() - began
    return ComparisonReport(compared, seconds, time.process_time(), _peak_mib())


def _peak_mib() -> float:
    """The most memory that this process ever held. getrusage() would count that of the process that started it, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kilobytes) / 1024


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(asyncio.run(_compare(sys.argv[1]))).decode() + "\n")
