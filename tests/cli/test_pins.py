"""Pins by commands: checked, loaded from a repository, and before an upgrade."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import httpx
import pytest

from cmserver.base import migrate as migrating
from cmserver.base.db import Db
from cmserver.base.migrate import Migration
from cmserver.recall.search import lexical
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make
from tests.pins.tools import PROJECT, pin, remember_things, send
from tests.repositories import Repository
from tests.rows import rows


@pytest.fixture
async def memory(cast: Cast, make: Make) -> None:
    await remember_things(cast, make)


@pytest.mark.usefixtures("memory")
async def test_a_changed_rule_that_loses_an_answer_stops_the_upgrade(
    client: httpx.AsyncClient, cast: Cast, db: Db, database: str, cms: Cms, monkeypatch: pytest.MonkeyPatch
):
    await pin(client, cast, "which port does staging use", must=["8443"])
    await pin(client, cast, "which port does production use", must=["9999"], onBreak="refuse")  # never held
    kept = migrating.migrations()
    number = kept[-1].number + 1
    added = Migration(number, f"{number:04}_later", "CREATE TABLE later (id integer)")
    monkeypatch.setattr(migrating, "migrations", lambda: [*kept, added])
    assert (await cms("upgrade", CMSERVER_DATABASE_URL=database)).code == 0
    again = Migration(number + 1, f"{number + 1:04}_last", "CREATE TABLE last (id integer)")
    monkeypatch.setattr(migrating, "migrations", lambda: [*kept, added, again])
    monkeypatch.setattr(lexical, "MAX_WORDS", 0)  # a rule by which no word is looked for

    await send(client, cast, "PATCH", "/v1/pins/1", {"onBreak": "refuse"})
    await db_holds(db, number=1)
    refused = await cms("upgrade", CMSERVER_DATABASE_URL=database)

    assert refused.code == 1
    assert "Pin 1 of project" in refused.err
    assert "'8443' does not come" in refused.err
    assert await rows(db, "SELECT to_regclass('last') IS NULL AS gone") == [{"gone": True}]
    assert await rows(db, "SELECT max(number) AS number FROM schema_migrations") == [{"number": number}]
    await send(client, cast, "PATCH", "/v1/pins/1", {"onBreak": "report"})
    await db_holds(db, number=1)
    reported = await cms("upgrade", CMSERVER_DATABASE_URL=database)
    assert reported.code == 0
    assert f"Migrated: {again.name}\nPin 1 of project" in reported.out


async def db_holds(db: Db, *, number: int) -> None:
    """As its check said before the rule was changed."""
    await rows(db, "UPDATE pins SET holds = true WHERE number = %s", number)


@pytest.mark.usefixtures("memory")
async def test_a_check_ends_by_whether_all_hold_and_writes_junit(client: httpx.AsyncClient, cast: Cast, cms: Cms, tmp_path: Path):
    await pin(client, cast, "which port does staging use", must=["8443"])
    assert (await cms("pins", "check", key=cast.alice.key)).code == 0
    await pin(client, cast, "how long is the <export>\x1b?", must=["two & hours"])

    checked = await cms("pins", "check", "--junit", str(tmp_path / "pins.xml"), key=cast.alice.key)

    assert checked.code == 1
    assert [line.split()[:2] for line in checked.out.splitlines()[1:3]] == [["1", "yes"], ["2", "no"]]
    assert checked.out.endswith("1 of 2 pins hold.\n")
    suite = ET.parse(tmp_path / "pins.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "'two & hours' does not come in the first 5 lines"


@pytest.mark.usefixtures("memory")
async def test_a_repositorys_file_is_loaded_or_refused_whole(cast: Cast, db: Db, cms: Cms, tmp_path: Path):
    file = tmp_path / "pins.toml"

    async def load(text: str | bytes) -> tuple[int, str]:
        file.unlink(missing_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        said = await cms("pins", "load", str(file), "--project", PROJECT, key=cast.alice.key)
        return said.code, said.out + said.err

    code, out = await load('[[pin]]\nquestion = "which port does staging use"\nmust = ["8443"]\nmust_not = ["8080"]\nlines = 3\n')
    assert code == 0, out
    assert "1 of 1 pins hold." in out
    before = await rows(db, "SELECT * FROM pins")

    for text, part in [
        ('[[pin]]\nquestion = "a"\nmust = ["a"]\nlines = 99', "$.pins[0].lines"),
        ("pin = 3", "two brackets"),
        ('pin = ["a"]', "$.pins[0]"),
        ('[[pins]]\nquestion = "a"', "[[pin]]"),
        ("[[pin", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        ("a = " + "[" * 100_000, "not TOML"),
        ("#" * (1 << 20) + "#", "larger than"),
        ('[[pin]]\nquestion = "a"\nmust = [8443]', "$.pins[0].must[0]"),
    ]:
        code, out = await load(text)
        assert (code != 0, part in out) == (True, True), (text[:40], out)
    file.unlink()
    file.symlink_to("/etc/passwd")
    said = await cms("pins", "load", str(file), "--project", PROJECT, key=cast.alice.key)
    assert said.code == 1
    assert "not a link" in said.err
    assert await rows(db, "SELECT * FROM pins") == before


@pytest.mark.usefixtures("memory")
async def test_one_is_added_to_the_project_of_the_folder(cms: Cms, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = Repository(tmp_path / "clone")
    repository.git("remote", "add", "origin", f"https://{PROJECT}.git")
    monkeypatch.chdir(repository.folder)

    added = await cms("pins", "add", "which port does staging use", "--must", "8443", key=cast.alice.key)

    assert (added.code, (await cms("pins", "list", "--project", PROJECT, key=cast.alice.key)).out.count("8443")) == (0, 1)
