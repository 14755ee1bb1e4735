"""`cmserver merge`, `history`, `acts`, `undo` and `review`: what says the same becomes one, and every change can be undone."""

from __future__ import annotations

from typing import get_args

import click

from cmserver.base.columns import Cell, format_time, render_table
from cmserver.base.errors import Forbidden
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import ApiClient, api_command, is_interactive, path_segment, present
from cmserver.cli.observations import explain_scope, headline, path_of
from cmserver.consolidation import wire as consolidation_wire
from cmserver.consolidation.model import ModelRefusal, WordedBy
from cmserver.observations.history.model import ACT_WORDS, MergeStrategy
from cmserver.personal.model import parse_personal_name
from cmserver.personal.wire import OnePersonalObservationOut, render_personal_line

_SKIPPED = {
    "itself": "is the target itself",
    "missing": "is not there",
    "other_project": "is of another project",
    "superseded": "was merged before",
    "expired": "has expired",
    "summary": "is the summary of a session",
}

_REFUSALS: dict[ModelRefusal, str] = {
    "fact_missing": "in the model's words a fact is missing or changed",
    "fact_new": "the model's words say what none of the texts said",
    "texts_changed": "a text was changed meanwhile",
    "too_long": "the texts are too long for a model together",
    "unusable_answer": "the model's answer was unusable",
    "provider_failed": "the provider failed; the server's log says why",
    "provider_paused": "the provider is paused",
    "budget_spent": "the budget is spent",
}

_strategy = click.option(
    "--strategy",
    type=click.Choice(get_args(MergeStrategy)),
    default="smart_merge",
    show_default=True,
    help="Keep each fact and sentence once, the whole texts, or only the newest.",
)


@click.command()
@click.argument("target", metavar="NUMBER")
@click.argument("source", metavar="NUMBER...", nargs=-1, required=True)
@_strategy
@api_command
async def merge(client: ApiClient, target: str, source: tuple[str, ...], strategy: MergeStrategy) -> None:
    """Merge observations into the first one, which keeps what they say; `undo` takes it back.

    The key needs the scope observations:write.
    """
    try:
        answer = await client.post(f"{path_of(target)}/merge", {"sources": list(source), "strategy": strategy})
    except Forbidden as error:
        raise explain_scope(error) from error
    client.show(answer, consolidation_wire.MergeOut, _render_merge)


def _render_merge(result: consolidation_wire.MergeOut) -> str:
    lines = [headline(result.observation)]
    if result.merged:
        lines.append(f"Merged into it: {', '.join(f'#{number}' for number in result.merged)}.")
    lines += _describe_wording(result.worded_by, result.model_refused)
    lines += [f"Not merged: {sanitize_line(str(skipped.name))} {_SKIPPED[skipped.reason]}." for skipped in result.skipped]
    return "\n".join(lines)


def _describe_wording(worded_by: WordedBy | None, refusal: ModelRefusal | None) -> list[str]:
    if refusal is not None:
        return [f"Worded by rules: {_REFUSALS[refusal]}."]
    return ["Worded by the model; every fact is there."] if worded_by == "model" else []


@click.command()
@click.argument("observation_id", metavar="NUMBER")
@click.option("--limit", type=click.IntRange(1, 200), help="How many changes. [default: 50]")
@api_command
async def history(client: ApiClient, observation_id: str, limit: int | None) -> None:
    """Show what became of an observation: corrections, merges and what was undone, the last first."""
    answer = await client.get(f"{path_of(observation_id)}/history", {"limit": limit})
    client.show(answer, consolidation_wire.HistoryOut, _render_history)


def _render_history(result: consolidation_wire.HistoryOut) -> str:
    state = f"It was merged into #{result.superseded_by}." if result.superseded_by else f"It is version {result.version}."
    rows = [(version.created_at_epoch, _version_cells(version)) for version in result.versions]
    rows += [
        (row.created_at_epoch, ["", format_time(row.created_at_epoch), "forgotten", row.performed_by, ""])
        for row in result.forgotten
    ]
    table = render_table(
        ["VERSION", "WHEN", "WHAT", "BY", "BEFORE"],
        [cells for _, cells in sorted(rows, key=lambda row: row[0], reverse=True)],
        empty="It was never changed.",
        shrink=["BEFORE"],
    )
    return f"{table}\n{state}"


def _version_cells(version: consolidation_wire.ObservationVersionOut) -> list[Cell]:
    what = ACT_WORDS[version.act] + (", undone" if version.undone_at_epoch else "")
    before = version.before
    text = (before.title or before.content) if before else ""
    return [version.version, format_time(version.created_at_epoch), what, version.performed_by, sanitize_line(text)]


