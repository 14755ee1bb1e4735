"""The image's command without a database of its own, as far as that can be tried without a container engine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.house.test_container import image_environment, of
from tests.process.conftest import Run
from tests.process.program import Program, User, wait_until_gone

pytestmark = pytest.mark.slow


def settings_of_image(folder: Path) -> dict[str, str]:
    """The image's environment; only folder and port are those of the test."""
    assert json.loads(of("CMD")[0]) == ["run"]
    return {**image_environment(), "CMSERVER_DATA_DIR": str(folder / "data"), "CMSERVER_PORT": "0"}


def end_container(program: Program) -> None:
    """What `docker kill` does: no process of the container lives on."""
    postgres_pid = program.postgres_pid
    program.stop(signal.SIGKILL)
    wait_until_gone(postgres_pid)


def test_an_empty_volume_of_an_ordinary_user_is_filled_and_outlives_a_kill(run: Run, folder: Path, ordinary_user: User):
    volume = folder / "data"
    volume.mkdir(mode=0o700)
    os.chown(volume, ordinary_user.uid, ordinary_user.gid)
    first = run("first", settings=settings_of_image(folder), user=ordinary_user)
    first.wait_until_ready()
    key = first.key
    with first.http() as client:
        client.post("/v1/projects", json={"canonicalId": "orders"}).raise_for_status()
        client.post("/v1/observations", json={"projectId": "orders", "title": "Kept"}).raise_for_status()
    end_container(first)

    second = run("second", settings=settings_of_image(folder), user=ordinary_user)
    second.wait_until_ready()

    assert second.key == key
    with second.http() as client:
        answer = client.get("/v1/observations", params={"project": "orders"}).raise_for_status()
    assert [observation["title"] for observation in answer.json()["observations"]] == ["Kept"]
