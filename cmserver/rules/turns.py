"""Makes few observations of a whole turn: the work, with what the agent concluded from it, and what is left open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from cmserver.base.text import shorten
from cmserver.base.words import content_words
from cmserver.providers.model import DraftObservation
from cmserver.reading.conclusions import FEW_WORDS, choose_quotes, is_vague, matches
from cmserver.reading.model import Conclusion
from cmserver.reading.text import MAX_LAID_DOWN, MAX_TITLE, capitalize

_MAX_NARRATIVE = 2_000
_MAX_OPEN_ENDS = 10
_MAX_FACTS = 10
_MAX_FILES = 20
_MERGED_TYPES = ("bugfix", "feature", "refactor", "decision", "change", "discovery")
"""The type of a merged observation is the first of these that one of its parts has."""
_CLAUSE_END = re.compile(
    r"(?<=\w)(?:[;:] | [\u2014\u2013-] |\. |"
    r", (?:so|which|because|since|and|but|as|while|weil|da|denn|und|aber|sodass|damit|car|ce qui|et|mais|donc|puisque)\b)"
)
_REQUEST_END = re.compile(r"(?<=\w)[.,;:!?]+\s+|[。、！？\n]|\s[\u2013\u2014-]\s|[?!.]$")  # noqa: RUF001 - Japanese
_MAX_REQUEST, _MIN_SYMPTOM = 600, 12
_LABEL = re.compile(r"^[^\s`:][^`:]{1,40}? ?: +(?=\S)")


class Turn(msgspec.Struct, kw_only=True):
    """What happened in one turn of the agent, and what it said in the end."""

    tag: str
    """Of the event of its last message."""
    request: str = ""
    """What the user typed at its beginning."""
    files_read: list[str] = []
    conclusions: list[Conclusion]
    commits: list[DraftObservation]
    work: list[DraftObservation]
    """Changes, findings and deeds that no commit sums up."""
    unfixed: list[DraftObservation]
    """Checks that fail at its end."""


def gather_turn(turn: Turn) -> list[DraftObservation]:
    """The observations of a turn: one for its work or one for each commit, and one for each open end."""
    settled = [conclusion for conclusion in turn.conclusions if not conclusion.is_open and conclusion.kind != "rejected"]
    rejected = [draft_rejected(conclusion, turn.tag) for conclusion in turn.conclusions if conclusion.kind == "rejected"]
    named = [
        conclusion
        for conclusion in turn.conclusions
        if conclusion.is_open and (conclusion.is_listed or not is_vague(conclusion.text))
    ]
    open_ends = [draft_open_end(conclusion, turn.tag) for conclusion in named[:_MAX_OPEN_ENDS]]
    main: list[DraftObservation] = list(turn.commits)
    failed: list[DraftObservation] = []
    if not main:
        done = [draft for draft in turn.work if draft.state != "open"]
        failed = [draft for draft in turn.work if draft.state == "open"]
        main = [_merge(done)] if done else []
    for draft in turn.work if turn.commits else []:
        _absorb(_nearest(turn.commits, draft.files_modified, []), draft)
    beside = [conclusion for conclusion in settled if turn.commits and _is_beside(conclusion, turn.commits)]
    if not main and settled:
        main = [DraftObservation(type=_type_of(settled[0]), files_read=turn.files_read[:_MAX_FILES])]
    for draft, conclusions in _assign(main, settled):
        _add_conclusions(draft, conclusions, turn, keeps_title=bool(turn.commits))
    apart: list[DraftObservation] = []
    if beside:
        apart.append(DraftObservation(type=_type_of(beside[0])))
        _add_conclusions(apart[0], beside, turn, keeps_title=False)
    for draft in [*failed, *turn.unfixed]:
        explanation = next((end for end in open_ends if any(name in (end.quote or "") for name in draft.anchors)), None)
        if explanation is None:
            apart.append(draft)
        else:
            _absorb(explanation, draft)
    changed = list(dict.fromkeys(path for draft in main for path in draft.files_modified))
    for draft in open_ends:
        draft.files_read = [
            path for path in [*changed, *turn.files_read] if path.rsplit("/", 1)[-1] in (draft.quote or "")
        ] or changed[:3]
    return [*main, *rejected, *apart, *open_ends]


def _type_of(conclusion: Conclusion) -> str:
    return "decision" if conclusion.kind == "decision" else "discovery"


def _is_beside(conclusion: Conclusion, commits: Sequence[DraftObservation]) -> bool:
    """Whether a cause, finding or decision has nothing to do with what was committed."""
    if conclusion.kind not in {"cause", "decision"}:
        return False
    texts = [text for draft in commits for text in [draft.title or "", draft.narrative or "", *draft.facts, *draft.files_modified]]
    return not content_words(conclusion.text) & content_words(" ".join(texts))


def draft_rejected(conclusion: Conclusion, tag: str) -> DraftObservation:
    """A way that was tried or weighed and not taken, in the agent's words. No part of the work: it would read as done."""
    return DraftObservation(
        type="decision",
        title=shorten(f"Not taken: {_LABEL.sub('', conclusion.text)}", MAX_TITLE),
        narrative=conclusion.text,
        concepts=["trade-off"],
        events=[tag],
        quote=conclusion.text,
        anchors=anchors_of([conclusion]),
    )


