"""The door to the timeline."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, read, wants_text
from cmserver.base.ids import epoch_ms
from cmserver.recall.timeline.plain import in_lines
from cmserver.recall.timeline.timelines import Timelines
from cmserver.recall.timeline.wire import TimelineIn, TimelineOut, item_out


async def post_timeline(request: Request) -> Response:
    """What happened before and after an observation, a prompt, a moment or the best hit of a search.

    Prompts, observations and summaries, oldest first; who accepts only text/plain gets it as lines.
    """
    who = await caller(request, Principal)
    asked = await read(request, TimelineIn)
    told = await cast("Timelines", request.app.state.timelines).around(who, asked)
    full = asked.format == "full"
    if wants_text(request):
        if told is None:
            return PlainTextResponse("Nothing fits.\n")
        return PlainTextResponse(in_lines(told, full=full) if told.told else "There is nothing around it.\n")
    if told is None:
        return answer(TimelineOut(anchor=None, at_epoch=None, items=[]))
    items = [item_out(one, is_anchor=one is told.anchor, full=full) for one in told.told]
    anchor = next((item for item in items if item.is_anchor), None)
    return answer(TimelineOut(anchor=anchor, at_epoch=epoch_ms(told.at), items=items))


_LINES = operation.Text("text/plain", "A line for each, below its day and session, when only text/plain is accepted.")

routes = [
    Operation(
        "POST", "/v1/timeline", post_timeline, scope="observations:read", body=TimelineIn, answers={200: (TimelineOut, _LINES)}
    ),
]
