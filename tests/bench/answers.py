"""`bin/bench answers`: whether turns are found by what was answered in them, among half a year of observations of their project."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
import httpx
import msgspec

from cmserver.base import logs
from cmserver.base.ids import epoch_ms
from tests.bench.recall.corpora import history
from tests.bench.recall.corpus import HALVES, Half
from tests.bench.recall.serve import Host, analyse, ingest, mark_summaries, wait_until_embedded
from tests.bench.world import world

AIM = 0.8
"""Of the turns that answer, so many are to be among the first ten."""
_HERE = Path(__file__).parent / "recall" / "answers"
_TURN_MINUTES = 6
_ATTEMPTS = 20
"""On a busy machine a search may time out."""
_ASKED: dict[str, dict[str, object]] = {
    "turns alone": {"kinds": ["turn"]},
    "everything": {},
    "turns by words": {"kinds": ["turn"], "meaningWeight": 0},
}


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked, and what was answered."""

    key: str
    prompt: str
    reply: str


class AnsweringSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session's turns in their order."""

    session: str
    started: datetime
    agent: str
    turns: list[Turn]


class AnswerQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and the key of the one turn that answers it."""

    id: str
    half: Half
    query: str
    expects: str


class _Sessions(msgspec.Struct, frozen=True):
    sessions: list[AnsweringSession]


class _Questions(msgspec.Struct, frozen=True):
    questions: list[AnswerQuestion]


class _Started(msgspec.Struct, frozen=True):
    class Made(msgspec.Struct, frozen=True):
        id: str

    session: Made


class _Hit(msgspec.Struct, frozen=True):
    reply: str | None


class _Found(msgspec.Struct, frozen=True):
    prompts: list[_Hit]


def load() -> tuple[list[AnsweringSession], list[AnswerQuestion]]:
    """The sessions and the questions about them."""
    sessions = msgspec.json.decode((_HERE / "sessions.json").read_bytes(), type=_Sessions).sessions
    return sessions, msgspec.json.decode((_HERE / "questions.json").read_bytes(), type=_Questions).questions


def ingest_turns(client: httpx.Client, sessions: Sequence[AnsweringSession]) -> None:
    """Send each turn's prompt and reply, as hooks do."""
    for session in sessions:
        start = {"projectId": history.PROJECT, "externalSessionId": session.session, "platformSource": session.agent}
        started = client.post("/v1/sessions/start", json=start).raise_for_status()
        session_id = msgspec.json.decode(started.content, type=_Started).session.id
        for place, turn in enumerate(session.turns):
            at = session.started + timedelta(minutes=_TURN_MINUTES * place)
            sides = (("user_prompt", {"prompt": turn.prompt}, 0), ("assistant_message", {"last_assistant_message": turn.reply}, 5))
            for event_type, payload, minutes in sides:
                event = {
                    "projectId": history.PROJECT,
                    "serverSessionId": session_id,
                    "eventType": event_type,
                    "sourceEventId": f"{turn.key}-{event_type}",
                    "occurredAtEpoch": epoch_ms(at + timedelta(minutes=minutes)),
                    "payload": payload,
                }
                client.post("/v1/events?generate=false", json=event).raise_for_status()


def find_rank(client: httpx.Client, query: str, reply: str, fields: dict[str, object]) -> int | None:
    """The place of the turn among the first ten hits, from 1; where observations are found as well, among the turns of them."""
    body = {"projectId": history.PROJECT, "query": query, "limit": 10, **fields}
    answer = client.post("/v1/search", json=body)
    for _ in range(_ATTEMPTS - 1):
        if answer.status_code != 503:
            break
        answer = client.post("/v1/search", json=body)
    found = msgspec.json.decode(answer.raise_for_status().content, type=_Found)
    return next((place for place, hit in enumerate(found.prompts, 1) if hit.reply == reply), None)


def measure(client: httpx.Client) -> dict[tuple[str, Half], list[int | None]]:
    """The rank of each question's turn, by how it is asked and by half."""
    sessions, questions = load()
    replies = {turn.key: turn.reply for session in sessions for turn in session.turns}
    ranks: dict[tuple[str, Half], list[int | None]] = {(name, half): [] for name in _ASKED for half in HALVES}
    for name, fields in _ASKED.items():
        for question in questions:
            rank = find_rank(client, question.query, replies[question.expects], fields)
            ranks[name, question.half].append(rank)
            if rank is None and question.half == "development":
                click.echo(f"  {name}: not found: {question.id} {question.query}", err=True)
    return ranks


def recall_at(ranks: Sequence[int | None], count: int) -> float:
    """The share of the turns that are among the first `count`."""
    return sum(rank is not None and rank <= count for rank in ranks) / len(ranks)


@click.command()
def main() -> None:
    """Measure how often the turn that answers a question is among the first ten hits. Exits 1 below the aim."""
    logs.configure("console", "error")
    with world() as here:
        host = Host(here)
        with host.serve({}, {}) as served, served.client() as client:
            corpus = history.load()
            ingest(client, corpus)
            ingest_turns(client, load()[0])
            if served.database is None:
                raise RuntimeError("The server has no database to look at.")
            mark_summaries(served.database, [corpus])
            wait_until_embedded(served.database)
            analyse(served.database)
            ranks = measure(client)
    click.echo(f"{'asked of':16}{'half':14}{'R@1':>7}{'R@5':>7}{'R@10':>7}")
    for (name, half), found in ranks.items():
        figures = "".join(f"{recall_at(found, count):7.2f}" for count in (1, 5, 10))
        click.echo(f"{name:16}{half:14}{figures}")
    if any(recall_at(ranks["turns alone", half], 10) < AIM for half in HALVES):
        sys.exit(1)
