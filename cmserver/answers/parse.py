"""Parses the text of an answer into drafts, each with the tags of the events it cites."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence

from cmserver.answers import json_answer, xml_answer
from cmserver.answers.damaged_json import find_json_values
from cmserver.answers.model import ParsedAnswer
from cmserver.answers.text_fields import parse_event_references
from cmserver.answers.tolerant_xml import scan_tags
from cmserver.models.providers.model import Answer, FailureKind, ProviderError, Skip, event_tag
from cmserver.observations.normalise import merge_summaries, normalise_line


def parse(text: str, event_count: int) -> Answer:
    """The drafts of an answer about so many events. ProviderError (UNUSABLE_ANSWER) when nothing can be read."""
    parsed = _parse_any_format(text)
    if not parsed.has_content:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, _explain_unreadable(text))
    for draft in parsed.observations:
        draft.events = _resolve_tags(draft.events, event_count)
    skipped = _resolve_skip_marks(parsed.skipped, event_count)
    return Answer(observations=parsed.observations, summary=merge_summaries(parsed.summaries), skipped=skipped)


def _resolve_tags(references: Sequence[str], event_count: int) -> list[str]:
    return [event_tag(place) for place in sorted(parse_event_references(references, event_count))]


def _resolve_skip_marks(marks: Sequence[Skip], event_count: int) -> list[Skip]:
    """One mark for each event; the first one counts. A mark of the whole batch has no event."""
    reasons = dict[str, str]()
    for mark in marks:
        tags = _resolve_tags([mark.event], event_count)
        is_batch = not tags and mark.event.strip().lower() in {"", "all", "summary", "*"}
        for tag in [""] if is_batch else tags:
            reasons.setdefault(tag, mark.reason)
    return [Skip(event=tag, reason=reason) for tag, reason in reasons.items()]


def _parse_any_format(text: str) -> ParsedAnswer:
    """Read the JSON before the first tagged block, the blocks, and the JSON between and after them.

    Whatever begins first contains the rest: JSON in a narrative and tags in a JSON string are text.
    """
    text = _decode_json_string(text)
    parsed = ParsedAnswer()
    tags = scan_tags(text)
    blocks = deque(xml_answer.block_starts(tags))
    position = 0
    for found in find_json_values(text):
        while blocks and blocks[0] < position:
            blocks.popleft()
        if blocks and blocks[0] < found.start:
            break
        answer = json_answer.read_json_answer(found.value)
        if answer.has_content:
            parsed.add(answer)
            position = found.end
    tagged = xml_answer.read_xml_answer(scan_tags(text[position:]) if position else tags)
    parsed.add(tagged.parsed)
    if blocks:
        for prose in tagged.outside:
            for found in find_json_values(prose):
                parsed.add(json_answer.read_json_answer(found.value))
    return parsed


def _decode_json_string(text: str) -> str:
    """Undo double encoding: an answer that is one JSON string."""
    if text.lstrip()[:1] == '"':
        try:
            inner: object = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return text
        return inner if isinstance(inner, str) else text
    return text


def _explain_unreadable(text: str) -> str:
    beginning = normalise_line(text[:200])
    return (
        f"The answer holds no observations, summary or skip mark. It begins: {beginning}" if beginning else "The answer is empty."
    )
