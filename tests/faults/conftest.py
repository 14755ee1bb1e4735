"""What the storms of a test file share, and the folder of each."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.faults.base import Base, make_base, temporary_folder


@pytest.fixture(scope="module")
def base() -> Generator[Base]:
    with temporary_folder() as folder:
        yield make_base(folder)


@pytest.fixture
def folder() -> Generator[Path]:
    with temporary_folder() as folder_path:
        yield folder_path
