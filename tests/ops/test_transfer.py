"""Exports and imports: what comes out goes in again and is equal; nothing is taken twice, and nothing secret at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from uuid import UUID

import httpx
import msgspec
import psycopg
import pytest

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate
from cmserver.ops import repository as ops
from cmserver.ops.backup.journal import begin_journal
from cmserver.ops.transfer.export import export_team
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer, Source
from tests.conftest import Cast, Person, Server, make_person, make_team

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


async def take(db: Db, principal: Principal, source: Source, tmp_path: Path, *, dry_run: bool = False) -> ImportReport:
    journal = ErasureJournal(tmp_path / "backups").file
    return await Importer(db, principal, source, journal=journal, dry_run=dry_run).run(lambda _done: None)


async def export(url: str, principal: Principal, file: Path, *project_ids: UUID) -> Path:
    out: list[bytes] = []
    await export_team(url, principal.team_id, list(project_ids) or None, out.append)
    write(file, out)
    return file


def write(file: Path, content: list[bytes]) -> None:
    file.write_bytes(b"".join(content))


async def live(client: httpx.AsyncClient, person: Person) -> None:
    """A session with a prompt and a tool use, observations of all kinds, a merge, a correction and a relationship."""

    async def post(path: str, body: object) -> dict[str, dict[str, str]]:
        answer = await client.post(path, json=body, headers=person.headers)
        assert answer.is_success, f"{path}: {answer.text}"
        return answer.json()

    project = str(person.project.id)
    session = (await post("/v1/sessions/start", {"projectId": project, "externalSessionId": "s1", "platformSource": "claude"}))[
        "session"
    ]
    prompt = {"projectId": project, "eventType": "user_prompt", "payload": {"prompt": "Bound the cache."}, "contentSessionId": "s1"}
    await post("/v1/events?generate=false", {**prompt, "serverSessionId": session["id"], "sourceEventId": "p1"})
    await post("/v1/events?generate=false", {"projectId": project, "eventType": "note", "payload": {"text": "a note"}})
    ids = [
        (
            await post(
                "/v1/observations", {"projectId": project, "title": title, "narrative": f"{title}, at length", "facts": ["one"]}
            )
        )["observation"]["id"]
        for title in ("Cache is bounded", "Cache is bounded now", "Retries wait", "Queue is fair")
    ]
    await post(f"/v1/observations/{ids[0]}/merge", {"sources": [ids[1]]})
    corrected = await client.patch(f"/v1/observations/{ids[2]}", json={"state": "open", "importance": 0.7}, headers=person.headers)
    assert corrected.is_success, corrected.text
    cache, other, queue = [
        (await post("/v1/entities", {"projectId": project, "type": "concept", "name": name, "notes": name}))["entity"]["id"]
        for name in ("The cache", "The LRU", "The queue")
    ]
    await post(f"/v1/entities/{other}/merge", {"intoId": cache})
    await post(f"/v1/entities/{cache}/relations", {"toId": queue, "label": "feeds", "evidence": [4]})


@pytest.fixture
async def exported(client: httpx.AsyncClient, cast: Cast, database: str, tmp_path: Path) -> Path:
    await live(client, cast.alice)
    with psycopg.connect(database) as conn:
        conn.execute(
            "INSERT INTO observation_relationships "
            "(id, team_id, from_id, from_project_id, to_id, to_project_id, relationship, context) "
            "SELECT %s, a.team_id, a.id, a.project_id, b.id, b.project_id, 'DEPENDS_ON', 'why' FROM observations a, observations b "
            "WHERE a.title = 'Retries wait' AND b.title = 'Queue is fair'",
            [new_id()],
        )
    return await export(database, cast.alice.principal, tmp_path / "first.jsonl")


@pytest.fixture
async def other(server: Server, empty_database: str) -> Db:
    """Another server's database, without a team."""
    await migrate(empty_database)
    return Db(server.urls_of(empty_database), size=3)


def text_of(file: Path) -> str:
    return file.read_text()


