"""How a command ended: its exit, the counts of a test run, the names of failing tests, the line that tells the error."""

from __future__ import annotations

import re

import msgspec

from cmserver.providers.rules.commands import Command, Sort
from cmserver.providers.rules.phrases.manner import words
from cmserver.providers.rules.text import bounded, field, number, prose, record, relative, shorten

_EXIT = re.compile(r"^[ \t]*(?:Error: )?(?:Command failed with )?[Ee]xit(?:ed with)?(?: code| status)?:? (\d{1,9})\b")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

# Output is anything at all: no pattern may look at a long run of the same more than once, so numbers have a left end and a size.
_COUNTS = (  # the line of totals that each runner prints
    re.compile(
        r"((?:(?<!\d)\d{1,9} (?:failed|passed|skipped|errors?|xfailed|xpassed|deselected|warnings?)(?:, )?){1,8}) in \d"
    ),  # pytest
    re.compile(r"^Tests:[ \t]++(.{1,200}?), \d+ total", re.MULTILINE),  # jest
    re.compile(r"^[ \t]*Tests[ \t]++(\d+ .{1,200}?)(?: \(\d{1,9}\))?$", re.MULTILINE),  # vitest
    re.compile(r"^test result: \w+\. (\d+ passed; \d+ failed)", re.MULTILINE),  # cargo
    re.compile(r"^Ran (\d+ tests?) in", re.MULTILINE),  # unittest
    re.compile(r"^[ \t]*(\d+ passing)\b", re.MULTILINE),  # mocha
    re.compile(r"^(\d+ examples?, \d+ failures?)", re.MULTILINE),  # rspec
    re.compile(r"(Found \d+ errors?[^.\n]{0,40})"),  # ruff, mypy, tsc
    re.compile(r"^(\d+ errors?, \d+ warnings?)", re.MULTILINE),  # pyright
    re.compile(r"((?<!\d)\d{1,9} problems? \(\d+ errors?[^)\n]{0,60}\))"),  # eslint
)
_FAILED = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b(?! \(\d+ fixed, 0 rem)|^(?:--- )?FAIL(?:ED)?\b|\bfailures=[1-9]"
    r"|^(?:ERROR|FAILED) \S+(?:::| - )|\berror TS\d+:|^make: \*\*\*",
    re.MULTILINE,
)
_TOTALS = re.compile(r"pass|fail|error")
_NAMES = (
    re.compile(r"^(?:FAILED|ERROR) [^\s:]+(?:::[^\s:]+)*?::(\w+(?:\[[^\]\n]*\])?)", re.MULTILINE),  # pytest
    re.compile(r"^[ \t]*--- FAIL: (\S+)", re.MULTILINE),  # go
    re.compile(r"^test (\S+) \.\.\. FAILED", re.MULTILINE),  # cargo
    re.compile(r"^(?:FAIL|ERROR): (\w+) \(", re.MULTILINE),  # unittest
    re.compile(r"^[ \t]*● (.+)$", re.MULTILINE),  # jest
    re.compile(r"^[ \t]*FAIL\s+\S+ > (.+)$", re.MULTILINE),  # vitest
)
_PLACE = re.compile(r'^[ \t]*(?:File ")?((?!/usr|<)[\w./-]{1,300}\.[a-z]{1,5})"?(?::|, line |\()(\d{1,9})', re.MULTILINE)

