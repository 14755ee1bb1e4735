"""kill -9 at any moment of the first start: after the next one the key in the credentials file works."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cmserver.base.credentials import PENDING_NAME
from tests.process.conftest import Run
from tests.process.program import Program, wait_for, wait_until_gone

pytestmark = pytest.mark.slow


def assert_it_starts_with_a_key_that_works(run: Run, label: str, settings: dict[str, str]) -> Program:
    program = run(label, settings=settings)
    program.wait_until_ready()
    with program.http() as client:
        assert client.get("/v1/info").status_code == 200
    assert not (program.data_dir / PENDING_NAME).exists()
    assert program.key not in program.output + program.errors
    return program


def kill(program: Program) -> None:
    if program.process.poll() is None:
        program.send(signal.SIGKILL)
    program.process.wait()


POINTS: dict[str, Callable[[Program], bool]] = {
    "locked": lambda program: (program.data_dir / "lock").exists(),
    "initdb begins": lambda program: any(program.data_dir.glob("pg*.new*/base")),
    "initdb writes": lambda program: any(program.data_dir.glob("pg*.new*/global/pg_control")),
    "initdb ended": lambda program: any(program.data_dir.glob("pg[0-9][0-9]")),
    "migrations": lambda program: bool(program.logged("migration.applied")),
    "key pending": lambda program: (program.data_dir / PENDING_NAME).exists() or bool(program.logged("team.created")),
    "key made": lambda program: bool(program.logged("team.created")),
    "key stored": lambda program: (program.data_dir / "credentials").exists(),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_given_point_of_the_first_start(run: Run, point: str):
    first = run("first")
    wait_for("the point of the kill", lambda: POINTS[point](first))
    kill(first)

    second = assert_it_starts_with_a_key_that_works(run, "second", {})

    assert second.stop() == 0
    for record in first.logged("postgres.started"):
        wait_until_gone(int(str(record["pid"])))
    assert list(second.data_dir.glob("pg*.new*")) == []


def test_kills_at_random_moments_of_the_first_start_on_a_database_of_ones_own(run: Run, empty_database: str, folder: Path):
    settings = {"CMSERVER_DATABASE_URL": empty_database}
    chance = random.Random(4)
    for number in range(8):
        program = run(f"killed-{number}", settings=settings)
        time.sleep(chance.uniform(0.3, 2.5))
        kill(program)

    assert_it_starts_with_a_key_that_works(run, "last", settings)


@pytest.mark.parametrize("key", ["", "brought-along-by-the-operator"])
def test_a_kill_when_the_team_has_just_been_made_on_a_database_of_ones_own(run: Run, empty_database: str, key: str):
    settings = {"CMSERVER_DATABASE_URL": empty_database, **({"CMSERVER_BOOTSTRAP_KEY": key} if key else {})}
    first = run("first", settings=settings)
    first.wait_for_log("team.created")
    kill(first)

    program = assert_it_starts_with_a_key_that_works(run, "second", settings)

    assert not key or program.key == key
