"""Guests of Contextify's routes: programs on this machine without a key."""

from tests.compat.conftest import guest, settings

__all__ = ["guest", "settings"]  # fixtures
