"""Ids of what is imported: those of the source where they are free, else the same ones again for the same thing."""

from __future__ import annotations

import hashlib
from datetime import datetime
from uuid import UUID

from cmserver.base.ids import epoch_ms

_RANDOM_BITS = (1 << 62) - 1


def derive_id(source: str, key: str, at: datetime) -> UUID:
    """A UUID of version 7 of that moment, always the same for the thing `key` of a source."""
    return _make(f"{source}\0{key}".encode(errors="surrogatepass"), max(0, epoch_ms(at)))


def move_id(team_id: UUID, original: UUID) -> UUID:
    """Another id for what has the original one in another team; of the same moment."""
    return _make(team_id.bytes + original.bytes, original.int >> 80)


def _make(key: bytes, milliseconds: int) -> UUID:
    digest = int.from_bytes(hashlib.sha256(key).digest()[:16])
    return UUID(
        int=(milliseconds & (1 << 48) - 1) << 80 | 0x7 << 76 | (digest >> 64 & 0xFFF) << 64 | 0b10 << 62 | digest & _RANDOM_BITS
    )
