"""Taking a hook's call without HTTP: the verb beneath the door."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cmserver.access.private import PrivatePlaces
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.doors.hooks.claude_code import ADAPTER
from cmserver.doors.hooks.model import HookHeaders, HookReply
from cmserver.doors.hooks.take import HookDelivery, HookTaker
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops.privacy.mark import PrivateSessions
from cmserver.recall.model import ContextBudget
from cmserver.redaction.redact import Identifiers
from tests.conftest import Cast
from tests.doors.hooks.test_door import payload
from tests.generation.tools import Outbox


async def test_a_call_is_taken_with_what_its_client_says_beside_it(
    db: Db, settings: Settings, hub: NotificationListener, notifier: JobNotifier, outbox: Outbox, cast: Cast
):
    projects = Projects(db, hub)
    places = PrivatePlaces(db, hub, projects)
    taker = HookTaker(
        db,
        settings,
        hub,
        notifier,
        projects,
        outbox.recorder,
        QueryEmbedder(settings, db),
        Identifiers(b"s" * 32),
        ContextBudget(tokens=1000, observations=10, summaries=3),
        PrivateSessions(db, hub, places),
        places,
    )
    an_hour_ago = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    headers = HookHeaders(root="/srv/billing", git_branch="fix", sent_at=an_hour_ago)

    async def take(headers: HookHeaders, name: str, **fields: object) -> HookReply:
        call = ADAPTER.parse(payload(name, **fields), None)
        delivery = HookDelivery(
            principal=cast.alice.principal,
            platform=ADAPTER.platform,
            takes_context=call.name in ADAPTER.context_hooks,
            call=call,
            headers=headers,
            size_bytes=100,
        )
        return await taker.take(delivery)

    started = await take(headers, "SessionStart", source="startup")
    late = await take(HookHeaders(root="/srv/billing", is_late=True), "SessionStart", source="resume")
    far_off = HookHeaders(root="/srv/other", sent_at=datetime(9999, 1, 1, tzinfo=UTC))
    prompted = await take(far_off, "UserPromptSubmit", prompt="please write a note")

    assert "nothing has been recorded" in (started.context or "")
    assert (late, prompted) == (HookReply(), HookReply())
    events = await outbox.rows(
        "SELECT e.event_type, p.canonical_id, e.metadata ->> 'git_branch' AS branch, e.occurred_at"
        "  FROM agent_events e JOIN projects p ON p.id = e.project_id ORDER BY e.received_at, e.id"
    )
    assert {event["canonical_id"] for event in events} == {"/srv/billing"}
    assert (events[0]["branch"], events[0]["occurred_at"]) == ("fix", an_hour_ago)
    assert events[-1]["event_type"] == "user_prompt"
    assert await outbox.value("SELECT max(occurred_at) < now() + interval '5 minutes' FROM agent_events") is True
