"""Reads the labelled cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

Half = Literal["dev", "held_back"]
HALVES: tuple[Half, ...] = ("dev", "held_back")


def read_labels(kind: str, half: Half) -> list[dict[str, Any]]:
    """The cases of a kind, as README.md says what is in them."""
    return json.loads((Path(__file__).parent / f"{kind}.{half}.json").read_text("utf-8"))
