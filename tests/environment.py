"""Keeps the caller of the tests out of them: his keys, proxies, folders, locale, time zone, ignored signals."""

from __future__ import annotations

import os
import re
import signal
import time

_OF_THE_CALLER = re.compile(
    r"CMSERVER_(?!TEST_)|OTEL_|.*_API_KEY$|.*_PROXY$|XDG_|OLLAMA_|ANTHROPIC_|CLAUDE|CODEX|GEMINI|CURSOR|GIT_(?!SSL)|PG|LC_|LANGUAGE$"
    r"|PYTHONPATH$|NOTIFY_SOCKET$|WATCHDOG_|COLUMNS$|LINES$|NO_COLOR$|FORCE_COLOR$",
    re.IGNORECASE,
)
_OF_THE_TESTS = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def clean_environment() -> None:
    """Set the environment, the signals and the file mode of this process, which all that it starts inherits."""
    for name in names_of_the_caller():
        del os.environ[name]
    os.environ.update(_OF_THE_TESTS)
    time.tzset()
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def names_of_the_caller() -> list[str]:
    return [name for name in os.environ if _OF_THE_CALLER.match(name) and name not in _OF_THE_TESTS]
