"""`cmserver context`."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from msgspec import UNSET

from cmserver.cli.exit_codes import ExitCode
from cmserver.recall.wire import IndexOut
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"


@pytest.fixture
async def filled(cast: Cast, make: Make) -> None:
    """Three observations, of which two say the same."""
    await make.observation(project=cast.alice.project, title="The pool waits", type="decision", files_modified=["src/pool.py"])
    await make.observation(project=cast.alice.project, title="Made it \x1b[31mred", type="change")
    await make.observation(project=cast.alice.project, title="made it [31mred!", type="change")


async def test_people_see_what_agents_are_told(cms: Cms, client: httpx.AsyncClient, cast: Cast, filled: None):
    told = await client.get("/v1/context", params={"project": ORDERS, "format": "text"}, headers=cast.alice.headers)

    said = await cms("context", ORDERS, key=cast.alice.key)

    assert said.out == told.text
    assert "\x1b" not in said.out


async def test_in_a_checkout_the_project_need_not_be_named(
    cms: Cms, cast: Cast, filled: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/orders.git\n')
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")

    here = await cms("context", key=cast.alice.key)
    named = await cms("context", ORDERS, key=cast.alice.key)

    assert here.code == 0, here
    assert here.out == named.out


async def test_a_folder_of_which_nothing_is_known_is_named(cms: Cms, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    said = await cms("context", key=cast.alice.key)

    assert (said.code, str(tmp_path) in said.err) == (ExitCode.FAILURE, True)


async def test_colours_are_there_when_they_are_asked_for(cms: Cms, cast: Cast, filled: None):
    said = await cms("context", ORDERS, "--color", "--changed-files", "src/pool.py", key=cast.alice.key)

    assert "\x1b[36m#1\x1b[0m" in said.out
    assert "\x1b[1mIn src/pool.py, changed on this branch:\x1b[0m" in said.out
    assert "\x1b[31m" not in said.out


async def test_each_line_is_explained_and_so_is_what_has_none(cms: Cms, cast: Cast, filled: None):
    said = await cms("context", ORDERS, "--explain", "--changed-files", "src/pool.py", key=cast.alice.key)

    rows = [line.split() for line in said.out.splitlines()[1:4]]
    assert rows[0] == ["1", "1.77", "0.47", "0.50", "-", "-", "0.80", "-", "-", "-", "-", "-", "decision", "The", "pool", "waits"]
    assert [row[0] for row in rows] == ["1", "3", "2"]
    assert "said already" in said.out.splitlines()[3]
    assert said.out.endswith(" of 2000 tokens for 2 lines; left out: 1 (said already)\n")


async def test_programs_get_all_of_it(cms: Cms, cast: Cast, filled: None):
    said = await cms("context", ORDERS, "--json", "--source", "clear", key=cast.alice.key)

    explained = said.read(IndexOut).explained
    assert explained is not UNSET
    assert [line.number for line in explained.lines] == [3, 1]


async def test_looking_leaves_no_receipt(cms: Cms, client: httpx.AsyncClient, cast: Cast, filled: None):
    body = {"projectId": ORDERS, "externalSessionId": "s-1"}
    started = await client.post("/v1/sessions/start", headers=cast.alice.headers, json=body)
    session = started.json()["session"]["id"]

    said = await cms("context", "--session", session, "--source", "resume", key=cast.alice.key)

    assert "New in the memory of orders" in said.out
    kept = await client.get(f"/v1/sessions/{session}/context", headers=cast.alice.headers)
    assert kept.json() == {"receipts": [], "nextCursor": None}
