"""Further names of tools: claude-mem's, with its arguments, `memory_*`, and Contextify's. Unknown arguments are refused."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, Issue, NotFound
from cmserver.base.text import Key, Line, cut_query, split_commas
from cmserver.base.tolerant_json import record
from cmserver.doors.mcp.call import Call, Tool, ToolHandler, handle
from cmserver.doors.mcp.contextify import CONTEXTIFY
from cmserver.doors.mcp.project import NOTHING_YET, render_context
from cmserver.doors.mcp.tools import TOOLS, observation_get, observation_timeline, read_types, render_hits
from cmserver.events.model import StoredToolUse
from cmserver.ingest.tool_uses import MAX_IDS, find_tool_uses, number_of
from cmserver.observations.plain import block, fence, one_line
from cmserver.observations.wire import BatchReadIn
from cmserver.recall.search.model import SearchedKind
from cmserver.recall.search.searcher import Searcher
from cmserver.recall.search.wire import SearchIn
from cmserver.recall.timeline.wire import EntryCount, TimelineIn
from cmserver.recall.wire import ContextQuery

Aliases = Literal["none", "claude-mem", "memory", "contextify", "all"]

_MAX_HITS = 100
_MAX_NAME_CHARS = 200
_KINDS: dict[str, list[SearchedKind]] = {"observations": ["observation", "manual"], "sessions": ["summary"], "prompts": ["turn"]}
_ALL_KINDS: list[SearchedKind] = ["observation", "manual", "summary", "turn"]
_MAX_PROJECTS = 5
_PROJECT = {"$.projectId": "$.project"}


class SearchArguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `search`. `type` is observations, sessions (summaries), prompts, or a type, as `obs_type`; commas are or."""

    query: Annotated[str, Meta(min_length=1)]
    limit: Annotated[int, Meta(ge=1, le=_MAX_HITS)] = 20
    offset: Annotated[int, Meta(ge=0, lt=_MAX_HITS)] = 0
    project: Key | None = None
    type: Line | None = None
    obs_type: Line | None = None
    date_start: Line | None = field(default=None, name="dateStart")
    date_end: Line | None = field(default=None, name="dateEnd")
    order_by: Literal["relevance", "date_desc", "date_asc"] | None = field(default=None, name="orderBy")


class TimelineArguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `timeline`."""

    anchor: Annotated[int, Meta(ge=1)] | Line | None = None
    query: Annotated[str, Meta(min_length=1)] | None = None
    depth_before: EntryCount = 10
    depth_after: EntryCount = 10
    project: Key | None = None


class StartArguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `session_start_context`; `projects` are several, with commas between."""

    project: Key | None = None
    projects: Line | None = None


class ToolUsesArguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """As claude-mem's `get_tool_uses`: `ids` are the agents' own ids of calls, or numbers."""

    ids: Annotated[list[int | Line], Meta(min_length=1, max_length=MAX_IDS)]
    limit: Annotated[int, Meta(ge=1, le=MAX_IDS)] = 20
    project: Key | None = None
    content_session_id: Key | None = field(default=None, name="contentSessionId")


@cache
def list_tools(aliases: Aliases) -> Sequence[Tool]:
    """All tools, with the aliases that the operator wants."""
    memory = [msgspec.structs.replace(tool, name=tool.name.replace("observation_", "memory_")) for tool in TOOLS]
    return [
        *TOOLS,
        *(_CLAUDE_MEM if aliases in {"claude-mem", "all"} else []),
        *(memory if aliases in {"memory", "all"} else []),
        *(CONTEXTIFY if aliases in {"contextify", "all"} else []),
    ]


async def _search(call: Call, arguments: SearchArguments) -> str:
    """The hits of claude-mem's `search`, as `observation_search` renders them."""
    end = arguments.offset + arguments.limit
    if end > _MAX_HITS:
        raise Invalid.at("$.offset", f"`offset` and `limit` reach no further than the {_MAX_HITS}th hit: ask more narrowly.")
    kinds = _KINDS.get(arguments.type or "")
    names = split_commas(arguments.obs_type) + ([] if kinds else split_commas(arguments.type))
    with _alias_paths({"$.types": "$.obs_type" if kinds or arguments.obs_type else "$.type"}):
        types = read_types(names)
    search = SearchIn(
        query=cut_query(arguments.query),
        project_id=arguments.project,
        kinds=kinds or (None if types else _ALL_KINDS),
        types=types,
        since=arguments.date_start,
        until=arguments.date_end,
        limit=end,
    )
    with _alias_paths({"$.since": "$.dateStart", "$.until": "$.dateEnd", **_PROJECT}):
        result = await call.dependency(Searcher).search(call.principal, search, full=False)
    order = None if arguments.order_by == "relevance" else arguments.order_by
    return render_hits(result, skip=arguments.offset, order=order, next_page=f"offset {end}" if end < _MAX_HITS else "")


