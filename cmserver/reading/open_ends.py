"""Finds what an agent's last message leaves open: the sentences that say so, and the items of lists whose heading does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cmserver.base.sentences import split_line
from cmserver.base.text import shorten
from cmserver.base.words import content_words
from cmserver.reading.model import OpenEnd
from cmserver.reading.names import find_names
from cmserver.reading.own_words import BULLET, FENCED, own_blocks
from cmserver.reading.phrases import find_phrase, is_open_label
from cmserver.reading.text import MAX_QUOTE, capitalize

_MAX_CHARS = 20_000
_MAX_SENTENCE = 1_000
_MAX_OPEN_ENDS = 10
_MAX_LABEL = 60
_MAX_TITLE = 120
_FEW_WORDS, _FEW_WORDS_ABOUT_IT = 1, 3
"""A sentence with no more words that carry it cannot be understood by itself, nor one with a few that says it of "this"."""
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(.+)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.{1,300}?)(?<=\S)\1")
_TICK_BOX = re.compile(r"(?:\[[ xX]\]|✅|✓|☑)[ \t]*")
_LABEL = re.compile(rf"([^\s:`][^:`\n]{{1,{_MAX_LABEL}}}?)[ ]?(?::|[ ][\u2014\u2013-][ ])[ ]*(?=\S)")
_NUMBER = re.compile(r"(?<![\w#])#(\d{1,9})\b")
_CLAUSE_END = re.compile(r"; | [\u2014\u2013-] |, (?:but|and|so|while|aber|und|mais|et|pero|y) ")
_REFERS_BACK = re.compile(r"\b(?:it|this|that|these|them|they|both|es|dies\w*|sie|elle|cela|ça|esto|eso)\b", re.IGNORECASE)


def read_open_ends(message: str) -> list[OpenEnd]:
    """What the message says is open, in its order; questions, offers and what is over are not."""
    found: dict[str, OpenEnd] = {}
    heading = intro = ""
    for line in FENCED.sub("\n", message[:_MAX_CHARS]).splitlines():
        text = _EMPHASIS.sub(r"\2", BULLET.sub("", line)).strip()
        is_item, is_bold = BULLET.match(line) is not None, line.strip().startswith("**") and line.strip().endswith(("**", "**:"))
        if title := _HEADING.match(line):
            heading, intro = title[1], ""
        elif is_bold and len(text) <= _MAX_LABEL and not is_item:
            heading, intro = text, ""
        elif text.endswith(":") and len(text) <= 2 * _MAX_LABEL and not is_item:
            intro = text
        elif text and not text.startswith("|"):
            intro = intro if is_item else ""
            for end in _read_line(text, intro or heading):
                found.setdefault(end.text.casefold(), end)
    return list(found.values())[:_MAX_OPEN_ENDS]


def read_reports_by_number(prompt: str) -> list[tuple[str, list[int]]]:
    """The sentences in which a user says of open ends that they are over, each with their numbers: "#12 is done"."""
    sentences = [sentence for line in own_blocks(prompt[:_MAX_CHARS]) for part in line for sentence in split_line(part)]
    return [
        (shorten(sentence, MAX_QUOTE), list(map(int, numbers)))
        for sentence in sentences
        if (numbers := _NUMBER.findall(sentence)) and not sentence.endswith("?") and find_phrase("closed", sentence)
    ]


def make_title(text: str) -> str:
    """The clause of a text that says what is open, if it can be understood by itself, else the text."""
    line = " ".join(text.split())
    clauses = [clause.strip() for clause in _CLAUSE_END.split(line)]
    clause = next((clause for clause in clauses if _is_open(clause) and not _is_vague(clause)), line)
    return capitalize(shorten(clause, _MAX_TITLE).rstrip(" .,;:"))


def _read_line(text: str, above: str) -> Iterator[OpenEnd]:
    """The open ends of a paragraph or an item; `above` is the heading or the line that it stands below."""
    box = _TICK_BOX.match(text)
    text = text[box.end() :] if box else text
    if box is not None and box[0].strip() != "[ ]":
        return
    name = above.strip(" *_:#")
    if is_open_label(name) or (above.endswith(":") and _is_open(above)):
        yield from _label_all(text, "" if is_open_label(name) else above)
        return
    sentences = [sentence[:_MAX_SENTENCE] for sentence in split_line(text)]
    for place, sentence in enumerate(sentences):
        label = _LABEL.match(sentence)
        if label is not None and is_open_label(label[1].strip()):
            told = " ".join([sentence[label.end() :], *sentences[place + 1 :]])
            refers_back = place > 0 and _REFERS_BACK.search(sentence[label.end() :]) is not None
            yield from _label_all(told, whole=" ".join(sentences[place - 1 :]) if refers_back else "")
            return
        if not _is_open(sentence):
            continue
        if not _is_vague(sentence):
            yield OpenEnd(shorten(sentence, MAX_QUOTE), make_title(sentence))
        elif place and not _is_vague(sentences[place - 1]):
            both = f"{sentences[place - 1]} {sentence}"
            yield OpenEnd(shorten(both, MAX_QUOTE), capitalize(shorten(both, _MAX_TITLE)))


def _label_all(text: str, intro: str = "", whole: str = "") -> Iterator[OpenEnd]:
    """A text that its heading, its label or the line above it calls open: however short, that says what it is.

    `whole` is the text with its label and the sentence before it, where it says of that what is open.
    """
    if not text.endswith("?") and not find_phrase("done", text):
        yield OpenEnd(shorten(whole or text, MAX_QUOTE), make_title(f"{intro} {text}" if intro and _is_vague(text) else text))


def _is_open(sentence: str) -> bool:
    """Whether the sentence says of something that it is not done."""
    return not sentence.endswith("?") and find_phrase("open", sentence) is not None and find_phrase("done", sentence) is None


def _is_vague(text: str) -> bool:
    """Whether it does not say what it is about: "I have not verified this yet"."""
    if find_names(text):
        return False
    return len(content_words(text)) <= (_FEW_WORDS_ABOUT_IT if _REFERS_BACK.search(text) else _FEW_WORDS)
