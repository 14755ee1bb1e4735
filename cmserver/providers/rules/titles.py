"""Titles for a burst of edits: what changed, in as many words as a title has room for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from cmserver.providers.rules import symbols
from cmserver.providers.rules.edits import FileChange, Phrase, Verb, short_path, worded
from cmserver.providers.rules.phrases.manner import counted, words
from cmserver.providers.rules.text import capital, listed, shorten


def of_changes(changes: Iterable[FileChange], installs: list[str], limit: int) -> str:
    """One sentence without a full stop: "Added round_money in pricing.py; changed Order.total in model.py"."""
    ordered = sorted(changes, key=lambda change: (_rank(change.path), -len(change.phrases)))
    ordered = [change for change in ordered if not change.minor] or ordered
    if not installs and len(ordered) == 1:
        return capital(_alone(ordered[0], limit))
    if installs:
        ordered = [change for change in ordered if not symbols.is_manifest(change.path)]
    if len(ordered) > limit:  # no room for a word of each
        return capital(_as_many_as_fit([*installs, *(_clause(change, 0) for change in ordered)], limit))
    full, short, bare = ([_clause(change, most) for change in ordered] for most in (3, 1, 0))
    mixed = ([*short[:detailed], *bare[detailed:]] for detailed in range(len(ordered), -1, -1))
    for candidate in ("; ".join([*installs, *clauses]) for clauses in (full, *mixed)):
        if len(candidate) <= limit:
            return capital(candidate)
    return capital(_as_many_as_fit([*installs, *bare], limit))


def _rank(path: str) -> int:
    if symbols.is_test(path):
        return 2
    return 0 if symbols.is_code(path) else 1


def _alone(change: FileChange, limit: int) -> str:
    named = _clause(change, 3)
    if detail := _detail(change):
        named = f"{named}: {detail}" if len(named) + len(detail) + 2 <= limit else named
    return next((text for text in (named, _clause(change, 2), _clause(change, 1)) if len(text) <= limit), _clause(change, 0))


def _detail(change: FileChange) -> str:
    """The changed line itself, where the file has one change and one line tells it."""
    if len(change.phrases) != 1 or len(change.samples) != 1 or change.whole:
        return ""
    phrase, sample = change.phrases[0], change.samples[0]
    told = "`" in phrase.thing or not sample.endswith("`")
    return "" if told or (phrase.verb != "changed" and not change.minor) else sample.removeprefix(f"{worded(phrase.verb)} ")


def _clause(change: FileChange, most: int) -> str:
    """One file's part: `added a, b and changed c in x.py`, naming at most `most` things of each verb."""
    place = short_path(change.path)
    if whole := change.whole:
        return f"{worded(whole.verb)} {whole if most else whole.thing}"
    said = [_verb_and_things(verb, list(group), most) for verb, group in groupby(_main(change), _verb_of)]
    if most == 0:
        return f"{words().changed} {place}"
    if most == 1 and len(said) > 1:
        return words().and_more_in_file.format(what=said[0], file=place)
    return words().in_file.format(what=listed(said, len(said)), file=place)


def _verb_of(phrase: Phrase) -> Verb:
    return phrase.verb


def _main(change: FileChange) -> list[Phrase]:
    return [phrase for phrase in change.phrases if not phrase.imports] or change.phrases


def _verb_and_things(verb: Verb, phrases: list[Phrase], most: int) -> str:
    return f"{worded(verb)} {listed([phrase.thing for phrase in phrases], most)}"


def _as_many_as_fit(clauses: list[str], limit: int) -> str:
    for shown in range(min(len(clauses) - 1, limit), 0, -1):
        text = f"{'; '.join(clauses[:shown])}; {counted(words().more_files, len(clauses) - shown)}"
        if len(text) <= limit:
            return text
    return shorten(clauses[0], limit)
