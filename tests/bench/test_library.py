"""The large database that search is measured on: its rows are what the program would have written."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest

from tests.bench.library import Library, library
from tests.bench.world import world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def here() -> Generator[Library]:
    with world(durable=False) as opened:
        yield library(opened, 1500, sizes=(100, 1000))


def test_words_are_those_that_the_trigger_makes_of_the_texts(here: Library):
    with psycopg.connect(here.place.superuser_url) as conn:
        copied = dict(
            conn.execute("SELECT id, (tsvector_to_array(content_search), content_words)::text FROM observations").fetchall()
        )
        conn.execute("UPDATE observations SET search_language = search_language")
        made = dict(
            conn.execute("SELECT id, (tsvector_to_array(content_search), content_words)::text FROM observations").fetchall()
        )

    assert len(made) == 1650
    assert made == copied


def test_projects_have_their_sizes_and_take_turns(here: Library):
    with psycopg.connect(here.place.superuser_url) as conn:
        counted = dict(conn.execute("SELECT project_id, count(*) FROM observations GROUP BY 1").fetchall())
        of_team = conn.execute("SELECT count(*) FROM observations WHERE team_id = %s", [here.place.team_id]).fetchone()
        last, first = conn.execute(
            "SELECT max(n), min(n) FROM (SELECT project_id, row_number() OVER (ORDER BY created_at) n FROM observations) o"
            " WHERE project_id = %s",
            [here.projects[100]],
        ).fetchone() or (0, 0)

    assert {size: counted[project_id] for size, project_id in here.projects.items()} == {100: 100, 1000: 1000}
    assert of_team == (1500,)
    assert last - first > 500
