"""What of an event a model is shown, tool by tool: an edit is its patch, a read is the part that was asked for, and so on.

Nothing here raises, whatever an event holds; a tool or a shape that is not known is shown as plain lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from cmserver.providers.model import PromptEvent
from cmserver.providers.rules.text import array, counted, field, number, prose, record, relative
from cmserver.providers.wording.cut import excerpt, one_line
from cmserver.providers.wording.plain import plain

EVENT_CHARS = 6_000
"""The most of one event."""
_NAME = 80
_PATH = 300
_PATCH = 5_000
_CONTENT = 2_400
_READ = 1_200
_COMMAND = 1_500
_OUTPUT = 2_400
_FOUND = 800
_REPORT = 3_000
_ASKED = 600
_ERROR = 2_000
_INPUT = 1_500
_NOTE = 4_000
_MOST_HUNKS = 200
_MOST_LINES = 2_000

_ENVELOPE = {
    "session_id", "transcript_path", "agent_transcript_path", "cwd", "prompt_id", "permission_mode", "effort", "hook_event_name",
    "stop_hook_active", "background_tasks", "session_crons", "agent_id", "tool_use_id", "duration_ms", "is_interrupt", "timestamp",
}  # fmt: skip
"""Fields of a hook's payload that say nothing about what happened."""


class _Use(msgspec.Struct, frozen=True):
    """One use of a tool: what went in as an object, and the event as it came."""

    event: PromptEvent
    given: dict[str, object]
    root: str | None

    @property
    def answer(self) -> dict[str, object]:
        return record(self.event.tool_response)

    def path(self) -> str:
        found = field(self.given, "file_path", "absolute_path", "notebook_path", "path", "dir_path", "filename", "target_file")
        return one_line(relative(found, self.root), _PATH)


_Reader = Callable[[_Use], Iterator[str]]
"""Gives the lines below the tool's name; an empty one is left out."""


def described(event: PromptEvent, root: str | None) -> str:
    """The event in at most EVENT_CHARS characters of lines, clean but not guarded. The first line names the tool or the event."""
    if not event.tool_name:
        return excerpt("\n".join([one_line(event.event_type, _NAME), *filter(None, _note(event))]), EVENT_CHARS)
    name = one_line(event.tool_name, _NAME)
    failed = bool(event.error) or "fail" in event.event_type.lower()
    reader = _any_tool if name.startswith("mcp__") else _TOOLS.get(event.tool_name, _any_tool)
    lines = [line for part in reader(_Use(event, record(event.tool_input), root)) if (line := part.strip("\n"))]
    if event.error:
        lines.append(_labelled("error", excerpt(event.error, _ERROR)))
    return excerpt("\n".join([f"{name} (failed)" if failed else name, *lines]), EVENT_CHARS)


def _note(event: PromptEvent) -> Iterator[str]:
    payload = record(event.payload)
    if not payload:
        yield plain(event.payload, _NOTE)
        return
    yield plain({name: value for name, value in payload.items() if name not in _ENVELOPE}, _NOTE)


def _edit(use: _Use) -> Iterator[str]:
    """The patch that was applied, else what the tool was given, as lines with - and +. Never the file before."""
    yield use.path()
    hunks = array(use.answer.get("structuredPatch"))
    display = record(use.answer.get("returnDisplay"))
    diff = field(use.given, "patch", "diff", "input") or field(display, "fileDiff") or field(use.answer, "diff", "patch")
    if not diff and isinstance(use.event.tool_input, str) and not use.given:
        diff = use.event.tool_input
    if hunks and not use.event.error:
        yield excerpt("\n".join(_hunks(hunks)), _PATCH)
    elif diff:
        yield excerpt(diff, _PATCH)
    else:
        yield excerpt("\n".join(_replacements(use.given)), _PATCH)
    if not hunks and not diff:
        yield from _flags(use.given, "edit_mode", "cell_id", "replace_all")


def _hunks(hunks: list[object]) -> Iterator[str]:
    for hunk in map(record, hunks[:_MOST_HUNKS]):
        if not (lines := [line for line in array(hunk.get("lines"))[:_MOST_LINES] if isinstance(line, str)]):
            continue
        old, new = number(hunk.get("oldStart")), number(hunk.get("newStart"))
        yield f"@@ -{old},{number(hunk.get('oldLines'))} +{new},{number(hunk.get('newLines'))} @@"
        yield from lines
    if len(hunks) > _MOST_HUNKS:
        yield f"[… {len(hunks) - _MOST_HUNKS} hunks more …]"


