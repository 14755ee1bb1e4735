"""What was heard, as it may be stored: bounded, cleaned, without repetition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from cmserver.generation.answers.loose import without_bullet
from cmserver.generation.answers.model import SUMMARY_FIELDS
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST, TYPES
from cmserver.providers.model import DraftObservation, DraftSummary
from cmserver.providers.rules.text import relative

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NOTHING = {"null", "none", "n/a", "undefined", "-", "\u2013", "\u2014", "..."}
"""Words that models put where nothing is to be said."""
_LETTERS = re.compile(r"[a-z]++")
_WORDS = re.compile(r"[a-z_-]++")
_REMARK = re.compile(r"(?<=\S)\s++\([^()]*+\)\Z")
_TYPES = {
    **{one.replace("_", ""): one for one in TYPES},
    "bug": "bugfix", "fix": "bugfix", "hotfix": "bugfix", "feat": "feature", "refactoring": "refactor", "learning": "discovery",
    "finding": "discovery", "investigation": "discovery", "insight": "discovery", "security": "security_note",
}  # fmt: skip


def observation_of(draft: DraftObservation, changed: Sequence[str]) -> DraftObservation | None:
    """The observation, or None when it says nothing. `changed` are the files that its events changed, whatever it says of them.

    A file that is read and modified is in both lists: whoever looks for either finds it.
    """
    fields = (draft.title, draft.subtitle, draft.narrative, draft.facts, draft.concepts, draft.files_read, draft.files_modified)
    if not any(fields):
        return None
    type_ = type_of(draft.type)
    clean = DraftObservation(
        type=type_,
        title=line_of(draft.title),
        subtitle=text_of(draft.subtitle),
        narrative=text_of(draft.narrative),
        facts=_list(draft.facts, without_bullet),
        concepts=[concept for concept in _list(draft.concepts, _concept) if type_of(concept, "") != type_],
        files_read=_list(draft.files_read, _file),
        files_modified=_list(draft.files_modified, _file),
    )
    said = (clean.title, clean.subtitle, clean.narrative, clean.facts, clean.concepts, clean.files_read, clean.files_modified)
    if not any(said):
        return None
    if changed:
        own = [_as_changed(file, changed) for file in clean.files_modified]
        clean.files_modified = list(dict.fromkeys([*own, *(file for file in map(_file, changed) if file)]))[:ITEMS_MOST]
        clean.files_read = list(dict.fromkeys(_as_changed(file, changed) for file in clean.files_read))
    return clean


def summary_of(summaries: Iterable[DraftSummary]) -> DraftSummary | None:
    """One summary of all that were said, or None when they say nothing."""
    said: dict[str, list[str]] = {name: [] for name in SUMMARY_FIELDS}
    for summary in summaries:
        for name in SUMMARY_FIELDS:
            if text := text_of(getattr(summary, name)):
                said[name].append(text)
    fields = {name: text_of("\n\n".join(dict.fromkeys(texts))) for name, texts in said.items()}
    return DraftSummary(**fields) if any(fields.values()) else None


def type_of(text: str, otherwise: str = "change") -> str:
    """One of our types: "Bug fix", "security-note" and "bugfix | feature" are meant well."""
    if not text:
        return otherwise
    lowered = text[:200].lower()
    squeezed = "".join(_LETTERS.findall(lowered))
    if squeezed in _TYPES:
        return _TYPES[squeezed]
    if not otherwise:
        return ""
    words = (word.replace("_", "").replace("-", "") for word in _WORDS.findall(lowered))
    return next((_TYPES[word] for word in words if word in _TYPES), otherwise)


def text_of(text: str | None) -> str | None:
    """As it may be stored; None when it says nothing."""
    if not text:
        return None
    clean = _UNSTORABLE.sub("\ufffd", text.strip()[:TEXT_MOST]).strip()
    return None if clean.lower() in _NOTHING else clean or None


def line_of(text: str | None) -> str | None:
    """On one line, of a title's length."""
    one = " ".join((text_of(text) or "").split()) if text else ""
    return one[: TITLE_MOST - 1] + "…" if len(one) > TITLE_MOST else one or None


def _list(texts: Sequence[str | None], clean: Callable[[str], str]) -> list[str]:
    if not texts:
        return []
    items: dict[str, None] = {}
    for text in texts:
        if item := text_of(clean((text or "").strip()[:ITEM_MOST])):
            items[item] = None
            if len(items) == ITEMS_MOST:
                break
    return list(items)


def _concept(text: str) -> str:
    """`how-it-works: because ...` is how-it-works."""
    return without_bullet(text).partition(":")[0].strip("`\"'* \t")


def _file(text: str) -> str:
    bare = _REMARK.sub("", without_bullet(text).strip()).strip("`\"'")
    return relative(bare.strip(), None)


def _as_changed(file: str, changed: Sequence[str]) -> str:
    """A file by the name under which its event changed it, where the answer has its whole path."""
    if not re.match(r"[/\\~]|[A-Za-z]:", file):
        return file
    return next((one for one in changed if file.replace("\\", "/").endswith("/" + one.replace("\\", "/"))), file)
