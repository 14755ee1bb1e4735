"""OpenAI's embeddings, and everything that offers them the same way: vLLM, LM Studio, llama.cpp, gateways.

The API: developers.openai.com/api/reference/resources/embeddings.
"""

from __future__ import annotations

import msgspec

from cmserver.base.errors import Invalid
from cmserver.providers.embedding.model import EmbedderGiven
from cmserver.providers.embedding.remote import BASE_URL_SETTING, Remote, Request, Tongue, door, key_for

_BASE_URL = "https://api.openai.com/v1"
_MODEL = "text-embedding-3-small"
_MOST_TEXTS = 32
"""The most tokens of a request are 300,000, and so are 32 texts of the longest at a token a character."""


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0
    """Google's server leaves a 0 out."""


class _Answer(msgspec.Struct):
    data: list[_Vector]


def vectors(text: str) -> list[list[float]]:
    """By their index; also Voyage's."""
    data = msgspec.json.decode(text, type=_Answer).data
    if sorted(one.index for one in data) != list(range(len(data))):
        raise ValueError("its vectors are not numbered as the texts are")
    return [one.embedding for one in sorted(data, key=lambda one: one.index)]


def _body(request: Request) -> dict[str, object]:
    body: dict[str, object] = {"model": request.model, "input": request.texts, "encoding_format": "float"}
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    return body


_TONGUE = Tongue(path="/embeddings", body=_body, vectors=vectors)


def make(given: EmbedderGiven) -> Remote:
    """OpenAI itself needs a key; a server at another address needs a model to be named."""
    at_home = given.base_url is None
    key = key_for(given, "OPENAI_API_KEY" if at_home else "CMSERVER_EMBEDDER_KEY", needed=at_home)
    model = given.model or (_MODEL if at_home else None)
    if not model:
        raise Invalid(
            "The embedder openai needs a model at an address of your own: set CMSERVER_EMBEDDER_MODEL to the name under which the "
            "server lists it."
        )
    who = "OpenAI" if at_home else f"The server at {BASE_URL_SETTING}"
    return Remote(given, model, _TONGUE, door(given, who, given.base_url or _BASE_URL, key), most_texts=_MOST_TEXTS)
