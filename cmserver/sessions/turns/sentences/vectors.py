"""Keeps the vectors of a turn's sentences in few bytes, and compares them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from math import sqrt
from operator import mul

from cmserver.sessions.turns.sentences.model import MAX_DIMENSIONS

_LENGTH = 127
"""Of a vector, so that each of its numbers fits into a signed byte."""
_HAS_NUMPY = find_spec("numpy") is not None


def pack(vectors: Sequence[Sequence[float]]) -> bytes:
    """The vectors one after the other, a signed byte for each number: the cosines of what comes out are off by some 0.002."""
    packed = array("b")
    for vector in vectors:
        packed.extend(round(number * _LENGTH) for number in _shorten(vector))
    return packed.tobytes()


def compare(vector: Sequence[float], packed: Sequence[bytes], dimensions: int) -> list[float]:
    """The cosine of the vector with each of the packed ones, in their order; `dimensions` are those of the model."""
    width = min(dimensions, MAX_DIMENSIONS)
    short = _shorten(vector)
    whole = b"".join(packed)
    if not whole or len(whole) % width:
        return []
    if _HAS_NUMPY:
        import numpy as np  # noqa: PLC0415 - only where it is installed

        rows = np.frombuffer(whole, dtype=np.int8).reshape(-1, width).astype(np.float32)
        return (rows @ np.array(short, dtype=np.float32) / _LENGTH).tolist()
    numbers = array("b", whole)
    return [sum(map(mul, short, numbers[start : start + width])) / _LENGTH for start in range(0, len(numbers), width)]


def _shorten(vector: Sequence[float]) -> list[float]:
    """Its first numbers, as a vector of length 1."""
    short = vector[:MAX_DIMENSIONS]
    length = sqrt(sum(map(mul, short, short))) or 1.0
    return [number / length for number in short]
