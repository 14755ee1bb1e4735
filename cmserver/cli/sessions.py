"""`cmserver sessions`: what agents have worked on."""

from __future__ import annotations

import click
import msgspec

from cmserver.cli.show import moment, pairs, table
from cmserver.cli.talk import Talk, limit_option, more, segment, talks


class Session(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session as the API shows it."""

    id: str
    project_id: str
    external_session_id: str | None
    agent_id: str | None
    agent_type: str | None
    platform_source: str | None
    generation_status: str
    started_at_epoch: int
    ended_at_epoch: int | None
    last_generated_at_epoch: int | None


class OneSession(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with one session."""

    session: Session


class Sessions(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with sessions."""

    sessions: list[Session]
    next_cursor: str | None


class Receipt(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a session was told once."""

    reason: str
    numbers: list[int]
    left_out_count: int
    tokens: int
    budget_tokens: int
    created_at_epoch: int


class Receipts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An answer with receipts."""

    receipts: list[Receipt]
    next_cursor: str | None


@click.group()
def sessions() -> None:
    """Sessions of coding agents."""


@sessions.command("list")
@click.option("--project", help="Only those of this project.")
@click.option("--active", is_flag=True, help="Only those that have not ended.")
@click.option("--platform", metavar="NAME", help="Only those of this kind of agent (claude, codex, ...).")
@limit_option
@talks
async def list_sessions(talk: Talk, project: str | None, platform: str | None, limit: int, *, active: bool) -> None:
    """The team's sessions, newest first."""
    asked = {"project": project, "active": active or None, "platform": platform}
    talk.tell(await talk.api.pages("/v1/sessions", "sessions", asked, limit=limit), Sessions, _table)


def _table(found: Sessions) -> str:
    more(found.next_cursor)
    return table(
        ("id", "platform", "project", "started", "ended", "agent's id"),
        [
            (
                session.id,
                session.platform_source,
                session.project_id,
                moment(session.started_at_epoch),
                moment(session.ended_at_epoch),
                session.external_session_id,
            )
            for session in found.sessions
        ],
        nothing="There are no such sessions.",
        wide=("agent's id",),
    )


@sessions.command()
@click.argument("session_id")
@talks
async def show(talk: Talk, session_id: str) -> None:
    """One session."""
    talk.tell(await talk.api.get(_path(session_id)), OneSession, _lines)


@sessions.command()
@click.argument("session_id")
@limit_option
@talks
async def context(talk: Talk, session_id: str, limit: int) -> None:
    """What a session has been told of the memory, newest first; with --json also how useful each line was judged, and by what."""
    answer = await talk.api.pages(f"{_path(session_id)}/context", "receipts", {"explain": True}, limit=limit)
    talk.tell(answer, Receipts, _receipts)


@sessions.command()
@click.argument("session_id")
@talks
async def end(talk: Talk, session_id: str) -> None:
    """End a session: a summary is made of it. Ending it again changes nothing."""
    talk.tell(await talk.api.post(f"{_path(session_id)}/end", {}), OneSession, _lines)


def _receipts(found: Receipts) -> str:
    more(found.next_cursor)
    return table(
        ("at", "because of", "tokens", "left out", "observations"),
        [
            (
                moment(one.created_at_epoch),
                one.reason,
                f"{one.tokens} of {one.budget_tokens}" if one.budget_tokens else one.tokens,
                one.left_out_count,
                " ".join(f"#{number}" for number in one.numbers),
            )
            for one in found.receipts
        ],
        nothing="The session has not been told anything.",
        wide=("observations",),
    )


def _lines(one: OneSession) -> str:
    session = one.session
    return pairs(
        ("id", session.id),
        ("agent's id", session.external_session_id),
        ("project", session.project_id),
        ("platform", session.platform_source),
        ("agent", " ".join(filter(None, [session.agent_type, session.agent_id]))),
        ("status", session.generation_status),
        ("started", moment(session.started_at_epoch)),
        ("ended", moment(session.ended_at_epoch)),
        ("last observations", moment(session.last_generated_at_epoch)),
    )


def _path(session_id: str) -> str:
    return f"/v1/sessions/{segment(session_id)}"
