"""Turns: one row for what was asked and what was answered, whole, found and opened by a number that means nothing else."""

from __future__ import annotations

import httpx

from cmserver.models.providers.model import Rules
from cmserver.sessions.turns.model import MAX_SIDE_CHARS, cut_side
from tests.conftest import Cast
from tests.doors.mcp.tools import call
from tests.generation.tools import Outbox, Scripted


async def hook(client: httpx.AsyncClient, cast: Cast, name: str, **fields: object) -> None:
    """Send a hook of Claude Code in session s1, in the repository /src."""
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id, "X-Cmserver-Root": "/src"}
    payload = {"hook_event_name": name, "session_id": "s1", "cwd": "/src", **fields}
    answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
    assert answer.status_code == 200, answer.text


async def tool(client: httpx.AsyncClient, cast: Cast, name: str, fields: dict[str, object], response: object) -> None:
    use_id = f"t{name}{fields}"
    await hook(client, cast, "PostToolUse", tool_name=name, tool_use_id=use_id, tool_input=fields, tool_response=response)


async def list_turns(client: httpx.AsyncClient, cast: Cast, **query: str) -> list[dict[str, object]]:
    answer = await client.get("/v1/turns", params=query, headers=cast.alice.headers)
    return answer.json()["turns"]


async def test_a_turn_has_both_sides_and_what_was_done_between_them(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    await hook(client, cast, "UserPromptSubmit", prompt="Napraw licznik faktur")
    await tool(client, cast, "Write", {"file_path": "/src/bill.py", "content": "x = 1\n"}, {"type": "create"})
    await tool(client, cast, "Bash", {"command": "pytest -q"}, {"stdout": "1 passed in 0.1s"})
    await tool(client, cast, "Bash", {"command": "git commit -m 'Count once'"}, {"stdout": "[main abc1234] Count once"})
    await hook(client, cast, "Stop", last_assistant_message="Licznik liczył podwójnie: klucz był skrótem liczby.")
    await hook(client, cast, "UserPromptSubmit", prompt="thanks")
    await (await outbox.hand(Scripted())).work()

    second, first = await list_turns(client, cast, session="s1")

    assert (first["prompt"], first["reply"]) == (
        "Napraw licznik faktur",
        "Licznik liczył podwójnie: klucz był skrótem liczby.",
    )
    assert (first["files"], first["checks"], first["commits"]) == (
        ["bill.py"],
        ["pytest -q: passed"],
        ["git commit -m 'Count once'"],
    )
    assert (first["promptNumber"], second["promptNumber"], second["reply"]) == (1, 2, None)
    assert first["endedAtEpoch"] is not None
    assert second["endedAtEpoch"] is None
    assert first["actorId"] == cast.alice.principal.actor_id


async def test_paths_are_from_the_root_of_the_repository_wherever_in_it_the_agent_works(
    client: httpx.AsyncClient, cast: Cast, outbox: Outbox
):
    folder = {"cwd": "/src/packages/api"}
    await hook(client, cast, "UserPromptSubmit", prompt="Round the bills", **folder)
    for number, (name, fields) in enumerate(
        [
            ("Write", {"file_path": "/src/packages/api/bill.py", "content": "x = 1\n"}),
            ("Bash", {"command": "echo 'y = 2' > rates.py"}),
            ("apply_patch", {"input": "*** Begin Patch\n*** Add File: ../web/bill.ts\n+let x = 1\n*** End Patch"}),
        ]
    ):
        use = {"tool_name": name, "tool_use_id": f"t{number}", "tool_input": fields, "tool_response": {"stdout": ""}}
        await hook(client, cast, "PostToolUse", **use, **folder)
    await hook(client, cast, "Stop", last_assistant_message="Bills are rounded in bill.py because floats are not exact.", **folder)
    await (await outbox.hand(Rules())).work()

    paths = ["packages/api/bill.py", "packages/api/rates.py", "packages/web/bill.ts"]
    (turn,) = await list_turns(client, cast)
    assert turn["files"] == paths
    answer = await client.get("/v1/observations/2", headers=cast.alice.headers)
    assert sorted(answer.json()["observation"]["filesModified"]) == paths


async def test_an_answer_that_goes_on_is_kept_whole_and_the_same_one_once(client: httpx.AsyncClient, cast: Cast):
    await hook(client, cast, "UserPromptSubmit", prompt="Go on")
    for text in ("First half.", "First half.", "Second half."):
        await hook(client, cast, "Stop", last_assistant_message=text)

    (turn,) = await list_turns(client, cast)

    assert turn["reply"] == "First half.\n\nSecond half."


async def test_a_number_names_an_observation_or_a_turn_at_every_door(client: httpx.AsyncClient, cast: Cast, outbox: Outbox):
    await hook(client, cast, "UserPromptSubmit", prompt="Why is the wombat slow?")
    await hook(client, cast, "Stop", last_assistant_message="Its quokka cache was cold.")
    body = {"narrative": "A platypus.", "projectId": cast.alice.project.canonical_id}
    written = (await client.post("/v1/observations", json=body, headers=cast.alice.headers)).json()["observation"]
    (turn,) = await list_turns(client, cast)
    number = turn["number"]

    assert written["number"] != number
    assert (await client.get(f"/v1/turns/{number}", headers=cast.alice.headers)).json()["turn"] == turn
    assert (await client.get(f"/v1/turns/{turn['id']}", headers=cast.alice.headers)).json()["turn"] == turn
    assert (await client.get(f"/v1/turns/{written['number']}", headers=cast.alice.headers)).status_code == 404
    assert (await client.get(f"/v1/turns/{number}", headers=cast.charlie.headers)).status_code == 404
    refused = await client.get(f"/v1/observations/{number}", headers=cast.alice.headers)
    assert (refused.status_code, f"/v1/turns/{number}" in refused.text) == (404, True)
    ids = {"ids": [number, written["number"]]}
    batch = (await client.post("/v1/observations/batch", json=ids, headers=cast.alice.headers)).json()
    assert ([it["number"] for it in batch["observations"]], batch["turns"], batch["missing"]) == ([written["number"]], [turn], [])
    for kinds in (None, ["turn"], ["prompt"]):
        found = (
            await client.post(
                "/v1/search", json={"query": "quokka"} | ({"kinds": kinds} if kinds else {}), headers=cast.alice.headers
            )
        ).json()
        assert [(hit["number"], hit["reply"]) for hit in found["prompts"]] == [(number, "Its quokka cache was cold.")], kinds
    around = (await client.post("/v1/timeline", json={"anchor": number}, headers=cast.alice.headers)).json()
    assert (around["anchor"]["what"], around["anchor"]["number"]) == ("turn", number)
    assert "Its quokka cache was cold." in (await call(client, cast.alice, "observation_get", ids=[number]))[0]


async def test_a_sub_agent_has_a_turn_of_its_own_whichever_of_its_sides_comes_first(client: httpx.AsyncClient, cast: Cast):
    def start(agent_id: str, prompt: str) -> tuple[str, dict[str, object], object]:
        return "Agent", {"prompt": prompt, "subagent_type": "Explore"}, {"agentId": agent_id, "status": "completed"}

    async def stop(agent_id: str, text: str) -> None:
        await hook(client, cast, "SubagentStop", agent_id=agent_id, agent_type="Explore", last_assistant_message=text)

    await hook(client, cast, "UserPromptSubmit", prompt="Why is the wombat slow?")
    await stop("a1", "Its cache is cold.")
    await tool(client, cast, *start("a1", "Look at the wombat's cache"))
    await tool(client, cast, *start("a2", "Measure the quokka"))
    await stop("a2", "Ten seconds.")
    await stop("a2", "Twelve, once more.")
    await stop("a3", "Nobody heard what I was asked.")
    await hook(client, cast, "Stop", last_assistant_message="The cache.")
    await hook(client, cast, "UserPromptSubmit", prompt="Warm it")

    found = await list_turns(client, cast, session="s1")

    said = {(it["agentId"], it["promptNumber"], it["prompt"], it["reply"]) for it in found}
    assert said == {
        (None, 1, "Why is the wombat slow?", "The cache."),
        (None, 2, "Warm it", None),
        ("a1", None, "Look at the wombat's cache", "Its cache is cold."),
        ("a2", None, "Measure the quokka", "Ten seconds.\n\nTwelve, once more."),
        ("a3", None, "", "Nobody heard what I was asked."),
    }
    assert all(it["actorId"] == cast.alice.principal.actor_id for it in found)
    of_a1 = next(it for it in found if it["agentId"] == "a1")
    (text, *_) = await call(client, cast.alice, "observation_get", ids=[of_a1["number"]])
    assert "turn of sub-agent a1" in text
    assert "Task: Look at the wombat's cache" in text
    body = {"query": "quokka", "projectId": cast.alice.project.canonical_id}
    hits = (await client.post("/v1/search", json=body, headers=cast.alice.headers)).json()["prompts"]
    assert [(hit["agentId"], hit["reply"]) for hit in hits] == [("a2", "Ten seconds.\n\nTwelve, once more.")]
    for query, said_by_users in (("quokka", []), ("wombat cache", ["Why is the wombat slow?"])):
        episodes = (await client.get("/episodes/search", params={"q": query}, headers=cast.alice.headers)).json()
        worker_query = {"query": query, "format": "json"}
        worker = (await client.get("/api/search", params=worker_query, headers=cast.alice.headers)).json()["prompts"]
        assert [episode["userMessage"] for episode in episodes] == [row["prompt_text"] for row in worker] == said_by_users, query
    (found_lines, *_) = await call(client, cast.alice, "observation_search", query="wombat cache", format="index")
    (around, *_) = await call(client, cast.alice, "observation_timeline", anchor=of_a1["number"])
    whole = {"anchor": str(of_a1["number"]), "format": "full", "projectId": cast.alice.project.canonical_id}
    told = (await client.post("/v1/timeline", json=whole, headers={**cast.alice.headers, "Accept": "text/plain"})).text
    assert all("turn of sub-agent a1 Look at the wombat's cache" in lines for lines in (found_lines, around))
    assert "turn of sub-agent a1\n  Task: Look at the wombat's cache\n  Sub-agent: Its cache is cold." in told
    assert "turn of sub-agent a3\n  Sub-agent: Nobody heard what I was asked." in told
    assert "turn\n  User: Why is the wombat slow?\n  Agent: The cache." in told


async def test_an_id_that_is_too_long_to_be_one_names_no_sub_agent(client: httpx.AsyncClient, cast: Cast):
    endless = "".join(f"{number:x}" for number in range(4_000))

    await hook(client, cast, "UserPromptSubmit", prompt="Why is the wombat slow?")
    await tool(client, cast, "Agent", {"prompt": "Look", "subagent_type": "Explore"}, {"agentId": endless})

    assert [turn["agentId"] for turn in await list_turns(client, cast, session="s1")] == [None]


async def test_a_sub_agent_of_codex_opencode_and_kilo_is_asked_by_a_prompt(client: httpx.AsyncClient, cast: Cast):
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    for agent in ("codex", "opencode", "kilo"):
        common = {"session_id": agent, "cwd": "/src", "agent_id": "a1"}
        for fields in (
            {"hook_event_name": "UserPromptSubmit", "prompt": "Look around"},
            {"hook_event_name": "Stop", "last_assistant_message": "I looked."},
        ):
            await client.post(f"/v1/hooks/{agent}", json=common | fields, headers=headers)

    said = [(it["agentId"], it["promptNumber"], it["prompt"], it["reply"]) for it in await list_turns(client, cast)]
    assert said == [("a1", None, "Look around", "I looked.")] * 3


def test_a_long_side_keeps_its_beginning_and_its_end():
    cut = cut_side("a" * 30_000 + "z")

    assert (len(cut), cut[0], cut[-1], "[…]" in cut) == (MAX_SIDE_CHARS, "a", "z", True)
    assert cut_side("short") == "short"
