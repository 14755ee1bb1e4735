"""Ollama's embeddings. The API: docs.ollama.com/api/embed."""

from __future__ import annotations

import msgspec

from cmserver.providers.embedding.model import EmbedderSettings
from cmserver.providers.embedding.remote import MAX_CHARS, EmbeddingApi, RemoteEmbedder, Request

_BASE_URL = "http://127.0.0.1:11434"
_MODEL = "nomic-embed-text"
_MAX_TEXTS = 16
"""Few, so that a slow machine answers within the timeout."""


class _PromptStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a model expects its texts, by its documentation."""

    query: str = ""
    document: str = ""
    """Prefixes by purpose; Ollama adds none itself."""
    max_chars: int = MAX_CHARS
    """Three characters per token of a small context: Ollama may refuse longer texts in spite of `truncate`."""


_STYLES: dict[str, _PromptStyle] = {
    "nomic-embed-text": _PromptStyle(query="search_query: ", document="search_document: ", max_chars=6_000),
    "embeddinggemma": _PromptStyle(query="task: search result | query: ", document="title: none | text: ", max_chars=6_000),
    "qwen3-embedding": _PromptStyle(
        query="Instruct: Given a search query, retrieve the notes about a software project that answer it\nQuery:"
    ),
    "mxbai-embed-large": _PromptStyle(query="Represent this sentence for searching relevant passages: ", max_chars=1_500),
    "snowflake-arctic-embed": _PromptStyle(query="Represent this sentence for searching relevant passages: ", max_chars=1_500),
    "snowflake-arctic-embed2": _PromptStyle(query="query: "),
    "all-minilm": _PromptStyle(max_chars=750),
}
_PLAIN = _PromptStyle()


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]


def _find_style(model: str) -> _PromptStyle:
    """The prompt style of the model, looked up by its name without namespace and tag (`someone/nomic-embed-text:v1.5`)."""
    return _STYLES.get(model.rpartition("/")[2].partition(":")[0], _PLAIN)


def _body(request: Request) -> dict[str, object]:
    """The body of the request, with the prefix that the model expects before a query or a document."""
    style = _find_style(request.model)
    prefix = style.query if request.purpose == "query" else style.document
    return {"model": request.model, "input": [prefix + text for text in request.texts], "truncate": True}


def _vectors(text: str) -> list[list[float]]:
    return msgspec.json.decode(text, type=_Answer).embeddings


_API = EmbeddingApi(path="/api/embed", max_texts=_MAX_TEXTS, body=_body, vectors=_vectors)


def make(settings: EmbedderSettings) -> RemoteEmbedder:
    """Make the embedder; it needs no key. The address of the OpenAI-compatible API (`/v1`) is accepted."""
    base_url = (settings.base_url or _BASE_URL).rstrip("/").removesuffix("/v1")
    model = settings.model or _MODEL
    max_chars = _find_style(model).max_chars
    return RemoteEmbedder(settings, _API, name="Ollama", model=model, base_url=base_url, key=None, max_chars=max_chars)
