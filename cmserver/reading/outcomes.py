"""Reads how a command ended: its exit code, the counts of a test run, the names of failing tests, the line that tells the error."""

from __future__ import annotations

import re
from typing import Literal

from cmserver.base.text import shorten
from cmserver.base.tolerant_json import record
from cmserver.reading.model import Outcome
from cmserver.reading.text import bounded
from cmserver.tooluse.commands import read_command_line
from cmserver.tooluse.model import CommandLine, Purpose, WorkingFolder
from cmserver.tooluse.text import printed_text, reported_exit_code

_EXIT = re.compile(r"^[ \t]*(?:Error: )?(?:Command failed with )?[Ee]xit(?:ed with)?(?: code| status)?:? (\d{1,9})\b")
_FRAME = re.compile(
    r"^(?:(?:Process Group PGID|Background PIDs): [\d, ]+$|Exit Code: \d+$|Process exited with code \d+$|Wall time: .*$"
    r"|Output:(?: \(empty\)$| |$))",
    re.MULTILINE,
)
"""What Gemini CLI and Codex put around an output."""
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
_PASSED = re.compile(
    r"\b[1-9]\d* (?:passed|passing)\b|\b[1-9]\d* examples?, 0 failures|^OK\b|^ok[ \t]+\S"
    r"|All checks passed|no issues found|\b0 errors\b",
    re.MULTILINE,
)
_NOTHING_RAN = re.compile(
    r"\bno tests? (?:ran|found|files?|to run|executed|collected|were (?:found|executed|run)|specified)\b"
    r"|\bno test (?:suites?|cases?|is available|matches)\b|^(?:\[INFO\] )?tests are skipped\b|^1\.\.0\b"
    r"|\bcollected 0 items|\bthere are no tests to run|^(?:> Task )?:\S{0,300}test (?:NO-SOURCE|SKIPPED)$"
    r"|\bno (?:tasks|projects|packages|specs|examples) (?:were |was )?(?:run|executed|found|matched)"
    r"|\bno files? (?:matching|matched|found)|\ball files (?:matched|are|were) ignored"
    r"|\bhas a \"?\w+\"? script\b",
    re.IGNORECASE | re.MULTILINE,
)
_TASK_RAN = re.compile(r"^> Task :(?:[\w.-]{1,100}:){0,20}\w{0,100}[tT]est(?: UP-TO-DATE| FROM-CACHE)?$", re.MULTILINE)
"""What Gradle prints of a project that has tests."""
_SKIP_LINE = re.compile(r"^[ \t]*--- SKIP:|\.\*\*\*(?:Skipped|Not Run)\b", re.MULTILINE)
_PASS_LINE = re.compile(r"^[ \t]*--- PASS:|\. {1,9}Passed {1,9}\d", re.MULTILINE)
"""What Go, when it is told to, and CTest print of each test."""
_SUITES = re.compile(r"^[ \t]*(?:Test Suites:|Test Files|Snapshots:).*$", re.MULTILINE)
"""Lines of totals that do not count tests."""
_SCRIPT = re.compile(r"^(?:> \S{1,200}@\S{0,200} .{0,300}\n> |\$ )(\S.{0,300})$", re.MULTILINE)
"""What npm, pnpm and yarn print of the script that they run."""
_NOTHING_TO_MAKE = re.compile(r"^make(?:\[\d+\])?: (?:'\S+' is up to date|Nothing to be done for)", re.MULTILINE)
_PASS_COUNT = re.compile(
    r"(?<![\w.])(\d{1,9}) (?:tests? )?(?:passed|passing|pass|succeeded)\b|\b(?:passed|pass|succeeded)[:=] {0,9}(\d{1,9})\b"
    r"|^[#\u2139] pass (\d{1,9})$",
    re.IGNORECASE | re.MULTILINE,
)
_FAIL_COUNT = re.compile(
    r"(?<![\w.])(\d{1,9}) (?:tests? )?(?:failed|failing|fail|failures?)\b|\b(?:failed|failures)[:=] {0,9}(\d{1,9})\b", re.IGNORECASE
)
_TOTAL = re.compile(
    r"(?<![\w./])(\d{1,9}) (?:tests?|examples?|specs?|runs|total)\b(?! (?:failed|skipped|passed))|\btests run: (\d{1,9})\b"
    r"|\btests: (\d{1,9})(?=,)|^[#\u2139] tests (\d{1,9})$",
    re.IGNORECASE | re.MULTILINE,
)
_SKIPPED = re.compile(
    r"(?<![\w./])(\d{1,9}) (?:tests? )?(?:skipped|skips?|pending|ignored|excluded|deselected|todo|disabled)\b"
    r"|\b(?:skipped|ignored|pending|disabled)[:=] {0,9}(\d{1,9})\b|^[#\u2139] (?:skip(?:ped)?|todo) (\d{1,9})$",
    re.IGNORECASE | re.MULTILINE,
)
_OK_PACKAGE = re.compile(r"^ok[ \t]+[\w./-]+[ \t]+(?:\d|\(cached\))(?!.*\[no tests to run\])", re.MULTILINE)
_NAMES = (
    re.compile(r"^(?:FAILED|ERROR) [^\s:]+(?:::[^\s:]+)*?::(\w+(?:\[[^\]\n]*\])?)", re.MULTILINE),  # pytest
    re.compile(r"^[ \t]*--- FAIL: (\S+)", re.MULTILINE),  # go
    re.compile(r"^test (\S+) \.\.\. FAILED", re.MULTILINE),  # cargo
    re.compile(r"^(?:FAIL|ERROR): (\w+) \(", re.MULTILINE),  # unittest
    re.compile(r"^[ \t]*● (.+)$", re.MULTILINE),  # jest
    re.compile(r"^[ \t]*FAIL\s+\S+ > (.+)$", re.MULTILINE),  # vitest
)
_FAILING_FILE = re.compile(r"^[ \t]*(?:FAILED|ERROR|FAIL|rspec) +(?:\./)?([\w./-]{1,300}\.\w{1,5})\b", re.MULTILINE)
_PLACE = re.compile(r'^[ \t]*(?:File ")?((?!/usr|<)[\w./-]{1,300}\.[a-z]{1,5})"?(?::|, line |\()(\d{1,9})', re.MULTILINE)

