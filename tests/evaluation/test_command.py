"""`bin/bench generation`: its table, its JSON, and how it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.evaluation import command
from tests.evaluation.command import main


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the answers of an interrupted run are."""
    file = tmp_path / "build" / "evaluation.json"
    monkeypatch.setattr(command, "_ANSWERS", file)
    return file


def run(*arguments: str, **environ: str) -> Result:
    clean = {"CMSERVER_CONFIG": "", "CMSERVER_PROVIDER": "", "CMSERVER_MODEL": "", "ANTHROPIC_API_KEY": ""}
    return CliRunner().invoke(main, arguments, env=clean | environ, catch_exceptions=False)


def test_the_configured_provider_is_evaluated():
    result = run()

    assert result.exit_code == 0
    assert "offline (rules)" in result.stdout
    assert "14 (0 failed, 0 cut)" in result.stdout
    assert "precision" in result.stdout
    assert "trivial look-up: Read" not in result.stdout


def test_verbose_names_each_event_that_went_wrong():
    result = run("--verbose")

    assert "03-go-leak" in result.stdout
    assert "missed" in result.stdout
    assert "trivial look-up: Read" in result.stdout


def test_json_is_the_whole_report():
    report = json.loads(run("--json", "--verbosity", "minimal").stdout)

    assert (report["provider"], report["verbosity"], report["calls"], report["failed_calls"]) == ("offline", "minimal", 14, 0)
    assert len(report["judged"]) > 100
    assert report["right_kept"] + report["missed"] + report["right_skipped"] + report["wrong_kept"] == report["events"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider of the operator's own, which answers the second call only, if at all."""
    (tmp_path / "own_provider.py").write_text(
        "from cmserver.models.providers.model import Completion, FailureKind, ProviderError\n"
        "class Own:\n"
        "    name, model = 'own', 'none'\n"
        "    def __init__(self, answers): self.calls, self.answers = 0, answers\n"
        "    async def complete(self, prompt):\n"
        "        self.calls += 1\n"
        "        if self.calls in self.answers: return Completion(text='{\"observations\": []}', model='none')\n"
        "        raise ProviderError(FailureKind.AUTH_INVALID, 'own refused the key.')\n"
        "class Stopped(Own):\n"
        "    calls = 0\n"
        "    def __init__(self): self.answers = range(99)\n"
        "    async def complete(self, prompt):\n"
        "        Stopped.calls += 1\n"
        "        if Stopped.calls == 4: raise KeyboardInterrupt\n"
        "        return Completion(text='{\"observations\": []}', model=f'call {Stopped.calls}', input_tokens=1)\n"
        "def dead(): return Own(set())\n"
        "def lame(): return Own({2})\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_provider", raising=False)
    return "own_provider"


def test_when_every_call_fails_it_says_so_in_a_sentence_and_exits_1(own: str):
    result = run("--provider", f"{own}:dead")

    assert result.exit_code == 1
    assert result.stderr == "bin/bench: 14 of 14 calls failed: auth_invalid: own refused the key.\n"
    assert "14 (14 failed, 0 cut)" in result.stdout


def test_when_some_fail_it_says_how_many(own: str):
    result = run(CMSERVER_PROVIDER=f"{own}:lame")

    assert result.exit_code == 0
    assert result.stderr == "bin/bench: 13 of 14 calls failed: auth_invalid: own refused the key.\n"


def test_a_provider_that_there_is_not_is_a_wrong_setting():
    result = run("--provider", "ofline")

    assert result.exit_code == 2
    assert "There is no provider 'ofline'. Did you mean 'offline'" in result.stderr


def test_a_missing_key_is_a_wrong_setting():
    result = run("--provider", "anthropic", "--model", "some-model")

    assert result.exit_code == 2
    assert "ANTHROPIC_API_KEY" in result.stderr


def test_an_interrupted_run_keeps_its_answers_and_the_next_one_asks_for_the_others(own: str, answers: Path):
    interrupted = run("--provider", f"{own}:Stopped", "--json")
    kept = len(json.loads(answers.read_bytes()))

    whole = run("--provider", f"{own}:Stopped", "--json")

    assert interrupted.exit_code != 0
    assert "The answers so far are kept" in interrupted.stderr
    assert kept == 3
    report = json.loads(whole.stdout)
    assert (report["calls"], report["failed_calls"], report["input_tokens"]) == (14, 0, 14)
    assert sys.modules["own_provider"].Stopped.calls == 4 + 11
    assert not answers.exists()