def _replacements(given: dict[str, object]) -> Iterator[str]:
    """Old and new text as lines. A long one is cut for itself, so that what was written is seen beside what was removed."""
    edits = [record(one) for one in array(given.get("edits"))[:_MOST_HUNKS]] or [given]
    each = max(_ASKED, _PATCH // (2 * len(edits)))
    for edit in edits:
        if len(edits) > 1:
            yield "@@"
        for sign, text in (
            ("-", field(edit, "old_string", "old_str", "old_text", "oldText")),
            ("+", field(edit, "new_string", "new_str", "new_text", "newText", "new_source", "file_text", "content")),
        ):
            if text:
                yield from (sign + line for line in excerpt(text, each).rstrip("\n").split("\n"))


def _write(use: _Use) -> Iterator[str]:
    """What was written; of a file that was there before, what changed."""
    if array(use.answer.get("structuredPatch")):
        yield from _edit(use)
        return
    content = field(use.given, "content", "file_text", "contents", "text")
    yield f"{use.path()} ({counted(len(content.splitlines()), 'line')})" if content else use.path()
    yield excerpt(content, _CONTENT)


def _read(use: _Use) -> Iterator[str]:
    file = record(use.answer.get("file"))
    first, lines, total = number(file.get("startLine")), number(file.get("numLines")), number(file.get("totalLines"))
    part = f" lines {first}-{first + lines - 1} of {total}" if lines and first and total else ""
    paths = ", ".join(one for one in array(use.given.get("paths"))[:20] if isinstance(one, str))
    yield (use.path() or one_line(paths, _PATH)) + part
    if not part:
        yield from _flags(use.given, "offset", "limit", "pages", "view_range")
    if field(file, "base64") or use.answer.get("type") == "image":
        yield f"[{one_line(field(file, 'type') or 'image', _NAME)}, {len(field(file, 'base64')):,} characters of base64 left out]"
    elif not use.event.error:
        yield _response(use, _READ, field(file, "content"))


def _shell(use: _Use) -> Iterator[str]:
    command = field(use.given, "command", "cmd", "script", "input")
    words = array(use.given.get("command")) or array(use.event.tool_input)
    if not command and words:
        spelled = [word for word in words[:200] if isinstance(word, str)]
        command = spelled[2] if len(spelled) == 3 and spelled[1] in {"-c", "-lc"} else " ".join(spelled)
    if not command and isinstance(use.event.tool_input, str) and not use.given:
        command = use.event.tool_input
    most = _PATCH if "*** Begin Patch" in command else _COMMAND
    yield f"$ {excerpt(command, most)}" if command else plain(use.given, _ASKED)
    yield from _flags(use.given, "run_in_background", "bash_id", "shell_id", "task_id")
    answer = use.answer
    if answer.get("isImage") is True:
        yield f"[image, {len(field(answer, 'stdout')):,} characters left out]"
        return
    streams = field(answer, "stdout"), field(answer, "stderr")
    if any(streams) or "stdout" in answer:
        yield excerpt(_as_seen(streams[0]), _OUTPUT).strip("\n")
        yield _labelled("stderr", excerpt(_as_seen(streams[1]), _INPUT)) if streams[1].strip() else ""
    else:
        yield excerpt(_as_seen(field(answer, "output", "aggregated_output", "llmContent")), _OUTPUT) or _response(use, _OUTPUT)
    ended = {**record(answer.get("metadata")), **answer}
    yield from _flags(ended, "exit_code", "exitCode", "returnCodeInterpretation", "interrupted", "backgroundTaskId", "status")


def _as_seen(text: str) -> str:
    """As a terminal shows it: what a progress bar wrote over is gone."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")) if "\r" in text else text


def _search(use: _Use) -> Iterator[str]:
    """What was looked for, how much was found, and the first of it."""
    yield " in ".join(filter(None, (one_line(field(use.given, "pattern", "query"), _PATH), use.path())))
    yield from _flags(use.given, "glob", "include", "type")
    answer = use.answer
    counts = [counted(number(answer.get(name)), noun) for name, noun in _COUNTS.items() if number(answer.get(name))]
    yield ", ".join(counts)
    names = [relative(one, use.root) for one in array(answer.get("filenames"))[:100] if isinstance(one, str)]
    found = field(answer, "content") or "\n".join(names)
    yield excerpt(found, _FOUND) if found or not use.event.tool_response else _response(use, _FOUND)


_COUNTS = {"numMatches": "hit", "numLines": "line", "numFiles": "file"}


def _web(use: _Use) -> Iterator[str]:
    yield one_line(field(use.given, "url", "query", "prompt"), _PATH)
    if field(use.given, "url", "query"):
        yield _labelled("asked", excerpt(field(use.given, "prompt"), _ASKED))
    yield from _flags(use.answer, "code", "codeText")
    found = field(use.answer, "result") or prose(use.answer.get("results"))
    yield _response(use, _OUTPUT, found)


def _agent(use: _Use) -> Iterator[str]:
    kind = one_line(field(use.given, "subagent_type", "agent_type"), _NAME)
    yield ": ".join(filter(None, (kind, one_line(field(use.given, "description", "task"), _PATH))))
    yield _labelled("asked", excerpt(field(use.given, "prompt", "message"), _ASKED))
    stats = record(use.answer.get("toolStats"))
    yield from _flags(stats, "editFileCount", "linesAdded", "linesRemoved")
    yield from _flags(use.answer, "status") if field(use.answer, "status") != "completed" else ()
    yield _labelled("reported", _response(use, _REPORT, prose(use.answer.get("content"))))


def _plan(use: _Use) -> Iterator[str]:
    """The agent's list of things to do, one a line."""
    steps = array(use.given.get("todos")) or array(use.given.get("plan")) or array(use.given.get("tasks"))
    lines = [_step(record(step)) for step in steps[:_MOST_HUNKS]]
    yield excerpt("\n".join(lines), _ASKED) if lines else plain(use.event.tool_input, _ASKED)


def _step(step: dict[str, object]) -> str:
    done = one_line(field(step, "status") or "open", 20)
    return f"[{done}] {one_line(field(step, 'content', 'step', 'description', 'subject'), 200)}"


def _any_tool(use: _Use) -> Iterator[str]:
    yield plain(use.event.tool_input, _INPUT)
    answer = plain(use.event.tool_response, _OUTPUT)
    yield f"->\n{answer}" if "\n" in answer else f"-> {answer}" if answer else ""


def _response(use: _Use, most: int, known: str = "") -> str:
    """What came back: the field that is known to hold it, else the text of its blocks, else all of it as plain lines."""
    return excerpt(known, most) if known else plain(use.event.tool_response, most)


def _flags(source: dict[str, object], *names: str) -> Iterator[str]:
    """Fields that are set, one a line; those that are false or 0 say nothing."""
    for name in names:
        if (value := source.get(name)) and not isinstance(value, dict):
            yield f"{name}: {one_line(plain(value, _NAME), _NAME)}"


def _labelled(label: str, text: str) -> str:
    text = text.strip("\n")
    return f"{label}:\n{text}" if "\n" in text else f"{label}: {text}" if text else ""


_TOOLS: dict[str, _Reader] = {
    **dict.fromkeys(
        ("Bash", "shell", "local_shell", "run_shell_command", "exec_command", "execute", "BashOutput", "TaskOutput", "KillShell"),
        _shell,
    ),
    **dict.fromkeys(
        ("Edit", "MultiEdit", "NotebookEdit", "apply_patch", "replace", "edit_file", "str_replace", "str_replace_editor"), _edit
    ),
    **dict.fromkeys(("Write", "write_file", "create_file"), _write),
    **dict.fromkeys(("Read", "read_file", "read_many_files", "view", "NotebookRead"), _read),
    **dict.fromkeys(("Grep", "Glob", "LS", "search_file_content", "grep_search", "glob", "list_directory", "ToolSearch"), _search),
    **dict.fromkeys(("WebFetch", "WebSearch", "web_fetch", "google_web_search", "web_search"), _web),
    **dict.fromkeys(("Agent", "Task", "spawn_agent"), _agent),
    **dict.fromkeys(("TodoWrite", "update_plan", "write_todos"), _plan),
}
"""By name as agents call them; the others are shown as they are."""