_PYTEST_LINE = re.compile(r"^E\s+(\S.*)")
_UNCAUGHT = re.compile(r'^Exception in thread "[^"\n]{0,100}" (\S.*)')
_NAMED_ERROR = re.compile(r"^[ \t]*((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Failure|Exit|Interrupt|NotFound)\b(?::.*)?)$")
_SUMMARY_ERROR = re.compile(r"^(?:FAILED|ERROR) \S+ - (.+)")
_PLAIN_ERROR = re.compile(
    r"\b(?:error|fatal|panic|panicked|failed|cannot|could not|can't|not found|no such|denied|refused|undefined|unable|"
    r"expected|unknown|invalid|missing|conflict)\b",
    re.IGNORECASE,
)
_GO_LINE = re.compile(r"^\s+\w+_test\.go:\d+: (.+)")
_COMPILER_LINE = re.compile(r"^(\S{1,300}:\d{1,9}: (?:fatal )?error: .+)")
_SHELL_LINE = re.compile(
    r"(?:/\S{1,100}/)?(?:ba|da|z|k)?sh:(?: line \d{1,9}:| ?\d{1,9}:)? (?:command not found: (?P<unknown>\S.{0,300})"
    r"|(?P<named>\S.{0,300}?): "
    r"(?:No such file or directory|Permission denied|command not found|not found|cannot execute.{0,80}))"
)
_SOURCE_ERROR = re.compile(r"\S{1,300}\.\w{1,5}:\d{1,9}:\d{1,9}: (?!warning:|note:)")
_LAST_ERROR = re.compile(
    r"(?:error|ERROR|fatal)(?:\[\w+\])?: \S|\[ERROR\] |\S+ error: .{0,200}\(code \d{1,9}\)|Automatic merge failed;|CONFLICT \("
)
"""What only a program that gives up ends with."""
_COMPILERS = {"go", "gcc", "g++", "cc", "clang", "rustc", "javac"}
_PRINTERS = {"cat", "head", "tail", "sed", "grep", "rg", "less", "echo", "printf", "awk", "diff"}
_NOISE = re.compile(
    r"^(?:Error response from daemon: |npm (?:ERR!|error)\s*|error\[?\w*\]?: (?=.)|Traceback .*|[=_-]{4,}.*)",
    re.IGNORECASE,
)


