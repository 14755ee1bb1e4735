"""`cmserver import git`: what of a repository is taken when a part of it cannot be read."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Cms, Said
from tests.conftest import Cast
from tests.repositories import Repository

ORDERS = "github.com/acme/orders"


@pytest.fixture
def clone(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "clone")


@pytest.fixture
def take(cms: Cms, cast: Cast, clone: Repository) -> Callable[..., Awaitable[Said]]:
    """`cmserver import git` as Alice, of the clone."""

    async def call(*words: str, folder: Path = clone.folder) -> Said:
        return await cms("import", "git", str(folder), "--project", ORDERS, *words, key=cast.alice.key)

    return call


@pytest.fixture
def taken(client: httpx.AsyncClient, cast: Cast) -> Callable[[], Awaitable[dict[str, Any]]]:
    """The rows of the project, by title."""

    async def read() -> dict[str, Any]:
        answer = await client.get("/v1/observations", params={"project": ORDERS}, headers=cast.alice.headers)
        assert answer.status_code == 200, answer.text
        return {row["title"]: row for row in answer.json()["observations"]}

    return read


def lose(repository: Repository, name: str) -> None:
    """From now on the repository lacks that object."""
    found = repository.git("rev-parse", name)
    (repository.folder / ".git" / "objects" / found[:2] / found[2:]).unlink()


async def test_a_document_that_this_clone_lacks_is_named_and_the_rest_is_taken(
    take: Callable[..., Awaitable[Said]], taken: Callable[[], Awaitable[dict[str, Any]]], clone: Repository
):
    for path in ("README.md", "docs/adr/0001-postgres.md", "docs/adr/0002-queue.md"):
        clone.write(path, f"# Of {path}\n")
    clone.commit("First")
    await take()
    for path in ("docs/adr/0001-postgres.md", "docs/adr/0002-queue.md"):
        clone.write(path, f"# Again {path}\n")
    clone.commit("Second")
    lose(clone, "HEAD:docs/adr/0001-postgres.md")

    said = await take()
    as_json = await take("--json")

    assert (said.code, said.err) == (0, "")
    assert "1 commits and 1 documents taken" in said.out
    assert "in this clone: docs/adr/0001-postgres.md." in said.out
    assert json.loads(as_json.out)["unreadDocuments"] == ["docs/adr/0001-postgres.md"]
    assert {title for title in await taken() if "Of" in title or "Again" in title} == {
        "README.md: Of README.md",
        "docs/adr/0001-postgres.md: Of docs/adr/0001-postgres.md",
        "docs/adr/0002-queue.md: Again docs/adr/0002-queue.md",
    }


async def test_a_damaged_history_is_taken_as_far_as_it_can_be_read_and_again_when_it_is_whole(
    take: Callable[..., Awaitable[Said]], taken: Callable[[], Awaitable[dict[str, Any]]], clone: Repository
):
    for number in range(6):
        clone.write("a.py", f"a = {number}\n")
        clone.commit(f"Change {number}")
    broken = clone.git("rev-parse", "HEAD~3^{tree}")
    file = clone.folder / ".git" / "objects" / broken[:2] / broken[2:]
    content = file.read_bytes()
    file.unlink()

    said = await take()
    found = sorted(await taken())
    file.write_bytes(content)
    whole = await take()

    assert said.code == 1
    assert "2 commits" in said.out
    assert "was not read: git cannot read the repository" in said.err
    assert found == ["Change 4", "Change 5"]
    assert (whole.code, whole.err) == (0, "")
    assert sorted(await taken()) == [f"Change {number}" for number in range(6)]


async def test_where_no_document_can_be_listed_none_is_taken_for_gone(
    take: Callable[..., Awaitable[Said]], taken: Callable[[], Awaitable[dict[str, Any]]], clone: Repository
):
    clone.write("README.md", "# Of README.md\n")
    clone.write("docs/adr/0001-postgres.md", "# Of a decision\n")
    clone.commit("First")
    await take()
    clone.write("docs/later.md", "x")
    clone.commit("Second")
    lose(clone, "HEAD:docs")

    said = await take()

    assert said.code == 1
    assert {"README.md: Of README.md", "docs/adr/0001-postgres.md: Of a decision"} <= (await taken()).keys()


async def test_an_empty_repository_is_told(take: Callable[..., Awaitable[Said]], clone: Repository):
    said = await take()

    assert (said.code, said.out) == (1, "")
    assert "no commit is checked out" in said.err
    assert "fatal" not in said.err


async def test_the_oldest_commit_of_a_shallow_clone_claims_no_files(
    take: Callable[..., Awaitable[Said]], taken: Callable[[], Awaitable[dict[str, Any]]], clone: Repository, tmp_path: Path
):
    for number in range(3):
        clone.write(f"{number}.py", "a = 1\n")
        clone.commit(f"Change {number}")
    clone.git("clone", "-q", "--depth=2", f"file://{clone.folder}", str(tmp_path / "shallow"))

    await take(folder=tmp_path / "shallow")

    files = {title: row["filesModified"] for title, row in (await taken()).items()}
    assert files == {"Change 1": [], "Change 2": ["2.py"]}
