"""The text of a tool call: what an output says."""

from __future__ import annotations

import re
from typing import cast

from cmserver.base.tolerant_json import array, field, number, record

_MAX_BLOCKS = 50
_MAX_DEPTH = 8
_GEMINI_TROUBLE = re.compile(r"^(?:Error|Signal): ", re.MULTILINE)
_EXIT_LINE = re.compile(r"^(?:Exit Code:|Process exited with code) (\d{1,9})$", re.MULTILINE)


def prose(value: object, depth: int = 0) -> str:
    """The readable text of a tool's output: plain text, `content` blocks, or the usual text fields of an object."""
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str) and value.lstrip()[:1] != "{":
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, (prose(block, depth + 1) for block in array(cast("object", value))[:_MAX_BLOCKS])))
    source = record(value)
    plain = field(source, "text", "result", "output", "stdout", "llmContent", "content")
    return plain or prose(array(source.get("content")) or array(source.get("results")) or "", depth + 1)


def printed_text(output: object) -> str:
    """What a command printed: its output and its errors, else the readable text."""
    answer = record(output)
    both = [field(answer, "stdout", "output"), field(answer, "stderr", "error")]
    return "\n".join(filter(None, both)) or prose(output)


def reported_exit_code(output: object) -> int | None:
    """The exit code that an output names, in a field of its own or as Gemini CLI and Codex do; None where nothing says it.

    Claude Code, which gives both channels apart, reports a command that fails as an error. Gemini CLI does not name the code 0.
    """
    answer = record(output)
    for source in (answer, record(answer.get("metadata"))):
        for name in ("exit_code", "exitCode", "exit", "code", "returncode"):
            if type(source.get(name)) is int:
                return number(source[name])
    text = prose(output)
    if codes := _EXIT_LINE.findall(text):
        return int(codes[-1])
    is_error_apart = isinstance(answer.get("stdout"), str) and isinstance(answer.get("stderr"), str)
    is_gemini = "llmContent" in answer and text.startswith("Output:") and not _GEMINI_TROUBLE.search(text)
    return 0 if is_error_apart or is_gemini else None
