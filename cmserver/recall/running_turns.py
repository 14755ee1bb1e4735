"""What turns that are under way have done so far, read from their events: nothing is generated of them yet."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.events.model import ToolUseOfTurn
from cmserver.observations.plain import one_line
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import Purpose, ToolKind, find_working_folder
from cmserver.tooluse.read import read_tool_use

_MAX_OTHERS, _MAX_NAMES, _MAX_OWN_NAMES, _NAME_CHARS = 3, 4, 20, 100


async def describe_running_turns(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID | None, *, own: bool) -> list[str]:
    """Lines about the turns of the project that are under way: of other sessions one each, and with `own` of the session itself."""
    by_session: dict[UUID | None, list[ToolUseOfTurn]] = {}
    for use in await events.running_turns(conn, team_id, project_id):
        by_session.setdefault(use.server_session_id, []).append(use)
    lines: list[str] = []
    if own and session_id is not None and (done := _describe(by_session.get(session_id, []), _MAX_OWN_NAMES)):
        lines.append(f"\nThis turn so far, not recorded yet: {done}.\n")
    others = [_describe(uses, _MAX_NAMES) for other_id, uses in by_session.items() if other_id != session_id]
    return lines + [f"\nAnother session is at work here now: {done}.\n" for done in others if done][:_MAX_OTHERS]


def _describe(uses: Sequence[ToolUseOfTurn], max_names: int) -> str:
    paths: dict[str, None] = {}
    commands: dict[str, None] = {}
    for sent in uses:
        use = read_tool_use(sent.tool_name, sent.tool_input)
        if use.edits_files:
            folder = find_working_folder(sent.root, sent.cwd)
            paths |= dict.fromkeys(folder.relative(path) for path in use.paths)
        elif use.kind is ToolKind.SHELL and (line := read_command_line(use.command)).main.purpose > Purpose.ROUTINE:
            commands[f"`{line.text}`"] = None
    done = [f"{verb} {_join(list(names), max_names)}" for verb, names in (("edited", paths), ("ran", commands)) if names]
    return "; ".join(done)


def _join(names: Sequence[str], max_names: int) -> str:
    """The newest names, oldest first."""
    shown = ", ".join(one_line(name, _NAME_CHARS) for name in names[-max_names:])
    return f"{shown} and {len(names) - max_names} more" if len(names) > max_names else shown
