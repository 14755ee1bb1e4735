from __future__ import annotations

import asyncio
import shutil
from collections.abc import Generator
from pathlib import Path
from unittest.mock import AsyncMock
from uuid import uuid4

import psycopg
import pytest
import structlog
from psycopg import sql

from cmserver.base import migrate as module
from cmserver.base.db import Db
from cmserver.base.migrate import MigrationError, connect_when_ready, installation_secret, migrate, migrations, newest
from tests.conftest import Server


def applied(url: str) -> list[tuple[int, str]]:
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT number, name FROM schema_migrations ORDER BY number").fetchall()


def execute(url: str, statement: sql.Composed | str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statement.encode() if isinstance(statement, str) else statement)


def test_the_migrations_are_numbered_from_one_without_a_gap():
    assert [one.number for one in migrations()] == list(range(1, newest() + 1))


async def test_an_empty_database_gets_every_migration_once(empty_database: str):
    first = await migrate(empty_database)
    second = await migrate(empty_database)

    assert first == [one.name for one in migrations()]
    assert second == []
    assert applied(empty_database) == [(one.number, one.name) for one in migrations()]


async def test_of_several_that_start_at_once_one_migrates_and_the_others_wait_for_it(empty_database: str):
    done = await asyncio.gather(*(migrate(empty_database) for _ in range(4)))

    assert sorted(map(len, done)) == [0, 0, 0, newest()]


async def test_the_installation_is_made_once_and_keeps_its_secret(empty_database: str):
    await migrate(empty_database)
    async with Db(empty_database, size=1) as db, db.system() as conn:
        before = await installation_secret(conn)
    await migrate(empty_database)
    async with Db(empty_database, size=1) as db, db.system() as conn:
        after = await installation_secret(conn)

    assert before == after
    assert len(before) == 32


async def test_a_file_that_was_changed_after_it_was_applied_is_refused(database: str):
    execute(database, "UPDATE schema_migrations SET checksum = 'another' WHERE number = 1")

    with pytest.raises(MigrationError, match=r"0001_schema was applied with another text"):
        await migrate(database)


async def test_the_database_of_a_newer_program_is_refused(database: str):
    execute(database, "INSERT INTO schema_migrations (number, name, checksum) VALUES (9000, '9000_future', 'x')")

    with pytest.raises(MigrationError, match=r"\(it has migration 9000_future, this program knows up to 0\d+\)"):
        await migrate(database)


async def test_the_database_of_another_program_is_refused(empty_database: str):
    execute(empty_database, "CREATE TABLE schema_migrations (version text PRIMARY KEY)")

    with pytest.raises(MigrationError, match=r"another program"):
        await migrate(empty_database)

    with psycopg.connect(empty_database) as conn:
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("schema_migrations",)]


