"""`bin/bench profile`: where each microsecond of an event, a search, a context and a hook goes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import cast

import click
import msgspec
import psycopg

from cmserver.base import logs
from cmserver.embedded.files import debian_binaries
from tests.bench import page, session
from tests.bench.library import library
from tests.bench.operations import KINDS, Kind, Server, measure, read_context, search, start_role
from tests.bench.peers.install import cache_folder, install
from tests.bench.profile import record
from tests.bench.profile.hook import profile_hook
from tests.bench.profile.record import Operation, Profile, Statement
from tests.bench.world import Place, World, value, world

_SAMPLES_PER_SECOND = 200
_STATEMENTS = """
    SELECT query, calls, total_exec_time * 1000 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
     WHERE d.datname = %s ORDER BY total_exec_time DESC LIMIT 20
"""


def profile_kind(server: Server, kind: Kind, number: int, py_spy: Path, folder: Path) -> Operation:
    """Do it three times: by the counters of the processes and of PostgreSQL, under py-spy, and under strace."""
    number = kind.rounded(number)
    cost = measure(server, kind, number)
    places, functions = _sampled(server, kind, number, py_spy, folder)
    return Operation(
        name=kind.name,
        cost=cost,
        places={place: share * cost.program_us for place, share in places.items()},
        functions={function: share * cost.program_us for function, share in functions.items()},
        system_calls=_traced(server, kind, number, folder),
    )


def _sampled(server: Server, kind: Kind, number: int, py_spy: Path, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    kind.prepare(server, number)
    output = folder / "stacks"
    command = [py_spy, "record", "-p", str(server.pid), "-f", "raw", "-r", str(_SAMPLES_PER_SECOND), "-o", output, "--subprocesses"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1)
        kind.run(server, number)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    if not output.is_file():
        raise RuntimeError(f"py-spy failed: {error}")
    return record.shares(output.read_text(encoding="utf-8").splitlines())


def _traced(server: Server, kind: Kind, number: int, folder: Path) -> dict[str, float]:
    """Empty where strace is missing or may not attach."""
    kind.prepare(server, number)
    output = folder / "calls"
    try:
        process = subprocess.Popen(
            ["strace", "-c", "-f", "-p", str(server.pid), "-o", output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except FileNotFoundError:
        process = None
    time.sleep(0.5)
    kind.run(server, number)
    if process is None:
        return {}
    process.send_signal(signal.SIGINT)
    process.wait(30)
    return record.system_calls(output.read_text(encoding="utf-8"), number) if output.is_file() else {}


def statements(number: int, observations: int) -> dict[str, list[Statement]]:
    """By operation. Empty where Debian's PostgreSQL with pg_stat_statements is missing."""
    binaries = debian_binaries()
    if binaries is None:
        return {}
    found: dict[str, list[Statement]] = {}
    with world(binaries=binaries, shared_preload_libraries="pg_stat_statements") as here:
        for kind in KINDS:
            place = here.place()
            with start_role(here, place, kind.role) as server:
                number = kind.rounded(number)
                kind.prepare(server, number)
                if kind.run in {search, read_context}:
                    _remember(server, observations)
                with psycopg.connect(here.embedded.superuser_url, autocommit=True) as conn:
                    conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
                    conn.execute("SELECT pg_stat_statements_reset()")
                kind.run(server, number)
                with psycopg.connect(here.embedded.superuser_url, autocommit=True) as conn:
                    rows = conn.execute(_STATEMENTS, [place.url.partition("?")[0].rpartition("/")[2]]).fetchall()
            found[kind.name] = [
                Statement(text=_shortened(text), calls=calls / number, microseconds=taken / number) for text, calls, taken in rows
            ]
    return found


def _shortened(text: str) -> str:
    """The beginning of a statement, on one line, as a cell of a table."""
    return re.sub(r"\s+", " ", text).strip()[:110].replace("|", "¦").replace("`", "'")


def _place(world: World, kind: Kind, observations: int) -> Place:
    """With so many observations in the project where they are read."""
    if kind.run not in {search, read_context}:
        return world.place()
    found = library(world, observations * 3 // 2, sizes=[observations])
    return msgspec.structs.replace(found.place, project_id=found.projects[observations])


def _remember(server: Server, number: int) -> None:
    """Observations by hand: what the library makes needs vectors."""
    with server.client() as client:
        for place in range(number):
            content = json.dumps(session.tool_use(place)["tool_input"])
            body = {"projectId": str(server.place.project_id), "content": content}
            client.post("/v1/memories", json=body).raise_for_status()


@click.command()
@click.option("--quick", is_flag=True, help="A few operations: whether everything runs.")
@click.option("--operations", "number", default=2000, show_default=True, help="How often each operation is done in each pass.")
@click.option(
    "--keep", is_flag=True, help="Keep the figures in docs/reference/bench/profile.json and docs/reference/performance.md."
)
def main(number: int, *, quick: bool, keep: bool) -> None:
    """Show where the CPU time of one event, hook, search and context goes. Takes some five minutes.

    py-spy comes from PyPI into the cache folder; strace and Debian's PostgreSQL with pg_stat_statements are used where they are.
    """
    logs.configure("console", "error")
    observations = 10_000
    if quick:
        number, observations = 50, 500
    py_spy = install(cache_folder()).py_spy
    operations: list[Operation] = []
    with tempfile.TemporaryDirectory() as temporary, world() as here:
        folder = Path(temporary)
        for kind in KINDS:
            size = number if kind.run not in {search, read_context} else max(20, number // 5)
            with start_role(here, _place(here, kind, observations), kind.role) as server:
                operations.append(profile_kind(server, kind, size, py_spy, folder))
            click.echo(f"{kind.name}: {operations[-1].cost.program_us:.0f} µs + {operations[-1].cost.postgres_us:.0f} µs", err=True)
        hooks = profile_hook(here, max(5, number // 20), folder)
        machine = page.machine(cast("str", value(here.embedded.url, "SHOW server_version")))
        texts = statements(number // 4, number // 2)
    operations = [msgspec.structs.replace(operation, statements=texts.get(operation.name, [])) for operation in operations]
    profile = Profile(machine=machine, operations=operations, hooks=hooks)
    click.echo(record.section(profile))
    if keep:
        click.echo(f"kept: {record.keep(profile).relative_to(page.ROOT)}")
        page.write_kept_sections()
