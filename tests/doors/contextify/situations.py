"""Situations in which clients of Contextify use its routes, as one client on one server: what must hold whoever serves them.

They run over HTTP against a real server on Contextify's own port (tests/process/test_contextify.py) and against the application.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

API = "/api/v1"
ACTIONS = {"created", "created_with_suggestions", "updated"}


class Contextify:
    """A client of the routes, with a project of its own."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.project = f"github.com/acme/{uuid4().hex[:12]}"

    async def call(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        """The decoded answer; without a body nothing is sent at all, not even a type of content."""
        sent: dict[str, Any] = {} if body is None else {"json": body}
        response = await self.http.request(method, f"{API}{path}", **sent)
        assert response.status_code == status, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    async def store(self, title: str, content: str, **fields: object) -> Any:
        """The whole result of storing a memory in the client's project."""
        body = {"title": title, "content": content, "project_id": self.project, **fields}
        return await self.call("POST", "/memories", body, status=201)

    async def memory(self, title: str, content: str, **fields: object) -> Any:
        """The memory that was stored."""
        return (await self.store(title, content, **fields))["memory"]

    async def three_memories(self) -> list[Any]:
        """Three memories that have nothing in common."""
        return [
            await self.memory("Retry of uploads", "An upload is repeated three times, with a growing pause.", importance=0.5),
            await self.memory("Colour of invoices", "The header of an invoice is dark green since spring.", importance=0.7),
            await self.memory("Name of the queue", "Mails are sent by the worker that listens on outbox.", importance=0.6),
        ]


async def check_a_stored_memory_has_every_field(client: Contextify) -> None:
    result = await client.store(
        "Pool size",
        "The pool has twenty connections.",
        type="decision",
        tags=["db", "pool"],
        agent_source="claude-code",
        importance=0.9,
    )

    memory = result["memory"]
    assert result["action"] in ACTIONS
    assert memory["title"] == "Pool size"
    assert memory["content"] == "The pool has twenty connections."
    assert (memory["type"], memory["scope"], memory["project_id"]) == ("decision", "project", client.project)
    assert (memory["tags"], memory["agent_source"], memory["importance"]) == (["db", "pool"], "claude-code", 0.9)
    assert (memory["version"], memory["merged_from"], memory["access_count"]) == (1, [], 0)
    assert not {"ttl_seconds", "expires_at", "summary", "replaced_by"} & memory.keys()
    assert memory["created_at"].endswith("Z") or "+" in memory["created_at"]


async def check_defaults_fill_what_is_not_sent(client: Contextify) -> None:
    memory = await client.memory("Something", "Nothing else is said of it.")

    assert (memory["type"], memory["scope"], memory["importance"], memory["tags"]) == ("general", "project", 0.5, [])
    assert memory["ttl_seconds"] == 86_400
    assert memory["expires_at"] > memory["created_at"]


async def check_the_same_text_again_updates_the_memory(client: Contextify) -> None:
    first = await client.memory("Deadlock in checkout", "Two transactions lock orders and stock in turn.", importance=0.4)

    again = await client.store("Deadlock in checkout", "Two transactions lock orders and stock in turn.", importance=0.7)

    assert again["action"] == "updated"
    assert again["updated_existing"] == again["memory"]
    assert again["memory"]["id"] == first["id"]
    assert again["memory"]["importance"] >= 0.7


async def check_nearly_the_same_text_is_merged_or_suggested(client: Contextify) -> None:
    await client.memory("Cache of prices", "Prices are cached for ten minutes by the gateway service.", importance=0.6)

    near = await client.store("Cache of prices", "Prices are cached for ten minutes by the gateway service now.", importance=0.3)

    assert near["action"] in ACTIONS
    if near["action"] == "updated":
        assert near["memory"]["importance"] >= 0.6


async def check_another_text_is_a_memory_of_its_own(client: Contextify) -> None:
    one, two, three = await client.three_memories()

    assert len({one["id"], two["id"], three["id"]}) == 3


async def check_a_memory_is_read_and_found(client: Contextify) -> None:
    memory = await client.memory("Timezone of reports", "Reports are made in UTC and shown in the reader's zone.")

    read = await client.call("GET", f"/memories/{memory['id']}")
    found = await client.call("POST", "/memories/search", {"query": "timezone of reports", "project_id": client.project})
    recalled = await client.call("POST", "/memories/recall", {"query": "reports in UTC", "project_id": client.project, "limit": 5})

    assert read["title"] == "Timezone of reports"
    for results in (found, recalled):
        assert results[0]["memory"]["id"] == memory["id"]
        assert results[0]["score"] > 0
        assert results[0]["match_type"] in {"keyword", "semantic", "hybrid"}


async def check_a_memory_is_changed(client: Contextify) -> None:
    memory = await client.memory("Old title", "The text stays as it is.")

    changed = await client.call("PUT", f"/memories/{memory['id']}", {"title": "New title"})

    assert changed["title"] == "New title"
    assert changed["content"] == "The text stays as it is."
    assert changed["version"] == 2
    assert (await client.call("GET", f"/memories/{memory['id']}"))["title"] == "New title"


async def check_a_memory_is_promoted(client: Contextify) -> None:
    memory = await client.memory("Soon gone", "Unless somebody wants to keep it.", ttl_seconds=60)

    promoted = await client.call("POST", f"/memories/{memory['id']}/promote")

    assert promoted == {"status": "promoted", "id": memory["id"]}
    assert "expires_at" not in await client.call("GET", f"/memories/{memory['id']}")


async def check_a_memory_is_deleted(client: Contextify) -> None:
    memory = await client.memory("To be deleted", "Nobody needs it.")

    deleted = await client.call("DELETE", f"/memories/{memory['id']}")

    assert deleted == {"status": "deleted", "id": memory["id"]}
    assert "error" in await client.call("GET", f"/memories/{memory['id']}", status=404)


async def check_memories_are_merged(client: Contextify) -> None:
    target, source, other = await client.three_memories()

    merged = await client.call(
        "POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"], other["id"]], "strategy": "smart_merge"}
    )

    assert merged["id"] == target["id"]
    assert merged["importance"] >= 0.7
    assert merged["version"] == 2
    assert set(merged["merged_from"]) == {source["id"], other["id"]}
    assert "invoice" in merged["content"]
    assert (await client.call("GET", f"/memories/{source['id']}"))["replaced_by"] == target["id"]
    found = await client.call("POST", "/memories/search", {"query": "header of an invoice", "project_id": client.project})
    assert [result["memory"]["id"] for result in found] == [target["id"]]


