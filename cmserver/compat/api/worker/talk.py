"""What the old clients' calls have in common: the session they mean, the project it belongs to, and how their events are stored."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import msgspec
from starlette.requests import Request

from cmserver.access.model import Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.http.wire import db
from cmserver.base.ids import named_id, new_id
from cmserver.base.redaction.clean import clean, clean_aside
from cmserver.base.text import KEY_MOST, storable
from cmserver.compat import prompts
from cmserver.ingest import session as sessions
from cmserver.ingest.model import Incoming, Recorded
from cmserver.ingest.record import Recorder
from cmserver.sessions import repository
from cmserver.sessions.model import Conversation, NewSession

NO_PROJECT = "unknown"
"""The project of a session of which nobody has ever said where it takes place: it is kept all the same."""
_REPEATED_SECONDS = 10.0
_METADATA_CHARS = 1_000
_SEPARATOR = re.compile(r"[\\/]+")


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks of which session: its name at the agent, and which agent that is."""

    who: Principal
    session: str
    platform: str


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a prompt."""

    session_id: UUID
    number: int
    is_known: bool
    """Whether the session was heard of before."""
    is_private: bool
    is_repeated: bool


def session_number(session_id: UUID) -> int:
    """The number that stands for our session where clients want one: 53 bits of the SHA-256 of its id, and never 0.

    It is for their logs. Nothing is looked up by it.
    """
    return (int.from_bytes(hashlib.sha256(session_id.bytes).digest()[:8]) >> 11) or 1


async def conversation(request: Request, speaker: Speaker, prompt: str | None = None) -> Conversation | None:
    """The session as it is known, and whether `prompt` (as it would be stored) is just being repeated."""
    who = speaker.who
    async with db(request).tenant(who.team_id) as conn:
        return await repository.conversation(
            conn,
            who.team_id,
            speaker.session,
            speaker.platform,
            only=who.project_id,
            prompt=prompt,
            within_seconds=_REPEATED_SECONDS,
        )


async def project_of(
    request: Request, speaker: Speaker, known: Conversation | None, *, named: str | None = None, folder: str | None = None
) -> Project | None:
    """The key's project; else the one that the session has been in so far; else the one that is named, or of the folder.

    Made when there is none. None when it is archived: nothing is recorded there.
    """
    projects = cast("Projects", request.app.state.projects)
    who = speaker.who
    try:
        if who.project_id is not None:
            return await projects.find(who, str(who.project_id))
        if known is not None:
            return await projects.find(who, str(known.project_id))
        if named := name(named):
            is_id = named_id(named) is not None
            return (await project_named(request, who, named) if is_id else None) or await projects.find_or_make(who, _no_id(named))
        if folder := name(folder):
            return await _project_in(projects, who, folder)
        return await projects.find_or_make(who, NO_PROJECT)
    except (NotFound, Conflict):
        return None


async def project_named(request: Request, who: Principal, named: str) -> Project | None:
    """The key's project, or else the one of that name. Nothing is made of a name that somebody only asks about."""
    projects = cast("Projects", request.app.state.projects)
    try:
        return await projects.find(who, named if who.project_id is None else str(who.project_id))
    except NotFound:
        return None


async def _project_in(projects: Projects, who: Principal, folder: str) -> Project:
    """Their clients name a project like its folder, and so may have done here before."""
    for each in (folder, _SEPARATOR.split(folder.rstrip("\\/"))[-1]):
        try:
            if each:
                return await projects.find(who, _no_id(each))
        except NotFound:
            continue
    return await projects.find_or_make(who, _no_id(folder))


async def prompted(
    request: Request,
    speaker: Speaker,
    prompt: str | None,
    *,
    named: str | None,
    metadata: dict[str, object],
    size_bytes: int,
    moves: bool = False,
) -> Prompted | None:
    """Open the session and store its prompt; None when its project is archived.

    A prompt that is private from end to end is stored without its text; one that is repeated within ten seconds is the same. With
    `moves`, a session that was known in another project than the one that is named is another session.
    """
    who = speaker.who
    said = prompts.cut(prompt)
    most = cast("int", request.app.state.field_max_chars)
    text = cast("str", (await clean_aside(said, field_max_chars=most, size_bytes=size_bytes, at="$.prompt")).value)
    known = await conversation(request, speaker, text)
    project = await project_of(request, speaker, None if moves and named else known, named=named)
    if project is None:
        return None
    new = NewSession(
        external_session_id=speaker.session,
        content_session_id=speaker.session,
        platform_source=speaker.platform,
        metadata=cast("dict[str, object]", clean(metadata, field_max_chars=_METADATA_CHARS).value),
    )
    session, _ = await db(request).in_tenant(who.team_id, lambda conn: sessions.start(conn, who, project, new))
    before = known if known is not None and known.id == session.id else None
    is_repeated = before is not None and before.is_repeated
    number = before.prompts if before is not None else 0
    if not is_repeated:
        number += 1
        await stored(
            request,
            speaker,
            project,
            session.id,
            event_type="user_prompt",
            payload={"prompt": said},
            # Two requests at once with the same prompt are one; the same prompt later is another one.
            source_event_id=f"prompt:{session.id}:{number}:{prompts.digest(text)}",
            generate=False,
            size_bytes=size_bytes,
        )
    return Prompted(
        session_id=session.id,
        number=number,
        is_known=before is not None,
        is_private=prompts.is_private(text),
        is_repeated=is_repeated,
    )


async def stored(
    request: Request,
    speaker: Speaker,
    project: Project,
    session_id: UUID | None,
    *,
    event_type: str,
    payload: dict[str, object],
    source_event_id: str | None,
    generate: bool,
    size_bytes: int,
    metadata: dict[str, object] | None = None,
) -> Recorded:
    """One event of the session, which is made where there is none.

    Without an id of its own an event is what arrives now, however much it is like another one: two uses of a tool may well be.
    """
    incoming = Incoming(
        project=project,
        event_type=event_type,
        payload=payload,
        occurred_at=datetime.now(UTC),
        source_adapter="hook",
        origin="hook",
        generate=generate,
        source_event_id=source_event_id or f"arrival:{new_id()}",
        server_session_id=session_id,
        content_session_id=speaker.session,
        platform_source=speaker.platform,
        metadata=metadata or {},
        size_bytes=size_bytes,
    )
    (recorded,) = await cast("Recorder", request.app.state.recorder).record(speaker.who, [incoming])
    return recorded


def name(text: str | None) -> str:
    """A name that a project can have; the empty string when there is none in the text."""
    return storable(text or "").strip()[:KEY_MOST].strip()


def _no_id(named: str) -> str:
    """A folder may be called like an id, of which no project is ever made."""
    return named if named_id(named) is None else NO_PROJECT
