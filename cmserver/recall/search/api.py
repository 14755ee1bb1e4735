"""The doors to search: hits in lines or whole, and the texts of the best in one for a model."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.base.http import operation
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, read, wants_text
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import wrapped
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.search.wire import (
    AnsweredOut,
    ContextIn,
    ContextOut,
    SearchIn,
    SearchIndexOut,
    SearchOut,
    found_out,
    hit_out,
    prompt_out,
)


async def post_search(request: Request) -> Response:
    """Search observations, summaries and prompts, the best first; who accepts only text/plain gets a line for each."""
    who = await caller(request, Principal)
    asked = await read(request, SearchIn)
    as_text = wants_text(request)
    full = asked.format == "full" or (asked.format is None and not as_text)
    found = await _searcher(request).search(who, asked, full=full)
    if as_text:
        return PlainTextResponse(wrapped(found.texts) if found.texts else "Nothing fits.\n")
    page, explain = found.page, asked.explain
    observed = [(hit, hit.observation) for hit in page.hits if hit.observation]
    shown = AnsweredOut(
        prompts=[prompt_out(hit, hit.prompt, full=full, explain=explain) for hit in page.hits if hit.prompt],
        next_cursor=found.next_cursor,
        total=page.total,
        total_is_estimate=page.is_estimate,
        by_meaning=found.by_meaning,
        tokens=estimate_tokens("".join(found.texts)),
        terms={word: round(weight, 3) for word, weight in page.terms.items()} if explain else UNSET,
    )
    rest = msgspec.structs.asdict(shown)
    if full:
        return answer(SearchOut(**rest, observations=[found_out(hit, one, explain=explain) for hit, one in observed]))
    return answer(SearchIndexOut(**rest, observations=[hit_out(hit, one, explain=explain) for hit, one in observed]))


async def post_context(request: Request) -> Response:
    """Search, with the texts of what was found in one, ready for a model."""
    who = await caller(request, Principal)
    page = await _searcher(request).best(who, await read(request, ContextIn))
    observed = [(hit, hit.observation) for hit in page.hits if hit.observation]
    text = "\n\n".join(one.content for _, one in observed)
    return answer(ContextOut(observations=[found_out(hit, one, explain=False) for hit, one in observed], context=text))


def _searcher(request: Request) -> Searcher:
    return cast("Searcher", request.app.state.searcher)


_LINES = operation.Text("text/plain", "A line for each, or its whole text, when only text/plain is accepted.")

routes = [
    Operation(
        "POST",
        "/v1/search",
        post_search,
        scope="observations:read",
        body=SearchIn,
        answers={200: (SearchOut, SearchIndexOut, _LINES)},
    ),
    Operation("POST", "/v1/context", post_context, scope="observations:read", body=ContextIn, answers={200: ContextOut}),
]
