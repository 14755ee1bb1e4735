"""The doctor, on a healthy server and with planted faults: each is found, with a command, and nothing else is."""

from __future__ import annotations

import os
import shutil
import time
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from unittest.mock import AsyncMock
from uuid import uuid4

import httpx
import pytest
from msgspec import convert, structs
from psycopg.conninfo import conninfo_to_dict

from cmserver.base import credentials
from cmserver.base import migrate as migrations
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.models.calls import repository as calls
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError
from cmserver.ops.doctor import database as database_checks
from cmserver.ops.doctor.database import check_credentials, check_database, raise_command
from cmserver.ops.doctor.model import BY_CODE, CHECKS, DoctorFinding, SpentBudget, find
from cmserver.ops.doctor.server import check_server
from tests.conftest import Cast, Server, mint
from tests.doors.web.visitor import visit_as
from tests.embeddings.test_without_vectors import superuser
from tests.generation.tools import Outbox, Scripted
from tests.house.house import ROOT
from tests.make import Make


@pytest.fixture
def urls(server: Server, database: str) -> DatabaseUrls:
    return server.urls_of(database)


@pytest.fixture
async def healthy(outbox: Outbox) -> Outbox:
    """A server with a worker whose lease holds."""
    await outbox.hand(Scripted(), lease_seconds=600)
    return outbox


async def execute(db: Db, *statements: str) -> None:
    async with db.system() as conn:
        for statement in statements:
            await conn.execute(statement.encode())


def codes(findings: list[DoctorFinding]) -> set[str]:
    return {finding.code for finding in findings}


async def test_a_healthy_fresh_server_has_no_finding(
    healthy: Outbox, db: Db, settings: Settings, urls: DatabaseUrls, tmp_path: Path
):
    assert await check_database(db, settings, urls) == []
    assert check_server(structs.replace(settings, data_dir=tmp_path / "none yet")) == []


class Fault(NamedTuple):
    """Statements that plant a fault, and the codes that it must be found by."""

    statements: tuple[str, ...]
    codes: set[str]


