"""`cmserver search`: search observations, summaries and turns."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click
from msgspec import UNSET

from cmserver.base.columns import Cell, format_time, render_table
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli.api_client import (
    ApiClient,
    api_command,
    as_of_option,
    in_chosen_project,
    known_at_option,
    present,
    project_options,
)
from cmserver.cli.output import TextCommand
from cmserver.personal.wire import render_personal_line
from cmserver.recall.search.model import HitOrder, SearchedKind
from cmserver.recall.search.wire import HitOut, PromptHitOut, SearchIndexOut, render_doubts, render_parts


@click.command(cls=TextCommand)
@click.argument("query")
@project_options
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(get_args(SearchedKind)),
    multiple=True,
    help="Only hits of this kind; may be repeated. [default: all]",
)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only observations of this type; may be repeated.")
@click.option("--file", "file_prefix", metavar="PATH", help="Only observations that name a file whose path begins with this.")
@click.option("--entity", metavar="NAME", help="Only observations that mention this file, symbol, technology, person or other.")
@click.option("--min-importance", type=click.FloatRange(0, 1), help="Only observations of at least this importance.")
@click.option(
    "--sort", type=click.Choice(get_args(HitOrder)), default="relevance", show_default=True, help="The best or the newest first."
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="The maximum number of hits.")
@as_of_option
@known_at_option
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
@api_command
async def search(
    client: ApiClient,
    query: str,
    project: str | None,
    kinds: tuple[SearchedKind, ...],
    types: tuple[str, ...],
    file_prefix: str | None,
    entity: str | None,
    min_importance: float | None,
    sort: HitOrder,
    limit: int,
    as_of: str | None,
    known_at: str | None,
    *,
    all_projects: bool,
    explain: bool,
) -> None:
    """Find the observations that match QUERY, the best first.

    Any of its words may match; a "quoted phrase" must be there, unless nothing has it; a -word must not. Put -- before a query
    that begins with a dash.
    """
    body = {
        "query": query,
        "kinds": list(kinds) or None,
        "types": list(types) or None,
        "filePrefix": _from_here(file_prefix) if file_prefix else None,
        "entity": entity,
        "minImportance": min_importance,
        "sort": sort,
        "limit": limit,
        "asOf": as_of,
        "knownAt": known_at,
        "format": "index",
        "explain": explain,
    }
    answer = await in_chosen_project(
        client, lambda name: client.post("/v1/search", present({**body, "projectId": name})), project, all_projects=all_projects
    )
    client.show(answer, SearchIndexOut, lambda page: _table(page, sort))


def _from_here(path: str) -> str:
    """The path; whole where it is written from the working folder, which the server cannot know."""
    return f"{Path.cwd()}/{path}" if path.split("/", 1)[0] in {".", ".."} else path


def _table(page: SearchIndexOut, sort: HitOrder) -> str:
    hits = [*page.observations, *page.prompts]
    hits.sort(key=lambda hit: hit.created_at_epoch if sort == "recent" else hit.score, reverse=True)
    has_parts = any(hit.parts is not UNSET for hit in hits)
    lines = render_table(
        ("number", "score", "at", "type", "title", *(["by"] if has_parts else [])),
        [(*_row(hit), *([_parts(hit)] if has_parts else [])) for hit in hits],
        empty="Nothing matches.",
        shrink=("title",),
        next_cursor=page.next_cursor,
    )
    if page.personal:
        lines += "\n\nYours:\n" + "\n".join(map(render_personal_line, page.personal))
    if page.private:
        lines += "\n\nIn your private sessions:\n" + "\n".join(map(sanitize_line, "".join(page.private).splitlines()))
    if not hits:
        return f"{lines} {render_doubts(page)}".rstrip()
    about = "about " if page.total_is_estimate else ""
    found = f"{about}{page.total} found, {'by words and meaning' if page.by_meaning else 'by words only'}. {render_doubts(page)}"
    return f"{lines}\n\n{found.rstrip()}"


def _row(hit: HitOut | PromptHitOut) -> tuple[Cell, ...]:
    if isinstance(hit, PromptHitOut):
        type_, title = "sub-agent" if hit.agent_id else "turn", f"{hit.text} → {hit.reply}" if hit.reply else hit.text
    else:
        type_, title = hit.type, hit.title
    if hit.changed is not None:
        title = f"(changed in #{hit.changed}) {title}"
    if hit.later:
        title = f"(later: {', '.join(f'#{number}' for number in hit.later)}) {title}"
    return hit.number, f"{hit.score:.2f}", format_time(hit.created_at_epoch), type_, title


def _parts(hit: HitOut | PromptHitOut) -> str:
    return "" if hit.parts is UNSET else render_parts(hit.parts)
