"""Makes the drafts of an answer fit to store: bounded, cleaned, without repetition or secrets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cmserver.base.text import shorten, storable, strip_bullet
from cmserver.models.providers.model import KINDS, SUMMARY_FIELDS, Answer, DraftObservation, DraftSummary, Skip
from cmserver.observations.model import ITEM_MOST, ITEMS_MOST, TEXT_MOST, TITLE_MOST
from cmserver.reading.names import find_names
from cmserver.reading.text import MAX_QUOTE
from cmserver.redaction.redact import may_change, redact

MAX_OBSERVATIONS = 1_000
"""Per answer. A real answer has room for some hundred."""
ENTITIES_MOST = 8
"""Of an observation; a model is asked for fewer."""
_PLACEHOLDERS = {"null", "none", "n/a", "undefined", "-", "\u2013", "\u2014", "..."}
"""What models write into a field that they leave empty."""
NOT_SAID_WHY = "not said why"
"""The reason of a skip mark that has none, as in the example of the prompt, which small models copy."""
_LETTERS = re.compile(r"[a-z]++")
_WORDS = re.compile(r"[a-z_-]++")
_REMARK = re.compile(r"(?<=\S)\s++\([^()]*+\)\Z")
_TYPES: dict[str, str] = {squeezed: type_ for type_, kind in KINDS.items() for squeezed in (type_.replace("_", ""), *kind.synonyms)}


def normalise_answer(answer: Answer, changed_files: Mapping[str, Sequence[str]]) -> Answer:
    """The answer without empty observations, those after the first MAX_OBSERVATIONS, and skip marks of events that one cites.

    `changed_files` are those that each event of the batch changed, by its tag. Other tags are removed.
    """
    observations = list[DraftObservation]()
    for draft in answer.observations[:MAX_OBSERVATIONS]:
        tags = [tag for tag in changed_files if tag in draft.events]
        certain = tags or (list(changed_files) if len(changed_files) == 1 else [])
        clean = normalise_observation(draft, [file for tag in certain for file in changed_files[tag]])
        if clean is not None:
            clean.events = tags
            observations.append(clean)
    cited = {tag for draft in observations for tag in draft.events}
    skipped = [
        Skip(event=mark.event, reason=normalise_line(mark.reason) or NOT_SAID_WHY)
        for mark in answer.skipped
        if mark.event not in cited
    ]
    return Answer(observations=observations, summary=normalise_summary(answer.summary), skipped=skipped)


def normalise_observation(draft: DraftObservation, changed: Sequence[str]) -> DraftObservation | None:
    """Clean an observation; None when it is empty. `changed` are the files that its events changed, added to those it names.

    A file that was read and modified stays in both lists, so that a search for either finds it.
    """
    fields = (draft.title, draft.subtitle, draft.narrative, draft.facts, draft.concepts, draft.files_read, draft.files_modified)
    if not any(fields):
        return None
    type_ = normalise_type(draft.type)
    clean = DraftObservation(
        type=type_,
        title=normalise_line(draft.title),
        subtitle=normalise_text(draft.subtitle),
        narrative=normalise_text(draft.narrative),
        facts=_normalise_list(draft.facts, strip_bullet),
        concepts=[concept for concept in _normalise_list(draft.concepts, _clean_concept) if normalise_type(concept, "") != type_],
        files_read=_normalise_list(draft.files_read, _clean_file),
        files_modified=_normalise_list(draft.files_modified, _clean_file),
        quote=_normalise_quote(draft.quote),
        anchors=_normalise_list(draft.anchors or find_names(_normalise_quote(draft.quote) or ""), str.strip),
        entities=_normalise_list(draft.entities, strip_bullet)[:ENTITIES_MOST],
        state=draft.state,
        closes=draft.closes[:ITEMS_MOST],
    )
    clean = _redact_draft(clean)
    fields = (clean.title, clean.subtitle, clean.narrative, clean.facts, clean.concepts, clean.files_read, clean.files_modified)
    if not any(fields):
        return None
    if changed:
        named = [_match_changed(file, changed) for file in clean.files_modified]
        clean.files_modified = list(dict.fromkeys([*named, *(file for file in map(_clean_file, changed) if file)]))[:ITEMS_MOST]
        clean.files_read = list(dict.fromkeys(_match_changed(file, changed) for file in clean.files_read))
    return clean


def merge_summaries(summaries: Sequence[DraftSummary]) -> DraftSummary | None:
    """Merge all summaries into one; None when there is none."""
    if not summaries:
        return None
    texts_by_field = {name: [normalise_text(getattr(summary, name)) for summary in summaries] for name in SUMMARY_FIELDS}
    return DraftSummary(**{name: "\n\n".join(dict.fromkeys(filter(None, texts))) or None for name, texts in texts_by_field.items()})


def normalise_summary(summary: DraftSummary | None) -> DraftSummary | None:
    """Clean a summary; None when it is empty."""
    fields = {name: _redact_text(normalise_text(getattr(summary, name, None))) for name in SUMMARY_FIELDS}
    return DraftSummary(**fields) if any(fields.values()) else None


def normalise_type(text: str, default: str = "change") -> str:
    """The type of TYPES that the text means, as "Bug fix" or "bugfix | feature" do; else `default`."""
    if not text:
        return default
    lowered = text[:200].lower()
    squeezed = "".join(_LETTERS.findall(lowered))
    if squeezed in _TYPES:
        return _TYPES[squeezed]
    if not default:
        return ""
    words = (word.replace("_", "").replace("-", "") for word in _WORDS.findall(lowered))
    return next((_TYPES[word] for word in words if word in _TYPES), default)


def normalise_text(text: str | None) -> str | None:
    """The text fit to store; None when it is empty or a placeholder."""
    if not text:
        return None
    clean = storable(text.strip()[:TEXT_MOST]).strip()
    return None if clean.lower() in _PLACEHOLDERS else clean or None


def normalise_line(text: str | None) -> str | None:
    """The text on one line, cut to a title's length."""
    line = " ".join((normalise_text(text) or "").split()) if text else ""
    return line[: TITLE_MOST - 1] + "…" if len(line) > TITLE_MOST else line or None


