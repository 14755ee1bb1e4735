"""The pages of observations: searched, chosen, read whole, corrected, merged, ended and undone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.observations.history.model import ACT_WORDS
from tests.conftest import Cast
from tests.doors.web.clicks import Element, parse
from tests.doors.web.visitor import Visitor, visit_as
from tests.make import Make
from tests.rows import rows
from tests.sessions.test_turns import hook
from tests.table import try_rows

LAID_DOWN = "Scrap that, spaces from now on."
HOSTILE = "<script>alert(1)</script> \u202egnp.exe " + "x" * 5_000


@pytest.fixture
async def alice(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "member")


@pytest.fixture
async def viewer(app: AsgiFrame, db: Db, cast: Cast) -> Visitor:
    return await visit_as(app, db, cast.alice.team_id, "viewer")


def links_of_section(page: httpx.Response, name: str) -> list[Element]:
    (section,) = [part for part in parse(page.text).find_all("section") if part.attributes.get("aria-labelledby") == name]
    return section.find_all("a")


def forms(page: httpx.Response) -> list[str]:
    """Where the forms of the page's own content go."""
    (main,) = parse(page.text).find_all("main")
    return [form.attributes["action"] for form in main.find_all("form") if form.attributes.get("method") == "post"]


async def test_an_empty_list_says_the_next_command(app: AsgiFrame, db: Db, cast: Cast, alice: Visitor):
    page = await alice.get("/ui/observations")

    assert page.status_code == 200
    assert "cmserver remember" in page.text


@try_rows(
    ("narrative", "times"),
    [(f'The user: "{LAID_DOWN}"', 1), (f'The user:  "{LAID_DOWN}"', 1), (f'The user: "{LAID_DOWN}" He said why.', 2), (None, 1)],
)
async def test_a_sentence_that_a_user_laid_down_stands_on_its_page_as_a_title_and_as_a_quotation(
    cast: Cast, make: Make, db: Db, alice: Visitor, narrative: str | None, times: int
):
    note = await make.observation(project=cast.alice.project, title=LAID_DOWN, narrative=narrative, type="decision")
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET quote = %s WHERE id = %s", [LAID_DOWN, note.id])

    page = parse((await alice.get(f"/ui/observations/{note.number}")).text)

    (article,) = [part for part in page.find_all("article") if part.attributes.get("aria-label") == "Text"]
    assert article.text.count(LAID_DOWN) == times


