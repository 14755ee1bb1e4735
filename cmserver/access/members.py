"""Who belongs to a team. A team always keeps an owner, and who leaves takes no working key along."""

from __future__ import annotations

from collections.abc import Mapping

from cmserver.access import audit, repository, teams
from cmserver.access.keys import manage
from cmserver.access.model import Member, Principal, Role
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn


async def put(
    conn: Conn, principal: Principal, named: str, user_id: str, role: Role, metadata: Mapping[str, object] | None
) -> tuple[Member, bool]:
    """The member of the team with that role, and whether they are new. Without metadata, what is noted stays."""
    await teams.one(conn, principal, named)
    teams.whole_team(principal)
    await repository.lock_team(conn, principal.team_id)
    known = await repository.member(conn, principal.team_id, user_id)
    if known is not None and role != "owner":
        await _leave_an_owner(conn, known)
    kept = known.metadata if known else {}
    member = await repository.put_member(conn, principal.team_id, user_id, role, kept if metadata is None else metadata)
    await audit.record(conn, principal, "member.set", "team_member", user_id, role=role)
    return member, known is None


async def remove(conn: Conn, principal: Principal, named: str, user_id: str) -> int:
    """Take somebody out of the team, and revoke the keys whose actor they are; how many."""
    await teams.one(conn, principal, named)
    teams.whole_team(principal)
    await repository.lock_team(conn, principal.team_id)
    known = await repository.member(conn, principal.team_id, user_id)
    if known is None:
        raise NotFound("There is no such member.")
    await _leave_an_owner(conn, known)
    revoked = await manage.revoke_all_of(conn, principal, user_id)
    await repository.remove_member(conn, principal.team_id, user_id)
    await audit.record(conn, principal, "member.removed", "team_member", user_id, revoked_keys=revoked)
    return revoked


async def _leave_an_owner(conn: Conn, member: Member) -> None:
    if member.role == "owner" and not await repository.other_owners(conn, member.team_id, member.user_id):
        raise Conflict(f"{member.user_id} is the last owner of the team. Make somebody else an owner first.")
