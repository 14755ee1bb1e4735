"""Which reads are accesses."""

from __future__ import annotations

COUNTED = "accesses"
"""The name of the position up to which the audit log is counted."""
VIAS = ("get", "batch", "event", "search.full", "context.search", "timeline.full", "prompt", "file")
"""How a text is read whole, or shown because it belongs to the work at hand. Lists, index lines and the context at the start of a
session are no accesses: they are shown whether anybody needs them or not.
"""
