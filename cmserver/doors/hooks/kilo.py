"""Kilo: what our plugin sends, as events. It is made of OpenCode, runs the same plugin, and quotes prompts in the same way.

https://kilo.ai/docs
"""

from __future__ import annotations

from msgspec import structs

from cmserver.doors.hooks import opencode

ADAPTER = structs.replace(opencode.ADAPTER, platform="kilo")
