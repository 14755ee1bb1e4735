"""OpenAI's embeddings, and compatible servers: vLLM, LM Studio, llama.cpp, gateways.

The API: developers.openai.com/api/reference/resources/embeddings.
"""

from __future__ import annotations

import msgspec

from cmserver.base.errors import Invalid
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.prompt_styles import choose_style
from cmserver.models.providers.embedding.remote import BASE_URL_SETTING, EmbeddingApi, RemoteEmbedder, Request
from cmserver.models.providers.http_client import check_key, require_key

_BASE_URL = "https://api.openai.com/v1"
_MODEL = "text-embedding-3-small"
_MAX_TEXTS = 32
"""32 of the longest texts, at a token per character, stay below the limit of 300,000 tokens."""


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0
    """Google's server omits 0."""


class _Answer(msgspec.Struct):
    data: list[_Vector]


def vectors(text: str) -> list[list[float]]:
    """Read the vectors in order of their index; also of Voyage's answers."""
    data = msgspec.json.decode(text, type=_Answer).data
    if sorted(vector.index for vector in data) != list(range(len(data))):
        raise ValueError("its vectors are not numbered as the texts are")
    return [vector.embedding for vector in sorted(data, key=lambda vector: vector.index)]


def _body(request: Request) -> dict[str, object]:
    return {"model": request.model, "input": request.texts, "encoding_format": "float"}


_API = EmbeddingApi(path="/embeddings", max_texts=_MAX_TEXTS, body=_body, vectors=vectors)


def make(settings: EmbedderSettings) -> RemoteEmbedder:
    """Make the embedder. OpenAI needs a key, a server at another address a model."""
    at_home = settings.base_url is None
    if at_home:
        key = require_key("embedder openai", settings.api_key, "OPENAI_API_KEY")
    else:
        key = check_key(settings.api_key, "CMSERVER_EMBEDDER_KEY")
    model = settings.model or (_MODEL if at_home else None)
    if not model:
        raise Invalid(
            "The embedder openai needs a model at an address of your own: set CMSERVER_EMBEDDER_MODEL to the name under which the "
            "server lists it."
        )
    name = "OpenAI" if at_home else f"The server at {BASE_URL_SETTING}"
    prefix = choose_style(settings, model).prefix
    return RemoteEmbedder(settings, _API, name=name, model=model, base_url=settings.base_url or _BASE_URL, key=key, prefix=prefix)
