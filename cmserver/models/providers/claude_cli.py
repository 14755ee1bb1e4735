"""Runs the operator's `claude` program once for each call, with the program's own login.

Tools, hooks, settings, instructions, files and sessions are disabled; otherwise it would record itself without end. Options:
code.claude.com/docs/en/cli-reference; variables: code.claude.com/docs/en/env-vars; errors: code.claude.com/docs/en/errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.settings import PREFIX, fields
from cmserver.models.providers import failures
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import answer_schema
from cmserver.models.providers.table import PROVIDERS

_NAME = "The claude program"
"""An alias that the program resolves."""
_SHUTDOWN_SECONDS = 2.0
"""Time to clean up after SIGTERM."""
_MAX_QUOTE_CHARS = 200

_OPENING = "The next part of the observed session:\n\n"
"""Text that begins with a slash would be a command."""

_SETTINGS = '{"disableAllHooks":true,"permissions":{"deny":["Read"]}}'
"""Denies reading, so that `@path` in a text cannot attach a file."""

_VARIABLES = {
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",  # no updates or telemetry
    "CLAUDE_CODE_MAX_RETRIES": "0",  # the queue retries
    "MAX_STRUCTURED_OUTPUT_RETRIES": "2",  # the answer and one correction
}
_TURNS = 4
"""Model calls per run: the answer, a reminder of the format, and replies to attempts to use tools."""

_KEPT = re.compile(
    r"CLAUDE_(?:SECURESTORAGE_)?CONFIG_DIR|CLAUDE_CODE_(?:OAUTH_TOKEN|GATEWAY_TOKEN|CERT_STORE|CLIENT_(?:CERT|KEY|KEY_PASSPHRASE)|"
    r"USE_(?:BEDROCK|VERTEX|FOUNDRY|MANTLE|GATEWAY|ANTHROPIC_\w+)|SKIP_\w+_AUTH)"
)
"""Its login and the way to its models. Its other variables belong to the session that cmserver was started from."""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    """Without the cache's tokens."""
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Result(msgspec.Struct, rename={"model_usage": "modelUsage"}):
    """The parts of the printed JSON object that are used."""

    type: str
    is_error: bool = False
    subtype: str = ""
    api_error_status: int | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    result: str | None = None
    errors: list[str] | None = None
    structured_output: msgspec.Raw = msgspec.Raw(b"null")
    usage: _Usage = msgspec.field(default_factory=_Usage)
    model_usage: dict[str, object] = {}


