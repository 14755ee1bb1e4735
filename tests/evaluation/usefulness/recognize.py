"""Recognizes the labelled facts and false statements in what a server remembers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tests.evaluation.usefulness.corpus import Fact, FalseStatement

_CHANGE_TYPES = {"change", "bugfix", "feature", "refactor"}
_SAYS_THAT_IT_IS_OVER = re.compile(
    r"\b(?:pass(?:es|ed|ing)?|fixed|solved|resolved|green|behoben|gelöst|grün|besteht|läuft (?:jetzt|wieder)|"
    r"corrigée?s?|résolue?s?|verte?s?|passent?)\b"
)
_LINE = re.compile(r"\W{0,4}#(\d+)\b")
_TURN_LINE = re.compile(r"#(\d+) turn ")


class RememberedItem(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation or a summary, as GET /v1/observations lists it. Older servers leave out the last fields."""

    id: str
    number: int
    type: str = ""
    observation_kind: str = "observation"
    server_session_id: str | None = None
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    summary: dict[str, str | None] | None = None
    state: str | None = None
    closed_by: object = None

    @property
    def is_summary(self) -> bool:
        return self.observation_kind == "summary"

    @property
    def text(self) -> str:
        """Title, subtitle, narrative, facts and files, in lower case and with single spaces."""
        lists = [*(self.facts or ()), *(self.files_read or ()), *(self.files_modified or ())]
        return simplify("\n".join([self.title or "", self.subtitle or "", self.narrative or "", *lists]))


def simplify(text: str) -> str:
    """Lower case, with single spaces."""
    return " ".join(text.split()).casefold()


def has_words(text: str, words: Sequence[Sequence[str]]) -> bool:
    """Whether a simplified text has at least one alternative of each group."""
    return all(any(simplify(alternative) in text for alternative in group) for group in words)


def keeps(item: RememberedItem, fact: Fact) -> bool:
    """Whether the item has the fact's words, and names one of its anchors."""
    text = item.text
    return has_words(text, fact.words) and (not fact.anchors or any(simplify(anchor) in text for anchor in fact.anchors))


def find_wrong(item: RememberedItem, statement: FalseStatement) -> str:
    """What the item says of the statement, if that is wrong; empty when it does not say it, or rightly."""
    if item.is_summary:
        return next((line for state, line in _summary_lines(item) if _is_wrong_line(state, line, statement)), "")
    text = item.text
    if not has_words(text, statement.words):
        return ""
    is_wrong = {
        "always": True,
        "open": item.state == "open"
        or (item.state is None and item.type == "discovery" and not _SAYS_THAT_IT_IS_OVER.search(text)),
        "done": item.state != "open" and item.type in _CHANGE_TYPES,
    }[statement.wrong_when]
    return (item.title or text) if is_wrong else ""


def read_turn_lines(indexes: Iterable[str]) -> list[RememberedItem]:
    """The lines of turns in these indexes, of each turn the longest."""
    longest: dict[int, str] = {}
    for line in (line for index in indexes for line in index.splitlines()):
        if (found := _TURN_LINE.match(line)) and len(line) > len(longest.get(int(found[1]), "")):
            longest[int(found[1])] = line
    return [RememberedItem(id=f"#{number}", number=number, type="turn", narrative=line) for number, line in longest.items()]


def read_numbers(text: str) -> list[int]:
    """The numbers of the lines that stand for an observation, a turn or a summary (`#12 ...`), in their order."""
    return [int(found[1]) for line in text.splitlines() if (found := _LINE.match(line))]


def _summary_lines(item: RememberedItem) -> Iterator[tuple[str, str]]:
    """Each line of what is next, which is open, and of what is completed, which is done."""
    for field, state in (("next_steps", "open"), ("nextSteps", "open"), ("completed", "done")):
        yield from ((state, line) for line in _non_empty_lines((item.summary or {}).get(field)))


def _non_empty_lines(text: str | None) -> Iterable[str]:
    return (line for line in (text or "").splitlines() if line.strip())


def _is_wrong_line(state: str, line: str, statement: FalseStatement) -> bool:
    return statement.wrong_when in {"always", state} and has_words(simplify(line), statement.words)