@click.command()
@click.argument("observation_id", metavar="NUMBER")
@api_command
async def undo(client: ApiClient, observation_id: str) -> None:
    """Undo the last change of an observation: a correction, a merge, or the end of its time; or of what is yours alone (m12).

    The key needs the scope observations:write.
    """
    is_own = parse_personal_name(observation_id) is not None
    path = f"/v1/personal-observations/{path_segment(observation_id)}" if is_own else path_of(observation_id)
    try:
        answer = await client.post(f"{path}/undo", {})
    except Forbidden as error:
        raise explain_scope(error) from error
    if is_own:
        client.show(answer, OnePersonalObservationOut, lambda result: f"As it was before: {render_personal_line(result.personal)}")
    else:
        client.show(answer, consolidation_wire.UndoOut, _render_undo)


def _render_undo(result: consolidation_wire.UndoOut) -> str:
    restored = ", ".join(f"#{number}" for number in result.restored)
    return f"Undone: {headline(result.observation)}" + (f"\nShown again: {restored}." if restored else "")


@click.command()
@click.argument("suggestion_id", metavar="[SUGGESTION]", required=False)
@click.option("--accept", "status", flag_value="accepted", help="Merge the pair: the newer into the older.")
@click.option("--dismiss", "status", flag_value="dismissed", help="Keep both, and never suggest it again.")
@click.option("--reopen", "status", flag_value="open", help="Suggest a pair again that was dismissed.")
@click.option(
    "--into", "kept_number", metavar="NUMBER", type=click.IntRange(1), help="With --accept: which one stays. [default: the older]"
)
@click.option("--project", metavar="PROJECT", help="Only of this project.")
@_strategy
@api_command
async def review(
    client: ApiClient,
    suggestion_id: str | None,
    status: str | None,
    kept_number: int | None,
    project: str | None,
    strategy: MergeStrategy,
) -> None:
    """List pairs of observations that seem to say the same, and decide what becomes of them.

    In a terminal each pair is asked about. With the id of a SUGGESTION, --accept or --dismiss decides it, and
    --reopen asks again.
    """
    if suggestion_id is not None:
        if status is None:
            raise click.UsageError("Say what becomes of it: --accept, --dismiss or --reopen.")
        await _resolve(client, suggestion_id, status, strategy, kept_number)
        return
    if status is not None:
        raise click.UsageError("Name the suggestion: `cmserver review` lists their ids.")
    answer = await client.get("/v1/suggestions", {"project": project})
    if client.as_json or not is_interactive():
        client.show(answer, consolidation_wire.SuggestionsOut, _render_suggestions)
        return
    suggestions = answer.read(consolidation_wire.SuggestionsOut).suggestions
    for suggestion in suggestions:
        click.echo(_describe(suggestion))
        choice = click.prompt(
            "Merge (m), keep both (k), later (l)", type=click.Choice(["m", "k", "l"]), default="l", show_choices=False
        )
        if choice != "l":
            await _resolve(client, str(suggestion.id), "accepted" if choice == "m" else "dismissed", strategy)
    if not suggestions:
        click.echo("Nothing to review.")


async def _resolve(client: ApiClient, suggestion_id: str, status: str, strategy: MergeStrategy, into: int | None = None) -> None:
    try:
        body = present({"status": status, "strategy": strategy, "into": into})
        answer = await client.patch(f"/v1/suggestions/{suggestion_id}", body)
    except Forbidden as error:
        raise explain_scope(error) from error
    client.show(answer, consolidation_wire.ResolvedSuggestionOut, _render_resolved)


def _render_resolved(result: consolidation_wire.ResolvedSuggestionOut) -> str:
    if result.observation is not None:
        lines = [f"Merged: {headline(result.observation)}", *_describe_wording(result.worded_by, result.model_refused)]
        return "\n".join(lines)
    return f"The suggestion is {result.suggestion.status}."


def _render_suggestions(result: consolidation_wire.SuggestionsOut) -> str:
    return render_table(
        ["SUGGESTION", "REASON", "ALIKE", "PAIR", "TITLES"],
        [
            [
                str(suggestion.id),
                suggestion.reason,
                f"{suggestion.similarity:.2f}",
                f"#{suggestion.left_number} #{suggestion.right_number}",
                f"{sanitize_line(suggestion.left_title or '')} | {sanitize_line(suggestion.right_title or '')}",
            ]
            for suggestion in result.suggestions
        ],
        empty="Nothing to review.",
        shrink=["TITLES"],
        next_cursor=result.next_cursor,
    )


def _describe(suggestion: consolidation_wire.SuggestionOut) -> str:
    left = f"#{suggestion.left_number} {sanitize_line(suggestion.left_title or '')}"
    right = f"#{suggestion.right_number} {sanitize_line(suggestion.right_title or '')}"
    return f"\n{suggestion.reason} ({suggestion.similarity:.2f})\n  {left}\n  {right}"
