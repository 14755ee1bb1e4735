"""The text of a tool call: what an output says."""

from __future__ import annotations

import re
import signal
from typing import cast

from cmserver.base.tolerant_json import array, field, number, record

_MAX_BLOCKS = 50
_MAX_DEPTH = 8
_MAX_DIGITS = 10
_GEMINI_TROUBLE = re.compile(r"^(?:Error|Signal): ", re.MULTILINE)
_CODEX_EXIT = re.compile(r"^Process exited with code (\d{1,9})$", re.MULTILINE)
_UNTRUSTED, _UNTRUSTED_END = "<untrusted_context>\n", "\n</untrusted_context>"
"""What Gemini CLI puts around the answers of its shell, of the web and of MCP servers."""


def prose(value: object, depth: int = 0) -> str:
    """The readable text of a tool's output: plain text, `content` blocks, or the usual text fields of an object."""
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str) and value.lstrip()[:1] != "{":
        return _unwrap(value)
    if isinstance(value, list):
        return "\n".join(filter(None, (prose(block, depth + 1) for block in array(cast("object", value))[:_MAX_BLOCKS])))
    source = record(value)
    plain = field(source, "text", "result", "output", "stdout", "llmContent", "content")
    return _unwrap(plain) or prose(array(source.get("content")) or array(source.get("results")) or "", depth + 1)


def _unwrap(text: str) -> str:
    """The text without the tags in which Gemini CLI wraps what comes from outside; it escapes that closing tag within."""
    if not (text.startswith(_UNTRUSTED) and text.rstrip().endswith(_UNTRUSTED_END)):
        return text
    return text.rstrip()[len(_UNTRUSTED) : -len(_UNTRUSTED_END)].replace("&lt;/untrusted_context&gt;", "</untrusted_context>")


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
    code = _read_gemini_exit(text)
    if code is None and (codes := _CODEX_EXIT.findall(text)):
        code = int(codes[-1])
    if code is not None:
        return code
    is_error_apart = isinstance(answer.get("stdout"), str) and isinstance(answer.get("stderr"), str)
    is_gemini = "llmContent" in answer and text.startswith("Output:") and not _GEMINI_TROUBLE.search(text)
    return 0 if is_error_apart or is_gemini else None


def _read_gemini_exit(text: str) -> int | None:
    """The exit code in the last lines of a shell's answer in Gemini CLI, for a signal as shells count it; None where there is none.

    What the command printed stands before these lines, and may look like them.
    """
    signal_number = None
    for line in reversed(text.rstrip().split("\n")[-4:]):
        name, _, value = line.partition(": ")
        if name == "Exit Code" and value.isdecimal() and len(value) < _MAX_DIGITS:
            return int(value)
        if name == "Signal" and value.isdecimal() and len(value) < _MAX_DIGITS:
            signal_number = int(value)
        elif name == "Signal" and value in signal.Signals.__members__:
            signal_number = signal.Signals[value]
        elif name not in {"Process Group PGID", "Background PIDs"}:
            break
    return None if signal_number is None else 128 + int(signal_number)
