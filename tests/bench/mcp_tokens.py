"""What answers of the MCP tools cost the model that reads them: as the text that they are, and as the JSON that they could be.

A client that is given structured content beside the text shows its model only the former, as compact JSON (Claude Code 2.1 does).
`python -m tests.bench.mcp_tokens` prints the table.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import mean
from typing import cast

import httpx
import msgspec

from cmserver.base import logs
from cmserver.observations.model import estimate_tokens
from tests.bench.measure import Aim, Figure, line
from tests.bench.recall.corpora import history
from tests.bench.recall.corpus import Question
from tests.bench.recall.serve import ingest
from tests.bench.scale import FULL, Scale
from tests.bench.world import World, role, world

HOW = (
    "Each question of the half `development` of the corpus in tests/bench/recall/history is asked of `observation_search` with a "
    "limit of 20, and what it finds is read with one `observation_get`. A token is four characters, which is kind to JSON: of its "
    "marks models make more. Yardsticks are the same answers as structured content: compact JSON with exactly what the lines say, "
    "and what REST answers. The last figure is what reading them came to, beside what their lines had promised, which leaves out "
    "the line itself and the names of files."
)
_HITS = 20
_LESS = Aim(of="ratio", at_least=False, bound=1)


class _Hit(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int
    score: float


class _Index(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    observations: list[_Hit]
    next_cursor: str | None
    total: int


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one question, in tokens."""

    lines: int
    lines_as_json: int
    index_of_rest: int
    texts: int
    texts_of_rest: int
    promised: int


def run(world: World, scale: Scale) -> list[Figure]:
    """In each round other questions are asked."""
    corpus = history.load()
    questions = corpus.of_half("development")
    place = world.place()
    with (
        role(world, place, "all", embedder="none") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {place.key}"}, timeout=60) as client,
    ):
        ingest(client, corpus)
        rounds = [[_cost(client, one) for one in questions[n :: scale.rounds][: scale.asked]] for n in range(scale.rounds)]
    return [
        _figure("20 lines of observation_search", "the same as JSON", rounds, "lines", "lines_as_json"),
        _figure("20 lines of observation_search, beside REST", "its JSON of the index", rounds, "lines", "index_of_rest"),
        _figure("20 texts of observation_get, beside REST", "its JSON of them", rounds, "texts", "texts_of_rest"),
        _figure("20 texts of observation_get", "what their lines promised", rounds, "texts", "promised", bound=1.25),
    ]


def _figure(name: str, yardstick: str, rounds: Sequence[Sequence[Cost]], text: str, other: str, *, bound: float = 1) -> Figure:
    return Figure(
        name=name,
        unit="tokens",
        yardstick=yardstick,
        pairs=[(_mean(costs, text), _mean(costs, other)) for costs in rounds],
        aim=msgspec.structs.replace(_LESS, bound=bound),
    )


def _mean(costs: Sequence[Cost], name: str) -> float:
    return mean(cast("int", getattr(cost, name)) for cost in costs)


def _cost(client: httpx.Client, question: Question) -> Cost:
    asked = {"query": question.text, "projectId": question.project, "limit": _HITS, "minScore": 0}
    answered = _posted(client, "/v1/search", {**asked, "format": "index"})
    index = msgspec.json.decode(answered, type=_Index)
    numbers = [hit.number for hit in index.observations]
    return Cost(
        lines=estimate_tokens(_tool(client, "observation_search", asked)),
        lines_as_json=estimate_tokens(_as_json(index)),
        index_of_rest=estimate_tokens(answered),
        texts=estimate_tokens(_tool(client, "observation_get", {"ids": numbers})),
        texts_of_rest=estimate_tokens(_posted(client, "/v1/observations/batch", {"ids": numbers})),
        promised=sum(hit.read_tokens for hit in index.observations),
    )


def _as_json(index: _Index) -> str:
    """What lines say, no more and no less, as a program would have it."""
    hits = [
        {
            "number": hit.number,
            "day": f"{datetime.fromtimestamp(hit.created_at_epoch / 1000, UTC):%Y-%m-%d}",
            "type": hit.type,
            "title": hit.title,
            "tokens": hit.read_tokens,
            "score": round(hit.score, 2),
        }
        for hit in index.observations
    ]
    said = {"hits": hits, "total": index.total, "tokens": sum(hit.read_tokens for hit in index.observations)}
    return msgspec.json.encode({**said, "nextCursor": index.next_cursor}).decode()


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class _Result(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    content: list[_Content]
    is_error: bool = False


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    result: _Result


def _tool(client: httpx.Client, name: str, arguments: Mapping[str, object]) -> str:
    """What the model is shown."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    result = msgspec.json.decode(_posted(client, "/mcp", body), type=_Message).result
    if result.is_error:
        raise RuntimeError(f"{name} was refused: {result.content[0].text}")
    return result.content[0].text


def _posted(client: httpx.Client, path: str, body: object) -> str:
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    answered = client.post(path, json=body, headers=headers)
    if answered.is_error:
        raise RuntimeError(f"POST {path} was answered with {answered.status_code}: {answered.text[:500]}")
    return answered.text


if __name__ == "__main__":
    logs.configure("console", "error")
    with world() as here:
        sys.stdout.writelines(f"{line(figure)}\n" for figure in run(here, FULL))
