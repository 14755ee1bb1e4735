"""From the text of an answer to what will be stored: whatever can be read in it, each with the jobs of the events it names."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from cmserver.generation.answers import structured, xml
from cmserver.generation.answers.loose import places
from cmserver.generation.answers.model import Heard, Parsed, Worded
from cmserver.generation.answers.normalise import line_of, observation_of, summary_of
from cmserver.generation.answers.tags import scan
from cmserver.generation.answers.values import values
from cmserver.providers.model import FailureKind, ProviderError

OBSERVATIONS_MOST = 1_000
"""Of one answer, which has room for some hundred; a flood behind them is dropped, and counted as such."""
_NOTHING: Final[Mapping[UUID, Sequence[str]]] = MappingProxyType({})


def parse(text: str, job_ids: Sequence[UUID], changed: Mapping[UUID, Sequence[str]] = _NOTHING) -> Parsed:
    """Understand an answer; `job_ids` are the jobs behind the tags e1, e2 ..., `changed` the files that their events changed.

    UNUSABLE_ANSWER when nothing in it can be read; never another exception.
    """
    heard = _hear(text)
    if not heard.anything:
        raise ProviderError(FailureKind.UNUSABLE_ANSWER, _why_not(text))
    observations: list[Worded] = []
    named_anywhere = set[UUID]()
    for draft in heard.observations[:OBSERVATIONS_MOST]:
        named = [job_ids[place] for place in sorted(places(draft.events, len(job_ids)))]
        # An observation that names no event of the batch belongs to the batch as a whole.
        cited = named or list(job_ids)
        certain = cited if named or len(cited) == 1 else []
        clean = observation_of(draft, [file for job_id in certain for file in changed.get(job_id, ())])
        if clean is not None:
            observations.append(Worded(draft=clean, job_ids=cited))
            named_anywhere.update(named)
    reasons = {job_id: reason for job_id, reason in _reasons(heard, job_ids).items() if job_id not in named_anywhere}
    dropped = len(heard.observations) - len(observations)
    return Parsed(observations=observations, summary=summary_of(heard.summaries), reasons=reasons, dropped=dropped)


def _reasons(heard: Heard, job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Why a job was skipped: what was said of its event, else what was said of all."""
    own: dict[UUID, str] = {}
    of_all: str | None = None
    for skip in heard.skipped:
        reason = line_of(skip.reason) or "not said why"
        named = places([skip.event], len(job_ids))
        for place in named:
            own.setdefault(job_ids[place], reason)
        if not named and (not skip.event.strip() or skip.event.strip().lower() in {"all", "summary", "*"}):
            of_all = of_all or reason
    return (dict.fromkeys(job_ids, of_all) if of_all else {}) | own


def _hear(text: str) -> Heard:
    """The answer's JSON up to the first block in tags, the blocks, and the JSON between and behind them.

    What begins first is read first, and what stands inside of it is its text: JSON in a narrative, or tags in a JSON string.
    """
    text = _unpacked(text)
    heard = Heard()
    scanned = scan(text)
    blocks = deque(xml.block_starts(scanned))
    at = 0
    for found in values(text):
        while blocks and blocks[0] < at:
            blocks.popleft()
        if blocks and blocks[0] < found.start:
            break
        said = structured.understood(found.value, _tags)
        if said.anything:
            heard.add(said)
            at = found.end
    tagged = xml.read(scan(text[at:]) if at else scanned)
    heard.add(tagged.heard)
    if blocks:
        for prose in tagged.outside:
            for found in values(prose):
                heard.add(structured.understood(found.value, _tags))
    return heard


def _tags(text: str) -> Heard:
    return xml.read(scan(text)).heard


def _unpacked(text: str) -> str:
    """An answer that was encoded twice is a JSON string."""
    if text.lstrip()[:1] == '"':
        try:
            inner: object = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return text
        return inner if isinstance(inner, str) else text
    return text


def _why_not(text: str) -> str:
    begins = line_of(text[:200])
    return (
        f"Nothing in the answer can be read as observations, a summary or a skip mark. It begins: {begins}"
        if begins
        else "The answer is empty."
    )
