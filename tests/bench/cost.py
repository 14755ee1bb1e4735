"""What a session costs: every character that goes to the provider, counted by a provider that only counts."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import cast

import httpx
import msgspec

from tests.bench.drain import wait_until_ended
from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.session import requests, tool_use
from tests.bench.world import Place, World, role, value
from tests.models.providers.fake import anthropic
from tests.models.providers.fake.answers import event_tags
from tests.models.providers.fake.server import Asked, FakeProvider, Reply, fake_in_a_thread, json_reply

HOW = (
    "The real program with the provider anthropic, whose address is a server on the same machine that counts and answers: an "
    "observation of every third event, the others skipped, and a summary when the session ends. Tokens are the characters of the "
    "whole request body as it was sent, divided by four. A session has tool uses of two kilobytes each (reads, edits with the "
    "whole file, test runs, searches, commits) and a request of the user before every tenth part. 'In bursts': the events are "
    "there, and the queue hands them on 20 at a time, as after an outage or at the end of a session. 'As they come': three events "
    "to each call, as with a tool use every ten seconds and the default debounce. The share from the cache is what Anthropic's "
    "rules would serve: the marked prefix was sent within five minutes before, and has as many tokens as the model wants of one. "
    "Yardstick: the stored events themselves."
)
ORIGINAL_TOKENS = 18_600_000
"""What claude-mem 13.15 took for 200 tool uses of 2 kB in one session, by the same count."""
_CACHEABLE = {"Opus 5": 512, "Sonnet 5": 1024, "Haiku 4.5": 4096}
_MOST = 200_000
_STORED = "SELECT sum(length(payload::text)) FROM agent_events WHERE generate"
_BURST = 100


class Count(msgspec.Struct, kw_only=True):
    """What a session came to."""

    stored_tokens: float = 0
    """Of the events as they are stored."""
    calls: int = 0
    input_tokens: float = 0
    summary_tokens: float = 0
    """Of the input: the summary's."""
    output_tokens: float = 0
    prefix_tokens: float = 0
    """Sent again as they were, after the first call."""
    prefix: float = 0
    observations: int = 0


