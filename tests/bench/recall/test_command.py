"""`bin/bench recall` as one calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cmserver.base import logs
from tests.bench.recall.command import main
from tests.bench.recall.corpora import history
from tests.bench.world import ROOT


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch):
    """What is set for the whole process stays set: tests that come later listen to its log."""
    monkeypatch.setattr(logs, "configure", _nothing)


def _nothing(log_format: str, level: str) -> None:
    pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--write"], "--write goes with everything"),
        (["--write", "--half", "all", "--limit", "3"], "--write goes with everything"),
        (["--corpus", "locomo"], "--data"),
        (["--arms", "ours,psychic"], "There is no arm psychic"),
        (["--try", "{"], "is not JSON"),
        (["--setting", "embedder"], "name=value"),
        (["--server", "http://127.0.0.1:1"], "go together"),
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

    done = CliRunner().invoke(main, ["--data", str(tmp_path)])

    assert done.exit_code == 1
    assert "t1 expects s01-9, which is not there" in done.output


@pytest.mark.slow
def test_a_corpus_is_put_into_the_real_program_and_asked(tmp_path: Path):
    _tiny(tmp_path, expects="s01-1")
    command = [sys.executable, "-m", "tests.bench", "recall", "--data", str(tmp_path), "--half", "test"]

    done = subprocess.run(
        [*command, "--arms", "unbound,words-unbound,ts_rank_or"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    head, *table = done.stdout.split("\n\n")[0].splitlines()
    assert head.startswith("half test: 2 questions")
    rows = {name: numbers for name, *numbers in map(str.split, table)}
    assert [rows[arm][:9] for arm in ("unbound", "words-unbound", "ts_rank_or")] == [["1.000"] * 9] * 3


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
        {"id": "t1", "half": "test", "kind": "why", "question": "why did the pager ring twice?", "expects": [[expects]]},
        {"id": "t2", "half": "test", "kind": "unanswerable", "question": "which airline?", "expects": []},
    ]
    (path / "sessions").mkdir()
    (path / "sessions" / "s01.json").write_text(json.dumps(recorded), encoding="utf-8")
    (path / "questions.json").write_text(json.dumps({"questions": questions}), encoding="utf-8")
    assert history.load(path).documents[-1].key == "s01-summary"
