"""Further names for tools, for those who know them from elsewhere: claude-mem's, with its arguments, and `memory_*`.

They do what the native ones do, and answer in their words. What they do not take is refused, so that nobody believes it was heard.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from cmserver.base.errors import Invalid, Issue, NotFound
from cmserver.base.text import Key, Text
from cmserver.mcp.call import Call, Tool, taking
from cmserver.mcp.project import NOTHING_YET
from cmserver.mcp.tools import TOOLS, hits_told, observation_get, observation_timeline
from cmserver.observations.wire import BatchReadIn
from cmserver.recall.index.layout import TOOLS as BY_TOOLS
from cmserver.recall.search.model import SearchedKind
from cmserver.recall.search.wire import SearchIn, Words
from cmserver.recall.timeline.wire import Many, TimelineIn
from cmserver.recall.wire import ContextQuery

Aliases = Literal["none", "claude-mem", "memory", "all"]

_MOST = 100
_KINDS: dict[str, list[SearchedKind]] = {"observations": ["observation", "manual"], "sessions": ["summary"], "prompts": ["prompt"]}
_EVERYTHING: list[SearchedKind] = ["observation", "manual", "summary", "prompt"]
_MOST_PROJECTS = 5
_PROJECT = {"$.projectId": "$.project"}


class SearchAsked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `search`. `type` is observations, sessions (summaries), prompts, or a type, as `obs_type`; commas are or."""

    query: Words
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 20
    offset: Annotated[int, Meta(ge=0, lt=_MOST)] = 0
    project: Key | None = None
    type: Text | None = None
    obs_type: Text | None = None
    date_start: Words | None = field(default=None, name="dateStart")
    date_end: Words | None = field(default=None, name="dateEnd")
    order_by: Literal["relevance", "date_desc", "date_asc"] | None = field(default=None, name="orderBy")


class TimelineAsked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `timeline`."""

    anchor: Annotated[int, Meta(ge=1)] | Words | None = None
    query: Words | None = None
    depth_before: Many = 10
    depth_after: Many = 10
    project: Key | None = None


class StartAsked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `session_start_context`; `projects` are several, with commas between."""

    project: Key | None = None
    projects: Words | None = None


def tools(aliases: Aliases) -> list[Tool]:
    """All tools that there are, with the further names that the operator wants."""
    memory = [msgspec.structs.replace(tool, name=tool.name.replace("observation_", "memory_")) for tool in TOOLS]
    return [
        *TOOLS,
        *(_CLAUDE_MEM if aliases in {"claude-mem", "all"} else []),
        *(memory if aliases in {"memory", "all"} else []),
    ]


async def _search(call: Call, asked: SearchAsked) -> str:
    if asked.offset + asked.limit > _MOST:
        raise Invalid.at("$.offset", f"`offset` and `limit` reach no further than the {_MOST}th hit: ask more narrowly.")
    kinds = _KINDS.get(asked.type or "")
    types = _words(asked.obs_type) + ([] if kinds else _words(asked.type))
    wanted = SearchIn(
        query=asked.query,
        project_id=asked.project,
        kinds=kinds or (None if types else _EVERYTHING),
        types=types or None,
        since=asked.date_start,
        until=asked.date_end,
        limit=asked.offset + asked.limit,
    )
    with _in_their_words({"$.since": "$.dateStart", "$.until": "$.dateEnd", **_PROJECT}):
        found = await call.verbs.searcher.search(call.who, wanted, full=False)
    order = None if asked.order_by == "relevance" else asked.order_by
    reached = asked.offset + asked.limit
    return hits_told(found, skip=asked.offset, order=order, next_page=f"offset {reached}" if reached < _MOST else "")


async def _timeline(call: Call, asked: TimelineAsked) -> str:
    wanted = TimelineIn(
        anchor=asked.anchor, query=asked.query, project_id=asked.project, before=asked.depth_before, after=asked.depth_after
    )
    with _in_their_words(_PROJECT):
        return await observation_timeline(call, wanted)


async def _start(call: Call, asked: StartAsked) -> str:
    named = list(dict.fromkeys(_words(asked.projects))) or [asked.project]
    if len(named) > _MOST_PROJECTS:
        raise Invalid.at("$.projects", f"Say {_MOST_PROJECTS} projects at most.")
    told = [
        await call.verbs.contexts.told(call.who, ContextQuery(project=name), reader=BY_TOOLS, among=len(named)) for name in named
    ]
    return "\n".join(one.text for one in told if one.text) or NOTHING_YET


@contextmanager
def _in_their_words(names: Mapping[str, str]) -> Generator[None]:
    """A refusal names the field that was sent."""
    try:
        yield
    except (Invalid, NotFound) as error:
        error.issues = [Issue(names.get(one.path, one.path), one.message) for one in error.issues]
        raise


def _words(said: str | None) -> list[str]:
    return [word.strip() for word in (said or "").split(",") if word.strip()]


_CLAUDE_MEM = [
    Tool(
        name="search",
        title="Search what is remembered",
        description="As observation_search, by claude-mem's name.",
        shows={
            "query": "",
            "limit": "",
            "offset": "",
            "project": "",
            "type": "observations, sessions, prompts",
            "obs_type": "bugfix, feature, ...",
            "dateStart": "",
            "dateEnd": "",
            "orderBy": "",
        },
        scope="observations:read",
        takes=taking(SearchAsked, _search),
        project_in="project",
    ),
    Tool(
        name="timeline",
        title="What happened around it",
        description="As observation_timeline, by claude-mem's name.",
        shows={"anchor": "number, or ISO time", "query": "", "depth_before": "", "depth_after": "", "project": ""},
        scope="observations:read",
        takes=taking(TimelineAsked, _timeline),
        project_in="project",
        unless=("anchor",),
    ),
    Tool(
        name="get_observations",
        title="Read whole observations",
        description="As observation_get, by claude-mem's name.",
        shows={"ids": "numbers"},
        scope="observations:read",
        takes=taking(BatchReadIn, observation_get),
    ),
    Tool(
        name="session_start_context",
        title="Context of a project",
        description="As observation_context, by claude-mem's name.",
        shows={"project": "", "projects": "with commas between"},
        scope="observations:read",
        takes=taking(StartAsked, _start),
        project_in="project",
        unless=("projects",),
    ),
]
