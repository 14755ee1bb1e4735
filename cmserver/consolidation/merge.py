"""Merges the texts of observations that say the same, without losing a fact."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from cmserver.base.errors import Invalid, Issue
from cmserver.base.sentences import split_sentences
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.model import ITEMS_MOST, TEXT_MOST, compose

_BULLETS = re.compile(r"(?:[-*+•]\s++)+")
_OPENING = "\"'`([{«»„“”‘’*¿¡"  # noqa: RUF001 - quotation marks of several languages
_CLOSING = _OPENING + ")]}.,:;!?…。！？，、"  # noqa: RUF001 - of Chinese and Japanese


class MergeTooLong(Invalid):
    """The merged text would be over a limit, and lose a fact if it were cut. Nothing was merged."""


class MergeableText(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of an observation that a merge changes."""

    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    content: str = ""
    """The whole text: composed of the other fields, or written by hand."""
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    updated_at: datetime

    @property
    def composed(self) -> str:
        """The texts of all fields but `content`, as one."""
        return compose(self.title, self.subtitle, self.narrative, self.facts)

    @property
    def own_content(self) -> str:
        """The content where it is not composed of the other fields."""
        return "" if self.content == self.composed else self.content


def merge_texts(target: MergeableText, sources: Sequence[MergeableText], strategy: MergeStrategy = "smart_merge") -> MergeableText:
    """The target with the texts of the sources, oldest first. Raises MergeTooLong rather than lose a fact.

    `smart_merge` keeps each fact and sentence of all, once; `append` puts the texts one after another; with `latest_wins` the text
    of the newest stays alone. Concepts and files are those of all, with every strategy.
    """
    sources = sorted(sources, key=_updated_at)
    match strategy:
        case "smart_merge":
            merged = _merge_smartly(target, sources)
        case "append":
            merged = _append(target, sources)
        case "latest_wins":
            merged = max(target, *sources, key=_updated_at) if sources else target
    rows = [target, *sources]
    merged = msgspec.structs.replace(
        merged,
        concepts=_unite(row.concepts for row in rows),
        files_read=_unite(row.files_read for row in rows),
        files_modified=_unite(row.files_modified for row in rows),
        updated_at=max(map(_updated_at, rows)),
    )
    _check_limits(merged, target)
    return merged


def fold_unit(text: str) -> str:
    """A fact or sentence without case, space and punctuation: texts that are equal then stand once in a merge, empty ones never.

    Signs inside of a word, and in front of it, may be part of a fact: 1.5 is not 15, -16 is not 16, `!ready` is not `ready`.
    """
    words = unicodedata.normalize("NFKC", _without_bullets(text)).casefold().split()
    bare = (word.lstrip(_OPENING).rstrip(_CLOSING) for word in words)
    return " ".join(word for word in bare if word.strip("-–—"))  # noqa: RUF001 - dashes


def _without_bullets(text: str) -> str:
    bare = text.strip()
    bullets = _BULLETS.match(bare)
    return bare[bullets.end() :] if bullets else bare


def list_units(row: MergeableText) -> list[str]:
    """The facts and sentences of all of its fields, as they stand there."""
    texts = [row.title, row.subtitle, row.narrative, *row.facts, row.own_content]
    return [unit for text in texts if text for unit in split_sentences(text)]


def _merge_smartly(target: MergeableText, sources: Sequence[MergeableText]) -> MergeableText:
    best = max([target, *reversed(sources)], key=lambda row: (row.title is not None, _informativeness(row), row.updated_at))
    collector = _UnitCollector([best.title, target.subtitle, target.narrative, *target.facts, target.own_content])
    subtitle = target.subtitle
    facts = [collector.take_new(target.title or "")]
    paragraphs: list[str] = []
    for row in sources:
        if subtitle is None and row.subtitle is not None:
            subtitle = collector.take_new(row.subtitle) or None
        facts += map(collector.take_new, [row.title or "", *row.facts])
        paragraphs += map(collector.take_new, [row.subtitle or "", row.narrative or "", row.own_content])
    merged = msgspec.structs.replace(
        target,
        title=best.title,
        subtitle=subtitle,
        narrative=_join([target.narrative, *paragraphs]) or None,
        facts=(*target.facts, *filter(None, facts)),
    )
    if not target.own_content:
        return msgspec.structs.replace(merged, content=merged.composed)
    added_title = best.title if fold_unit(best.title or "") != fold_unit(target.title or "") else None
    added_subtitle = subtitle if subtitle != target.subtitle else None
    return msgspec.structs.replace(
        merged, content=_join([target.own_content, compose(added_title, added_subtitle, _join(paragraphs), [*filter(None, facts)])])
    )


class _UnitCollector:
    """Hands out each fact and sentence once."""

    def __init__(self, texts: Iterable[str | None]) -> None:
        self._seen = {"", *(fold_unit(unit) for text in texts if text for unit in split_sentences(text))}

    def take_new(self, text: str) -> str:
        """The sentences of the text that were not handed out before: the text as it is where all are new."""
        units = split_sentences(text)
        new: list[str] = []
        for unit in units:
            if (folded := fold_unit(unit)) not in self._seen:
                self._seen.add(folded)
                new.append(unit)
        if not new:
            return ""
        return text if len(new) == len(units) else ("\n" if "\n" in text else " ").join(new)


def _append(target: MergeableText, sources: Sequence[MergeableText]) -> MergeableText:
    texts = [_join([row.title, row.subtitle, row.narrative, row.own_content]) for row in sources]
    merged = msgspec.structs.replace(
        target,
        narrative=_join([target.narrative, *texts]) or None,
        facts=tuple(dict.fromkeys([*target.facts, *(fact for row in sources for fact in row.facts)])),
    )
    if not target.own_content:
        return msgspec.structs.replace(merged, content=merged.composed)
    return msgspec.structs.replace(merged, content=_join([target.own_content, *(row.content for row in sources)]))


def _informativeness(row: MergeableText) -> int:
    """How many different words its texts have."""
    return len({word for unit in list_units(row) for word in fold_unit(unit).split()})


def _check_limits(merged: MergeableText, target: MergeableText) -> None:
    """Raise MergeTooLong for a field that the merge has made longer than observations may be."""
    lengths = {
        "subtitle": (len(merged.subtitle or ""), len(target.subtitle or ""), TEXT_MOST),
        "narrative": (len(merged.narrative or ""), len(target.narrative or ""), TEXT_MOST),
        "content": (len(merged.own_content), len(target.own_content), TEXT_MOST),
        "facts": (len(merged.facts), len(target.facts), ITEMS_MOST),
        "concepts": (len(merged.concepts), len(target.concepts), ITEMS_MOST),
        "filesRead": (len(merged.files_read), len(target.files_read), ITEMS_MOST),
        "filesModified": (len(merged.files_modified), len(target.files_modified), ITEMS_MOST),
    }
    for name, (length, before, limit) in lengths.items():
        if length > max(limit, before):
            unit = "items" if limit == ITEMS_MOST else "characters"
            message = f"Merged, {name} would have {length} {unit}, and at most {limit} are allowed. Merge fewer observations."
            raise MergeTooLong(message, [Issue(f"$.{name}", message)])


def _unite(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for texts in lists for text in texts))


def _join(texts: Iterable[str | None]) -> str:
    return "\n\n".join(text for text in texts if text)


def _updated_at(row: MergeableText) -> datetime:
    return row.updated_at
