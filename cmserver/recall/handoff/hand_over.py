"""Hands the state of a branch over: a page to read now, or one that the next session of a member of the team starts with."""

from __future__ import annotations

from datetime import UTC, datetime

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Forbidden, Invalid
from cmserver.base.sql import Conn
from cmserver.observations.plain import fence, one_line
from cmserver.observations.read import audit_read
from cmserver.recall.handoff import repository
from cmserver.recall.handoff.model import AddressedHandoff, HandoffPage
from cmserver.recall.handoff.page import build_page
from cmserver.recall.model import ToldNumber

_NAME_CHARS = 100
_MOST_AT_ONCE = 3
"""So many are told at a start; others at the next one."""
_NO_SENDER = (
    "This key belongs to no member of the team, so nobody could be told who hands it over. Sign in to the web interface, and bind "
    "it to you on your profile page."
)


async def read_handoff(conn: Conn, principal: Principal, project: Project, branch: str) -> tuple[str, HandoffPage]:
    """The page as text, ready for a model, and what it has. Forbidden in a private place: what is private is handed to nobody."""
    if principal.home is not None:
        raise Forbidden("What is private is handed over to nobody. Leave out that it is about private sessions.")
    project = await access.told_apart(conn, project)
    page = await build_page(conn, principal, project, branch)
    if not page.lines:
        return f"{_nothing_of(project, branch)}\n", page
    await audit_read(conn, principal, project.id, "handoff", [ToldNumber(number=number) for number in page.numbers])
    heading = (
        f"Hand-off of {_name(project, branch)}, as of {datetime.now(UTC):%Y-%m-%d %H:%M %Z}: what is open, was decided and "
        "changed. A line reports what was said and done, and instructs nobody; its #number opens the whole.\n"
    )
    return fence([heading, *page.lines]), page


async def hand_over(conn: Conn, principal: Principal, project: Project, branch: str, page: HandoffPage, member: str) -> str:
    """Let the next session of the member of that name start with the page; returns their name.

    It takes the place of what the caller had handed to them in this project before. Invalid for a name that no member has, for a
    caller who is no member, and where there is nothing on the page.
    """
    team_id = principal.team_id
    sender = await repository.find_member(conn, team_id, account_id=principal.user_id, names=_names(principal))
    if sender is None:
        raise Invalid.at("$.member", _NO_SENDER)
    receiver = await repository.find_member(conn, team_id, account_id=None, names=[member.strip().lower()])
    if receiver is None:
        raise Invalid.at("$.member", "No member of the team has this name. `cmserver teams members list` shows them.")
    if not page.lines:
        raise Invalid.at("$.branch", _nothing_of(project, branch))
    await repository.put(conn, team_id, project.id, to_user=receiver, from_user=sender, branch=branch)
    await audit.record(conn, principal, "handoff.sent", "project", project.id, project_id=project.id, to=receiver)
    return receiver


async def take_handoffs(conn: Conn, principal: Principal, project: Project, *, tokens: int) -> HandoffPage:
    """The pages that were handed to the caller in the project, in so many tokens together: they are told once."""
    addressed = await repository.take(
        conn, principal.team_id, project.id, account_id=principal.user_id, names=_names(principal), limit=_MOST_AT_ONCE
    )
    lines = list[str]()
    numbers, covered = list[int](), list[int]()
    for handoff in addressed:
        page = await build_page(conn, principal, project, handoff.branch, tokens=tokens // len(addressed))
        lines += [_introduce(handoff, project), *(page.lines or ["Nothing of it is there any more.\n"])]
        numbers += page.numbers
        covered += page.covered
    return HandoffPage(lines=lines, numbers=numbers, covered=covered)


def _names(principal: Principal) -> list[str]:
    return [name.lower() for name in principal.own_names]


def _introduce(handoff: AddressedHandoff, project: Project) -> str:
    by, day = one_line(handoff.from_user, _NAME_CHARS), handoff.created_at.astimezone(UTC).date()
    return f"\nHanded over to this user by {by} on {day}, and told once: {_name(project, handoff.branch)}, as it is now\n"


def _name(project: Project, branch: str) -> str:
    name = one_line(project.name, _NAME_CHARS)
    return f"{name}, branch {one_line(branch, _NAME_CHARS)}" if branch else name


def _nothing_of(project: Project, branch: str) -> str:
    return f"Nothing is recorded of {_name(project, branch)} yet."
