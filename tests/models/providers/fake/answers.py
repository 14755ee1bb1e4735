"""What a sensible model answers to any request of ours: every third event is an observation, the rest are skipped; or a summary."""

from __future__ import annotations

import json
import re
from typing import Literal
from xml.sax.saxutils import escape

from cmserver.models.providers.model import Prompt
from tests.reading.events import read_call

ANSWER = '{"observations": [], "skipped": [{"event": "e1", "reason": "routine"}]}'
XML = '<skip event="e1" reason="routine"/>'
PROMPT = Prompt(
    kind="observations",
    project="orders",
    events=[read_call("Bash", at=n) for n in range(1, 5)],
)
SUMMARY = Prompt(kind="summary", project="orders", requests=["Add a discount"], last_message="Done.")
"""Two requests, and the shortest answers to the first."""
_SUMMED_UP = {
    "request": "What the user asked for",
    "investigated": "What was looked at",
    "learned": "What was found",
    "completed": "What was done",
    "next_steps": "What is left",
    "notes": "",
}


def answer_to(user: str, form: Literal["xml", "json"]) -> str:
    """To the user's part of a request; one without events asks for a summary."""
    tags = event_tags(user)
    return (_in_json if form == "json" else _in_xml)(tags)


def event_tags(user: str) -> list[str]:
    """As the request names them. In stored text there is no such tag: its `<` is none. (Of a body as it was sent, too.)"""
    return re.findall(r'<event id=\\?"(e\d+)\\?"', user)


def tokens(text: str) -> int:
    return (len(text) + 3) // 4


def _is_kept(tag: str) -> bool:
    return int(tag[1:]) % 3 == 1


def _in_json(tags: list[str]) -> str:
    if not tags:
        return json.dumps({"summary": _SUMMED_UP})
    observations = [
        {
            "events": [tag],
            "type": "change",
            "title": f"What {tag} did",
            "subtitle": "",
            "narrative": f"The event {tag} changed something.",
            "facts": [f"{tag} happened"],
            "concepts": ["what-changed"],
            "files_read": [],
            "files_modified": [],
            "quote": "",
            "state": "",
            "closes": [],
        }
        for tag in tags
        if _is_kept(tag)
    ]
    skipped = [{"event": tag, "reason": "routine"} for tag in tags if not _is_kept(tag)]
    return json.dumps({"observations": observations, "skipped": skipped})


def _in_xml(tags: list[str]) -> str:
    if not tags:
        return f"<summary>{''.join(f'<{name}>{escape(words)}</{name}>' for name, words in _SUMMED_UP.items())}</summary>"
    return "\n".join(
        f'<observation events="{tag}"><type>change</type><title>What {tag} did</title>'
        f"<narrative>The event {tag} changed something.</narrative><facts><fact>{tag} happened</fact></facts></observation>"
        if _is_kept(tag)
        else f'<skip event="{tag}" reason="routine"/>'
        for tag in tags
    )