def _normalise_list(texts: Sequence[str | None], clean: Callable[[str], str]) -> list[str]:
    """The cleaned items without empty and repeated ones, at most ITEMS_MOST."""
    if not texts:
        return []
    items: dict[str, None] = {}
    for text in texts:
        if item := normalise_text(clean((text or "").strip()[:ITEM_MOST])):
            items[item] = None
            if len(items) == ITEMS_MOST:
                break
    return list(items)


def _redact_draft(draft: DraftObservation) -> DraftObservation:
    """Redact secrets: a model may write more than it was shown. Large answers are checked in one pass first."""
    lists = draft.facts, draft.concepts, draft.files_read, draft.files_modified, draft.anchors, draft.entities
    texts = [text for text in (draft.title, draft.subtitle, draft.narrative, draft.quote, *itertools.chain(*lists)) if text]
    if not may_change("\n".join(texts)):
        return draft
    facts, concepts, files_read, files_modified, anchors, entities = (
        [clean for item in items if (clean := _redact_text(item, ITEM_MOST))] for items in lists
    )
    return msgspec.structs.replace(
        draft,
        title=_redact_text(draft.title, TITLE_MOST),
        subtitle=_redact_text(draft.subtitle),
        narrative=_redact_text(draft.narrative),
        quote=_redact_text(draft.quote),
        anchors=anchors,
        entities=entities,
        facts=facts,
        concepts=concepts,
        files_read=files_read,
        files_modified=files_modified,
    )


def _normalise_quote(text: str | None) -> str | None:
    """The quote on one line and of its greatest length; it is cut between words."""
    return shorten(text, MAX_QUOTE) if text and text.strip() else None


def _redact_text(text: str | None, max_chars: int = TEXT_MOST) -> str | None:
    return redact(text)[0].strip()[:max_chars].rstrip() or None if text else None


def _clean_concept(text: str) -> str:
    """`how-it-works: because ...` is how-it-works."""
    return strip_bullet(text).partition(":")[0].strip("`\"'* \t")


def _clean_file(text: str) -> str:
    bare = _REMARK.sub("", strip_bullet(text).strip()).strip("`\"'")
    return bare.strip().removeprefix("./")


def _match_changed(file: str, changed: Sequence[str]) -> str:
    """The relative path under which the event changed a file that the answer names by its absolute path."""
    if not re.match(r"[/\\~]|[A-Za-z]:", file):
        return file
    return next((path for path in changed if file.replace("\\", "/").endswith("/" + path.replace("\\", "/"))), file)
