"""Describes events for a model, tool by tool: an edit by its patch, a read by the part that was requested, and so on.

Nothing here raises; unknown tools and shapes are shown as plain lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cmserver.base.tolerant_json import array, field, number, record
from cmserver.models.providers.prompts.text import excerpt, one_line, render_json
from cmserver.reading.model import EventReading
from cmserver.reading.text import count_noun
from cmserver.tooluse.model import ToolKind, ToolUse, WorkingFolder
from cmserver.tooluse.text import prose

EVENT_CHARS = 6_000
"""Limit of one event."""
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
_MAX_HUNKS = 200
_MAX_LINES = 2_000
_MAX_PATHS = 20

_ENVELOPE = {
    "session_id", "transcript_path", "agent_transcript_path", "cwd", "prompt_id", "permission_mode", "effort", "hook_event_name",
    "stop_hook_active", "background_tasks", "session_crons", "agent_id", "tool_use_id", "duration_ms", "is_interrupt", "timestamp",
}  # fmt: skip
"""Fields of a hook's payload that say nothing about what happened."""


_Reader = Callable[[ToolUse, WorkingFolder], Iterator[str]]
"""Yields the lines below the tool's name, with paths relative to the root; empty ones are dropped."""


def describe_event(event: EventReading) -> str:
    """The event in at most EVENT_CHARS characters, clean but not fenced. The first line names the tool or event type."""
    use = event.tool_use
    if use is None:
        return excerpt("\n".join([one_line(event.event_type, _NAME), *filter(None, _note(event))]), EVENT_CHARS)
    name = one_line(use.tool, _NAME)
    reader = _TOOLS.get(use.kind, _any_tool)
    lines = [line for part in reader(use, event.folder) if (line := part.strip("\n"))]
    if use.error:
        lines.append(_labelled("error", excerpt(use.error, _ERROR)))
    return excerpt("\n".join([f"{name} (failed)" if event.has_failed else name, *lines]), EVENT_CHARS)


def _note(event: EventReading) -> Iterator[str]:
    payload = record(event.payload)
    if not payload:
        yield render_json(event.payload, _NOTE)
        return
    yield render_json({name: value for name, value in payload.items() if name not in _ENVELOPE}, _NOTE)


def _edit(use: ToolUse, folder: WorkingFolder) -> Iterator[str]:
    """The applied patch, else the input as lines with - and +; never the original file."""
    yield _path(use, folder)
    hunks = array(use.answer.get("structuredPatch"))
    display = record(use.answer.get("returnDisplay"))
    diff = use.patch or field(use.fields, "patch", "diff", "input") or field(display, "fileDiff")
    diff = diff or field(use.answer, "diff", "patch") or _bare(use)
    if hunks and not use.error:
        yield excerpt("\n".join(_hunks(hunks)), _PATCH)
    elif diff:
        yield excerpt(diff, _PATCH)
    else:
        yield excerpt("\n".join(_replacements(use.fields)), _PATCH)
    if not hunks and not diff:
        yield from _flags(use.fields, "edit_mode", "cell_id", "replace_all")


def _hunks(hunks: list[object]) -> Iterator[str]:
    """The hunks of a patch as lines of a diff."""
    for hunk in map(record, hunks[:_MAX_HUNKS]):
        if not (lines := [line for line in array(hunk.get("lines"))[:_MAX_LINES] if isinstance(line, str)]):
            continue
        old, new = number(hunk.get("oldStart")), number(hunk.get("newStart"))
        yield f"@@ -{old},{number(hunk.get('oldLines'))} +{new},{number(hunk.get('newLines'))} @@"
        yield from lines
    if len(hunks) > _MAX_HUNKS:
        yield f"[… {len(hunks) - _MAX_HUNKS} hunks more …]"


