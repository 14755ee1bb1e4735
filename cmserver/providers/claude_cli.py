"""The operator's own `claude` program on this machine, run once for each call, with the login that it keeps itself.

It is asked a question and nothing else: it can use no tool, calls no hook, reads no settings, instructions or files, and keeps no
session; otherwise it would observe itself, for ever. Its options: code.claude.com/docs/en/cli-reference, its variables:
code.claude.com/docs/en/env-vars, what it says when it fails: code.claude.com/docs/en/errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.settings import PREFIX, fields
from cmserver.providers import failures
from cmserver.providers.model import Completion, FailureKind, Given, Prompt, ProviderError
from cmserver.providers.wording.render import render
from cmserver.providers.wording.schema import SCHEMAS

_WHO = "The claude program"
_MODEL = "haiku"
"""The program knows which one that is at present."""
_FAREWELL_SECONDS = 2.0
"""How long it may tidy up after SIGTERM: it takes its own note of the running session away."""
_LONGEST_QUOTE = 200

_OPENING = "The next part of the observed session:\n\n"
"""Text that begins with a slash would be a command of the program's."""

_SETTINGS = '{"disableAllHooks":true,"permissions":{"deny":["Read"]}}'
"""Reading is denied so that `@path` in a text, which means "attach that file" to the program, cannot, even if it were looked at."""

_SET = {
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",  # no updates of itself, and nothing sent but the question
    "CLAUDE_CODE_MAX_RETRIES": "0",  # the queue does them
    "MAX_STRUCTURED_OUTPUT_RETRIES": "2",  # the answer, and one attempt at mending it
}
_TURNS = 4
"""How often it may ask the model: for an answer, to be reminded of the form, and to be told that there are no tools."""

_KEPT = re.compile(
    r"CLAUDE_(?:SECURESTORAGE_)?CONFIG_DIR|CLAUDE_CODE_(?:OAUTH_TOKEN|GATEWAY_TOKEN|CERT_STORE|CLIENT_(?:CERT|KEY|KEY_PASSPHRASE)|"
    r"USE_(?:BEDROCK|VERTEX|FOUNDRY|MANTLE|GATEWAY|ANTHROPIC_\w+)|SKIP_\w+_AUTH)"
)
"""Where its login is, and how it reaches its models. What else is meant for it belongs to the session cmserver was started from."""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    """Without the two kinds below."""
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Result(msgspec.Struct, rename={"model_usage": "modelUsage"}):
    """What we read of the one JSON object that it prints."""

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


class _Ran(msgspec.Struct, frozen=True):
    """How a run ended."""

    code: int
    output: bytes
    errors: bytes