def draft_open_end(conclusion: Conclusion, tag: str) -> DraftObservation:
    """Something not done yet, or to be done next, in the agent's words."""
    title = _open_clause(conclusion.point if len(content_words(conclusion.point)) > FEW_WORDS else conclusion.text)
    return DraftObservation(
        type="discovery",
        title=title,
        narrative=conclusion.text if conclusion.text.rstrip(".") != title else None,
        concepts=["gotcha"],
        events=[tag],
        state="open",
        quote=conclusion.text,
        anchors=anchors_of([conclusion]),
    )


def conclude_report(draft: DraftObservation, conclusions: Sequence[Conclusion], tag: str) -> None:
    """Give a sub-agent's draft the conclusions of its report."""
    if conclusions:
        _add_conclusions(draft, conclusions, Turn(tag=tag, conclusions=[], commits=[], work=[], unfixed=[]), keeps_title=False)


def anchors_of(conclusions: Iterable[Conclusion]) -> list[str]:
    return list(dict.fromkeys(name for conclusion in conclusions for name in [*conclusion.files, *conclusion.identifiers]))[
        :_MAX_FILES
    ]


def _merge(drafts: Sequence[DraftObservation]) -> DraftObservation:
    main = max(
        drafts,
        key=lambda draft: (-_MERGED_TYPES.index(draft.type) if draft.type in _MERGED_TYPES else 1, len(draft.files_modified)),
    )
    for draft in drafts:
        if draft is not main:
            _absorb(main, draft)
    return main


def _absorb(main: DraftObservation, other: DraftObservation) -> None:
    """Add what another draft of the same piece of work knows."""
    if other.title and other.title not in (main.title or ""):
        main.facts.append(shorten(other.title, 160))
    main.facts = list(dict.fromkeys([*main.facts, *other.facts]))[:_MAX_FACTS]
    if other.type == "bugfix" and main.type == "change":
        main.type = "bugfix"
    main.concepts = list(dict.fromkeys([*main.concepts, *other.concepts]))
    main.files_read = list(dict.fromkeys([*main.files_read, *other.files_read]))[:_MAX_FILES]
    main.files_modified = list(dict.fromkeys([*main.files_modified, *other.files_modified]))
    main.events = [*main.events, *(tag for tag in other.events if tag not in main.events)]
    main.closes = list(dict.fromkeys([*main.closes, *other.closes]))


def _assign(
    drafts: Sequence[DraftObservation], conclusions: Sequence[Conclusion]
) -> list[tuple[DraftObservation, list[Conclusion]]]:
    """Each conclusion to the draft whose files it names, else to the last one."""
    assigned: list[tuple[DraftObservation, list[Conclusion]]] = [(draft, []) for draft in drafts]
    for conclusion in conclusions:
        nearest = _nearest(drafts, conclusion.files, conclusion.identifiers)
        next(group for draft, group in assigned if draft is nearest).append(conclusion)
    return [(draft, group) for draft, group in assigned if group]


