"""Takes one call of a hook: finds its project, starts its session, stores its events, and finds the context for the model.

Each step opens its own transaction: what is stored stays stored when a later step fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec
import psycopg

from cmserver.access import announce
from cmserver.access.model import Principal, Project
from cmserver.access.private import PrivatePlaces
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid, NotFound
from cmserver.base.logs import get_logger
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import LINE_MOST
from cmserver.doors.hooks import payload as hook_payload
from cmserver.doors.hooks.model import HookCall, HookEvent, HookHeaders, HookReply
from cmserver.doors.hooks.tool_ends import build_tool_end
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.events.model import StoredEvent
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ingest import session_lifecycle
from cmserver.ingest.door import STORED, Arrival, find_rule, read_object
from cmserver.ingest.model import EventSubmission
from cmserver.ingest.record import EventRecorder
from cmserver.observations.model import estimate_tokens
from cmserver.ops.joining.follow import follow_name
from cmserver.ops.privacy.mark import PrivateSessions
from cmserver.reading.model import REPLY_TYPE
from cmserver.recall.context import build_context
from cmserver.recall.file_context import build_file_context
from cmserver.recall.model import MAX_CHANGED_FILES, ContextBudget, ContextReason, ContextRequest, SessionStart
from cmserver.recall.prompt_context import build_prompt_context
from cmserver.redaction.clean import clean
from cmserver.redaction.redact import Identifiers
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import NewSession
from cmserver.sessions.turns import repository as turns
from cmserver.tooluse.typed_prompt import typed_text

log = get_logger(__name__)

PRIVATE_SESSION = (
    "This session is private: what is said in it is shown to nobody else of the team. "
    "Whoever runs the server's database can read it."
)
"""What an agent is told at the start of one."""
YOUR_PRIVATE = "From private sessions of this user, which nobody else of the team is shown:"
TEAMS_MEMORY = "From the team's memory:"
_FRESH = ("startup", "clear")
"""Starts of sessions that have not been told anything: a share of them is told nothing."""
_BESIDE_SHARE = 2
"""What the other place knows takes one in so many more of the tokens."""
_MAX_DELAY = timedelta(days=30)
_MAX_AHEAD = timedelta(minutes=5)
_MAX_PATH_CHARS = 1_000
_MAX_PROMPT_CHARS = 20_000
"""More of a prompt is not cleaned; search takes its beginning."""


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it came in: who sent it, from which agent, and what its hook client said beside it."""

    principal: Principal
    platform: str
    takes_context: bool
    """Whether the agent gives the answer of this hook to its model."""
    starts_with_prompt: bool = False
    """Whether its model is given the index with the first prompt after a start (see Adapter)."""
    call: HookCall
    headers: HookHeaders
    size_bytes: int

    @property
    def is_told(self) -> bool:
        """Whether its agent takes what a session is told, and may read it."""
        return (self.takes_context or self.starts_with_prompt) and self.principal.may("observations:read")

    @property
    def names(self) -> list[str]:
        """What the folder may be called, the best name first."""
        names = (self.headers.project, self.headers.git_remote, self.headers.root, self.call.cwd)
        return [name for name in names if name]

    @property
    def folder(self) -> dict[str, object]:
        """The root of the repository, else the agent's working folder, as it is kept with a session."""
        root = self.headers.root
        folder = {"root": root} if root else {"cwd": self.call.cwd} if self.call.cwd else {}
        return cast("dict[str, object]", clean(folder, field_max_chars=_MAX_PATH_CHARS).value)

    @property
    def sent_at(self) -> datetime:
        """When the hook client sent it, which may be long before it arrives; now for an implausible time."""
        sent_at = self.headers.sent_at
        return sent_at if sent_at and _is_plausible(sent_at) else datetime.now(UTC)