_TEAM = "(SELECT id FROM teams WHERE name = 'blue')"
_MODEL = "INSERT INTO embedding_models (id, provider, model, state) OVERRIDING SYSTEM VALUE VALUES (77, 'other', 'model-x', '{}')"
_LOST = "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour'"
_STEWARD_JOB = f"""
    INSERT INTO observation_generation_jobs
           (id, team_id, project_id, lane, source_type, source_id, job_type, status, attempts, failed_at, last_error)
    SELECT gen_random_uuid(), team_id, id, id, 'steward', id, 'recheck', 'failed', 3, now(), '{{"reason": "timeout"}}'
      FROM projects WHERE team_id = {_TEAM} LIMIT 1
"""
FAULTS = {
    "an older schema": Fault(("DELETE FROM schema_migrations",), {"schema.older"}),
    "a schema of before the first release": Fault(
        (
            "UPDATE schema_migrations SET name = '0001_access'",
            "INSERT INTO schema_migrations SELECT 64, '0064_own_lines_on_prompts', 'x'",
        ),
        {"schema.older"},
    ),
    "a newer schema": Fault(
        (
            """
            INSERT INTO schema_migrations
            SELECT (s).* FROM (SELECT jsonb_populate_record(m, '{"number": 9999}') AS s FROM schema_migrations m LIMIT 1) x
            """,
        ),
        {"schema.newer"},
    ),
    "no schema": Fault(("DROP TABLE schema_migrations CASCADE",), {"schema.older"}),
    "no row-level security": Fault(("ALTER TABLE observations DISABLE ROW LEVEL SECURITY",), {"tenant.role", "tenant.policies"}),
    "a table without a policy": Fault(("DROP POLICY team ON budgets",), {"tenant.policies"}),
    "no worker": Fault(("DELETE FROM generation_workers",), {"worker.none"}),
    "a dead worker": Fault((_LOST,), {"worker.none", "worker.dead"}),
    "an expired lease": Fault(
        (
            """
            UPDATE generation_lanes
               SET worker_id = (SELECT worker_id FROM generation_workers LIMIT 1), claim = 1, locked_at = now()
            """,
            _LOST,
        ),
        {"worker.none", "worker.dead", "lease.expired"},
    ),
    "a stuck lane": Fault(("UPDATE generation_lanes SET due_at = now() - interval '6 minutes'",), {"lane.stuck", "queue.behind"}),
    "a queue that is behind": Fault(("UPDATE generation_lanes SET due_at = now() - interval '4 minutes'",), {"queue.behind"}),
    "a spent budget": Fault(
        (
            f"INSERT INTO budgets (id, team_id, period, max_tokens) VALUES (gen_random_uuid(), {_TEAM}, 'month', 10)",
            f"""
            INSERT INTO generation_spending
            VALUES ({_TEAM}, (now() AT TIME ZONE 'UTC')::date, gen_random_uuid(), 'p', 'm', 1, 0, 0, 20, 0, 0, 0, 0)
            """,
        ),
        {"budget.exhausted"},
    ),
    "a key that expires soon": Fault(
        ("UPDATE api_keys SET expires_at = now() + interval '2 days' WHERE actor_id = 'bob'",), {"key.expiring"}
    ),
    "a used key that has expired": Fault(
        (
            """
            UPDATE api_keys SET expires_at = now() - interval '1 day', last_used_at = now() - interval '2 days'
             WHERE actor_id = 'bob'
            """,
        ),
        {"key.expired"},
    ),
    "a key whose maker is no longer in the team": Fault(
        (
            "INSERT INTO users (id, name) VALUES ('0190d6f0-0000-7000-8000-000000000001', 'zoe')",
            "UPDATE api_keys SET made_by = '0190d6f0-0000-7000-8000-000000000001' WHERE actor_id = 'bob'",
        ),
        {"key.maker"},
    ),
    "jobs of the steward that were given up": Fault((_STEWARD_JOB,), {"jobs.failed"}),
    "what words had hidden": Fault(
        (
            f"""
            INSERT INTO audit_log (team_id, actor_id, action, resource_type, details)
            VALUES ({_TEAM}, 'system', 'observations.revived', 'project', '{{"numbers": [1, 2]}}')
            """,
        ),
        {"words.revived"},
    ),
    "a rule that waits for a yes": Fault(
        (
            f"""
            INSERT INTO observations (id, number, team_id, project_id, origin, type, content)
            SELECT gen_random_uuid(), 9999, team_id, id, 'mcp', 'decision', 'x' FROM projects WHERE team_id = {_TEAM} LIMIT 1
            """,
            """
            INSERT INTO rule_approvals (observation_id, team_id, project_id, asked_at)
            SELECT id, team_id, project_id, now() - interval '4 days' FROM observations WHERE number = 9999
            """,
        ),
        {"rules.waiting"},
    ),
    "another embedder in use": Fault(
        (_MODEL.format("current"),),
        {"embedder.stale"},
    ),
}


def test_the_command_for_a_spent_budget_is_whole():
    def raised(**fields: object) -> str:
        usual = {"team": "blue", "project": None, "period": "month", "max_tokens": None, "max_usd": None}
        budget = convert({**usual, "by_tokens": False, "by_usd": False, **fields}, SpentBudget)
        return raise_command(budget)

    assert raised(max_usd=Decimal(20), by_usd=True) == "cmserver budgets set --period month --usd AMOUNT"
    of_project = raised(project="it's", period="day", max_tokens=1000, by_tokens=True, max_usd=Decimal("2.50"))
    assert of_project == """cmserver budgets set --period day --project 'it'"'"'s' --tokens NUMBER --usd 2.50"""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=[name.replace(" ", "-") for name in FAULTS])
