"""What a session is told when it starts, by how it starts, and the receipts for it: over HTTP, from a real database."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from cmserver.base.ids import epoch_ms, new_id
from cmserver.recall.context import build_context
from cmserver.recall.model import Context, ContextBudget, ContextReason, ContextRequest
from tests.conftest import Cast, Person, bound_to
from tests.make import Make


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^#(\d+) ", text, re.MULTILINE)]


@pytest.fixture
def started(client: AsyncClient):
    """Starts a session; our id of it."""

    async def start(person: Person, name: str = "s-1", project: str = "github.com/acme/orders") -> UUID:
        body = {"projectId": project, "externalSessionId": name, "platformSource": "claude-code"}
        answer = await client.post("/v1/sessions/start", headers=person.headers, json=body)
        return UUID(answer.json()["session"]["id"])

    return start


@pytest.fixture
def tell(db: Db, cast: Cast):
    """What Alice's session is told on that occasion."""

    async def build(reason: ContextReason, session: UUID | None = None, shape: ContextBudget | None = None, **more: Any) -> Context:
        async with db.tenant(cast.alice.team_id) as conn:
            occasion = ContextRequest(reason=reason, session_id=session, **more)
            return await build_context(conn, cast.alice.principal, cast.alice.project, occasion, shape or ContextBudget())

    return build


