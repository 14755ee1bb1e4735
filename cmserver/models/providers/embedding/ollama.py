"""Ollama's embeddings. The API: docs.ollama.com/api/embed, docs.ollama.com/api/pull."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus

import msgspec

from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.prompt_styles import choose_style
from cmserver.models.providers.embedding.remote import EmbeddingApi, RemoteEmbedder, Request
from cmserver.models.providers.failures import find_error_in_body, incomplete_answer_error

_BASE_URL = "http://127.0.0.1:11434"
_MODEL = "nomic-embed-text"
_MAX_TEXTS = 16
"""Few, so that a slow machine answers within the timeout."""


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]


def _body(request: Request) -> dict[str, object]:
    return {"model": request.model, "input": request.texts, "truncate": True}


def _vectors(text: str) -> list[list[float]]:
    return msgspec.json.decode(text, type=_Answer).embeddings


_API = EmbeddingApi(path="/api/embed", max_texts=_MAX_TEXTS, body=_body, vectors=_vectors)


class _Progress(msgspec.Struct):
    """A line of the answer to a pull. A layer's digest comes with its size and what is there of it, in bytes."""

    status: str = ""
    digest: str = ""
    total: int = 0
    completed: int = 0


class OllamaEmbedder(RemoteEmbedder):
    """Ollama, which downloads a model when it is told to; once, even for several that tell it to at the same time."""

    async def has_model(self) -> bool:
        """Whether Ollama has the model. Raises ProviderError."""
        answer = await self.endpoint.post("/api/show", {"model": self.model})
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        if error := self.endpoint.find_failure(answer):
            raise error
        return True

    async def pull_model(self) -> AsyncGenerator[int]:
        """Download the model; the part of the layers known so far that is there, in percent. Raises ProviderError."""
        name, percent = self.endpoint.name, 0
        layers: dict[str, tuple[int, int]] = {}
        async for line in self.endpoint.post_for_lines("/api/pull", {"model": self.model, "stream": True}):
            if error := find_error_in_body(name, line):
                raise error
            try:
                progress = msgspec.json.decode(line, type=_Progress)
            except msgspec.DecodeError as error:
                raise incomplete_answer_error(name, "what came is not the JSON of a download") from error
            if progress.status == "success":
                yield 100
                return
            if progress.total > 0:
                layers[progress.digest] = (progress.completed, progress.total)
                done, total = (sum(sizes) for sizes in zip(*layers.values(), strict=True))
                percent = max(percent, min(done * 100 // total, 99))
            yield percent
        raise incomplete_answer_error(name, "the download ended without success")


def make(settings: EmbedderSettings) -> OllamaEmbedder:
    """Make the embedder; it needs no key. The address of the OpenAI-compatible API (`/v1`) is accepted."""
    base_url = (settings.base_url or _BASE_URL).rstrip("/").removesuffix("/v1")
    model = settings.model or _MODEL
    style = choose_style(settings, model)
    return OllamaEmbedder(
        settings, _API, name="Ollama", model=model, base_url=base_url, key=None, max_chars=style.max_chars, prefix=style.prefix
    )