async def check_each_strategy_merges(client: Contextify) -> None:
    for strategy in ("latest_wins", "append", "smart_merge"):
        target = await client.memory(f"First of {strategy}", f"What {strategy} begins with.")
        source = await client.memory(f"Second of {strategy}", f"The end that {strategy} comes to, whatever it was before.")

        merged = await client.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"]], "strategy": strategy})

        assert "The end" in merged["content"]
        assert strategy == "append" or merged["title"] not in merged["content"]
        assert ("begins" in merged["content"]) == (strategy != "latest_wins")


async def check_a_merge_needs_sources_and_a_target(client: Contextify) -> None:
    memory = await client.memory("Alone", "Nothing to merge with.")

    await client.call("POST", f"/memories/{memory['id']}/merge", {"source_ids": []}, status=400)
    await client.call("POST", f"/memories/{memory['id']}/merge", {}, status=400)
    await client.call("POST", f"/memories/{uuid4()}/merge", {"source_ids": [memory["id"]]}, status=404)
    await client.call("POST", f"/memories/{memory['id']}/merge", {"source_ids": [str(uuid4())], "strategy": "mine"}, status=400)


async def check_several_merges_in_one_request(client: Contextify) -> None:
    target, source, _ = await client.three_memories()
    nobody = str(uuid4())

    answer = await client.call(
        "POST",
        "/memories/consolidate",
        {
            "operations": [
                {"target_id": target["id"], "source_ids": [source["id"]]},
                {"target_id": nobody, "source_ids": [source["id"]]},
            ],
            "strategy": "append",
        },
    )

    first, second = answer["results"]
    assert (first["target_id"], first["memory"]["id"]) == (target["id"], target["id"])
    assert second["target_id"] == nobody
    assert second["error"]
    await client.call("POST", "/memories/consolidate", {"operations": []}, status=400)


async def check_merges_are_logged(client: Contextify) -> None:
    target, source, _ = await client.three_memories()
    await client.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"]], "strategy": "append"})

    log = await client.call("GET", f"/consolidation/log?target_id={target['id']}")
    all_of_them = await client.call("GET", "/consolidation/log?limit=5")

    (entry,) = log
    assert (entry["target_id"], entry["source_ids"], entry["merge_strategy"]) == (target["id"], [source["id"]], "append")
    assert entry["content_before"] == target["content"]
    assert source["content"] in entry["content_after"]
    assert entry["performed_by"]
    assert entry["similarity_score"] is None
    assert entry == all_of_them[0]


async def check_what_was_merged_is_related(client: Contextify) -> None:
    target, source, _ = await client.three_memories()
    await client.call("POST", f"/memories/{target['id']}/merge", {"source_ids": [source["id"]]})

    related = await client.call("GET", f"/memories/{target['id']}/related")

    assert [memory["id"] for memory in related["memories"]] == [source["id"]]
    (relation,) = related["relationships"]
    assert (relation["relationship"], relation["strength"]) == ("SUPERSEDES", 1.0)
    assert (relation["from_memory_id"], relation["to_memory_id"]) == (target["id"], source["id"])


