"""Writes the sentences of turns that have ended, with their vectors where there is a model; without one, words alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from cmserver.base.db import Db
from cmserver.base.sql import Conn
from cmserver.base.tolerant_json import field, nested_texts, record
from cmserver.models.providers.embedding.model import Embedder
from cmserver.models.providers.model import FailureKind, ProviderError
from cmserver.sessions.turns.choose_sentences import MAX_SENTENCES, agent_sentences, drop_borrowed, find_borrowed, user_sentences
from cmserver.sessions.turns.sentences import repository
from cmserver.sessions.turns.sentences.model import ChosenSentences, DueTurn, TurnSentences
from cmserver.sessions.turns.sentences.pointers import MOST_BEHIND, point
from cmserver.sessions.turns.sentences.vectors import pack
from cmserver.tooluse.model import ToolKind
from cmserver.tooluse.read import read_tool_use

_AT_A_TIME = 10
_LEASE_SECONDS = 60.0
_SOURCES = {
    ToolKind.READ, ToolKind.SEARCH, ToolKind.SHELL, ToolKind.PROCESS, ToolKind.WEB, ToolKind.LOOKUP, ToolKind.MCP, ToolKind.OTHER
}  # fmt: skip
"""Edits repeat what the agent wrote, questions what the user answers, and sub-agents speak for themselves."""
_ABOUT_THE_TEXT = {FailureKind.REFUSED, FailureKind.CONTEXT_TOO_LONG}


async def write_due_sentences(db: Db, embedder: Embedder | None, model_id: int) -> bool:
    """Write the sentences of some turns that wait for it; returns whether more may wait.

    `embedder` makes vectors of the model; without one words have to do. Where it does not answer, they are written all the same,
    ProviderError is raised, and they get their vectors from the next call with it.
    """
    model_id = model_id if embedder else 0
    due = await db.in_system(lambda conn: repository.claim(conn, model_id, _AT_A_TIME, _LEASE_SECONDS))
    if not due:
        return False
    chosen = await asyncio.to_thread(lambda: [choose(turn) for turn in due])
    failure: ProviderError | None = None
    rows: list[TurnSentences] = []
    try:
        rows = await _embed(embedder, model_id, chosen) if embedder else [_row(turn) for turn in chosen]
    except ProviderError as error:
        failure, rows = error, [_row(turn) for turn in chosen]
    await db.in_system(lambda conn: _store(conn, rows))
    if failure is not None:
        raise failure
    return len(due) == _AT_A_TIME


async def _store(conn: Conn, rows: Sequence[TurnSentences]) -> None:
    """Store the sentences, and point from and to those that changed, a project after the other."""
    ids = await repository.store(conn, rows)
    for project_id in await repository.projects(conn, ids):
        turns = await repository.to_point(conn, project_id, ids, MOST_BEHIND)
        await repository.save_pointers(conn, await asyncio.to_thread(point, turns, set(ids)))


def choose(turn: DueTurn) -> ChosenSentences:
    """The sentences in which user and agent say most; of a turn whose line somebody wrote, that line."""
    reply = turn.reply or ""
    outputs = [text for output in turn.outputs for text in _read_output(output)]
    borrowed = find_borrowed(f"{reply}\n\n{turn.by_agents or ''}", outputs)
    if turn.own_line is not None:
        return ChosenSentences(turn=turn, user=[turn.own_line] if turn.own_line else [], agent=[], borrowed=borrowed)
    user = user_sentences(turn.prompt, turn.reply_before) if turn.prompt else []
    own = drop_borrowed(reply, turn.prompt, borrowed)
    return ChosenSentences(turn=turn, user=user, agent=agent_sentences(own, MAX_SENTENCES - len(user)), borrowed=borrowed)


def _read_output(output: str) -> Iterator[str]:
    """The texts of a tool's output, where they are nobody's words in the session."""
    fields = record(output)
    if read_tool_use(field(fields, "tool"), None).kind in _SOURCES:
        yield from nested_texts(fields.get("response"))


async def _embed(embedder: Embedder, model_id: int, chosen: Sequence[ChosenSentences]) -> list[TurnSentences]:
    """The rows with vectors; a turn that is refused by itself has none."""
    texts = [text for turn in chosen for text in turn.texts]
    step = max(embedder.max_texts, 1)
    vectors: list[list[float]] = []
    try:
        for start in range(0, len(texts), step):
            vectors += await embedder.embed(texts[start : start + step], "document")
    except ProviderError as error:
        if error.kind not in _ABOUT_THE_TEXT:
            raise
        if len(chosen) == 1:
            return [_row(chosen[0], model_id)]
        half = len(chosen) // 2
        return [*await _embed(embedder, model_id, chosen[:half]), *await _embed(embedder, model_id, chosen[half:])]
    rows: list[TurnSentences] = []
    for turn in chosen:
        own, vectors = vectors[: len(turn.texts)], vectors[len(turn.texts) :]
        rows.append(_row(turn, model_id, own))
    return rows


def _row(chosen: ChosenSentences, model_id: int = 0, vectors: Sequence[Sequence[float]] = ()) -> TurnSentences:
    return TurnSentences(
        turn_id=chosen.turn.turn_id,
        due_at=chosen.turn.due_at,
        texts=chosen.texts,
        of_user=len(chosen.user),
        borrowed=chosen.borrowed,
        model_id=model_id,
        vectors=pack(vectors).hex() if vectors else None,
    )
