"""An embedder that is asked over HTTP: what is the same for all of them. How each speaks stands in its own file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.text import storable
from cmserver.providers.embedding.model import MOST_DIMENSIONS, EmbedderGiven, Purpose
from cmserver.providers.failures import cut_off
from cmserver.providers.model import FailureKind, ProviderError
from cmserver.providers.posting import Door, Heard, checked_key

BASE_URL_SETTING = "CMSERVER_EMBEDDER_BASE_URL"

LONGEST_CHARS = 8_000
"""More of a text is not embedded. That is 2,000 tokens of prose, where the smaller contexts end; and never more than the 8,192 of
OpenAI's models, however dense the text: hardly a character is more than one token."""
_SHORTEST_CHARS = 100
"""A text that does not fit even so is not what is wrong."""
_NOTHING = "-"
"""Asked instead of an empty text, which most APIs refuse."""
_ABOUT_DIMENSIONS = re.compile(r"dimension|matryoshka", re.IGNORECASE)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, for the file that words it."""

    model: str
    texts: Sequence[str]
    purpose: Purpose
    dimensions: int | None


class Tongue(msgspec.Struct, frozen=True, kw_only=True):
    """How an API is spoken to."""

    path: str
    body: Callable[[Request], dict[str, object]]
    vectors: Callable[[str], list[list[float]]]
    """Of the answer, in the order of the texts. DecodeError for what is no answer, ValueError that says why for one in disorder."""


class Remote:
    """Asks one model at one address, without retries: the job does them. What it has learned holds for as long as it lives."""

    def __init__(
        self, given: EmbedderGiven, model: str, tongue: Tongue, door: Door, *, most_texts: int, longest_chars: int = LONGEST_CHARS
    ) -> None:
        self._provider = given.provider
        self._model = model
        self._tongue = tongue
        self._door = door
        self._most_texts = most_texts
        self._longest_chars = longest_chars
        self._wished = given.dimensions
        self._says_dimensions = given.dimensions is not None
        self._dimensions = given.dimensions

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def model(self) -> str:
        return self._model

    @property
    def dimensions(self) -> int | None:
        return self._dimensions

    @property
    def most_texts(self) -> int:
        return self._most_texts

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        cut = [storable(text[: self._longest_chars]).strip() or _NOTHING for text in texts]
        vectors: list[list[float]] = []
        for first in range(0, len(cut), self._most_texts):
            vectors += await self._fitted(cut[first : first + self._most_texts], purpose)
        return vectors

    async def close(self) -> None:
        await self._door.close()

    async def _fitted(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """In smaller parts where they are too long: some count their tokens otherwise, and some do not cut though they say so."""
        try:
            return await self._ask(texts, purpose)
        except ProviderError as error:
            if error.kind is not FailureKind.CONTEXT_TOO_LONG or (len(texts) == 1 and len(texts[0]) <= _SHORTEST_CHARS):
                raise
        if len(texts) == 1:
            return await self._fitted([texts[0][: len(texts[0]) // 2].strip() or _NOTHING], purpose)
        half = len(texts) // 2
        return [*await self._fitted(texts[:half], purpose), *await self._fitted(texts[half:], purpose)]

    async def _ask(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        while True:
            said = self._says_dimensions
            request = Request(model=self._model, texts=texts, purpose=purpose, dimensions=self._wished if said else None)
            heard = await self._door.post(self._tongue.path, self._tongue.body(request))
            error = self._door.failure(heard)
            if error is None:
                return self._checked(heard, len(texts))
            if not (said and error.kind is FailureKind.SETUP_REQUIRED and _ABOUT_DIMENSIONS.search(heard.text)):
                raise error
            self._says_dimensions = False  # a model of one length; whether it is the right one shows in the answer

    def _checked(self, heard: Heard, count: int) -> list[list[float]]:
        who = self._door.who
        try:
            vectors = self._tongue.vectors(heard.text)
        except msgspec.DecodeError as error:
            raise cut_off(who, "what came is not the JSON of vectors") from error
        except (ValueError, RecursionError) as error:
            raise cut_off(who, str(error)) from error
        if len(vectors) != count:
            raise cut_off(who, f"{len(vectors)} vectors came for {count} texts")
        self._check_dimensions({len(vector) for vector in vectors})
        return [self._of_length_one(vector) for vector in vectors]

    def _check_dimensions(self, lengths: set[int]) -> None:
        who = self._door.who
        length = min(lengths)
        if len(lengths) > 1 or length == 0:
            raise cut_off(who, f"its vectors have {length} to {max(lengths)} dimensions")
        if length > MOST_DIMENSIONS:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self._model} makes vectors of {length:,} dimensions, and the database can index {MOST_DIMENSIONS:,}: "
                "set CMSERVER_EMBEDDER_DIMENSIONS to fewer, or choose another model.",
            )
        if self._dimensions is not None and length != self._dimensions:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"{self._model} makes vectors of {length:,} dimensions, and {self._dimensions:,} are expected. If the model is "
                "right, set CMSERVER_EMBEDDER_DIMENSIONS to a length that it has, or to 0 for its own.",
            )
        self._dimensions = length

    def _of_length_one(self, vector: list[float]) -> list[float]:
        length = math.hypot(*vector)
        if not math.isfinite(length) or length == 0:
            raise ProviderError(
                FailureKind.UNUSABLE_ANSWER,
                f"{self._door.who} answered with a vector that has no direction: its length is {length}.",
            )
        return [number / length for number in vector]


def key_for(given: EmbedderGiven, setting: str, *, needed: bool) -> str | None:
    """Invalid for one that is missing, or cannot be one."""
    key = checked_key(given.api_key, setting)
    if needed and not key:
        raise Invalid(f"The embedder {given.provider} needs a key: set {setting}, or {setting}_FILE to a file with it.")
    return key


def door(given: EmbedderGiven, who: str, base_url: str, key: str | None) -> Door:
    return Door(
        who,
        base_url,
        headers={"authorization": f"Bearer {key}"} if key else {},
        secret=key,
        timeout_seconds=given.timeout_seconds,
        setting=BASE_URL_SETTING,
    )
