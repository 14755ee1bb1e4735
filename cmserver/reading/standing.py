"""Finds what a user lays down for good in a prompt: "never use floats for money", "from now on deploy with make"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from cmserver.base.text import shorten
from cmserver.base.words import content_words
from cmserver.reading.conclusions import FEW_WORDS, MAX_QUOTE, count_words, matches, phrases

_MAX_TEXT = 8_000
_MAX_INSTRUCTIONS = 5
_MIN_WORDS = 3
_MAX_SENTENCE = 1_000
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_PROGRAM_TEXT = re.compile(
    r"^[ \t]*<([a-z][\w-]*)\b[^>\n]*>.*?(?:</\1\s*>|\Z)|<([a-z]+(?:[-_][a-z]+)+)\b[^>\n]*>.*?(?:</\2\s*>|\Z)",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)
"""What an agent's program or a tool put into the prompt: elements at the start of a line, or with a name of several words."""
_QUOTED = re.compile(r"\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|„[^“\n]{1,300}“|« ?[^»\n]{1,300}»|»[^«\n]{1,300}«")
_PASTED = re.compile(
    r"^\s*(?:>|\$ |\d{4}-\d\d-\d\d|\[?\d\d:\d\d|at \S+\(|File \"|Traceback|\w*(?:Error|Exception)\b"
    r"|(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL|FAILED|CRITICAL)\b"
    r"|diff --git|@@|[+-]{3} |\||E\s{2,}|npm ERR|error(?:\[\w+\])?:)|\s(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL)\s"
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\s+-{1,2}\s+(?=(?:and|und|et) )")  # noqa: RUF001 - Japanese
"""In what a user types, where a sentence may begin with a small letter."""


def read_standing_instructions(prompt: str) -> list[str]:
    """The sentences that hold from now on, in the user's own words, each with the next one where that gives its reason.

    Questions, quotes, pasted logs and what is asked for once are none.
    """
    found: list[str] = []
    for sentences in _typed_sentences(prompt):
        taken = -1
        for place in range(len(sentences) - 1, 0, -1):
            if len(sentences[place].split()) < _MIN_WORDS and matches("emphasis", sentences[place]):
                sentences[place - 1] += f" {sentences.pop(place)}"
        for place, sentence in enumerate(sentences):
            if place <= taken or not is_standing_instruction(sentence):
                continue
            if place and phrases()["remember_that"].phrase.search(sentence):
                found.append(shorten(sentences[place - 1], MAX_QUOTE))
                continue
            text, taken = sentence, place
            following = sentences[place + 1] if place + 1 < len(sentences) else ""
            if _gives_reason(following) and len(text) + len(following) < MAX_QUOTE:
                text, taken = f"{text} {following}", place + 1
            found.append(shorten(text, MAX_QUOTE))
    return list(dict.fromkeys(found))[:_MAX_INSTRUCTIONS]


def _gives_reason(sentence: str) -> bool:
    return not sentence.endswith("?") and (
        phrases()["cause"].phrase.search(sentence) is not None or phrases()["reason"].phrase.search(sentence) is not None
    )


def read_choices(prompt: str) -> list[str]:
    """The sentences by which the user decides for a way, each with the next one where that gives its reason; laid down for now."""
    found: list[str] = []
    for sentences in _typed_sentences(prompt):
        for sentence, following in pairwise([*sentences, ""]):
            is_choice = matches("choice", sentence) and not sentence.endswith("?") and len(content_words(sentence)) > FEW_WORDS
            if is_choice and not is_standing_instruction(sentence):
                has_reason = _gives_reason(following) and len(sentence) + len(following) < MAX_QUOTE
                found.append(shorten(f"{sentence} {following}" if has_reason else sentence, MAX_QUOTE))
    return found[:_MAX_INSTRUCTIONS]


def is_standing_instruction(sentence: str) -> bool:
    """Whether the sentence lays something down for good."""
    bare = _QUOTED.sub("", sentence)
    if sentence.endswith("?") or count_words(bare) < _MIN_WORDS:
        return False
    return phrases()["remember"].phrase.search(bare) is not None or (
        phrases()["standing"].phrase.search(bare) is not None and phrases()["once"].phrase.search(bare) is None
    )


def split_prompt(prompt: str) -> list[str]:
    """The sentences that the user typed, one after the other."""
    return [sentence for sentences in _typed_sentences(prompt) for sentence in sentences]


def _typed_sentences(prompt: str) -> Iterator[list[str]]:
    """The sentences of each line that the user typed."""
    for line in _typed_lines(prompt[:_MAX_TEXT]):
        yield [sentence.strip()[:_MAX_SENTENCE] for sentence in SENTENCE_END.split(line) if sentence.strip()]


def _typed_lines(prompt: str) -> Iterator[str]:
    """The lines that the user typed: no blocks of code, no elements that programs put there, no quotes, no logs."""
    for line in _PROGRAM_TEXT.sub("", _FENCE.sub("", prompt)).splitlines():
        unquoted = _QUOTED.sub(lambda quote: '""' if re.search(r"[.!?]\s", quote[0]) else quote[0], line)
        if unquoted.strip() and not _PASTED.search(unquoted) and not line.startswith(("    ", "\t")):
            yield unquoted.strip()
