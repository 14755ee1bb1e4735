"""Ollama's embeddings, on a machine of one's own. The API: docs.ollama.com/api/embed."""

from __future__ import annotations

import msgspec

from cmserver.providers.embedding.model import EmbedderGiven
from cmserver.providers.embedding.remote import LONGEST_CHARS, Remote, Request, Tongue, door

_BASE_URL = "http://127.0.0.1:11434"
_MODEL = "nomic-embed-text"
_MOST_TEXTS = 16
"""It takes its time for each, and has to be done before the call's time is over."""


class _Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How a model wants its texts; after its makers' pages."""

    query: str = ""
    document: str = ""
    """What stands before the text, by what it is for. Ollama puts nothing there itself."""
    longest_chars: int = LONGEST_CHARS
    """Where its context is small, three characters a token: Ollama may refuse what is longer, though it is asked to cut it."""


_MANNERS: dict[str, _Manner] = {
    "nomic-embed-text": _Manner(query="search_query: ", document="search_document: ", longest_chars=6_000),
    "embeddinggemma": _Manner(query="task: search result | query: ", document="title: none | text: ", longest_chars=6_000),
    "qwen3-embedding": _Manner(
        query="Instruct: Given a search query, retrieve the notes about a software project that answer it\nQuery:"
    ),
    "mxbai-embed-large": _Manner(query="Represent this sentence for searching relevant passages: ", longest_chars=1_500),
    "snowflake-arctic-embed": _Manner(query="Represent this sentence for searching relevant passages: ", longest_chars=1_500),
    "snowflake-arctic-embed2": _Manner(query="query: "),
    "all-minilm": _Manner(longest_chars=750),
}
_PLAIN = _Manner()


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]


def _manner(model: str) -> _Manner:
    """By the model's name without whose it is and without its tag: `someone/nomic-embed-text:v1.5`."""
    return _MANNERS.get(model.rpartition("/")[2].partition(":")[0], _PLAIN)


def _body(request: Request) -> dict[str, object]:
    manner = _manner(request.model)
    before = manner.query if request.purpose == "query" else manner.document
    body: dict[str, object] = {
        "model": request.model,
        "input": [before + text for text in request.texts],
        "truncate": True,
    }
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


def _vectors(text: str) -> list[list[float]]:
    return msgspec.json.decode(text, type=_Answer).embeddings


_TONGUE = Tongue(path="/api/embed", body=_body, vectors=_vectors)


def make(given: EmbedderGiven) -> Remote:
    """It needs no key; an address that ends as the one of its OpenAI-compatible API does is understood."""
    base_url = (given.base_url or _BASE_URL).rstrip("/").removesuffix("/v1")
    model = given.model or _MODEL
    return Remote(
        given,
        model,
        _TONGUE,
        door(given, "Ollama", base_url, None),
        most_texts=_MOST_TEXTS,
        longest_chars=_manner(model).longest_chars,
    )