class ClaudeCli:
    """Starts the program for each call, which takes half a second and a few hundred MB."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.name = settings.name
        self.model = settings.model or PROVIDERS["claude-cli"].model or ""
        self._program = settings.claude_program
        self._timeout_seconds = settings.timeout_seconds
        self._answer_max_tokens = settings.answer_max_tokens

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError. The program has ended by then, also when the call is cancelled."""
        rendered = await asyncio.to_thread(render, prompt, "json")
        # Only the stable part is on the command line, which other users of the machine may see.
        command = [self._find_program(), *_build_options(self.model, rendered.system, answer_schema(prompt))]
        with tempfile.TemporaryDirectory(prefix="cmserver-claude-", ignore_cleanup_errors=True) as folder:
            run = await self._run(command, (_OPENING + rendered.user).encode(), folder)
        return self._parse_completion(run)

    def _find_program(self) -> str:
        """The absolute path of the program; ProviderError when it is not there."""
        path = shutil.which(Path(self._program).expanduser())
        if path is None:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"The program {self._program!r} is missing or not executable: install Claude Code for the "
                "user that cmserver runs as, or name the program's path in CLAUDE_CODE_PATH.",
            )
        return str(Path(path).absolute())

    async def _run(self, command: list[str], text: bytes, folder: str) -> subprocess.CompletedProcess[bytes]:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=folder,
                env=self._environment(os.environ),
                start_new_session=True,  # its children end with it, and Ctrl-C in our terminal does not reach it
            )
        except OSError as error:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"The program {command[0]} (CLAUDE_CODE_PATH) cannot be started: {error.strerror or error}.",
            ) from None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                output, errors = await process.communicate(text)
                return subprocess.CompletedProcess(command, await process.wait(), output, errors)
        except TimeoutError:
            raise failures.incomplete_answer_error(_NAME, "it took longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS") from None
        finally:
            await _end_process(process)

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Our environment without our settings and keys: with ANTHROPIC_API_KEY the program would not use its login."""
        ours = {field.environment for field in fields()} | {f"{field.environment}_FILE" for field in fields()}
        kept = {
            name: value
            for name, value in environ.items()
            if name not in ours and (not name.startswith(("CLAUDE", PREFIX)) or _KEPT.fullmatch(name))
        }
        return {
            **kept,
            **_VARIABLES,
            "API_TIMEOUT_MS": str(int(self._timeout_seconds * 1000)),  # it ends soon even if cmserver is killed
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(self._answer_max_tokens),
        }

    def _parse_completion(self, run: subprocess.CompletedProcess[bytes]) -> Completion:
        result = _parse_result(run.stdout)
        if result is None:
            raise _missing_result_error(run)
        held = bytes(result.structured_output)
        structured = held.decode() if held != b"null" else None
        completion = Completion(
            text=structured or result.result or "",
            model=next(iter(result.model_usage), self.model),
            input_tokens=result.usage.input_tokens,
            output_tokens=result.usage.output_tokens,
            cache_read_tokens=result.usage.cache_read_input_tokens,
            cache_write_tokens=result.usage.cache_creation_input_tokens,
            # The program reports list prices, which a subscription does not pay.
            cost_usd=None,
            truncated=structured is None
            and (result.stop_reason == "max_tokens" or "output token maximum" in (result.result or "")),
        )
        failed = _find_failure(result, completion) if result.is_error or structured is None else None
        if failed is not None:
            failed.completion = completion if completion.input_tokens or completion.output_tokens else None
            raise failed
        return completion


def _build_options(model: str, system: str, schema: dict[str, object]) -> list[str]:
    """The program's options for one answer without tools, files or hooks; not --bare, which would ignore its login."""
    return [
        "-p",
        *("--output-format", "json"),
        *("--json-schema", msgspec.json.encode(schema).decode()),
        *("--model", model),
        *("--effort", "low"),
        *("--max-turns", str(_TURNS)),
        *("--system-prompt", system),
        *("--tools", ""),
        *("--settings", _SETTINGS),
        *("--setting-sources", ""),
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--no-session-persistence",
    ]


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """Terminate, then kill, the program and all it has started, unless they have ended."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    await process.wait()
    finally:
        _signal(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_SECONDS):  # a process that left the group could keep the pipes open
                await process.wait()


def _signal(group: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        os.killpg(group, sign)


def _parse_result(output: bytes) -> _Result | None:
    """The printed object; a wrapper may have printed lines before it."""
    for text in (output, (output.strip().splitlines() or [b""])[-1]):
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            result = msgspec.json.decode(text, type=_Result)
            return result if result.type == "result" else None
    return None


_NO_CONNECTION = re.compile(
    r"connection refused|unable to connect|can't reach the api|no internet route|connect through your proxy|could ?n.t resolve|"
    r"E(?:CONNREFUSED|NOTFOUND|AI_AGAIN|HOSTUNREACH|NETUNREACH)",
    re.IGNORECASE,
)


def _find_failure(result: _Result, completion: Completion) -> ProviderError | None:
    """The error of a result that reports one or has no structured answer; None if its text may be an answer."""
    message = result.result or "; ".join(result.errors or [])
    if completion.truncated and (result.is_error or not message):
        return ProviderError(
            FailureKind.UNUSABLE_ANSWER,
            f"{_NAME} answered nothing: it used up its output tokens (CMSERVER_MODEL_CONTEXT_TOKENS) before it had ended.",
        )
    if result.stop_reason == "refusal":
        return ProviderError(FailureKind.REFUSED, f"{_NAME} said: {_one_line(message)}")
    if result.terminal_reason == "prompt_too_long":
        return failures.classify_status(_NAME, 413, message)
    if result.subtype in {"error_max_turns", "error_max_structured_output_retries"} or not (message or result.is_error):
        return ProviderError(
            FailureKind.UNUSABLE_ANSWER,
            f"{_NAME} brought no answer in the form asked for: {_one_line(message) or 'it said nothing'}.",
        )
    # The message first: a plan's limit has the same status as a rate limit.
    failed = failures.find_error_in_prose(_NAME, message) if result.is_error else None
    if failed is None and result.api_error_status is not None:
        failed = failures.classify_status(_NAME, result.api_error_status, message)
    if failed is None and result.is_error:
        refused = _NO_CONNECTION.search(message) is not None
        failed = (
            failures.unreachable_error(f"{_NAME}'s API", _one_line(message))
            if refused
            else failures.incomplete_answer_error(_NAME, _one_line(message))
        )
    if failed is not None and failed.kind is FailureKind.QUOTA_EXHAUSTED and failed.retry_after_seconds is None:
        failed.retry_after_seconds = seconds_until_reset(message, datetime.now().astimezone())
    return failed


def _missing_result_error(run: subprocess.CompletedProcess[bytes]) -> ProviderError:
    """The error for a program that failed, or is not claude."""
    message = _one_line(run.stderr.decode(errors="replace")) or _one_line(run.stdout.decode(errors="replace"))
    if "unknown option" in message:
        return ProviderError(
            FailureKind.SETUP_REQUIRED, f"{_NAME} is too old, or is none ({message}): `claude update` brings a new one."
        )
    if run.returncode in {126, 127}:  # a shell's codes for "not executable" and "not found"
        return ProviderError(FailureKind.SETUP_REQUIRED, f"{_NAME} cannot run: {message or f'it ended with {run.returncode}'}.")
    if failed := failures.find_error_in_prose(_NAME, message):
        return failed
    if run.returncode < 0:
        return failures.incomplete_answer_error(_NAME, f"it was ended by signal {-run.returncode}")
    ended = f"it ended with {run.returncode}" if run.returncode else "what it printed is no JSON of a result"
    return failures.incomplete_answer_error(_NAME, f"{ended} ({message})" if message else ended)


def _one_line(text: str) -> str:
    """In one line, shortened, and without anything that looks like a key."""
    line = re.sub(r"\bsk-[-\w]{6,}|(?i:\bbearer) +\S+|[-\w]{32,}", "***", " ".join(text.split())).rstrip(".")
    return line if len(line) <= _MAX_QUOTE_CHARS else f"{line[: _MAX_QUOTE_CHARS - 1]}…"


_RESETS = re.compile(
    r"\bresets? (?:at )?(?:(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2})(?:, (?P<year>\d{4}))?(?:,| at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)\b(?: \((?P<zone>[\w/+-]+)\))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def seconds_until_reset(message: str, now: datetime) -> float | None:
    """Seconds until a minute after "resets 3pm (Asia/Tokyo)" or "resets Nov 25, 5:03am (UTC)"; None without a time."""
    match = _RESETS.search(message)
    if match is None:
        return None
    try:
        here = now.astimezone(ZoneInfo(match["zone"])) if match["zone"] else now
        at = here.replace(
            hour=int(match["hour"]) % 12 + (12 if match["half"] == "pm" else 0),
            minute=int(match["minute"] or 0),
            second=0,
            microsecond=0,
        )
        if match["month"]:
            month = _MONTHS.index(match["month"]) + 1
            year = int(match["year"] or here.year + (month < here.month))
            at = at.replace(year=year, month=month, day=int(match["day"]))
        elif at <= here:
            at += timedelta(days=1)
    except (ValueError, LookupError, OSError):  # unknown zone or month
        return None
    return max(0.0, (at - here).total_seconds()) + 60.0


def make(settings: ProviderSettings) -> ClaudeCli:
    """It needs no key, and has no address; whether the program is there is seen when it is called."""
    if settings.base_url:
        raise Invalid("The provider claude-cli takes no CMSERVER_BASE_URL: leave it out.")
    return ClaudeCli(settings)