async def check_memories_are_related(client: Contextify) -> None:
    problem, solution, _ = await client.three_memories()
    body = {"from_memory_id": solution["id"], "to_memory_id": problem["id"], "relationship": "SOLVES", "strength": 0.8}

    relation = await client.call("POST", "/relationships", body, status=201)
    again = await client.call("POST", "/relationships", {**body, "strength": 0}, status=201)

    assert (relation["relationship"], relation["strength"]) == ("SOLVES", 0.8)
    assert (again["id"], again["strength"]) == (relation["id"], 0.5)
    for one, other in ((problem, solution), (solution, problem)):
        related = await client.call("GET", f"/memories/{one['id']}/related")
        assert [memory["id"] for memory in related["memories"]] == [other["id"]]


async def check_suggestions_are_listed_and_resolved(client: Contextify) -> None:
    nothing = await client.call("GET", f"/consolidation/suggestions?project_id={client.project}")
    assert nothing == {"suggestions": [], "total": 0}
    assert await client.call("GET", f"/memories/duplicates?project_id={client.project}") == {"suggestions": [], "total": 0}

    await client.call("PUT", f"/consolidation/suggestions/{uuid4()}", {"status": "dismissed"}, status=404)
    await client.call("PUT", f"/consolidation/suggestions/{uuid4()}", {"status": "maybe"}, status=400)
    await client.call("GET", "/consolidation/suggestions?status=maybe", status=400)


async def check_statistics_count_what_is_there(client: Contextify) -> None:
    before = await client.call("GET", "/stats")
    await client.memory("Counted", "Once, and for good.", type="workflow", importance=0.8, agent_source="counter")
    after = await client.call("GET", "/stats")

    assert after["total_memories"] == before["total_memories"] + 1
    assert after["long_term_count"] == before["long_term_count"] + 1
    assert after["short_term_count"] == before["short_term_count"]
    assert after["by_type"]["workflow"] == before["by_type"].get("workflow", 0) + 1
    assert after["by_agent"]["counter"] >= 1
    assert after["by_scope"]["project"] >= 1
    assert isinstance(after["pending_suggestions"], int)
    assert isinstance(after["expiring_count"], int)
    analytics = await client.call("GET", "/analytics")
    assert analytics["total_tokens_stored"] > 0
    assert isinstance(analytics["top_accessed_memories"], list)
    assert {"total_tokens_saved", "total_hits", "hit_rate", "tokens_by_agent", "timeline"} <= analytics.keys()


async def check_the_funnel_counts_searches_and_stores(client: Contextify) -> None:
    await client.memory("Funnel of sales", "Every second visitor leaves at the address form.", agent_source="shop")
    await client.call(
        "POST", "/memories/recall", {"query": "visitor leaves form", "project_id": client.project, "agent_source": "shop"}
    )
    await client.call("POST", "/memories/search", {"query": "zebra", "project_id": client.project})

    funnel = await client.call("GET", f"/analytics/funnel?days=7&project_id={client.project}")
    of_agent = await client.call("GET", f"/analytics/funnel?project_id={client.project}&agent_source=shop")

    assert (funnel["recall_attempts"], funnel["recall_hits"], funnel["recall_hit_rate"]) == (2, 1, 0.5)
    assert (funnel["store_opportunities"], funnel["store_actions"], funnel["store_capture_rate"]) == (1, 1, 1.0)
    assert funnel["by_project"][0]["key"] == client.project
    assert len(funnel["timeline"]) == 1
    assert of_agent["recall_attempts"] == 1
    for wrong in ("days=0", "days=366", "from=2026-01-01", "from=2026-02-01&to=2026-01-01", "from=x&to=y"):
        await client.call("GET", f"/analytics/funnel?{wrong}", status=400)


async def check_the_context_of_a_project(client: Contextify) -> None:
    low = await client.memory("Less important", "But of this project all the same.", importance=0.2)
    high = await client.memory("More important", "It comes first in the context.", importance=0.9)

    raw = await client.call("POST", f"/context/{client.project}")
    encoded = await client.call("POST", f"/context/{client.project.replace('/', '%2F')}")

    ids = [memory["id"] for memory in raw if memory["scope"] == "project"]
    assert ids == [high["id"], low["id"]]
    assert [memory["id"] for memory in encoded] == [memory["id"] for memory in raw]
    unknown = await client.call("POST", f"/context/github.com/acme/{uuid4().hex}")
    assert all(memory["scope"] == "global" for memory in unknown)


async def check_the_steward_is_off(client: Contextify) -> None:
    status = await client.call("GET", "/steward/status")
    runs = await client.call("GET", "/steward/runs?limit=10")
    events = await client.call("GET", f"/steward/jobs/{uuid4()}/events")
    metrics = await client.call("GET", "/steward/metrics")
    history = await client.call("GET", "/steward/policies/history")

    assert status["enabled"] is False
    assert (runs["runs"], events["events"], history["items"]) == ([], [], [])
    assert metrics["runs_last_hour"] == 0


SITUATIONS = [value for name, value in list(globals().items()) if name.startswith("check_")]
"""All of them, in their order."""
