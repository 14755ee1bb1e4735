"""`cmserver evaluate`: how well the configured provider does what it is for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import click
import msgspec

from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.cli.exits import Exit
from cmserver.cli.show import Cell, pairs, plain, table
from cmserver.generation.evaluate.evaluate import evaluate as evaluated
from cmserver.generation.evaluate.model import Judged, Report
from cmserver.generation.evaluate.page import by_type, percent
from cmserver.providers import registry
from cmserver.providers.model import Given, Verbosity


@click.group()
def evaluate() -> None:
    """Measure a provider on examples whose right answers are known."""


@evaluate.command()
@click.option("--provider", "name", help="Instead of the first of CMSERVER_PROVIDER.")
@click.option("--model", help="Instead of the one of CMSERVER_MODEL.")
@click.option("--verbosity", type=click.Choice(["minimal", "normal", "verbose"]), default="normal", show_default=True)
@click.option("--verbose", is_flag=True, help="Also each event that was missed, kept for nothing, or given a wrong type or file.")
@click.option("--json", "as_json", is_flag=True, help="The whole report, with every event, as one JSON object.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
def generation(
    name: str | None, model: str | None, verbosity: Verbosity, config_file: Path | None, *, verbose: bool, as_json: bool
) -> None:
    """Show a provider made-up sessions whose events are labelled, and print how well it told what is worth keeping.

    Real calls are made, one for each session, and cost what the report says. Needs no server. Exits 0, also when some of the calls
    failed, which is told; 1 when all of them did, and 2 when a setting is missing or wrong.
    """
    settings = load(os.environ, config_file=config_file).settings
    given = _given(settings, name, model)
    try:
        provider = registry.load(given)
    except Invalid as error:
        raise BadSetting(str(error)) from error
    report = asyncio.run(
        evaluated(
            provider,
            verbosity=verbosity,
            language=settings.language,
            event_tokens=settings.prompt_event_tokens,
            timeout_seconds=settings.provider_timeout_seconds,
        )
    )
    told = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() if as_json else _told(report, verbose=verbose)
    click.echo(_without_key(told, given))
    for sentence, sessions in Counter(report.failures.values()).items():
        click.echo(_without_key(plain(f"cmserver: {sessions} of {report.calls} calls failed: {sentence}"), given), err=True)
    sys.exit(Exit.NO if report.failed_calls == report.calls else Exit.OK)


def _given(settings: Settings, name: str | None, model: str | None) -> Given:
    """What the settings say of the provider; nothing of one that they do not name."""
    try:
        found = next((one for one in registry.given(settings) if name in (None, one.name)), None)
        found = found or registry.given(msgspec.structs.replace(settings, provider=name, model=None, base_url=None))[0]
    except Invalid as error:
        raise BadSetting(str(error)) from error
    return msgspec.structs.replace(found, model=model) if model else found


def _without_key(text: str, given: Given) -> str:
    """Whatever a provider says: not its key."""
    return text.replace(given.api_key, "***") if given.api_key else text


def _told(report: Report, *, verbose: bool) -> str:
    cost = None if report.cost_usd is None else f"${report.cost_usd:.4f}"
    totals = pairs(
        ("provider", f"{report.provider} ({report.model})"),
        ("events", f"{report.events} with a label; {report.observations} observations"),
        ("precision", f"{percent(report.precision)}  ({report.wrong_kept} kept for nothing)"),
        ("recall", f"{percent(report.recall)}  ({report.missed} missed)"),
        ("F1", percent(report.f1)),
        ("type accuracy", percent(report.type_accuracy)),
        ("file recall", percent(report.file_recall)),
        ("calls", f"{report.calls} ({report.failed_calls} failed, {report.cut_calls} cut)"),
        ("tokens", f"{report.input_tokens:,} in ({report.cached_tokens:,} from a cache), {report.output_tokens:,} out"),
        ("cost", cost or "not known: the model has no price here"),
    )
    types = table(("right type", "events", "kept", "right"), by_type(report), nothing="No event is to be kept.")
    parts = [totals, types]
    if verbose:
        wrong = [row for one in report.judged if (row := _wrong(one)) is not None]
        parts.append(
            table(("session", "what", "event", "expected", "given"), wrong, nothing="Nothing went wrong.", wide=("event",))
        )
    return "\n\n".join(parts)


def _wrong(one: Judged) -> tuple[Cell, ...] | None:
    """What went wrong with an event; None when nothing did."""
    expected, given = "/".join(one.types), "/".join(one.types_given)
    if one.label == "either":
        return None
    if one.label == "skip":
        return (one.session, "kept", one.event, "skip", given) if one.kept else None
    if not one.kept:
        return one.session, "missed" if one.asked else "not answered", one.event, expected, one.reason
    if not one.right_type:
        return one.session, "type", one.event, expected, given
    if one.files_named < len(one.files):
        return one.session, "files", one.event, " ".join(one.files), " ".join(one.files_given)
    return None
