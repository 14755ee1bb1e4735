from __future__ import annotations

import psycopg
import pytest

from tests.house.house import has_vectors
from tests.recall.search.tools import Vectors


@pytest.fixture
def vectors(database: str) -> Vectors:
    """What needs vectors asks for this."""
    with psycopg.connect(database) as conn:
        if not has_vectors(conn):
            pytest.skip("this PostgreSQL has no pgvector: nothing is embedded, and search goes by words")
    return Vectors(database)
