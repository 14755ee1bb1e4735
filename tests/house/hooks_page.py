"""The part of the reference page on hooks that is generated: what is decided at the door."""

from __future__ import annotations

from cmserver.ingest.door import DOOR_RULES, DoorQuestion
from tests.house.house import ROOT

_PAGE = ROOT / "docs" / "reference" / "hooks.md"
_BEGIN, _END = "<!-- Generated from cmserver/ingest/door.py. -->\n", "<!-- Written by hand again. -->\n"
_HEADINGS: dict[DoorQuestion, str] = {
    "row": "Is it stored?",
    "job": "Does it get a job?",
    "due": "When is its job due?",
    "turn": "What turn is it of?",
}


def hooks_page() -> str:
    """docs/reference/hooks.md."""
    before, rest = _PAGE.read_text(encoding="utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return "".join([before, _BEGIN, "\n", *map(_table, _HEADINGS), _END, after])


def _table(question: DoorQuestion) -> str:
    rows = "".join(f"| {rule.condition} | {rule.outcome} | {rule.reason} |\n" for rule in DOOR_RULES[question])
    return f"| {_HEADINGS[question]} | | because |\n|---|---|---|\n{rows}\n"