def read_outcome(
    command: CommandLine, tool_response: object, error: str | None, folder: WorkingFolder, *, is_failed: bool
) -> Outcome:
    """Read what a command printed. A pipe hides the exit code of the test run before it, so the output decides there, too."""
    answer = record(tool_response)
    body = _FRAME.sub("", _ANSI.sub("", bounded(error or printed_text(tool_response))))
    exit_code = reported_exit_code(tool_response)
    if exit_code is None and (match := _EXIT.match(body)):
        exit_code, body = int(match[1]), body[match.end() :]
    is_interrupted = answer.get("interrupted") is True
    says_failure = exit_code is None and isinstance(tool_response, str) and _says_failure(command, body)
    failed = bool(is_failed or error or exit_code or is_interrupted or says_failure) and not command.main.is_negated
    counts = _counts(body)
    if command.is_check:
        failed = _has_failed(command, body, counts, failed=failed)
    if not failed:
        proof = _find_proof(command, body, exit_code)
        return Outcome(failed=False, proof=proof, exit_code=exit_code, counts=counts, output=body)
    wordless = "interrupted" if is_interrupted else f"exit code {exit_code}" if exit_code else "no output"
    return Outcome(
        failed=True,
        exit_code=exit_code,
        counts=counts,
        failing_tests=_failing_tests(body),
        failing_files=list(dict.fromkeys(_FAILING_FILE.findall(body))),
        error=_telling_line(body) or wordless,
        place=_place(body, folder),
        output=body,
    )


def _says_failure(command: CommandLine, body: str) -> bool:
    """Whether a command without an exit code says itself that it failed: in words of its own program, or of the shell.

    What prints files may print such words of others.
    """
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    if not lines:
        return False
    first, last, words = lines[0], lines[-1], command.main.words
    if shell := _SHELL_LINE.fullmatch(last):
        name = shell["unknown"] or shell["named"]
        return name in command.text or (name.startswith("cd: ") and len(lines) == 1)
    program = words[0].rpartition("/")[2] if words else ""
    if program in _PRINTERS:
        return False
    if any(line.startswith("Traceback (most recent call last):") for line in lines) and _NAMED_ERROR.match(last):
        return True
    return (
        _LAST_ERROR.match(last) is not None
        or (program == "node" and last.startswith("Node.js v"))
        or re.match(rf"{re.escape(program)}: (?:error|fatal): ", first) is not None
        or re.match(rf"{re.escape(program)}(?:\[\d+\])?: \*\*\*|{re.escape(program)}: (?:error|fatal)\b", last) is not None
        or (program == "git" and re.match(r"(?:error|fatal): ", first) is not None)
        or (program in {"npm", "pnpm", "npx"} and re.match(r"npm (?:error|ERR!) ", first) is not None)
        or (program in _COMPILERS and any(_SOURCE_ERROR.match(line) for line in lines))
    )


