"""LoCoMo (Maharana and others, 2024): ten conversations of two people over months, and questions about them.

Read from the files of its release of 2024, which are not ours to hand on: `locomo10.json`, or a folder or zip of one JSON file for
each conversation. A document is a turn: who speaks, the text, and what the picture shows. Questions of category 5, which ask for
what was not so, are left out: they say nothing of which turns should be found.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from tests.bench.recall.corpus import Corpus, Document, Half, Question, Session

_KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
DEVELOPMENT = {26, 30, 41, 42, 43}
_DATE = "%I:%M %p on %d %B, %Y"
_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_Json = dict[str, msgspec.Raw]


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    speaker: str
    dia_id: str
    text: str = ""
    blip_caption: str | None = None


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    category: int
    evidence: list[str] = []


class _Conversation(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    said: _Json
    asked: list[_Asked]


def load(path: Path) -> Corpus:
    sessions: list[Session] = []
    documents: list[Document] = []
    questions: list[Question] = []
    for one in sorted(_conversations(path), key=lambda one: one.number):
        mine = list(_sessions(one))
        sessions += [session for session, _ in mine]
        texts = [document for _, turns in mine for document in turns]
        documents += texts
        questions += _questions(one, {document.key for document in texts})
    return Corpus(name="locomo", sessions=sessions, documents=documents, questions=questions)


def _conversations(path: Path) -> Iterator[_Conversation]:
    for name, raw in _files(path):
        for one in msgspec.json.decode(raw if raw.lstrip().startswith(b"[") else b"[" + raw + b"]", type=list[_Json]):
            if "qa" not in one:
                continue
            named = msgspec.json.decode(one["sample_id"], type=str) if "sample_id" in one else name
            number = re.search(r"\d+", named)
            if number is None:
                raise ValueError(f"{name} has no number in its name, and no sample_id")
            said = msgspec.json.decode(one["conversation"], type=_Json) if "conversation" in one else one
            asked = msgspec.json.decode(one["qa"], type=list[_Asked])
            yield _Conversation(number=int(number[0]), said=said, asked=asked)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        yield from ((one.stem, one.read_bytes()) for one in sorted(path.rglob("*.json")))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as packed:
            names = sorted(name for name in packed.namelist() if name.endswith(".json") and "__MACOSX" not in name)
            yield from ((Path(name).stem, packed.read(name)) for name in names)
    else:
        yield path.stem, path.read_bytes()


def _project(one: _Conversation) -> str:
    return f"locomo-{one.number}"


def _sessions(one: _Conversation) -> Iterator[tuple[Session, list[Document]]]:
    numbers = sorted(int(found[1]) for name in one.said if (found := _SESSION.fullmatch(name)))
    for number in numbers:
        turns = msgspec.json.decode(one.said[f"session_{number}"], type=list[_Turn])
        began = _moment(msgspec.json.decode(one.said[f"session_{number}_date_time"], type=str))
        name = f"locomo-{one.number}-{number}"
        session = Session(name=name, project=_project(one), agent="locomo", started_at=began)
        yield (
            session,
            [
                Document(
                    key=f"{one.number}/{turn.dia_id}",
                    session=name,
                    created_at=began + timedelta(minutes=place),
                    content=" ".join(filter(None, [f"{turn.speaker}:", turn.text, turn.blip_caption])),
                )
                for place, turn in enumerate(turns)
            ],
        )


def _questions(one: _Conversation, keys: set[str]) -> Iterator[Question]:
    half: Half = "development" if one.number in DEVELOPMENT else "test"
    for place, asked in enumerate(one.asked):
        named = {f"{one.number}/D{session}:{turn}": None for session, turn in _EVIDENCE.findall(" ".join(asked.evidence))}
        expects = [[key] for key in named if key in keys]
        if asked.category in _KINDS and expects:
            yield Question(
                id=f"{one.number}-{place}",
                half=half,
                kind=_KINDS[asked.category],
                text=asked.question,
                expects=expects,
                project=_project(one),
            )


def _moment(said: str) -> datetime:
    return datetime.strptime(said.strip(), _DATE).replace(tzinfo=UTC)
