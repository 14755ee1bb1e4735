"""BEAM (Tavakoli and others, 2025, "Beyond a Million Tokens"): long conversations with an assistant, and probing questions.

Read from the files of its repository, which are not ours to hand on: any folder with conversations in it, each a `chat.json`
beside `probing_questions/probing_questions.json`. A document is a message. What a question needs are the messages of its
`source_chat_ids`; a question whose ids are missing, or in the conversation more than once, is left out. Abstention has nothing that
answers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec

from tests.bench.recall.corpus import Corpus, Document, Half, Question, Session

_DATE = "%B-%d-%Y"
_UNKNOWN = datetime(2024, 1, 1, tzinfo=UTC)
_LONGEST_CHARS = 15_000
_Json = dict[str, object]


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    role: str
    content: str
    batch: int
    day: datetime | None


def load(path: Path) -> Corpus:
    """One conversation, those of one size (`chats/100K`), or all of them."""
    found = sorted(path.rglob("chat.json"), key=lambda one: [(len(part), part) for part in one.parts])
    sessions: list[Session] = []
    documents: list[Document] = []
    questions: list[Question] = []
    for chat in found:
        folder = chat.parent
        name = f"beam-{folder.parent.name}-{folder.name}".lower()
        messages = list(_messages(msgspec.json.decode(chat.read_bytes()), batch=0, day=None))
        mine = _documents(name, messages)
        documents += mine
        first = {one.session: one.created_at for one in reversed(mine)}
        sessions += [Session(name=one, project=name, agent="beam", started_at=first[one]) for one in reversed(first)]
        asked = folder / "probing_questions" / "probing_questions.json"
        if asked.exists():
            probing = msgspec.json.decode(asked.read_bytes(), type=dict[str, list[_Json]])
            half: Half = "development" if _number(folder.name) % 2 else "test"
            questions += _questions(name, half, probing, Counter(one.id for one in messages))
    return Corpus(name="beam", sessions=sessions, documents=documents, questions=questions)


def _messages(found: object, *, batch: int, day: datetime | None) -> Iterator[_Message]:
    """Wherever they are: batches have turns, which are lists of messages; the longest conversations have plans around that."""
    if isinstance(found, list):
        for one in cast("list[object]", found):
            yield from _messages(one, batch=batch, day=day)
    elif isinstance(found, dict):
        one = cast("_Json", found)
        day = _day(one.get("time_anchor")) or day
        if "role" in one and "content" in one and isinstance(one.get("id"), int):
            yield _Message(id=cast("int", one["id"]), role=str(one["role"]), content=str(one["content"]), batch=batch, day=day)
        else:
            number = one.get("batch_number")
            for each in one.values():
                yield from _messages(each, batch=number if isinstance(number, int) else batch, day=day)


def _documents(project: str, messages: list[_Message]) -> list[Document]:
    """A message of an id that is there twice is told apart by its place; nothing is expected to find it."""
    made: list[Document] = []
    seen: Counter[int] = Counter()
    at = _UNKNOWN
    for one in messages:
        at = max(at + timedelta(minutes=1), one.day or at)
        seen[one.id] += 1
        key = f"{project}/{one.id}" if seen[one.id] == 1 else f"{project}/{one.id}+{seen[one.id] - 1}"
        content = f"{one.role}: {one.content}"[:_LONGEST_CHARS]
        made.append(Document(key=key, session=f"{project}-{one.batch}", created_at=at, content=content))
    return made


def _questions(project: str, half: Half, probing: dict[str, list[_Json]], ids: Counter[int]) -> Iterator[Question]:
    for ability, asked in probing.items():
        for place, one in enumerate(asked):
            named = list(dict.fromkeys(_numbers(one.get("source_chat_ids"))))
            is_answerable = ability != "abstention"
            if is_answerable and (not named or any(ids[number] != 1 for number in named)):
                continue
            yield Question(
                id=f"{project}-{ability}-{place + 1}",
                half=half,
                kind=ability.replace("_", "-"),
                text=str(one["question"]),
                expects=[[f"{project}/{number}"] for number in named] if is_answerable else [],
                project=project,
            )


def _numbers(found: object) -> Iterator[int]:
    """Of a list, or of lists by what they are for, also nested."""
    if isinstance(found, int) and not isinstance(found, bool):
        yield found
    elif isinstance(found, (list, dict)):
        inside = cast("dict[str, object]", found).values() if isinstance(found, dict) else cast("list[object]", found)
        for one in inside:
            yield from _numbers(one)


def _number(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 0)


def _day(anchor: object) -> datetime | None:
    """None for what is no day, or one that is still to come."""
    if not isinstance(anchor, str):
        return None
    try:
        day = datetime.strptime(anchor.strip(), _DATE).replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if day < datetime.now(UTC) - timedelta(days=30) else None