def records(file: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in file.read_bytes().splitlines():
        record = msgspec.json.decode(line, type=dict[str, object])["record"]
        counts[str(record)] = counts.get(str(record), 0) + 1
    return counts


async def test_an_import_of_an_export_is_exported_equally(exported: Path, other: Db, empty_database: str, tmp_path: Path):
    assert records(exported) == {
        "export": 1, "project": 1, "session": 1, "event": 2, "prompt": 1, "observation": 4, "version": 2, "relationship": 2,
        "entity": 2, "entity_relation": 1
    }  # fmt: skip
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        report = await take(db, green.principal, JsonlSource(exported), tmp_path)
        again = await export(empty_database, green.principal, tmp_path / "second.jsonl", *JsonlSource(exported).project_ids())

        assert report.refused == {}
        assert text_of(again) == text_of(exported)
        async with db.system() as conn:
            assert all(team.holds for team in await ops.CONSERVATION.all(conn))
            assert all(team.holds for team in await ops.NUMBER_SUMS.all(conn))


async def test_the_second_import_takes_nothing(exported: Path, other: Db, tmp_path: Path):
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        first = await take(db, green.principal, JsonlSource(exported), tmp_path)
        second = await take(db, green.principal, JsonlSource(exported), tmp_path)

    assert first.taken == {name: count for name, count in records(exported).items() if name != "export"}
    assert (second.taken, second.refused) == ({}, {})
    assert second.known == first.taken


async def test_an_import_that_was_interrupted_again_and_again_is_the_whole_in_the_end(
    exported: Path, other: Db, empty_database: str, tmp_path: Path
):
    journal = ErasureJournal(tmp_path / "backups").file
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")

        async def run(batches: int) -> None:
            done = count(1)

            def interrupt(_lines: int) -> None:
                if next(done) == batches:
                    raise asyncio.CancelledError

            await Importer(db, green.principal, JsonlSource(exported), journal=journal).run(interrupt)

        types = len(records(exported)) - 1
        for batches in range(1, types + 1):
            with pytest.raises(asyncio.CancelledError):
                await run(batches)
        await run(types + 1)
        again = await export(empty_database, green.principal, tmp_path / "second.jsonl", *JsonlSource(exported).project_ids())

    assert text_of(again) == text_of(exported)


async def test_a_dry_run_says_the_same_and_stores_nothing(exported: Path, other: Db, empty_database: str, tmp_path: Path):
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        dry = await take(db, green.principal, JsonlSource(exported), tmp_path, dry_run=True)
        with psycopg.connect(empty_database) as conn:
            assert conn.execute("SELECT count(*) FROM observations").fetchone() == (0,)
            assert conn.execute("SELECT count(*) FROM projects").fetchone() == (1,)
        wet = await take(db, green.principal, JsonlSource(exported), tmp_path)

    assert dry.taken == wet.taken


async def test_a_copy_in_another_team_of_the_same_server_has_ids_of_its_own(
    exported: Path, cast: Cast, db: Db, database: str, client: httpx.AsyncClient, tmp_path: Path
):
    report = await take(db, cast.charlie.principal, JsonlSource(exported), tmp_path)
    again = await take(db, cast.charlie.principal, JsonlSource(exported), tmp_path)

    assert report.taken["observation"] == 4
    assert report.refused == {}
    assert again.taken == {}
    ours = await export(database, cast.alice.principal, tmp_path / "ours.jsonl")
    assert text_of(ours) == text_of(exported)
    theirs = await export(database, cast.charlie.principal, tmp_path / "theirs.jsonl")
    assert records(theirs) == records(exported)
    body = {"projectId": str(cast.charlie.project.id), "query": "retries wait"}
    found = await client.post("/v1/search", json=body, headers=cast.charlie.headers)
    assert [hit["title"] for hit in found.json()["observations"]][:1] == ["Retries wait"]


async def test_an_observation_whose_number_is_taken_gets_another(exported: Path, other: Db, tmp_path: Path, empty_database: str):
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        with psycopg.connect(empty_database) as conn:
            conn.execute("INSERT INTO observation_counters VALUES (%s, 1)", [green.team_id])
            conn.execute(
                "INSERT INTO observations (id, number, project_id, team_id, origin, content) VALUES (%s, 1, %s, %s, 'api', 'mine')",
                [new_id(), green.project.id, green.team_id],
            )
        report = await take(db, green.principal, JsonlSource(exported), tmp_path)

    assert report.renumbered == 1
    with psycopg.connect(empty_database) as conn:
        numbers = [row[0] for row in conn.execute("SELECT number FROM observations ORDER BY number").fetchall()]
        assert numbers == [1, 2, 3, 4, 5]
        assert conn.execute("SELECT last_number FROM observation_counters").fetchone() == (6,)


def edited(file: Path, change: Callable[[dict[str, object]], object]) -> Path:
    """A copy of the export in which `change` has changed lines, or dropped those for which it says False."""
    other = file.with_name("edited.jsonl")
    lines = [msgspec.json.decode(line, type=dict[str, object]) for line in file.read_bytes().splitlines()]
    other.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines if change(line) is not False))
    return other


