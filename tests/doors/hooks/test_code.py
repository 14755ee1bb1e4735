"""What a session is told of files that commits have removed since: from the hook's call to its answer."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from httpx import AsyncClient

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows
from tests.table import try_rows

PROJECT = {"X-Cmserver-Git-Remote": "https://github.com/acme/orders"}
HEAD, NEXT = "a" * 40, "b" * 40
FIRST = "0" * 40
TITLE = "Pay() in src/pay.py takes the lock first now"
COMMITTED = 1_767_225_600
EARLIER = datetime(2025, 12, 1, tzinfo=UTC)


def encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def removal(commit: str = NEXT, path: str = "src/pay.py", side: str = ">") -> dict[str, object]:
    log = f"{side}\0{commit}\0Ann\0{COMMITTED}\0\0\n:100644 000000 1 0 D\0{path}\0"
    return {"before": FIRST, "head": commit, "log": encode(log), "diff": encode(f"D\0{path}\0")}


@pytest.fixture
def tell(client: AsyncClient, cast: Cast):
    """Tells of a clone as Alice's hook client."""

    async def post(clone_id: object, **body: object) -> Any:
        headers = {**cast.alice.headers, **PROJECT}
        return await client.post("/v1/code", json={"cloneId": str(clone_id), **body}, headers=headers)

    return post


async def start(client: AsyncClient, cast: Cast, clone_id: object, session: str, head: str = NEXT) -> str:
    """The index that a session of that clone is told, in which this commit is checked out."""
    headers = {**cast.alice.headers, **PROJECT, "X-Cmserver-Clone": str(clone_id), "X-Cmserver-Git-Commit": head}
    payload = {"session_id": session, "cwd": "/home/ann/orders", "hook_event_name": "SessionStart", "source": "startup"}
    answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
    return answer.json()["hookSpecificOutput"]["additionalContext"]


async def test_a_line_whose_file_is_gone_says_so_in_that_clone_and_in_no_other(
    client: AsyncClient, cast: Cast, make: Make, tell: Any
):
    await make.observation(project=cast.alice.project, title=TITLE, created_at=EARLIER)
    await make.observation(
        project=cast.alice.project, title="The queue is fair", files_modified=["src/queue.py"], created_at=EARLIER
    )
    await make.observation(
        project=cast.alice.project,
        title="The lock is first",
        files_modified=["src/pay.py"],
        files_read=["src/pay.py"],
        created_at=EARLIER,
    )
    ours, theirs = uuid4(), uuid4()

    answer = await tell(ours, **removal())

    assert answer.json() == {"known": True, "head": NEXT}
    text = await start(client, cast, ours, "s1")
    assert "takes the lock first now (src/pay.py was removed in bbbbbbb, by Ann) ~" in text
    assert "The lock is first (src/pay.py was removed in bbbbbbb, by Ann) ~" in text
    assert text.count("(src/") == 2
    assert "was removed" not in await start(client, cast, theirs, "s2")
    assert "was removed" not in await start(client, cast, ours, "s3", HEAD)  # of which it could not tell yet


async def test_an_unknown_way_forgets_what_was_known_of_the_clone(client: AsyncClient, cast: Cast, make: Make, tell: Any):
    await make.observation(project=cast.alice.project, title=TITLE, created_at=EARLIER)
    clone = uuid4()
    await tell(clone, **removal())

    answer = await tell(clone, before=NEXT, head=HEAD)

    assert answer.json() == {"known": False, "head": HEAD}
    assert "was removed" not in await start(client, cast, clone, "s1", HEAD)


async def test_a_way_that_begins_elsewhere_changes_nothing_and_is_told_where_the_next_one_begins(
    client: AsyncClient, cast: Cast, make: Make, tell: Any
):
    """As after an answer that was lost."""
    await make.observation(project=cast.alice.project, title=TITLE, created_at=EARLIER)
    clone = uuid4()
    await tell(clone, **removal())

    elsewhere = [
        await tell(clone, before=FIRST, head=HEAD, branches={"unmerged": encode(UNMERGED)}, **way)
        for way in ({"log": "", "diff": ""}, {})
    ]
    there = await start(client, cast, clone, "s1")
    answer = await tell(clone, before=NEXT, head=HEAD, log="", diff="")

    assert [it.json() for it in elsewhere] == [{"known": False, "head": NEXT}] * 2
    assert "was removed in bbbbbbb" in there
    assert answer.json() == {"known": True, "head": HEAD}
    assert "was removed in bbbbbbb" in await start(client, cast, clone, "s2", HEAD)


async def test_a_clone_makes_no_project(client: AsyncClient, cast: Cast, db: Db):
    headers = {**cast.alice.headers, "X-Cmserver-Project": "acme/new", "X-Cmserver-Root": "/home/ann/new"}
    before = await rows(db, "SELECT id FROM projects")

    answer = await client.post("/v1/code", json={"cloneId": str(uuid4()), **removal()}, headers=headers)

    assert answer.status_code == 404
    assert await rows(db, "SELECT id FROM projects") == before


