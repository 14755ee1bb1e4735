"""Ollama, OpenAI and Voyage through real HTTP, against a server that plays their answers and faults."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Sequence

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers.embedding import ollama, openai, voyage
from cmserver.models.providers.embedding.model import MAX_DIMENSIONS, Embedder, EmbedderSettings
from cmserver.models.providers.embedding.registry import make
from cmserver.models.providers.embedding.remote import MAX_CHARS
from cmserver.models.providers.model import FailureKind, ProviderError
from tests.models.providers.fake import embedding as said
from tests.models.providers.fake.server import Asked, FakeProvider, Reply, json_reply
from tests.table import try_rows
from tests.timeouts import scaled

KEY = "sk-proj-" + "q" * 40
ALL = ["ollama", "openai", "voyage"]


def embedder(fake: FakeProvider, provider: str = "openai", **options: object) -> Embedder:
    usual: dict[str, object] = {
        "provider": provider,
        "model": "m",
        "base_url": fake.url,
        "api_key": KEY,
        "timeout_seconds": 30.0,
    }
    return make(msgspec.convert({**usual, **options}, EmbedderSettings))


def answer(provider: str, vectors: Sequence[Sequence[object]]) -> Reply:
    return said.ollama(vectors) if provider == "ollama" else said.listed(vectors)


def input_of(request: Asked) -> list[str]:
    return msgspec.convert(request.json["input"], list[str])


async def failure(remote: Embedder, texts: Sequence[str] = ("a", "b")) -> ProviderError:
    with pytest.raises(ProviderError) as failed:
        await remote.embed(texts, "document")
    assert KEY not in str(failed.value)
    return failed.value


# What is sent, and what comes back


async def test_openai_is_asked_for_numbers_and_answers_in_any_order(fake: FakeProvider):
    fake.replies = [said.listed([[0, 2], [3, 4]], indexes=[1, 0])]

    vectors = await embedder(fake, base_url=f"{fake.url}/v1/").embed(["first", "second"], "query")

    [request] = fake.asked
    assert (request.method, request.path, request.headers["authorization"]) == ("POST", "/v1/embeddings", f"Bearer {KEY}")
    assert request.json == {"model": "m", "input": ["first", "second"], "encoding_format": "float"}
    assert vectors == [[0.6, 0.8], [0.0, 1.0]]


async def test_openai_itself_is_asked_its_usual_model(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(openai, "_BASE_URL", fake.url)
    fake.replies = [said.listed([[1.0]])]

    await embedder(fake, base_url=None, model=None).embed(["text"], "document")

    assert fake.asked[0].json["model"] == "text-embedding-3-small"


async def test_a_server_of_ones_own_needs_no_key(fake: FakeProvider):
    fake.replies = [said.listed([[1.0]])]

    await embedder(fake, api_key=None).embed(["text"], "document")

    assert "authorization" not in fake.asked[0].headers


@pytest.mark.parametrize("purpose", ["query", "document"])
async def test_voyage_is_told_what_the_texts_are_for(fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, purpose: str):
    monkeypatch.setattr(voyage, "_BASE_URL", fake.url)
    fake.replies = [said.listed([[0, 2], [3, 4]], indexes=[1, 0])]
    remote = embedder(fake, "voyage", base_url=None, model=None, dimensions=2)

    vectors = await remote.embed(["first", "second"], "query" if purpose == "query" else "document")

    [request] = fake.asked
    assert (request.method, request.path, request.headers["authorization"]) == ("POST", "/embeddings", f"Bearer {KEY}")
    assert request.json == {
        "model": "voyage-4",
        "input": ["first", "second"],
        "input_type": purpose,
        "truncation": True,
        "output_dimension": 2,
    }
    assert vectors == [[0.6, 0.8], [0.0, 1.0]]


async def test_ollama_is_asked_by_its_own_api_without_a_key(fake: FakeProvider):
    fake.replies = [said.ollama([[3, 4], [0, 2]])]

    vectors = await embedder(fake, "ollama").embed(["first", "second"], "query")

    [request] = fake.asked
    assert (request.method, request.path) == ("POST", "/api/embed")
    assert "authorization" not in request.headers
    assert request.json == {"model": "m", "input": ["first", "second"], "truncate": True}
    assert vectors == [[0.6, 0.8], [0.0, 1.0]]


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_address_of_ollamas_other_api_is_understood(fake: FakeProvider, path: str):
    fake.replies = [said.ollama([[1.0]])]

    await embedder(fake, "ollama", base_url=fake.url + path).embed(["text"], "query")

    assert fake.asked[0].path == "/api/embed"


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        (None, "search_query: text", "search_document: text"),
        ("nomic-embed-text:v1.5", "search_query: text", "search_document: text"),
        ("someone/embeddinggemma:300m", "task: search result | query: text", "title: none | text: text"),
        ("mxbai-embed-large", "Represent this sentence for searching relevant passages: text", "text"),
        ("snowflake-arctic-embed:335m", "Represent this sentence for searching relevant passages: text", "text"),
        ("snowflake-arctic-embed2", "query: text", "text"),
        ("hf.co/Snowflake/snowflake-arctic-embed-l-v2.0-GGUF:Q4", "query: text", "text"),
        ("bge-large", "Represent this sentence for searching relevant passages: text", "text"),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: text", "text"),
        ("bge-large-zh", "text", "text"),
        ("bge-m3", "text", "text"),
        ("intfloat/multilingual-e5-large", "query: text", "passage: text"),
        ("all-minilm", "text", "text"),
    ],
)
async def test_a_model_that_wants_words_before_a_text_gets_them(
    fake: FakeProvider, monkeypatch: pytest.MonkeyPatch, model: str | None, query: str, document: str
):
    monkeypatch.setattr(ollama, "_BASE_URL", fake.url)
    fake.replies = [said.ollama([[1.0]])] * 2
    remote = embedder(fake, "ollama", base_url=None, model=model)

    await remote.embed(["text"], "query")
    await remote.embed(["text"], "document")

    assert [input_of(request) for request in fake.asked] == [[query], [document]]


@pytest.mark.parametrize("model", ["text-embedding-nomic-embed-text-v1.5", "nomic-ai/nomic-embed-text-v1.5"])
async def test_a_server_of_ones_own_gets_the_words_before_a_text_too(fake: FakeProvider, model: str):
    fake.replies = [said.listed([[1.0]])]

    await embedder(fake, "openai", model=model).embed(["text"], "query")

    assert input_of(fake.asked[0]) == ["search_query: text"]


async def test_the_words_before_texts_of_the_vectors_that_are_stored_stay(fake: FakeProvider):
    fake.replies = [said.ollama([[1.0]])] * 2
    remote = ollama.make(EmbedderSettings(provider="ollama", base_url=fake.url, document_prefix="old: "))

    await remote.embed(["text"], "query")
    await remote.embed(["text"], "document")

    assert [input_of(request) for request in fake.asked] == [["search_query: text"], ["old: text"]]


@pytest.mark.parametrize("provider", ALL)
async def test_every_vector_has_length_one(fake: FakeProvider, provider: str):
    fake.replies = [answer(provider, [[1e-3, 2e-3, -5.0], [1e300, 1e300, 0.0], [0, 0, -1]])]

    vectors = await embedder(fake, provider).embed(["a", "b", "c"], "document")

    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1.0, 1.0, 1.0])
    assert vectors[2] == [0.0, 0.0, -1.0]


async def test_a_0_that_google_leaves_out_is_the_first(fake: FakeProvider):
    fake.replies = [json_reply({"data": [{"index": 1, "embedding": [0.0, 1.0]}, {"embedding": [1.0, 0.0]}]})]

    assert await embedder(fake).embed(["a", "b"], "query") == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("provider", ALL)
async def test_more_texts_than_one_call_takes_go_in_several_and_stay_in_order(fake: FakeProvider, provider: str):
    def play(request: Asked) -> Reply:
        return answer(provider, [[float(text), 1.0] for text in input_of(request)])

    fake.otherwise = play
    remote = embedder(fake, provider)
    texts = [str(number) for number in range(remote.max_texts + 3)]

    vectors = await remote.embed(texts, "document")

    assert [len(input_of(request)) for request in fake.asked] == [remote.max_texts, 3]
    assert [round(x / y) for x, y in vectors] == list(range(len(texts)))


async def test_no_text_is_no_call(fake: FakeProvider):
    assert await embedder(fake).embed([], "document") == []
    assert fake.asked == []


# Texts that are no good


@pytest.mark.parametrize("provider", ALL)
async def test_hostile_texts_are_sent_so_that_they_can_be_read(fake: FakeProvider, provider: str):
    texts = ["", " \n\t", "\0", "half \ud800 a pair", "🎉", "مرحبا", "x" * 1_000_000]

    def play(request: Asked) -> Reply:
        return answer(provider, [[1.0]] * len(input_of(request)))

    fake.otherwise = play

    vectors = await embedder(fake, provider).embed(texts, "document")

    sent = input_of(fake.asked[0])
    assert len(vectors) == len(texts)
    assert sent == ["-", "-", "\ufffd", "half \ufffd a pair", "🎉", "مرحبا", "x" * MAX_CHARS]


async def test_a_model_with_a_small_context_gets_less_of_a_text(fake: FakeProvider):
    fake.replies = [said.ollama([[1.0]])]

    await embedder(fake, "ollama", model="all-minilm").embed(["x" * 10_000], "document")

    assert [len(text) for text in input_of(fake.asked[0])] == [750]


async def test_what_is_too_long_all_the_same_is_found_and_only_that_is_cut(fake: FakeProvider):
    def play(request: Asked) -> Reply:
        texts = input_of(request)
        if any(len(text) > 1_000 for text in texts):
            return json_reply({"error": "the input length exceeds the context length"}, status=400)
        return said.ollama([[float(len(text)), 1.0] for text in texts])

    fake.otherwise = play

    vectors = await embedder(fake, "ollama").embed(["a" * 10, "b" * 4_000, "c" * 1_000], "document")

    assert [round(x / y) for x, y in vectors] == [10, 1_000, 1_000]


@pytest.mark.parametrize("status", [400, 413])
async def test_what_is_too_long_however_short_ends(fake: FakeProvider, status: int):
    def play(request: Asked) -> Reply:
        return json_reply({"error": "the input length exceeds the context length"}, status=status)

    fake.otherwise = play

    error = await failure(embedder(fake, "ollama"), ["x" * 8_000])

    assert error.kind is FailureKind.CONTEXT_TOO_LONG
    assert len(fake.asked) == 8


# Dimensions


@pytest.mark.parametrize(
    ("provider", "field"), [("ollama", "dimensions"), ("openai", "dimensions"), ("voyage", "output_dimension")]
)
async def test_dimensions_are_asked_for_where_they_are_given(fake: FakeProvider, provider: str, field: str):
    fake.replies = [answer(provider, [[1.0, 2.0]])]
    remote = embedder(fake, provider, dimensions=2)

    await remote.embed(["text"], "query")

    assert (fake.asked[0].json[field], remote.dimensions) == (2, 2)


async def test_dimensions_are_known_from_the_first_answer(fake: FakeProvider):
    fake.replies = [said.listed([[1.0, 2.0, 3.0]])]
    remote = embedder(fake)

    before = remote.dimensions
    await remote.embed(["text"], "query")

    assert (before, remote.dimensions) == (None, 3)


@pytest.mark.parametrize(
    "words",
    [
        "This model does not support specifying dimensions.",
        'Model "m" does not support matryoshka representation, changing output dimensions will lead to poor results.',
    ],
    ids=["openai", "vllm"],
)
async def test_a_model_of_one_length_is_asked_without_it_from_then_on(fake: FakeProvider, words: str):
    fake.replies = [json_reply({"error": {"message": words}}, status=400), said.listed([[1.0, 2.0]]), said.listed([[1.0, 2.0]])]
    remote = embedder(fake, dimensions=2)

    await remote.embed(["text"], "query")
    await remote.embed(["text"], "query")

    assert ["dimensions" in request.json for request in fake.asked] == [True, False, False]


@pytest.mark.parametrize("provider", ALL)
async def test_vectors_of_another_length_than_promised_are_refused(fake: FakeProvider, provider: str):
    fake.replies = [answer(provider, [[1.0, 2.0, 3.0]] * 2)]

    error = await failure(embedder(fake, provider, dimensions=2))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert str(error).startswith("m makes vectors of 3 dimensions, and 2 are expected: ")


async def test_a_model_that_was_exchanged_behind_its_name_is_found_out(fake: FakeProvider):
    fake.replies = [said.listed([[1.0, 2.0]] * 2), said.listed([[1.0, 2.0, 3.0]] * 2)]
    remote = embedder(fake)

    await remote.embed(["a", "b"], "document")
    error = await failure(remote)

    assert (error.kind, remote.dimensions) == (FailureKind.SETUP_REQUIRED, 2)


async def test_vectors_that_no_index_takes_are_for_the_operator(fake: FakeProvider):
    fake.replies = [said.listed([[1.0] * (MAX_DIMENSIONS + 1)] * 2)]

    error = await failure(embedder(fake))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert "makes vectors of 4,001 dimensions, and the database can index 4,000" in str(error)


# Answers that are none


UNUSABLE: list[tuple[list[list[object]], FailureKind, str]] = [
    ([[1.0]], FailureKind.TRANSIENT, "1 vectors came for 2 texts"),
    ([[1.0]] * 3, FailureKind.TRANSIENT, "3 vectors came for 2 texts"),
    ([], FailureKind.TRANSIENT, "0 vectors came for 2 texts"),
    ([[1.0], [1.0, 2.0]], FailureKind.TRANSIENT, "its vectors have 1 to 2 dimensions"),
    ([[], []], FailureKind.TRANSIENT, "its vectors have 0 to 0 dimensions"),
    ([[1.0], [0.0]], FailureKind.UNUSABLE_ANSWER, "a vector that has no direction"),
    ([[1.0], [math.nan]], FailureKind.TRANSIENT, "not the JSON of vectors"),
    ([[1.0], [None]], FailureKind.TRANSIENT, "not the JSON of vectors"),
    ([[1.0], ["1.0"]], FailureKind.TRANSIENT, "not the JSON of vectors"),
]


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize(
    ("vectors", "kind", "words"),
    UNUSABLE,
    ids=["too few", "too many", "none", "unequal", "empty", "zero", "nan", "null", "text"],
)
async def test_vectors_that_cannot_be_used_are_refused(
    fake: FakeProvider, provider: str, vectors: list[list[object]], kind: FailureKind, words: str
):
    fake.replies = [answer(provider, vectors)]

    error = await failure(embedder(fake, provider))

    assert error.kind is kind
    assert words in str(error)


@pytest.mark.parametrize("body", [b'{"embeddings": [[1e999]]}', b'{"embeddings": [[-1e999]]}'], ids=["plus", "minus"])
async def test_a_number_without_end_is_refused(fake: FakeProvider, body: bytes):
    fake.replies = [Reply(body=body)]

    error = await failure(embedder(fake, "ollama"), ["a"])

    assert error.kind in {FailureKind.UNUSABLE_ANSWER, FailureKind.TRANSIENT}


@pytest.mark.parametrize("indexes", [[0, 0], [1, 2], [-1, 0]])
async def test_vectors_that_are_numbered_wrongly_are_refused(fake: FakeProvider, indexes: list[int]):
    fake.replies = [said.listed([[1.0], [2.0]], indexes=indexes)]

    assert "not numbered as the texts are" in str(await failure(embedder(fake)))


@pytest.mark.parametrize("provider", ALL)
@pytest.mark.parametrize(
    "body",
    [b"", b"hello", b"[]", b"{}", b"null", b"[" * 100_000, b'{"data": 1, "embeddings": 1}'],
    ids=["nothing", "words", "list", "object", "null", "deep", "other"],
)
async def test_what_is_no_json_of_vectors_is_refused(fake: FakeProvider, provider: str, body: bytes):
    fake.replies = [Reply(body=body)]

    error = await failure(embedder(fake, provider))

    assert error.kind is FailureKind.TRANSIENT
    assert "gave no whole answer" in str(error)


# Errors


@pytest.mark.parametrize(
    ("provider", "status", "body", "kind", "words"),
    [
        ("openai", 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, FailureKind.AUTH_INVALID, "***"),
        ("voyage", 401, {"detail": "Provided API key is invalid."}, FailureKind.AUTH_INVALID, "Provided API key is invalid."),
        ("ollama", 404, {"error": 'model "m" not found, try pulling it first'}, FailureKind.SETUP_REQUIRED, "try pulling it first"),
        ("openai", 404, {"error": {"message": "The model `m` does not exist"}}, FailureKind.SETUP_REQUIRED, "does not exist"),
        ("voyage", 400, {"detail": "Model m is not supported."}, FailureKind.SETUP_REQUIRED, "Model m is not supported"),
        ("openai", 422, {"detail": [{"msg": "bad", "input": "a secret"}]}, FailureKind.SETUP_REQUIRED, "JSON without a message"),
        ("openai", 429, {"error": {"message": "Rate limit reached"}}, FailureKind.RATE_LIMITED, "Rate limit reached"),
        ("openai", 429, {"error": {"code": "insufficient_quota"}}, FailureKind.QUOTA_EXHAUSTED, "answered 429"),
        ("ollama", 500, {"error": "llama runner process has terminated"}, FailureKind.TRANSIENT, "llama runner"),
        ("voyage", 503, {"detail": "overloaded"}, FailureKind.TRANSIENT, "answered 503"),
    ],
)
async def test_an_error_says_what_the_server_said_and_what_it_means(
    fake: FakeProvider, provider: str, status: int, body: object, kind: FailureKind, words: str
):
    fake.replies = [json_reply(body, status=status)]

    error = await failure(embedder(fake, provider))

    assert (error.kind, len(fake.asked)) == (kind, 1)
    assert words in str(error)


async def test_how_long_to_wait_is_handed_on(fake: FakeProvider):
    fake.replies = [json_reply({"detail": "slow down"}, status=429, retry_after="17")]

    assert (await failure(embedder(fake, "voyage"))).retry_after_seconds == 17


async def test_an_error_with_status_200_is_one(fake: FakeProvider):
    fake.replies = [json_reply({"error": {"message": "the engine is overloaded", "code": 503}})]

    assert (await failure(embedder(fake))).kind is FailureKind.TRANSIENT


async def test_a_web_page_is_answered_with_the_setting_s_name(fake: FakeProvider):
    fake.replies = [Reply(body=b"<!doctype html><title>Welcome</title>")]

    error = await failure(embedder(fake))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert str(error).endswith("is not the address of its API. Set CMSERVER_EMBEDDER_BASE_URL.")


@pytest.mark.parametrize("provider", ALL)
async def test_where_nothing_listens_the_sentence_names_the_setting(fake: FakeProvider, provider: str):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    error = await failure(embedder(fake, provider, base_url=url))

    assert (error.kind, error.out_of_reach) == (FailureKind.TRANSIENT, True)
    assert f"nothing listens at {url}. Start it, or set CMSERVER_EMBEDDER_BASE_URL to where it runs" in str(error)


async def test_a_server_that_falls_silent_is_given_up(fake: FakeProvider):
    fake.replies = [Reply(body=b'{"data": [', stall_after=3)]

    error = await failure(embedder(fake, timeout_seconds=scaled(0.2)))

    assert (error.kind, error.perhaps_paid) == (FailureKind.TRANSIENT, True)


async def test_a_closed_embedder_has_no_connections_left(fake: FakeProvider):
    fake.replies = [said.listed([[1.0]])]
    remote = embedder(fake)
    await remote.embed(["text"], "query")

    await remote.close()

    with pytest.raises(RuntimeError, match="closed"):
        await remote.embed(["text"], "query")


# What is needed


@try_rows(
    ("options", "words"),
    [
        (EmbedderSettings(provider="openai"), "set OPENAI_API_KEY, or OPENAI_API_KEY_FILE"),
        (EmbedderSettings(provider="openai", api_key="k\nk"), "OPENAI_API_KEY has characters that no key has"),
        (EmbedderSettings(provider="openai", base_url="http://127.0.0.1:1/v1"), "set CMSERVER_EMBEDDER_MODEL"),
        (EmbedderSettings(provider="voyage"), "set CMSERVER_EMBEDDER_KEY, or CMSERVER_EMBEDDER_KEY_FILE"),
        (EmbedderSettings(provider="voyage", base_url="http://127.0.0.1:1", api_key=" "), "set CMSERVER_EMBEDDER_KEY"),
        (EmbedderSettings(provider="ollama", base_url="http://[::1"), "CMSERVER_EMBEDDER_BASE_URL holds an address that cannot"),
    ],
)
def test_what_is_missing_is_named(options: EmbedderSettings, words: str):
    with pytest.raises(Invalid) as refused:
        make(options)

    assert words in str(refused.value)


Made = Callable[[EmbedderSettings], Embedder]


@pytest.mark.parametrize("made", [ollama.make, openai.make, voyage.make], ids=ALL)
def test_a_key_is_in_no_description(made: Made):
    options = EmbedderSettings(provider="openai", api_key=KEY)

    assert KEY not in repr(options)
    assert KEY not in repr(made(options))
