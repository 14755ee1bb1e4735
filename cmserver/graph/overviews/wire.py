"""The page about a project on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.structs import reshape
from cmserver.graph.overviews.model import Overview


class OverviewOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`body` is Markdown. `opening` are the lines with which a session's index begins; `numbers` the observations it cites.

    `madeBy` is `rules`, the model that worded it, or `people`. `newSummaries` is how many session summaries came since; after ten
    the page is made anew.
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
    """The page about a project; null when there is none yet."""

    overview: OverviewOut | None


def overview_out(overview: Overview | None) -> ProjectOverviewOut:
    return ProjectOverviewOut(overview=None if overview is None else reshape(overview, OverviewOut))
