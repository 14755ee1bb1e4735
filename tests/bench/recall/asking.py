"""Each arm is asked every question, one after the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import UUID

import httpx
import msgspec
import psycopg

from cmserver.base.configuration import load
from cmserver.observations.model import estimate_tokens
from cmserver.providers.embedding import registry
from cmserver.providers.embedding.model import Embedder, EmbedderSettings
from tests.bench.recall.arms import PLAIN, Arm
from tests.bench.recall.corpus import Question
from tests.bench.recall.scores import DEPTHS, Answer, Answers
from tests.bench.recall.serve import Served, Stored
from tests.bench.world import environment

_LIMIT = max(DEPTHS)
_WARM = 5


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """`number` is 0 for a prompt, which has none."""

    score: float
    number: int = 0
    alike: list[int] = []


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a search, as far as it says what was found."""

    observations: list[Hit]
    prompts: list[Hit] = []

    def numbers(self, *, with_alike: bool) -> list[int]:
        """The best first."""
        hits = sorted([*self.observations, *self.prompts], key=lambda hit: -hit.score)
        return [number for hit in hits for number in (hit.number, *(hit.alike if with_alike else ()))][:_LIMIT]


class Embeds:
    """Queries become vectors as the server makes them, by the same settings."""

    def __init__(self, runner: asyncio.Runner, embedder: Embedder) -> None:
        self._runner = runner
        self._embedder = embedder

    def __call__(self, text: str) -> str:
        """As pgvector reads it."""
        (vector,) = self._runner.run(self._embedder.embed([text], "query"))
        return str(vector)

    @property
    def name(self) -> str:
        return f"{self._embedder.provider}, {self._embedder.model}, {self._embedder.dimensions} dimensions"


@contextmanager
def embeds(settings: Mapping[str, object]) -> Generator[Embeds | None]:
    """None where the settings, those of the server, say that nothing is embedded."""
    given = embedder(settings)
    if given is None:
        yield None
        return
    with asyncio.Runner() as runner:
        made = registry.make(given)
        yield Embeds(runner, made)
        runner.run(made.close())


def embedder(settings: Mapping[str, object]) -> EmbedderSettings | None:
    """What embeds on a server with these settings, if anything does."""
    return registry.embedder_settings(load(environment({"data_dir": Path.cwd(), **settings})).settings)


def answers(
    served: Served, stored: Stored, arms: Mapping[str, Arm], questions: Sequence[Question], embed: Embeds | None
) -> dict[str, Answers]:
    """Of each arm, by its name."""
    found: dict[str, Answers] = {}
    with served.client() as client:
        for name, arm in arms.items():
            if arm.asks is not None:
                found[name] = _over_http(client, stored, arm, arm.asks, questions)
            elif served.database is not None:
                with psycopg.connect(served.database, autocommit=True) as conn:
                    conn.execute(PLAIN)
                    found[name] = _by_sql(conn, stored, arm, questions, embed)
    return found


def _over_http(
    client: httpx.Client, stored: Stored, arm: Arm, asks: Mapping[str, object], questions: Sequence[Question]
) -> Answers:
    for question in questions[:_WARM]:
        _post(client, _body(question, asks), "application/json")
    made: Answers = {}
    for question in questions:
        found, milliseconds = _asked(client, _body(question, asks))
        ranked = [stored.by_number.get(number, "") for number in found.numbers(with_alike=arm.with_alike)]
        tokens = _tokens(client, _body(question, asks)) if arm.counts_tokens else None
        made[question.id] = Answer(ranked=ranked, milliseconds=milliseconds, tokens=tokens)
    return made


def _asked(client: httpx.Client, body: bytes) -> tuple[Found, float]:
    """What is found, and after how many milliseconds."""
    began = time.perf_counter()
    raw = _post(client, body, "application/json").content
    milliseconds = (time.perf_counter() - began) * 1000
    return msgspec.json.decode(raw, type=Found), milliseconds


def _tokens(client: httpx.Client, body: bytes) -> int:
    """Of the same answer as an agent reads it."""
    return estimate_tokens(_post(client, body, "text/plain").text)


def _body(question: Question, asks: Mapping[str, object]) -> bytes:
    body = {"query": question.text, "projectId": question.project, "limit": _LIMIT, "format": "index", **asks}
    return msgspec.json.encode(body)


def _post(client: httpx.Client, body: bytes, accept: str) -> httpx.Response:
    answered = client.post("/v1/search", content=body, headers={"Content-Type": "application/json", "Accept": accept})
    if answered.is_error:
        raise RuntimeError(f"{body.decode()} was answered with {answered.status_code}: {answered.text[:500]}")
    return answered


def _by_sql(conn: psycopg.Connection, stored: Stored, arm: Arm, questions: Sequence[Question], embed: Embeds | None) -> Answers:
    assert arm.sql is not None
    made: Answers = {}
    for question in [*questions[:_WARM], *questions]:
        began = time.perf_counter()
        vector = embed(question.text) if arm.needs_meaning and embed else None
        given = {
            "project_id": stored.projects[question.project],
            "query": question.text,
            "vector": vector,
            "limit": _LIMIT,
        }
        rows = cast("list[tuple[UUID]]", conn.execute(arm.sql, given).fetchall())
        milliseconds = (time.perf_counter() - began) * 1000
        made[question.id] = Answer(ranked=[stored.by_id.get(row[0], "") for row in rows], milliseconds=milliseconds)
    return made
