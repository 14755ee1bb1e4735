"""Reads what a query says of time, in plain words of four languages: a date, a month, a period, or that the latest is meant.

A cue weighs and hides nothing: what was observed at that time stands out more. A date is taken with the days beside it, so it is
the same in every time zone, and for a person who is a day off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cmserver.recall.search.score import Candidate

DATED_BONUS = 3.0
"""What is of the time that the query names stands out by so many more standard deviations. Flat from 2 to 5."""
LATEST_BONUS = 1.0
"""Where the query asks for the latest, the newest candidate stands out by so many more, the oldest by none. Flat from 0.5 to 1."""

_MONTHS = (
    ("january", "jan", "januar", "jänner", "janvier", "enero"),
    ("february", "feb", "februar", "février", "fevrier", "febrero"),
    ("march", "märz", "maerz", "mars", "marzo"),
    ("april", "apr", "avril", "abril"),
    ("may", "mai", "mayo"),
    ("june", "jun", "juni", "juin", "junio"),
    ("july", "jul", "juli", "juillet", "julio"),
    ("august", "aug", "août", "aout", "agosto"),
    ("september", "sep", "sept", "septembre", "septiembre"),
    ("october", "oct", "oktober", "okt", "octobre", "octubre"),
    ("november", "nov", "novembre", "noviembre"),
    ("december", "dec", "dezember", "dez", "décembre", "decembre", "diciembre"),
)
_NUMBERS = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}
_MONTH = rf"(?P<month>{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})\b\.?"
_DAY_OF_MONTH = r"\b(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?"
_YEAR = r"(?P<year>20\d\d)\b"
_BEFORE_MONTH = (
    "in|of|since|until|till|by|from|during|early|late|mid|last|im|seit|bis|anfang|mitte|ende|vom|en|de|du|depuis|jusqu'en|début|"
    "debut|fin|desde|hasta|mediados"
)
_DATES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>20\d\d)-(?P<month>\d\d)-(?P<day>\d\d)\b",
        rf"{_DAY_OF_MONTH} (?:of |de )?{_MONTH}(?:,? (?:de )?{_YEAR})?",
        rf"\b{_MONTH} {_DAY_OF_MONTH}\b(?:,? {_YEAR})?",
        rf"\b{_MONTH},? (?:of |de )?{_YEAR}",
        rf"\b(?:{_BEFORE_MONTH}) {_MONTH}",
    )
)
"""The plainest first. Alone a month needs a word before it: may and march are no times by themselves."""
_PERIODS = (
    (re.compile(r"\b(?:yesterday|gestern|ayer)\b", re.IGNORECASE), timedelta(days=1)),
    (re.compile(r"\b(?:last week|letzte woche|la semaine dernière|la semana pasada)\b", re.IGNORECASE), timedelta(days=13)),
    (re.compile(r"\b(?:last month|letzten monat|le mois dernier|el mes pasado)\b", re.IGNORECASE), timedelta(days=61)),
)
"""A period that ends now. The last week may have begun 13 days ago, and the last month 61."""
_LATEST = re.compile(
    r"\b(?:now|nowadays|current|currently|at the moment|at present|today|still|latest|newest|recent|recently|these days"
    r"|jetzt|derzeit|zurzeit|momentan|aktuell\w*|heute|immer noch|inzwischen|mittlerweile|neueste\w*"
    r"|maintenant|actuel\w*|en ce moment|aujourd'hui|ahora|actual|actualmente|hoy|todavía|aún)\b",
    re.IGNORECASE,
)
_DAY = timedelta(days=1)
_MONTHS_OF_YEAR, _DAYS_OF_MONTH = 12, 31


class TimeCue(msgspec.Struct, frozen=True, kw_only=True):
    """What is None says nothing: a month without a year is that of any year. Without any of them the latest is meant."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    since: datetime | None = None

    @property
    def is_latest(self) -> bool:
        return self == TimeCue()

    def covers(self, moment: datetime) -> bool:
        """Whether it was then, or a day before or after."""
        if self.since is not None:
            return moment >= self.since - _DAY
        return any(self._is_on(moment + offset) for offset in (-_DAY, timedelta(), _DAY))

    def _is_on(self, moment: datetime) -> bool:
        pairs = ((self.year, moment.year), (self.month, moment.month), (self.day, moment.day))
        return all(wanted is None or wanted == actual for wanted, actual in pairs)


def find_time_cue(query: str, now: datetime) -> TimeCue | None:
    """What is plainest: a day before a month, a month before a period, and any of these before the latest."""
    for pattern in _DATES:
        if match := pattern.search(query):
            return _read_date(match.groupdict())
    for words, length in _PERIODS:
        if words.search(query):
            return TimeCue(since=now - length)
    return TimeCue() if _LATEST.search(query) else None


def _read_date(fields: Mapping[str, str | None]) -> TimeCue | None:
    """None for a day or a month that does not exist."""
    name, day, year = (fields.get("month") or "").lower(), fields.get("day"), fields.get("year")
    month = _NUMBERS.get(name) or int(name)
    if not 1 <= month <= _MONTHS_OF_YEAR or not 1 <= int(day or 1) <= _DAYS_OF_MONTH:
        return None
    return TimeCue(year=int(year) if year else None, month=month, day=int(day) if day else None)


def add_time_bonus(candidates: Sequence[Candidate], cue: TimeCue, now: datetime) -> None:
    """Let stand out more what is of that time; where the latest is meant, the newer of the candidates more than the older.

    What is newer than `now` is written while pages are read: it changes no other bonus.
    """
    moments = sorted({candidate.created_at for candidate in candidates if candidate.created_at and candidate.created_at <= now})
    step = LATEST_BONUS / max(len(moments) - 1, 1)
    by_age = {moment: place * step for place, moment in enumerate(moments)} if cue.is_latest else {}
    for candidate in candidates:
        if candidate.created_at is None:
            continue
        bonus = by_age.get(candidate.created_at, LATEST_BONUS) if cue.is_latest else DATED_BONUS * cue.covers(candidate.created_at)
        if bonus:
            candidate.deviations += bonus
            candidate.parts = candidate.parts | {"time": bonus, "deviations": candidate.deviations}
