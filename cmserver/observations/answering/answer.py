"""Lists the rules that wait for a person's yes, and takes the answers. An answer can be taken back."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from cmserver.access import announce, audit
from cmserver.access.audit import repository as audit_log
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, NoPerson, NotFound
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.observations.approval import repository as approvals
from cmserver.observations.approval.model import WAIT_DAYS, ApprovalState, RuleApproval
from cmserver.observations.history.model import SYSTEM
from cmserver.observations.read import audit_read, parse_number

Answer = Literal["approved", "rejected", "pending"]

log = get_logger(__name__)

_NO_SUCH = "There is no such rule, or nobody was asked about it."
_NO_PERSON = (
    "Only a person says what counts as a rule: signed in, or with a key of their own. Sign in to the web interface, and make a key "
    "there, or bind this one to you on your profile page."
)
_ACTIONS: dict[Answer, str] = {"approved": "rule.approved", "rejected": "rule.rejected", "pending": "rule.reopened"}
_AT_ONCE = 1_000


def require_person(principal: Principal) -> None:
    """Raise NoPerson for a program's key."""
    if principal.kind not in {"person", "operator"} and principal.user_id is None:
        raise NoPerson(_NO_PERSON)


async def list_rules(
    conn: Conn, principal: Principal, *, project_id: UUID | None, state: ApprovalState, limit: int, cursor: str | None
) -> tuple[list[RuleApproval], str | None]:
    """A page of the rules in that state, the last asked first, and the cursor of the next page. For people only."""
    require_person(principal)
    before, before_id = paging.place(cursor)
    rows = await approvals.newest(conn, principal.team_id, project_id, state, before=before, before_id=before_id, limit=limit + 1)
    page, next_cursor = paging.page(rows, limit, lambda rule: (rule.asked_at, rule.id))
    await audit_read(conn, principal, project_id, "rules", page)
    return principal.named(page), next_cursor


async def answer_rule(conn: Conn, principal: Principal, name: str, answer: Answer) -> RuleApproval:
    """Say yes or no to the rule with that number, or take the answer back (`pending`): then it waits anew. Returns it.

    Conflict when a no comes to what counts by a yes, and when what is to wait again was merged into another observation.
    """
    require_person(principal)
    number = parse_number(name)
    rule = None if number is None else await approvals.lock(conn, principal.team_id, number)
    if rule is None or not principal.sees(rule.project_id):
        raise NotFound(_NO_SUCH)
    if rule.state == answer:
        return rule
    if answer == "rejected" and rule.state == "approved":
        raise Conflict(f"#{rule.number} counts by a person's yes. Take that back first: `cmserver rules undo {rule.number}`.")
    if rule.is_merged:
        raise Conflict(f"#{rule.number} was merged into another observation. Undo that merge first.")
    await approvals.answer(conn, principal.team_id, rule.id, answer)
    await audit.record(conn, principal, _ACTIONS[answer], "observation", rule.id, project_id=rule.project_id, number=rule.number)
    await announce.notify_stream(conn)
    answered = await approvals.lock(conn, principal.team_id, rule.number)
    assert answered is not None
    return answered


async def expire_rules(db: Db) -> int:
    """Let what nobody answered in time expire, with an audit row each; returns how many rules that were."""

    async def act(conn: Conn) -> int:
        expired = await approvals.expire(conn, days=WAIT_DAYS, limit=_AT_ONCE)
        for rule in expired:
            await audit_log.append(
                conn,
                team_id=rule.team_id,
                project_id=rule.project_id,
                actor_id=SYSTEM,
                api_key_id=None,
                user_id=None,
                action="rule.expired",
                resource_type="observation",
                resource_id=str(rule.id),
                request_id=None,
                details={"number": rule.number},
            )
        return len(expired)

    expired = await db.in_system(act)
    if expired:
        log.info("rules.expired", count=expired)
    return expired