async def test_a_migration_that_fails_leaves_nothing_behind_and_the_ones_before_it_stay(
    empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(module.sql_folder(), tmp_path / "sql")
    broken = tmp_path / "sql" / "migrations" / f"{newest() + 1:04}_broken.sql"
    broken.write_text("CREATE TABLE half (id uuid); SELECT 1 / 0;", encoding="utf-8")
    monkeypatch.setattr(module, "sql_folder", lambda: tmp_path / "sql")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrate(empty_database)

    assert [number for number, _ in applied(empty_database)] == list(range(1, int(broken.name[:4])))
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("SELECT to_regclass('half')").fetchone() == (None,)


async def test_the_next_migration_of_a_newer_program_is_applied_alone(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(module.sql_folder(), tmp_path / "sql")
    name = f"{newest() + 1:04}_colours"
    (tmp_path / "sql" / "migrations" / f"{name}.sql").write_text("CREATE TABLE colours (id uuid);", encoding="utf-8")
    monkeypatch.setattr(module, "sql_folder", lambda: tmp_path / "sql")

    assert await migrate(database) == [name]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_in_another_encoding_is_refused_before_anything_is_done(server: Server, encoding: str):
    with server.lend_encoded(encoding) as url:
        with pytest.raises(MigrationError, match=rf"is in {encoding}; cmserver needs UTF8.*\n  createdb .*--owner=\w+ NAME$"):
            await migrate(url)

        with psycopg.connect(url) as conn:
            assert conn.execute("SELECT to_regclass('schema_migrations') IS NULL").fetchone() == (True,)


async def test_an_empty_database_of_locale_c_is_refused_and_one_in_use_goes_on_with_a_word(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    with server.lend_encoded("UTF8") as url:
        with pytest.raises(MigrationError, match=r"has the locale C.*\n  createdb .*--locale=C\.UTF-8.* NAME$"):
            await migrate(url)
        with psycopg.connect(url) as conn:
            assert conn.execute("SELECT to_regclass('schema_migrations') IS NULL").fetchone() == (True,)

        with monkeypatch.context() as before:
            before.setattr(module, "check_locale", AsyncMock())
            await migrate(url)
        with structlog.testing.capture_logs() as logged:
            assert await migrate(url) == []

    assert [line["event"] for line in logged] == ["database.locale"]


async def test_an_old_postgresql_is_refused_before_anything_is_done(empty_database: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "OLDEST_POSTGRES", 99)

    with pytest.raises(MigrationError, match=r"The database is PostgreSQL \d+; cmserver needs PostgreSQL 99 or newer"):
        await migrate(empty_database)

    with psycopg.connect(empty_database) as conn:
        assert conn.execute("SELECT to_regclass('schema_migrations')").fetchone() == (None,)


# ---- the tenant's role


class Plain:
    """A database whose user may make no roles, and the administrator who may."""

    def __init__(self, server: Server) -> None:
        assert server.embedded is not None
        self._embedded = server.embedded
        self._user = f"plain_{uuid4().hex[:8]}"
        self._database = f"cmserver_test_{self._user}"
        self.as_administrator(sql.SQL("CREATE ROLE {} LOGIN NOCREATEROLE").format(sql.Identifier(self._user)))
        self._embedded.create_database(self._database, owner=self._user)

    @property
    def url(self) -> str:
        return self._embedded.url_for(self._database, role=self._user)

    def as_administrator(self, statement: sql.Composed | str) -> None:
        execute(self._embedded.superuser_url, statement)

    def drop(self) -> None:
        self._embedded.drop_database(self._database)
        self.as_administrator(sql.SQL("DROP ROLE {}").format(sql.Identifier(self._user)))


@pytest.fixture
def plain(server: Server) -> Generator[Plain]:
    if server.embedded is None:
        pytest.skip("needs a superuser, which only the server that the tests start gives them")
    made = Plain(server)
    yield made
    made.drop()


@pytest.fixture
def missing_role(server: Server, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """Roles are the cluster's, and all other tests need the real one: a role of another name stands for one that is not there."""
    name = f"tenant_{uuid4().hex[:8]}"
    monkeypatch.setattr(module, "TENANT_ROLE", name)
    yield name
    execute(server.url("postgres"), sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


async def test_a_user_who_may_make_no_roles_is_told_two_statements_and_they_help(missing_role: str, plain: Plain):
    with pytest.raises(MigrationError, match="may not make the role") as refused:
        await migrate(plain.url)
    _, create, grant = str(refused.value).splitlines()
    plain.as_administrator(create)
    plain.as_administrator(grant)

    assert await migrate(plain.url) == [one.name for one in migrations()]
    assert may_become(plain.url, missing_role)
    plain.as_administrator(sql.SQL("DROP ROLE {}").format(sql.Identifier(missing_role)))


async def test_a_role_that_a_restored_dump_did_not_bring_is_made_again(missing_role: str, database: str):
    assert await migrate(database) == []

    assert may_become(database, missing_role)


def may_become(url: str, role: str) -> bool:
    with psycopg.connect(url, options=f"-c role={role}") as conn:
        return conn.execute("SELECT current_user").fetchone() == (role,)


# ---- waiting for the database


async def test_a_database_that_answers_is_ready_at_once(empty_database: str):
    await connect_when_ready(empty_database, 0)


async def test_a_database_that_does_not_answer_in_time_is_an_error(tmp_path: Path):
    with pytest.raises(psycopg.OperationalError):
        await connect_when_ready(f"host={tmp_path} dbname=cmserver", 0)
