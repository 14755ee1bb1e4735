"""What was erased after a backup does not come back with it: the journal beside the backups, and a restore that repeats it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import UUID

import httpx
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal, JournalError, read_journal
from cmserver.base.settings import Settings
from cmserver.embedded.tools import find_tools
from cmserver.ops.backup.archive import BackupError, open_backup
from cmserver.ops.backup.back_up import back_up
from cmserver.ops.backup.journal import begin_journal
from cmserver.ops.backup.replay import find_erasures
from cmserver.ops.backup.restore import RestoreReport, check_restore_ended, restore
from tests.conftest import Cast, Person, Server
from tests.make import Make
from tests.personal.people import make_account, make_key

PLANTED = "xylophone-of-the-erased"


@pytest.fixture
def journal(settings: Settings) -> ErasureJournal:
    return ErasureJournal(settings.backup_folder)


@pytest.fixture
async def db(server: Server, database: str, journal: ErasureJournal) -> AsyncGenerator[Db]:
    """With a journal, as the server has one."""
    async with Db(server.urls_of(database), size=6, journal=journal) as opened:
        await begin_journal(opened, journal)
        yield opened


async def remember(client: httpx.AsyncClient, person: Person, text: str, project: str | None = None) -> str:
    body = {"projectId": project or str(person.project.id), "title": text, "narrative": f"{text} once more"}
    answer = await client.post("/v1/observations", json=body, headers=person.headers)
    assert answer.is_success, answer.text
    return str(answer.json()["observation"]["id"])


async def bring_back(file: Path, url: str, tmp_path: Path, journal: ErasureJournal, *, keep_keys: bool = False) -> RestoreReport:
    with open_backup(file) as backup:
        return await restore(backup, url, tmp_path, find_erasures(backup.manifest, [journal.file]), keep_keys=keep_keys)


def dump_of(url: str) -> str:
    """Everything that is in the database, as text."""
    with psycopg.connect(url) as conn:
        tools = find_tools(conn.info.server_version // 10_000)
    return subprocess.run(
        [tools.bin / "pg_dump", "--inserts", f"--dbname={url}"], capture_output=True, text=True, check=True
    ).stdout


def value(url: str, query: str, *params: object) -> object:
    with psycopg.connect(url) as conn:
        row = conn.execute(query.encode(), params).fetchone()
        return row[0] if row else None


async def test_what_was_forgotten_after_the_backup_is_nowhere_in_the_restored_database(
    client: httpx.AsyncClient,
    cast: Cast,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    forgotten = await remember(client, cast.alice, PLANTED)
    kept = await remember(client, cast.alice, "what is kept")
    entity = {"projectId": str(cast.alice.project.id), "type": "concept", "name": "A thing", "notes": PLANTED}
    told = (await client.post("/v1/entities", json=entity, headers=cast.alice.headers)).json()["entity"]["id"]
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)
    assert PLANTED in dump_of(database)

    for path in (f"/v1/observations/{forgotten}", f"/v1/entities/{told}"):
        assert (await client.delete(path, headers=cast.alice.headers)).is_success
    report = await bring_back(file, empty_database, tmp_path, journal)

    assert report.erased == 2
    assert report.revoked_keys == 0
    assert PLANTED not in dump_of(empty_database)
    assert value(empty_database, "SELECT count(*) FROM observations WHERE id = %s", UUID(kept)) == 1
    assert PLANTED not in journal.file.read_text()


async def test_what_a_person_forgot_for_ever_does_not_come_back(
    client: httpx.AsyncClient,
    cast: Cast,
    db: Db,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    ann = await make_key(db, await make_account(db, cast.alice.team_id, "ann"))
    for text in (PLANTED, "what is kept"):
        body = {"scope": "user", "narrative": text}
        assert (await client.post("/v1/observations", json=body, headers=ann.headers)).is_success
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    for _ in range(2):
        assert (await client.delete("/v1/personal-observations/m1", headers=ann.headers)).is_success
    report = await bring_back(file, empty_database, tmp_path, journal)

    assert report.erased == 1
    assert PLANTED not in dump_of(empty_database)
    assert value(empty_database, "SELECT array_agg(content) FROM personal_observations") == ["what is kept"]


async def test_a_deleted_turn_does_not_come_back(
    client: httpx.AsyncClient,
    cast: Cast,
    make: Make,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    gone, kept = [await make.turn(project=cast.alice.project, reply=text) for text in (PLANTED, "what is kept")]
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    assert (await client.delete(f"/episodes/{gone.id}", headers=cast.alice.headers)).is_success
    report = await bring_back(file, empty_database, tmp_path, journal)

    assert report.erased == 1
    assert PLANTED not in dump_of(empty_database)
    assert value(empty_database, "SELECT array_agg(id) FROM turns") == [kept.id]


async def test_what_was_merged_into_a_forgotten_observation_does_not_come_back_alone(
    client: httpx.AsyncClient,
    cast: Cast,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    first, second = [await remember(client, cast.alice, f"{PLANTED} {place}") for place in range(2)]
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    merged = await client.post(f"/v1/observations/{first}/merge", json={"sources": [second]}, headers=cast.alice.headers)
    assert merged.is_success, merged.text
    assert (await client.delete(f"/v1/observations/{first}", headers=cast.alice.headers)).is_success
    await bring_back(file, empty_database, tmp_path, journal)

    assert PLANTED not in dump_of(empty_database)


async def test_a_purge_is_repeated_but_takes_nothing_that_came_after_it(
    client: httpx.AsyncClient, cast: Cast, settings: Settings, server: Server, database: str, empty_database: str, tmp_path: Path,
    journal: ErasureJournal,
):  # fmt: skip
    await remember(client, cast.alice, PLANTED)
    before, after = tmp_path / "before.backup", tmp_path / "after.backup"
    await back_up(database, settings, before)
    assert (await client.delete(f"/v1/projects/{cast.alice.project.id}/memory", headers=cast.alice.headers)).is_success
    await remember(client, cast.alice, "what came after the purge")
    await back_up(database, settings, after)

    await bring_back(after, empty_database, tmp_path, journal)
    assert "what came after the purge" in dump_of(empty_database)
    server.drop(empty_name := str(value(empty_database, "SELECT current_database()")))
    server.create(empty_name)
    await bring_back(before, empty_database, tmp_path, journal)

    assert PLANTED not in dump_of(empty_database)
    assert value(empty_database, "SELECT count(*) FROM projects WHERE id = %s", cast.alice.project.id) == 1


async def test_projects_teams_keys_and_members_stay_away(
    client: httpx.AsyncClient,
    cast: Cast,
    settings: Settings,
    database: str,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
):
    made = await client.post("/v1/projects", json={"canonicalId": "github.com/acme/gone"}, headers=cast.alice.headers)
    gone = str(made.json()["project"]["id"])
    await remember(client, cast.alice, PLANTED, gone)
    await remember(client, cast.charlie, PLANTED)
    member = f"/v1/teams/{cast.alice.team_id}/members/mallory"
    assert (await client.put(member, json={"role": "member"}, headers=cast.alice.headers)).is_success
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)

    acts = [
        client.delete(f"/v1/projects/{gone}", headers=cast.alice.headers),
        client.delete(f"/v1/keys/{cast.bob.principal.key_id}", headers=cast.alice.headers),
        client.delete(member, headers=cast.alice.headers),
        client.delete(f"/v1/teams/{cast.charlie.team_id}", headers=cast.charlie.headers),
    ]
    for act in acts:
        answer = await act
        assert answer.is_success, answer.text
    report = await bring_back(file, empty_database, tmp_path, journal)

    assert report.erased == len(acts)
    assert PLANTED not in dump_of(empty_database)
    assert value(empty_database, "SELECT count(*) FROM teams WHERE id = %s", cast.charlie.team_id) == 0
    assert value(empty_database, "SELECT revoked_at IS NOT NULL FROM api_keys WHERE id = %s", cast.bob.principal.key_id)
    assert value(empty_database, "SELECT revoked_at IS NULL FROM api_keys WHERE id = %s", cast.alice.principal.key_id)
    assert value(empty_database, "SELECT count(*) FROM team_members WHERE user_id = 'mallory'") == 0


async def test_without_a_journal_that_reaches_back_every_key_is_revoked_unless_told_otherwise(
    cast: Cast,
    settings: Settings,
    database: str,
    server: Server,
    empty_database: str,
    tmp_path: Path,
    journal: ErasureJournal,
    db: Db,
):
    file = tmp_path / "one.backup"
    await back_up(database, settings, file)
    journal.file.unlink()
    await begin_journal(db, journal)  # begun after the backup
    valid = "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL"
    keys = value(database, valid)

    report = await bring_back(file, empty_database, tmp_path, journal)
    assert report.revoked_keys == keys
    assert value(empty_database, valid) == 0
    server.drop(empty_name := str(value(empty_database, "SELECT current_database()")))
    server.create(empty_name)
    await bring_back(file, empty_database, tmp_path, journal, keep_keys=True)

    assert value(empty_database, valid) == keys == 3
    assert cast.alice.principal.key_id


async def test_nothing_is_erased_that_the_journal_does_not_take(client: httpx.AsyncClient, cast: Cast, journal: ErasureJournal):
    observation = await remember(client, cast.alice, "stays while it cannot be journalled")
    journal.file.unlink()
    journal.file.mkdir()

    answer = await client.delete(f"/v1/observations/{observation}", headers=cast.alice.headers)

    assert answer.status_code == 503
    assert "CMSERVER_BACKUP_DIR" in answer.text
    assert (await client.get(f"/v1/observations/{observation}", headers=cast.alice.headers)).is_success
    journal.file.rmdir()


async def test_a_refused_erasure_is_not_in_the_journal(client: httpx.AsyncClient, cast: Cast, journal: ErasureJournal):
    observation = await remember(client, cast.alice, "of another team")

    assert (await client.delete(f"/v1/observations/{observation}", headers=cast.charlie.headers)).status_code == 404

    read = read_journal(journal.file)
    assert read is not None
    assert read[1] == []


async def test_a_torn_line_is_skipped_and_the_next_one_is_read(client: httpx.AsyncClient, cast: Cast, journal: ErasureJournal):
    observation = await remember(client, cast.alice, "erased after a torn line")
    with journal.file.open("a") as file:
        file.write('{"at": "2026-')

    assert (await client.delete(f"/v1/observations/{observation}", headers=cast.alice.headers)).is_success

    read = read_journal(journal.file)
    assert read is not None
    assert [erasure.resource_id for erasure in read[1]] == [observation]


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path):
    (tmp_path / "erasures.jsonl").write_text("no journal")

    with pytest.raises(JournalError, match="first line"):
        read_journal(tmp_path / "erasures.jsonl")


async def test_a_restore_that_was_killed_between_loading_and_erasing_is_continued_and_not_served(
    client: httpx.AsyncClient, cast: Cast, settings: Settings, database: str, empty_database: str, tmp_path: Path,
    journal: ErasureJournal, monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    forgotten = await remember(client, cast.alice, PLANTED)
    file = tmp_path / "one.backup"
    manifest = await back_up(database, settings, file)
    await client.delete(f"/v1/observations/{forgotten}", headers=cast.alice.headers)
    with open_backup(file) as backup:
        await restore(backup, empty_database, tmp_path)  # without erasures: what a killed restore has loaded
    with psycopg.connect(empty_database) as conn:
        conn.execute("CREATE TABLE public.restore_unfinished ()")
        conn.execute(f"COMMENT ON TABLE public.restore_unfinished IS '{manifest.dump_sha256}'".encode())

    with pytest.raises(BackupError, match="was not ended"):
        await check_restore_ended(empty_database)
    await bring_back(file, empty_database, tmp_path, journal)

    await check_restore_ended(empty_database)
    assert PLANTED not in dump_of(empty_database)
