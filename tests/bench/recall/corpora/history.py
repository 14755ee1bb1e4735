"""The corpus of coding agents' history in this repository: six months of one product, and what one asks about it later.

`sessions/sNN.json` is what agents have recorded, `questions.json` is what is asked, `hard.json` is what is hard to find, and
`scripts.json` is a small memory of another project in Chinese, Japanese and Thai. Nobody who tunes the ranking reads the questions
of the half `test`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from tests.bench.recall.corpus import HALVES, Corpus, Document, Question, Session, broken, span

HERE = Path(__file__).parents[1] / "history"
PROJECT = "github.com/kerbline/kerbline"
SCRIPTS_PROJECT = "github.com/lanternbox/lanternbox"
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
HARD_KINDS = {
    "hard-paraphrase": "shares no content word with the title, text or facts of a document that answers it",
    "hard-two-hop": "needs two observations of different sessions, and often does not name what joins them",
    "hard-latest": "asks for the present state, often in the words of a state before; the states before are wrong",
    "hard-name": "has a name half remembered: misspelt or partial identifiers, files, flags and error codes",
    "hard-language": "is in German, French or Spanish, as people type it; the documents are in English",
}
HARD_QUESTIONS_OF_A_KIND = 40
SCRIPT_KINDS = {
    "script-chinese": "in Chinese, without spaces between words",
    "script-japanese": "in Japanese, without spaces between words",
    "script-thai": "in Thai, without spaces between words",
    "script-mixed": "identifiers or words in Latin letters next to one of these scripts",
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


class _Summarised(_Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    summary: _Summed


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    questions: list[dict[str, object]]
    sessions: list[_Recorded] = []


def load(path: Path | None = None) -> Corpus:
    """The folder with `sessions/` and `questions.json`; a corpus that is being written may have no questions yet."""
    folder = path or HERE
    recorded = [msgspec.json.decode(one.read_bytes(), type=_Summarised) for one in sorted((folder / "sessions").glob("*.json"))]
    asked = folder / "questions.json"
    return _build_corpus("history", PROJECT, recorded, _read_questions(asked, PROJECT) if asked.exists() else [])


def load_hard(path: Path | None = None) -> Corpus:
    """The same documents with the questions of `hard.json`: all of them of `HARD_KINDS`, none of them among those of `load`."""
    folder = path or HERE
    return msgspec.structs.replace(load(folder), name="history-hard", questions=_read_questions(folder / "hard.json", PROJECT))


def load_scripts(path: Path | None = None) -> Corpus:
    """A small memory of another project in scripts without spaces; its sessions and questions are both in `scripts.json`."""
    file = (path or HERE) / "scripts.json"
    recorded = msgspec.json.decode(file.read_bytes(), type=_Asked).sessions
    return _build_corpus("scripts", SCRIPTS_PROJECT, recorded, _read_questions(file, SCRIPTS_PROJECT))


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


def list_hard_faults(corpus: Corpus) -> list[str]:
    """What keeps the hard questions from being those that figures are published of."""
    found = broken(corpus)
    for half in HALVES:
        counted = Counter(question.kind for question in corpus.of_half(half))
        wrong = sorted(counted.keys() - HARD_KINDS.keys())
        found += [f"{kind} is no kind of hard question" for kind in wrong]
        expected = HARD_QUESTIONS_OF_A_KIND // len(HALVES)
        found += [f"{counted[kind]} questions {kind} in {half}, not {expected}" for kind in HARD_KINDS if counted[kind] != expected]
    session_by_key = {document.key: document.session for document in corpus.documents}
    for question in corpus.questions:
        facts = [{session_by_key.get(key) for key in group} for group in question.expects]
        if question.kind != "hard-two-hop" and len(facts) != 1:
            found.append(f"{question.id} needs {len(facts)} facts, not one")
        if question.kind == "hard-two-hop" and (len(facts) != 2 or facts[0] & facts[1]):
            found.append(f"{question.id} does not need two facts of different sessions")
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
    if not isinstance(one, _Summarised):
        return noted
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


def _build_corpus(name: str, project: str, recorded: Sequence[_Recorded], questions: list[Question]) -> Corpus:
    return Corpus(
        name=name,
        sessions=[
            Session(name=one.session, project=project, agent=one.agent, started_at=one.started, prompts=one.prompts)
            for one in recorded
        ],
        documents=[document for one in recorded for document in _documents(one)],
        questions=questions,
    )


def _read_questions(path: Path, project: str) -> list[Question]:
    asked = msgspec.json.decode(path.read_bytes(), type=_Asked).questions
    return [msgspec.convert({**_renamed(question), "project": project}, Question) for question in asked]


def _renamed(one: dict[str, object]) -> dict[str, object]:
    """`question` is what we call the text."""
    return {**one, "text": one.get("question", "")}
