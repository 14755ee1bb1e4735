"""The live stream: who hears what, in which order, and how somebody who comes back misses nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import httpx
import psycopg
import pytest

from cmserver.access import announce, audit
from cmserver.access.projects import make_project
from cmserver.app import create_app
from cmserver.base.db import Db
from cmserver.base.errors import RateLimited, Unavailable
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.job_notifier import CHANNELS, JobNotifier
from cmserver.ops.stream import feed as feeds
from cmserver.ops.stream import reader as readers
from cmserver.ops.stream import repository
from cmserver.ops.stream.feed import Feed
from cmserver.ops.stream.model import NAMES, Looks, Position, StreamEvent
from cmserver.ops.stream.reader import Reader
from cmserver.ops.stream.wire import StreamCursors
from tests.conftest import Cast, Person, mint
from tests.generation.tools import Outbox, Scripted
from tests.make import Make
from tests.ops.streams import Browser, Heard, Listener
from tests.timeouts import ENOUGH_SECONDS


@pytest.fixture
async def live_hub(hub: NotificationListener) -> AsyncGenerator[NotificationListener]:
    listening = asyncio.create_task(hub.listen([*CHANNELS, announce.CHANNEL, announce.NEWS]))
    await asyncio.wait_for(hub.listening.wait(), ENOUGH_SECONDS)
    yield hub
    listening.cancel()


@pytest.fixture
async def feed(db: Db, live_hub: NotificationListener) -> AsyncGenerator[Feed]:
    opened = Feed(db, live_hub, secret=b"s" * 32, heartbeat_seconds=60, streams_per_key=5)
    yield opened
    opened.close()


async def say(db: Db, person: Person, action: str, subject: UUID | None = None, **details: object) -> UUID:
    """An act in the person's project, committed, with the bell rung; what it was done to."""
    subject = subject or new_id()
    async with db.tenant(person.team_id) as conn:
        await audit.record(
            conn, person.principal, action, action.partition(".")[0], subject, project_id=person.project.id, **details
        )
        await announce.notify_stream(conn)
    return subject


@asynccontextmanager
async def open_transaction(db: Db, person: Person) -> AsyncGenerator[tuple[psycopg.AsyncConnection, UUID]]:
    """A connection on which a session has been started and nothing is committed yet."""
    subject = new_id()
    async with await psycopg.AsyncConnection.connect(db.url) as conn:
        await audit.record(conn, person.principal, "session.started", "session", subject, project_id=person.project.id)
        yield conn, subject


async def step(outbox: Outbox, session: str) -> UUID:
    """A job is queued: a row in the other log. Its id."""
    recorded = (await outbox.put(1, session=session))[0]
    assert recorded.job is not None
    return recorded.job.id


def place(event: Heard) -> Position | None:
    """Where in the logs its id stands."""
    return StreamCursors(b"s" * 32).read(event.id)


def list_names_and_subjects(events: list[Heard]) -> list[tuple[str, str]]:
    return [(event.name, event.subject) for event in events]


# -- who hears what


