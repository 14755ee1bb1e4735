from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from cmserver.models.providers.embedding import ollama
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.model import FailureKind, ProviderError
from tests.models.providers.fake.server import FakeProvider, Reply, json_reply

MANIFEST = {"status": "pulling manifest"}
DONE = {"status": "success"}


def embedder(fake: FakeProvider) -> ollama.OllamaEmbedder:
    return ollama.make(EmbedderSettings(provider="ollama", model="bge-m3", base_url=fake.url, timeout_seconds=30))


def lines(*values: Mapping[str, object]) -> Reply:
    return Reply(body=b"".join(json.dumps(value).encode() + b"\n" for value in values))


def layer(digest: str, completed: int, total: int) -> dict[str, object]:
    return {"status": f"pulling {digest}", "digest": digest, "completed": completed, "total": total}


async def pull(fake: FakeProvider) -> list[int]:
    return [percent async for percent in embedder(fake).pull_model()]


@pytest.mark.parametrize(("status", "expected"), [(200, True), (404, False)])
async def test_ollama_is_asked_whether_it_has_the_model(fake: FakeProvider, status: int, expected: bool):
    fake.replies = [json_reply({"error": "model 'bge-m3' not found"} if status == 404 else {"details": {}}, status=status)]

    assert await embedder(fake).has_model() is expected

    assert (fake.asked[0].path, fake.asked[0].json) == ("/api/show", {"model": "bge-m3"})


async def test_whether_it_has_the_model_is_unknown_when_it_fails(fake: FakeProvider):
    fake.replies = [json_reply({"error": "busy"}, status=503)]

    with pytest.raises(ProviderError) as caught:
        await embedder(fake).has_model()

    assert caught.value.kind is FailureKind.TRANSIENT


async def test_a_download_is_told_in_percent_that_never_fall(fake: FakeProvider):
    big, small = "sha256:a", "sha256:b"
    fake.replies = [
        lines(MANIFEST, layer(big, 0, 90), layer(big, 45, 90), layer(small, 0, 10), layer(big, 90, 90), layer(small, 10, 10), DONE)
    ]

    assert await pull(fake) == [0, 0, 50, 50, 90, 99, 100]

    assert (fake.asked[0].path, fake.asked[0].json) == ("/api/pull", {"model": "bge-m3", "stream": True})


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (lines(MANIFEST, {"error": "pull model manifest: file does not exist"}), FailureKind.SETUP_REQUIRED),
        (lines(MANIFEST), FailureKind.TRANSIENT),
        (Reply(body=b"<html>\n"), FailureKind.TRANSIENT),
        (Reply(body=b'["success"]\n'), FailureKind.TRANSIENT),
        (Reply(body=b"x" * (2 << 20)), FailureKind.TRANSIENT),
        (json_reply({"error": "no"}, status=401), FailureKind.AUTH_INVALID),
        (Reply(body=b'{"status":"pulling manifest"}\n{"sta', stop_after=35), FailureKind.TRANSIENT),
    ],
    ids=["error", "end", "web page", "other JSON", "long line", "refused", "broken off"],
)
async def test_a_download_that_does_not_succeed_is_an_error(fake: FakeProvider, reply: Reply, kind: FailureKind):
    fake.replies = [reply]

    with pytest.raises(ProviderError) as caught:
        await pull(fake)

    assert caught.value.kind is kind
