"""Context on a prompt: up to three lines that clearly belong to it, or nothing.

How well an observation fits is how surprising it would be if it had those words of the prompt by chance. See
docs/why/context-on-a-prompt.md, and tests/recall/history, where the threshold comes from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import groupby
from math import comb, log
from uuid import UUID

import msgspec

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.recall import repository
from cmserver.recall.aside import tell
from cmserver.recall.model import Context, Occasion, Shared

THRESHOLD = 0.5
"""What clears it would be found by chance in less than one project of e ** 0.5 = 1.6 of this size."""
NEAR = 3.0
"""A line that is e ** 3 = 20 times as likely by chance as the best one is not told beside it."""
MOST_LINES = 3
MOST_CHARS = 10_000
MOST_WORDS = 32
"""What of a prompt is over either limit is left out of account."""
_MOST_FOUND = 500
_CANDIDATES = 50

_PLACE = {"A": 1.15, "B": 1.0, "C": 0.9, "D": 0.8}
"""How much a word says by where it stands: title; subtitle and facts; narrative; concepts and files."""
_NAMED = 2.0
"""How much the name of a file or of something in the code says: nobody types it by chance."""

# Lexemes of what people ask an agent to do, and of how they speak with it: about no subject, and common nowhere but in prompts.
_ASKED = """
    add again answer ask better build can chang check commit continu could creat current delet do done everyth explain faster file
    find first fix format get give go good great happen hello help hi idea instead just keep let like line look make mani mayb mean
    morn move need new next nice noth ok okay pleas possibl problem pull push put question read realli refactor remov renam replac
    request revert review run say see set show simpl someth sorri start still stop sure summar tell test thank thing think time
    today tri undo updat us use want way well whi work write wrong yes yet
"""
_ASKING = frozenset(_ASKED.split())

_PATH = re.compile(r"(?=.{5})(?=.*[a-z])\S*[a-z0-9_-][./][a-z0-9_]\S*")
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]")
_COMMAND = re.compile(r"\s*/[\w:-]+(?:\s|$)")
_PROTOCOL = re.compile(r"\s*<[a-z][a-z_]*-[a-z_-]+[\s>]")
"""What an agent's program says in the user's place: elements with a hyphen in their names, as <task-notification>."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How surprising it is that an observation has `words` of the prompt's words, as a natural logarithm."""

    id: UUID
    surprise: float
    words: int


async def prompt_context(conn: Conn, principal: Principal, project: Project, occasion: Occasion, prompt: str) -> Context | None:
    """None when nothing clearly belongs to the prompt, or the session was shown all of it."""
    prompt = prompt[:MOST_CHARS].replace("\x00", " ")
    if not _says_something(prompt):
        return None
    lexemes = [each for each in await repository.lexemes(conn, project.search_language, prompt, MOST_WORDS) if each not in _ASKING]
    names = names_among(lexemes, prompt)
    if len(lexemes) < 2 and not names:
        return None
    found = await repository.shared(conn, project.id, occasion.session_id, lexemes, most=_MOST_FOUND, limit=_CANDIDATES)
    fits = clear(judge(found, len(lexemes), names))
    return await tell(
        conn,
        principal,
        project,
        occasion,
        "Of this project's memory, this may belong to the prompt:",
        [fit.id for fit in fits],
        MOST_LINES,
        {fit.id: {"surprise": round(fit.surprise, 2), "words": fit.words} for fit in fits},
        {"threshold": THRESHOLD, "promptWords": len(lexemes)},
    )


def judge(found: Iterable[Shared], asked: int, names: Collection[str]) -> list[Fit]:
    """How well each observation fits a prompt of `asked` words, the best first. One word fits only if it is a name.

    An observation has a word with the probability found_in / documents. It is one of `documents` that could have had the words, and
    they are one of comb(asked, words) selections: a long prompt finds something everywhere.
    """
    fits: list[Fit] = []
    for id_, group in groupby(sorted(found, key=lambda one: one.id), key=lambda one: one.id):
        words = list(group)
        if len(words) < 2 and words[0].lexeme not in names:
            continue
        rarity = sum(log(one.documents / one.found_in) * (_NAMED if one.lexeme in names else _PLACE[one.weight]) for one in words)
        chances = log(words[0].documents) + log(comb(asked, len(words)))
        fits.append(Fit(id=id_, surprise=rarity - chances, words=len(words)))
    return sorted(fits, key=lambda fit: (fit.surprise, fit.id), reverse=True)


def clear(fits: list[Fit]) -> list[Fit]:
    """Those, of the best first, that clear the threshold and are not far behind the best."""
    return [fit for fit in fits if fit.surprise >= max(THRESHOLD, fits[0].surprise - NEAR)]


def names_among(lexemes: Iterable[str], prompt: str) -> set[str]:
    """The lexemes that are names: paths, files, dotted names, and what has a capital within (StockBadge, stemmed)."""
    capitals = tuple(_stem(each) for each in _PLAIN.findall(prompt) if _INNER_CAPITAL.search(each))
    return {each for each in lexemes if _PATH.fullmatch(each) or any(each.startswith(stem) for stem in capitals)}


def _stem(name: str) -> str:
    """As much of it as stemming leaves alone."""
    return name.lower()[: max(len(name) - 3, 3)]


def _says_something(prompt: str) -> bool:
    """False for what is not the user's own words, and for a single plain one."""
    if _COMMAND.match(prompt) or _PROTOCOL.match(prompt):
        return False
    words = prompt.split(maxsplit=1)
    return len(words) > 1 or (len(words) == 1 and bool(_PATH.fullmatch(words[0].lower()) or _INNER_CAPITAL.search(words[0])))
