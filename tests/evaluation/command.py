"""`bin/bench generation`: measures how good a provider's observations are."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import click
import msgspec

from cmserver.base.columns import Cell, render_fields, render_table
from cmserver.base.configuration import BadSetting, load
from cmserver.base.errors import Invalid
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.progress import Progress
from cmserver.generation.prompt import LANGUAGE
from cmserver.models.providers import registry
from cmserver.models.providers.failures import mask_key
from cmserver.models.providers.model import ProviderSettings, Verbosity
from tests.evaluation.cases import cases
from tests.evaluation.evaluate import EvaluationReport, EventResult, count_by_type, evaluate, format_percent
from tests.evaluation.kept_answers import KeptAnswers
from tests.rules.as_model import RulesAsModel

_ANSWERS = Path(__file__).parents[2] / "build" / "evaluation.json"


@click.command(name="generation")
@click.option("--provider", "name", help="The provider to measure. [default: the first of CMSERVER_PROVIDER]")
@click.option("--model", help="Its model. [default: as CMSERVER_MODEL]")
@click.option(
    "--verbosity",
    type=click.Choice(["minimal", "normal", "verbose"]),
    default="normal",
    show_default=True,
    help="How much the provider is asked to record.",
)
@click.option("--verbose", is_flag=True, help="Also list each event that was missed, wrongly kept, or given a wrong type or file.")
@click.option("--json", "as_json", is_flag=True, help="The whole report, with every event, as one JSON object.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A TOML file with settings. [default: the file in CMSERVER_CONFIG]",
)
def main(
    name: str | None, model: str | None, verbosity: Verbosity, config_file: Path | None, *, verbose: bool, as_json: bool
) -> None:
    """Show a provider made-up sessions whose events are labelled, and print how well it separates what is worth keeping.

    Real calls are made, one for each session, and cost what the report says. Needs no server. Exits 0, also when some calls failed
    (the report says so), 1 when all failed, and 2 when a setting is missing or wrong.
    """
    try:
        settings = load(os.environ, config_file=config_file).settings
        provider_settings = _select_provider(settings, name, model)
        provider = RulesAsModel() if provider_settings.name == RulesAsModel.name else registry.load(provider_settings)
    except (BadSetting, Invalid) as error:
        raise click.UsageError(str(error)) from error
    provider = KeptAnswers(provider, provider_settings.base_url, _ANSWERS)
    interrupted = "Interrupted. The answers so far are kept: run it again, and only the others are asked for."
    with Progress("Asking", len(cases()), "sessions", interrupted=interrupted) as progress:
        report = asyncio.run(
            evaluate(
                provider,
                verbosity=verbosity,
                language=LANGUAGE,
                event_tokens=registry.event_tokens(settings),
                timeout_seconds=settings.provider_timeout_seconds,
                show_progress=progress.show,
            )
        )
    provider.forget()
    text = msgspec.json.format(msgspec.json.encode(report), indent=2).decode() if as_json else _render(report, verbose=verbose)
    click.echo(mask_key(text, provider_settings.api_key))
    for sentence, sessions in Counter(report.failures.values()).items():
        click.echo(
            mask_key(sanitize_line(f"bin/bench: {sessions} of {report.calls} calls failed: {sentence}"), provider_settings.api_key),
            err=True,
        )
    sys.exit(ExitCode.FAILURE if report.failed_calls == report.calls else ExitCode.OK)


def _select_provider(settings: Settings, name: str | None, model: str | None) -> ProviderSettings:
    """The provider's settings; those of the first provider do not apply to one that they do not name."""
    configured = next((provider for provider in registry.provider_settings(settings) if name in (None, provider.name)), None)
    if configured is None:
        configured = registry.provider_settings(msgspec.structs.replace(settings, provider=name, model=None, base_url=None))[0]
    return msgspec.structs.replace(configured, model=model) if model else configured


def _render(report: EvaluationReport, *, verbose: bool) -> str:
    cost = None if report.cost_usd is None else f"${report.cost_usd:.4f}"
    totals = render_fields(
        ("provider", f"{report.provider} ({report.model})"),
        ("events", f"{report.events} with a label; {report.observations} observations"),
        ("precision", f"{format_percent(report.precision)}  ({report.wrong_kept} wrongly kept)"),
        ("recall", f"{format_percent(report.recall)}  ({report.missed} missed)"),
        ("F1", format_percent(report.f1)),
        ("type accuracy", format_percent(report.type_accuracy)),
        ("file recall", format_percent(report.file_recall)),
        ("calls", f"{report.calls} ({report.failed_calls} failed, {report.cut_calls} cut)"),
        ("tokens", f"{report.input_tokens:,} in ({report.cached_tokens:,} from a cache), {report.output_tokens:,} out"),
        ("cost", cost or "unknown: no price is known for the model"),
    )
    types = render_table(("right type", "events", "kept", "right"), count_by_type(report), empty="No event is to be kept.")
    parts = [totals, types]
    if verbose:
        wrong = [row for event in report.judged if (row := _describe_mistake(event)) is not None]
        parts.append(
            render_table(("session", "what", "event", "expected", "given"), wrong, empty="Nothing went wrong.", shrink=("event",))
        )
    return "\n\n".join(parts)


def _describe_mistake(event: EventResult) -> tuple[Cell, ...] | None:
    """The table row of an event that went wrong; None when it did not."""
    expected, actual = "/".join(event.types), "/".join(event.types_given)
    if event.label == "either":
        return None
    if event.label == "skip":
        return (event.session, "kept", event.event, "skip", actual) if event.kept else None
    if not event.kept:
        return event.session, "missed" if event.asked else "not answered", event.event, expected, event.reason
    if not event.right_type:
        return event.session, "type", event.event, expected, actual
    if event.files_named < len(event.files):
        return event.session, "files", event.event, " ".join(event.files), " ".join(event.files_given)
    return None