async def test_a_list_has_each_observation_and_its_filters_stand_in_the_address(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Chose Postgres for the queue", type="decision")
    await make.observation(project=cast.alice.project, title="Renamed a variable")

    everything = await alice.get("/ui/observations")
    decisions = await alice.get("/ui/observations?type=decision")

    assert "Chose Postgres" in everything.text
    assert "Renamed a variable" in everything.text
    assert "Chose Postgres" in decisions.text
    assert "Renamed a variable" not in decisions.text
    assert '<option value="decision" selected>' in decisions.text


async def test_a_sub_agent_s_turn_is_marked(client: httpx.AsyncClient, cast: Cast, alice: Visitor):
    await hook(client, cast, "UserPromptSubmit", prompt="Why?")
    await hook(client, cast, "SubagentStop", agent_id="a1", agent_type="Explore", last_assistant_message="The wombat is slow.")

    page = await alice.get("/ui/observations?q=wombat")

    assert "turn of sub-agent a1" in page.text


async def test_who_said_it_stands_in_the_list_and_on_the_page_of_the_session(client: httpx.AsyncClient, cast: Cast, alice: Visitor):
    await hook(client, cast, "UserPromptSubmit", prompt="Why is the wombat slow?")
    await hook(client, cast, "Stop", last_assistant_message="It sleeps.")

    found = parse((await alice.get("/ui/observations?q=wombat")).text)
    (link,) = [a for a in found.find_all("a") if "wombat" in a.text]
    session = parse((await alice.get(link.attributes["href"])).text)
    listed = parse((await alice.get("/ui/sessions")).text)

    said_by = cast.alice.principal.actor_id
    assert said_by in [span.text for span in found.find_all("span")]
    assert said_by in [fact.text for fact in session.find_all("dd")]
    assert said_by in [cell.text for cell in listed.find_all("td")]


async def test_the_number_of_a_turn_leads_to_its_session(app: AsgiFrame, db: Db, cast: Cast, make: Make, alice: Visitor):
    turn = await make.turn(project=cast.alice.project)
    stranger = await visit_as(app, db, cast.charlie.team_id, "member")

    found = await alice.get(f"/ui/observations/{turn.number}")

    assert (found.status_code, found.url.path) == (200, f"/ui/sessions/{turn.server_session_id}")
    assert (await stranger.get(f"/ui/observations/{turn.number}")).status_code == 404


async def test_a_long_list_has_a_next_page(cast: Cast, make: Make, alice: Visitor):
    for number in range(51):
        await make.observation(project=cast.alice.project, title=f"Observation number {number}.")

    first = await alice.get("/ui/observations")
    (link,) = [link for link in parse(first.text).find_all("a") if link.attributes.get("rel") == "next"]
    second = await alice.get(link.attributes["href"])

    assert "Observation number 0." not in first.text
    assert "Observation number 0." in second.text
    assert len(first.content) < 100_000


async def test_words_find_it_and_the_score_is_explained_on_demand(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Chose Postgres for the queue", narrative="Kafka was too much.")

    found = await alice.get("/ui/observations?q=kafka")
    explained = await alice.get("/ui/observations?q=kafka&explain=true")
    nothing = await alice.get("/ui/observations?q=wombat")

    assert "Chose Postgres" in found.text
    assert "<dt>match</dt>" not in found.text
    assert "<dt>match</dt>" in explained.text
    assert "Nothing fits" in nothing.text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=retry&concept=queues", True),
        ("q=retry&concept=other", False),
        ("q=retry&file=src/a.py", True),
        ("q=retry&file_prefix=lib/", False),
        ("q=retry&since=2020-01-01", True),
        ("q=retry&until=2020-01-01", False),
        ("q=retry&kind=summary", False),
        ("q=retry&type=change", True),
        ("q=retry&min_score=0.999", False),
        ("q=retry&meaning=0", True),
        ("scope=team", False),
        ("kind=observation", True),
    ],
)
async def test_every_filter_of_the_api_is_in_the_address(cast: Cast, make: Make, alice: Visitor, query: str, found: bool):
    await make.observation(project=cast.alice.project, concepts=["queues"], files_modified=["src/a.py"])

    page = await alice.get(f"/ui/observations?{query}")

    assert page.status_code == 200
    assert ('href="/ui/observations/1"' in page.text) == found


@try_rows("query", ["type=nonsense", "kind=nonsense", "q=x&since=yesterday", "cursor=wrong", "session=7"])
async def test_a_wrong_filter_is_refused_with_a_sentence(alice: Visitor, query: str):
    page = await alice.get(f"/ui/observations?{query}")

    assert page.status_code == 400
    assert alice.title(page) == "Not valid"


