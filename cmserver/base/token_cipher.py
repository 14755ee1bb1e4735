"""Encrypts numbers that count all teams together, such as cursors, which would reveal other teams' activity."""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

_TAG_BYTES = 10
_MAX_BYTES = 64


class InstallationSecret(msgspec.Struct, frozen=True):
    """The secret that all processes of this installation share, for keyed hashes and encryption."""

    value: bytes


class TokenCipher:
    """Encrypts up to 64 bytes into a token, deterministically, for every process of the installation; one key a `purpose`."""

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        self._key = hashlib.blake2b(secret, person=purpose).digest()

    def encrypt(self, plaintext: bytes) -> str:
        tag = self._tag(plaintext)
        return base64.urlsafe_b64encode(tag + self._apply_keystream(tag, plaintext)).decode()

    def decrypt(self, token: str) -> bytes | None:
        """The bytes that the token encrypts; None for a token that was not made with this key."""
        try:
            both = base64.b64decode(token.encode(), b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        if not _TAG_BYTES < len(both) <= _TAG_BYTES + _MAX_BYTES:
            return None
        tag, plaintext = both[:_TAG_BYTES], self._apply_keystream(both[:_TAG_BYTES], both[_TAG_BYTES:])
        return plaintext if self._tag(plaintext) == tag else None

    def encrypt_number(self, number: int) -> str:
        return self.encrypt(number.to_bytes(8))

    def decrypt_number(self, token: str) -> int | None:
        plaintext = self.decrypt(token)
        return int.from_bytes(plaintext) if plaintext is not None and len(plaintext) == 8 else None

    def _tag(self, plaintext: bytes) -> bytes:
        return hashlib.blake2b(plaintext, key=self._key, digest_size=_TAG_BYTES, person=b"mark").digest()

    def _apply_keystream(self, tag: bytes, text: bytes) -> bytes:
        keystream = hashlib.blake2b(tag, key=self._key, digest_size=len(text), person=b"pad").digest()
        return bytes(byte ^ key_byte for byte, key_byte in zip(text, keystream, strict=True))
