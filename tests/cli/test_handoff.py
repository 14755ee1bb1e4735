"""`cmserver handoff`: of the branch that is checked out in the folder, to read or for a teammate."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.cli.exit_codes import ExitCode
from tests.cli.conftest import Cms
from tests.conftest import Cast, Person
from tests.generation.test_turns import Agent
from tests.generation.tools import Outbox
from tests.personal.people import make_two
from tests.repositories import Repository


@pytest.fixture
async def ann(
    client: httpx.AsyncClient, cast: Cast, db: Db, outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Person:
    """Who works in a clone on two branches, and is on `retry` now."""
    ann, _ = await make_two(db, cast.alice.team_id)
    repository = Repository(tmp_path / "clone")
    repository.git("remote", "add", "origin", "https://github.com/acme/orders.git")
    repository.git("checkout", "-q", "-b", "retry")
    agent = Agent(client, cast, outbox)
    for branch, words in (("main", "Rename the ledger."), ("retry", "Send each payment with its key.")):
        agent.headers = {**ann.headers, "X-Cmserver-Project": "github.com/acme/orders", "X-Cmserver-Git-Branch": branch}
        await agent.prompt(words)
        await agent.edit("src/pay.py", "pass", words)
        await agent.stop("It is done.")
    monkeypatch.chdir(repository.folder)
    return ann


async def test_without_more_it_is_of_the_folder_s_project_and_branch(cms: Cms, ann: Person):
    here = await cms("handoff", key=ann.key)
    other = await cms("handoff", "--branch", "main", key=ann.key)
    of_project = await cms("handoff", "--project", "orders", key=ann.key)

    said = [
        [words in it.out for words in ("branch retry", "Send each payment with its key.", "Rename the ledger.")]
        for it in (here, other, of_project)
    ]
    assert said == [[True, True, False], [False, False, True], [False, True, True]]


async def test_a_teammate_is_named(cms: Cms, ann: Person):
    handed = await cms("handoff", "--to", "ben", key=ann.key)
    unknown = await cms("handoff", "--to", "nobody", key=ann.key)

    assert (handed.code, handed.out.strip()) == (
        0,
        "The next session of ben in this project starts with the page of branch retry, from you. It is told once.",
    )
    assert unknown.code == ExitCode.FAILURE
    assert "No member of the team has this name" in unknown.err


async def test_with_no_branch_checked_out_it_is_of_the_whole_project(cms: Cms, ann: Person):
    repository = Repository.at(Path.cwd())
    repository.write("a", "b")
    repository.commit("one")
    repository.git("checkout", "-q", "--detach")

    said = await cms("handoff", key=ann.key)

    assert ("Send each payment with its key." in said.out, "Rename the ledger." in said.out) == (True, True)
