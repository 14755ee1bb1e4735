"""What of a query is looked for, and what is binding: questions are whole sentences.

Asking for all of their words finds nothing for most of them. Any word may match, so only what the user has marked is binding: a
"quoted phrase" must be there, a -word or -"phrase" must not.
"""

from __future__ import annotations

import re

MOST_CHARS = 10_000
MOST_WORDS = 64
"""What is over either limit is left out of account; a question has its words within them."""
MOST_BINDING = 64
"""So many words bind, in the order of the query: each text in the scope is held against all of them."""

# Not -k, -rf and -1: those are said of commands, and mean themselves.
_MARKED = re.compile(r'(?<!\S)(-?)"([^"]+)"|(?<!\S)-([^\W\d_][^\s"]{2,})')
_WORD = re.compile(r"[^\W_]+")


def marks(query: str) -> tuple[str, str]:
    """The words to look for, and what the user has marked as binding, in the syntax of websearch_to_tsquery."""
    query = query[:MOST_CHARS].replace("\x00", " ")
    binding: list[str] = []
    left = MOST_BINDING
    for sign, phrase, word in _MARKED.findall(query):
        bound = [one.end() for one in _WORD.finditer(phrase or word)][:left]
        if not bound:
            continue
        left -= len(bound)
        binding.append(f'{sign if phrase else "-"}"{(phrase or word)[: bound[-1]]}"')
    words = _MARKED.sub(lambda mark: mark[2] if mark[2] and not mark[1] else " ", query)
    return words, " ".join(binding)