async def test_what_is_made_of_an_event_is_told_to_the_team_and_to_nobody_else(
    db: Db, feed: Feed, notifier: JobNotifier, cast: Cast
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    async with Listener(feed, cast.bob.principal) as bob, Listener(feed, cast.charlie.principal) as charlie:
        job = await step(outbox, "s1")
        await (await outbox.hand(Scripted())).work()
        events = await bob.until("job.updated", job)
        while events[-1].data["status"] != "completed":
            events += await bob.until("job.updated", job)
        charlies = await say(db, cast.charlie, "session.started")

        row = (await outbox.rows("SELECT id, number, server_session_id FROM observations"))[0]
        created = next(event for event in events if event.name == "observation.created")
        assert created.data == {
            "id": str(row["id"]),
            "number": row["number"],
            "projectId": str(cast.alice.project.id),
            "serverSessionId": str(row["server_session_id"]),
            "kind": "change",
            "observationKind": "observation",
            "type": "change",
            "title": "saw e1",
            "createdAtEpoch": created.data["createdAtEpoch"],
        }
        job_steps = [event.data for event in events if event.name == "job.updated"]
        assert [(step["eventType"], step["attempt"]) for step in job_steps] == [("queued", 0), ("processing", 1), ("completed", 1)]
        assert events[-1].name == "job.updated", "what a job has made is told before its end"
        assert list_names_and_subjects([await charlie.next()]) == [("session.updated", str(charlies))]


async def test_a_reader_of_one_project_hears_nothing_of_the_others(db: Db, feed: Feed, cast: Cast):
    async with db.tenant(cast.alice.team_id) as conn:
        other, _ = await make_project(conn, cast.alice.principal, "github.com/acme/other")
    bound, _ = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=other.id)
    elsewhere = Person(principal=cast.alice.principal, key="", project=other)
    async with Listener(feed, bound) as by_key, Listener(feed, cast.bob.principal, project=other) as by_choice:
        await say(db, cast.alice, "session.started")
        theirs = await say(db, elsewhere, "session.started")

        assert (await by_key.next()).subject == str(theirs)
        assert (await by_choice.next()).subject == str(theirs)


async def test_a_reader_who_comes_back_to_one_project_is_told_nothing_of_the_others(db: Db, feed: Feed, cast: Cast):
    async with db.tenant(cast.alice.team_id) as conn:
        other, _ = await make_project(conn, cast.alice.principal, "github.com/acme/other")
    bound, _ = await mint(db, cast.alice.team_id, "bound", scopes=["*"], project_id=other.id)
    async with Listener(feed, bound) as before:
        await before.next_block()
    await say(db, cast.alice, "session.started")
    await say(db, cast.charlie, "session.started")
    theirs = await say(db, Person(principal=cast.alice.principal, key="", project=other), "session.started")

    async with Listener(feed, bound, last_event_id=before.last_id) as after:
        assert (await after.next()).subject == str(theirs)


async def test_only_the_kinds_that_were_asked_for_are_told(db: Db, feed: Feed, cast: Cast, make: Make):
    made = await make.observation(project=cast.alice.project, title="by hand", kind="manual")
    async with Listener(feed, cast.alice.principal, names=("observation.created", "observation.deleted")) as some:
        await say(db, cast.alice, "session.started")
        await say(db, cast.alice, "observations.created", observations=[str(made.id)])
        await say(db, cast.alice, "observation.corrected", made.id)
        await say(db, cast.alice, "observation.deleted", made.id)

        created, deleted = await some.next(), await some.next()
        assert (created.name, created.data["title"], created.data["kind"]) == ("observation.created", "by hand", "manual")
        assert (deleted.name, deleted.data) == (
            "observation.deleted",
            {"id": str(made.id), "projectId": str(cast.alice.project.id)},
        )


async def test_of_an_observation_that_is_gone_only_its_end_is_told(db: Db, feed: Feed, cast: Cast):
    async with Listener(feed, cast.alice.principal) as alice:
        gone = new_id()
        await say(db, cast.alice, "observations.created", observations=[str(gone)])
        await say(db, cast.alice, "observation.deleted", gone)

        assert list_names_and_subjects([await alice.next()]) == [("observation.deleted", str(gone))]


# -- coming back


async def test_one_who_comes_back_hears_what_he_missed_and_then_what_is_live_each_once(
    db: Db, feed: Feed, notifier: JobNotifier, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "_REPLAY_PAGE", 2)
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    async with Listener(feed, cast.alice.principal) as before:
        first = await say(db, cast.alice, "session.started")
        assert (await before.next()).subject == str(first)
    missed = [await say(db, cast.alice, "session.started") for _ in range(5)]
    jobs = [await step(outbox, f"s{place}") for place in range(3)]

    async with Listener(feed, cast.alice.principal, last_event_id=before.last_id) as after:
        last = await say(db, cast.alice, "session.ended", missed[-1])
        events = await after.until("session.updated", last)
        while events[-1].data["action"] != "ended":
            events += await after.until("session.updated", last)
        job_steps = [event.subject for event in events if event.name == "job.updated"]
        sessions = [(event.subject, event.data["action"]) for event in events if event.name == "session.updated"]

    ours = [session for session in sessions if session[0] in {str(id_) for id_ in missed}]
    assert ours == [*((str(session), "started") for session in missed), (str(last), "ended")]
    assert job_steps == [str(job) for job in jobs]


