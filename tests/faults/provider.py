"""A model provider with moods: it answers sensibly until a storm makes it hang, cut, lie, talk nonsense, or refuse."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from random import Random

import msgspec

from tests.models.providers.fake import openai as chat
from tests.models.providers.fake.answers import event_tags
from tests.models.providers.fake.server import Asked, Reply, json_reply

SETTINGS = {"CMSERVER_PROVIDER": "openai", "OPENAI_API_KEY": "sk-storm", "CMSERVER_MODEL": chat.MODEL}
_QUICK_SECONDS = (0, 0.3)
_SLOW_SECONDS = (2.0, 3.5)
"""So long that a worker that is frozen meanwhile wakes up while another one has made the same call."""


_PAST_EVENT = re.compile(r'<event id="(e\d+)"(?:(?!</event>).)*?past-(\d+)-(\d+)-(\d+)', re.DOTALL)
"""Its tag, and of which storm, session and place it is."""
_WORDS = (
    *("anchor", "barley", "cobalt", "dynamo", "ember", "fathom", "gypsum", "heron"),
    *("ingot", "jasper", "kelp", "lantern", "marble", "nickel", "oyster", "pewter"),
)


def name_past(seed: int, session: int, place: int) -> str:
    """The name of an event of the past of the storm with that seed."""
    return f"past-{seed}-{session}-{place}"


def mark_of(seed: int) -> str:
    """A word that stands in no event, and in answers to a replay alone."""
    return f"shadowmark{seed}x"


def _guard() -> Reply:
    """The answer to the steward, who asks whether two notes say the same: nearly free, so that a day's tokens are enough."""
    words = json.dumps({"same": True, "conflict": False, "confidence": 0.97, "reason": "the same fact"})
    return json_reply(chat.completion(chat.message(words), used=chat.usage(prompt=1, completion=1)))


class _Turn(msgspec.Struct):
    content: str


class _Request(msgspec.Struct):
    messages: list[_Turn]


class MoodyProvider:
    """Speaks OpenAI's Chat Completions. Moods may overlap; each request meets one of them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._moods: list[str] = []
        self._reworded: set[int] = set()

    def reword(self, seed: int) -> None:
        """From now on the past of that storm is worded otherwise: whoever asks about it replays it."""
        with self._lock:
            self._reworded.add(seed)

    def begin(self, mood: str) -> None:
        with self._lock:
            self._moods.append(mood)

    def end(self, mood: str) -> None:
        with self._lock:
            if mood in self._moods:
                self._moods.remove(mood)

    async def play(self, request: Asked) -> Reply:
        with self._lock:
            mood = self._random.choice(self._moods) if self._moods else ""
        seconds = _SLOW_SECONDS if mood == "provider-slow" else _QUICK_SECONDS
        await asyncio.sleep(self._random.uniform(*seconds))
        good = _guard() if b'"conflict"' in request.body else self._word_past(request) or chat.play(request)
        if mood == "provider-hang":
            return msgspec.structs.replace(good, stall_after=self._random.choice([0, len(good.body) // 2]))
        if mood == "provider-cut":
            return msgspec.structs.replace(good, stop_after=self._random.randrange(len(good.body)))
        if mood == "provider-429":
            return json_reply(chat.error("Rate limit reached", code="rate_limit_exceeded"), status=429, retry_after="1")
        if mood == "provider-500":
            return json_reply(chat.error("The server had an error", kind="server_error"), status=self._random.choice([500, 503]))
        if mood == "provider-garbage":
            words = self._random.choice(["", "{", "null", "I cannot help with that.", '{"observations": 7}', "\x00\udfff" * 20])
            return json_reply(chat.completion(chat.message(words), used=chat.usage(prompt=1, completion=1)))
        if mood == "provider-lie":
            return json_reply(chat.completion(chat.message(self._lie(request))))
        return good

    def _word_past(self, request: Asked) -> Reply | None:
        """The answer for events of a past: of each three one is kept; where it is replayed one is lost, one new, one reworded."""
        if b"past-" not in request.body:
            return None
        told = msgspec.json.decode(request.body, type=_Request).messages[-1].content
        observations: list[dict[str, object]] = []
        skipped: list[dict[str, object]] = []
        for tag, *name in _PAST_EVENT.findall(told):
            seed, session, place = map(int, name)
            with self._lock:
                is_replayed = seed in self._reworded
            if place % 3 == 2 or place % 6 == (1 if is_replayed else 4):
                skipped.append({"event": tag, "reason": "routine"})
                continue
            words = f"{_WORDS[(session * 5 + place) % 16]} {_WORDS[(session + place * 3) % 16]}"
            title = f"{mark_of(seed)} {words}" if is_replayed else f"The {words} was stowed"
            observations.append({"events": [tag], "type": "change", "title": title, "narrative": f"{title}.", "facts": [title]})
        if not observations and not skipped:
            return None
        return json_reply(chat.completion(chat.message(json.dumps({"observations": observations, "skipped": skipped}))))

    def _lie(self, request: Asked) -> str:
        """Names events that nobody sent, and the same event several times."""
        tags = event_tags(msgspec.json.decode(request.body, type=_Request).messages[-1].content)
        if not tags:
            return json.dumps({"summary": {"request": 7}})
        named = [self._random.choice([*tags, "e999", "e0", ""]) for _ in range(4)]
        return json.dumps(
            {
                "observations": [
                    {
                        "events": [name, self._random.choice(tags)],
                        "type": "change",
                        "title": "What never happened",
                        "narrative": "It did not.",
                        "facts": [],
                        "concepts": [],
                        "files_read": [],
                        "files_modified": ["/etc/shadow"],
                        "closes": [999_999],
                    }
                    for name in named
                ],
                "skipped": [{"event": name, "reason": "lied about"} for name in named],
            }
        )
