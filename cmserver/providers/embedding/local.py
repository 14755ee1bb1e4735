"""A small static model on this machine: every token has a vector, and a text has the mean of its tokens'.

The weights and the tokenizer are two files of the package wordllama; its code is not used, since it looks for them on the network.
What that model is, and what its licence is: docs/why/embeddings.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.text import storable
from cmserver.providers.embedding.model import EmbedderGiven, Purpose
from cmserver.providers.model import FailureKind, ProviderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_PACKAGES = ("wordllama", "tokenizers", "safetensors", "numpy")
_MODEL = "l2-supercat-256"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_DIMENSIONS = (256, 128, 64)
"""It was trained so that the first numbers of a vector are a vector, too."""
_MOST_TEXTS = 256
_LONGEST_CHARS = 8_000
"""More of a text is not embedded: a mean of more than 2,000 tokens is near to everything."""
_INLINE_CHARS = 1_000
"""A query of so many takes a fifth of a millisecond, less than the way to a thread and back."""


class _Model(msgspec.Struct, frozen=True):
    tokenizer: Tokenizer
    tokens: NDArray[np.float16]
    """A row for each token."""
    nothing: NDArray[np.float32]
    """For a text without a token: away from what all tokens have in common, and so unlike any text but its own kind."""


class _Loaded:
    """The model, once in a process, however many ask for it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.model: _Model | None = None

    def wait(self) -> _Model:
        with self._lock:
            if self.model is None:
                self.model = _load()
            return self.model


_loaded = _Loaded()


def is_installed() -> bool:
    return all(find_spec(package) is not None for package in _PACKAGES)


class Local:
    """Embeds thousands of texts a second, and a query in a tenth of a millisecond. The same text has the same vector everywhere."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    @property
    def provider(self) -> str:
        return "local"

    @property
    def model(self) -> str:
        return _MODEL

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def most_texts(self) -> int:
        return _MOST_TEXTS

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:  # noqa: ARG002 - one model for both
        """A text without a token, which is one of nothing but space, has a vector that points away from all others."""
        model = _loaded.model
        if model is not None and sum(map(len, texts)) <= _INLINE_CHARS:
            return self._embedded(model, texts)
        return await asyncio.to_thread(self._embed_here, texts)

    async def close(self) -> None:
        """Nothing is open; the model stays for others in the process."""

    def _embed_here(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embedded(_loaded.wait(), texts)

    def _embedded(self, model: _Model, texts: Sequence[str]) -> list[list[float]]:
        import numpy as np  # noqa: PLC0415 - only where it is installed

        cut = [storable(text[:_LONGEST_CHARS]).strip() for text in texts]
        vectors: list[list[float]] = []
        for read in model.tokenizer.encode_batch(cut, add_special_tokens=False):
            mean = model.tokens[read.ids].mean(axis=0, dtype=np.float32) if read.ids else model.nothing
            vector = mean[: self._dimensions]
            length = np.linalg.norm(vector)
            if length == 0:  # no text is known of which this is so; it would say as much as none
                vector = model.nothing[: self._dimensions]
                length = np.linalg.norm(vector)
            vectors.append((vector / length).tolist())
        return vectors


def _load() -> _Model:
    """ProviderError where the files are not there, or not what they should be."""
    import numpy as np  # noqa: PLC0415 - only where it is installed
    from safetensors.numpy import load_file  # noqa: PLC0415 - as above  # pyright: ignore[reportUnknownVariableType]
    from tokenizers import Tokenizer  # noqa: PLC0415 - as above

    package = find_spec("wordllama")
    folder = Path(next(iter(package.submodule_search_locations or [""])) if package else "")
    try:
        tokens = cast("dict[str, NDArray[np.float16]]", load_file(folder / _WEIGHTS))["embedding.weight"]
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        if tokens.shape != (tokenizer.get_vocab_size(), _DIMENSIONS[0]):
            raise ValueError(f"the weights have the shape {tokens.shape}")  # noqa: TRY301 - told as any other
    except Exception as error:  # tokenizers raises nothing more particular
        raise ProviderError(
            FailureKind.SETUP_REQUIRED,
            f"The files of the embedder local in {folder} cannot be used: {error}. Install wordllama again.",
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return _Model(tokenizer, tokens, -tokens.mean(axis=0, dtype=np.float32))


def make(given: EmbedderGiven) -> Local:
    """Invalid where it is not installed, or something is asked of it that it has not. Nothing is loaded yet."""
    if given.base_url is not None:
        raise Invalid(
            "The embedder local has no CMSERVER_EMBEDDER_BASE_URL: it runs in cmserver itself. Name another in CMSERVER_EMBEDDER."
        )
    if given.model not in {None, _MODEL}:
        raise Invalid(f"The embedder local has one model, {_MODEL}: leave CMSERVER_EMBEDDER_MODEL out, or choose another embedder.")
    dimensions = _DIMENSIONS[0] if given.dimensions is None else given.dimensions
    if dimensions not in _DIMENSIONS:
        raise Invalid(
            "The embedder local has vectors of 256, 128 or 64 dimensions: set CMSERVER_EMBEDDER_DIMENSIONS to one of these."
        )
    if not is_installed():
        raise Invalid(
            "The embedder local is not installed: `pip install 'cmserver[local]'` (bin/setup does it) where there is a wheel of "
            "wordllama, which is for Python 3.11 to 3.13, and on Linux for x86-64. Or choose another CMSERVER_EMBEDDER."
        )
    return Local(dimensions)