async def test_one_who_heard_nothing_can_come_back_too(db: Db, feed: Feed, cast: Cast):
    async with Listener(feed, cast.alice.principal) as before:
        await before.next_block()
    missed = await say(db, cast.alice, "session.started")

    async with Listener(feed, cast.alice.principal, last_event_id=before.last_id) as after:
        assert (await after.next()).subject == str(missed)


async def test_while_nothing_happens_to_him_the_heartbeat_moves_his_id(db: Db, live_hub: NotificationListener, cast: Cast):
    feed = Feed(db, live_hub, secret=b"s" * 32, heartbeat_seconds=0.05, streams_per_key=5)
    async with Listener(feed, cast.charlie.principal) as charlie, Listener(feed, cast.alice.principal) as alice:
        began = place(await charlie.next_block())
        await say(db, cast.alice, "session.started")
        await alice.next()
        while place(await charlie.next_block()) == began:
            pass
    feed.max_resume_rows = 0

    async with Listener(feed, cast.charlie.principal, last_event_id=charlie.last_id) as after:
        assert place(await after.next_block()) == StreamCursors(b"s" * 32).read(charlie.last_id)
        assert (await after.next_block()).name != "reset"
    feed.close()


async def test_a_heartbeat_after_what_he_missed_does_not_lead_him_back_to_it(db: Db, live_hub: NotificationListener, cast: Cast):
    feed = Feed(db, live_hub, secret=b"s" * 32, heartbeat_seconds=0.05, streams_per_key=5)
    async with Listener(feed, cast.alice.principal) as first:
        await first.next_block()
    missed = await say(db, cast.alice, "session.started")
    async with Listener(feed, cast.alice.principal, last_event_id=first.last_id) as second:
        assert (await second.next()).subject == str(missed)
        assert (await second.next_block()).name == ""

    async with Listener(feed, cast.alice.principal, last_event_id=second.last_id) as third:
        last = await say(db, cast.alice, "session.ended")
        assert (await third.next()).subject == str(last)
    feed.close()


async def test_in_the_middle_of_what_one_act_names_he_is_told_the_rest(db: Db, feed: Feed, cast: Cast, make: Make):
    made = [await make.observation(project=cast.alice.project, title=f"of three: {place}") for place in range(3)]
    async with Listener(feed, cast.alice.principal) as before:
        await say(db, cast.alice, "observations.generated", observations=[str(event.id) for event in made])
        first = await before.next()

    async with Listener(feed, cast.alice.principal, last_event_id=first.id) as after:
        last = await say(db, cast.alice, "session.started")
        rest = await after.until("session.updated", last)

    assert first.subject == str(made[0].id)
    assert [event.subject for event in rest] == [str(made[1].id), str(made[2].id), str(last)]


@pytest.mark.parametrize(
    "last_event_id",
    [
        "12.345",
        "nonsense?",
        "QUJD",
        pytest.param(StreamCursors(b"x").write(Position(audit=1, jobs=1)), id="of another installation"),
    ],
)
async def test_one_whose_place_is_unknown_is_told_to_begin_anew_and_hears_what_is_live(
    db: Db, feed: Feed, cast: Cast, last_event_id: str
):
    await say(db, cast.alice, "session.started")
    async with Listener(feed, cast.alice.principal, last_event_id=last_event_id) as alice:
        reset = await alice.next()
        live = await say(db, cast.alice, "session.started")

        assert reset.name == "reset"
        assert (await alice.next()).subject == str(live)


