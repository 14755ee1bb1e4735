"""The real clients, installed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import install
from tests.process.conftest import folder

__all__ = ["folder"]


@pytest.fixture(scope="session")
def claude_program() -> Path:
    return install.claude()