async def _timeline(call: Call, arguments: TimelineArguments) -> str:
    """The lines of claude-mem's `timeline`, as `observation_timeline` renders them."""
    request = TimelineIn(
        anchor=arguments.anchor,
        query=arguments.query and cut_query(arguments.query),
        project_id=arguments.project,
        before=arguments.depth_before,
        after=arguments.depth_after,
    )
    with _alias_paths(_PROJECT):
        return await observation_timeline(call, request)


async def _start(call: Call, arguments: StartArguments) -> str:
    projects = list(dict.fromkeys(split_commas(arguments.projects))) or [arguments.project]
    if len(projects) > _MAX_PROJECTS:
        raise Invalid.at("$.projects", f"Name at most {_MAX_PROJECTS} projects.")
    texts = [
        await render_context(call, ContextQuery(project=name), place=place, among=len(projects))
        for place, name in enumerate(projects, start=1)
    ]
    return "\n".join(filter(None, texts)) or NOTHING_YET


async def _tool_uses(call: Call, arguments: ToolUsesArguments) -> str:
    """What was sent to the tools, and what they answered, as it is stored."""
    project = arguments.project and await call.dependency(Projects).named_or_own(call.principal, arguments.project, at="$.project")
    found = await find_tool_uses(
        call.dependency(Db),
        call.principal,
        arguments.ids,
        project_id=project.id if project else None,
        session=arguments.content_session_id,
    )
    if not found:
        return "None of these tool calls is stored."
    return fence("".join(f"{line}\n" for line in _tool_use_lines(use)) for use in found[: arguments.limit])


def _tool_use_lines(use: StoredToolUse) -> Generator[str]:
    payload = record(use.payload)
    number = f", see #{use.observation_number}" if use.observation_number else ""
    name = one_line(f"{use.tool_use_id or number_of(use.id)}: {payload.get('tool_name') or 'a tool'}", _MAX_NAME_CHARS)
    yield f"{name}, {use.occurred_at:%Y-%m-%d %H:%M:%S} UTC{number}"
    for label, key in (("Sent", "tool_input"), ("Answer", "tool_response"), ("Error", "error")):
        if (value := payload.get(key)) is not None:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield f"{label}: {block(text)}"
    if use.payload is None:
        yield "What was sent and answered is no longer stored."


@contextmanager
def _alias_paths(names: Mapping[str, str]) -> Generator[None]:
    """Let errors inside name the field that was sent, not the one that it became."""
    try:
        yield
    except (Invalid, NotFound) as error:
        error.issues = [Issue(names.get(issue.path, issue.path), issue.message) for issue in error.issues]
        raise


def _alias(
    native: str, name: str, shown_fields: Mapping[str, str], handler: ToolHandler, *, project_alternatives: tuple[str, ...] = ()
) -> Tool:
    """The native tool by claude-mem's name and with its arguments. What names a project is its argument `project`."""
    tool = next(tool for tool in TOOLS if tool.name == native)
    return msgspec.structs.replace(
        tool,
        name=name,
        description=f"As {native}, by claude-mem's name.",
        shown_fields=shown_fields,
        handler=handler,
        project_field=tool.project_field and "project",
        project_alternatives=project_alternatives,
    )


_CLAUDE_MEM = [
    _alias(
        "observation_search",
        "search",
        {
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
        handle(SearchArguments, _search),
    ),
    _alias(
        "observation_timeline",
        "timeline",
        {"anchor": "number, or ISO time", "query": "", "depth_before": "", "depth_after": "", "project": ""},
        handle(TimelineArguments, _timeline),
        project_alternatives=("anchor",),
    ),
    _alias("observation_get", "get_observations", {"ids": "numbers"}, handle(BatchReadIn, observation_get)),
    msgspec.structs.replace(
        _alias("observation_get", "get_tool_uses", {"ids": "of tools' calls: toolu_..."}, handle(ToolUsesArguments, _tool_uses)),
        title="Read tool calls",
        description="What was sent to tools and what they answered, whole. Long: name only the calls that you need.",
    ),
    _alias(
        "observation_context",
        "session_start_context",
        {"project": "", "projects": "with commas between"},
        handle(StartArguments, _start),
        project_alternatives=("projects",),
    ),
]
