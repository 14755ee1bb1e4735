"""The activity of a project over HTTP."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.base.columns import format_time, render_table
from cmserver.ops.activity.read import read_activity
from cmserver.ops.activity.wire import ProjectActivityOut, activity_out


def _render_activity(result: ProjectActivityOut, _: verb.Typed) -> str:
    days = [(day.day, day.observations, day.sessions) for day in result.days if day.observations or day.sessions]
    kinds = [(kind.kind, kind.type, kind.count) for kind in result.kinds]
    files = [(file.path, file.count, format_time(file.last_at_epoch)) for file in result.files]
    return "\n\n".join(
        (
            render_table(("day", "observations", "sessions"), days, empty="Nothing happened in the last 30 days."),
            render_table(("kind", "type", "observations"), kinds, empty="There are no observations."),
            render_table(("file", "observations", "last"), files, empty="No observation names a file.", shrink=("file",)),
        )
    )


@verb.command(
    "projects activity",
    _render_activity,
    text="Show what goes on in a project: its last 30 days, and the kinds and files of its newest observations.",
)
@verb.get("/v1/projects/{project:path}/activity", "observations:read")
async def get_activity(call: verb.VerbCall, given: str) -> ProjectActivityOut:
    """What goes on in a project: observations and sessions by day, kinds, and the files that are most remembered."""
    async with call.read() as conn:
        return activity_out(await read_activity(conn, call.principal, given))


routes = [get_activity]
