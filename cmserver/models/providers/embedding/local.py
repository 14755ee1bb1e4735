"""A small static model on this machine: a text's vector is the mean of its tokens' vectors.

The weights and the tokenizer are files of the package wordllama, whose code is not used, as it downloads them. The model and its
licence: docs/why/embeddings.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.text import storable
from cmserver.models.providers.embedding.model import EmbedderSettings, Purpose
from cmserver.models.providers.embedding.model_holder import ModelHolder
from cmserver.models.providers.model import FailureKind, ProviderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

_PACKAGES = ("wordllama", "tokenizers", "numpy")
_MODEL = "l2-supercat-256"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_DIMENSIONS = (256, 128, 64)
"""Prefixes of its vectors are valid vectors, by its training."""
_MAX_TEXTS = 256
_MAX_CHARS = 8_000
"""The part of a text that is embedded: a mean of more than 2,000 tokens is similar to everything."""
_INLINE_CHARS = 1_000
"""Embedding this many takes a fifth of a millisecond, less than a switch to a thread."""


class _Model(msgspec.Struct, frozen=True):
    tokenizer: Tokenizer
    tokens: NDArray[np.float16]
    """A row per token, in the file itself: processes share its pages, and only those of used tokens are read."""

    @property
    def nothing(self) -> NDArray[np.float32]:
        """The vector of a text without tokens: opposite to the mean of all tokens, so similar to no other text."""
        import numpy as np  # noqa: PLC0415 - only where it is installed

        return -self.tokens.mean(axis=0, dtype=np.float32)


class _Tensor(msgspec.Struct, frozen=True):
    """A tensor in the header of a safetensors file."""

    dtype: str
    shape: tuple[int, int]
    data_offsets: tuple[int, int]


def is_installed() -> bool:
    return all(find_spec(package) is not None for package in _PACKAGES)


class LocalEmbedder:
    """Embeds thousands of texts a second. The same text has the same vector on every machine."""

    provider = "local"
    model = _MODEL
    max_texts = _MAX_TEXTS

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:  # noqa: ARG002 - one model for both
        """Embed the texts; one of only space gets the vector `nothing`."""
        model = _holder.model
        if model is not None and sum(map(len, texts)) <= _INLINE_CHARS:
            return self._embed_texts(model, texts)
        return await asyncio.to_thread(self._load_and_embed, texts)

    async def close(self) -> None:
        """Nothing to close; the model stays loaded for others."""

    def _load_and_embed(self, texts: Sequence[str]) -> list[list[float]]:
        return self._embed_texts(_holder.load(), texts)

    def _embed_texts(self, model: _Model, texts: Sequence[str]) -> list[list[float]]:
        """The mean of each text's token vectors, cut to the dimensions and of length 1."""
        import numpy as np  # noqa: PLC0415 - only where it is installed

        cut = [storable(text[:_MAX_CHARS]).strip() for text in texts]
        vectors: list[list[float]] = []
        for read in model.tokenizer.encode_batch(cut, add_special_tokens=False):
            mean = model.tokens[read.ids].mean(axis=0, dtype=np.float32) if read.ids else model.nothing
            vector = mean[: self.dimensions]
            length = np.linalg.norm(vector)
            if length == 0:  # not known to happen
                vector = model.nothing[: self.dimensions]
                length = np.linalg.norm(vector)
            vectors.append((vector / length).tolist())
        return vectors


def _load() -> _Model:
    """Load the model. Raises ProviderError for missing or wrong files."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - only where it is installed

    package = find_spec("wordllama")
    folder = Path(next(iter(package.submodule_search_locations or [""])) if package else "")
    try:
        tokens = _map_weights(folder / _WEIGHTS)
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
    return _Model(tokenizer, tokens)


def _map_weights(file: Path) -> NDArray[np.float16]:
    """The only tensor of a file in the safetensors format: the length of the header, the header in JSON, the numbers."""
    import numpy as np  # noqa: PLC0415 - as above

    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(8), "little")
        header = msgspec.json.decode(opened.read(header_bytes), type=dict[str, msgspec.Raw])
    tensor = msgspec.json.decode(header["embedding.weight"], type=_Tensor)
    if tensor.dtype != "F16":
        raise ValueError(f"the weights are of type {tensor.dtype}")
    start = 8 + header_bytes + tensor.data_offsets[0]
    return np.memmap(file, dtype="<f2", mode="r", offset=start, shape=tensor.shape)


_holder = ModelHolder(_load)


def make(settings: EmbedderSettings) -> LocalEmbedder:
    """Make the embedder without loading it. Raises Invalid if it is not installed or lacks the model or dimensions."""
    if settings.base_url is not None:
        raise Invalid(
            "The embedder local has no CMSERVER_EMBEDDER_BASE_URL: it runs in cmserver itself. Name another in CMSERVER_EMBEDDER."
        )
    if settings.model not in {None, _MODEL}:
        raise Invalid(f"The embedder local has one model, {_MODEL}: leave CMSERVER_EMBEDDER_MODEL out, or choose another embedder.")
    dimensions = _DIMENSIONS[0] if settings.dimensions is None else settings.dimensions
    if dimensions not in _DIMENSIONS:
        raise Invalid("The embedder local has vectors of 256, 128 or 64 dimensions.")
    if not is_installed():
        raise Invalid(
            "The embedder local is not installed: `pip install 'cmserver[local]'` (bin/setup does it) where there is a wheel of "
            "wordllama, which is for Python 3.11 to 3.13, and on Linux for x86-64. Or choose another CMSERVER_EMBEDDER."
        )
    return LocalEmbedder(dimensions)
