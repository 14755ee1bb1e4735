"""Embedders over HTTP: what their APIs have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import msgspec

from cmserver.base.text import storable
from cmserver.models.providers.embedding.model import MAX_DIMENSIONS, EmbedderSettings, Purpose
from cmserver.models.providers.failures import incomplete_answer_error
from cmserver.models.providers.http_client import HttpAnswer, HttpEndpoint
from cmserver.models.providers.model import FailureKind, ProviderError

BASE_URL_SETTING = "CMSERVER_EMBEDDER_BASE_URL"

MAX_CHARS = 8_000
"""The part of a text that is embedded: 2,000 tokens of prose, the smallest usual context, and at most the 8,192 tokens of OpenAI's
models at one token per character."""
_MIN_CHARS = 100
"""A text this short is not the cause of a "too long"."""
_NOTHING = "-"
"""Sent instead of an empty text, which most APIs refuse."""
_ABOUT_DIMENSIONS = re.compile(r"dimension|matryoshka", re.IGNORECASE)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call, independent of the API."""

    model: str
    texts: Sequence[str]
    purpose: Purpose


class EmbeddingApi(msgspec.Struct, frozen=True, kw_only=True):
    """The path, request and answer format of an API, and how many texts a request may have."""

    path: str
    max_texts: int
    body: Callable[[Request], dict[str, object]]
    """The request without the number of dimensions, sent only for stored vectors of another length than the model's own."""
    dimensions_field: str = "dimensions"
    vectors: Callable[[str], list[list[float]]]
    """Reads the answer, in the order of the texts. DecodeError for another format, ValueError for wrong numbering."""


class RemoteEmbedder:
    """Calls one model at one address, without retries, which the job does. Remembers whether `dimensions` are refused."""

    def __init__(
        self,
        settings: EmbedderSettings,
        api: EmbeddingApi,
        *,
        name: str,
        model: str,
        base_url: str,
        key: str | None,
        max_chars: int = MAX_CHARS,
        prefix: Callable[[Purpose], str] = lambda _purpose: "",
    ) -> None:
        self.provider = settings.provider
        self.model = model
        self._api = api
        self.endpoint = HttpEndpoint(
            name,
            base_url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            secret=key,
            timeout_seconds=settings.timeout_seconds,
            setting=BASE_URL_SETTING,
        )
        self.max_texts = api.max_texts
        self._max_chars = max_chars
        self._prefix = prefix
        self._requested_dimensions = settings.dimensions
        self._sends_dimensions = settings.dimensions is not None
        self.dimensions = settings.dimensions

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        cut = [storable(text[: self._max_chars]).strip() or _NOTHING for text in texts]
        vectors: list[list[float]] = []
        for first in range(0, len(cut), self.max_texts):
            vectors += await self._embed_in_parts(cut[first : first + self.max_texts], purpose)
        return vectors

    async def close(self) -> None:
        await self.endpoint.close()

    async def _embed_in_parts(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """Split or shorten texts that are too long for the server, by whatever it counts."""
        try:
            return await self._ask(texts, purpose)
        except ProviderError as error:
            if error.kind is not FailureKind.CONTEXT_TOO_LONG or (len(texts) == 1 and len(texts[0]) <= _MIN_CHARS):
                raise
        if len(texts) == 1:
            return await self._embed_in_parts([texts[0][: len(texts[0]) // 2].strip() or _NOTHING], purpose)
        half = len(texts) // 2
        return [*await self._embed_in_parts(texts[:half], purpose), *await self._embed_in_parts(texts[half:], purpose)]

    async def _ask(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """The vectors of the texts by one request; repeated without the dimensions when the model does not take them."""
        prefix = self._prefix(purpose)
        prefixed = [prefix + text for text in texts]
        while True:
            dimensions = self._requested_dimensions if self._sends_dimensions else None
            body = self._api.body(Request(model=self.model, texts=prefixed, purpose=purpose))
            if dimensions is not None:
                body[self._api.dimensions_field] = dimensions
            answer = await self.endpoint.post(self._api.path, body)
            error = self.endpoint.find_failure(answer)
            if error is None:
                return self._read_vectors(answer, len(texts))
            if not (dimensions is not None and error.kind is FailureKind.SETUP_REQUIRED and _ABOUT_DIMENSIONS.search(answer.text)):
                raise error
            self._sends_dimensions = False  # a model of one length, which is checked in the answer

    def _read_vectors(self, answer: HttpAnswer, count: int) -> list[list[float]]:
        """The vectors in the answer, each of length 1; ProviderError when one is missing or unusable."""
        name = self.endpoint.name
        try:
            vectors = self._api.vectors(answer.text)
        except msgspec.DecodeError as error:
            raise incomplete_answer_error(name, "what came is not the JSON of vectors") from error
        except (ValueError, RecursionError) as error:
            raise incomplete_answer_error(name, str(error)) from error
        if len(vectors) != count:
            raise incomplete_answer_error(name, f"{len(vectors)} vectors came for {count} texts")
        self._check_dimensions({len(vector) for vector in vectors})
        return [self._normalize(vector) for vector in vectors]

    def _check_dimensions(self, lengths: set[int]) -> None:
        """Raise ProviderError when the vectors do not all have the expected dimensions."""
        name = self.endpoint.name
        length = min(lengths)
        if len(lengths) > 1 or length == 0:
            raise incomplete_answer_error(name, f"its vectors have {length} to {max(lengths)} dimensions")
        if length > MAX_DIMENSIONS:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self.model} makes vectors of {length:,} dimensions, and the database can index {MAX_DIMENSIONS:,}: "
                "choose another model.",
            )
        if self.dimensions is not None and length != self.dimensions:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self.model} makes vectors of {length:,} dimensions, and {self.dimensions:,} are expected: "
                "name the model under another name, and all vectors are made anew.",
            )
        self.dimensions = length

    def _normalize(self, vector: list[float]) -> list[float]:
        length = math.hypot(*vector)
        if not math.isfinite(length) or length == 0:
            raise ProviderError(
                FailureKind.UNUSABLE_ANSWER,
                f"{self.endpoint.name} answered with a vector that has no direction: its length is {length}.",
            )
        return [number / length for number in vector]