def _nearest(drafts: Sequence[DraftObservation], files: Sequence[str], identifiers: Sequence[str]) -> DraftObservation:
    def nearness(draft: DraftObservation) -> int:
        names = {path.rsplit("/", 1)[-1] for path in draft.files_modified}
        text = " ".join(filter(None, [draft.title, draft.narrative, *draft.facts]))
        return sum(path.rsplit("/", 1)[-1] in names for path in files) + sum(name in text for name in identifiers)

    return max(reversed(drafts), key=nearness)


def _add_conclusions(draft: DraftObservation, conclusions: Sequence[Conclusion], turn: Turn, *, keeps_title: bool) -> None:
    """Put the quotes in front of what the rules know, and let the first one that says the point be the title."""
    known = draft.narrative or ""
    quotes = choose_quotes([conclusion for conclusion in conclusions if conclusion.text not in known], _MAX_NARRATIVE)
    if not quotes:
        return
    point = _point(quotes, is_fix=draft.type == "bugfix")
    if not keeps_title:
        if draft.title:
            draft.facts = [shorten(draft.title, 200), *draft.facts][:_MAX_FACTS]
        draft.title = _title(point, turn.request)
    draft.narrative = "\n".join(filter(None, [" ".join(quote.text for quote in quotes), shorten(known, 600)]))
    draft.quote = draft.quote or point.text
    draft.anchors = list(dict.fromkeys([*draft.anchors, *anchors_of(quotes)]))[:_MAX_FILES]
    kinds = {quote.kind for quote in quotes}
    concepts = {"cause": "problem-solution", "decision": "trade-off", "limitation": "gotcha"}
    draft.concepts = list(dict.fromkeys([*draft.concepts, *(concepts[kind] for kind in concepts if kind in kinds)]))
    if turn.tag not in draft.events:
        draft.events.append(turn.tag)


def _point(quotes: Sequence[Conclusion], *, is_fix: bool) -> Conclusion:
    """The sentence that says most: of a fix its cause, else what was decided or done, else the first."""
    order = ["cause", "change", "decision", "finding"] if is_fix else ["change", "decision", "cause", "finding"]
    for kind in order:
        for quote in quotes:
            if quote.kind == kind and len(quote.text) >= 30 and _makes_title(quote.text):
                return quote
    return next((quote for quote in quotes if _makes_title(quote.text)), quotes[0])


def _title(point: Conclusion, request: str) -> str:
    """The point; a cause behind the symptom that the user told, and what has no subject behind what the user asked about."""
    title = _first_clause(point.text)
    if point.kind != "cause" and not matches("refers_back", title):
        return title
    words = content_words(point.text)
    clauses = [
        clause for part in _REQUEST_END.split(request[:_MAX_REQUEST]) if _MIN_SYMPTOM <= len(clause := part.strip()) <= MAX_TITLE
    ]
    symptom = max(clauses, key=lambda clause: len(content_words(clause) & words), default="")
    shared, own = content_words(symptom) & words, content_words(symptom)
    if not shared or len(shared) * 2 > len(own) > 1:
        return title
    return shorten(capitalize(f"{shorten(symptom, MAX_TITLE // 2 + 10)}: {title}"), MAX_LAID_DOWN)


def _makes_title(text: str) -> bool:
    return not text.endswith(":") and not any(matches(name, text) for name in ("guess", "refuted", "hedge"))


def _open_clause(text: str) -> str:
    """The clause that says what is open, where a long sentence begins with another."""
    ends = [match for match in _CLAUSE_END.finditer(text) if len(text) > MAX_TITLE]
    for end in ends[:1]:
        first, rest = text[: end.start()], text[end.end() :]
        if not matches("open", first) and matches("open", rest) and len(content_words(rest)) > FEW_WORDS:
            return _first_clause(rest.strip())
    return _first_clause(text)


def _first_clause(text: str) -> str:
    """The first clause of a sentence, as a title."""
    line = _LABEL.sub("", " ".join(text.split()))
    if len(line) > MAX_TITLE:
        ends = [match.start() for match in _CLAUSE_END.finditer(line) if MAX_TITLE // 2 <= match.start() <= MAX_TITLE]
        line = line[: ends[-1]] if ends else line
    return capitalize(shorten(line, MAX_TITLE).rstrip(" .,;:"))
