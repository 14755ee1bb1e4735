"""Two API processes that are sent the same observation at once store it once."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Run
from tests.process.program import Program
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

WRITES = 64


@pytest.mark.smoke
def test_64_writes_of_the_same_text_over_two_processes_make_one_row(run: Run, folder: Path, database: str):
    folders = {"api": folder / "data", "other_api": folder / "other"}
    apis: list[Program] = []
    for label, data_dir in folders.items():
        settings = {"CMSERVER_DATABASE_URL": database, "CMSERVER_DATA_DIR": str(data_dir)}
        apis.append(run(label, "--role", "api", settings=settings))
        apis[-1].wait_until_ready()
    body = {"projectId": "orders", "title": "Lock order", "narrative": "Orders are locked before stock.", "onDuplicate": "merge"}
    headers = {"Authorization": f"Bearer {apis[0].key}"}
    with apis[0].http() as client:
        assert client.post("/v1/projects", json={"canonicalId": "orders"}).status_code == 201

    def store(number: int) -> tuple[int, int]:
        url = f"{apis[number % 2].url}/v1/observations"
        answer = httpx.post(url, json=body, headers=headers, timeout=scaled(60), trust_env=False)
        return answer.status_code, answer.json()["observation"]["number"]

    with ThreadPoolExecutor(WRITES) as threads:
        stored = list(threads.map(store, range(WRITES)))

    assert Counter(status for status, _ in stored) == {201: 1, 200: WRITES - 1}
    assert len({number for _, number in stored}) == 1
