"""`bin/bench pairs`: measures how well observations that say the same are told from those that only look so."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import click

from cmserver.base.columns import Cell, render_table
from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Invalid
from cmserver.cli.exit_codes import ExitCode
from cmserver.models.providers.embedding.model import Embedder
from cmserver.models.providers.embedding.registry import embedder_settings, make
from cmserver.models.providers.model import ProviderError
from tests.evaluation.evaluate import format_percent
from tests.evaluation.pairs.evaluate import JudgedPair, PairFigures, count_figures, judge_pairs
from tests.evaluation.pairs.load import Half, read_pairs

_TITLES = (
    "compared by",
    "shown",
    "precision",
    "of all to show",
    "contradictions named",
)


@click.command(name="pairs")
@click.option(
    "--half",
    type=click.Choice(["dev", "held-back"]),
    default="dev",
    show_default=True,
    help="Which half of the labelled pairs. Whoever tunes looks at dev only.",
)
@click.option("--verbose", is_flag=True, help="Also list each pair with its similarities and what becomes of it; of dev only.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file with settings. [default: the file in CMSERVER_CONFIG]",
)
def main(half: Literal["dev", "held-back"], config_file: Path | None, *, verbose: bool) -> None:
    """Judge labelled pairs of observations, by their words alone and with the configured embedder, and count what is right.

    The embedder is that of CMSERVER_EMBEDDER: without it the local one, which needs no network. Another one is really called. Needs
    no server. Exits 1 when the embedder fails, and 2 when a setting is missing or wrong.
    """
    if verbose and half != "dev":
        raise click.UsageError("--verbose is for --half dev: a half that somebody has read is no longer held back.")
    try:
        settings = embedder_settings(load(os.environ, config_file=config_file).settings)
        embedder = None if settings is None else make(settings)
    except (BadSetting, Invalid) as error:
        raise click.UsageError(str(error)) from error
    pairs = read_pairs(_HALVES[half])
    arms: dict[str, Embedder | None] = {"words alone": None}
    if embedder is not None:
        arms[f"{embedder.provider} ({embedder.model})"] = embedder
    try:
        judged = {name: judge_pairs(pairs, arm) for name, arm in arms.items()}
    except ProviderError as error:
        click.echo(f"bin/bench: {error}", err=True)
        sys.exit(ExitCode.FAILURE)
    rows = [_figures_row(name, count_figures(verdicts)) for name, verdicts in judged.items()]
    click.echo(render_table(_TITLES, rows, empty=""))
    for verdicts in list(judged.values())[-1:] if verbose else []:
        listed = [_pair_row(row) for row in sorted(verdicts, key=lambda row: (row.pair.label, -(row.cosine or row.lexical)))]
        click.echo("\n" + render_table(_PAIR_TITLES, listed, empty="", shrink=("left", "right")))


_HALVES: dict[str, Half] = {"dev": "dev", "held-back": "held_back"}
_PAIR_TITLES = ("label", "verdict", "reason", "cosine", "words", "differs in", "left", "right")


def _figures_row(name: str, figures: PairFigures) -> tuple[Cell, ...]:
    return (
        name,
        figures.shown,
        format_percent(figures.suggest_precision),
        format_percent(figures.suggest_recall),
        f"{figures.contradictions_named} of {figures.contradictions}",
    )


def _pair_row(row: JudgedPair) -> tuple[Cell, ...]:
    verdict = row.verdict
    difference = verdict.difference or ""
    return (
        row.pair.label,
        verdict.decision,
        verdict.reason or "",
        "" if row.cosine is None else f"{row.cosine:.2f}",
        f"{row.lexical:.2f}",
        difference,
        row.pair.left.title,
        row.pair.right.title,
    )
