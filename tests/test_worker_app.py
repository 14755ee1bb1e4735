from __future__ import annotations

from procrastinate import PsycopgConnector

from cmserver.worker import maintenance_app


def test_a_restarted_worker_knows_its_periodic_tasks_by_the_same_names():
    """What an earlier life has put into the queue must be found by the next one."""
    expected = {"generation.keep_ready_list", "ingest.end_idle_sessions", "observations.count_accesses"}

    for _ in range(3):
        app = maintenance_app(PsycopgConnector())

        assert {name for name, _ in app.periodic_registry.periodic_tasks} == expected  # pyright: ignore[reportUnknownMemberType]
        assert expected <= app.tasks.keys()  # pyright: ignore[reportUnknownMemberType]