@try_rows(
    ("query", "shown"),
    [
        ("", ["Deploy on Fridays"]),
        ("view=known", ["Deploy on Fridays"]),
        ("as_of={then}", ["Deploy on Mondays"]),
        ("as_of={then}&view=known", []),
        ("q=deploy&as_of={then}", ["Deploy on Mondays"]),
        ("q=deploy&as_of={then}&view=known", []),
        ("as_of={then}%2B00:00", ["Deploy on Mondays"]),
        ("as_of={then}%2B00:00&view=known", []),
    ],
)
async def test_a_time_of_before_shows_what_was_true_then_or_what_the_server_knew(
    db: Db, cast: Cast, make: Make, alice: Visitor, query: str, shown: list[str]
):
    note = await make.observation(project=cast.alice.project, title="Deploy on Mondays", narrative="")
    async with db.system() as conn:  # said before it was recorded
        await conn.execute("UPDATE observations SET created_at = now() - interval '3 hours' WHERE id = %s", [note.id])
    await alice.post(f"/ui/observations/{note.number}/edit", version="1", type="change", title="Deploy on Fridays")
    then = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M}"

    page = await alice.get(f"/ui/observations?{query.format(then=then)}")

    titles = [a.text.partition(" ")[2] for a in parse(page.text).find_all("a") if a.text.startswith(f"#{note.number} ")]
    assert titles == shown