async def test_secrets_do_not_come_in(exported: Path, other: Db, empty_database: str, tmp_path: Path):
    def plant(line: dict[str, object]) -> None:
        if line["record"] == "observation":
            line["narrative"] = f"export GITHUB_TOKEN={SECRET} <private>nobody's business</private>"
            line["content"] = line["narrative"]
        if line["record"] == "event":
            line["payload"] = {"token": SECRET}

    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        report = await take(db, green.principal, JsonlSource(edited(exported, plant)), tmp_path)
        again = await export(empty_database, green.principal, tmp_path / "second.jsonl")

    assert report.redactions
    assert SECRET not in text_of(again)
    assert "nobody's business" not in text_of(again)


async def test_what_cannot_be_taken_is_reported_with_its_place_and_the_rest_is_taken(exported: Path, other: Db, tmp_path: Path):
    def break_lines(line: dict[str, object]) -> None:
        if line["record"] == "observation" and line["title"] == "Retries wait":
            line["importance"] = 7
        if line["record"] == "prompt":
            line["prompt_number"] = "first"

    file = edited(exported, break_lines)
    write(file, [file.read_bytes(), b'{"record":"unknown"}\nno json\n\xff\n'])
    async with other as db:
        green = await make_person(db, await make_team(db, "green"), "grace", "github.com/acme/other")
        report = await take(db, green.principal, JsonlSource(file), tmp_path)

    assert report.taken["observation"] == 3
    assert report.refused == {"line": 4, "observation": 1, "version": 1, "relationship": 1}
    assert any("importance" in refusal.reason for refusal in report.examples)
    assert all(refusal.place.startswith("line ") for refusal in report.examples)


async def test_what_was_erased_here_does_not_come_back(
    exported: Path, db: Db, cast: Cast, server: Server, database: str, tmp_path: Path, client: httpx.AsyncClient
):
    journal = ErasureJournal(tmp_path / "backups")
    async with Db(server.urls_of(database), size=3, journal=journal) as journalled:
        await begin_journal(journalled, journal)
        async with db.system() as conn:
            erased = (await conn.execute("SELECT id FROM observations WHERE title = 'Queue is fair'")).fetchone
            row = await erased()
        assert row
        from cmserver.observations.write import delete  # noqa: PLC0415 - only here

        await journalled.in_tenant(cast.alice.team_id, lambda conn: delete(conn, cast.alice.principal, str(row[0])))

    report = await take(db, cast.alice.principal, JsonlSource(exported), tmp_path)

    assert report.erased == {"observation": 1, "relationship": 1}
    assert report.taken == {}


@pytest.mark.parametrize("content", [b"", b"no json\n", b'{"record":"project"}\n', b'{"record":"export","format":3}\n'])
def test_a_file_that_is_no_export_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(Invalid):
        JsonlSource(tmp_path / "file")
