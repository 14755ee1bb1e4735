"""The image, built and run: two teams, a kill, the volume, its healthcheck and a backup; and the two compose files, up and down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.bench.world import free_port
from tests.process.conftest import passable_folder
from tests.process.podman import Podman, find_missing
from tests.process.program import ROOT, wait_for
from tests.timeouts import scaled

pytestmark = pytest.mark.slow

EVENT = {
    "projectId": "demo",
    "eventType": "tool_use",
    "payload": {"tool_name": "Edit", "tool_input": {"file_path": "src/retry.py", "old_string": "N = 3", "new_string": "N = 5"}},
}


@pytest.fixture(scope="module")
def podman() -> Generator[Podman]:
    if missing := find_missing():
        pytest.skip(f"containers need {', '.join(missing)}")
    with passable_folder() as folder:
        podman = Podman(folder)
        podman.build_images()
        try:
            yield podman
        finally:
            podman.run("rm", "-af", "-t", "0")


def start(podman: Podman, port: int) -> None:
    """Run the image as the how-to does, with the port on this machine's loopback, and a read-only root."""
    podman.run(
        "run", "-d", "--name", "memory", "--network", podman.network, "--read-only", "--tmpfs", "/tmp", "--stop-timeout", "30",
        "-v", "cmserver:/var/lib/cmserver", "-p", f"127.0.0.1:{port}:37877", "cmserver",
    )  # fmt: skip


def test_the_image_serves_survives_a_kill_and_keeps_its_volume(podman: Podman):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    start(podman, port)
    wait_until_ready(url)
    key = json.loads(podman.run("exec", "memory", "cat", "/var/lib/cmserver/credentials"))["key"]

    with httpx.Client(base_url=url, headers={"X-Api-Key": key}, timeout=scaled(60), trust_env=False) as client:
        guest = client.post("/v1/teams", json={"name": "guests"}).raise_for_status().json()["apiKey"]
        made = (
            client.post("/v1/keys", json={"name": "lost", "actorId": "bob", "scopes": ["events:write"]}).raise_for_status().json()
        )
        client.post("/v1/events?wait=true", json=EVENT).raise_for_status()
        client.delete(f"/v1/keys/{made['id']}").raise_for_status()
        before = client.get("/v1/observations?project=demo").raise_for_status().json()["observations"]
        waiting = client.post("/v1/events", json={**EVENT, "sourceEventId": "last"}).raise_for_status().json()["event"]["id"]
    assert len(before) == 1
    podman.run("healthcheck", "run", "memory")
    podman.run("kill", "-s", "KILL", "memory")
    podman.run("rm", "-f", "memory")

    start(podman, port)
    wait_until_ready(url)

    with httpx.Client(base_url=url, timeout=scaled(60), trust_env=False) as client:
        path = "/v1/observations?project=demo"
        own = client.get(path, headers={"X-Api-Key": key}).raise_for_status().json()["observations"]
        assert before[0]["id"] in {observation["id"] for observation in own}
        assert client.get(f"/v1/events/{waiting}", headers={"X-Api-Key": key}).status_code == 200
        assert client.get(f"/v1/events/{waiting}", headers={"X-Api-Key": guest}).status_code == 404
        assert client.post("/v1/events", headers={"X-Api-Key": made["apiKey"]}, json=EVENT).status_code in {401, 403}
    assert "Written: /var/lib/cmserver/backups/" in podman.run("exec", "memory", "cmserver", "backup")
    assert podman.run("exec", "memory", "id", "-u").strip() == "10001"
    podman.run("stop", "memory")
    assert podman.run("inspect", "memory", "--format", "{{.State.ExitCode}}").strip() == "0"
    podman.run("rm", "memory")


@pytest.mark.parametrize(
    ("file", "services"), [("compose.yaml", {"postgres", "server", "worker"}), ("compose.one.yaml", {"server"})]
)
def test_compose_runs_what_makes_an_observation_of_an_event_and_keeps_it(
    podman: Podman, tmp_path: Path, file: str, services: set[str]
):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    text, published = (ROOT / file).read_text(encoding="utf-8"), "127.0.0.1:37877:37877"
    assert published in text
    (tmp_path / file).write_text(text.replace(published, f"127.0.0.1:{port}:37877"), encoding="utf-8")
    shutil.copytree(ROOT / "sql" / "setup", tmp_path / "sql" / "setup")
    settings = {"POSTGRES_PASSWORD": "0a", "DATABASE_PASSWORD": "0b", "CMSERVER_GENERATION_DEBOUNCE_SECONDS": "0"}
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")

    podman.compose(tmp_path / file, "up", "-d")
    wait_until_ready(url)
    names = find_containers(podman)
    key = json.loads(podman.run("exec", names["server"], "cat", "/var/lib/cmserver/credentials"))["key"]
    with httpx.Client(base_url=url, headers={"X-Api-Key": key}, timeout=scaled(60), trust_env=False) as client:
        client.post("/v1/events?wait=true", json=EVENT).raise_for_status()
        before = client.get("/v1/observations?project=demo").raise_for_status().json()["observations"]
        for name in names.values():
            podman.run("healthcheck", "run", name)
        podman.run("exec", names["server"], "cmserver", "verify")
        podman.compose(tmp_path / file, "down")
        left = find_containers(podman)
        podman.compose(tmp_path / file, "up", "-d")
        wait_until_ready(url)
        after = client.get("/v1/observations?project=demo").raise_for_status().json()["observations"]
    podman.compose(tmp_path / file, "down", "-v")

    assert (set(names), left) == (services, {})
    assert len(before) == 1
    assert after == before


def find_containers(podman: Podman) -> dict[str, str]:
    """The names of the running containers, by their services."""
    service = '{{index .Labels "com.docker.compose.service"}}'
    lines = podman.run("ps", "--format", f"{service} {{{{.Names}}}}").splitlines()
    return dict(line.split() for line in lines)


def wait_until_ready(url: str) -> None:
    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz", timeout=scaled(5), trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    wait_for("the container", is_ready, 120)
