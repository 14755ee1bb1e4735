"""`cmserver sessions`, `audit`, `usage` and `reindex`."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.cli.sessions import OneSession
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make


@pytest.fixture
async def session(client: httpx.AsyncClient, cast: Cast) -> str:
    """A session of Alice's that has not ended."""
    body = {"projectId": "github.com/acme/orders", "externalSessionId": "s-1", "platformSource": "claude"}
    answer = await client.post("/v1/sessions/start", headers=cast.alice.headers, json=body)
    assert answer.status_code == 201, answer.text
    return msgspec.json.decode(answer.content, type=OneSession).session.id


async def test_sessions_are_listed(cms: Cms, cast: Cast, session: str):
    said = await cms("sessions", "list", "--project", "github.com/acme/orders", "--platform", "claude", key=cast.alice.key)

    assert said.column("id") == [session]
    assert (await cms("sessions", "list", "--platform", "codex", key=cast.alice.key)).out == "There are no such sessions.\n"


async def test_a_session_is_ended_and_no_longer_active(cms: Cms, cast: Cast, session: str):
    active = await cms("sessions", "list", "--active", key=cast.alice.key)
    ended = await cms("sessions", "end", session, "--json", key=cast.alice.key)
    again = await cms("sessions", "end", session, key=cast.alice.key)
    no_more = await cms("sessions", "list", "--active", key=cast.alice.key)
    shown = await cms("sessions", "show", session, key=cast.alice.key)

    assert active.column("id") == [session]
    assert ended.read(OneSession).session.ended_at_epoch is not None
    assert again.code == 0
    assert no_more.out == "There are no such sessions.\n"
    assert "agent's id         s-1\n" in shown.out


async def test_a_session_of_strangers_does_not_exist(cms: Cms, cast: Cast, session: str):
    for verb in ("show", "end"):
        real = await cms("sessions", verb, session, key=cast.charlie.key)
        invented = await cms("sessions", verb, str(cast.alice.team_id), key=cast.charlie.key)

        assert (real.code, real.out, real.err) == (1, "", invented.err)


async def test_the_audit_log_is_filtered(cms: Cms, cast: Cast):
    await cms("projects", "rename", "github.com/acme/orders", "Orders", key=cast.alice.key)
    await cms("keys", "create", key=cast.bob.key)

    renamed = await cms("audit", "list", "--action", "project.updated", key=cast.alice.key)
    of_bob = await cms("audit", "list", "--key-id", str(cast.bob.principal.key_id), "--actor", "bob", key=cast.alice.key)
    of_kind = await cms(
        "audit", "list", "--resource-type", "project", "--resource-id", str(cast.alice.project.id), key=cast.alice.key
    )

    assert renamed.column("id") == [str(cast.alice.project.id)]
    assert of_bob.column("action") == ["key.created"]
    assert set(of_kind.column("of")) == {"project"}
    assert set(of_kind.column("action")) >= {"project.created", "project.updated"}


async def test_the_audit_log_of_another_team_is_not_shown(cms: Cms, cast: Cast):
    await cms("keys", "create", key=cast.bob.key)

    assert (await cms("audit", "list", "--action", "key.created", key=cast.charlie.key)).out == "Nothing of that kind was done.\n"


async def test_usage_is_told_with_its_limits(cms: Cms, cast: Cast):
    said = await cms("usage", key=cast.alice.key)

    assert said.code == 0, said.err
    assert said.out.startswith("since")
    assert "requests" in said.out
    assert "limit" in said.out


async def test_a_reindexing_is_a_job(cms: Cms, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project)

    of_project = await cms("reindex", "--project", "github.com/acme/orders", key=cast.alice.key)
    of_one = await cms("reindex", "--observation", str(made.number), key=cast.alice.key)

    assert of_project.code == 0, of_project.err
    assert of_one.code == 0, of_one.err
    job = of_project.out.split()[2]
    assert "observation_reindex" in (await cms("jobs", "show", job, key=cast.alice.key)).out


@pytest.mark.parametrize("words", [[], ["--project", "x", "--session", "y"]])
async def test_a_reindexing_is_of_one_thing(cms: Cms, cast: Cast, words: list[str]):
    said = await cms("reindex", *words, key=cast.alice.key)

    assert (said.code, "Say one of" in said.err) == (2, True)


async def test_a_reindexing_of_strangers_things_is_refused(cms: Cms, cast: Cast):
    said = await cms("reindex", "--project", str(cast.charlie.project.id), key=cast.alice.key)

    assert (said.code, said.out) == (1, "")
