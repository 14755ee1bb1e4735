"""What search is measured on: documents in sessions, and questions with the documents that answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

Half = Literal["development", "test"]
HALVES: tuple[Half, ...] = Half.__args__


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One observation. `key` is its own in the whole corpus, `session` names one of the corpus's sessions."""

    key: str
    session: str
    created_at: datetime
    type: str = "discovery"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    content: str | None = None
    facts: list[str] = []
    concepts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    is_summary: bool = False

    @property
    def line(self) -> str:
        """What a person knows it by."""
        return self.title or " ".join((self.content or self.narrative or self.key).split())[:100]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """`project` is what its memory is apart from: a corpus of several histories has one for each."""

    name: str
    project: str
    agent: str
    started_at: datetime
    prompts: list[str] = []


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`expects` has a group for each fact that is needed; any document of a group states it. Without a group nothing answers it."""

    id: str
    half: Half
    kind: str
    text: str
    expects: list[list[str]]
    project: str = ""

    @property
    def is_answerable(self) -> bool:
        return bool(self.expects)


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sessions: list[Session]
    documents: list[Document]
    questions: list[Question]

    @property
    def projects(self) -> list[str]:
        return list(dict.fromkeys(one.project for one in self.sessions))

    def of_half(self, half: Half) -> list[Question]:
        return [one for one in self.questions if one.half == half]


def limited(corpus: Corpus, questions: int | None) -> Corpus:
    """Only so many questions of each half, evenly over their kinds, and only the projects that they are about."""
    if questions is None:
        return corpus
    kept = [one for half in HALVES for one in sorted(corpus.of_half(half), key=_Turns(corpus.of_half(half)))[:questions]]
    about = {one.project for one in kept}
    sessions = [one for one in corpus.sessions if one.project in about]
    names = {one.name for one in sessions}
    documents = [one for one in corpus.documents if one.session in names]
    return msgspec.structs.replace(corpus, sessions=sessions, documents=documents, questions=kept)


class _Turns:
    """The first question of each kind, then the second of each."""

    def __init__(self, questions: Sequence[Question]) -> None:
        seen: Counter[str] = Counter()
        self._turn: dict[str, int] = {}
        for one in questions:
            self._turn[one.id] = seen[one.kind]
            seen[one.kind] += 1

    def __call__(self, one: Question) -> int:
        return self._turn[one.id]


def broken(corpus: Corpus) -> list[str]:
    """What is wrong with any corpus: what is named twice, or not there."""
    keys = {one.key for one in corpus.documents}
    sessions = {one.name for one in corpus.sessions}
    found = [f"two documents are {key}" for key in _twice(one.key for one in corpus.documents)]
    found += [f"two sessions are {name}" for name in _twice(one.name for one in corpus.sessions)]
    found += [f"two questions are {name}" for name in _twice(one.id for one in corpus.questions)]
    found += [f"two questions ask: {text}" for text in _twice(f"{one.project} {_plain(one.text)}" for one in corpus.questions)]
    found += [f"{one.key} is of no session" for one in corpus.documents if one.session not in sessions]
    for one in corpus.questions:
        found += [f"{one.id} expects {key}, which is not there" for group in one.expects for key in group if key not in keys]
        if not all(one.expects):
            found.append(f"{one.id} has an empty group")
    return found


def span(corpus: Corpus) -> timedelta:
    """From the first document to the last."""
    moments = [one.created_at for one in corpus.documents]
    return max(moments) - min(moments) if moments else timedelta()


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
