"""Guests of Contextify's routes: programs on this machine without a key."""

from tests.doors.claude_mem.conftest import guest, settings

__all__ = ["guest", "settings"]  # fixtures
