from __future__ import annotations

import pytest

from cmserver.base.db import Db
from tests.make import Make
from tests.retention.rows import OldRows


@pytest.fixture
def old(db: Db, make: Make) -> OldRows:
    return OldRows(db, make)
