"""`bin/bench usefulness`: measures what a server remembers of labelled sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
import msgspec

from cmserver.base import logs
from cmserver.base.columns import Cell, render_table
from tests.bench.against import checkout
from tests.bench.load import ROOT
from tests.bench.world import world
from tests.evaluation.usefulness.corpus import HALVES, STRANGERS, Half, load_projects
from tests.evaluation.usefulness.figures import SessionDetails, Share, UsefulnessFigures, describe, measure
from tests.evaluation.usefulness.playback import ProjectMemory, play

THIS_TREE = "this tree"
_EVENTS = 5
"""Observations are counted per so many tool uses."""


class UsefulnessReport(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one tree by half, `all` for both; details of the half `dev` only: nobody fits rules to the other."""

    tree: str
    figures: dict[str, UsefulnessFigures]
    details: list[SessionDetails]


@click.command(name="usefulness")
@click.option("--half", type=click.Choice([*HALVES, "all", *STRANGERS, "strangers"]), default="all", show_default=True)
@click.option("--against", "commit", help="Play the same sessions to the server of this commit as well.")
@click.option("--verbose", is_flag=True, help="Also list what was remembered, lost and wrong; of dev and stranger only.")
@click.option("--json", "as_json", is_flag=True, help="The whole report as JSON.")
def main(half: str, commit: str | None, *, verbose: bool, as_json: bool) -> None:
    """Play labelled sessions to a server with the offline provider, and print how much of what matters it remembers and finds.

    Takes about two minutes for each server.
    """
    logs.configure("console", "error")
    groups: dict[str, tuple[Half, ...]] = {"all": HALVES, "strangers": STRANGERS}
    halves: list[Half] = [name for name in (*HALVES, *STRANGERS) if half == name or name in groups.get(half, ())]
    projects = [project for name in halves for project in load_projects(name)]
    if not projects:
        raise click.ClickException("There are no labelled sessions in tests/evaluation/usefulness.")
    with world(durable=False) as here:
        reports = [make_report(THIS_TREE, halves, play(here, ROOT, projects))]
        if commit:
            with checkout(here.folder / "older", commit) as older_tree:
                reports.append(make_report(commit, halves, play(here, older_tree, projects)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(reports), indent=2))
        return
    if verbose:
        for report in reports:
            click.echo("\n".join([f"== {report.tree}", *map(_render_details, report.details), ""]))
    click.echo(render(reports))


def measure_half(half: Half) -> UsefulnessFigures:
    """The figures of this tree."""
    with world(durable=False) as here:
        return measure(play(here, ROOT, load_projects(half)))


def make_report(tree: str, halves: Sequence[Half], memories: Sequence[ProjectMemory]) -> UsefulnessReport:
    figures = {half: measure(memory for memory in memories if memory.project.half == half) for half in halves}
    if len(halves) > 1:
        figures["all"] = measure(memories)
    details = [line for memory in memories if memory.project.half in {"dev", "stranger"} for line in describe(memory)]
    return UsefulnessReport(tree=tree, figures=figures, details=details)


def render(reports: Sequence[UsefulnessReport]) -> str:
    """A line for each figure, a column for each half and tree."""
    columns = [(f"{half}, {report.tree}", report.figures[half]) for half in reports[0].figures for report in reports]
    names = list(dict.fromkeys(name for _, figures in columns for name in _cells(figures)))
    rows: list[list[Cell]] = [[name, *(_cells(figures).get(name, "-") for _, figures in columns)] for name in names]
    return render_table(["figure", *(title for title, _ in columns)], rows, empty="Nothing was measured.")


def _cells(figures: UsefulnessFigures) -> Mapping[str, str]:
    by_kind = {f"  {kind}": _percent(share) for kind, share in sorted(figures.facts_kept_by_kind.items())}
    lines, tokens, made = figures.index_lines, figures.index_tokens, figures.tokens
    return {
        "sessions": str(figures.sessions),
        "facts kept": _percent(figures.facts_kept),
        **by_kind,
        "observations with a fact": _percent(figures.observations_with_a_fact),
        f"observations per {_EVENTS} tool uses": f"{figures.observations_per_tool_use.ratio * _EVENTS:.2f}",
        "  without decisions and open ends": f"{figures.plain_observations_per_tool_use.ratio * _EVENTS:.2f}",
        "wrong statements": str(figures.wrong),
        "tokens of observations": f"{made.ratio:.1%} ({made.count:,} of {made.of:,} of events)",
        "lines of the next index": f"{lines.ratio:.1f}",
        "tokens of the next index": f"{tokens.ratio:.0f}",
        "tokens per line": f"{tokens.count / lines.count:.1f}" if lines.count else "-",
        "questions with a source in the top five": _percent(figures.questions_answered),
        "related prompts with their fact": _percent(figures.prompts_with_their_fact),
        "unrelated prompts left alone": _percent(figures.unrelated_prompts_left_alone),
    }


def _percent(share: Share) -> str:
    return f"{share.ratio:.0%} ({share.count}/{share.of})"


def _render_details(details: SessionDetails) -> str:
    lists = {
        "lost": details.lost_facts,
        "wrong": details.wrong,
        "not found": details.failed_questions,
        "not shown": details.failed_prompts,
    }
    return "\n".join(
        [
            f"\n{details.session}",
            *(f"  {line}" for line in details.observations),
            *(f"  {name}: {line}" for name, lines in lists.items() for line in lines),
        ]
    )
