"""Context on a prompt: up to three lines that clearly belong to it, or nothing.

There are two ways to belong. By words: how surprising would it be if an observation had those words of the prompt by chance? And by
meaning, where there are vectors: how likely is it that the prompt is about this project at all? See
docs/why/context-on-a-prompt.md, and tests/recall/history, where the thresholds come from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from math import comb, log
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.base.text import PROMPT_MOST, UNSEGMENTED
from cmserver.observations.embedding.model import QueryVector
from cmserver.recall import repository
from cmserver.recall.inline_context import render_inline_context
from cmserver.recall.model import Context, ContextRequest, PromptWordMatch
from cmserver.recall.search import lexical
from cmserver.recall.search import repository as search_repository
from cmserver.recall.search.model import Filters, Hit, Ranking, SearchRequest
from cmserver.recall.search.search import find_page

THRESHOLD = 0.5
"""What clears it would be found by chance in less than one project of e ** 0.5 = 1.6 of this size."""
NEAR = 3.0
"""A line that is e ** 3 = 20 times as likely by chance as the best one is not shown beside it."""
MAX_LINES = 3
MAX_WORDS = 32
"""The rest of a longer prompt is ignored."""
MIN_CONFIDENCE = 0.6
"""The nearest that a search finds is shown from this confidence on that the prompt is about the project."""
MIN_CONFIDENCE_OF_WORDS = 0.5
"""Surprising words are shown from this one on: before, they are a coincidence. What a user laid down is always shown."""
_SEARCHED = 8
_FEW, _MAX_DOCUMENTS = 4, 500
"""What so few have always counts, and what more have never does."""
_CANDIDATES = 50

_PLACE_WEIGHTS = {"A": 1.15, "B": 1.0, "C": 0.9, "D": 0.8}
"""The weight of a word by where it stands: title; subtitle and facts; narrative; concepts and files."""
_PAIR_WEIGHT = 0.5
_MIN_PAIRS = 3
"""The index has a text without spaces as its pairs of characters. A word of two characters is one, four in a row are three."""
_NAME_WEIGHT = 2.0
"""The weight of the name of a file or of something in the code: nobody types it by chance."""

# Lexemes of what people ask an agent to do, and of how they speak with it: common in prompts, and about no subject.
_REQUEST_TEXT = """
    add again answer ask better build can chang check commit continu could creat current delet do done everyth explain faster file
    find first fix format get give go good great happen hello help hi idea instead just keep let like line look make mani mayb mean
    morn move need new next nice noth ok okay pleas possibl problem pull push put question read realli refactor remov renam replac
    request revert review run say see set show simpl someth sorri start still stop sure summar tell test thank thing think time
    today tri undo updat us use want way well whi work write wrong yes yet
"""
_REQUEST_WORDS = frozenset(_REQUEST_TEXT.split())

_OPERATORS = re.compile(r'"|(?<![^\s"-])-')
_PATH = re.compile(r"(?=.{5})(?=.*[a-z])\S*[a-z0-9_-][./][a-z0-9_]\S*")
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]")
_PAIR = re.compile(f"[{UNSEGMENTED}]{{2}}")
_PAIRS = re.compile(f"[{UNSEGMENTED}]{{{_MIN_PAIRS + 1},}}")
_COMMAND = re.compile(r"\s*/[\w:-]+(?:\s|$)")
_PROTOCOL = re.compile(r"\s*<[a-z][a-z_]*-[a-z_-]+[\s>]")
"""What an agent's program says in the user's place: elements with a hyphen in their names, as <task-notification>."""


class PromptMatch(msgspec.Struct, frozen=True, kw_only=True):
    """How surprising it is that an observation has `words` of the prompt's words, as a natural logarithm."""

    id: UUID
    surprise: float
    words: int
    is_instruction: bool = False


async def build_prompt_context(
    conn: Conn,
    principal: Principal,
    project: Project,
    request: ContextRequest,
    prompt: str,
    vector: QueryVector | None = None,
) -> Context | None:
    """The lines to add to the prompt; None when nothing clearly belongs to it, or the session was shown all of it.

    Without the prompt's `vector`, only words count.
    """
    prompt = prompt[:PROMPT_MOST].replace("\x00", " ")
    if not _is_meaningful(prompt):
        return None
    lexemes = await search_repository.lexemes(conn, principal.team_id, [project.id], prompt, MAX_WORDS)
    lexemes = [lexeme for lexeme in lexemes if lexeme not in _REQUEST_WORDS]
    names = find_names(lexemes, prompt)
    if len(lexemes) < 2 and not names:
        return None
    words = await _find_words(conn, principal.team_id, project.id, request.session_id, lexemes)
    matches = select_matches(score_matches(words, len(lexemes), names))
    scores: dict[UUID, dict[str, object]] = {
        match.id: {"surprise": round(match.surprise, 2), "words": match.words} for match in matches
    }
    criteria: dict[str, object] = {"threshold": THRESHOLD, "promptWords": len(lexemes)}
    if vector is not None:
        hits, confidence = await _search(conn, principal, project, prompt, vector)
        criteria |= {"confidence": None if confidence is None else round(confidence, 2), "minConfidence": MIN_CONFIDENCE}
        if confidence is not None and confidence < MIN_CONFIDENCE_OF_WORDS:
            scores = {match.id: scores[match.id] for match in matches if match.is_instruction}
        if confidence is not None and confidence >= MIN_CONFIDENCE:
            # Only the nearest, whether the session was shown it or not: what comes after it belongs less and less.
            nearest = next((hit for hit in hits if not _is_of_session(hit, request.session_id)), None)
            if nearest and len(scores) < MAX_LINES:
                scores.setdefault(nearest.id, {"score": round(nearest.score, 2)})
    return await render_inline_context(
        conn,
        principal,
        project,
        request,
        "Of this project's memory, this may belong to the prompt:",
        max_lines=MAX_LINES,
        scores=scores,
        criteria=criteria,
    )


