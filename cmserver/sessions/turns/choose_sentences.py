"""What was said in a turn, verbatim: the user's own words, and the sentences that say most.

Nothing is judged. Sentences are chosen by a plain score that knows no language, and what is not the user's own text (code,
quotations, pasted reports) is no word of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from zlib import crc32

from cmserver.base.sentences import split_sentences
from cmserver.base.text import UNSEGMENTED
from cmserver.reading.own_words import BULLET, FENCED, HEADING, own_blocks, own_words

MAX_SENTENCES = 8
"""Of a turn; at most half of them are the user's."""
SENTENCE_CHARS = 300
ANSWERED_CHARS = 160
_SHORT_WORDS, _SHORT_SIGNS = 14, 30
_VERY_SHORT = 20
_MAX_SMALL_TALK = 80
_REMARK_WORDS, _REMARK_CHARS = 3, 16
"""What is shorter, and names nothing, is a remark (great, thanks!): it says nothing by itself."""

_BORROWED_WORDS = 8
_LEADS_ON = (":", "\uff1a")
"""What a sentence ends with that leads to others and says nothing itself."""
_CODE = re.compile(r"`[^`]+`|\b\w+(?:[._/]\w+)+|\b\w+_\w+")
_RUN_WORD = re.compile(r"[^\W\d_]\w*")
_MARKS = re.compile(r"\*\*|__|^#+\s+", re.MULTILINE)
_SIGN = re.compile(f"[{UNSEGMENTED}]")
_OPTION = re.compile(r"\W*(?:option\s+)?(?P<name>[a-zA-Z]|\d{1,2})\W*$", re.IGNORECASE)


def measure(text: str) -> int:
    """The length of a text in characters; a sign of a script without spaces counts as two."""
    return len(text) + len(_SIGN.findall(text))


def is_short(prompt: str) -> bool:
    """Whether a prompt is so short that it may only be an answer."""
    signs = len(_SIGN.findall(prompt))
    return (signs < _SHORT_SIGNS) if signs * 2 > len(prompt) else len(prompt.split()) < _SHORT_WORDS


def find_answered(prompt: str, reply: str) -> str:
    """What a short prompt answers: the option that it names, else the last question, else, if very short, the first sentence."""
    if found := find_choice(prompt, reply):
        return found
    return next(iter(_prose(reply)), "") if measure(prompt) <= _VERY_SHORT else ""


def find_choice(prompt: str, reply: str) -> str:
    """What a short prompt chooses or says yes or no to: the option that it names, with the last question; empty without one."""
    lines = [line for line in FENCED.sub("\n", reply).splitlines() if line.strip()]
    option = _OPTION.match(prompt.split(",", maxsplit=1)[0].split(".", maxsplit=1)[0].strip())
    questions = [sentence for sentence in _prose(reply) if is_question(sentence)]
    chosen = ""
    if option is not None:
        name = re.escape(option["name"])
        marker = re.compile(rf"[\s|>*_\-(]*(?:option\s+)?{name}[\s|*_]*[).:|\-\u2013\u2014]\s*(?P<text>.+)", re.IGNORECASE)
        chosen = next((match["text"].strip(" |*_") for line in lines if (match := marker.match(line))), "")
    return " ".join([*questions[-1:], *([chosen] if chosen else [])])


def is_question(sentence: str) -> bool:
    """By its end, in any language that marks questions so."""
    return sentence.rstrip("\"'»”)*_` ").endswith(("?", "\uff1f", "\u061f", "\u037e"))


def choose_sentences(reply: str, max_chars: int, is_told: Callable[[str], bool] | None = None) -> list[str]:
    """The sentences of a reply that say most, in their order, within that many characters; questions to the user have no place.

    What `is_told` elsewhere has none either.
    """
    told = [it for it in _prose(reply) if not is_question(it) and not (is_told and is_told(it))]
    told = [it for it in told if not is_remark(it)] or told
    chosen: list[int] = []
    left = max_chars
    for place in _rank(told):
        size = measure(told[place])
        if size <= left or not chosen:
            chosen.append(place)
            left -= size + 3
    return [shorten_middle(told[place], max_chars) for place in sorted(chosen)]