class ClaudeCli:
    """Starts the program for each call, which takes it half a second and a few hundred MB."""

    def __init__(self, given: Given) -> None:
        self._name = given.name
        self._model = given.model or _MODEL
        self._program = given.claude_program
        self._timeout_seconds = given.timeout_seconds
        self._answer_max_tokens = given.answer_max_tokens

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError. The program has ended then, and so it has when the call is cancelled."""
        wording = await asyncio.to_thread(render, prompt, "json")
        # The stable part goes by the command line, where other users of the machine may see it. What was observed does not.
        command = [self._found(), *_options(self._model, wording.system, SCHEMAS[prompt.kind])]
        with tempfile.TemporaryDirectory(prefix="cmserver-claude-", ignore_cleanup_errors=True) as folder:
            ran = await self._run(command, (_OPENING + wording.user).encode(), folder)
        return self._completion(ran)

    def _found(self) -> str:
        found = shutil.which(Path(self._program).expanduser())
        if found is None:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"The program {self._program!r} is not there, or may not be run: install Claude Code for the "
                "user that cmserver runs as, or name the program's path in CMSERVER_CLAUDE_PROGRAM.",
            )
        return str(Path(found).absolute())

    async def _run(self, command: list[str], text: bytes, folder: str) -> _Ran:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=folder,
                env=self._environment(os.environ),
                start_new_session=True,  # whatever it starts can be ended with it, and Ctrl-C in our terminal is not for it
            )
        except OSError as error:
            raise ProviderError(
                FailureKind.SETUP_REQUIRED,
                f"The program {command[0]} (CMSERVER_CLAUDE_PROGRAM) cannot be started: {error.strerror or error}.",
            ) from None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                output, errors = await process.communicate(text)
                return _Ran(await process.wait(), output, errors)
        except TimeoutError:
            raise failures.cut_off(_WHO, "it took longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS") from None
        finally:
            await _end(process)

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Ours without what is for us, our keys among it: with ANTHROPIC_API_KEY the program would use that and not its login."""
        ours = {field.environment for field in fields()} | {f"{field.environment}_FILE" for field in fields()}
        kept = {
            name: value
            for name, value in environ.items()
            if name not in ours and (not name.startswith(("CLAUDE", PREFIX)) or _KEPT.fullmatch(name))
        }
        return {
            **kept,
            **_SET,
            "API_TIMEOUT_MS": str(int(self._timeout_seconds * 1000)),  # should we die, it does not stay for long
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(self._answer_max_tokens),
        }

    def _completion(self, ran: _Ran) -> Completion:
        result = _result(ran.output)
        if result is None:
            raise _no_result(ran)
        held = bytes(result.structured_output)
        structured = held.decode() if held != b"null" else None
        completion = Completion(
            text=structured or result.result or "",
            model=next(iter(result.model_usage), self._model),
            input_tokens=result.usage.input_tokens,
            output_tokens=result.usage.output_tokens,
            cache_read_tokens=result.usage.cache_read_input_tokens,
            cache_write_tokens=result.usage.cache_creation_input_tokens,
            # The program names a sum, too, at list prices. What a call takes from a plan is between the plan and its owner.
            cost_usd=None,
            truncated=structured is None and _was_cut(result),
        )
        failed = _failure(result, completion) if result.is_error or structured is None else None
        if failed is not None:
            failed.completion = completion if completion.input_tokens or completion.output_tokens else None
            raise failed
        return completion


def _options(model: str, system: str, schema: dict[str, object]) -> list[str]:
    """Not --bare, which would do much of it: with that the program does not use its login."""
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


