"""`bin/bench recall` as one calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cmserver.base import logs
from tests.bench.recall.command import Options, load_corpora, main
from tests.bench.recall.corpora import history
from tests.bench.world import ROOT
from tests.table import try_rows


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch):
    """What is set for the whole process stays set: tests that come later listen to its log."""
    monkeypatch.setattr(logs, "configure", _nothing)


def _nothing(log_format: str, level: str) -> None:
    pass


@try_rows(
    ("words", "said"),
    [
        (["--write"], "--write goes with everything"),
        (["--write", "--half", "all", "--limit", "3"], "--write goes with everything"),
        (["--save", "--limit", "3"], "--save keeps whole results"),
        (["locomo"], "name their place: locomo=PATH"),
        (["diary"], "There is no corpus diary"),
        (["beam=/nowhere"], "/nowhere does not exist"),
        (["--arms", "search,psychic"], "There is no arm psychic"),
        (["--try", "{"], "is not JSON"),
        (["--try", '{"meaningWeight": 0.3}'], "at least two corpora"),
        (["--sweep", "_SAME=0.8,0.9"], "at least two corpora"),
        (["own", "scripts", "--sweep", "_SAME=0.8,0.9"], "at least two corpora"),
        (["--sweep", "WISDOM=0.8"], "WISDOM is no constant"),
        (["--sweep", "search_wisdom=0.8"], "search_wisdom is no constant"),
        (["--sweep", "K1=0.8"], "at least two corpora"),
        (["--sweep", "_SAME=much"], "has no numbers"),
        (["--against", "nothing-like-it"], "neither an arm that is asked nor a commit"),
        (["--setting", "embedder"], "name=value"),
        (["--server", "http://127.0.0.1:1"], "go together"),
        (["--server", "http://127.0.0.1:1", "--key", "k", "--keep"], "--server asks one that runs"),
        (["--failures", "--half", "test"], "nobody should learn from the other"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
)
def test_what_cannot_be_measured_is_said_before_anything_starts(words: list[str], said: str):
    done = CliRunner().invoke(main, words)

    assert done.exit_code == 2
    assert said in done.output


def test_a_corpus_that_is_not_sound_is_not_asked(tmp_path: Path):
    _tiny(tmp_path, expects="s01-9")

    done = CliRunner().invoke(main, [f"own={tmp_path}"])

    assert done.exit_code == 1
    assert "t1 expects s01-9, which is not there" in done.output


def test_a_corpus_without_questions_is_not_asked(tmp_path: Path):
    talk: dict[str, object] = {"qa": [], "session_1": [], "session_1_date_time": "1:56 pm on 8 May, 2023"}
    (tmp_path / "26.json").write_text(json.dumps(talk), encoding="utf-8")

    done = CliRunner().invoke(main, ["own", f"locomo={tmp_path}"])

    assert done.exit_code == 1
    assert "The corpus locomo has no questions of development" in done.output


def test_a_constant_is_chosen_by_the_half_that_may_be_seen(tmp_path: Path):
    _talk(tmp_path)

    done = CliRunner().invoke(main, ["own", f"locomo={tmp_path}", "--half", "all", "--sweep", "_SAME=0.8"])

    assert done.exit_code == 2
    assert "the other one must stay unseen" in done.output


@pytest.mark.slow
def test_two_corpora_are_put_into_the_real_program_and_a_constant_is_tried_on_both(tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "talks").mkdir()
    _tiny(tmp_path / "own", expects="s01-1")
    _talk(tmp_path / "talks")
    command = [sys.executable, "-m", "tests.bench", "recall", f"own={tmp_path / 'own'}", f"locomo={tmp_path / 'talks'}"]

    done = subprocess.run([*command, "--sweep", "_SAME=0.5,0.9"], cwd=ROOT, capture_output=True, text=True, check=True)

    _, *lines = done.stdout.split("\n\n")[0].splitlines()
    rows = [line.split()[:6] for line in lines]
    assert [row[:3] for row in rows] == [
        [f"{corpus},", "development", arm] for corpus in ("own", "locomo") for arm in ("search", "_SAME=0.5", "_SAME=0.9")
    ]
    assert [row[3:] for row in rows] == [["1.000"] * 3] * 6


def test_the_scripts_are_asked_like_the_others():
    done = CliRunner().invoke(main, ["scripts", "--arms", "psychic"])
    loaded = load_corpora(Options(corpora={"scripts": history.HERE}, half="all", limit=2))

    assert "There is no arm psychic" in done.output
    assert [(corpus.name, len(corpus.questions)) for corpus in loaded] == [("scripts", 4)]


def test_a_changed_constant_is_what_the_program_reads():
    changed = "import sys; from tests.bench.recall.with_constants import change; change({'_SAME': 0.25});"
    read = "from cmserver.recall.search import search, score; print(score._SAME, score.__file__)"

    done = subprocess.run([sys.executable, "-c", changed + read], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["0.25", str(ROOT / "cmserver/recall/search/score.py")]


def _talk(path: Path) -> None:
    """A conversation of two turns, and a question about it."""
    turns = [
        {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a greyhound."},
        {"speaker": "Ben", "dia_id": "D1:2", "text": "Oh!"},
    ]
    asked = [{"question": "Who has adopted a greyhound?", "answer": "Ana", "evidence": ["D1:1"], "category": 4}]
    talk = {"qa": asked, "session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    (path / "26.json").write_text(json.dumps(talk), encoding="utf-8")


def _tiny(path: Path, *, expects: str) -> None:
    """One session of two observations, and a question of each half, of which one has its answer."""
    observation = {"type": "bugfix", "facts": [], "concepts": ["gotcha"], "filesModified": ["src/pager.py"]}
    recorded = {
        "session": "s01",
        "started": "2026-05-04T08:40:00Z",
        "agent": "codex",
        "prompts": ["The pager rings twice."],
        "observations": [
            {
                **observation,
                "key": "s01-1",
                "minute": 4,
                "title": "Pager rang twice",
                "narrative": "A retry had no idempotency key.",
            },
            {**observation, "key": "s01-2", "minute": 9, "title": "Lint", "narrative": "Sorted the imports."},
        ],
        "summary": {"request": "Mend it", "investigated": "a", "learned": "b", "completed": "c", "nextSteps": "d"},
    }
    questions: list[dict[str, object]] = [
        {"id": "t1", "half": "development", "kind": "why", "question": "why did the pager ring twice?", "expects": [[expects]]},
        {"id": "t2", "half": "development", "kind": "unanswerable", "question": "which airline?", "expects": []},
    ]
    (path / "sessions").mkdir()
    (path / "sessions" / "s01.json").write_text(json.dumps(recorded), encoding="utf-8")
    (path / "questions.json").write_text(json.dumps({"questions": questions}), encoding="utf-8")
    assert history.load(path).documents[-1].key == "s01-summary"
