"""Private sessions on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.columns import render_fields
from cmserver.base.ids import epoch_ms
from cmserver.base.structs import reshape
from cmserver.base.text import Key
from cmserver.ops.privacy.mark import SessionPrivacy
from cmserver.sessions.wire import SESSION_LINES, SessionOut


class SessionPrivacyIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`private` is whether it is to be the caller's alone: false gives it back to the team. The id `newest` is the newest session
    that the caller's key began. `folder` is the top folder of the repository where its agent works; null for anywhere.
    """

    id: str
    private: bool = True
    folder: Key | None = None


class ToldSessionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session that was told of this one. `actorId` is whose it is; `atEpoch` is when it was told, in epoch milliseconds;
    `numbers` are those of then, of what it was told; none where it may have been told what a turn had done so far.
    """

    session_id: UUID | None
    actor_id: str | None
    reason: str
    at_epoch: int
    numbers: list[int]


class SessionPrivacyOut(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `private` is whether it is its person's alone, and `told` are the sessions that had been told of it before."""

    session: SessionOut
    private: bool
    told: list[ToldSessionOut]


def privacy_out(privacy: SessionPrivacy) -> SessionPrivacyOut:
    told = [reshape(one, ToldSessionOut, at_epoch=epoch_ms(one.at)) for one in privacy.told]
    return SessionPrivacyOut(session=reshape(privacy.session, SessionOut), private=privacy.is_private, told=told)


def render_privacy(out: SessionPrivacyOut) -> str:
    """The session, and who was told of it."""
    who = "you alone" if out.private else "the team"
    lines = [render_fields(*SESSION_LINES.fields(out.session), ("read by", who))]
    if out.private:
        lines += [
            f"{one.actor_id or 'somebody'} was told of it before ({one.reason}, session {one.session_id or 'unknown'}): "
            + (", ".join(f"#{number}" for number in one.numbers) or "what it had done so far, perhaps")
            for one in out.told
        ] or ["Nobody was told of it before."]
    return "\n".join(lines)
