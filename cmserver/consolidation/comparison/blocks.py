"""Compares vectors block by block, with bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from cmserver.consolidation.comparison.model import NearPair, StoredVector

Matrix = NDArray[np.float32]

_ROWS_AT_ONCE = 500


class BlockComparison:
    """New observations, and the nearest older ones of the blocks they were compared with so far."""

    def __init__(self, new: Sequence[StoredVector], *, at_least: float, most: int) -> None:
        self._new = list(new)
        self._vectors = read_vectors(self._new)
        self._numbers = np.array([row.number for row in self._new], dtype=np.int64)
        self._groups = {group: place for place, group in enumerate(dict.fromkeys(row.group for row in self._new))}
        self._group_of = np.array([self._groups[row.group] for row in self._new], dtype=np.int32)
        self._at_least = at_least
        self._most = most
        self._nearest: list[list[tuple[float, int, UUID]]] = [[] for _ in self._new]

    def compare(self, block: Sequence[StoredVector]) -> None:
        """Compare with stored observations; only older ones of the same group count."""
        if not self._new or not block:
            return
        vectors = read_vectors(block).T
        numbers = np.array([row.number for row in block], dtype=np.int64)
        groups = np.array([self._groups.get(row.group, -1) for row in block], dtype=np.int32)
        for start in range(0, len(self._new), _ROWS_AT_ONCE):
            mine = slice(start, start + _ROWS_AT_ONCE)
            cosines = self._vectors[mine] @ vectors
            is_counted = cosines >= self._at_least
            is_counted &= numbers < self._numbers[mine, np.newaxis]
            is_counted &= groups == self._group_of[mine, np.newaxis]
            for row in np.flatnonzero(is_counted.any(axis=1)).tolist():
                # All may be alike: only the nearest of a row, of equal ones the oldest, become objects of Python.
                columns = np.flatnonzero(is_counted[row])
                order = np.lexsort((numbers[columns], -cosines[row, columns]))[: self._most]
                for column in cast("list[int]", columns[order].tolist()):
                    self._keep(start + row, float(cosines[row, column]), block[column])

    def _keep(self, row: int, cosine: float, older: StoredVector) -> None:
        nearest, entry = self._nearest[row], (cosine, -older.number, older.id)
        if len(nearest) < self._most:
            heapq.heappush(nearest, entry)
        else:
            heapq.heappushpop(nearest, entry)

    def pairs(self) -> list[NearPair]:
        """The nearest of each new observation, in the order of the new ones, nearest first."""
        return [
            NearPair(newer=row.id, older=older, cosine=min(1.0, cosine))
            for row, nearest in zip(self._new, self._nearest, strict=True)
            for cosine, _, older in sorted(nearest, reverse=True)
        ]


def read_vectors(rows: Sequence[StoredVector]) -> Matrix:
    """The vectors as the rows of a matrix, each of length 1."""
    matrix = np.stack([np.frombuffer(row.vector, dtype=">f2", offset=4) for row in rows]).astype(np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return (matrix / np.where(lengths == 0, 1, lengths)).astype(np.float32)
