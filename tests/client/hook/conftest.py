"""A recording server, and agents with each shell that this machine has."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder

SHELLS = [name for name in ("dash", "bash", "bash-3.2", "busybox", "ksh", "zsh", "sh") if shutil.which(name)]
"""Those of this machine; the quick tests take the first. `bash-3.2` is macOS's, where somebody has built it."""


_LATER = [pytest.mark.slow, pytest.mark.shells]


@pytest.fixture(params=[SHELLS[0], *(pytest.param(name, marks=_LATER) for name in SHELLS[1:] if name != "sh")])
def shell(request: pytest.FixtureRequest) -> Path:
    return Path(cast("str", shutil.which(cast("str", request.param))))


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
