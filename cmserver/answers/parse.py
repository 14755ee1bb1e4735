"""Parses the text of an answer into what will be stored, each observation with the jobs of the events it cites."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

from cmserver.answers import json_answer, xml_answer
from cmserver.answers.damaged_json import find_json_values
from cmserver.answers.model import BatchAnswer, ParsedAnswer, SourcedObservation
from cmserver.answers.normalise import merge_summaries, normalise_line, normalise_observation, normalise_summary
from cmserver.answers.text_fields import parse_event_references
from cmserver.answers.tolerant_xml import scan_tags
from cmserver.providers.model import Answer, FailureKind, ProviderError

MAX_OBSERVATIONS = 1_000
"""Per answer; more are dropped and counted. A real answer has room for some hundred."""


def parse(text: str, job_ids: Sequence[UUID], changed_files: Callable[[UUID], Sequence[str]] = lambda _: ()) -> BatchAnswer:
    """Parse an answer; see `settle`. Raises only ProviderError: UNUSABLE_ANSWER when nothing can be read."""
    return settle(read(text), job_ids, changed_files)


def read(text: str) -> Answer:
    """The drafts of an answer, with the references to events as they were written. ProviderError when nothing can be read."""
    parsed = _parse_any_format(text)
    if not parsed.has_content:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, _explain_unreadable(text))
    return Answer(observations=parsed.observations, summary=merge_summaries(parsed.summaries), skipped=parsed.skipped)


def settle(answer: Answer, job_ids: Sequence[UUID], changed_files: Callable[[UUID], Sequence[str]] = lambda _: ()) -> BatchAnswer:
    """What will be stored of the drafts, whoever wrote them.

    `job_ids` are the jobs behind the tags e1, e2 ..., `changed_files` those that a job's event changed.
    """
    observations: list[SourcedObservation] = []
    all_cited = set[UUID]()
    for draft in answer.observations[:MAX_OBSERVATIONS]:
        cited = [job_ids[index] for index in sorted(parse_event_references(draft.events, len(job_ids)))]
        # An observation that cites no event of the batch belongs to the batch as a whole.
        sources = cited or list(job_ids)
        certain = sources if cited or len(sources) == 1 else []
        clean = normalise_observation(draft, [file for job_id in certain for file in changed_files(job_id)])
        if clean is not None:
            observations.append(SourcedObservation(draft=clean, job_ids=sources))
            all_cited.update(cited)
    reasons = {job_id: reason for job_id, reason in _skip_reasons(answer, job_ids).items() if job_id not in all_cited}
    dropped = len(answer.observations) - len(observations)
    return BatchAnswer(observations=observations, summary=normalise_summary(answer.summary), reasons=reasons, dropped=dropped)


def _skip_reasons(answer: Answer, job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Why a job was skipped: the reason for its event, else the reason for the whole batch."""
    by_job: dict[UUID, str] = {}
    batch_reason: str | None = None
    for mark in answer.skipped:
        reason = normalise_line(mark.reason) or "not said why"
        indexes = parse_event_references([mark.event], len(job_ids))
        for index in indexes:
            by_job.setdefault(job_ids[index], reason)
        if not indexes and mark.event.strip().lower() in {"", "all", "summary", "*"}:
            batch_reason = batch_reason or reason
    return (dict.fromkeys(job_ids, batch_reason) if batch_reason else {}) | by_job


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
