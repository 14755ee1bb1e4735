"""Voyage's embeddings. The API: docs.voyageai.com/reference/embeddings-api."""

from __future__ import annotations

from cmserver.providers.embedding.model import EmbedderGiven
from cmserver.providers.embedding.openai import vectors
from cmserver.providers.embedding.remote import Remote, Request, Tongue, door, key_for

_BASE_URL = "https://api.voyageai.com/v1"
_MODEL = "voyage-4"
_MOST_TEXTS = 15
"""Some of its models take 120,000 tokens at once, and so are 15 texts of the longest at a token a character."""


def _body(request: Request) -> dict[str, object]:
    body: dict[str, object] = {
        "model": request.model,
        "input": request.texts,
        "input_type": request.purpose,
        "truncation": True,
    }
    if request.dimensions is not None:
        body["output_dimension"] = request.dimensions
    return body


_TONGUE = Tongue(path="/embeddings", body=_body, vectors=vectors)


def make(given: EmbedderGiven) -> Remote:
    """It needs a key, also behind a gateway."""
    key = key_for(given, "CMSERVER_EMBEDDER_KEY" if given.base_url else "VOYAGE_API_KEY", needed=True)
    return Remote(
        given,
        given.model or _MODEL,
        _TONGUE,
        door(given, "Voyage", given.base_url or _BASE_URL, key),
        most_texts=_MOST_TEXTS,
    )
