"""The corpus in the repository is sound, and those of others are read as they are published."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.bench.recall.corpora import beam, history, locomo
from tests.bench.recall.corpus import HALVES, Corpus, broken, limited
from tests.table import try_rows


def test_the_history_is_sound():
    corpus = history.load()

    assert history.faults(corpus) == []
    by_kind = {half: Counter(one.kind for one in corpus.of_half(half)) for half in HALVES}
    assert by_kind["development"] == by_kind["test"]
    assert set(by_kind["test"]) == set(history.KINDS)


def _without_documents(corpus: Corpus) -> Corpus:
    return msgspec.structs.replace(corpus, documents=corpus.documents[:300], questions=[])


def _renamed(corpus: Corpus) -> Corpus:
    documents = [msgspec.structs.replace(one, key="s01-1") for one in corpus.documents[:2]]
    return msgspec.structs.replace(corpus, documents=[*documents, *corpus.documents[2:]])


def _asked_twice(corpus: Corpus) -> Corpus:
    first = corpus.questions[0]
    again = msgspec.structs.replace(first, id="again", text=f" {first.text.upper()}")
    return msgspec.structs.replace(corpus, questions=[*corpus.questions, again])


def _expecting(*keys: str) -> Callable[[Corpus], Corpus]:
    def changed(corpus: Corpus) -> Corpus:
        expects = [list(keys)] if keys else []
        questions = [msgspec.structs.replace(one, expects=expects) if one.kind == "why" else one for one in corpus.questions]
        return msgspec.structs.replace(corpus, questions=questions)

    return changed


def _of_one_half(corpus: Corpus) -> Corpus:
    return msgspec.structs.replace(corpus, questions=[one for one in corpus.questions if (one.half, one.kind) != ("test", "why")])


@try_rows(
    ("spoil", "said"),
    [
        (_without_documents, "300 documents, which is less than 400"),
        (_without_documents, "0 questions, which is less than 150"),
        (_renamed, "two documents are s01-1"),
        (_asked_twice, "two questions ask"),
        (_expecting("s99-1"), "expects s99-1, which is not there"),
        (_expecting(), "is why, but has no documents that answer it"),
        (_of_one_half, "no question why in one of the halves"),
    ],
    ids=["few documents", "few questions", "a key twice", "asked twice", "no such key", "no answer", "one half"],
)
def test_a_history_that_is_not_sound_is_told_what_is_wrong(spoil: Callable[[Corpus], Corpus], said: str):
    found = history.faults(spoil(history.load()))

    assert any(said in fault for fault in found), found[:5]


def test_a_limit_takes_questions_of_all_kinds_in_turn():
    corpus = history.load()

    few = limited(corpus, len(history.KINDS))

    assert all({one.kind for one in few.of_half(half)} == set(history.KINDS) for half in HALVES)
    assert len(few.questions) == 2 * len(history.KINDS)
    assert limited(corpus, None) is corpus


# -- LoCoMo

_SAID: dict[str, object] = {
    "session_1": [
        {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a greyhound."},
        {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a photo of a red kite"},
    ],
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "She is called Pebble."}],
    "session_2_date_time": "12:09 am on 13 September, 2023",
    "session_2_summary": "left out",
}
_QA: list[dict[str, object]] = [
    {"question": "Which dog?", "answer": "greyhound", "evidence": ["D1:1"], "category": 4},
    {"question": "Its name and race?", "answer": "x", "evidence": ["D1:1; D2:1"], "category": 1},
    {"question": "Half known?", "answer": "x", "evidence": ["D2:1", "D9:9"], "category": 3},
    {"question": "Unknown?", "answer": "x", "evidence": ["D9:9"], "category": 2},
    {"question": "Without?", "answer": "x", "evidence": [], "category": 2},
    {"question": "Why did she sell the dog?", "adversarial_answer": "x", "evidence": ["D1:1"], "category": 5},
]


def _folder(path: Path) -> Path:
    for number in (30, 44):
        (path / f"{number}.json").write_text(json.dumps({"speaker_1": "Ana", **_SAID, "qa": _QA}), encoding="utf-8")
    return path


def _zip(path: Path) -> Path:
    inside = path / "inside"
    inside.mkdir()
    with zipfile.ZipFile(path / "locomo.zip", "w") as packed:
        for one in _folder(inside).iterdir():
            packed.write(one, f"locomo/{one.name}")
    return path / "locomo.zip"


def _one_file(path: Path) -> Path:
    found = [{"sample_id": f"conv-{number}", "conversation": _SAID, "qa": _QA} for number in (44, 30)]
    (path / "locomo10.json").write_text(json.dumps(found), encoding="utf-8")
    return path / "locomo10.json"


@pytest.mark.parametrize("published", [_folder, _zip, _one_file], ids=["folder", "zip", "one file"])
def test_locomo_is_read_however_it_is_packed(tmp_path: Path, published: Callable[[Path], Path]):
    corpus = locomo.load(published(tmp_path))

    assert broken(corpus) == []
    assert [(one.key, one.content) for one in corpus.documents][:3] == [
        ("30/D1:1", "Ana: I adopted a greyhound."),
        ("30/D1:2", "Ben: Look! a photo of a red kite"),
        ("30/D2:1", "Ana: She is called Pebble."),
    ]
    assert corpus.documents[2].created_at == datetime(2023, 9, 13, 0, 9, tzinfo=UTC)
    assert corpus.projects == ["locomo-30", "locomo-44"]
    asked = [(one.kind, one.expects, one.half, one.project) for one in corpus.questions]
    assert asked[:3] == [
        ("single-hop", [["30/D1:1"]], "development", "locomo-30"),
        ("multi-hop", [["30/D1:1"], ["30/D2:1"]], "development", "locomo-30"),
        ("open-domain", [["30/D2:1"]], "development", "locomo-30"),
    ]
    assert [half for _, _, half, _ in asked[3:]] == ["test"] * 3


# -- BEAM


def _message(number: int, text: str, role: str = "user", **more: str) -> dict[str, object]:
    return {"role": role, "id": number, "content": text, "index": "1,1", "question_type": None, **more}


_BATCHES: list[object] = [
    {
        "batch_number": 1,
        "time_anchor": "March-15-2024",
        "turns": [[_message(0, "I write a budget tracker."), _message(1, "Fine.", role="assistant")]],
    },
    {"batch_number": 2, "turns": [[_message(2, "It answers in 250 ms.", time_anchor="April-02-2024"), _message(1, "Again.")]]},
]
_PROBING: dict[str, list[dict[str, object]]] = {
    "abstention": [{"question": "What is my background?", "rubric": []}],
    "knowledge_update": [{"question": "How fast?", "source_chat_ids": {"original_info": [0], "updated_info": [2, 2]}}],
    "summarization": [{"question": "Ambiguous?", "source_chat_ids": [1]}, {"question": "Missing?"}],
    "event_ordering": [{"question": "In what order?", "source_chat_ids": [0, 7]}],
}


def _published(path: Path, chat: object, number: int) -> None:
    folder = path / "chats" / "100K" / str(number)
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps(chat), encoding="utf-8")
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(_PROBING), encoding="utf-8")


@pytest.mark.parametrize("chat", [_BATCHES, [{"plan-1": _BATCHES[:1]}, {"plan-2": _BATCHES[1:]}]], ids=["batches", "plans"])
def test_beam_is_read_with_what_can_be_resolved(tmp_path: Path, chat: object):
    _published(tmp_path, chat, 1)
    _published(tmp_path, chat, 2)

    corpus = beam.load(tmp_path)

    assert broken(corpus) == []
    assert [(one.key, one.session, one.content) for one in corpus.documents][:4] == [
        ("beam-100k-1/0", "beam-100k-1-1", "user: I write a budget tracker."),
        ("beam-100k-1/1", "beam-100k-1-1", "assistant: Fine."),
        ("beam-100k-1/2", "beam-100k-1-2", "user: It answers in 250 ms."),
        ("beam-100k-1/1+1", "beam-100k-1-2", "user: Again."),
    ]
    assert [one.created_at.date().isoformat() for one in corpus.documents][:3] == ["2024-03-15", "2024-03-15", "2024-04-02"]
    assert [(one.kind, one.half, one.expects) for one in corpus.questions] == [
        ("abstention", "development", []),
        ("knowledge-update", "development", [["beam-100k-1/0"], ["beam-100k-1/2"]]),
        ("abstention", "test", []),
        ("knowledge-update", "test", [["beam-100k-2/0"], ["beam-100k-2/2"]]),
    ]
