"""What the rules have written into a session's record, read again: in whichever language that was."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cmserver.providers.rules.phrases.manner import EVERY


def _one_of(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(re.escape(text) for text in dict.fromkeys(texts))})"


def _between(template: str, left: str, right: str) -> str:
    """The words of a template between two of its blanks."""
    return template.partition(f"{{{left}}}")[2].partition(f"{{{right}}}")[0]


_COMMAND = re.compile(_one_of(words.command for words in EVERY) + ": `(.+)`")
_PASSES = re.compile("(?:^|; )" + _one_of(words.passes for words in EVERY) + ": `(.+?)`")
_RAN = re.compile(_one_of(label for words in EVERY for label in (words.command, words.passes, words.failed_before)) + ": `([^`]+)`")
_COMMIT = re.compile(_one_of(words.commit for words in EVERY) + " ")
_ONE_FAILS = re.compile(r"(\S+)" + _one_of(_between(words.fails, "name", "error") for words in EVERY))
_TESTS_FAIL = re.compile(r"(\d+)" + _one_of(_between(words.tests_fail, "count", "names").rstrip(" (") for words in EVERY) + r"\b")
_FAILED = re.compile(_one_of(_between(words.failed, "command", "error").lstrip("`") for words in EVERY))
_TELLS = re.compile(
    r"\bfail(?:s|ed)?\b|"
    + _one_of(
        template.strip("` (:")
        for words in EVERY
        for template in (
            _between(words.fails, "name", "error"),
            _between(words.tests_fail, "count", "names"),
            _between(words.failed, "command", "error"),
        )
    )
)


def tells_failure(title: str) -> bool:
    """Whether the title of an observation says that something fails."""
    return _TELLS.search(title) is not None


def failure(title: str) -> tuple[str, int, str]:
    """Of a title that tells a failure: the one test that fails, or how many do, and the error, or the title where it has none."""
    if one := _ONE_FAILS.match(title):
        return one[1], 0, title[one.end() :]
    if several := _TESTS_FAIL.match(title):
        return "", int(several[1]), title
    ran = _FAILED.search(title)
    return "", 0, (title[ran.end() :] if ran else "") or title


def command(facts: list[str]) -> str | None:
    """The command of which the facts of a failure tell."""
    return next((match[1] for fact in facts if (match := _COMMAND.match(fact))), None)


def passed(facts: list[str]) -> list[str]:
    """The commands of which the facts say that they pass."""
    return [found for fact in facts for found in _PASSES.findall(fact)]


def ran(facts: Iterable[str]) -> list[str]:
    """The commands of which facts tell that they were run."""
    return [match[1] for fact in facts if (match := _RAN.match(fact))]


def is_commit(facts: list[str]) -> bool:
    return any(_COMMIT.match(fact) for fact in facts)