async def test_more_commits_than_are_followed_are_an_unknown_way(tell: Any):
    log = "".join(f">\0{number:040x}\0Ann\0{COMMITTED}\0\0" for number in range(1, 502))

    assert (await tell(uuid4(), before=FIRST, head=HEAD, log=encode(log), diff="")).json() == {"known": False, "head": HEAD}


async def test_the_same_way_told_twice_is_known_once(tell: Any, db: Db):
    clone = uuid4()
    answers = [await tell(clone, **removal()) for _ in range(2)]

    assert [answer.json() for answer in answers] == [{"known": True, "head": NEXT}] * 2
    (row,) = await rows(db, "SELECT head, changes FROM clones")
    assert row["head"] == NEXT
    assert [change[1] for change in row["changes"]["src/pay.py"]] == ["b" * 12]


async def test_a_purge_forgets_the_clones(client: AsyncClient, cast: Cast, tell: Any, db: Db):
    await tell(uuid4(), **removal())

    answer = await client.delete("/v1/projects/github.com%2Facme%2Forders/memory", headers=cast.alice.headers)

    assert answer.status_code == 200
    assert await rows(db, "SELECT * FROM clones") == []


async def test_a_secret_in_a_name_is_not_stored(tell: Any, db: Db):
    secret = "ghp_" + "a1B2c3D4" * 4 + "e5F6"

    await tell(uuid4(), **removal(path=f"keys/{secret}.txt"))

    assert secret not in str(await rows(db, "SELECT * FROM clones"))


@try_rows(
    ("body", "path"),
    [
        ({"head": "x"}, "$.head"),
        ({"head": HEAD, "before": "x"}, "$.before"),
        ({"head": HEAD, "log": "%%"}, "$.log"),
        ({"head": HEAD, "log": "abc", "diff": "abcd"}, "$.log"),
        ({"head": HEAD, "diff": "a" * 1_000_001}, "$.diff"),
        ({"head": HEAD, "cloneId": "1"}, "$.cloneId"),
        ({"head": HEAD, "more": 1}, "$.more"),
        ({"head": HEAD, "branches": {"unmerged": "%%"}}, "$.branches.unmerged"),
        ({"head": HEAD, "branches": {"others": "abc"}}, "$.branches.others"),
        ({"head": HEAD, "branches": {"gone": ""}}, "$.branches.gone"),
    ],
)
async def test_what_is_wrong_is_named_by_its_path_and_changes_nothing(tell: Any, db: Db, body: dict[str, object], path: str):
    given = {
        "before": FIRST,
        "clone_id": body.get("cloneId", uuid4()),
        **{name: value for name, value in body.items() if name != "cloneId"},
    }
    answer = await tell(given.pop("clone_id"), **given)

    assert answer.status_code == 400
    assert [issue["path"] for issue in answer.json()["issues"]] == [path]
    assert await rows(db, "SELECT * FROM clones") == []


async def test_an_event_knows_the_commit_at_which_it_stood(client: AsyncClient, cast: Cast, db: Db):
    payload = {"session_id": "s1", "cwd": "/home/ann/orders", "hook_event_name": "UserPromptSubmit", "prompt": "Why is it slow?"}
    for commit in (HEAD, "HEAD", "a" * 41):
        headers = {**cast.alice.headers, **PROJECT, "X-Cmserver-Git-Commit": commit, "X-Cmserver-Git-Branch": "main"}
        await client.post("/v1/hooks/claude-code", json={**payload, "prompt": commit}, headers=headers)

    stored = await rows(db, "SELECT metadata ->> 'git_commit' AS commit FROM agent_events ORDER BY received_at, id")
    assert [row["commit"] for row in stored] == [HEAD, None, None]


TIP, COPY = "c" * 40, "d" * 40
UNMERGED = (
    f"/{COPY} {COMMITTED} {HEAD}//refs/heads/backup\nsrc/new.py\n/{TIP} {COMMITTED} {HEAD}//refs/remotes/origin/retry\nsrc/pay.py\n"
)
LINE = "It retries 5 times now."


async def hear(
    client: AsyncClient, cast: Cast, event: str, branch: str, commit: str, *, session: str = "s1", at: str = "", **said: str
) -> None:
    """A hook's call from what was checked out then."""
    headers = {**cast.alice.headers, **PROJECT, "X-Cmserver-Git-Commit": commit, "X-Cmserver-Git-Branch": branch}
    headers |= {"X-Cmserver-Sent-At": at} if at else {}
    payload = {"session_id": session, "cwd": "/home/ann/orders", "hook_event_name": event, **said}
    answer = await client.post("/v1/hooks/claude-code", json=payload, headers=headers)
    assert answer.status_code == 200


