"""How the answer at hand is worded: in which language, and with how many facts. Set for an answer, read where it is worded.

A context variable and no argument, because nearly every function of the rules says a word at some depth; nothing is decided by it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from cmserver.providers.model import Verbosity, Wishes
from cmserver.providers.rules.phrases.english import ENGLISH
from cmserver.providers.rules.phrases.french import FRENCH
from cmserver.providers.rules.phrases.german import GERMAN
from cmserver.providers.rules.phrases.spanish import SPANISH
from cmserver.providers.rules.phrases.words import Forms, Words

EVERY = (ENGLISH, GERMAN, FRENCH, SPANISH)
"""A session's record may have lines in any of them: people change their minds, and so do teams."""

_NAMES = {
    "english": ENGLISH, "en": ENGLISH, "englisch": ENGLISH, "anglais": ENGLISH, "ingles": ENGLISH,
    "german": GERMAN, "de": GERMAN, "deutsch": GERMAN, "allemand": GERMAN, "aleman": GERMAN,
    "french": FRENCH, "fr": FRENCH, "francais": FRENCH, "franzosisch": FRENCH, "frances": FRENCH,
    "spanish": SPANISH, "es": SPANISH, "espanol": SPANISH, "castellano": SPANISH, "spanisch": SPANISH, "espagnol": SPANISH,
}  # fmt: skip
_FACTS: dict[Verbosity, int] = {"minimal": 8, "normal": 8, "verbose": 20}


class _Manner(msgspec.Struct, frozen=True):
    words: Words = ENGLISH
    most_facts: int = 8


_manner: ContextVar[_Manner] = ContextVar("manner", default=_Manner())  # noqa: B039 - frozen


@contextmanager
def as_wished(wishes: Wishes) -> Generator[None]:
    """Word what follows as it is wished for. A language that is not known here is English."""
    token = _manner.set(_Manner(known(wishes.language) or ENGLISH, _FACTS[wishes.verbosity]))
    try:
        yield
    finally:
        _manner.reset(token)


def words() -> Words:
    """Those of the answer at hand."""
    return _manner.get().words


def most_facts() -> int:
    return _manner.get().most_facts


def counted(forms: Forms, count: int, **more: str) -> str:
    """`1 file`, `2 files`."""
    return forms[0 if count == 1 else 1].format(count=count, **more)


def known(language: str) -> Words | None:
    """By name or code, in any case: `Deutsch`, `german`, `de`, `de-CH`, `fr_FR`, `español (México)`."""
    plain = "".join(one for one in unicodedata.normalize("NFKD", language.casefold()) if not unicodedata.combining(one))
    first = re.match(r"\W*([^\W\d_]+)", plain)
    return _NAMES.get(first[1]) if first else None
