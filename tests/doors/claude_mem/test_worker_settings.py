"""GET and POST /api/settings: how the server behaves, and never a secret."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cmserver.base.settings import Settings, fields
from tests.conftest import Cast
from tests.doors.claude_mem.worker import got

SECRETS = [field.name for field in fields() if field.mask]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With a word in every secret, and in what is near to one."""
    hidden = {name: f"hidden-{name}" for name in SECRETS if name != "database_url"}
    return msgspec.structs.replace(settings, **hidden, provider="anthropic,offline", model="haiku,")


async def test_what_says_how_it_behaves_is_told_in_texts(client: httpx.AsyncClient, cast: Cast):
    answer = await got(client, "/api/settings", cast.alice.headers)

    assert answer == {
        "CLAUDE_MEM_RUNTIME": "server",
        "CLAUDE_MEM_PROVIDER": "anthropic",
        "CLAUDE_MEM_MODEL": "haiku",
        "CLAUDE_MEM_MODE": "code",
        "CLAUDE_MEM_CONTEXT_OBSERVATIONS": "50",
        "CLAUDE_MEM_CONTEXT_SESSION_COUNT": "10",
        "CLAUDE_MEM_SEMANTIC_INJECT": "true",
        "CLAUDE_MEM_WORKER_PORT": "37877",
    }


async def test_no_secret_is_told(client: httpx.AsyncClient, cast: Cast, settings: Settings):
    answer = (await client.get("/api/settings", headers=cast.alice.headers)).text

    assert len(SECRETS) > 4
    assert "hidden" not in answer
    assert str(settings.database_url) not in answer
    assert str(settings.data_dir) not in answer


async def test_nothing_can_be_set_and_the_sentence_says_where(client: httpx.AsyncClient, cast: Cast):
    answered = await client.post("/api/settings", json={"CLAUDE_MEM_MODEL": "other"}, headers=cast.alice.headers)

    assert answered.status_code == 403
    assert "cmserver config" in answered.json()["message"]
    assert (await got(client, "/api/settings", cast.alice.headers))["CLAUDE_MEM_MODEL"] == "haiku"
