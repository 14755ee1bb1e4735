"""A rolling restart: an older version and this one serve one database at the same time, and each does jobs of the other."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from cmserver.base.migrate import migrations, newest
from tests.process.conftest import Run
from tests.process.program import ROOT, Program, command, number, wait_until_settled
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

KEY = "key-of-the-rolling-restart"
PROJECT = "/home/dev/orders"


def git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


@pytest.fixture
def older(folder: Path) -> Path:
    """A folder with the code of the last release; before the first one, of the commit before the newest migration."""
    try:
        tags = git("tag", "--list", "v*", "--sort=-version:refname").decode().split()
        (added, *_) = (
            git("log", "--format=%H", "--diff-filter=A", "--", f"sql/migrations/{migrations()[-1].name}.sql").decode().split()
        )
        archive = git("archive", tags[0] if tags else f"{added}^", "cmserver", "sql")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this checkout has no history to take an older version from: {error}")
    code = folder / "older"
    code.mkdir()
    subprocess.run(["tar", "--extract", "--directory", code], input=archive, check=True)
    return code


class Server:
    """One version, with a folder of its own and the shared database."""

    def __init__(self, run: Run, label: str, role: str, url: str, folder: Path, more: Mapping[str, str]) -> None:
        settings = {
            "CMSERVER_DATABASE_URL": url,
            "CMSERVER_DATA_DIR": str(folder / f"data-{label}"),
            "CMSERVER_BOOTSTRAP_KEY": KEY,
            "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0",
            **more,
        }
        self.program: Program = run(label, "--role", role, settings=settings)
        if role == "worker":
            self.program.wait_until_working()
        else:
            self.program.wait_until_ready()

    def __call__(self, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEY}"}
        url = self.program.url + path
        answer = httpx.request(method, url, headers=headers, json=body, timeout=scaled(40), trust_env=False)
        assert answer.is_success, f"{self.program.label}: {method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer

    def live_a_session(self, name: str) -> None:
        """What Claude Code's hooks send of a session, and what its agent looks up."""
        common = {"session_id": name, "cwd": PROJECT}
        edit = {"file_path": f"{PROJECT}/src/{name}.py", "old_string": "LIMIT = 1", "new_string": f"{name.upper()}_LIMIT = 2"}
        hooks: list[dict[str, object]] = [
            {"hook_event_name": "SessionStart", "source": "startup"},
            {"hook_event_name": "UserPromptSubmit", "prompt": f"Raise the limit of {name}"},
            {"hook_event_name": "PostToolUse", "tool_use_id": f"toolu_{name}", "tool_name": "Edit", "tool_input": edit},
            {"hook_event_name": "SessionEnd", "reason": "other"},
        ]
        for hook in hooks:
            self("POST", "/v1/hooks/claude-code", {**common, **hook})
        self("GET", f"/v1/context?project={PROJECT}")

    @property
    def completed(self) -> int:
        return len(self.program.logged("batch.completed"))


def test_an_older_version_and_this_one_serve_one_database_together(run: Run, folder: Path, older: Path, empty_database: str):
    url = empty_database
    of_older = {"PYTHONPATH": str(older)}
    old_api, old_worker = (Server(run, f"old-{role}", role, url, folder, of_older) for role in ("api", "worker"))
    old_api.live_a_session("first")
    wait_until_settled(url)
    before = number(url, "SELECT max(number) FROM schema_migrations")

    new_api = Server(run, "new-api", "api", url, folder, {})
    for place, api in enumerate((new_api, old_api, new_api)):
        api.live_a_session(f"early{place}")
    wait_until_settled(url)
    done_by_old = old_worker.completed
    assert httpx.get(f"{old_api.program.url}/readyz", timeout=scaled(40), trust_env=False).status_code == 503
    new_worker = Server(run, "new-worker", "worker", url, folder, {})
    for place, api in enumerate((old_api, new_api) * 2):
        api.live_a_session(f"middle{place}")
    wait_until_settled(url)
    assert old_worker.program.stop() == 0
    for place, api in enumerate((old_api, new_api)):
        api.live_a_session(f"late{place}")
    wait_until_settled(url)

    assert before != number(url, "SELECT max(number) FROM schema_migrations") == newest()
    assert done_by_old >= 4, "the older worker does the jobs of both"
    assert new_worker.completed >= 2, "the newer worker does the jobs of both"
    assert number(url, "SELECT count(*) FROM observation_generation_jobs WHERE status <> 'completed'") == 0
    sessions = {"first", "early0", "early1", "early2", "middle0", "middle1", "middle2", "middle3", "late0", "late1"}
    for api in (old_api, new_api):
        listed = api("GET", f"/v1/observations?project={PROJECT}&limit=100").json()["observations"]
        assert {name for name in sessions for row in listed if f"src/{name}.py" in row["filesModified"]} == sessions
        found = api("POST", "/v1/search", {"projectId": PROJECT, "query": "LATE0_LIMIT"}).json()["observations"]
        assert found, api.program.label
    for server in (old_api, new_api, new_worker):
        assert not server.program.logged("request.failed")
        assert not server.program.logged("batch.failed")
        assert server.program.stop() == 0
    assert not old_worker.program.logged("batch.failed")
    verified = command(folder, "verify", settings={"CMSERVER_DATABASE_URL": url})
    assert verified.returncode == 0, verified.stdout + verified.stderr
