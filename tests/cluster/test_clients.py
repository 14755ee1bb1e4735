"""Streams and clients of the Model Context Protocol live through the death of the primary, and miss nothing afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import cast

import msgspec
import pytest
from mcp import MCPError

from tests.cluster.conftest import Site
from tests.cluster.test_cluster import FAILOVER, FEW, check, load
from tests.doors.mcp.tools import MODES, Mode, called, client_at
from tests.process.program import measured, rows, wait_for
from tests.process.streams import Stream

pytestmark = pytest.mark.slow

_OBSERVATIONS = "SELECT o.id::text AS id FROM observations o JOIN projects p ON p.id = o.project_id WHERE p.name = %(project)s"


class Agent:
    """A client of the protocol's own library, connected once, that searches again and again."""

    def __init__(self, url: str, key: str, mode: Mode) -> None:
        self.answers: Counter[str] = Counter()
        """How often there was an answer, by "", or what was said instead."""
        self._url, self._key = url, key
        self._mode: Mode = mode
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        async with client_at(self._url, headers, mode=self._mode) as client:
            while not self._stopping.is_set():
                try:
                    text, is_refused = await called(client, "observation_search", projectId="*", query="limit")
                except MCPError as error:
                    text, is_refused = str(error), True
                self.answers[text if is_refused else ""] += 1
                await asyncio.sleep(0.2)


class _Created(msgspec.Struct, frozen=True):
    """As much of an event of the stream as names the observation."""

    id: str


def test_streams_and_mcp_clients_go_on_when_the_primary_lost_power(site: Site, chance: Random, seed: int):
    patient = [Stream([url], site.key, "observation.created", timeout=60) for url in site.urls]
    impatient = Stream(site.urls, site.key, "observation.created", timeout=1)
    streams = [*patient, impatient]
    agents = [Agent(url, site.key, mode) for mode in MODES for url in site.urls]
    with ThreadPoolExecutor(len(agents)) as pool:
        working = [pool.submit(agent.work) for agent in agents]
        try:
            wait_for("the streams", lambda: all(stream.connects for stream in streams))
            with load(site, "clients", chance) as sent:
                lost = site.cluster.primary
                lost.kill()
                assert site.cluster.primary is not lost
                assert sent.wait_for_more(FEW), sent.answers
                before = [agent.answers[""] for agent in agents]
                wait_for("an answer to each", lambda: all(a.answers[""] > b for a, b in zip(agents, before, strict=True)))
                lost.start_patroni()
            check(site, sent, "The primary's host loses power while streams are read and MCP clients search", seed, FAILOVER)
            created = {cast("str", row["id"]) for row in rows(site.cluster.url(), _OBSERVATIONS, project=sent.project)}
            wait_for("all observations, in each stream", lambda: all(created <= set(heard(stream)) for stream in streams))
        finally:
            for client in (*agents, *streams):
                client.stop()
            for client in (*agents, *streams):
                measured(f"{type(client).__name__}: {dict(client.answers)}")
        for work in working:
            work.result()
    assert [Counter(heard(stream)) for stream in streams] == [Counter(created)] * len(streams), "each once"
    assert [stream.resets for stream in streams] == [0] * len(streams)
    assert [stream.connects for stream in patient] == [1, 1], "while the database was away, these stayed open"
    assert all(agent.answers.total() > agent.answers[""] for agent in agents), "each was refused something meanwhile"


def heard(stream: Stream) -> list[str]:
    return [msgspec.json.decode(data, type=_Created).id for data in stream.heard]
