"""The corpus of coding agents' history in this repository: six months of one product, and what one asks about it later.

`sessions/sNN.json` is what agents have recorded, `questions.json` is what is asked. Nobody who tunes the ranking reads the
questions of the half `test`.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from tests.bench.recall.corpus import HALVES, Corpus, Document, Question, Session, broken, span

HERE = Path(__file__).parents[1] / "history"
PROJECT = "github.com/kerbline/kerbline"
KINDS = {
    "identifier": "names an identifier, path, error code, version or flag, as people type it",
    "paraphrase": "asks in words that the document does not have",
    "why": "asks for the reason of a decision, a change or a behaviour",
    "when": "asks when something happened, or in what order",
    "file": "asks which file or place something is in",
    "latest": "asks for the present state of what has changed over time; the states before are wrong",
    "two-hop": "needs two observations of different sessions",
    "unanswerable": "asks for what the history never touches, a third of them near to what it does",
}
_SUMMARY_AFTER_MINUTES = 5
DOCUMENTS_AT_LEAST, SESSIONS_AT_LEAST, QUESTIONS_AT_LEAST, DAYS_AT_LEAST = 400, 30, 150, 183


class _Noted(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    minute: float
    type: str
    title: str
    subtitle: str | None = None
    narrative: str
    facts: list[str]
    concepts: list[str]
    files_read: list[str] = []
    files_modified: list[str] = []


class _Summed(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: str
    investigated: str
    learned: str
    completed: str
    next_steps: str


class _Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session: str
    started: datetime
    agent: str
    prompts: list[str]
    observations: list[_Noted]
    summary: _Summed


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    questions: list[dict[str, object]]


def load(path: Path | None = None) -> Corpus:
    """The folder with `sessions/` and `questions.json`; a corpus that is being written may have no questions yet."""
    folder = path or HERE
    recorded = [msgspec.json.decode(one.read_bytes(), type=_Recorded) for one in sorted((folder / "sessions").glob("*.json"))]
    asked = folder / "questions.json"
    questions = msgspec.json.decode(asked.read_bytes(), type=_Asked).questions if asked.exists() else []
    return Corpus(
        name="history",
        sessions=[
            Session(name=one.session, project=PROJECT, agent=one.agent, started_at=one.started, prompts=one.prompts)
            for one in recorded
        ],
        documents=[document for one in recorded for document in _documents(one)],
        questions=[msgspec.convert({**_renamed(one), "project": PROJECT}, Question) for one in questions],
    )


def faults(corpus: Corpus) -> list[str]:
    """What keeps it from being the corpus that figures are published of."""
    found = broken(corpus)
    counted = {
        "documents": (len(corpus.documents), DOCUMENTS_AT_LEAST),
        "sessions": (len(corpus.sessions), SESSIONS_AT_LEAST),
        "questions": (len(corpus.questions), QUESTIONS_AT_LEAST),
        "days": (span(corpus).days, DAYS_AT_LEAST),
    }
    found += [f"{count} {name}, which is less than {least}" for name, (count, least) in counted.items() if count < least]
    by_kind = {half: Counter(one.kind for one in corpus.of_half(half)) for half in HALVES}
    for kind in sorted({*KINDS, *(one.kind for one in corpus.questions)}):
        development, test = (by_kind[half][kind] for half in HALVES)
        if kind not in KINDS:
            found.append(f"{kind} is no kind of question")
        elif not development or not test:
            found.append(f"no question {kind} in one of the halves")
        elif abs(development - test) > 1:
            found.append(f"{kind}: {development} in one half and {test} in the other")
    for one in corpus.questions:
        if one.is_answerable == (one.kind == "unanswerable"):
            found.append(f"{one.id} is {one.kind}, but {'has' if one.is_answerable else 'has no'} documents that answer it")
        if one.kind == "two-hop" and len(one.expects) < 2:
            found.append(f"{one.id} is of two hops, but needs one fact")
    return found


def _documents(one: _Recorded) -> list[Document]:
    noted = [
        Document(
            key=each.key,
            session=one.session,
            created_at=one.started + timedelta(minutes=each.minute),
            type=each.type,
            title=each.title,
            subtitle=each.subtitle,
            narrative=each.narrative,
            facts=each.facts,
            concepts=each.concepts,
            files_read=each.files_read,
            files_modified=each.files_modified,
        )
        for each in one.observations
    ]
    summed = one.summary
    last = max(each.minute for each in one.observations) + _SUMMARY_AFTER_MINUTES
    summary = Document(
        key=f"{one.session}-summary",
        session=one.session,
        created_at=one.started + timedelta(minutes=last),
        title=summed.request[:200],
        narrative=f"{summed.investigated}\n\n{summed.learned}\n\n{summed.completed}\n\n{summed.next_steps}",
        is_summary=True,
    )
    return [*noted, summary]


def _renamed(one: dict[str, object]) -> dict[str, object]:
    """`question` is what we call the text."""
    return {**one, "text": one.get("question", "")}