def _is_of_session(hit: Hit, session_id: UUID | None) -> bool:
    return session_id is not None and hit.observation is not None and hit.observation.server_session_id == session_id


async def _find_words(
    conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID | None, lexemes: Sequence[str]
) -> list[PromptWordMatch]:
    """Which observations have the rarest of the lexemes; none where a statement takes longer than half a second: somebody waits.

    What more than a third of the newest have is not looked up at all. What more than a fifth of the documents have, or more than
    `_MAX_DOCUMENTS`, is not counted; what at most `_FEW` have always is.
    """
    try:
        async with repository.half_a_second(conn):
            statistics = await lexical.read_statistics(conn, team_id, [project_id], lexemes)
            documents = 0 if statistics.are_turns else statistics.documents
            common = max(documents / 3, _FEW + 0.5)  # of few documents, it is half a document more than have it
            rare = [lexeme for lexeme, count in zip(lexemes, statistics.found_in, strict=True) if count <= common]
            if not documents or not rare:
                return []
            most = min(max(documents // 5, _FEW), _MAX_DOCUMENTS)
            return await repository.word_matches(
                conn, project_id, session_id, rare, documents=documents, most=most, limit=_CANDIDATES
            )
    except errors.QueryCanceled:
        return []


async def _search(
    conn: Conn, principal: Principal, project: Project, prompt: str, vector: QueryVector
) -> tuple[Sequence[Hit], float | None]:
    """The project's observations that come nearest, and how likely the prompt is about the project.

    Nothing in a prompt is a search operator. What takes longer than half a second a statement finds nothing: somebody waits.
    """
    request = SearchRequest(
        query=remove_operators(prompt),
        project_ids=[project.id],
        filters=Filters(kinds=["observation", "manual"]),
        limit=_SEARCHED,
    )
    try:
        async with repository.half_a_second(conn):
            page = await find_page(conn, principal, request, Ranking(), vector)
    except errors.QueryCanceled:
        return [], None
    return page.hits, page.confidence


def remove_operators(prompt: str) -> str:
    """The prompt without quotes, and without hyphens before words."""
    return _OPERATORS.sub(" ", prompt)


def score_matches(shared: Iterable[PromptWordMatch], prompt_words: int, names: Collection[str]) -> list[PromptMatch]:
    """The observations by how well they fit a prompt of so many words, the best first. One shared word counts only if it is a name.

    An observation has a word with the probability found_in / documents. It is one of `documents` that could have had the words, and
    they are one of comb(prompt_words, words) selections: a long prompt finds something everywhere. What the user laid down for
    good fits with a single word: to be reminded of it in vain costs a line, and not to be reminded costs the work.
    """
    matches: list[PromptMatch] = []
    for id_, group in groupby(sorted(shared, key=lambda word: word.id), key=lambda word: word.id):
        words = list(group)
        if words[0].is_instruction:
            rarity = sum(log(word.documents / word.found_in) for word in words if word.weight != "D")
            matches.append(
                PromptMatch(id=id_, surprise=rarity + THRESHOLD if rarity else 0.0, words=len(words), is_instruction=True)
            )
            continue
        pair_count = sum(_is_pair(word.lexeme) for word in words)
        if len(words) < (_MIN_PAIRS if pair_count == len(words) else 2) and words[0].lexeme not in names:
            continue
        weights = (
            _NAME_WEIGHT if word.lexeme in names else _PLACE_WEIGHTS[word.weight] * (_PAIR_WEIGHT if _is_pair(word.lexeme) else 1)
            for word in words
        )
        rarity = sum(log(word.documents / word.found_in) * weight for word, weight in zip(words, weights, strict=True))
        chances = log(words[0].documents) + log(comb(prompt_words, len(words)))
        matches.append(PromptMatch(id=id_, surprise=rarity - chances, words=len(words)))
    return sorted(matches, key=lambda match: (match.surprise, match.id), reverse=True)


def select_matches(matches: list[PromptMatch]) -> list[PromptMatch]:
    """Those, of the best first, that reach the threshold and are not far behind the best; instructions stand by themselves."""
    best = max((match.surprise for match in matches if not match.is_instruction), default=THRESHOLD)
    return [match for match in matches if match.surprise >= (THRESHOLD if match.is_instruction else max(THRESHOLD, best - NEAR))]


def find_names(lexemes: Iterable[str], prompt: str) -> set[str]:
    """The lexemes that are names: paths, files, dotted names, and what has a capital within (StockBadge, stemmed)."""
    stems = tuple(word.lower()[: max(len(word) - 3, 3)] for word in _PLAIN.findall(prompt) if _INNER_CAPITAL.search(word))
    return {lexeme for lexeme in lexemes if _PATH.fullmatch(lexeme) or lexeme.startswith(stems)}


def _is_pair(lexeme: str) -> bool:
    return _PAIR.fullmatch(lexeme) is not None


def _is_meaningful(prompt: str) -> bool:
    """Whether the prompt is the user's own words, and more than a single plain one."""
    if _COMMAND.match(prompt) or _PROTOCOL.match(prompt):
        return False
    words = prompt.split(maxsplit=1)
    return (
        len(words) > 1
        or _PAIRS.search(prompt) is not None
        or (len(words) == 1 and bool(_PATH.fullmatch(words[0].lower()) or _INNER_CAPITAL.search(words[0])))
    )