Call = tuple[str, str, str]
TOLD: list[tuple[list[Call], str]] = [
    ([("UserPromptSubmit", "retry", HEAD), ("Stop", "retry", TIP)], " (on branch origin/retry)"),
    ([("UserPromptSubmit", "backup", COPY), ("Stop", "backup", COPY)], " (on branch backup)"),
    ([("UserPromptSubmit", "", HEAD), ("Stop", "", COPY)], " (on branch backup)"),
    ([("UserPromptSubmit", "feature", HEAD), ("Stop", "feature", COPY)], " (on branch backup)"),
    ([("UserPromptSubmit", "retry", TIP), ("Stop", "main", HEAD)], ""),
    ([("UserPromptSubmit", "main", HEAD), ("Stop", "retry", TIP)], ""),
    ([("UserPromptSubmit", "retry", TIP), ("PostToolUse", "main", HEAD), ("Stop", "retry", TIP)], ""),
    ([("UserPromptSubmit", "main", HEAD), ("Stop", "main", HEAD), ("UserPromptSubmit", "retry", TIP)], ""),
    ([("UserPromptSubmit", "main", HEAD), ("UserPromptSubmit", "retry", TIP), ("Stop", "retry", TIP)], ""),
    (
        [("UserPromptSubmit", "retry", HEAD), ("Stop", "retry", TIP), ("UserPromptSubmit", "main", HEAD)],
        " (on branch origin/retry)",
    ),
    ([("UserPromptSubmit", "retry", HEAD), ("Stop", "retry", TIP), ("SessionStart", "main", HEAD)], " (on branch origin/retry)"),
]


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(("calls", "mark"), TOLD)
async def test_a_turn_is_told_with_its_branch_where_all_of_it_was_on_one(
    client: AsyncClient, cast: Cast, tell: Any, calls: list[Call], mark: str, is_late: bool
):
    """Also where the server was away, and hears of all of it later."""
    for minute, (event, branch, commit) in enumerate(calls):
        said = {
            "UserPromptSubmit": {"prompt": f"Retry five times, please, number {minute}."},
            "Stop": {"last_assistant_message": LINE},
        }.get(event, {})
        if event == "PostToolUse":
            said = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": '{"command": "ls"}', "tool_response": "{}"}
        await hear(client, cast, event, branch, commit, at=f"2026-01-01T00:{minute:02}:00Z" if is_late else "", **said)
    ours = uuid4()
    await tell(ours, before=FIRST, head=HEAD, log="", diff="", branches={"unmerged": encode(UNMERGED)})

    text = await start(client, cast, ours, "s2", HEAD)

    line = next(line for line in text.splitlines() if "please, number 0." in line)
    assert line.count("(on branch") == bool(mark)
    assert mark in line


async def test_a_place_is_of_one_clone_and_is_told_at_a_start_alone_until_git_does_not_say_it_in_time(
    client: AsyncClient, cast: Cast, tell: Any
):
    for event, said in (("UserPromptSubmit", {"prompt": "Retry five times, please."}), ("Stop", {"last_assistant_message": LINE})):
        await hear(client, cast, event, "backup", COPY, **said)
    ours = uuid4()
    await tell(ours, before=FIRST, head=HEAD, log="", diff="", branches={"unmerged": encode(UNMERGED)})

    assert "(on branch backup)" in await start(client, cast, ours, "s2", HEAD)
    assert "on branch" not in await start(client, cast, uuid4(), "s3", HEAD)
    headers = {**cast.alice.headers, **PROJECT, "X-Cmserver-Clone": str(ours), "X-Cmserver-Git-Commit": HEAD}
    payload = {"session_id": "s4", "cwd": "/x", "hook_event_name": "UserPromptSubmit", "prompt": "How often does it retry now?"}
    assert "on branch" not in (await client.post("/v1/hooks/claude-code", json=payload, headers=headers)).text
    await tell(ours, before=HEAD, head=HEAD, log="", diff="")
    assert "on branch" not in await start(client, cast, ours, "s5", HEAD)


async def test_what_is_no_list_of_branches_marks_nothing(tell: Any, db: Db):
    for text in (
        "x",
        f"{HEAD}\n",
        f"/{HEAD} \n\xff {NEXT}",
        "\0" * 100,
        f"/{HEAD} 1 //refs/heads/x",
        f"/{HEAD} 1 //refs/tags/x\na",
    ):
        branches = {"unmerged": encode(text), "others": encode(text)}
        answer = await tell(uuid4(), before=FIRST, head=HEAD, log="", diff="", branches=branches)
        assert answer.status_code == 200
    assert {str(row["places"]) for row in await rows(db, "SELECT places FROM clones")} == {"{}"}
