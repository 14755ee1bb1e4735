"""`bin/bench pairs`: what it measures, and what it does not show."""

from __future__ import annotations

from click.testing import CliRunner, Result

from tests.evaluation.pairs.command import main
from tests.evaluation.pairs.evaluate import count_figures, judge_pairs
from tests.evaluation.pairs.load import read_pairs


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"CMSERVER_CONFIG": "", "CMSERVER_EMBEDDER": "none"} | environ)


def test_the_words_alone_are_measured_without_an_embedder():
    result = run()

    assert result.exit_code == 0
    assert "words alone" in result.stdout
    assert "local" not in result.stdout


def test_verbose_lists_each_pair_of_the_half_that_may_be_read():
    result = run("--verbose")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > len(read_pairs("dev"))
    assert run("--verbose", "--half", "held-back").exit_code == 2


def test_an_embedder_without_its_key_is_refused():
    result = run(CMSERVER_EMBEDDER="voyage", VOYAGE_API_KEY="", CMSERVER_EMBEDDER_KEY="")

    assert result.exit_code == 2


def test_contradictions_are_named():
    figures = count_figures(judge_pairs(read_pairs("dev"), None))

    assert figures.contradictions_named > figures.contradictions * 0.9
