"""How long the server answers nobody while one caller sends what is slow to take in."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress

import msgspec

from tests.bench.measure import Aim, Figure
from tests.bench.scale import Scale
from tests.bench.world import Place, World, role

HOW = (
    "`cmserver run` with default settings and rules. One key sends an input of a fixed list while another connection asks for "
    "`/healthz` every 5 ms; the figure is the longest answer of all rounds, from the first request to a moment after the last "
    "answer. The yardstick is the longest without any input. Sender, server and PostgreSQL share the machine."
)
_FIELD_CHARS = 15_900
_AIM = Aim(of="median", at_least=False, bound=250)
_PAUSE_SECONDS = 0.005
_ANSWER_SECONDS = 120.0
_SLOW_UNITS = {
    "manifests": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\ndata:\n  a: data:\n",
    "separators": "kind: secret\n---\n",
    "commands": "curl -u a: mysql -p",
    "hyphens": "-----",
    "tags": "<private ",
    "keys": "-----BEGIN PRIVATE KEY-----\n" + "aB1/" * 16 + "\n",
    "hidden": "pass\u200bword=\x1b[0m",
}


class _Post(msgspec.Struct, frozen=True):
    """A request of the input."""

    path: str
    body: bytes


def _event(place: Place, payload: object) -> dict[str, object]:
    return {"projectId": str(place.project_id), "eventType": "tool_use", "sourceType": "api", "payload": payload}


def _repeat(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def _one_text(unit: str) -> Callable[[Place, int], list[_Post]]:
    return lambda place, size: [_Post("/v1/events", _encode(_event(place, {"text": _repeat(unit, _fit(unit, size))})))]


def _many_fields(unit: str) -> Callable[[Place, int], list[_Post]]:
    def requests(place: Place, size: int) -> list[_Post]:
        text = _repeat(unit, _FIELD_CHARS)
        fields = {f"field_{number}": text for number in range(max(1, size // len(_encode(text))))}
        return [_Post("/v1/events", _encode(_event(place, fields)))]

    return requests


def _batch(unit: str) -> Callable[[Place, int], list[_Post]]:
    def requests(place: Place, size: int) -> list[_Post]:
        text = _repeat(unit, _FIELD_CHARS)
        count = min(500, size // (len(_encode(text)) + 300) + 1)
        return [_Post("/v1/events/batch", _encode([_event(place, {"number": number, "text": text}) for number in range(count)]))]

    return requests


def _names(place: Place, size: int) -> list[_Post]:
    names = {f"password=abcd{number}1234": 1 for number in range(size // 30)}
    return [_Post("/v1/events", _encode(_event(place, names)))]


def _small_values(place: Place, size: int) -> list[_Post]:
    return [_Post("/v1/events", _encode(_event(place, [[1, "a"]] * (size // 11))))]


def _medium_events(place: Place, size: int) -> list[_Post]:
    """Each small enough to be cleaned without a thread."""
    body = _encode(_event(place, {"text": _repeat(_SLOW_UNITS["commands"], 15_000)}))
    return [_Post("/v1/events", body)] * 60


def _hooks(place: Place, size: int) -> list[_Post]:
    payload = {
        "session_id": "stall",
        "hook_event_name": "PostToolUse",
        "cwd": "/srv/stall",
        "tool_name": "Bash",
        "tool_input": {"command": _repeat("curl -u a: && ", size // 4)},
        "tool_response": {"stdout": _repeat(_SLOW_UNITS["manifests"], size // 2)},
    }
    return [_Post("/v1/hooks/claude-code", _encode(payload))]


def _prompts(place: Place, size: int) -> list[_Post]:
    payload = {
        "session_id": "stall",
        "hook_event_name": "UserPromptSubmit",
        "cwd": "/srv/stall",
        "prompt": _repeat("always use a. ", size),
    }
    return [_Post("/v1/hooks/claude-code", _encode(payload))]


def _observations(place: Place, size: int) -> list[_Post]:
    text = _repeat("password = 'a b ", min(size, 9_000))
    batch = [{"projectId": str(place.project_id), "title": "slow", "narrative": text} for _ in range(50)]
    return [_Post("/v1/observations/batch", _encode(batch))]


def _searches(place: Place, size: int) -> list[_Post]:
    query = "orders " + " ".join(f"-excluded{number}" for number in range(64))
    return [_Post("/v1/search", _encode({"query": query, "limit": 100}))] * 48


def _long_searches(place: Place, size: int) -> list[_Post]:
    queries = [_repeat(unit, 1_980) for unit in ('"a b" ', "-aaa ", "ordérs 日本語 ", "/a/b.c:1 ")]
    return [_Post("/v1/search", _encode({"query": query})) for query in queries] * 8


INPUTS: dict[str, Callable[[Place, int], list[_Post]]] = {
    **{f"one text of {name}": _one_text(unit) for name, unit in _SLOW_UNITS.items()},
    **{f"many fields of {name}": _many_fields(unit) for name, unit in _SLOW_UNITS.items()},
    **{f"a batch of {name}": _batch(unit) for name, unit in _SLOW_UNITS.items()},
    "names that become equal": _names,
    "a million small values": _small_values,
    "60 events of 15 kB": _medium_events,
    "a hook's payload": _hooks,
    "a prompt": _prompts,
    "a batch of observations": _observations,
    "48 searches with 64 excluded words": _searches,
    "32 long searches": _long_searches,
}
"""What slowed the server down at some time, or might. Up to 8 MB, the limit of a body."""


def run(world: World, scale: Scale) -> list[Figure]:
    """The worst of all rounds for each input, and for 50 open streams and for bodies that do not come."""
    figures: list[Figure] = []
    place = world.place()
    with ExitStack() as stack:
        port = stack.enter_context(role(world, place, "all", provider="offline"))
        quiet = max(longest_answer(port, lambda: time.sleep(scale.seconds), scale.seconds) for _ in range(scale.rounds))
        for name, make_requests in INPUTS.items():
            requests = make_requests(place, scale.body_bytes)
            worst = max(
                longest_answer(port, lambda requests=requests: _send_all(port, place.key, requests), scale.seconds)
                for _ in range(scale.rounds)
            )
            figures.append(_figure(name, worst, quiet))
        for name, occupy in {"50 streams of one key": _stream, "1,010 bodies that do not come": _announce}.items():
            worst = max(longest_answer(port, lambda occupy=occupy: occupy(port, place), scale.seconds) for _ in range(scale.rounds))
            figures.append(_figure(name, worst, quiet))
    return figures


def _figure(name: str, worst: float, quiet: float) -> Figure:
    return Figure(
        name=f"longest answer of `/healthz` beside {name}",
        unit="ms",
        yardstick="without any input",
        pairs=[(worst, quiet)],
        aim=_AIM,
    )


def longest_answer(port: int, act: Callable[[], object], after_seconds: float) -> float:
    """The longest answer of /healthz in milliseconds while `act` runs, and shortly afterwards; or what it took to fail."""
    longest, ended = 0.0, threading.Event()

    def probe() -> None:
        nonlocal longest
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        while not ended.wait(_PAUSE_SECONDS):
            began = time.perf_counter()
            try:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
            longest = max(longest, (time.perf_counter() - began) * 1000)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        act()
        time.sleep(after_seconds)
    finally:
        ended.set()
        thread.join()
    return longest


def _send_all(port: int, key: str, requests: Sequence[_Post]) -> None:
    """Send all at once, and wait for the answers; refusals are answers, too."""
    with ThreadPoolExecutor(len(requests)) as senders:
        wait([senders.submit(_send, port, key, request) for request in requests])


def _send(port: int, key: str, request: _Post) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", request.path, request.body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def _stream(port: int, place: Place) -> None:
    """Many streams of one key, and events for them."""
    head = f"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {place.key}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(_connect(port, head))
        batch = [_event(place, {"number": number}) for number in range(500)]
        _send_all(port, place.key, [_Post("/v1/events/batch", _encode(batch))] * 4)


def _announce(port: int, place: Place) -> None:
    """More bodies than there are connections are announced, and none comes."""
    head = f"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {place.key}\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(1010):
            with suppress(OSError):
                stack.enter_context(_connect(port, head))
        time.sleep(1)


def _connect(port: int, head: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
    connection.sendall(head.encode())
    return connection


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _fit(unit: str, size: int) -> int:
    """How many characters of repeated units take so many bytes as JSON."""
    return size * len(unit) // (len(_encode(unit)) - 2)