class HookTaker:
    """What taking a call needs, at hand for all calls of the process."""

    def __init__(
        self,
        db: Db,
        settings: Settings,
        notifications: NotificationListener,
        notifier: JobNotifier,
        projects: Projects,
        recorder: EventRecorder,
        embedder: QueryEmbedder,
        identifiers: Identifiers,
        budget: ContextBudget,
        private_sessions: PrivateSessions,
        private_places: PrivatePlaces,
    ) -> None:
        self._db = db
        self._private_sessions = private_sessions
        self._private_places = private_places
        self._settings = settings
        self._notifications = notifications
        self._notifier = notifier
        self._projects = projects
        self._recorder = recorder
        self._embedder = embedder
        self._identifiers = identifiers
        self._budget = budget

    @property
    def db(self) -> Db:
        return self._db

    async def take(self, delivery: HookDelivery) -> HookReply:
        """Store what the call brings, and return what its agent is told: the context for its model, if there is any."""
        session_name = self._identifiers.clean(delivery.call.session_id)
        delivery = msgspec.structs.replace(delivery, call=msgspec.structs.replace(delivery.call, session_id=session_name))
        delivery = await self._enter(delivery)
        if delivery.call.name == hook_payload.TRANSCRIPT_END:
            is_answered = not await self._is_missing_words(delivery)
            if find_rule("row", Arrival(event_type=REPLY_TYPE, by_hook=True, is_answered=is_answered)).name != STORED:
                return HookReply()
        project = await self._find_project(delivery)
        session_id = await self._start_session(delivery, project) if delivery.call.moment == "start" else None
        recorded = await self._store_events(delivery, project)
        if recorded is not None and recorded.team_id != delivery.principal.team_id:  # it became private meanwhile
            self._recorder.forget_sessions()
            return await self.take(delivery)
        session_id = recorded.server_session_id if recorded is not None else session_id
        if session_id is not None:
            await self._end_turn_or_session(delivery, project, session_id)
        if delivery.headers.is_late:
            return HookReply()
        try:
            return HookReply(context=await self._find_context(delivery, project, session_id))
        except psycopg.Error as error:  # its session may just have been erased; the event is stored, and must not be sent again
            log.warning("hook.told_nothing", agent=delivery.platform, error=type(error).__name__)  # its text may quote values
            return HookReply()

    async def _enter(self, delivery: HookDelivery) -> HookDelivery:
        """The delivery of a private session as one of its person's private place; the hook client may say so, or it is known.

        What the team had read of a session that the client calls private now is made private, too.
        """
        principal, call = delivery.principal, delivery.call
        if principal.home is not None:
            if await self._recorder.find_hook_session(principal, call.session_id, delivery.platform) is None:
                public = await self._recorder.find_hook_session(principal.home, call.session_id, delivery.platform)
                if public is not None:
                    await self._private_sessions.make_private(principal, str(public.id))
            return delivery
        if principal.private_id is None or await self._recorder.find_hook_session(principal, call.session_id, delivery.platform):
            return delivery
        inside = await self._private_places.enter(principal)
        is_private = await self._recorder.find_hook_session(inside, call.session_id, delivery.platform) is not None
        return msgspec.structs.replace(delivery, principal=inside) if is_private else delivery

    async def _is_missing_words(self, delivery: HookDelivery) -> bool:
        """Whether the turn that the agent's words are of is known, and has none."""
        call, principal = delivery.call, delivery.principal
        if not call.events or call.said_at is None or not _is_plausible(call.said_at):
            return False
        session = await self._recorder.find_hook_session(principal, call.session_id, delivery.platform)
        if session is None or not principal.sees(session.project_id):
            return False
        async with self._db.tenant(principal.team_id) as conn:
            return await turns.is_unanswered(conn, principal.team_id, session.id, call.said_at)

    async def _find_project(self, delivery: HookDelivery) -> Project:
        """The project of the session, which its first call decided; at that call, the one that the key or the folder names."""
        principal = delivery.principal
        await self._follow_name(delivery)
        for _ in range(2):
            session = await self._recorder.find_hook_session(principal, delivery.call.session_id, delivery.platform)
            if session is None:
                return await self.name_project(principal, delivery.names)
            with suppress(NotFound):
                return await self._projects.find(principal, str(session.project_id))
            self._recorder.forget_sessions()  # it was remembered from before its project was deleted
        raise Conflict("The project of this session is archived. Restore it with an admin key: PATCH /v1/projects/{id}.")

    async def _follow_name(self, delivery: HookDelivery) -> None:
        """Let the project follow its folder to a new name, whether a session begins or goes on."""
        before, names, principal = delivery.headers.name_before, delivery.names, delivery.principal
        folder = next(iter(delivery.folder.values()), None) if before and names else None
        if isinstance(folder, str):
            await follow_name(self._db, principal, before, names[0], folder)
            announce.drop_cached_here(self._notifications, principal.team_id)

    async def name_project(self, principal: Principal, names: Sequence[str], *, make: bool = True) -> Project:
        """The key's project; else the one that the hook client names; else the folder's git remote; else the folder.

        Invalid names and unknown ids are skipped: the repository chose them, and its event must not be lost for that. Where none
        is to be made, NotFound for the first valid name that none has.
        """
        if principal.home is not None and principal.project_id is None:
            with suppress(Invalid, NotFound):  # by the name that the team's project has, if there is one
                names = [(await self.name_project(principal.home, names, make=False)).canonical_id]
        if principal.project_id is None:
            for name in names[:-1]:
                with suppress(Invalid, NotFound) if make else suppress(Invalid):
                    return await self._projects.named_or_own(principal, name, at="$.cwd", make=make)
        last = None if principal.project_id or not names else names[-1]
        return await self._projects.named_or_own(principal, last, at="$.cwd", make=make)

    async def _start_session(self, delivery: HookDelivery, project: Project) -> UUID:
        call, principal = delivery.call, delivery.principal
        metadata = cast("dict[str, object]", clean(call.metadata, field_max_chars=_MAX_PATH_CHARS).value)
        new = NewSession(
            external_session_id=call.session_id,
            content_session_id=call.session_id,
            platform_source=delivery.platform,
            metadata={**metadata, **delivery.folder},
            started_at=delivery.sent_at,
            actor_id=principal.actor_id,
            person_id=principal.user_id,
            from_hooks=True,
            is_comparable=delivery.is_told and not delivery.headers.is_late and call.source in _FRESH,
        )

        async def start(conn: Conn) -> UUID:
            session, _ = await session_lifecycle.start(conn, principal, project, new)
            if delivery.starts_with_prompt:
                await sessions.owe_index(conn, principal.team_id, session.id, call.source)
            return session.id

        return await self._db.in_tenant(principal.team_id, start)

    async def _store_events(self, delivery: HookDelivery, project: Project) -> StoredEvent | None:
        """The first of the events as it is stored; None when there is nothing to store."""
        call, headers = delivery.call, delivery.headers
        stood = {"git_branch": headers.git_branch[:200], "git_commit": headers.git_commit}
        stood = {name: value for name, value in stood.items() if value}
        if not call.events:
            return None
        events = [*await self._build_tool_ends(delivery), *call.events]
        folder, occurred_at = delivery.folder, call.said_at or delivery.sent_at
        submissions = [
            reshape(
                event,
                EventSubmission,
                source_adapter="hook",
                content_session_id=call.session_id,
                platform_source=delivery.platform,
                metadata={**event.metadata, **stood},
                project=project,
                origin="hook",
                is_recovered=call.said_at is not None,
                occurred_at=occurred_at,
                session_metadata=folder,
                size_bytes=delivery.size_bytes,
            )
            for event in events
        ]
        recorded = await self._recorder.record(delivery.principal, submissions)
        return recorded[0].event

    async def _build_tool_ends(self, delivery: HookDelivery) -> list[HookEvent]:
        """The events of tool uses that have ended since they were stored."""
        call = delivery.call
        if not call.tool_ends:
            return []
        ids = [end.tool_use_id for end in call.tool_ends]
        started = await self._recorder.find_tool_uses(delivery.principal, call.session_id, delivery.platform, ids)
        fields = read_object(call.events[0].payload)
        return [event for end in call.tool_ends for event in build_tool_end(end, started.get(end.tool_use_id, {}), fields)]

    async def _end_turn_or_session(self, delivery: HookDelivery, project: Project, session_id: UUID) -> None:
        """Do what the end of a turn or of the session asks for; nothing at other moments."""
        call, sent_at = delivery.call, delivery.sent_at
        place = self._db, self._notifier, self._settings, delivery.principal
        if call.moment == "turn_end":
            await session_lifecycle.checkpoint_turn(*place, project, session_id, occurred_at=sent_at)
        elif call.moment == "end":
            await session_lifecycle.end_session(self._db, self._notifier, delivery.principal, session_id, occurred_at=sent_at)
        elif call.moment == "prompt" or any(event.event_type == "turn_failed" for event in call.events):
            await session_lifecycle.make_turn_due(*place, project, session_id, by_prompt=call.moment == "prompt")

    async def _find_context(self, delivery: HookDelivery, project: Project, session_id: UUID | None) -> str | None:
        """The context for the model at this moment, if there is any."""
        call, principal = delivery.call, delivery.principal
        if not delivery.takes_context:  # else the receipt would say that the model was shown it
            return None
        if call.is_subagent or not principal.may("observations:read") or await self._is_untold(delivery, session_id):
            return None
        if call.moment == "start":
            return await self._build_index(delivery, project, session_id, call.source)
        if call.moment == "prompt":
            texts = [
                await self._build_owed_index(delivery, project, session_id),
                await self._build_prompt_context(delivery, project, session_id),
            ]
            return "\n\n".join(filter(None, texts)) or None
        if call.moment == "file" and call.file and self._settings.context_on in {"file", "both"}:
            return await self._build_file_context(delivery, project, call.file)
        return None

    async def _build_file_context(self, delivery: HookDelivery, project: Project, file: str) -> str | None:
        """The lines that belong to a file, if there are any."""
        call, principal = delivery.call, delivery.principal
        async with self._db.tenant(principal.team_id) as conn:
            session = await sessions.by_hook(conn, principal.team_id, call.session_id, delivery.platform, only=principal.project_id)
            if session is not None and session.arm == "untold":
                return None
            request = _new_request(delivery, "file", session.id if session else None)
            found = await build_file_context(conn, principal, project, request, file)
        return found.text or None if found else None

    async def _is_untold(self, delivery: HookDelivery, session_id: UUID | None) -> bool:
        """Whether the session that begins or is asked for something is one that is told nothing by itself."""
        if session_id is None or delivery.call.moment not in {"start", "prompt"}:
            return False
        team_id = delivery.principal.team_id
        async with self._db.tenant(team_id) as conn:
            return await sessions.is_untold(conn, team_id, session_id)

    async def _build_index(
        self, delivery: HookDelivery, project: Project, session_id: UUID | None, reason: SessionStart
    ) -> str | None:
        principal, headers = delivery.principal, delivery.headers
        folders = [*delivery.names[1:], headers.name_before]
        request = msgspec.structs.replace(
            _new_request(delivery, reason, session_id),
            changed_files=[path for path in headers.changed_files if len(path) <= LINE_MOST][:MAX_CHANGED_FILES],
            folders=[name for name in dict.fromkeys(folders) if name],
        )
        beside = await self._build_beside(principal, project, request)
        budget = msgspec.structs.replace(self._budget, tokens=self._budget.tokens - estimate_tokens(beside))
        async with self._db.tenant(principal.team_id, principal.user_id) as conn:
            found = await build_context(conn, principal, project, request, budget)
        private = PRIVATE_SESSION if principal.home is not None else ""
        own = "" if found.knows_nothing and beside else found.text
        return "\n\n".join(filter(None, (private, own, beside))) or None

    async def _build_beside(self, principal: Principal, project: Project, request: ContextRequest) -> str:
        """What the other place knows of the project: the team's index for a private session, else its person's private one.

        Nothing of it is kept there, no receipt and no access: who reads those would learn of the private session.
        """
        if principal.home is not None:
            other = principal.home
        elif principal.private_id is not None:
            other = await self._private_places.enter(principal)
        else:
            return ""
        try:
            known = await self._projects.find(other, project.canonical_id)
        except NotFound:
            return ""
        budget = self._budget.share(1 + _BESIDE_SHARE)
        asked = msgspec.structs.replace(request, session_id=None, is_preview=True)
        async with self._db.tenant(other.team_id, other.user_id) as conn, conn.transaction(force_rollback=True):
            found = await build_context(conn, other, known, asked, budget)
        if found.knows_nothing:
            return ""
        return f"{TEAMS_MEMORY if principal.home is not None else YOUR_PRIVATE}\n{found.text}"

    async def _build_owed_index(self, delivery: HookDelivery, project: Project, session_id: UUID | None) -> str | None:
        """The index of the session's last start, if its agent takes it with the prompt and has not had it."""
        if not delivery.starts_with_prompt or session_id is None:
            return None
        team_id = delivery.principal.team_id
        source = await self._db.in_tenant(team_id, lambda conn: sessions.take_owed_index(conn, team_id, session_id))
        if source is None:
            return None
        return await self._build_index(delivery, project, session_id, hook_payload.read_source(source))

    async def _build_prompt_context(self, delivery: HookDelivery, project: Project, session_id: UUID | None) -> str | None:
        """The lines that belong to what the user typed, if this is wanted and there are any."""
        call, principal = delivery.call, delivery.principal
        typed = typed_text(call.prompt[: 10 * _MAX_PROMPT_CHARS]) if call.prompt else ""
        if not typed or self._settings.context_on not in {"prompt", "both"}:
            return None
        prompt = cast("str", clean(typed[:_MAX_PROMPT_CHARS], field_max_chars=_MAX_PROMPT_CHARS).value)
        vector = await self._embedder.embed_unasked(prompt, principal.team_id)
        async with self._db.tenant(principal.team_id) as conn:
            request = _new_request(delivery, "prompt", session_id)
            found = await build_prompt_context(conn, principal, project, request, prompt, vector)
        return found.text or None if found else None


def _new_request(delivery: HookDelivery, reason: ContextReason, session_id: UUID | None) -> ContextRequest:
    headers = delivery.headers
    return ContextRequest(
        reason=reason,
        session_id=session_id,
        platform=delivery.platform,
        reader=headers.hook or None,
        clone_id=headers.clone_id,
        head=headers.git_commit,
    )


def _is_plausible(at: datetime) -> bool:
    """Whether a hook client may have sent something at that time."""
    now = datetime.now(UTC)
    return now - _MAX_DELAY <= at <= now + _MAX_AHEAD
