"""The image, built and run: two teams, a kill, the volume, its healthcheck and a backup."""

from __future__ import annotations

import json
from collections.abc import Generator

import httpx
import pytest

from tests.bench.world import free_port
from tests.process.conftest import passable_folder
from tests.process.podman import Podman
from tests.process.program import wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


@pytest.fixture
def podman() -> Generator[Podman]:
    with passable_folder() as folder:
        podman = Podman(folder)
        podman.build_image()
        try:
            yield podman
        finally:
            podman.run("rm", "-af", "-t", "0")


def test_the_image_serves_survives_a_kill_and_keeps_its_volume(podman: Podman):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    podman.start("memory", port)
    wait_until_ready(url)
    key = json.loads(podman.run("exec", "memory", "cat", "/var/lib/cmserver/credentials"))["key"]

    with httpx.Client(base_url=url, headers={"X-Api-Key": key}, timeout=scaled(60), trust_env=False) as client:
        guest = client.post("/v1/teams", json={"name": "guests"}).raise_for_status().json()["apiKey"]
        made = (
            client.post("/v1/keys", json={"name": "lost", "actorId": "bob", "scopes": ["events:write"]}).raise_for_status().json()
        )
        payload = {"tool_name": "Edit", "tool_input": {"file_path": "src/retry.py", "old_string": "N = 3", "new_string": "N = 5"}}
        event = {"projectId": "demo", "eventType": "tool_use", "payload": payload}
        client.post("/v1/events?wait=true", json=event).raise_for_status()
        client.delete(f"/v1/keys/{made['id']}").raise_for_status()
        before = client.get("/v1/observations?project=demo").raise_for_status().json()["observations"]
        waiting = client.post("/v1/events", json={**event, "sourceEventId": "last"}).raise_for_status().json()["event"]["id"]
    assert len(before) == 1
    podman.run("healthcheck", "run", "memory")
    podman.run("kill", "-s", "KILL", "memory")
    podman.run("rm", "-f", "memory")

    podman.start("memory", port)
    wait_until_ready(url)

    with httpx.Client(base_url=url, timeout=scaled(60), trust_env=False) as client:
        path = "/v1/observations?project=demo"
        own = client.get(path, headers={"X-Api-Key": key}).raise_for_status().json()["observations"]
        assert before[0]["id"] in {observation["id"] for observation in own}
        assert client.get(f"/v1/events/{waiting}", headers={"X-Api-Key": key}).status_code == 200
        assert client.get(f"/v1/events/{waiting}", headers={"X-Api-Key": guest}).status_code == 404
        assert client.post("/v1/events", headers={"X-Api-Key": made["apiKey"]}, json=event).status_code in {401, 403}
    assert "Written: /var/lib/cmserver/backups/" in podman.run("exec", "memory", "cmserver", "backup")
    assert podman.run("exec", "memory", "id", "-u").strip() == "10001"
    podman.run("stop", "memory")
    assert podman.run("inspect", "memory", "--format", "{{.State.ExitCode}}").strip() == "0"


def wait_until_ready(url: str) -> None:
    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz", timeout=scaled(5), trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    wait_for("the container", is_ready, 120)
