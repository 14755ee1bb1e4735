"""What becomes of what is a person's alone when its session, project or team is erased, joined, moved, exported or restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, Person
from tests.ops.transfers import export
from tests.personal.people import make_two
from tests.personal.test_drawn import PROJECT, say, work
from tests.personal.test_personal import LIST, act, remember, texts

Json = dict[str, Any]
DRAWN, BY_HAND = "Always answer me in German.", "Call me Ann."


@pytest.fixture
async def ann(client: AsyncClient, db: Db, cast: Cast, notifier: JobNotifier) -> Person:
    """With one that was drawn from a session `s` of the project, and one that was told by hand."""
    ann, _ = await make_two(db, cast.alice.team_id)
    await say(client, ann, DRAWN)
    await work(db, notifier, ann)
    await remember(client, ann, BY_HAND)
    assert await texts(client, ann) == [BY_HAND, DRAWN]
    return ann


async def session_of(client: AsyncClient, who: Person) -> Json:
    (session,) = (await act(client, who, "GET", "/v1/sessions"))["sessions"]
    return session


async def test_with_its_session_goes_what_was_drawn(client: AsyncClient, ann: Person):
    await act(client, ann, "DELETE", f"/v1/sessions/{(await session_of(client, ann))['id']}")

    assert await texts(client, ann) == [BY_HAND]


async def test_with_its_projects_memory_goes_what_was_drawn(client: AsyncClient, ann: Person):
    await act(client, ann, "DELETE", f"/v1/projects/{PROJECT}/memory")

    assert await texts(client, ann) == [BY_HAND]


async def test_what_was_drawn_moves_with_its_session(client: AsyncClient, ann: Person):
    await act(client, ann, "POST", "/v1/projects", {"canonicalId": "github.com/acme/ledger"}, 201)
    await act(client, ann, "POST", f"/v1/sessions/{(await session_of(client, ann))['id']}/move", {"into": "github.com/acme/ledger"})
    moved = (await act(client, ann, "POST", f"{LIST}/m1/move", {}))["personal"]

    observation = (await act(client, ann, "GET", f"/v1/observations/{moved['observationNumber']}"))["observation"]
    project = (await act(client, ann, "GET", f"/v1/projects/{observation['projectId']}"))["project"]
    assert project["canonicalId"] == "github.com/acme/ledger"
    assert await texts(client, ann) == [BY_HAND]


async def test_what_was_drawn_goes_with_its_project_into_another_and_back(client: AsyncClient, ann: Person):
    await act(client, ann, "POST", "/v1/projects", {"canonicalId": "github.com/acme/ledger"}, 201)
    project_id = (await act(client, ann, "GET", f"/v1/projects/{PROJECT}"))["project"]["id"]

    await act(client, ann, "POST", f"/v1/projects/{PROJECT}/join", {"into": "github.com/acme/ledger"})
    joined = await texts(client, ann)
    separated = await client.post(f"/v1/projects/{project_id}/separate", json={}, headers=ann.headers)

    assert separated.is_success, separated.text
    assert joined == await texts(client, ann) == [BY_HAND, DRAWN]
    await act(client, ann, "DELETE", f"/v1/projects/{PROJECT}/memory")
    assert await texts(client, ann) == [BY_HAND]


async def test_the_teams_export_has_none_of_it_and_the_persons_own_list_all(
    client: AsyncClient, ann: Person, database: str, tmp_path: Path
):
    file = await export(database, ann.team_id, tmp_path / "team.jsonl")

    said = file.read_bytes().decode(errors="replace")
    assert "Call me Ann" not in said
    assert '"type":"personal' not in said
    assert await texts(client, ann) == [BY_HAND, DRAWN]
