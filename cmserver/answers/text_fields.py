"""Parses what models write as plain text in XML and JSON alike: event references, skip marks, lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Literal

from cmserver.answers.vocabulary import LIST_FIELDS
from cmserver.base.text import BULLET, strip_bullet
from cmserver.models.providers.model import DraftObservation

_NUMBER = r"(?:e(?:vents?)?[\s_#:-]{0,3})?(\d{1,9})"
_REFERENCE = re.compile(
    rf"(?<![\w.])(?P<e>e(?:vents?)?[\s_#:-]{{0,3}})?(\d{{1,9}})(?:\s{{0,3}}(?:-|\u2013|\u2014|\.\.\.?|\u2026|to|through)\s{{0,3}}{_NUMBER})?(?!\w)",
    re.IGNORECASE,
)
_LEADING_REFERENCES = re.compile(
    r"[\s\[(]*+(?>(?:e(?:vents?)?[\s_#-]{0,3}\d{1,9}(?!\w)(?>(?:[\s,;&\])]|and\b|to\b|-|\u2013|\.\.)*))+)[:.=,\u2013\u2014-]*+",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;\n\r]")
_INNER_TAG = re.compile(r"\s*+<([A-Za-z][\w-]*+)[^<>]*+>")


def parse_event_references(references: Iterable[str], batch_size: int) -> set[int]:
    """Indexes (from 0) of the referenced events: e1, E1, [e1], e1-e4; bare numbers where no `e` is written."""
    texts = [text for text in references if text]
    if not texts:
        return set()
    starts = [0] * (batch_size + 1)
    for text in texts:
        matches = list(_REFERENCE.finditer(text))
        for match in [match for match in matches if match["e"]] or matches:
            first, last = int(match[2]), int(match[3] or match[2])
            if 1 <= first <= min(last, batch_size):
                starts[first - 1] += 1
                starts[min(last, batch_size)] -= 1
    return {index for index, depth in enumerate(accumulate(starts[:batch_size])) if depth}


def read_state(texts: Iterable[str]) -> Literal["open"] | None:
    """`open` for what is marked as still to be done."""
    return "open" if any(text.strip().lower() == "open" for text in texts) else None


def read_numbers(texts: Iterable[str]) -> list[int]:
    """The numbers of observations in "#12, #15"; none in a text that holds anything else."""
    lists = (text for text in texts if re.fullmatch(r"\s*#?\d{1,15}(?:[\s,;]{1,5}#?\d{1,15}){0,99}\s*", text))
    return list(dict.fromkeys(int(number) for text in lists for number in re.findall(r"\d+", text)))


def has_event_reference(text: str) -> bool:
    return any(match["e"] for match in _REFERENCE.finditer(text))


def split_skip_mark(text: str) -> tuple[str, str]:
    """Split `e3: only looked` into references and reason."""
    match = _LEADING_REFERENCES.match(text)
    return (match[0], text[match.end() :].strip()) if match else ("", text.strip())


def split_items(name: str, text: str) -> list[str]:
    """Split a list that was written as text: child tags of any name, bullets, lines, or commas (not in facts)."""
    text = text.strip()
    if not text:
        return []
    if (tagged := _INNER_TAG.match(text)) and f"</{tagged[1]}>" in text:
        return re.split(rf"</?{re.escape(tagged[1])}(?>(?:\s[^<>]*+)?)/?>", text)
    if text[0] == "[" and text[-1] == "]":
        text = text[1:-1]
        return [item.strip().strip("\"'") for item in re.split(r"[\"']\s*+,\s*+[\"']" if '"' in text or "'" in text else ",", text)]
    if name != "facts":
        return [strip_bullet(item) for item in _SEPARATOR.split(text)]
    lines = text.splitlines()
    if not any(BULLET.match(line) for line in lines):
        return lines
    items: list[list[str]] = []
    for line in lines:
        if not items or BULLET.match(line):
            items.append([strip_bullet(line)])
        else:
            items[-1].append(line.strip())
    return ["\n".join(lines) for lines in items]


def join_distinct(texts: Iterable[str] | None, separator: str = "\n\n") -> str | None:
    """Join the distinct, non-empty texts; None when there are none."""
    return separator.join(dict.fromkeys(clean for text in texts or () if (clean := text.strip()))) or None


def build_observation(fields: Mapping[str, list[str]]) -> DraftObservation:
    """The observation of the texts that were found for each of its fields."""
    return DraftObservation(
        type=join_distinct(fields.get("type"), " ") or "",
        title=join_distinct(fields.get("title"), "; "),
        subtitle=join_distinct(fields.get("subtitle"), "; "),
        narrative=join_distinct(fields.get("narrative")),
        quote=join_distinct(fields.get("quote")),
        state=read_state(fields.get("state", [])),
        closes=read_numbers(fields.get("closes", [])),
        **{name: fields[name] for name in (*LIST_FIELDS, "events") if name in fields},
    )