async def test_a_fault_in_the_database_is_found_and_nothing_else(
    healthy: Outbox, db: Db, settings: Settings, urls: DatabaseUrls, fault: Fault, monkeypatch: pytest.MonkeyPatch
):
    await healthy.put(1)
    await execute(db, *fault.statements)
    settings = structs.replace(settings, embedder="ollama")
    monkeypatch.setattr(database_checks, "WARNING_SECONDS", 200)  # apart from a lane that is stuck

    found = await check_database(db, settings, urls)

    # without pgvector nothing is embedded, and no model is looked at
    has_vector = "database.extension" not in codes(found)
    assert codes(found) - {"database.extension"} == fault.codes - (set() if has_vector else {"embedder.stale"})
    assert all(finding.command for finding in found)


async def test_a_job_that_failed_for_good_is_found(healthy: Outbox, db: Db, settings: Settings):
    def refuse(_: Prompt) -> Completion:
        raise ProviderError(FailureKind.REFUSED, "No.")

    await healthy.put(1)
    await (await healthy.hand(Scripted(refuse), lease_seconds=600)).work()

    assert codes(await check_database(db, settings)) == {"jobs.failed", "provider.answers"}


async def test_a_paused_provider_is_found_with_the_command_that_resumes_it(healthy: Outbox, db: Db, settings: Settings):
    async with db.system() as conn:
        await calls.pause_provider(conn, "anthropic", "quota_exhausted", "Charlie's request was refused.", 600)

    (finding,) = await check_database(db, settings)

    assert (finding.code, finding.command) == ("provider.paused", "cmserver providers resume anthropic")
    assert finding.message.startswith("anthropic is paused: it ")
    assert "_" not in finding.message, "a code is no word"
    assert "Charlie" not in finding.message, "the provider's own words may quote a request"