async def test_one_who_missed_too_much_is_told_to_begin_anew(db: Db, feed: Feed, cast: Cast):
    feed.max_resume_rows = 3
    async with Listener(feed, cast.alice.principal) as before:
        await before.next_block()
    for _ in range(4):
        await say(db, cast.alice, "session.started")
        await say(db, cast.charlie, "session.started")

    async with Listener(feed, cast.alice.principal, last_event_id=before.last_id) as after:
        assert (await after.next()).name == "reset"

    feed.max_resume_rows = 4
    async with Listener(feed, cast.alice.principal, last_event_id=before.last_id) as after:
        assert (await after.next()).name == "session.updated"


async def test_one_who_comes_from_another_life_of_the_database_begins_anew(feed: Feed, cast: Cast):
    ahead = StreamCursors(b"s" * 32).write(Position(audit=10**9, jobs=0))

    async with Listener(feed, cast.alice.principal, last_event_id=ahead) as alice:
        assert (await alice.next()).name == "reset"


async def test_when_rows_are_gone_that_he_has_heard_his_stream_ends_and_he_begins_anew(
    db: Db, feed: Feed, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    """As when an asynchronous standby becomes the primary, and lacks the last rows."""
    is_away = asyncio.Event()

    async def fail(*_: object) -> Looks:
        is_away.set()
        raise Unavailable("The primary is gone.")

    async with Listener(feed, cast.alice.principal) as before:
        await say(db, cast.alice, "session.started")
        await before.next()
        with monkeypatch.context() as patched:
            patched.setattr(repository, "look", fail)
            async with db.system() as conn:
                await conn.execute("DELETE FROM audit_log WHERE id = (SELECT max(id) FROM audit_log)")
            await asyncio.wait_for(is_away.wait(), ENOUGH_SECONDS)
        await before.end()

    async with Listener(feed, cast.alice.principal, last_event_id=before.last_id) as after:
        assert (await after.next()).name == "reset"
        live = await say(db, cast.alice, "session.started")
        assert (await after.next()).subject == str(live)


async def test_what_another_process_has_told_him_already_is_not_told_again():
    """The processes look at different moments: who changes from one to another may be ahead of it."""
    start, since = Position(audit=10, jobs=20), Position(audit=12, jobs=22, part=1)
    reader = Reader(new_id(), new_id(), new_id(), None, None, frozenset(NAMES), start, since)

    for act, job, part, is_step in [
        (11, 20, 0, False),
        (11, 21, 0, True),
        (12, 21, 0, False),
        (12, 21, 1, False),
        (12, 22, 1, True),
        (12, 22, 2, False),
        (12, 23, 2, True),
        (13, 23, 0, False),
    ]:
        after = Position(audit=act, jobs=job, part=part)
        text = f"{act}.{job}.{part} ".encode()
        reader.put(
            StreamEvent(
                readers=None,
                team_id=reader.team_id,
                project_id=None,
                is_isolated=False,
                name="job.updated",
                after=after,
                is_step=is_step,
                text=text,
            )
        )

    assert b"".join(await reader.take(0)) == b"12.22.2 12.23.2 13.23.0 "


async def test_his_id_never_goes_back_behind_what_another_process_has_told_him():
    since = Position(audit=12, jobs=22)
    reader = Reader(new_id(), new_id(), new_id(), None, None, frozenset(NAMES), Position(audit=10, jobs=20), since)

    assert reader.at == since
    reader.advance(Position(audit=11, jobs=23))
    assert reader.at == Position(audit=12, jobs=23)


# -- order


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_an_act_with_a_lower_id_that_commits_later_is_not_lost(
    db: Db, feed: Feed, notifier: JobNotifier, cast: Cast, end: str
):
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    names = ("session.updated", "job.updated")
    async with Listener(feed, cast.bob.principal, names=names) as bob, open_transaction(db, cast.alice) as (conn, lower):
        higher = await say(db, cast.alice, "session.resumed")
        job = await step(outbox, "s1")  # of the other log, and so a sign that both have been looked at

        events = await bob.until("job.updated", job)
        assert str(higher) not in {event.subject for event in events}

        await (conn.commit() if end == "commit" else conn.rollback())
        events = await bob.until("session.updated", higher)
        assert [event.subject for event in events if event.data["action"] == "started"][:1] == (
            [str(lower)] if end == "commit" else []
        ) or (end == "rollback" and str(lower) not in {event.subject for event in events})


async def test_nor_is_it_when_the_later_one_has_the_higher_number_of_a_transaction(
    db: Db, feed: Feed, notifier: JobNotifier, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    """The newest transaction that has ended is then older than the one that is waited for."""
    outbox = Outbox(db, notifier, cast.alice.principal, cast.alice.project)
    higher = new_id()
    looks: asyncio.Queue[None] = asyncio.Queue()
    look = repository.look

    async def counted(conn: Conn, after: Position, limit: int) -> Looks:
        seen = await look(conn, after, limit)
        looks.put_nowait(None)
        return seen

    monkeypatch.setattr(repository, "look", counted)
    async with (
        Listener(feed, cast.bob.principal) as bob,
        await psycopg.AsyncConnection.connect(db.url) as early,
    ):
        await early.execute("SELECT pg_current_xact_id()")
        async with open_transaction(db, cast.alice) as (late, lower):
            await audit.record(early, cast.alice.principal, "session.resumed", "session", higher, project_id=cast.alice.project.id)
            await announce.notify_stream(early)
            await early.commit()
            while not looks.empty():
                looks.get_nowait()
            for _ in range(3):  # before anything else ends
                await asyncio.wait_for(looks.get(), ENOUGH_SECONDS)
            job = await step(outbox, "s1")

            events = await bob.until("job.updated", job)
            assert str(higher) not in {event.subject for event in events}

            await late.commit()
            events = await bob.until("session.updated", higher)
            assert str(lower) in {event.subject for event in events}


async def test_one_who_comes_while_a_transaction_is_open_hears_what_it_commits(db: Db, feed: Feed, cast: Cast):
    feed.max_start_wait_seconds = 0
    async with open_transaction(db, cast.alice) as (conn, lower):
        await say(db, cast.alice, "session.resumed")
        async with Listener(feed, cast.alice.principal) as alice:
            await conn.commit()

            await alice.until("session.updated", lower)


async def test_an_act_whose_details_are_not_as_expected_stops_nobody(db: Db, feed: Feed, cast: Cast):
    async with Listener(feed, cast.alice.principal) as alice:
        await say(db, cast.alice, "observations.generated", observations="all of them")
        await say(db, cast.alice, "observations.generated", observations=[1, None, "x", [2]])
        last = await say(db, cast.alice, "session.started")

        assert (await alice.next()).subject == str(last)


# -- ends


async def test_a_slow_reader_is_dropped_and_the_others_are_served(db: Db, feed: Feed, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(readers, "MAX_WAITING", 3)
    stuck, lost = await feed.join(cast.alice.principal, project_id=None, names=frozenset({"session.updated"}), last_event_id=None)
    async with Listener(feed, cast.bob.principal) as bob:
        for _ in range(4):
            subject = await say(db, cast.alice, "session.started")
            await bob.until("session.updated", subject)

        assert stuck.ended
        assert not bob.reader.ended
        assert [text async for text in feed.read(stuck, lost=lost)][1:] == []
    feed.leave(stuck)


async def test_a_revoked_key_and_an_archived_team_end_their_streams_at_once(db: Db, feed: Feed, cast: Cast):
    async with (
        Listener(feed, cast.alice.principal) as alice,
        Listener(feed, cast.bob.principal) as bob,
        Listener(feed, cast.charlie.principal) as charlie,
    ):
        async with db.system() as conn:
            await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [cast.alice.principal.key_id])
            await announce.drop_cached(conn, cast.alice.team_id)
        await alice.end()
        subject = await say(db, cast.bob, "session.started")
        assert (await bob.next()).subject == str(subject)

        async with db.system() as conn:
            await conn.execute("UPDATE teams SET archived_at = now() WHERE id = %s", [cast.charlie.team_id])
            await announce.drop_cached(conn, cast.charlie.team_id)
        await charlie.end()
        assert not bob.reader.ended


async def revoke(db: Db, person: Person) -> None:
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [person.principal.key_id])


async def test_a_key_that_is_revoked_while_the_keys_are_looked_at_ends_its_stream_too(
    db: Db, feed: Feed, live_hub: NotificationListener, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "_KEYS_SECONDS", 3600)
    valid_keys, was_asked = repository.valid_keys, asyncio.Event()

    async def asked_a_moment_too_early(conn: Conn, key_ids: Sequence[UUID]) -> list[UUID]:
        found = await valid_keys(conn, key_ids)
        if not was_asked.is_set():
            was_asked.set()
            await revoke(db, cast.alice)
            live_hub.deliver(announce.CHANNEL, str(cast.alice.team_id))
        return found

    monkeypatch.setattr(repository, "valid_keys", asked_a_moment_too_early)

    async with Listener(feed, cast.alice.principal) as alice:
        await alice.end()


async def test_a_key_that_was_revoked_just_before_it_joined_ends_its_stream_too(
    db: Db, feed: Feed, cast: Cast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feeds, "_KEYS_SECONDS", 3600)
    async with Listener(feed, cast.bob.principal) as bob:
        await say(db, cast.bob, "session.started")
        await bob.next()
        await revoke(db, cast.alice)

        async with Listener(feed, cast.alice.principal) as alice:
            await alice.end()


async def test_a_key_may_have_so_many_streams_open_and_no_more(feed: Feed, cast: Cast):
    mine = [(await feed.join(cast.alice.principal, project_id=None, names=frozenset(), last_event_id=None))[0] for _ in range(5)]

    with pytest.raises(RateLimited, match="5 streams are open"):
        await feed.join(cast.alice.principal, project_id=None, names=frozenset(), last_event_id=None)
    async with Listener(feed, cast.bob.principal):
        pass

    feed.leave(mine[0])
    async with Listener(feed, cast.alice.principal):
        pass


async def test_when_the_server_stops_all_streams_end_and_nobody_is_let_in(feed: Feed, cast: Cast):
    async with Listener(feed, cast.alice.principal) as alice:
        feed.close()

        await alice.end()
        with pytest.raises(Unavailable):
            await feed.join(cast.bob.principal, project_id=None, names=frozenset(), last_event_id=None)


async def test_while_nobody_listens_nothing_is_looked_at_and_the_next_one_begins_at_now(db: Db, feed: Feed, cast: Cast):
    async with Listener(feed, cast.alice.principal) as alice:
        task = feed._task  # pyright: ignore[reportPrivateUsage] - whether anything runs is not to be seen from outside
        assert task is not None
        await say(db, cast.alice, "session.started")
        await alice.next()
    await announce_news(db)
    await asyncio.wait_for(task, ENOUGH_SECONDS)
    await say(db, cast.alice, "session.started")

    async with Listener(feed, cast.alice.principal) as alice:
        subject = await say(db, cast.alice, "session.ended")

        assert (await alice.next()).subject == str(subject)


async def announce_news(db: Db) -> None:
    async with db.system() as conn:
        await announce.notify_stream(conn)


# -- the door


@pytest.fixture
def app(settings: Settings, db: Db, live_hub: NotificationListener, notifier: JobNotifier) -> AsgiFrame:
    app = create_app(settings, db, live_hub, notifier, secret=b"s" * 32)
    app.dependencies.replace(Feed(db, live_hub, secret=b"s" * 32, streams_per_key=1))
    return app


async def test_the_answer_is_a_stream_of_server_sent_events_that_ends_with_the_server(db: Db, app: AsgiFrame, cast: Cast):
    feed = app.dependencies.get(Feed)
    async with Listener(feed, cast.bob.principal) as before:
        await before.next_block()
    missed = await say(db, cast.bob, "session.started")
    headers = {**cast.alice.headers, "Last-Event-ID": before.last_id}

    browser = Browser(app, "types=session.updated,job.updated&project=https://github.com/acme/orders.git", headers)
    status, head = await browser.head()
    come = await browser.until(missed)
    live = await say(db, cast.bob, "session.ended")
    come += await browser.until(live)
    feed.close()
    await browser.end()
    await asyncio.wait_for(browser.task, ENOUGH_SECONDS)

    assert status == 200
    assert head["content-type"].startswith("text/event-stream")
    assert head["cache-control"] == "no-store"
    assert head["x-accel-buffering"] == "no"
    assert re.match(r"retry: [12]\d{3}\nid: ", come)
    assert "event: session.updated\ndata: {" in come
    assert '"action":"started"' in come
    assert '"action":"ended"' in come


async def test_a_client_that_goes_makes_room_for_another(app: AsgiFrame, cast: Cast):
    first = Browser(app, "", cast.alice.headers)
    assert (await first.head())[0] == 200
    second = Browser(app, "", cast.alice.headers)
    status, head = await second.head()
    assert (status, "retry-after" in head) == (429, True)

    await first.go()

    third = Browser(app, "", cast.alice.headers)
    assert (await third.head())[0] == 200
    await third.go()


async def test_without_the_header_the_place_may_stand_in_the_query(db: Db, app: AsgiFrame, cast: Cast):
    async with Listener(app.dependencies.get(Feed), cast.bob.principal) as before:
        await before.next_block()
    missed = await say(db, cast.bob, "session.started")

    browser = Browser(app, f"lastEventId={before.last_id}", cast.alice.headers)
    await browser.head()
    await browser.until(missed)
    await browser.go()


async def test_what_cannot_be_streamed_is_refused_in_a_sentence(client: httpx.AsyncClient, db: Db, cast: Cast):
    _, writer = await mint(db, cast.alice.team_id, "writer", scopes=["events:write"])

    unknown = await client.get("/v1/stream?types=job.updated,job.done", headers=cast.alice.headers)
    misspelt = await client.get("/v1/stream?type=job.updated", headers=cast.alice.headers)
    nowhere = await client.get("/v1/stream?project=github.com/acme/none", headers=cast.alice.headers)
    forbidden = await client.get("/v1/stream", headers={"Authorization": f"Bearer {writer}"})

    assert (unknown.status_code, unknown.json()["issues"][0]["path"]) == (400, "$.types")
    assert "'job.done'" in unknown.json()["message"]
    assert misspelt.status_code == 400
    assert nowhere.status_code == 404
    assert forbidden.status_code == 403


async def test_a_project_of_another_team_is_refused_like_one_that_does_not_exist(client: httpx.AsyncClient, cast: Cast):
    theirs = await client.get(f"/v1/stream?project={cast.alice.project.id}", headers=cast.charlie.headers)
    nobodys = await client.get(f"/v1/stream?project={new_id()}", headers=cast.charlie.headers)

    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.json()["message"] == nobodys.json()["message"]


async def test_asked_for_the_head_only_it_opens_no_stream(client: httpx.AsyncClient, cast: Cast):
    answer = await client.head("/v1/stream", headers=cast.alice.headers)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


# -- ids


def test_an_event_id_is_read_by_every_process_of_the_installation_and_by_nobody_else():
    position = Position(audit=12, jobs=345, part=6)
    text = StreamCursors(b"a" * 32).write(position)

    assert StreamCursors(b"a" * 32).read(text) == position
    assert StreamCursors(b"b" * 32).read(text) is None
    assert StreamCursors(b"a" * 32).read(("B" if text[0] == "A" else "A") + text[1:]) is None


def test_event_ids_do_not_show_how_much_has_happened_in_between():
    cursors = StreamCursors(b"a" * 32)
    ids = [cursors.write(Position(audit=place, jobs=0)) for place in range(1, 200)]

    assert len({id_[:4] for id_ in ids}) > 150
    assert sorted(ids) != ids
    assert {len(id_) for id_ in ids} == {52}


def test_event_ids_do_not_show_whether_anything_has_happened_in_between():
    cursors = StreamCursors(b"a" * 32)

    assert len({cursors.write(Position(audit=12, jobs=345)) for _ in range(100)}) == 100
