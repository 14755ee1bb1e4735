"""Finds the telling words and numbers that an edit puts into a file and takes out of it, and those that a sentence names.

A token is a number of 32 bits: equal texts have the same, and nothing can be read from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

from cmserver.reading.model import EditedPlace

_LETTER = "A-Za-z_$\u00c0-\u024f\u0370-\u052f"
_MOST_LOOKED_AT = 2_000_000
_TOKEN = re.compile(rf"[{_LETTER}][{_LETTER}\d]*(?:[./@-][{_LETTER}\d]+)*|\d+(?:[.,_:]\d+)*")
_PART = re.compile(r"[./@]")
_UNIT = re.compile(
    r"\s?(?:%|ms|s|sec(?:ond)?s?|sekunden?|segundos?|secondes?|min(?:ute)?[sn]?|minutos?|h|hours?|stunden?|d|days?|tagen?|[kmgt]i?b|bytes?"
    r"|px|rem|em|€|\$|eur|usd|cents?|k|mio|秒|毫秒|分|分钟|小时|天)(?![\w])",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\s?(?:(?:more|new|of|von|de)\s)?(?:tests?|passed|failed|files?|lines?|errors?|warnings?|dateien|zeilen|fehler)\b",
    re.IGNORECASE,
)
_STRUCTURE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z]\d|[_.\-/@]|^[A-Z]{3,}$")
_COMMON_WORDS = (
    "self this return const let var def class function import from true false none null undefined else elif for while not "
    "and the async await public private protected static void int str string number boolean bool float type export default "
    "with try catch except finally raise throw pass break continue lambda yield del global assert print log len range list "
    "dict set map new extends implements interface struct enum match case switch end then begin module require package use "
    "pub impl mut ref args kwargs props state data value values item items key keys name names index error errors result "
    "results test tests describe it expect todo note fixme that these those are was were will would should could can has "
    "have had been being into onto over under than when where which what who whose how why all any some each only also just "
    "now der die das und oder nicht ist sind wird mit von les des est une pour dans que con los las una por para div span p "
    "a li ul td tr th b i href src id"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_MIN_WORD, _MAX_WORD = 3, 80
_MAX_LINES, _MAX_LINE = 400, 2_000
_MAX_CHANGED = 3
"""A plain word tells something where so few words of a line have changed."""


def read_place(removed: Sequence[str], added: Sequence[str], *, before: str = "", after: str = "") -> EditedPlace:
    """The tokens of the old and the new lines of one place; `before` and `after` are the whole file then, where it is known.

    What was in the file before is not put in, and what is still in it is not taken out.
    """
    removed, added = [line[:_MAX_LINE] for line in removed[:_MAX_LINES]], [line[:_MAX_LINE] for line in added[:_MAX_LINES]]
    old, new = dict(_words(removed)), dict(_words(added))
    plain = _replaced_words(removed, added)
    took = {key for key, word in old.items() if key not in new and (_is_telling(word) or word.casefold() in plain)}
    put = {key for key in new if key not in old}
    if len(put) * len(before) > _MOST_LOOKED_AT or len(took) * len(after) > _MOST_LOOKED_AT:
        return EditedPlace(frozenset(), frozenset())  # to look each up in the file would take seconds
    return EditedPlace(
        frozenset(_hash(key) for key in put if not _occurs(new[key], before)),
        frozenset(_hash(key) for key in took if not _occurs(old[key], after)),
    )


def find_tokens(sentence: str) -> set[int]:
    """The tokens that a sentence names."""
    tokens: set[int] = set()
    for match in _TOKEN.finditer(sentence[:_MAX_LINE]):
        word = match[0]
        if not word[0].isdigit():
            tokens.update(_hash(key) for key, _ in _keys_of_word(word))
            continue
        if _COUNTED.match(sentence, match.end()):
            continue
        digits = _digits(word)
        tokens.add(_hash(f"n:{digits}"))
        if _UNIT.match(sentence, match.end()) or not word.isdigit():
            tokens.add(_hash(f"d:{digits.strip('0')}"))
    return tokens


def _words(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each telling word and number of the lines, by the key that it is compared by."""
    for line in lines:
        for match in _TOKEN.finditer(line):
            word = match[0]
            if word[0].isdigit():
                yield from _keys_of_number(word, line, match.end())
            else:
                yield from _keys_of_word(word)


def _keys_of_number(word: str, line: str, end: int) -> Iterator[tuple[str, str]]:
    digits = _digits(word)
    if len(digits) < 2 and not _UNIT.match(line, end):
        return
    yield f"n:{digits}", word
    if leading := digits.strip("0"):
        yield f"d:{leading}", word


@lru_cache(maxsize=4_096)
def _keys_of_word(word: str) -> tuple[tuple[str, str], ...]:
    parts = dict.fromkeys([word, *(_PART.split(word) if _PART.search(word) else ())])
    keys = [(part.casefold().strip("-$"), part) for part in parts]
    return tuple((f"w:{key}", part) for key, part in keys if _MIN_WORD <= len(key) <= _MAX_WORD and key not in _COMMON)


def _digits(word: str) -> str:
    return re.sub(r"\D", "", word)


def _is_telling(word: str) -> bool:
    """Whether it says by its look what it is: a number, or a name in code."""
    return word[0].isdigit() or _STRUCTURE.search(word) is not None


def _replaced_words(removed: Sequence[str], added: Sequence[str]) -> set[str]:
    """The plain words of lines of which only few words were replaced."""
    found: set[str] = set()
    if len(removed) != len(added):
        return found
    for old_line, new_line in zip(removed, added, strict=True):
        old, new = ({match[0].casefold() for match in _TOKEN.finditer(line)} for line in (old_line, new_line))
        gone = old - new
        if old & new and len(gone) <= _MAX_CHANGED and len(new - old) <= _MAX_CHANGED:
            found |= gone
    return found


def _occurs(word: str, text: str) -> bool:
    """Whether the word stands in the text, by itself."""
    place = text.find(word) if text else -1
    while place >= 0:
        left, right = text[place - 1 : place], text[place + len(word) : place + len(word) + 1]
        if not (left.isalnum() or left == "_" or right.isalnum() or right == "_"):
            return True
        place = text.find(word, place + 1)
    return False


@lru_cache(maxsize=4_096)
def _hash(key: str) -> int:
    number = int.from_bytes(blake2b(key.encode(errors="replace"), digest_size=4).digest(), signed=True)
    return number or 1