async def test_a_clock_that_is_an_hour_off_is_found(healthy: Outbox, db: Db, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    now = time.time()
    monkeypatch.setattr(database_checks.time, "time", lambda: now + 3600)

    assert codes(await check_database(db, settings)) == {"database.clock"}


async def test_vectors_without_an_embedder_are_found(healthy: Outbox, db: Db, settings: Settings):
    await execute(
        db,
        _MODEL.format("current"),
    )

    assert codes(await check_database(db, structs.replace(settings, embedder="none"))) == {"embedder.absent"}


async def test_texts_that_cannot_be_embedded_are_found(healthy: Outbox, db: Db, settings: Settings, make: Make, cast: Cast):
    observation = await make.observation(project=cast.alice.project)
    await execute(
        db,
        _MODEL.format("building"),
        "INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, attempts, last_error) "
        f"VALUES ('{observation.id}', 77, '{cast.alice.team_id}', '{cast.alice.project.id}', 3, 'too long')"
        " ON CONFLICT (observation_id, model_id) WHERE observation_id IS NOT NULL DO UPDATE SET last_error = 'too long'",
    )

    assert codes(await check_database(db, structs.replace(settings, embedder="none"))) == {"embeddings.failing"}


async def test_a_missing_extension_is_found_when_an_embedder_is_set(
    healthy: Outbox, db: Db, settings: Settings, server: Server, database: str
):
    with superuser(server, database) as conn:
        conn.execute("DROP EXTENSION IF EXISTS vector CASCADE")
    await execute(db, "ALTER TABLE observation_embeddings ADD COLUMN IF NOT EXISTS embedding real[]")  # as it is without

    assert codes(await check_database(db, structs.replace(settings, embedder="ollama"))) == {"database.extension"}


async def test_another_order_of_sorting_is_found(healthy: Outbox, db: Db, settings: Settings, server: Server, database: str):
    """As in a database whose collation has a version: the embedded one's has none."""
    with superuser(server, database) as conn:
        if conn.info.server_version < 170_000:
            pytest.skip("PostgreSQL before 17 has no collation provider that is always there")
        conn.execute(
            "UPDATE pg_database SET datlocprovider = 'b', datlocale = 'C.UTF-8', datcollversion = '0'"
            " WHERE datname = current_database()"
        )
    found = await check_database(db, settings)

    assert codes(found) == {"database.collation"}
    assert str(conninfo_to_dict(database)["dbname"]) in found[0].command


async def test_notifications_that_do_not_arrive_are_found(
    healthy: Outbox, db: Db, settings: Settings, server: Server, urls: DatabaseUrls
):
    elsewhere = structs.replace(urls, direct=server.url("postgres"))

    assert codes(await check_database(db, settings, elsewhere)) == {"database.notify"}


async def test_a_pooler_that_no_setting_names_is_found(
    healthy: Outbox, db: Db, settings: Settings, urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
):
    async def passes_pooler(_url: str) -> bool:
        return True

    monkeypatch.setattr("cmserver.base.db._passes_pooler", passes_pooler)

    (finding,) = await check_database(db, settings, urls)

    assert finding.code == "database.pooling"
    assert "CMSERVER_DATABASE_POOLING" in finding.message


async def test_too_few_connections_are_found(healthy: Outbox, db: Db, settings: Settings):
    assert codes(await check_database(db, structs.replace(settings, database_pool_size=900))) == {"database.connections"}


async def test_a_long_transaction_is_found_with_its_process(
    healthy: Outbox, db: Db, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_checks, "_TRANSACTION_SECONDS", 0)
    async with db.owner_session() as conn, conn.transaction():
        await conn.execute("SELECT 1")
        pid = conn.info.backend_pid

        found = await check_database(db, settings)

    command = f"psql -c 'SELECT pg_terminate_backend({pid})'"
    assert [(finding.code, finding.command) for finding in found] == [("database.transaction", command)]


async def test_dead_rows_are_found(healthy: Outbox, db: Db, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database_checks, "_DEAD_ROWS", 10)
    await healthy.put(30)
    await execute(db, "ALTER TABLE agent_events SET (autovacuum_enabled = false)")
    for _ in range(2):
        await execute(db, "UPDATE agent_events SET occurred_at = occurred_at", "SELECT pg_stat_force_next_flush()")

    found = await check_database(db, settings)

    command = "psql -c 'VACUUM (ANALYZE) agent_events'"
    assert ("database.vacuum", command) in [(finding.code, finding.command) for finding in found]


async def test_a_database_in_another_encoding_is_found(settings: Settings, server: Server):
    with server.lend_encoded("SQL_ASCII") as url:
        async with Db(DatabaseUrls(owner=url), size=1) as db:
            found = await check_database(db, settings)

    assert codes(found) == {"database.encoding"}


async def test_a_database_of_locale_c_that_is_in_use_is_found(settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch):
    with server.lend_encoded("UTF8") as url, monkeypatch.context() as before:
        before.setattr(migrations, "check_locale", AsyncMock())
        await migrations.migrate(url)
        async with Db(DatabaseUrls(owner=url), size=2) as db:
            found = await check_database(db, settings)

    assert "database.locale" in codes(found)


async def test_a_key_that_the_server_refuses_is_found(settings: Settings, db: Db, cast: Cast):
    team = "blue one"
    stored = credentials.Credentials(url="http://127.0.0.1:1", key=cast.alice.key, team=team)
    credentials.write(settings.data_dir, stored)
    known = await check_credentials(db, settings.data_dir)
    credentials.write(settings.data_dir, structs.replace(stored, key=f"cms_{uuid4().hex}_secret"))
    (finding,) = await check_credentials(db, settings.data_dir)
    credentials.write(settings.data_dir, structs.replace(stored, key=f"{cast.alice.key[:-4]}0000"))
    (altered,) = await check_credentials(db, settings.data_dir)
    (settings.data_dir / "credentials").write_text("{")
    (damaged,) = await check_credentials(db, settings.data_dir)
    credentials.write(settings.data_dir, stored)
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET revoked_at = now()")
    (revoked,) = await check_credentials(db, settings.data_dir)

    assert (revoked.code, "revoked" in revoked.message) == ("credentials.key", True)
    assert (altered.code, "altered" in altered.message) == ("credentials.key", True)
    assert (damaged.code, "is damaged" in damaged.message) == ("credentials.key", True)
    assert known == []
    assert (finding.code, finding.command) == ("credentials.key", "cmserver keys create --operator --team 'blue one'")
    assert str(settings.data_dir / "credentials") in finding.message
    assert "secret" not in finding.message


async def test_a_database_that_does_not_answer_is_found(settings: Settings):
    nowhere = DatabaseUrls(owner="postgresql://127.0.0.1:1/none?connect_timeout=1")
    async with Db(nowhere, size=1) as db:
        db.hurry()

        assert codes(await check_database(db, settings)) == {"database.unreachable"}


# ---- the server's settings and files


async def test_a_provider_without_its_key_is_found(settings: Settings):
    found = check_server(structs.replace(settings, provider="anthropic", embedder="voyage"))

    assert codes(found) == {"provider.key", "embedder.settings"}
    assert "ANTHROPIC_API_KEY" in found[0].message


def test_an_unknown_setting_is_found(settings: Settings):
    (finding,) = check_server(settings, ["CMSERVER_PROVIDR is no setting. Did you mean CMSERVER_PROVIDER?"])

    assert finding.code == "settings.unknown"


class DiskUsage(NamedTuple):
    """What shutil.disk_usage returns of a disk."""

    total: int
    free: int


def test_a_full_disk_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    def disk_usage(_folder: Path) -> DiskUsage:
        return DiskUsage(total=100 * 10**9, free=10**6)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)

    (finding,) = check_server(settings)

    assert (finding.code, finding.command) == ("disk.full", f"df -h {settings.data_dir}")