async def test_a_filter_that_needs_words_says_so(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    page = await alice.get("/ui/observations?concept=queues")

    assert "need words to search for: concept" in page.text


async def test_hostile_text_stays_text(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title=HOSTILE[:200], narrative=HOSTILE, facts=[HOSTILE], concepts=[HOSTILE])

    for path in ("/ui/observations", "/ui/observations?q=alert&explain=true", "/ui/observations/1", "/ui/observations/1/edit"):
        page = await alice.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text


async def test_one_shows_its_text_its_project_and_where_it_came_from(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    event = {
        "projectId": str(cast.alice.project.id),
        "eventType": "tool_use",
        "sourceType": "api",
        "payload": {"tool_name": "Edit"},
    }
    recorded = await client.post("/v1/events?generate=false", json=event, headers=cast.alice.headers)
    event_id = recorded.json()["event"]["id"]
    await make.observation(
        project=cast.alice.project, narrative="The client gave up too early.", facts=["3 tries"], from_event=event_id
    )

    page = await alice.get("/ui/observations/1")

    for shown in ("The client gave up too early.", "3 tries", f"/ui/projects/{cast.alice.project.id}"):
        assert shown in page.text
    assert [(link.text, link.attributes["href"]) for link in links_of_section(page, "sources")] == [
        ("the call of Edit", f"/ui/events/{event_id}")
    ]


async def test_where_it_came_from_names_the_session_first_and_each_event_by_what_it_is(
    client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await hook(client, cast, "UserPromptSubmit", prompt="Why is the wombat slow?")
    await hook(client, cast, "Stop", last_assistant_message="It sleeps.")
    sent = (await client.get("/v1/events", headers=cast.alice.headers)).json()["events"]
    session = UUID(sent[0]["serverSessionId"])
    for event in sent:
        await make.observation(project=cast.alice.project, from_event=UUID(event["id"]), server_session_id=session)

    named = [[link.text for link in links_of_section(await alice.get(f"/ui/observations/{n}"), "sources")] for n in (2, 3)]

    assert [first for first, _ in named] == ["Why is the wombat slow?"] * 2
    assert {event for _, event in named} == {"the prompt", "the reply"}


@pytest.mark.parametrize(("by", "said"), [("hand", "#1 was forgotten by"), ("time", "#1 has expired.")])
async def test_what_is_not_shown_any_more_says_why(cast: Cast, make: Make, db: Db, alice: Visitor, by: str, said: str):
    await make.observation(project=cast.alice.project, title="The limit is 10")
    notice = await alice.post("/ui/observations/1/expire", back="/ui/observations")
    if by == "time":
        await alice.post("/ui/observations/1/undo")
        async with db.system() as conn:
            await conn.execute("UPDATE observations SET expires_at = now(), ttl_seconds = 60")

    gone = await alice.get("/ui/observations/1")
    (row,) = parse((await alice.get("/ui/observations?state=expired")).text).find_all("td")

    assert "Until then it stands in Observations under State \u201cforgotten\u201d." in notice.text
    assert said in gone.text
    assert ("forgotten" in row.text, "ended" in row.text) == (by == "hand", by == "time")


async def test_the_last_change_is_undone_beside_its_version(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="The limit is 10")
    await alice.post("/ui/observations/1/done")
    page = await alice.post("/ui/observations/1/drop")

    cards = [div for div in parse(page.text).find_all("div") if div.attributes.get("class") == "card"]
    undo = [[form.attributes["action"] for form in card.find_all("form")] for card in cards]

    assert undo == [["/ui/observations/1/undo"], []]


async def test_a_correction_is_kept_as_a_version_and_can_be_undone(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="The limit is 10", narrative="It was measured.")

    corrected = await alice.post(
        "/ui/observations/1/edit",
        version=1,
        type="discovery",
        title="The limit is 20",
        narrative="It was measured.",
        importance=0.5,
    )
    undone = await alice.post("/ui/observations/1/undo")

    assert alice.title(corrected) == "The limit is 20"
    assert "<del>10</del>" in corrected.text
    assert "<ins>20</ins>" in corrected.text
    assert alice.title(undone) == "The limit is 10"
    assert "Undone: #1 was edited." in undone.text


@pytest.mark.parametrize("later", ["drop", "expire"])
async def test_an_undo_of_a_change_undoes_no_later_one(later: str, cast: Cast, make: Make, alice: Visitor, app: AsgiFrame, db: Db):
    await make.observation(project=cast.alice.project, title="The limit is 10", narrative="x")
    bob = await visit_as(app, db, cast.alice.team_id, "member")
    corrected = await alice.post(
        "/ui/observations/1/edit", version=1, type="discovery", title="The limit is 20", narrative="x", importance=0.5
    )
    offer = re.search(r'action="/ui/observations/1/undo".*?name="version" value="(\d+)"', corrected.text, re.DOTALL)
    assert offer is not None
    await bob.post(f"/ui/observations/1/{later}")
    before = await rows(db, "SELECT * FROM observations")

    refused = await alice.post("/ui/observations/1/undo", version=offer[1])

    assert refused.status_code in {409, 410}
    assert "Nothing was undone" in refused.text
    assert await rows(db, "SELECT * FROM observations") == before


async def test_an_undo_takes_back_the_forgetting_that_it_stands_beside(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    forgotten = await alice.post("/ui/observations/1/expire", back="/ui/observations")
    assert 'name="expired" value="true"' in forgotten.text
    back = await alice.post("/ui/observations/1/undo", version=1, expired="true")

    assert "#1 is brought back." in back.text


async def test_only_what_changed_is_sent(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Same", narrative="Two\nlines", facts=["a", "b"])

    page = await alice.post(
        "/ui/observations/1/edit", version=1, type="change", title="Same", narrative="Two\r\nlines", facts="a\r\nb", importance=0.5
    )

    assert "Nothing was changed." in page.text
    assert "It was never changed." in page.text


async def test_the_form_has_the_real_text_so_that_no_mark_of_a_hidden_character_is_stored(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Same", narrative="zero\u200bwidth", facts=["x\u202ey"])

    form = await alice.get("/ui/observations/1/edit")
    page = await alice.post(
        "/ui/observations/1/edit",
        version=1,
        type="change",
        title="Same",
        narrative="zero\u200bwidth",
        facts="x\u202ey",
        importance=0.5,
    )

    assert "\u27e8U+" not in form.text
    assert "zero\u200bwidth</textarea>" in form.text
    assert "x\u202ey</textarea>" in form.text
    assert "Nothing was changed." in page.text


async def test_a_form_from_before_another_correction_is_refused_and_keeps_what_was_typed(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)
    await alice.post("/ui/observations/1/edit", version=1, type="change", title="First", importance=0.5)

    page = await alice.post("/ui/observations/1/edit", version=1, type="change", title="Second", importance=0.5)

    assert page.status_code == 409
    assert 'value="Second"' in page.text


async def test_a_wrong_field_of_a_correction_is_named(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    page = await alice.post("/ui/observations/1/edit", version=1, type="change", title="x", importance=7)

    assert page.status_code == 400
    assert 'id="importance-problem"' in page.text


async def test_what_is_expired_can_be_brought_back(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    await alice.post("/ui/observations/1/expire")
    gone = await alice.get("/ui/observations/1")
    listed = await alice.get("/ui/observations")
    back = await alice.post("/ui/observations/1/undo")

    assert gone.status_code == 410
    assert "Bring it back" in gone.text
    assert 'href="/ui/observations/1"' not in listed.text
    assert back.status_code == 200
    assert "#1 is brought back." in back.text


async def test_the_list_of_what_is_forgotten_brings_each_back(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Kept")
    await make.observation(project=cast.alice.project, title="Thrown away")

    said = await alice.post("/ui/observations/chosen/expire", number=2)
    listed = await alice.get("/ui/observations?state=expired")
    buttons = [button for button in parse(listed.text).find_all("button") if button.attributes.get("form") == "acts"]
    back = await alice.post(buttons[0].attributes["formaction"], back="/ui/observations?state=expired")

    assert "For a week they stand in Observations under State \u201cforgotten\u201d" in said.text
    assert ("Thrown away" in listed.text, "Kept" in listed.text) == (True, False)
    assert [button.text for button in buttons] == ["Bring it back"]
    assert 'name="number"' not in listed.text
    assert "#2 is brought back." in back.text
    assert "Thrown away" not in back.text


async def test_what_was_forgotten_on_its_own_page_has_one_way_back(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    page = await alice.post("/ui/observations/1/expire", back="/ui/observations/1")

    assert "#1 is forgotten" in page.text
    assert forms(page) == ["/ui/observations/1/undo"]


@try_rows(
    ("acts", "told"),
    [
        (["done"], ["marked done"]),
        (["drop"], ["marked as no longer holding"]),
        (["drop", "hold"], ["marked as holding again", "marked as no longer holding"]),
        (["done", "reopen"], ["opened again", "marked done"]),
        (["top"], ["made a rule"]),
        (["edit"], ["edited"]),
        (["expire", "undo"], ["brought back"]),
        (["done", "undo"], ["marked done", "marked done"]),
        (
            ["drop", "top", "undo", "undo"],
            ["made a rule", "made a rule", "marked as no longer holding", "marked as no longer holding"],
        ),
    ],
)
async def test_the_history_says_each_act_in_its_own_words_and_what_was_undone(
    db: Db, cast: Cast, make: Make, alice: Visitor, acts: list[str], told: list[str]
):
    note = await make.observation(project=cast.alice.project, title="The limit is 10", narrative="x")
    path = f"/ui/observations/{note.number}"

    pages = [await alice.post(f"{path}/{act}", version="1" if act == "edit" else "", type="change", title="20") for act in acts]

    (history,) = [
        section
        for section in parse((await alice.get(path)).text).find_all("section")
        if section.attributes.get("aria-labelledby") == "history"
    ]
    words = "|".join(sorted(ACT_WORDS.values(), key=len, reverse=True))
    assert re.findall(words, history.text) == told
    if acts[-1] == "undo" and "expire" not in acts:
        assert f"Undone: #{note.number} was {told[-1]}." in pages[-1].text


async def test_what_is_forgotten_is_gone(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    page = await alice.post("/ui/observations/1/forget")

    assert "#1 is deleted for ever." in page.text
    assert (await alice.get("/ui/observations/1")).status_code == 404


async def test_two_are_merged_and_the_merge_is_undone(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Retries three times")
    await make.observation(project=cast.alice.project, title="Backs off for a second")

    merged = await alice.post("/ui/observations/1/merge", sources="#2")
    gone = await alice.get("/ui/observations/2")
    undone = await alice.post("/ui/observations/1/undo")

    assert "Merged #2 into this one." in merged.text
    assert (gone.status_code, 'href="/ui/observations/1"' in gone.text) == (410, True)
    assert "Shown again: #2." in undone.text


async def test_a_merge_of_nothing_says_why(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    page = await alice.post("/ui/observations/1/merge", sources="99")

    assert page.status_code == 409
    assert "99 is not there" in page.text


async def test_two_are_related_and_separated(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="The cause")
    await make.observation(project=cast.alice.project, title="The effect")

    related = await alice.post("/ui/observations/1/relations", to="2", relationship="CAUSES", context="seen in the log")
    (path,) = [path for path in forms(related) if path.endswith("/delete")]
    separated = await alice.post(path)

    assert "The effect" in related.text
    assert "causes <a href=" in related.text
    assert "It is related to nothing." in separated.text


async def test_several_are_acted_on_at_once_after_their_count(cast: Cast, make: Make, alice: Visitor):
    for title in ("One", "Two", "Three"):
        await make.observation(project=cast.alice.project, title=title)

    chosen = await alice.get("/ui/observations/chosen?number=1&number=2")
    unconfirmed = await alice.client.post(
        "/ui/observations/chosen/forget",
        data={"token": await alice.token(), "number": ["1", "2"], "confirm": "no"},
        headers={"Origin": "http://cmserver"},
    )
    forgotten = await alice.client.post(
        "/ui/observations/chosen/forget",
        data={"token": await alice.token(), "number": ["1", "2"], "confirm": "delete 2"},
        headers={"Origin": "http://cmserver"},
        follow_redirects=True,
    )

    assert alice.title(chosen) == "2 chosen observations"
    assert (unconfirmed.status_code, "2 chosen observations" in unconfirmed.text) == (400, True)
    assert "Deleted for ever: 2 (#1, #2)." in forgotten.text
    assert "Three" in forgotten.text


async def test_an_act_on_several_happens_to_all_or_to_none(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project)

    refused = await alice.client.post(
        "/ui/observations/chosen/expire",
        data={"token": await alice.token(), "number": ["1", "99"]},
        headers={"Origin": "http://cmserver"},
    )

    assert refused.status_code == 404
    assert (await alice.get("/ui/observations/1")).status_code == 200


async def test_none_chosen_says_what_to_do(alice: Visitor):
    page = await alice.get("/ui/observations/chosen")

    assert "None is chosen" in page.text


async def test_a_viewer_sees_all_and_no_form_that_he_cannot_send(cast: Cast, make: Make, viewer: Visitor):
    await make.observation(project=cast.alice.project)

    listed, shown = await viewer.get("/ui/observations"), await viewer.get("/ui/observations/1")

    assert (forms(listed), forms(shown)) == ([], [])
    assert 'type="checkbox" name="number"' not in listed.text
    assert "/edit" not in shown.text


async def test_the_owner_sees_who_read_it_and_a_member_is_told_where_it_stands(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, make: Make, alice: Visitor
):
    await make.observation(project=cast.alice.project)
    await client.get("/v1/observations/1", headers=cast.bob.headers)
    owner = await visit_as(app, db, cast.alice.team_id, "owner")

    for_owner, for_member = await owner.get("/ui/observations/1"), await alice.get("/ui/observations/1")

    assert "<td>bob</td>" in for_owner.text
    assert "<td>bob</td>" not in for_member.text
    assert "owners of the team can read" in for_member.text


async def test_a_title_shows_code_and_hostile_text_stays_text(cast: Cast, make: Make, alice: Visitor):
    await make.observation(project=cast.alice.project, title="Set `max_retries=<b>3</b>` `x")

    listed = await alice.get("/ui/observations")
    whole = await alice.get("/ui/observations/1")

    shown = "Set <code>max_retries=&lt;b&gt;3&lt;/b&gt;</code> `x"
    assert f">#1 {shown}</a>" in listed.text
    assert f"<h1>{shown}</h1>" in whole.text
