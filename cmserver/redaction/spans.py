"""Spans of a text that must not be stored, and their replacement by marks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

CONTEXT = "context"
"""The kind of what tools insert into a conversation. The user did not write it, so no mark replaces it."""


class Span(NamedTuple):
    """`text[start:end]` must not be stored; `kind` is named in the mark."""

    start: int
    end: int
    kind: str

    @property
    def mark(self) -> str:
        return "" if self.kind == CONTEXT else f"[redacted:{self.kind}]"


def merge(spans: Iterable[Span]) -> list[Span]:
    """The spans sorted, with overlapping ones merged. A merged span has the kind of the one that was given first."""
    ranked = sorted((span.start, rank, span) for rank, span in enumerate(spans))
    merged: list[Span] = []
    best_rank = 0
    for _, rank, span in ranked:
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Span(last.start, max(last.end, span.end), last.kind if best_rank < rank else span.kind)
            best_rank = min(best_rank, rank)
        else:
            merged.append(span)
            best_rank = rank
    return merged


def render(text: str, spans: Iterable[Span], start: int = 0, end: int | None = None) -> str:
    """`text[start:end]` with marks for the (merged) spans. A span that crosses `start` or `end` is replaced whole."""
    end = len(text) if end is None else end
    pieces: list[str] = []
    position = start
    for span in spans:
        if span.end > start and span.start < end:
            pieces.append(text[position : max(position, span.start)])
            pieces.append(span.mark)
            position = span.end
    pieces.append(text[position:end])
    return "".join(pieces)


def render_items(items: list[str], spans: Iterable[Span]) -> list[str]:
    """The items with marks for the (merged) spans of their joined lines, each mark in the item where its span begins."""
    remaining = iter(spans)
    span = next(remaining, None)
    rendered: list[str] = []
    start = 0
    for item in items:
        end = start + len(item)
        pieces: list[str] = []
        position = start
        while span is not None and span.start <= end:
            if span.start >= start:
                pieces.append(item[position - start : span.start - start])
                pieces.append(span.mark)
            position = min(span.end, end)
            if span.end > end:
                break
            span = next(remaining, None)
        pieces.append(item[position - start :])
        rendered.append("".join(pieces))
        start = end + 1
    return rendered