def test_a_credentials_file_that_others_can_read_is_found(settings: Settings):
    file = settings.data_dir / "credentials"
    file.write_text("{}")
    file.chmod(0o644)

    (finding,) = check_server(settings)

    assert (finding.code, finding.command) == ("credentials.readable", f"chmod 600 {file}")


def test_files_of_somebody_else_and_unreadable_files_are_found(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    (settings.data_dir / "folder").mkdir()
    (settings.data_dir / "folder" / "theirs").write_text("x")
    nobody = 65534

    def can_access(path: Path, _mode: int) -> bool:
        return path.name != "theirs"  # root, who may run this, reads everything

    monkeypatch.setattr(os, "getuid", lambda: nobody)

    foreign = check_server(settings)
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", can_access)
    unreadable = check_server(settings)

    assert codes(foreign) == {"files.owner"}
    assert codes(unreadable) == {"files.unreadable"}


# ---- the catalogue, the route and the page


def test_each_check_has_a_code_of_its_own_and_a_command():
    assert len(BY_CODE) == len(CHECKS)
    assert all(check.command and check.fault.endswith(".") for check in CHECKS)
    assert find("provider.paused", name="x").command == "cmserver providers resume x"


def test_each_check_has_a_planted_fault():
    files = ("ops/test_doctor.py", "ops/test_doctor_backups.py", "cli/test_doctor_findings.py", "generation/test_weak_models.py")
    texts = "".join((ROOT / "tests" / file).read_text(encoding="utf-8") for file in files)

    assert [code for code in BY_CODE if f'"{code}"' not in texts] == []


async def test_the_route_is_for_the_operator(client: httpx.AsyncClient, healthy: Outbox, db: Db, cast: Cast):
    _, admin = await mint(db, cast.alice.team_id, "admin", scopes=["admin"])
    await execute(db, "DROP POLICY team ON budgets")

    answer = (await client.get("/v1/doctor", headers=cast.alice.headers)).json()

    assert [(finding["code"], finding["severity"]) for finding in answer["findings"]] == [("tenant.policies", "error")]
    assert (await client.get("/v1/doctor", headers={"X-Api-Key": admin})).status_code == 403


async def test_the_page_shows_findings_to_operators_only(app: AsgiFrame, healthy: Outbox, db: Db, cast: Cast):
    operator = await visit_as(app, db, cast.alice.team_id, is_operator=True)
    owner = await visit_as(app, db, cast.alice.team_id)

    well = await operator.get("/ui/doctor")
    async with db.system() as conn:
        await calls.pause_provider(conn, "<script>x</script>", "auth_invalid", "No.", 600)
    ill = await operator.get("/ui/doctor")

    assert "and found none." in well.text
    assert "provider.paused" in ill.text
    assert "<script>x" not in ill.text
    assert (await owner.get("/ui/doctor")).status_code == 403
