"""Makes texts that differ from a given one in a single fact: a number, path, name, word, negation or the order of two."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import msgspec

from cmserver.consolidation.marks import load_words

NAMES = ("Kestrel", "Juniper", "Marlow", "Bristol", "Quasar", "Nimbus", "Lisbon", "Falcon")

_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?![\w.]*\w)")
_VERSION = re.compile(r"(?<![\w.])v?\d+(?:\.\d+)+(?!\w)")
_PATH = re.compile(r"(?<![\w/])(?:[\w.-]+/)+[\w.-]*\w|\b[\w-]+\.(?:py|ts|go|rs|toml|yml|yaml|json|sql|md|swift|kt|dart|cs|ex)\b")
_IDENTIFIER = re.compile(r"\b[A-Za-z]+_\w+\b|\b[A-Z]?[a-z]+[A-Z]\w+\b")
_WHOLE_IDENTIFIER = re.compile(r"(?<![\w./:#-])(?:[a-z]+_\w+|[A-Z][a-z]+[A-Z]\w+)(?![\w./:#(-])")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
_VERB = re.compile(r"\b(?:is|are|was|were|can|must|may|does|do|will|should|ist|sind|wird|werden|est|sont|es|son)\b")
_NEGATION = re.compile(r"\b(?:not|never|nicht|kein|keine|pas|no)\b ")
_WORD = re.compile(r"(?<=[a-z] )[a-zäöüéèñ]{6,}(?=[ .,])")
_NEIGHBOURS = re.compile(r"(?<=[a-z] )([a-z]{6,})( (?:[a-z]+ ){0,3})(?!\1)([a-z]{6,})(?=[ .,])")
_SWAPS = {
    "enabled": "disabled", "disabled": "enabled", "before": "after", "after": "before", "on": "off", "add": "remove",
    "adds": "removes", "added": "removed", "removed": "added", "increased": "decreased", "raised": "lowered",
    "allowed": "forbidden", "always": "never", "first": "last", "more": "fewer", "minimum": "maximum",
    "vor": "nach", "nach": "vor", "avant": "après", "antes": "después",
}  # fmt: skip
WORDS = ("kestrel", "juniper", "marlow", "gateway", "quasar", "nimbus", "ledger", "falcon")
_SWAPPED = re.compile(rf"\b(?:{'|'.join(_SWAPS)})\b")


class NearMiss(msgspec.Struct, frozen=True):
    """A text, and the same with one fact changed."""

    kind: str
    text: str
    changed: str


def make_near_misses(texts: Sequence[str], count: int, seed: int) -> list[NearMiss]:
    """`count` near misses of texts drawn at random, evenly over the kinds as far as there are enough."""
    generator = random.Random(seed)
    near_misses: list[NearMiss] = []
    seen: set[tuple[str, str]] = set()
    kinds = list(_CHANGES)
    for turn in range(count * 20):
        if len(near_misses) == count:
            break
        kind, text = kinds[turn % len(kinds)], generator.choice(texts)
        pattern, change = _CHANGES[kind]
        places = list(pattern.finditer(text))
        if not places:
            continue
        place = generator.choice(places)
        changed = text[: place.start()] + change(place[0], generator) + text[place.end() :]
        if changed != text and (text, changed) not in seen:
            seen.add((text, changed))
            near_misses.append(NearMiss(kind, text, changed))
    return near_misses


def _change_number(text: str, generator: random.Random) -> str:
    return str(int(text) + generator.choice([-1, 1, 7, 10, 100, -int(text)]) if int(text) else generator.randint(1, 99))


def _change_version(text: str, generator: random.Random) -> str:
    parts = text.split(".")
    place = generator.randrange(1, len(parts))
    number = int(parts[place]) + generator.randint(1, 9)
    parts[place] = str(number if number % 10 else number + 1)  # 3.10 % are 3.1 %
    return ".".join(parts)


def _change_path(text: str, generator: random.Random) -> str:
    parts = re.split(r"([/.])", text)
    places = [place for place in range(0, len(parts), 2) if parts[place]]
    parts[generator.choice(places)] += generator.choice(["2", "_old", "s2", "x"])
    return "".join(parts)


def _change_identifier(text: str, generator: random.Random) -> str:
    return generator.choice([f"{text}{generator.choice(['2', 'X', '_old', 'V2'])}", f"old_{text}", text[::-1]])


def _change_word(text: str, generator: random.Random) -> str:
    """Another word; an auxiliary verb stays, as a text without it says the same."""
    return text if text in load_words().fillers else generator.choice([word for word in WORDS if word != text])


def _change_order(text: str, _: random.Random) -> str:
    """The first and the last word in each other's place; auxiliary verbs stay."""
    first, *middle, last = text.split(" ")
    return text if {first, last} & load_words().fillers else " ".join([last, *middle, first])


_CHANGES: dict[str, tuple[re.Pattern[str], Callable[[str, random.Random], str]]] = {
    "number": (_NUMBER, _change_number),
    "version": (_VERSION, _change_version),
    "path": (_PATH, _change_path),
    "identifier": (_IDENTIFIER, _change_identifier),
    "name": (_NAME, lambda text, generator: generator.choice([name for name in NAMES if name != text])),
    "negation": (_VERB, lambda text, _: f"{text} {'nicht' if text in {'ist', 'sind', 'wird', 'werden'} else 'not'}"),
    "affirmation": (_NEGATION, lambda _, __: ""),
    "word": (_WORD, _change_word),
    "order": (_NEIGHBOURS, _change_order),
    "opposite": (_SWAPPED, lambda text, _: _SWAPS[text]),
}
