"""Full-text search: any word of the query may match, and BM25 ranks.

Questions are whole sentences. Asking for all of their words finds nothing for most of them, so only what the user has marked is
binding: a "quoted phrase" must be there, a -word or -"phrase" must not.
"""

from __future__ import annotations

import re
from uuid import UUID

from cmserver.access.model import Principal, Project
from cmserver.base.sql import Conn
from cmserver.observations import repository as observations
from cmserver.observations.read import served
from cmserver.recall import repository
from cmserver.recall.model import Hit

MOST_CHARS = 10_000
MOST_WORDS = 64
"""What is over either limit is left out of account; a question has its words within them."""

_MARKED = re.compile(r'(?<!\S)(-?)"([^"]+)"|(?<!\S)-([^\s"-][^\s"]*)')


async def search(conn: Conn, principal: Principal, project: Project, query: str, limit: int, *, via: str = "search") -> list[Hit]:
    """The observations that fit the query, of the project or shared with its team, the best first and of equals the newest.

    A query of only stop words, or of only excluded ones, finds nothing.
    """
    hits = await find(conn, principal, project.id, query, limit)
    await served(conn, principal, project.id, via, [hit.observation for hit in hits])
    return hits


async def find(conn: Conn, principal: Principal, project_id: UUID | None, query: str, limit: int) -> list[Hit]:
    """As `search`, of the whole team without a project; leaves no trace, so what is shown of it has to be `served`."""
    words, must = marks(query)
    lexemes = await repository.lexemes(conn, words, MOST_WORDS)
    if not lexemes:
        return []
    ranked = await repository.rank(conn, project_id, lexemes, must, limit)
    found = {one.id: one for one in await observations.by_ids(conn, principal.team_id, [each.id for each in ranked])}
    return [Hit(observation=found[each.id], score=each.score) for each in ranked if each.id in found]


def marks(query: str) -> tuple[str, str]:
    """The words to look for, and what the user has marked as binding, in the syntax of websearch_to_tsquery."""
    query = query[:MOST_CHARS].replace("\x00", " ")
    binding = [f'{sign}"{phrase}"' if phrase else f'-"{word}"' for sign, phrase, word in _MARKED.findall(query)]
    words = _MARKED.sub(lambda mark: mark[2] if mark[2] and not mark[1] else " ", query)
    return words, " ".join(binding)
