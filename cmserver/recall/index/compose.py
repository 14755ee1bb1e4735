"""From what is known to the text: chosen by usefulness, within both limits, told in the order of time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.recall.index.choose import Chooser, Limits
from cmserver.recall.index.layout import MOST_CHARS, Occasional, frame_chars, full_line, index_text, line, summary_block
from cmserver.recall.index.model import Choice, Details, Judged, Row, SummaryText
from cmserver.recall.index.usefulness import WEIGHTS, Situation, Weights, judge
from cmserver.recall.model import Shape


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """All that an index is made of. `moments` are those of the project's newest; `news` is the summary that is told in full."""

    rows: Sequence[Row]
    moments: Sequence[datetime]
    news: Row | None = None
    news_text: SummaryText | None = None
    details: Mapping[int, Details] = {}
    """Of what is told in full lines where there is room: the session's own work, after its context was compacted."""
    shown: Collection[int] = ()
    changed_files: Sequence[str] = ()
    continued: UUID | None = None


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """The text, empty when there is nothing to tell, and what is in it."""

    text: str
    choice: Choice
    news: Judged | None


def compose(about: Occasional, shape: Shape, material: Material, weights: Weights = WEIGHTS) -> Composed:
    """The index, never longer than MOST_CHARS nor than the tokens of the shape."""
    situation = Situation(material.moments, material.changed_files, material.continued)
    room = min(MOST_CHARS, shape.tokens * 4) - frame_chars(about)
    news, block = _news(material, situation, weights, room // 3)
    summaries = shape.summaries * (2 if about.reason == "compact" else 1) - (1 if news else 0)
    limits = Limits(chars=room - len(block), observations=shape.observations, summaries=summaries)
    chooser = Chooser(limits, shown=material.shown)
    judged = [judge(row, situation, weights) for row in material.rows if news is None or row.number != news.row.number]
    if own := [one for one in judged if one.row.number in material.details]:
        chooser.offer(
            own, lambda one: full_line(one, material.details.get(one.row.number)), chars=limits.chars * 2 // 3, is_full=True
        )
    chooser.offer(judged, line)
    choice = chooser.choice()
    told = [*(one.judged.row for one in choice.lines), *([news.row] if news else [])]
    text = (
        index_text(about, choice.lines, block, sum(one.read_tokens for one in told), sum(one.discovery_tokens for one in told))
        if told
        else ""
    )
    return Composed(text=text, choice=choice, news=news)


def _news(material: Material, situation: Situation, weights: Weights, most: int) -> tuple[Judged | None, str]:
    """The summary that is told in full, where there is room for it."""
    if material.news is None or material.news_text is None or material.news.number in material.shown:
        return None, ""
    block = summary_block(material.news, material.news_text, most)
    return (judge(material.news, situation, weights), block) if block else (None, "")
