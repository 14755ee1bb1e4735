"""Embeddings as OpenAI, Voyage and Ollama answer them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.models.providers.fake.server import Reply, json_reply


def listed(vectors: Sequence[Sequence[object]], *, indexes: Sequence[int] | None = None) -> Reply:
    """OpenAI's, and Voyage's."""
    numbers = indexes if indexes is not None else range(len(vectors))
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in zip(numbers, vectors, strict=True)]
    return json_reply({"object": "list", "data": data, "model": "m-2026", "usage": {"prompt_tokens": 5, "total_tokens": 5}})


def ollama(vectors: Sequence[Sequence[object]]) -> Reply:
    return json_reply(
        {"model": "m", "embeddings": vectors, "total_duration": 14_143_917, "load_duration": 1_019_500, "prompt_eval_count": 8}
    )
