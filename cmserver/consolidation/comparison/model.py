"""Rows that are compared with each other."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.model import Consolidation
from cmserver.observations.model import TYPE_FAMILIES


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that is not compared yet. One that `waits` gets its vector soon."""

    id: UUID
    number: int
    project_id: UUID
    consolidation: Consolidation
    is_compared: bool
    has_vector: bool
    waits: bool


class TextHash(msgspec.Struct, frozen=True, kw_only=True):
    """An observation, and the hash of its text: equal for texts that differ only in spaces, Markdown, and the ends."""

    id: UUID
    hash: bytes


class StoredVector(msgspec.Struct, frozen=True, kw_only=True):
    """An observation's vector as halfvec_send() writes it, and what must be equal for two to be compared."""

    id: UUID
    number: int
    scope: str
    type: str
    caller_type: str | None
    vector: bytes
    person_id: UUID | None = None
    """Whose words it is, where the team keeps those of people apart."""

    @property
    def group(self) -> tuple[str, int, str | None, UUID | None]:
        """Equal for two observations that may say the same."""
        family = next((place for place, types in enumerate(TYPE_FAMILIES) if self.type in types), -1)
        return self.scope, family, self.caller_type, self.person_id


class NearPair(msgspec.Struct, frozen=True, kw_only=True):
    """A new observation and an older one near to it."""

    newer: UUID
    older: UUID
    cosine: float
