"""The environment of whoever runs the tests does not reach them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.environment import names_of_the_caller

HOSTILE = {
    "ANTHROPIC_API_KEY": "sk-of-the-caller",
    "CLAUDE_CODE_OAUTH_TOKEN": "token",
    "CMSERVER_DATABASE_URL": "postgresql://elsewhere/production",
    "GEMINI_API_KEY": "key",
    "GIT_DIR": "/nowhere",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "LC_ALL": "tr_TR.UTF-8",
    "OLLAMA_HOST": "http://127.0.0.1:9",
    "PGHOST": "elsewhere",
    "TZ": "Pacific/Kiritimati",
    "XDG_CONFIG_HOME": "/nowhere",
    "https_proxy": "http://127.0.0.1:9",
}


def test_nothing_of_the_callers_environment_is_here():
    assert names_of_the_caller() == []
    assert os.environ["LC_ALL"] == "C.UTF-8"
    assert time.tzname == ("UTC", "UTC")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_that_holds_whoever_runs_them():
    this_file = Path(__file__)
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{this_file}::{test_nothing_of_the_callers_environment_is_here.__name__}",
        ],
        env={**os.environ, **HOSTILE},
        cwd=this_file.parents[1],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout
