"""Filters by files: a path holds as agents write it, absolute, from where they work, or in a container's folder.

`labels/path-filters.*.json` were labelled by somebody who had not seen the code: what is stored for a session in `cwd` of the
repository at `root`, what is asked for, and whether that is the file.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from uuid import UUID

import httpx
import msgspec
import pytest

from cmserver.recall.file_paths import spell_path
from cmserver.recall.model import KnownFolder
from tests.conftest import Cast, Person
from tests.doors.mcp import tools
from tests.table import try_rows

LABELS = Path(__file__).parent / "labels"
PROJECT = UUID(int=1)
_numbers = count(1)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    cwd: str
    stored: str
    asked: str
    found: bool
    why: str


def read_cases(name: str) -> list[Case]:
    return msgspec.json.decode((LABELS / name).read_bytes(), type=list[Case])


async def work(client: httpx.AsyncClient, person: Person, root: str, cwd: str, stored: str) -> str:
    """A new project with a session that worked there, and an observation on that file; returns the project's name."""
    project, session = f"github.com/acme/paths-{next(_numbers)}", f"session-{next(_numbers)}"
    headers = {**person.headers, "X-Cmserver-Project": project, "X-Cmserver-Root": root.encode().decode("latin-1")}
    edit = {"file_path": f"{root}/other.py", "old_string": "a = 1", "new_string": "a = 2"}
    for name, fields in (
        ("SessionStart", {"source": "startup"}),
        ("PostToolUse", {"tool_name": "Edit", "tool_input": edit, "tool_use_id": session}),
    ):
        payload = {"session_id": session, "cwd": cwd, "hook_event_name": name, **fields}
        answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
        assert answer.is_success, answer.text
    body = {"projectId": project, "title": "Raised the tries", "narrative": "They were 3.", "filesModified": [stored]}
    assert (await client.post("/v1/observations", json=body, headers=person.headers)).is_success
    return project


@try_rows("case", [*read_cases("path-filters.dev.json"), *read_cases("path-filters.held.json")])
async def test_a_file_is_found_by_each_of_its_spellings(client: httpx.AsyncClient, cast: Cast, case: Case):
    project = await work(client, cast.alice, case.root, case.cwd, case.stored)

    body = {"projectId": project, "query": "tries", "files": [case.asked]}
    answer = await client.post("/v1/search", json=body, headers=cast.alice.headers)
    assert answer.is_success, answer.text
    assert bool(answer.json()["observations"]) == case.found


@pytest.mark.parametrize("asked", ["src/retry.py", "/home/x/orders/src/retry.py", "./src/retry.py", "../orders/src/retry.py"])
async def test_all_doors_with_a_filter_by_files_take_the_spellings(client: httpx.AsyncClient, cast: Cast, asked: str):
    project = await work(client, cast.alice, "/home/x/orders", "/home/x/orders", "src/retry.py")
    headers = cast.alice.headers

    async def search(**fields: object) -> str:
        return (await client.post("/v1/search", json={"projectId": project, "query": "tries", **fields}, headers=headers)).text

    async def get(address: str, **params: str) -> str:
        return (await client.get(address, params=params, headers=headers)).text

    found = {
        "files": await search(files=[asked]),
        "a prefix": await search(filePrefix=asked[:-4]),
        "the MCP tool": (
            await tools.call(client, cast.alice, "observation_search", projectId=project, query="tries", files=[asked])
        )[0],
        "claude-mem's search": await get("/api/search", project=project, query="tries", files=asked),
        "claude-mem's list": await get("/api/search", project=project, files=asked),
        "claude-mem's files": await get("/api/observations/by-file", projects=project, path=asked),
    }
    assert [door for door, text in found.items() if "Raised the tries" not in text] == []
    assert "Raised the tries" not in await search(files=[asked.replace("retry", "retries")])


async def test_a_root_says_nothing_of_another_project(client: httpx.AsyncClient, cast: Cast):
    orders = await work(client, cast.alice, "/home/x/orders", "/home/x/orders", "src/retry.py")
    bills = await work(client, cast.alice, "/home/x/bills", "/home/x/bills", "src/retry.py")

    body = {"projects": [orders, bills], "query": "tries", "files": ["/home/x/bills/src/retry.py"], "format": "index"}
    hits = (await client.post("/v1/search", json=body, headers=cast.alice.headers)).json()["observations"]
    by_name = (await client.get(f"/v1/projects/{bills.replace('/', '%2F')}", headers=cast.alice.headers)).json()["project"]["id"]
    assert [hit["projectId"] for hit in hits] == [by_name]


@try_rows(
    "path, root, cwd, spelling",
    [
        ("C:\\Work\\src\\a.py", "c:/work", "c:/work", "C:/Work/src/a.py"),
        ("C:\\work\\src\\a.py", "c:/work", "c:/work", "src/a.py"),
        ("src\\a.py", "C:/work", "C:/work", "src/a.py"),
        (" src/a.py ", "/w", "/w", "src/a.py"),
        ("/w", "/w", "/w", ""),
        ("/w/", "/w", "/w", ""),
        (".", "/w", "/w/lib", "lib"),
        ("a.py", "", "", "a.py"),
        ("./a.py", "", "", "a.py"),
        ("/w/a.py", "", "", "/w/a.py"),
    ],
)
def test_a_path_is_spelled_as_it_may_be_stored(path: str, root: str, cwd: str, spelling: str):
    assert spelling in [text for text, _ in spell_path(path, [KnownFolder(project_id=PROJECT, root=root, cwd=cwd)])]
