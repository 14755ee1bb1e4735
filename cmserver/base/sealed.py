"""Numbers that count all teams together, shown so that they tell nobody anything: from plain ones a team could read how busy the
others are. What one process of the installation has sealed the others can open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

_MARK_BYTES = 10


class Seal:
    """Enciphers up to 64 bytes with the installation's secret; the same bytes give the same text. One for each `purpose`."""

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        self._key = hashlib.blake2b(secret, person=purpose).digest()

    def close(self, plain: bytes) -> str:
        mark = self._mark(plain)
        return base64.urlsafe_b64encode(mark + self._turned(mark, plain)).decode()

    def open(self, text: str) -> bytes | None:
        """None when it was not closed here."""
        try:
            both = base64.b64decode(text.encode(), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        if not _MARK_BYTES < len(both) <= _MARK_BYTES + 64:
            return None
        mark, plain = both[:_MARK_BYTES], self._turned(both[:_MARK_BYTES], both[_MARK_BYTES:])
        return plain if self._mark(plain) == mark else None

    def close_number(self, number: int) -> str:
        return self.close(number.to_bytes(8))

    def open_number(self, text: str) -> int | None:
        """None when it is no number that was closed here."""
        plain = self.open(text)
        return int.from_bytes(plain) if plain is not None and len(plain) == 8 else None

    def _mark(self, plain: bytes) -> bytes:
        return hashlib.blake2b(plain, key=self._key, digest_size=_MARK_BYTES, person=b"mark").digest()

    def _turned(self, mark: bytes, text: bytes) -> bytes:
        pad = hashlib.blake2b(mark, key=self._key, digest_size=len(text), person=b"pad").digest()
        return bytes(one ^ other for one, other in zip(text, pad, strict=True))