_PYTEST_LINE = re.compile(r"^E\s+(\S.*)")
_NAMED_ERROR = re.compile(r"^[ \t]*((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Failure|Exit|Interrupt|NotFound)\b(?::.*)?)$")
_SUMMARY_ERROR = re.compile(r"^(?:FAILED|ERROR) \S+ - (.+)")
_PLAIN_ERROR = re.compile(
    r"\b(?:error|fatal|panic|panicked|failed|cannot|could not|can't|not found|no such|denied|refused|undefined|unable|"
    r"expected|unknown|invalid|missing|conflict)\b",
    re.IGNORECASE,
)
_GO_LINE = re.compile(r"^\s+\w+_test\.go:\d+: (.+)")
_NOISE = re.compile(
    r"^(?:Error response from daemon: |npm (?:ERR!|error)\s*|error\[?\w*\]?: (?=.)|Traceback .*|[=_-]{4,}.*)",
    re.IGNORECASE,
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one command."""

    failed: bool
    exit_code: int | None = None
    counts: str = ""
    """As the runner says it: "2 failed, 31 passed"."""
    names: list[str] = []
    """Failing tests, as many as the output names."""
    error: str = ""
    """The most telling line, at most 160 characters; empty when the command did not fail."""
    place: str = ""
    """Where it failed, when the output says: "orders/pricing.py:12"."""
    output: str = ""


def judge(command: Command, tool_response: object, error: str | None, root: str | None, *, reported_failed: bool) -> Outcome:
    """Read what a command printed. Piped test runs hide their exit code, so their output is asked too."""
    answer = record(tool_response)
    output = _ANSI.sub("", bounded(error or _output(tool_response, answer)))
    exit_code, body = _exit_code(answer, output)
    stopped = answer.get("interrupted") is True
    failed = bool(reported_failed or error or exit_code or stopped)
    if command.chief.sort in {Sort.TEST, Sort.CHECK}:
        failed = _run_failed(command, body, failed=failed)
    counts = _counts(body)
    if not failed:
        return Outcome(failed=False, counts=counts, output=body)
    return Outcome(
        failed=True,
        exit_code=exit_code,
        counts=counts,
        names=_failing(body),
        error=telling_line(body) or _without_words(exit_code, stopped=stopped),
        place=_place(body, root),
        output=body,
    )


def _place(body: str, root: str | None) -> str:
    """The last place in a project file that the output names."""
    places = [(relative(path, root), line) for path, line in _PLACE.findall(body)]
    inside = [f"{path}:{line}" for path, line in places if not path.startswith("/")]
    return inside[-1] if inside else ""


def _run_failed(command: Command, body: str, *, failed: bool) -> bool:
    """A test run in a pipe has the exit code of the pipe: `| tail` hides a failure, `| grep` without a match invents one."""
    filtered = command.parts[-1] is not command.chief and command.parts[-1].sort is Sort.LOOK
    counts = _counts(body)
    told = counts if _TOTALS.search(counts) else body
    return _FAILED.search(told) is not None or (failed and not (filtered and not body.strip()))


def _output(tool_response: object, answer: dict[str, object]) -> str:
    both = [field(answer, "stdout", "output"), field(answer, "stderr", "error")]
    return "\n".join(filter(None, both)) or prose(tool_response)


def _exit_code(answer: dict[str, object], output: str) -> tuple[int | None, str]:
    for source in (answer, record(answer.get("metadata"))):
        for name in ("exit_code", "exitCode", "code", "returncode"):
            if isinstance(source.get(name), int):
                return number(source[name]), output
    found = _EXIT.match(output)
    return (int(found[1]), output[found.end() :]) if found else (None, output)


def _without_words(exit_code: int | None, *, stopped: bool) -> str:
    if stopped:
        return words().interrupted
    return words().exit_code.format(code=exit_code) if exit_code else words().no_output


def _counts(body: str) -> str:
    for pattern in _COUNTS:
        found = pattern.findall(body)
        if found:
            return shorten(str(found[-1]).replace(";", ",").replace(" | ", ", "), 60)
    return ""


def _failing(body: str) -> list[str]:
    for pattern in _NAMES:
        found: list[str] = pattern.findall(body)
        if found:
            return [shorten(name, 60) for name in dict.fromkeys(found)]
    return []


def telling_line(body: str) -> str:
    """The line of an error text that says most: a named error, else the first that sounds like one, else the last."""
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    for pattern, newest in ((_PYTEST_LINE, False), (_SUMMARY_ERROR, False), (_GO_LINE, False), (_NAMED_ERROR, True)):
        found = [match[1] for line in lines if (match := pattern.match(line))]
        if found:
            named = [text for text in found if _NAMED_ERROR.match(text)]
            return shorten((named or found)[-1 if newest else 0], 160)
    cleaned = [line for line in (_NOISE.sub("", line).strip() for line in lines) if line]
    return shorten(next((line for line in cleaned if _PLAIN_ERROR.search(line)), cleaned[-1] if cleaned else ""), 160)