def user_sentences(prompt: str, reply_before: str | None) -> list[str]:
    """The sentences in which the user says most, in their order, without questions; a short answer with what it answers."""
    words, sentences = own_words(prompt), split_sentences("\n".join(line for block in own_blocks(prompt) for line in block))
    choice = find_choice(words, reply_before) if reply_before else ""
    if choice and is_short(words):
        return [f"{words} ({shorten_middle(choice, ANSWERED_CHARS)})"]
    if choice and sentences and _OPTION.match(sentences[0].rstrip(".")):
        sentences[0] += f" ({shorten_middle(choice, ANSWERED_CHARS)})"
    told = [sentence for sentence in sentences if not sentence.endswith(_LEADS_ON) and (" " in sentence or measure(sentence) > 8)]
    return [] if is_remark(words) else _choose(told, MAX_SENTENCES // 2)


def agent_sentences(reply: str, count: int) -> list[str]:
    """The `count` sentences of a reply that say most, in their order, without questions."""
    return _choose([sentence for sentence in _prose(reply) if not is_remark(sentence)], count)


def is_small_talk(prompt: str, reply: str) -> bool:
    """Whether neither side says anything by itself."""
    return len(prompt) + len(reply) <= _MAX_SMALL_TALK and all(map(is_remark, [own_words(prompt), *_prose(reply)]))


def drop_borrowed(reply: str, prompt: str, borrowed: Collection[int] = ()) -> str:
    """The reply without the borrowed sentences, and those that share eight words in a row with what is pasted into the prompt."""
    own, pasted = own_words(prompt), set[tuple[str, ...]]()
    if len(prompt) - len(own) >= _BORROWED_WORDS * 4:
        pasted = _runs(" ".join(prompt.split()).replace(own, " "))
    if not pasted and not borrowed:
        return reply
    return "\n".join(line for line in _prose(reply) if not pasted & _runs(line) and not (borrowed and hash_text(line) in borrowed))


def find_borrowed(reply: str, outputs: Iterable[str]) -> list[int]:
    """The hashes of the reply's sentences that share eight words in a row with an output of a tool."""
    runs = {line: _runs(line) for line in _prose(reply)}
    wanted = set[tuple[str, ...]]().union(*runs.values())
    shared = set[tuple[str, ...]]().union(*(wanted & _runs(output) for output in outputs)) if wanted else set[tuple[str, ...]]()
    return sorted({hash_text(line) for line, own in runs.items() if own & shared})


def hash_text(text: str) -> int:
    """A signed number of 32 bits that nothing can be read from."""
    return crc32(text.encode(errors="replace")) - 2**31


def _runs(text: str) -> set[tuple[str, ...]]:
    """Each run of so many words. Numbers are none: what a check counts is not its text."""
    words = _RUN_WORD.findall(text.casefold())
    return {tuple(words[place : place + _BORROWED_WORDS]) for place in range(len(words) - _BORROWED_WORDS + 1)}


def _choose(sentences: Sequence[str], count: int) -> list[str]:
    told = [sentence for sentence in sentences if not is_question(sentence)]
    return [shorten_middle(" ".join(told[place].split()), SENTENCE_CHARS) for place in sorted(_rank(told)[:count])]


def is_remark(sentence: str) -> bool:
    """Whether it is so short, and names nothing, that it says nothing by itself, or only leads on to something else."""
    if sentence.endswith(_LEADS_ON):
        return True
    if _CODE.search(sentence) or any(map(str.isdigit, sentence)):
        return False
    return len(sentence.split()) < _REMARK_WORDS and measure(sentence) < _REMARK_CHARS


def _rank(sentences: Sequence[str]) -> list[int]:
    """The places of the sentences, of the one that says most first."""
    scores = [_score(sentence, place, len(sentences)) for place, sentence in enumerate(sentences)]
    return sorted(range(len(sentences)), key=lambda place: (-scores[place], place))


def _score(sentence: str, place: int, count: int) -> float:
    score = 1.0 if any(map(str.isdigit, sentence)) else 0.0
    score += 0.7 * min(3, len(_CODE.findall(sentence)))
    score += 0.4 * min(measure(sentence), 100) / 100
    return score + (0.5 if place == 0 else 0.0) + (0.5 if place == count - 1 else 0.0)


def _prose(reply: str) -> list[str]:
    """The sentences of a reply, without code, tables, quotations and headings."""
    lines = [line for line in FENCED.sub("\n", reply).splitlines() if not HEADING.match(line)]
    sentences = split_sentences("\n".join(BULLET.sub("", line) for line in lines))
    return [text for sentence in sentences if len(text := _MARKS.sub("", sentence).strip()) > 2]


def shorten_middle(text: str, max_chars: int) -> str:
    """The beginning and the end of a text that is too long."""
    if measure(text) <= max_chars:
        return text
    if measure(text) > len(text):
        max_chars = max_chars * len(text) // measure(text)
    head = max_chars * 2 // 3
    return f"{text[:head].rstrip()} … {text[-(max_chars - head - 3) :].lstrip()}"