def _replacements(granted: dict[str, object]) -> Iterator[str]:
    """Old and new text as lines, each shortened by itself so that both are seen."""
    edits = [record(edit) for edit in array(granted.get("edits"))[:_MAX_HUNKS]] or [granted]
    max_chars = max(_ASKED, _PATCH // (2 * len(edits)))
    for edit in edits:
        if len(edits) > 1:
            yield "@@"
        for sign, text in (
            ("-", field(edit, "old_string", "old_str", "old_text", "oldText")),
            ("+", field(edit, "new_string", "new_str", "new_text", "newText", "new_source", "file_text", "content")),
        ):
            if text:
                yield from (sign + line for line in excerpt(text, max_chars).rstrip("\n").split("\n"))


def _write(use: ToolUse, folder: WorkingFolder) -> Iterator[str]:
    """The written content; for an existing file, the changes."""
    if array(use.answer.get("structuredPatch")):
        yield from _edit(use, folder)
        return
    content = field(use.fields, "content", "file_text", "contents", "text")
    yield f"{_path(use, folder)} ({count_noun(len(content.splitlines()), 'line')})" if content else _path(use, folder)
    yield excerpt(content, _CONTENT)


def _read(use: ToolUse, folder: WorkingFolder) -> Iterator[str]:
    """The files with the part that was read, and the content."""
    file = record(use.answer.get("file"))
    first, lines, total = number(file.get("startLine")), number(file.get("numLines")), number(file.get("totalLines"))
    part = f" lines {first}-{first + lines - 1} of {total}" if lines and first and total else ""
    yield one_line(", ".join(folder.relative(path) for path in use.paths[:_MAX_PATHS]), _PATH) + part
    if not part:
        yield from _flags(use.fields, "offset", "limit", "pages", "view_range")
    if field(file, "base64") or use.answer.get("type") == "image":
        yield f"[{one_line(field(file, 'type') or 'image', _NAME)}, {len(field(file, 'base64')):,} characters of base64 left out]"
    elif not use.error:
        yield _response(use, _READ, field(file, "content"))


def _shell(use: ToolUse, _folder: WorkingFolder) -> Iterator[str]:
    """The command, its output, and how it ended."""
    command = use.command or use.patch or field(use.fields, "input")
    max_chars = _PATCH if use.patch else _COMMAND
    yield f"$ {excerpt(command, max_chars)}" if command else render_json(use.fields, _ASKED)
    yield from _flags(use.fields, "run_in_background", "bash_id", "shell_id", "task_id")
    answer = use.answer
    if answer.get("isImage") is True:
        yield f"[image, {len(field(answer, 'stdout')):,} characters left out]"
        return
    streams = field(answer, "stdout"), field(answer, "stderr")
    if any(streams) or "stdout" in answer:
        yield excerpt(_drop_overwritten(streams[0]), _OUTPUT).strip("\n")
        yield _labelled("stderr", excerpt(_drop_overwritten(streams[1]), _INPUT)) if streams[1].strip() else ""
    else:
        yield excerpt(_drop_overwritten(field(answer, "output", "aggregated_output", "llmContent")), _OUTPUT) or _response(
            use, _OUTPUT
        )
    ended = {**record(answer.get("metadata")), **answer}
    yield from _flags(ended, "exit_code", "exitCode", "returnCodeInterpretation", "interrupted", "backgroundTaskId", "status")


def _drop_overwritten(text: str) -> str:
    """The text as a terminal shows it, without overwritten progress bars."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")) if "\r" in text else text


def _search(use: ToolUse, folder: WorkingFolder) -> Iterator[str]:
    """The pattern, the number of hits, and the first of them."""
    yield " in ".join(filter(None, (one_line(field(use.fields, "pattern", "query"), _PATH), _path(use, folder))))
    yield from _flags(use.fields, "glob", "include", "type")
    answer = use.answer
    counts = [count_noun(number(answer.get(name)), noun) for name, noun in _COUNTS.items() if number(answer.get(name))]
    yield ", ".join(counts)
    names = [folder.relative(name) for name in array(answer.get("filenames"))[:100] if isinstance(name, str)]
    hits = field(answer, "content") or "\n".join(names)
    yield excerpt(hits, _FOUND) if hits or not use.output else _response(use, _FOUND)


_COUNTS = {"numMatches": "hit", "numLines": "line", "numFiles": "file"}


def _web(use: ToolUse, _folder: WorkingFolder) -> Iterator[str]:
    yield one_line(field(use.fields, "url", "query", "prompt"), _PATH)
    if field(use.fields, "url", "query"):
        yield _labelled("asked", excerpt(field(use.fields, "prompt"), _ASKED))
    yield from _flags(use.answer, "code", "codeText")
    yield _response(use, _OUTPUT, field(use.answer, "result") or prose(use.answer.get("results")))


def _agent(use: ToolUse, _folder: WorkingFolder) -> Iterator[str]:
    kind = one_line(field(use.fields, "subagent_type", "agent_type"), _NAME)
    yield ": ".join(filter(None, (kind, one_line(field(use.fields, "description", "task"), _PATH))))
    yield _labelled("asked", excerpt(field(use.fields, "prompt", "message"), _ASKED))
    stats = record(use.answer.get("toolStats"))
    yield from _flags(stats, "editFileCount", "linesAdded", "linesRemoved")
    yield from _flags(use.answer, "status") if field(use.answer, "status") != "completed" else ()
    yield _labelled("reported", _response(use, _REPORT, prose(use.answer.get("content"))))


def _plan(use: ToolUse, _folder: WorkingFolder) -> Iterator[str]:
    """The agent's list of tasks, one per line."""
    steps = array(use.fields.get("todos")) or array(use.fields.get("plan")) or array(use.fields.get("tasks"))
    lines = [_step(record(step)) for step in steps[:_MAX_HUNKS]]
    yield excerpt("\n".join(lines), _ASKED) if lines else render_json(use.input, _ASKED)


def _step(step: dict[str, object]) -> str:
    done = one_line(field(step, "status") or "open", 20)
    return f"[{done}] {one_line(field(step, 'content', 'step', 'description', 'subject'), 200)}"


def _any_tool(use: ToolUse, _folder: WorkingFolder) -> Iterator[str]:
    yield render_json(use.input, _INPUT)
    answer = render_json(use.output, _OUTPUT)
    yield f"->\n{answer}" if "\n" in answer else f"-> {answer}" if answer else ""


def _response(use: ToolUse, max_chars: int, text: str = "") -> str:
    """The response: `text` if the caller has it, else the whole output as plain lines."""
    return excerpt(text, max_chars) if text else render_json(use.output, max_chars)


def _path(use: ToolUse, folder: WorkingFolder) -> str:
    return one_line(folder.relative(use.path), _PATH)


def _bare(use: ToolUse) -> str:
    """An input that is plain text."""
    return use.input if isinstance(use.input, str) and not use.fields else ""


def _flags(source: dict[str, object], *names: str) -> Iterator[str]:
    """The fields that are neither missing, false nor 0, one per line."""
    for name in names:
        if (value := source.get(name)) and not isinstance(value, dict):
            yield f"{name}: {one_line(render_json(value, _NAME), _NAME)}"


def _labelled(label: str, text: str) -> str:
    text = text.strip("\n")
    return f"{label}:\n{text}" if "\n" in text else f"{label}: {text}" if text else ""


_TOOLS: dict[ToolKind, _Reader] = {
    **dict.fromkeys((ToolKind.SHELL, ToolKind.PROCESS), _shell),
    ToolKind.EDIT: _edit,
    ToolKind.WRITE: _write,
    ToolKind.READ: _read,
    ToolKind.SEARCH: _search,
    ToolKind.WEB: _web,
    ToolKind.AGENT: _agent,
    ToolKind.PLAN: _plan,
}
