"""The page about a project on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.structs import reshape
from cmserver.graph.overviews.model import Overview


class OverviewOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The page about a project. `body` is its text, as Markdown; `numbers` are those of the observations that it cites.

    `opening` are the lines with which a session's index begins. `madeBy` is `rules`, the model that worded it, or `people`.
    `summaryCount` is how many session summaries it was made of; `newSummaries` is how many session summaries came since, and after
    ten the page is made anew.
    """

    id: UUID
    project_id: UUID
    body: str
    opening: list[str]
    numbers: list[int]
    made_by: str
    summary_count: int
    new_summaries: int
    made_at_epoch: int


class ProjectOverviewOut(msgspec.Struct, frozen=True, kw_only=True):
    """The page about a project: `overview` is the page, or null when there is none yet."""

    overview: OverviewOut | None


def overview_out(overview: Overview | None) -> ProjectOverviewOut:
    return ProjectOverviewOut(overview=None if overview is None else reshape(overview, OverviewOut))
