"""A project's activity on the wire."""

from __future__ import annotations

import msgspec

from cmserver.base.structs import reshape
from cmserver.ops.activity.read import ProjectActivity
from cmserver.ops.activity.repository import ActivityDay, ObservationKindCount


class FileCountOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A file; `path` is the file, as agents named it; `count` is how many observations name it; `lastAtEpoch` is when the last of
    them was made.
    """

    path: str
    count: int
    last_at_epoch: int


class ProjectActivityOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Observations and sessions of the last 30 days (UTC), today last; the newest 20,000 observations are counted.

    Of the newest observations, 2,000 at most: how many there are of each kind and type, and the files that most of them name.
    """

    days: list[ActivityDay]
    kinds: list[ObservationKindCount]
    files: list[FileCountOut]


def activity_out(activity: ProjectActivity) -> ProjectActivityOut:
    files = [reshape(file, FileCountOut) for file in activity.files]
    return ProjectActivityOut(days=activity.days, kinds=activity.kinds, files=files)
