"""Asks an arm every question, one after the other."""

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
from cmserver.models.providers.embedding import registry
from cmserver.models.providers.embedding.model import Embedder, EmbedderSettings
from tests.bench.recall.arms import PLAIN, Arm
from tests.bench.recall.corpus import Question
from tests.bench.recall.scores import Answer, Answers
from tests.bench.recall.serve import Served, Stored
from tests.bench.world import environment

LIMIT = 20
"""So many hits are asked for."""
_WARM_QUESTIONS = 5
_TRIES = 20


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """`number` is 0 for a prompt, which has none."""

    score: float
    number: int = 0


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a search, as far as it says what was found. `confidence` is None where the server does not know it."""

    observations: list[Hit]
    prompts: list[Hit] = []
    confidence: float | None = None
    by_meaning: bool = msgspec.field(default=False, name="byMeaning")

    @property
    def numbers(self) -> list[int]:
        """Of the hits, the best first."""
        hits = sorted([*self.observations, *self.prompts], key=lambda hit: -hit.score)
        return [hit.number for hit in hits][:LIMIT]


class QueryEmbedder:
    """Turns queries into vectors as the server does, by the same settings."""

    def __init__(self, runner: asyncio.Runner, embedder: Embedder) -> None:
        self._runner = runner
        self._embedder = embedder

    def embed(self, text: str) -> str:
        """As pgvector reads it."""
        (vector,) = self._runner.run(self._embedder.embed([text], "query"))
        return str(vector)

    @property
    def name(self) -> str:
        return f"{self._embedder.provider}, {self._embedder.model}, {self._embedder.dimensions} dimensions"


@contextmanager
def query_embedder(settings: Mapping[str, object]) -> Generator[QueryEmbedder | None]:
    """None where the settings, those of the server, say that nothing is embedded."""
    chosen = embedder_settings(settings)
    if chosen is None:
        yield None
        return
    with asyncio.Runner() as runner:
        embedder = registry.make(chosen)
        yield QueryEmbedder(runner, embedder)
        runner.run(embedder.close())


def embedder_settings(settings: Mapping[str, object]) -> EmbedderSettings | None:
    """What embeds on a server with these settings, if anything does."""
    return registry.embedder_settings(load(environment({"data_dir": Path.cwd(), **settings})).settings)


def ask_arm(
    served: Served, stored: Stored, arm: Arm, questions: Sequence[Question], embedder: QueryEmbedder | None
) -> Answers | None:
    """The answers by the id of the question; None for a ranking by SQL where the database is not known."""
    if arm.request is not None:
        with served.client() as client:
            return _ask_over_http(client, stored, arm.request, questions)
    if served.database is None:
        return None
    with psycopg.connect(served.database, autocommit=True) as conn:
        conn.execute(PLAIN)
        return _ask_by_sql(conn, stored, arm, questions, embedder)


def ask_confidences(served: Served, questions: Sequence[Question]) -> list[float | None]:
    """The confidence in each answer, whatever was found."""
    with served.client() as client:
        return [found.confidence for found, _ in _search_each(client, questions, {})]


def _ask_over_http(client: httpx.Client, stored: Stored, request: Mapping[str, object], questions: Sequence[Question]) -> Answers:
    answers: Answers = {}
    for question, (found, milliseconds) in zip(questions, _search_each(client, questions, request), strict=True):
        ranked = [stored.by_number.get(number, "") for number in found.numbers]
        answers[question.id] = Answer(ranked=ranked, milliseconds=milliseconds, confidence=found.confidence)
    return answers


def _search_each(
    client: httpx.Client, questions: Sequence[Question], request: Mapping[str, object]
) -> Generator[tuple[SearchAnswer, float]]:
    """Each answer, and the milliseconds it took.

    A server whose embedder is late answers by words alone. Where the first answers were by meaning too, such a question is asked
    again: RuntimeError when the embedder stays late.
    """
    first = [_search(client, question, request)[0] for question in questions[:_WARM_QUESTIONS]]
    by_meaning = any(found.by_meaning for found in first)
    for question in questions:
        for _ in range(_TRIES):
            found, milliseconds = _search(client, question, request)
            if found.by_meaning or not by_meaning:
                yield found, milliseconds
                break
            time.sleep(1)
        else:
            raise RuntimeError(f"The server's embedder is late: {question.text!r} was answered by words alone {_TRIES} times")


def _search(client: httpx.Client, question: Question, request: Mapping[str, object]) -> tuple[SearchAnswer, float]:
    """What is found, and after how many milliseconds. RuntimeError when the server refuses the request."""
    body = msgspec.json.encode(
        {"query": question.text, "projectId": question.project, "limit": LIMIT, "format": "index", **request}
    )
    began = time.perf_counter()
    answer = client.post("/v1/search", content=body, headers={"Content-Type": "application/json"})
    milliseconds = (time.perf_counter() - began) * 1000
    if answer.is_error:
        raise RuntimeError(f"{body.decode()} was answered with {answer.status_code}: {answer.text[:500]}")
    return msgspec.json.decode(answer.content, type=SearchAnswer), milliseconds


def _ask_by_sql(
    conn: psycopg.Connection, stored: Stored, arm: Arm, questions: Sequence[Question], embedder: QueryEmbedder | None
) -> Answers:
    assert arm.sql is not None
    answers: Answers = {}
    for question in [*questions[:_WARM_QUESTIONS], *questions]:
        began = time.perf_counter()
        vector = embedder.embed(question.text) if arm.needs_vectors and embedder else None
        params = {
            "project_id": stored.projects[question.project],
            "query": question.text,
            "vector": vector,
            "limit": LIMIT,
        }
        rows = cast("list[tuple[UUID]]", conn.execute(arm.sql, params).fetchall())
        milliseconds = (time.perf_counter() - began) * 1000
        answers[question.id] = Answer(ranked=[stored.by_id.get(row[0], "") for row in rows], milliseconds=milliseconds)
    return answers
