"""A recording server, and agents with each shell that this machine has."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from tests.hooks.client.agent import Agent
from tests.hooks.client.recorder import Recorder


@pytest.fixture(params=["dash", pytest.param("bash", marks=pytest.mark.slow), pytest.param("busybox", marks=pytest.mark.slow)])
def shell(request: pytest.FixtureRequest) -> Path:
    name = cast("str", request.param)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return Path(found)


@pytest.fixture
def server() -> Generator[Recorder]:
    recorder = Recorder()
    recorder.start()
    yield recorder
    recorder.free.set()
    recorder.stop()


@pytest.fixture
def agent(tmp_path: Path, shell: Path, server: Recorder) -> Generator[Agent]:
    made = Agent(tmp_path, shell, server.url)
    yield made
    made.until_idle()
