"""Tool calls as claude-mem's worker gives them: what an agent sent to a tool, and what that answered, redacted as it is stored."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, db, dependency, query, read
from cmserver.base.ids import epoch_ms, iso
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Text, split_commas
from cmserver.base.tolerant_json import record
from cmserver.doors.claude_mem import rows as worker_rows
from cmserver.doors.claude_mem.session_events import session_number
from cmserver.doors.guest import admit_caller
from cmserver.events import repository as events
from cmserver.events.model import StoredToolUse, ToolUseFilter
from cmserver.ingest.tool_uses import MAX_IDS, find_tool_uses, number_of

_PAGE = 50
_MAX_PROJECTS = 100
_PLATFORMS = {"claude": ["claude", "claude-code"], "codex": ["codex", "transcript"], "cursor": ["cursor"]}


class ToolUsesQuery(msgspec.Struct, kw_only=True):
    """`session` is the session's id at its agent, as `contentSessionId`; `toolName` are names of tools, with commas between.
    `orderBy` is which come first: the newest (`date_desc`) or the oldest.

    `dateStart` is the first moment, in ISO 8601 or milliseconds since 1970; `dateEnd` is the moment after the last. A `limit` above
    200 is 200.
    """

    project: Key | None = None
    session: Key | None = None
    content_session_id: Key | None = field(default=None, name="contentSessionId")
    tool_name: Text | None = None
    tool_name_camel: Text | None = field(default=None, name="toolName")
    agent_id: Key | None = field(default=None, name="agentId")
    platform_camel: Text | None = field(default=None, name="platformSource")
    platform_snake: Text | None = field(default=None, name="platform_source")
    date_start: Text | None = field(default=None, name="dateStart")
    date_end: Text | None = field(default=None, name="dateEnd")
    limit: worker_rows.Many = _PAGE
    offset: worker_rows.Offset = 0
    order_by: Literal["date_desc", "date_asc"] | None = field(default=None, name="orderBy")


class ToolUsesIn(msgspec.Struct, kw_only=True):
    """POST /api/tool-uses/batch. `ids` are numbers of the list, or the agents' own ids (`toolu_…`), also with commas between.

    `contentSessionId` is the session's id at its agent; `limit` is how many are wanted.
    """

    ids: list[int | str] | str
    limit: Annotated[int, Meta(ge=1, le=MAX_IDS)] = MAX_IDS
    project: Key | None = None
    content_session_id: Key | None = field(default=None, name="contentSessionId")


class ToolUseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool. `id` is a number for it; `tool_use_id` is the agent's id, or null; `observation_id` is the number of the
    first observation made of it, or null. `agent_id` is the sub-agent, or null; `agent_type` is its kind, or null.
    `or_generation_id` is always null; `or_session_id` is always null. `tool_input_bytes` is the length of what was stored of the
    input; `tool_response_bytes` is the length of what was stored of the answer.
    """

    id: int
    tool_use_id: str | None
    tool_name: str
    project: str
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    agent_id: str | None
    agent_type: str | None
    observation_id: int | None
    or_generation_id: None = None
    or_session_id: None = None
    prompt_number: int | None
    created_at: str
    created_at_epoch: int
    tool_input_bytes: int
    tool_response_bytes: int


class WholeToolUseRow(ToolUseRow, frozen=True, kw_only=True):
    """A call of a tool with its texts: `tool_input` is what was sent, as JSON text, and `tool_response` is the answer, or the
    error. Both are null where retention has removed them. `cwd` is the folder; `session_db_id` is a number for the session.
    """

    session_db_id: int | None
    tool_input: str | None
    tool_response: str | None
    cwd: str | None


class ToolUsesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`count` is how many there are in this page."""

    count: int
    tool_uses: list[ToolUseRow]


async def get_tool_uses(request: Request) -> Response:
    """A page of tool calls without their texts, the newest first."""
    principal = await admit_caller(request)
    params = query(request, ToolUsesQuery)
    where = await worker_rows.resolve_scope(request, principal, params.project)
    if where is None:
        return answer(ToolUsesOut(count=0, tool_uses=[]))
    platform = worker_rows.requested_platform(request, params.platform_camel, params.platform_snake)
    filters = ToolUseFilter(
        session=params.session or params.content_session_id,
        tool_names=split_commas(params.tool_name or params.tool_name_camel) or None,
        agent_id=params.agent_id,
        platforms=_PLATFORMS.get(platform, [platform]) if platform else None,
        since=worker_rows.moment(params.date_start, "$.dateStart"),
        until=worker_rows.moment(params.date_end, "$.dateEnd"),
        is_oldest_first=params.order_by == "date_asc",
    )
    async with db(request).tenant(principal.team_id) as conn:
        projects = list(await worker_rows.projects_in(conn, principal, where))[:_MAX_PROJECTS]
        found = await events.list_tool_uses(
            conn, principal.team_id, projects, filters, limit=min(params.limit, MAX_IDS), offset=params.offset
        )
    rows = [reshape(_row(use), ToolUseRow) for use in found]
    return answer(ToolUsesOut(count=len(rows), tool_uses=rows))


async def post_batch(request: Request) -> Response:
    """The tool calls with those ids, whole. What does not exist is left out."""
    principal = await admit_caller(request)
    params = await read(request, ToolUsesIn)
    ids = split_commas(params.ids) if isinstance(params.ids, str) else params.ids
    if len(ids) > MAX_IDS:
        raise Invalid.at("$.ids", f"Ask for at most {MAX_IDS} tool calls at once.")
    where = await worker_rows.resolve_scope(request, principal, params.project)
    if where is None or not ids:
        return answer([])
    found = await find_tool_uses(
        dependency(request, Db), principal, ids, project_id=where.project_id, session=params.content_session_id
    )
    return answer([_row(use) for use in found[: params.limit]])


def _row(use: StoredToolUse) -> WholeToolUseRow:
    payload = record(use.payload)
    sent, said = _text(payload.get("tool_input")), _text(payload.get("tool_response", _error(payload)))
    agent = {**record(use.metadata), **{name: payload[name] for name in ("agent_id", "agent_type") if name in payload}}
    return WholeToolUseRow(
        id=number_of(use.id),
        tool_use_id=use.tool_use_id,
        tool_name=str(payload.get("tool_name") or ""),
        project=use.project,
        content_session_id=use.session,
        memory_session_id=use.session,
        platform_source=worker_rows.platform(use.platform_source),
        agent_id=_name(agent.get("agent_id")),
        agent_type=_name(agent.get("agent_type")),
        observation_id=use.observation_number,
        prompt_number=use.prompt_number,
        created_at=iso(use.occurred_at),
        created_at_epoch=epoch_ms(use.occurred_at),
        tool_input_bytes=len((sent or "").encode()),
        tool_response_bytes=len((said or "").encode()),
        session_db_id=session_number(use.server_session_id) if use.server_session_id else None,
        tool_input=sent,
        tool_response=said,
        cwd=_name(payload.get("cwd")),
    )


def _error(payload: dict[str, object]) -> object:
    return {"error": payload["error"]} if "error" in payload else None


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


routes = [
    get("/api/tool-uses", get_tool_uses, "observations:read", ToolUsesOut, query=ToolUsesQuery),
    post("/api/tool-uses/batch", post_batch, "observations:read", list[WholeToolUseRow], body=ToolUsesIn),
]
