from __future__ import annotations

from procrastinate import PsycopgConnector

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from cmserver.worker import build_maintenance_app
from tests.base.test_positions_moved import GONE


async def test_a_restarted_worker_knows_its_periodic_tasks_by_the_same_names(db: Db, settings: Settings):
    """What an earlier life has put into the queue must be found by the next one."""
    expected = {
        "generation.keep_ready_list",
        "recall.calibrate_teams",
        "retention.sweep",
        "projects.normalise",
        "rules.expire",
        "backups.make",
    }

    for _ in range(3):
        app = build_maintenance_app(PsycopgConnector(), db, settings)

        assert {name for name, _ in app.periodic_registry.periodic_tasks} == expected  # pyright: ignore[reportUnknownMemberType]
        assert expected <= app.tasks.keys()  # pyright: ignore[reportUnknownMemberType]


async def test_tasks_that_an_older_process_queues_do_nothing_here(db: Db, settings: Settings):
    app = build_maintenance_app(PsycopgConnector(), db, settings)

    for name in GONE:
        await app.tasks[name](timestamp=0)  # pyright: ignore[reportUnknownMemberType]