def _find_proof(command: CommandLine, body: str, exit_code: int | None) -> Literal["exit", "report", ""]:
    if command.is_check and has_run_nothing(command, body):
        return ""
    if exit_code == 0 and command.decides_exit_code:
        return "exit"
    return "report" if command.is_check and not command.main.is_negated and _PASSED.search(body) else ""


def has_run_nothing(command: CommandLine, body: str) -> bool:
    """Whether a check says that it had nothing to check, or skipped all of it."""
    if command.main.purpose is not Purpose.TEST:
        return _NOTHING_RAN.search(body) is not None and _PASSED.search(body) is None
    if (_SKIP_LINE.search(body) and not _PASS_LINE.search(body)) or _only_prints(body):
        return True
    body = _SUITES.sub("", body)
    passed = _numbers(_PASS_COUNT, body)
    if _OK_PACKAGE.search(body) or _TASK_RAN.search(body) or any(passed) or any(_numbers(_FAIL_COUNT, body)):
        return False
    totals, skipped = _numbers(_TOTAL, body), [sum(_numbers(_SKIPPED, line)) for line in body.splitlines()]
    if any(totals):
        return bool(passed) or (any(skipped) and max(totals) <= max(skipped))
    is_said = _NOTHING_RAN.search(body) is not None or _NOTHING_TO_MAKE.search(body) is not None
    return bool(totals or passed) or any(skipped) or is_said


def _only_prints(body: str) -> bool:
    """Whether the package's script that was run is `echo "no tests yet"` or the like."""
    scripts = [read_command_line(script) for script in _SCRIPT.findall(body)]
    return bool(scripts) and all(script.main.purpose is Purpose.LOOK for script in scripts)


def _numbers(pattern: re.Pattern[str], body: str) -> list[int]:
    """The numbers that the pattern finds, whichever of its groups has them."""
    return [int(next(filter(None, match.groups()))) for match in pattern.finditer(body)]


def _place(body: str, folder: WorkingFolder) -> str:
    """The last place in a project file that the output names."""
    places = [(folder.relative(path), line) for path, line in _PLACE.findall(body)]
    inside = [f"{path}:{line}" for path, line in places if not path.startswith("/")]
    return inside[-1] if inside else ""


def _has_failed(command: CommandLine, body: str, counts: str, *, failed: bool) -> bool:
    """A test run in a pipe has the exit code of the pipe: `| tail` hides a failure, `| grep` without a match invents one."""
    last = command.commands[-1]
    is_filtered = last is not command.main and last.purpose is Purpose.LOOK
    totals = counts if _TOTALS.search(counts) else body
    return _FAILED.search(totals) is not None or (failed and not (is_filtered and not body.strip()))


def _counts(body: str) -> str:
    for pattern in _COUNTS:
        if counts := pattern.findall(body):
            return shorten(str(counts[-1]).replace(";", ",").replace(" | ", ", "), 60)
    return ""


def _failing_tests(body: str) -> list[str]:
    for pattern in _NAMES:
        names: list[str] = pattern.findall(body)
        if names:
            return [shorten(name, 60) for name in dict.fromkeys(names)]
    return []


def _telling_line(body: str) -> str:
    """The line of an error text that says most: a named error, else the first that sounds like one, else the last."""
    lines = [line.rstrip() for line in body.splitlines() if line.strip()]
    for pattern, place in (
        (_UNCAUGHT, 0),
        (_PYTEST_LINE, 0),
        (_SUMMARY_ERROR, 0),
        (_GO_LINE, 0),
        (_COMPILER_LINE, 0),
        (_NAMED_ERROR, -1),
    ):
        errors = [match[1] for line in lines if (match := pattern.match(line))]
        if errors:
            return shorten(([text for text in errors if _NAMED_ERROR.match(text)] or errors)[place], 160)
    cleaned = [line for line in (_NOISE.sub("", line).strip() for line in lines) if line]
    return shorten(next((line for line in cleaned if _PLAIN_ERROR.search(line)), cleaned[-1] if cleaned else ""), 160)
