"""What a session is told unasked: the labelled prompts of tests/recall/history, typed over HTTP into sessions of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec

from tests.bench.recall.corpus import Corpus, Document, Half, Session
from tests.recall.history import measure
from tests.recall.history.measure import Noted, Remembered, Typed

_PROJECT = "github.com/acme/farm-shop"
_LINE = re.compile(r"^#(\d+) ", re.MULTILINE)
SILENT_AT_LEAST, HELPED_AT_LEAST = 0.93, 0.73


class Unasked(msgspec.Struct, frozen=True, kw_only=True):
    """Of one half: how many unrelated prompts were told nothing, related ones a useful line, and which part of lines is useful."""

    half: measure.Half
    unrelated: int
    silent: float
    related: int
    helped: float
    useful_lines: float


def load() -> Corpus:
    """The memory that the prompts are typed after; without questions."""
    sessions = [
        Session(name=_name(session), project=_PROJECT, agent="claude-code", started_at=session.started_at)
        for session in measure.history().sessions
    ]
    return Corpus(name="prompts", sessions=sessions, documents=[_document(it) for it in measure.remembered()], questions=[])


def _document(it: Remembered) -> Document:
    place: dict[str, Any] = {"key": _key(it.said.number), "session": _name(it.session), "created_at": it.created_at}
    if isinstance(it.said, Noted):
        return Document(**place, **it.said.fields)
    narrative = f"{it.said.investigated}\n\n{it.said.learned}\n\n{it.said.completed}\n\n{it.said.next_steps}"
    return Document(**place, title=it.said.request[:200], narrative=narrative, is_summary=True)


def _name(session: measure.Session) -> str:
    return f"prompts-{session.id}"


def type_prompts(client: httpx.Client, by_number: Mapping[int, str], halves: Sequence[Half]) -> list[Unasked]:
    """Type each prompt of these halves, with `test` also those of `second`, and count what it was told."""
    numbers = {int(key.rpartition("/")[2]): number for number, key in by_number.items()}
    labels = {number: label for label, number in numbers.items()}
    done: list[Typed] = []
    wanted: list[measure.Half] = [*halves, *(["second"] if "test" in halves else [])]
    for session in [*measure.prompts(), *measure.second_prompts()]:
        if session.half not in wanted:
            continue
        for prompt in session.prompts:
            text = _type_prompt(client, prompt.id, prompt.text)
            shown = [labels[int(number)] for number in _LINE.findall(text) if int(number) in labels]
            done.append(Typed(half=session.half, prompt=prompt, shown=shown))
    return [_count(half, done) for half in wanted]


def _count(half: measure.Half, done: Sequence[Typed]) -> Unasked:
    counted = measure.figures(done, half)
    return Unasked(
        half=half,
        unrelated=counted.unrelated,
        silent=round(counted.silent, 4),
        related=counted.related,
        helped=round(counted.helped, 4),
        useful_lines=round(counted.useful_lines, 4),
    )


def _type_prompt(client: httpx.Client, name: str, prompt: str) -> str:
    """The context that the hook is answered with."""
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": f"later-{name}", "cwd": "/home/dev/shop", "prompt": prompt}
    headers = {"X-Cmserver-Project": _PROJECT, "X-Cmserver-Delivery": f"recall-{name}"}
    answer = client.post("/v1/hooks/claude-code", json=payload, headers=headers).raise_for_status()
    output = msgspec.json.decode(answer.content, type=_HookOutput)
    return output.hook_specific_output.additional_context if output.hook_specific_output else ""


def _key(number: int) -> str:
    return f"prompts/{number}"


class _SpecificOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    additional_context: str = ""


class _HookOutput(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    hook_specific_output: _SpecificOutput | None = None
