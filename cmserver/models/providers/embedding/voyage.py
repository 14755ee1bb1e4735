"""Voyage's embeddings. The API: docs.voyageai.com/reference/embeddings-api."""

from __future__ import annotations

from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.openai import vectors
from cmserver.models.providers.embedding.remote import EmbeddingApi, RemoteEmbedder, Request
from cmserver.models.providers.http_client import require_key

_BASE_URL = "https://api.voyageai.com/v1"
_MODEL = "voyage-4"
_MAX_TEXTS = 15
"""15 of the longest texts, at a token per character, are the limit of 120,000 tokens that some models have."""


def _body(request: Request) -> dict[str, object]:
    return {"model": request.model, "input": request.texts, "input_type": request.purpose, "truncation": True}


_API = EmbeddingApi(path="/embeddings", max_texts=_MAX_TEXTS, body=_body, dimensions_field="output_dimension", vectors=vectors)


def make(settings: EmbedderSettings) -> RemoteEmbedder:
    """Make the embedder; it needs a key, also behind a gateway."""
    key = require_key("embedder voyage", settings.api_key, "CMSERVER_EMBEDDER_KEY")
    base_url = settings.base_url or _BASE_URL
    return RemoteEmbedder(settings, _API, name="Voyage", model=settings.model or _MODEL, base_url=base_url, key=key)
