"""The hard questions of the history are sound, and as hard as they claim where that can be checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import msgspec

from tests.bench.recall.corpora import history
from tests.bench.recall.corpus import HALVES, Corpus, Document, broken
from tests.table import try_rows

# Function words, and verbs that say nothing of what is asked.
_EMPTY_WORDS = set(
    re.findall(
        r"\w+",
        """
        a about across after again all also an and any anybody anything are as at be became become been before being both but
        by can could did do does doesn don during each either else even ever every everyone everything for from get gets go
        goes going got had has have her him his how i if in into is isn it its just made make makes may me might more most
        much must my new no nobody none nor not now of off on once one ones only onto or other others our out over own per she
        should since so some somebody something still such than that the their them then there these they this those through
        to too under until up upon us very was wasn we went were what when where which while who whom why will with without
        would yes yet you your
        """,
    )
)

_ENDINGS = ("ingly", "edly", "ing", "ied", "ies", "ed", "es", "er", "ly", "s", "e", "y")
_STEM_LENGTH = 6


def _stem(word: str) -> str:
    ending = next((ending for ending in _ENDINGS if word.endswith(ending) and len(word) - len(ending) >= 3), "")
    return word.removesuffix(ending)[:_STEM_LENGTH]


def _stems(*texts: str | None) -> set[str]:
    words = re.findall(r"[a-z0-9]{2,}", " ".join(text or "" for text in texts).lower())
    return {_stem(word) for word in words if word not in _EMPTY_WORDS}


def test_the_hard_questions_are_sound():
    assert history.list_hard_faults(history.load_hard()) == []


def test_the_hard_questions_are_asked_of_the_same_documents_and_repeat_none_of_the_others():
    usual, hard = history.load(), history.load_hard()

    assert hard.documents == usual.documents
    assert broken(msgspec.structs.replace(usual, questions=[*usual.questions, *hard.questions])) == []
    assert {question.kind for question in hard.questions} == set(history.HARD_KINDS)
    assert not set(history.HARD_KINDS) & {question.kind for question in usual.questions}


def test_a_hard_paraphrase_shares_no_stem_with_a_document_that_answers_it():
    hard = history.load_hard()
    documents = {document.key: document for document in hard.documents}
    shared = {
        (question.id, key): _stems(question.text) & _stems(document.title, document.subtitle, document.narrative, *document.facts)
        for question in hard.questions
        if question.kind == "hard-paraphrase"
        for key in question.expects[0]
        if (document := documents[key])
    }

    assert {where: stems for where, stems in shared.items() if stems} == {}
    assert _stems("Kept timeouts in the cache") & _stems("what caches a timeout?") == {"timeou", "cach"}


def _asking_again(corpus: Corpus) -> Corpus:
    questions = [*corpus.questions, msgspec.structs.replace(corpus.questions[0], id="again", text="another")]
    return msgspec.structs.replace(corpus, questions=questions)


def _expecting_of_kind(kind: str, *groups: list[str]) -> Callable[[Corpus], Corpus]:
    def changed(corpus: Corpus) -> Corpus:
        questions = [
            msgspec.structs.replace(question, expects=list(groups)) if question.kind == kind else question
            for question in corpus.questions
        ]
        return msgspec.structs.replace(corpus, questions=questions)

    return changed


def _of_usual_kind(corpus: Corpus) -> Corpus:
    return msgspec.structs.replace(corpus, questions=[msgspec.structs.replace(corpus.questions[0], kind="why")])


@try_rows(
    ("spoil", "fault"),
    [
        (_asking_again, "21 questions hard-paraphrase in"),
        (_of_usual_kind, "why is no kind of hard question"),
        (_expecting_of_kind("hard-latest"), "needs 0 facts, not one"),
        (_expecting_of_kind("hard-latest", ["s99-1"]), "expects s99-1, which is not there"),
        (_expecting_of_kind("hard-two-hop", ["s01-1"]), "does not need two facts of different sessions"),
        (_expecting_of_kind("hard-two-hop", ["s01-1"], ["s01-2"]), "does not need two facts of different sessions"),
    ],
    ids=["one too many", "another kind", "no answer", "no such key", "one hop", "one session"],
)
def test_faults_of_hard_questions_are_named(spoil: Callable[[Corpus], Corpus], fault: str):
    found = history.list_hard_faults(spoil(history.load_hard()))

    assert any(fault in line for line in found), found[:5]


# -- scripts without spaces

# Letters and marks of Thai, Hiragana, Katakana and Han, and Latin letters and digits that touch them.
_RUN = re.compile(r"[\u0e00-\u0e7f\u3005\u3040-\u30ff\u4e00-\u9fffA-Za-z0-9]+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3005\u3040-\u30ff\u4e00-\u9fff]{2}")
_LONG_RUN = 12


def _text(document: Document) -> str:
    return " ".join([document.title or "", document.narrative or "", *document.facts])


def _is_inside_a_run(question: str, document: Document) -> bool:
    """Whether two letters of the question are in the document, inside a run of text that goes on before or after them."""
    pairs = {pair for at in range(len(question)) if _UNSPACED.fullmatch(pair := question[at : at + 2])}
    return any(pair in run and len(run) > len(pair) for run in _RUN.findall(_text(document)) for pair in pairs)


def test_the_scripts_are_a_sound_corpus_of_their_own():
    corpus = history.load_scripts()

    assert broken(corpus) == []
    assert (len(corpus.documents), len(corpus.questions)) == (24, 32)
    assert corpus.projects == [history.SCRIPTS_PROJECT] == sorted({question.project for question in corpus.questions})
    by_kind = [Counter(question.kind for question in corpus.of_half(half)) for half in HALVES]
    assert by_kind[0] == by_kind[1]
    assert set(by_kind[0]) == set(history.SCRIPT_KINDS)
    assert all(question.is_answerable for question in corpus.questions)
    assert not {document.key for document in corpus.documents} & {document.key for document in history.load().documents}


def test_each_document_of_the_scripts_has_long_runs_without_a_space_and_says_something_of_its_own():
    documents = history.load_scripts().documents

    for document in documents:
        assert max(map(len, _RUN.findall(document.narrative or ""))) >= _LONG_RUN, document.key
        assert document.title, document.key
        assert document.facts, document.key
    assert len({_text(document) for document in documents}) == len(documents)


def test_the_words_of_a_question_stand_inside_a_run_of_the_document_that_answers_it():
    corpus = history.load_scripts()
    documents = {document.key: document for document in corpus.documents}

    apart = [
        question.id
        for question in corpus.questions
        for group in question.expects
        for key in group
        if not _is_inside_a_run(question.text, documents[key])
    ]

    assert apart == []
    assert not _is_inside_a_run("死信", documents["x04-4"])