async def receipts(client: AsyncClient, person: Person, session: UUID, **params: str | int) -> list[Any]:
    answer = await client.get(f"/v1/sessions/{session}/context", params=params, headers=person.headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["receipts"]


async def test_the_context_is_text_with_its_lines_and_its_price(client: AsyncClient, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, type="bugfix", title="Fixed the retry", read_tokens=21)
    await make.observation(project=cast.charlie.project, title="secret")

    response = await client.get("/v1/context", params={"project": "github.com/acme/orders"}, headers=cast.alice.headers)

    context: dict[str, Any] = response.json()
    assert context["observations"] == [
        {
            "number": 1,
            "type": "bugfix",
            "title": "Fixed the retry",
            "createdAtEpoch": epoch_ms(made.created_at),
            "readTokens": 21,
        }
    ]
    assert " bugfix Fixed the retry ~21\n" in context["context"]
    assert context["tokens"] == -(-len(context["context"]) // 4)
    assert "explained" not in context


async def test_who_accepts_plain_text_gets_just_the_text(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(project=cast.alice.project)
    params = {"project": "orders"}  # by its name

    as_accepted = await client.get("/v1/context", params=params, headers={**cast.alice.headers, "Accept": "text/plain"})
    as_asked = await client.get("/v1/context", params={**params, "format": "text"}, headers=cast.alice.headers)
    as_json = await client.get(
        "/v1/context", params={**params, "format": "json"}, headers={**cast.alice.headers, "Accept": "text/plain"}
    )

    for response in (as_accepted, as_asked):
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert response.text.startswith("<cmserver-context>\nMemory of orders, as of ")
    assert as_json.json()["context"].startswith("<cmserver-context>\n")


async def test_the_newest_summary_is_told_while_it_is_news(client: AsyncClient, cast: Cast, make: Make):
    await make.observation(
        project=cast.alice.project, kind="summary", summary={"request": "Make it retry", "completed": "It retries"}
    )
    await make.observation(project=cast.alice.project, title="one")

    async def context(limit: int) -> dict[str, Any]:
        params = {"project": "orders", "limit": limit}
        return (await client.get("/v1/context", params=params, headers=cast.alice.headers)).json()

    news, old = await context(2), await context(1)

    assert "Request: Make it retry\n" in news["context"]
    assert [observation["number"] for observation in news["observations"]] == [2, 1]
    assert "Request:" not in old["context"]
    assert " summary Added retry to the orders client ~" in old["context"]


async def test_the_news_of_another_project_is_told_only_where_this_one_has_none(tell: Any, db: Db, cast: Cast, make: Make):
    billing = await bound_to(db, cast.alice, "billing")
    await make.observation(project=cast.alice.project, title="one")
    await make.observation(project=billing.project, kind="summary", scope="team", summary={"completed": "Billing is done"})

    without_own = await tell("startup")
    await make.observation(
        project=cast.alice.project,
        kind="summary",
        summary={"completed": "Orders are done"},
        created_at=datetime(2026, 11, 1, tzinfo=UTC),
    )
    with_own = await tell("startup")

    assert "Completed: Billing is done" in without_own.text
    assert "Completed: Orders are done" in with_own.text
    assert "Completed: Billing is done" not in with_own.text


async def test_a_summary_that_says_only_that_nothing_happened_is_no_news(tell: Any, cast: Cast, make: Make):
    nothing = {"request": "What is the limit?", "learned": None, "notes": "4 events, none of them worth recording."}
    await make.observation(project=cast.alice.project, kind="summary", title="What is the limit?", summary=nothing)
    looked = {"request": "What is the limit?", "investigated": "Read README.md.", "notes": "Last words: 60."}
    await make.observation(project=cast.alice.project, kind="summary", title="What is the limit?", summary=looked)
    await make.observation(project=cast.alice.project, title="one")

    context: Context = await tell("startup")

    assert numbers(context.text) == [3]
    assert "the limit" not in context.text


async def test_what_is_about_a_file_under_change_is_found_far_behind_the_newest(tell: Any, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project, title="How the pool waits", files_modified=["/home/dev/orders/src/pool.py"])
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET created_at = now() - interval '1 year'")
        await conn.execute(
            "INSERT INTO observations (id, number, project_id, team_id, origin, title, content)"
            " SELECT gen_random_uuid(), n, %s, %s, 'model', 'thing ' || n, '' FROM generate_series(2, 450) n",
            [cast.alice.project.id, cast.alice.team_id],
        )

    without, with_it = await tell("startup"), await tell("startup", changed_files=["src/pool.py"])

    assert 1 not in numbers(without.text)
    assert "In src/pool.py, changed on this branch:\n#1 " in with_it.text


async def test_what_had_no_room_at_its_start_is_no_news_to_a_resumed_session(tell: Any, started: Any, cast: Cast, make: Make):
    session = await started(cast.alice)
    for title in ("one", "another"):
        await make.observation(project=cast.alice.project, title=title)

    first = await tell("startup", session, ContextBudget(observations=1))
    resumed = await tell("resume", session)

    assert numbers(first.text) == [2]
    assert resumed.text == ""


async def test_a_resumed_session_hears_only_what_others_did_since(
    client: AsyncClient, tell: Any, started: Any, cast: Cast, make: Make
):
    session, other = await started(cast.alice), await started(cast.bob, "s-2")
    await make.observation(project=cast.alice.project, title="before")
    first = await tell("startup", session)
    await make.observation(project=cast.alice.project, title="own work", server_session_id=session)
    nothing = await tell("resume", session)
    await make.observation(project=cast.alice.project, title="of another session", server_session_id=other)

    news, again = await tell("resume", session), await tell("resume", session)

    assert numbers(first.text) == [1]
    assert nothing.text == again.text == ""
    assert numbers(news.text) == [3]
    assert news.text.startswith("<cmserver-context>\nNew in the memory of orders since this session was last told of it, as of ")
    assert [(receipt["reason"], receipt["numbers"]) for receipt in await receipts(client, cast.alice, session)] == [
        ("resume", [3]),
        ("startup", [1]),
    ]


@pytest.mark.parametrize("reason", ["startup", "clear", "fork"])
async def test_a_session_that_starts_anew_is_told_all_again(tell: Any, started: Any, cast: Cast, make: Make, reason: ContextReason):
    session = await started(cast.alice)
    await make.observation(project=cast.alice.project, server_session_id=session)
    await tell("startup", session)

    context = await tell(reason, session)

    assert numbers(context.text) == [1]


async def test_after_its_context_was_compacted_a_session_gets_its_own_work_in_full(tell: Any, started: Any, cast: Cast, make: Make):
    session, other = await started(cast.alice), await started(cast.bob, "s-2")
    for name, request in ((other, "another's"), (session, "its own"), (other, "a later one's")):
        await make.observation(
            project=cast.alice.project,
            title=request,
            kind="summary",
            summary={"request": request, "learned": "How"},
            server_session_id=name,
        )
    await make.observation(project=cast.alice.project, title="Made it retry", facts=["three times"], server_session_id=session)
    await make.observation(project=cast.alice.project, title="Of others", facts=["unsaid"], server_session_id=other)
    await tell("startup", session)

    context = await tell("compact", session)

    assert "Request: its own\n" in context.text
    assert re.search(r"^#4 change Made it retry ~\d+\n  - three times\n#5 ", context.text, re.MULTILINE)
    assert "unsaid" not in context.text
    assert numbers(context.text) == [1, 3, 4, 5]


async def test_an_empty_project_gets_two_helpful_lines_once(client: AsyncClient, tell: Any, started: Any, cast: Cast):
    session, later = await started(cast.alice), await started(cast.alice, "s-2")

    resumed, first, second, looked = (
        await tell("resume", session),
        await tell("startup", session),
        await tell("startup", later),
        await tell("startup", later, is_preview=True),
    )
    listed = await client.get("/v1/context", params={"project": "orders"}, headers=cast.alice.headers)

    assert first.text == (
        "<cmserver-context>\n"
        "Memory of orders: nothing has been recorded yet.\n"
        "What agents do and learn here is observed from now on, and listed when later sessions start.\n"
        "</cmserver-context>\n"
    )
    assert (resumed.text, second.text) == ("", "")
    assert looked.text == listed.json()["context"] == first.text


async def test_a_receipt_says_what_was_told_what_it_cost_and_why(
    client: AsyncClient, tell: Any, started: Any, cast: Cast, make: Make
):
    session = await started(cast.alice)
    await make.observation(project=cast.alice.project, title="thing", type="decision")
    await make.observation(project=cast.alice.project, title="other thing")
    await make.observation(
        project=cast.alice.project, kind="summary", summary={"request": "Make it retry", "completed": "It retries"}
    )

    context = await tell("startup", session, ContextBudget(tokens=600, observations=1, summaries=1), platform="claude-code")

    (receipt,) = await receipts(client, cast.alice, session, explain="true")
    assert receipt.pop("createdAtEpoch") > 0
    assert UUID(receipt.pop("id"))
    assert receipt == {
        "reason": "startup",
        "platformSource": "claude-code",
        "numbers": [1, 3],
        "summaryNumbers": [3],
        "leftOut": [2],
        "leftOutCount": 1,
        "tokens": context.tokens,
        "budgetTokens": 600,
        "chars": len(context.text),
        "details": {
            "lines": [
                {"number": 1, "usefulness": 0.973, "parts": {"type": 0.5, "recency": 0.473}},
                {"number": 3, "usefulness": 0.9, "parts": {"type": 0.4, "recency": 0.5}},
            ],
            "leftOut": {"limit": 1},
        },
    }


async def test_receipts_come_in_pages(client: AsyncClient, tell: Any, started: Any, cast: Cast, make: Make):
    session = await started(cast.alice)
    await make.observation(project=cast.alice.project)
    for _ in range(3):
        await tell("startup", session)

    pages_of_ids: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        answer = await client.get(f"/v1/sessions/{session}/context", params=params, headers=cast.alice.headers)
        pages_of_ids.append([receipt["id"] for receipt in answer.json()["receipts"]])
        cursor = answer.json()["nextCursor"]

    assert [len(page) for page in pages_of_ids] == [2, 1]
    assert len({receipt_id for page in pages_of_ids for receipt_id in page}) == 3


async def test_who_asks_for_a_session_leaves_a_receipt_and_who_looks_does_not(
    client: AsyncClient, started: Any, cast: Cast, make: Make
):
    session = await started(cast.alice)
    await make.observation(project=cast.alice.project, title="thing")

    async def ask(**params: str) -> dict[str, Any]:
        answer = await client.get("/v1/context", params={"project": "orders", **params}, headers=cast.alice.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    await ask()
    look = await ask(session=str(session), explain="true")
    assert await receipts(client, cast.alice, session) == []
    first, again = await ask(session=str(session)), await ask(session=str(session))

    assert [observation["number"] for observation in first["observations"]] == [1]
    assert again["context"] == ""
    assert [receipt["reason"] for receipt in await receipts(client, cast.alice, session)] == ["asked"]
    assert look["explained"]["lines"][0]["parts"] == {"recency": 0.5, "type": 0.1}
    assert look["explained"]["leftOutCounts"] == {}


async def test_an_explanation_says_what_was_left_out_and_the_audit_log_that_it_was_seen(
    client: AsyncClient, cast: Cast, make: Make, db: Db
):
    for title in ("The retry is capped", "the retry is capped!", "Another"):
        await make.observation(project=cast.alice.project, title=title)

    params = {"project": "orders", "explain": "true", "limit": "1", "changedFiles": "src/a.py,src/b.py", "source": "clear"}
    context = (await client.get("/v1/context", params=params, headers=cast.alice.headers)).json()

    assert [line["number"] for line in context["explained"]["lines"]] == [3]
    assert [(omitted["number"], omitted["leftOut"]) for omitted in context["explained"]["leftOut"]] == [(2, "limit"), (1, "limit")]
    async with db.system() as conn:
        cursor = await conn.execute("SELECT details ->> 'numbers' FROM audit_log WHERE action = 'observations.served' ORDER BY id")
        assert await cursor.fetchall() == [("[3]",), ("[2, 1]",)]


async def test_texts_tell_a_project_from_others_of_its_short_name_only_where_there_are_some(
    client: AsyncClient, started: Any, cast: Cast, make: Make
):
    async def ask(path: str, project: str) -> str:
        answer = await client.get(path, params={"project": project}, headers=cast.alice.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["context"]

    async def first_words(project: str) -> list[str]:
        index = await ask("/v1/context", project)
        handoff = (await client.post("/v1/handoff", json={"projectId": project}, headers=cast.alice.headers)).json()["context"]
        return re.findall(r"^(?:Memory|Hand-off) of [^,:]+", f"{index}\n{handoff}", re.MULTILINE)

    await make.observation(project=cast.alice.project, title="thing", type="decision")
    alone = await first_words("github.com/acme/orders")
    await started(cast.alice, "s-2", "github.com/globex/orders")

    assert alone == ["Memory of orders", "Hand-off of orders"]
    assert await first_words("github.com/acme/orders") == ["Memory of orders (acme)", "Hand-off of orders (acme)"]
    assert "Memory of orders (globex): nothing" in await ask("/v1/context", "github.com/globex/orders")


async def test_a_changed_file_with_a_longer_name_than_any_file_has_is_left_out_by_hooks_and_refused_by_the_api(
    client: AsyncClient, cast: Cast, make: Make
):
    await make.observation(project=cast.alice.project, title="thing", files_modified=["src/a.py"])
    longest = "src/" + "漢" * 20_500  # more than the stack of the database holds
    start = {"session_id": "s1", "hook_event_name": "SessionStart", "source": "startup"}
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    files = f"{longest}\tsrc/a.py".encode()

    hooked = await client.post("/v1/hooks/claude-code", json=start, headers={**encoded, b"X-Cmserver-Changed-Files": files})
    params = {"project": "orders", "changedFiles": f"src/a.py,{'a' * 4_097}"}
    asked = await client.get("/v1/context", params=params, headers=cast.alice.headers)

    assert hooked.status_code == 200
    assert "thing" in hooked.text
    assert asked.status_code == 400
    assert [issue["path"] for issue in asked.json()["issues"]] == ["$.changedFiles"]


async def test_context_stays_in_the_project_of_the_key(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project)
    headers = (await bound_to(db, cast.alice, "billing", scopes=["observations:read"])).headers

    own = await client.get("/v1/context", headers=headers)
    other = await client.get("/v1/context", params={"project": "orders"}, headers=headers)
    unnamed = await client.get("/v1/context", headers=cast.alice.headers)

    assert own.json()["observations"] == []
    assert "nothing has been recorded yet" in own.json()["context"]
    assert other.status_code == 404
    assert (unnamed.status_code, unnamed.json()["issues"][0]["path"]) == (400, "$.project")


async def test_a_session_and_its_receipts_are_nobody_elses(
    client: AsyncClient, tell: Any, started: Any, cast: Cast, make: Make, db: Db
):
    session = await started(cast.alice)
    await make.observation(project=cast.alice.project)
    await tell("startup", session)
    billing = await bound_to(db, cast.alice, "billing", scopes=["observations:read"])
    elsewhere = await started(cast.alice, "s-9", "github.com/acme/billing")

    for person, params in ((cast.charlie, {"project": "orders"}), (billing, {})):
        real = await client.get(f"/v1/sessions/{session}/context", headers=person.headers)
        made_up = await client.get(f"/v1/sessions/{new_id()}/context", headers=person.headers)
        shown = await client.get("/v1/context", params={**params, "session": str(session)}, headers=person.headers)
        assert (real.status_code, made_up.status_code, shown.status_code) == (404, 404, 404)
        assert real.json()["message"] == made_up.json()["message"] == shown.json()["message"]
    of_another_project = await client.get(
        "/v1/context", params={"project": "orders", "session": str(elsewhere)}, headers=cast.alice.headers
    )
    assert of_another_project.status_code == 404
    assert len(await receipts(client, cast.bob, session)) == 1


async def test_the_context_leaves_a_row_in_the_audit_log(client: AsyncClient, cast: Cast, make: Make, db: Db):
    await make.observation(project=cast.alice.project)

    await client.get("/v1/context", params={"project": "orders"}, headers=cast.bob.headers)

    async with db.system() as conn:
        cursor = await conn.execute("SELECT actor_id, project_id, details FROM audit_log WHERE action = 'observations.served'")
        assert await cursor.fetchall() == [("bob", cast.alice.project.id, {"via": "context", "numbers": [1]})]