async def _end(process: asyncio.subprocess.Process) -> None:
    """The program and all it has started: asked first, then killed. Nothing happens if they have ended."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await process.wait()
    finally:
        _signal(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):  # what has left the group could keep its pipes open
                await process.wait()


def _signal(group: int, sign: signal.Signals) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # macOS says the latter of a group of which only zombies are left
        os.killpg(group, sign)


def _result(output: bytes) -> _Result | None:
    """The object it prints; a wrapper may have printed lines before it."""
    for text in (output, (output.strip().splitlines() or [b""])[-1]):
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            found = msgspec.json.decode(text, type=_Result)
            return found if found.type == "result" else None
    return None


def _was_cut(result: _Result) -> bool:
    return result.stop_reason == "max_tokens" or "output token maximum" in (result.result or "")


_NO_CONNECTION = re.compile(
    r"connection refused|unable to connect|can't reach the api|no internet route|connect through your proxy|could ?n.t resolve|"
    r"E(?:CONNREFUSED|NOTFOUND|AI_AGAIN|HOSTUNREACH|NETUNREACH)",
    re.IGNORECASE,
)


def _failure(result: _Result, completion: Completion) -> ProviderError | None:
    """What an answer means that has no structured part, or says itself that it is an error; None if it may be one all the same."""
    said = result.result or "; ".join(result.errors or [])
    if completion.truncated and (result.is_error or not said):
        return ProviderError(
            FailureKind.UNUSABLE_ANSWER, f"{_WHO} answered nothing: it used up CMSERVER_ANSWER_MAX_TOKENS before it had ended."
        )
    if result.stop_reason == "refusal":
        return ProviderError(FailureKind.REFUSED, f"{_WHO} said: {_one_line(said)}")
    if result.terminal_reason == "prompt_too_long":
        return failures.by_status(_WHO, 413, said)
    if result.subtype in {"error_max_turns", "error_max_structured_output_retries"} or not (said or result.is_error):
        return ProviderError(
            FailureKind.UNUSABLE_ANSWER, f"{_WHO} brought no answer in the form asked for: {_one_line(said) or 'nothing was said'}."
        )
    # Its own words first: a plan's limit has the same status as too many requests at once.
    failed = failures.in_prose(_WHO, said)
    if failed is None and result.api_error_status is not None:
        failed = failures.by_status(_WHO, result.api_error_status, said)
    if failed is None and result.is_error:
        refused = _NO_CONNECTION.search(said) is not None
        failed = failures.unreachable(f"{_WHO}'s API", _one_line(said)) if refused else failures.cut_off(_WHO, _one_line(said))
    if failed is not None and failed.kind is FailureKind.QUOTA_EXHAUSTED and failed.retry_after_seconds is None:
        failed.retry_after_seconds = seconds_until_reset(said, datetime.now().astimezone())
    return failed


def _no_result(ran: _Ran) -> ProviderError:
    """The program itself failed, or is no claude."""
    said = _one_line(ran.errors.decode(errors="replace")) or _one_line(ran.output.decode(errors="replace"))
    if "unknown option" in said:
        return ProviderError(
            FailureKind.SETUP_REQUIRED, f"{_WHO} is too old, or is none ({said}): `claude update` brings a new one."
        )
    if ran.code in {126, 127}:  # as a shell says it: not to be run, or not found
        return ProviderError(FailureKind.SETUP_REQUIRED, f"{_WHO} cannot run: {said or f'it ended with {ran.code}'}.")
    if failed := failures.in_prose(_WHO, said):
        return failed
    if ran.code < 0:
        return failures.cut_off(_WHO, f"it was ended by signal {-ran.code}")
    ended = f"it ended with {ran.code}" if ran.code else "what it printed is no JSON of a result"
    return failures.cut_off(_WHO, f"{ended} ({said})" if said else ended)


def _one_line(text: str) -> str:
    """In one line, cut, and without what may be a key."""
    line = re.sub(r"\bsk-[-\w]{6,}|(?i:\bbearer) +\S+|[-\w]{32,}", "***", " ".join(text.split())).rstrip(".")
    return line if len(line) <= _LONGEST_QUOTE else f"{line[: _LONGEST_QUOTE - 1]}…"


_RESETS = re.compile(
    r"\bresets? (?:at )?(?:(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2})(?:, (?P<year>\d{4}))?(?:,| at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)\b(?: \((?P<zone>[\w/+-]+)\))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def seconds_until_reset(said: str, now: datetime) -> float | None:
    """From "resets 3pm (Asia/Tokyo)" or "resets Nov 25, 5:03am (UTC)", and the minute it leaves out. None when it says no time."""
    found = _RESETS.search(said)
    if found is None:
        return None
    try:
        here = now.astimezone(ZoneInfo(found["zone"])) if found["zone"] else now
        at = here.replace(
            hour=int(found["hour"]) % 12 + (12 if found["half"] == "pm" else 0),
            minute=int(found["minute"] or 0),
            second=0,
            microsecond=0,
        )
        if found["month"]:
            month = _MONTHS.index(found["month"]) + 1
            year = int(found["year"] or here.year + (month < here.month))
            at = at.replace(year=year, month=month, day=int(found["day"]))
        elif at <= here:
            at += timedelta(days=1)
    except (ValueError, LookupError, OSError):  # a zone or a month that there is not
        return None
    return max(0.0, (at - here).total_seconds()) + 60.0


def make(given: Given) -> ClaudeCli:
    """It needs no key, and has no address; whether the program is there is seen when it is called."""
    if not given.claude_program.strip():
        raise Invalid("CMSERVER_CLAUDE_PROGRAM is empty: name the claude program, or leave the setting out.")
    if given.base_url:
        raise Invalid("The provider claude-cli has no CMSERVER_BASE_URL: the program knows itself whom to ask.")
    return ClaudeCli(given)
