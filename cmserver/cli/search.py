"""`cmserver search`: find something again."""

from __future__ import annotations

import click
import msgspec
from msgspec import UNSET, UnsetType

from cmserver.cli.show import moment, plain, table
from cmserver.cli.talk import Talk, more, talks


class Found(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A hit, and with --explain what its score is made of."""

    number: int
    type: str
    title: str
    created_at_epoch: int
    read_tokens: int
    score: float
    match_type: str
    parts: dict[str, float] | UnsetType = UNSET


class Page(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Hits, the best first."""

    observations: list[Found]
    next_cursor: str | None
    total: int
    total_is_estimate: bool
    by_meaning: bool


@click.command()
@click.argument("query")
@click.option("--project", metavar="PROJECT", help="Only in this project. [default: all that the key may see]")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only what is of this type; may be given several times.")
@click.option("--file", "file_prefix", metavar="PATH", help="Only what names a file whose path begins so.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="At most so many.")
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@talks
async def search(
    talk: Talk,
    query: str,
    project: str | None,
    types: tuple[str, ...],
    file_prefix: str | None,
    limit: int,
    *,
    explain: bool,
) -> None:
    """Find what fits QUERY, the best first.

    Any of its words may match; a "quoted phrase" must be there, a -word must not. Put -- before a query that begins with a dash.
    """
    asked = {
        "query": query,
        "projectId": project,
        "types": list(types) or None,
        "filePrefix": file_prefix,
        "limit": limit,
        "format": "index",
        "explain": explain,
    }
    answer = await talk.api.post("/v1/search", {name: value for name, value in asked.items() if value is not None})
    talk.tell(answer, Page, _words)
    more(answer.read(Page).next_cursor)


def _words(page: Page) -> str:
    rows = [
        (one.number, f"{one.score:.2f}", moment(one.created_at_epoch), one.type, one.title, _parts(one))
        for one in page.observations
    ]
    titles = ("number", "score", "at", "type", "title", "by")
    if all(one.parts is UNSET for one in page.observations):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    lines = table(titles, rows, nothing="Nothing fits.", wide=("title",))
    if not page.observations:
        return lines
    about = "about " if page.total_is_estimate else ""
    return f"{lines}\n\n{about}{page.total} found, {'by words and meaning' if page.by_meaning else 'by words only'}"


def _parts(one: Found) -> str:
    parts = {} if one.parts is UNSET else one.parts
    return plain(", ".join(f"{name} {part:.2f}" for name, part in parts.items()))