def run(world: World, scale: Scale) -> list[Figure]:
    """A session in bursts and as it comes, and how the cost grows with its length. Once each: it comes out the same every time."""
    bursts, few = _session(world, scale.session, _BURST), _session(world, scale.session, 3)
    short, long = _session(world, scale.session // 4, _BURST), _session(world, scale.session * 10, _BURST)
    per_use = (long.input_tokens / (scale.session * 10), short.input_tokens / (scale.session // 4))
    return [
        _figure(f"input tokens of {scale.session} tool uses in one session, in bursts", bursts),
        _figure(f"input tokens of {scale.session} tool uses in one session, as they come", few),
        Figure(
            name=f"input tokens a tool use, in a session of {scale.session * 10:,}",
            unit="tokens",
            yardstick=f"the same in a session of {scale.session // 4}",
            pairs=[per_use],
            aim=Aim(of="ratio", at_least=False, bound=1.1),
            note="the cost grows with the session's length, not with its square",
        ),
    ]


def _figure(name: str, one: Count) -> Figure:
    shares = ", ".join(
        f"{one.prefix_tokens / one.input_tokens if one.prefix >= least else 0:.0%} where it must have {least:,} ({model})"
        for model, least in _CACHEABLE.items()
    )
    return Figure(
        name=name,
        unit="tokens",
        yardstick="the events as they are stored",
        pairs=[(one.input_tokens, one.stored_tokens)],
        aim=Aim(of="median", at_least=False, bound=_MOST),
        note=(
            f"{one.calls} calls; {one.summary_tokens:,.0f} of the tokens for the summary; {one.output_tokens:,.0f} output tokens; "
            f"{one.observations} observations, of {(one.input_tokens + one.output_tokens) / max(1, one.observations):,.0f} tokens; "
            f"from the cache: {shares}; the stable part has {one.prefix:,.0f} tokens; "
            f"claude-mem took {ORIGINAL_TOKENS / one.input_tokens:,.0f} times as many ({ORIGINAL_TOKENS:,})"
        ),
    )


def _session(world: World, tool_uses: int, burst: int) -> Count:
    place = world.place()
    said = requests(tool_uses)
    with fake_in_a_thread(_answer) as fake:
        settings = {"provider": "anthropic", "anthropic_api_key": "sk-ant-of-the-benchmark", "base_url": fake.url}
        with role(world, place, "all", **settings, generation_debounce_seconds=0) as port, _client(place, port) as client:
            started = _posted(client, "/v1/sessions/start", {"projectId": str(place.project_id), "externalSessionId": "long"})
            session_id = cast("dict[str, str]", started["session"])["id"]
            for first in range(0, tool_uses, burst):
                numbers = range(first, min(first + burst, tool_uses))
                _posted(client, "/v1/events/batch", list(_events(place, session_id, numbers, said)))
                if burst < _BURST:
                    wait_until_ended(place)
            wait_until_ended(place)
            _posted(client, f"/v1/sessions/{session_id}/end", {})
            wait_until_ended(place)
    return _counted(place, fake)


def _events(place: Place, session_id: str, numbers: Iterable[int], said: dict[int, str]) -> Iterable[dict[str, object]]:
    for number in numbers:
        common = {"projectId": str(place.project_id), "serverSessionId": session_id, "sourceType": "hook"}
        if number in said:
            yield {**common, "eventType": "user_prompt", "sourceEventId": f"p{number}", "payload": {"prompt": said[number]}}
        yield {**common, "eventType": "PostToolUse", "sourceEventId": f"t{number}", "payload": tool_use(number)}


def _counted(place: Place, fake: FakeProvider) -> Count:
    ended = value(place.url, "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'")
    if ended:
        raise RuntimeError(f"{ended} jobs did not come to a good end.")
    count = Count(
        stored_tokens=cast("int", value(place.url, _STORED)) / 4,
        calls=len(fake.asked),
        observations=cast("int", value(place.url, "SELECT count(*) FROM observations WHERE kind = 'observation'")),
        output_tokens=float(cast("int", value(place.url, "SELECT sum(output_tokens) FROM generation_runs"))),
    )
    before: set[str] = set()
    for asked in fake.asked:
        request = msgspec.json.decode(asked.body, type=_Request)
        tokens, stable = len(asked.body.decode()) / 4, "".join(block.text for block in request.system)
        count.input_tokens += tokens
        if _is_summary(request):
            count.summary_tokens += tokens
        else:
            count.prefix = len(stable) / 4
        if stable in before:
            count.prefix_tokens += len(stable) / 4
        before.add(stable)
    return count


# -- the provider that counts


class _Block(msgspec.Struct):
    text: str


class _Turn(msgspec.Struct):
    content: str


class _Request(msgspec.Struct):
    system: list[_Block]
    messages: list[_Turn]


def _is_summary(request: _Request) -> bool:
    return not event_tags(request.messages[-1].content)


def _answer(asked: Asked) -> Reply:
    """What a good model would say, and at its length."""
    request = msgspec.json.decode(asked.body, type=_Request)
    tags = event_tags(request.messages[-1].content)
    if _is_summary(request):
        said: dict[str, object] = {"summary": dict.fromkeys(_SUMMARY, _NARRATIVE)}
    else:
        said = {
            "observations": [{"events": [tag], **_OBSERVATION} for tag in tags[::3]],
            "skipped": [{"event": tag, "reason": "a look-up, nothing was changed"} for tag in tags if tag not in tags[::3]],
        }
    text = json.dumps(said)
    used = anthropic.usage(input_tokens=len(asked.body) // 4, output_tokens=len(text) // 4)
    return json_reply(anthropic.message(anthropic.text(text), used=used))


_SUMMARY = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_NARRATIVE = (
    "The client waits between its attempts now, up to a bound, and gives up after the fifth with the last error it has seen; "
    "the limits come from the settings, where a value below one is refused when the program starts."
)
_OBSERVATION = {
    "type": "change",
    "title": "The limit of open deposits comes from the settings and is checked",
    "subtitle": "A value below one stops the program when it starts, with a sentence",
    "narrative": _NARRATIVE,
    "facts": ["settings.deposit_limit replaces the constant 3 in src/orders/deposit.py.", "A limit below 1 raises ValueError."],
    "concepts": ["what-changed", "gotcha"],
    "files_read": [],
    "files_modified": ["src/orders/deposit.py"],
}


# -- the client


@contextmanager
def _client(place: Place, port: int) -> Generator[httpx.Client]:
    headers = {"Authorization": f"Bearer {place.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False) as client:
        yield client


def _posted(client: httpx.Client, path: str, body: object) -> dict[str, object]:
    return cast("dict[str, object]", client.post(path, json=body).raise_for_status().json())
