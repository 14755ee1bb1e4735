"""Exports and imports: what comes out goes in again and is equal; nothing is taken twice, and nothing secret at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import get_args

import httpx
import msgspec
import psycopg
import pytest

from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate
from cmserver.ops import repository as ops
from cmserver.ops.backup.journal import begin_journal
from cmserver.ops.transfer.jsonl import JsonlSource
from cmserver.ops.transfer.model import LINE_TYPES, DataLine, HeaderLine
from cmserver.ops.transfer.pipeline import Importer
from tests.conftest import Cast, Person, Server, make_person, make_team, mint
from tests.ops.transfers import encode, export, make_whole_export, take, write
from tests.table import try_rows

ELSEWHERE = "01900000-0000-7000-8000-0000000fffff"
"""The id of nothing."""
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


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
    return await export(database, cast.alice.team_id, tmp_path / "first.jsonl")


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
        again = await export(empty_database, green.team_id, tmp_path / "second.jsonl", *JsonlSource(exported).project_ids())

        assert report.refused == {}
        assert text_of(again) == text_of(exported)
        async with db.system() as conn:
            assert all(team.holds for team in await ops.CONSERVATION.all(conn))
            assert all(team.holds for team in await ops.NUMBER_SUMS.all(conn))


def test_the_whole_export_has_each_class_of_line_with_each_of_its_fields():
    lines = make_whole_export()

    assert {type(line) for line in lines} - {HeaderLine} == set(LINE_TYPES) == set(get_args(DataLine))
    for line_type in LINE_TYPES:
        optional = dict(
            zip(line_type.__struct_fields__[-len(line_type.__struct_defaults__) :], line_type.__struct_defaults__, strict=True)
        )
        given = [msgspec.to_builtins(line).keys() for line in lines if isinstance(line, line_type)]
        assert optional.keys() - set[str]().union(*given) == set(), line_type


async def test_every_class_of_line_and_every_field_comes_in_and_out_equal(other: Db, empty_database: str, tmp_path: Path):
    file = tmp_path / "whole.jsonl"
    write(file, [encode(make_whole_export())])
    async with other as db:
        team_id = await make_team(db, "green")
        principal, _ = await mint(db, team_id, "grace", scopes=["*"])
        dry = await take(db, principal, JsonlSource(file), tmp_path, dry_run=True)
        report = await take(db, principal, JsonlSource(file), tmp_path)
        repeated = await take(db, principal, JsonlSource(file), tmp_path)
        again = await export(empty_database, team_id, tmp_path / "again.jsonl")

    assert (report.examples, report.redactions, report.renumbered) == ([], {}, 0)
    assert again.read_text().splitlines() == file.read_text().splitlines()
    assert dry.taken == report.taken == repeated.known
    assert (repeated.taken, repeated.refused) == ({}, {})


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
        again = await export(empty_database, green.team_id, tmp_path / "second.jsonl", *JsonlSource(exported).project_ids())

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
    ours = await export(database, cast.alice.team_id, tmp_path / "ours.jsonl")
    assert text_of(ours) == text_of(exported)
    theirs = await export(database, cast.charlie.team_id, tmp_path / "theirs.jsonl")
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
        again = await export(empty_database, green.team_id, tmp_path / "second.jsonl")

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
    assert report.refused == {"line": 3, "prompt": 1, "observation": 1, "version": 1, "relationship": 1}
    assert any("importance" in refusal.reason for refusal in report.examples)
    assert all(refusal.place.startswith("line ") for refusal in report.examples)


@try_rows(
    "record, change, path",
    [
        ("project", {"retention": {"forever": True}}, "$.retention"),
        ("project", {"consolidation": "always"}, "$.consolidation"),
        ("entity", {"type": "feeling"}, "$.type"),
        ("entity", {"folded_name": ""}, "$.folded_name"),
        ("session", {"title": ""}, "$.title"),
        ("session", {"started_at": "yesterday"}, "$.started_at"),
        ("event", {"server_session_id": ELSEWHERE}, "$.server_session_id"),
        ("event", {"payload_size": 3}, "payload_size"),
        ("prompt", {"agent_event_id": ELSEWHERE}, "$.agent_event_id"),
        ("prompt", {"agent_id": None}, "$.prompt_number"),
        ("prompt", {"number": 2**62}, "$.number"),
        ("observation", {"state": "open", "closed_at": "2026-03-01T09:00:00Z"}, "$.closed_at"),
        ("observation", {"importance": 7}, "$.importance"),
        ("observation", {"access_count": 2**40}, "$.access_count"),
        ("observation", {"quote_event_id": ELSEWHERE}, "$.quote_event_id"),
        ("observation", {"facts": ["a", 3]}, "$.facts[1]"),
        ("source", {"observation_id": ELSEWHERE}, "$.observation_id"),
        ("source", {"source_id": ELSEWHERE}, "$.source_id"),
        ("version", {"undone_at": None, "before": None}, "$.before"),
        ("version", {"similarity": 1e300}, "$.similarity"),
        ("relationship", {"relationship": "causes"}, "$.relationship"),
        ("relationship", {"to_id": ELSEWHERE}, "$.to_id"),
        ("entity_relation", {"to_id": ELSEWHERE}, "$.to_id"),
        ("entity_relation", {"label": ""}, "$.label"),
    ],
)
async def test_a_broken_line_is_refused_with_its_number_and_path_and_nothing_of_it_is_stored(
    db: Db, database: str, tmp_path: Path, record: str, change: dict[str, object], path: str
):
    lines = [msgspec.json.decode(line, type=dict[str, object]) for line in encode(make_whole_export()).splitlines()]
    place = max(place for place, line in enumerate(lines) if line["record"] == record)
    lines[place] |= change
    file = tmp_path / "broken.jsonl"
    write(file, [msgspec.json.encode(line) + b"\n" for line in lines])
    team_id = await make_team(db, f"{record}, {path}, {change}")
    principal, _ = await mint(db, team_id, "grace", scopes=["*"])

    for _ in range(2):
        report = await take(db, principal, JsonlSource(file), tmp_path)
        reasons = [refusal.reason for refusal in report.examples if refusal.place == f"line {place + 1}"]
        assert len(reasons) == 1
        assert path in reasons[0]
    whole = await export(database, team_id, tmp_path / "again.jsonl")
    assert records(whole).get(record, 0) == sum(line["record"] == record for line in lines) - 1


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
