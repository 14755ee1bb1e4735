"""All SQL on members, accounts, invitations and sessions of the web interface. All but members are for the owner alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from psycopg import errors

from cmserver.access.model import FORMER_NAMES, Role
from cmserver.access.people import model
from cmserver.base.errors import Conflict
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query

OWNS = {"team_members", "users", "invitations", "web_sessions", "left_memories"}

_USER: LiteralString = "u.id, u.name, u.is_operator, u.password_hash IS NOT NULL AS has_password, u.created_at"
_MEMBER: LiteralString = """
    m.team_id, m.user_id, m.account_id, coalesce(u.name, m.user_id) AS name, m.role, m.metadata,
    coalesce(u.is_operator, false) AS is_operator,
    (SELECT max(s.last_seen_at) FROM web_sessions s WHERE s.user_id = m.account_id) AS last_seen_at, m.created_at, m.updated_at
"""
_MEMBERS: LiteralString = "team_members m LEFT JOIN users u ON u.id = m.account_id"
_SESSION: LiteralString = "id, user_id, api_key_id, current_team_id, address, browser, created_at, last_seen_at"
_INVITATION: LiteralString = """
    i.id, i.team_id, t.name AS team_name, t.words, i.role, i.makes_operator, i.note, i.invited_by, i.expires_at,
    i.expires_at <= now() AS expired, i.used_at, i.created_at
"""


INSERT_USER = Query(
    model.User,
    f"""
    INSERT INTO users AS u (id, name, password_hash, is_operator)
    VALUES (%(id)s, %(name)s, %(password_hash)s, %(is_operator)s)
    RETURNING {_USER}
    """,
)


SET_RESET = Query(
    int,
    """
    UPDATE users SET reset_hash = %(reset_hash)s, reset_expires_at = now() + make_interval(days => %(days)s), updated_at = now()
     WHERE id = %(id)s
    """,
)


INSERT_MEMBER = Query(
    int,
    """
    INSERT INTO team_members (team_id, user_id, account_id, role, metadata)
    VALUES (%(team_id)s, %(user_id)s, %(account_id)s, %(role)s, %(metadata)s)
    """,
)

UPDATE_MEMBER = Query(
    int,
    """
    UPDATE team_members SET role = %(role)s, metadata = %(metadata)s, updated_at = now()
     WHERE team_id = %(team_id)s AND user_id = %(user_id)s
    """,
)


INSERT_INVITATION = Query(
    int,
    """
    INSERT INTO invitations (id, team_id, role, makes_operator, token_hash, note, invited_by, made_by, expires_at)
    VALUES (%(id)s, %(team_id)s, %(role)s, %(makes_operator)s, %(token_hash)s, %(note)s, %(invited_by)s,
            %(made_by)s, now() + make_interval(days => %(days)s))
    """,
)

INVITATION = Query(
    model.Invitation,
    f"SELECT {_INVITATION} FROM invitations i JOIN teams t ON t.id = i.team_id WHERE i.id = %(id)s AND i.team_id = %(team_id)s",
)


DELETE_INVITATION = Query(int, "DELETE FROM invitations WHERE id = %(id)s AND team_id = %(team_id)s AND used_at IS NULL")

INSERT_SESSION = Query(
    model.WebSession,
    f"""
    INSERT INTO web_sessions (id, token_hash, user_id, api_key_id, current_team_id, address, browser)
    VALUES (%(id)s, %(token_hash)s, %(user_id)s, %(api_key_id)s, %(current_team_id)s, %(address)s, %(browser)s)
    ON CONFLICT (token_hash) DO UPDATE
       SET last_seen_at = now(), address = excluded.address, browser = excluded.browser
    RETURNING {_SESSION}
    """,
)

SESSION = Query(
    model.WebSession,
    f"""
    SELECT {_SESSION}
      FROM web_sessions
     WHERE token_hash = %(token_hash)s AND last_seen_at > now() - make_interval(days => %(idle_days)s)
    """,
)


SESSIONS_OF = Query(
    model.WebSession,
    f"""
    SELECT {_SESSION}
      FROM web_sessions
     WHERE user_id = %(user_id)s AND last_seen_at > now() - make_interval(days => %(idle_days)s)
     ORDER BY last_seen_at DESC, id
    """,
)


END_SESSION_OF = Query(int, "DELETE FROM web_sessions WHERE id = %(id)s AND user_id = %(user_id)s")


# The new session is not there yet.
FORGET_SURPLUS = Query(
    int,
    """
    DELETE FROM web_sessions WHERE id IN (
           SELECT id FROM web_sessions
            WHERE user_id = %(user_id)s::uuid OR api_key_id = %(api_key_id)s::uuid
            ORDER BY last_seen_at > created_at DESC, last_seen_at DESC, id DESC OFFSET %(kept)s)
    """,
)

FORGET_LEFT = Query(int, "DELETE FROM left_memories WHERE expires_at <= now()")

FORGET_ENDED = Query(int, "DELETE FROM web_sessions WHERE last_seen_at <= now() - make_interval(days => %(idle_days)s)")


@query("SELECT EXISTS (SELECT FROM users)")
async def any_user(conn: Conn) -> bool: ...


@query(f"SELECT {_USER} FROM users u WHERE u.id = %(user_id)s")
async def user(conn: Conn, user_id: UUID) -> model.User | None: ...


@query(f"SELECT {_USER} FROM users u WHERE lower(u.name) = lower(%(name)s)")
async def user_named(conn: Conn, name: str) -> model.User | None:
    """The account with that name in any case."""
    ...


@query(f"SELECT {_USER} FROM users u ORDER BY lower(u.name) LIMIT %(limit)s")
async def users(conn: Conn, *, limit: int) -> list[model.User]:
    """Accounts of the whole server, by name."""
    ...


@query("SELECT id, name, password_hash FROM users WHERE lower(name) = lower(%(name)s)")
async def password(conn: Conn, name: str) -> model.StoredPassword | None: ...


@query("SELECT id, name, password_hash FROM users WHERE id = %(user_id)s")
async def password_of(conn: Conn, user_id: UUID) -> model.StoredPassword | None: ...


async def insert_user(conn: Conn, user_id: UUID, name: str, *, password_hash: str | None, is_operator: bool) -> model.User:
    try:
        return await INSERT_USER.one(conn, id=user_id, name=name, password_hash=password_hash, is_operator=is_operator)
    except errors.UniqueViolation as error:
        raise Conflict(f"The name {name!r} is taken. Choose another one, or sign in first if it is yours.") from error


@query("""
    UPDATE users SET password_hash = %(password_hash)s, reset_hash = NULL, reset_expires_at = NULL, updated_at = now()
     WHERE id = %(user_id)s
    """)
async def set_password(conn: Conn, user_id: UUID, password_hash: str) -> None:
    """Also makes a link for a new password useless."""
    ...


@query(f"UPDATE users u SET is_operator = %(is_operator)s, updated_at = now() WHERE u.id = %(user_id)s RETURNING {_USER}")
async def set_operator(conn: Conn, user_id: UUID, *, is_operator: bool) -> model.User: ...


async def set_reset(conn: Conn, user_id: UUID, reset_hash: str) -> None:
    await SET_RESET.run(conn, id=user_id, reset_hash=reset_hash, days=model.RESET_DAYS)


@query(f"SELECT {_USER} FROM users u WHERE u.reset_hash = %(reset_hash)s AND u.reset_expires_at > now() FOR UPDATE")
async def by_reset(conn: Conn, reset_hash: str) -> model.User | None:
    """The account that the link for a new password is for, locked; None when it is used or expired."""
    ...


@query(f"""
    SELECT coalesce(v.id, t.id) AS team_id, t.name || CASE WHEN v.id IS NULL THEN '' ELSE ' (only you)' END AS team_name,
           m.role, t.requests_per_minute, t.events_per_month, v.private_of, v.private_to,
           {FORMER_NAMES} AS names
      FROM team_members m JOIN teams t ON t.id = m.team_id
     CROSS JOIN LATERAL (
           SELECT NULL::uuid AS id, NULL::uuid AS private_of, NULL::uuid AS private_to
            UNION ALL
           SELECT p.id, p.private_of, p.private_to FROM teams p WHERE p.private_of = t.id AND p.private_to = m.account_id) v
     WHERE m.account_id = %(user_id)s AND t.archived_at IS NULL
     ORDER BY t.name, t.id, v.id NULLS FIRST
    """)
async def teams_of(conn: Conn, user_id: UUID) -> list[model.UserTeam]:
    """The person's teams by name, without archived ones; behind each their private place in it, if they have one."""
    ...


@query(f"SELECT {_MEMBER} FROM {_MEMBERS} WHERE m.team_id = %(team_id)s ORDER BY lower(m.user_id), m.user_id")
async def members(conn: Conn, team_id: UUID) -> list[model.Member]:
    """The members of a team, by name."""
    ...


@unprepared_query(f"""
    SELECT {_MEMBER} FROM {_MEMBERS}
     WHERE m.team_id = %(team_id)s
       AND (%(after)s::text IS NULL OR (m.created_at, m.user_id) < (%(before)s::timestamptz, %(after)s))
     ORDER BY m.created_at DESC, m.user_id DESC LIMIT %(limit)s
    """)
async def newest_members(
    conn: Conn, team_id: UUID, *, before: datetime | None, after: str | None, limit: int
) -> list[model.Member]:
    """Newest first, starting after the member `after`, who was added at `before`."""
    ...


# A row of before may differ from another one in letter case alone: the exact name goes first.
@query(f"""
    SELECT {_MEMBER} FROM {_MEMBERS}
     WHERE m.team_id = %(team_id)s AND (lower(m.user_id) = lower(%(reference)s) OR m.account_id::text = %(reference)s)
     ORDER BY m.account_id::text = %(reference)s DESC NULLS LAST, m.user_id = %(reference)s DESC,
              m.account_id IS NULL, m.created_at, m.user_id
     LIMIT 1 FOR UPDATE OF m
    """)
async def lock_member(conn: Conn, team_id: UUID, reference: str) -> model.Member | None:
    """The member with that name in any case, or that id of an account, locked."""
    ...


@query("""
    SELECT EXISTS (
           SELECT FROM team_members
            WHERE team_id = %(team_id)s AND role = 'owner' AND user_id <> %(user_id)s
              AND (account_id IS NOT NULL OR NOT %(who_signs_in)s))
    """)
async def other_owners(conn: Conn, team_id: UUID, user_id: str, *, who_signs_in: bool) -> bool:
    """Whether the team has an owner besides that member; with `who_signs_in` only those with an account count."""
    ...


async def insert_member(
    conn: Conn,
    team_id: UUID,
    user_id: str,
    role: Role,
    *,
    account_id: UUID | None = None,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Conflict when the team has a member with exactly that name."""
    values = {"team_id": team_id, "user_id": user_id, "role": role, "account_id": account_id}
    try:
        await INSERT_MEMBER.run(conn, **values, metadata=Jsonb(metadata or {}))
    except errors.UniqueViolation as error:
        raise Conflict(f"{user_id!r} has just become a member of the team. Try again to change their role.") from error


async def update_member(conn: Conn, team_id: UUID, user_id: str, role: Role, metadata: Mapping[str, object]) -> None:
    await UPDATE_MEMBER.run(conn, team_id=team_id, user_id=user_id, role=role, metadata=Jsonb(metadata))


# A second invitation never takes a role away.
@query("""
    INSERT INTO team_members AS m (team_id, user_id, account_id, role)
    VALUES (%(team_id)s, %(user_id)s, %(account_id)s, %(role)s)
    ON CONFLICT (team_id, user_id) DO UPDATE SET account_id = excluded.account_id, role = excluded.role, updated_at = now()
     WHERE m.account_id IS NULL
        OR m.account_id = excluded.account_id
       AND array_position(ARRAY['viewer', 'member', 'owner'], excluded.role)
         > array_position(ARRAY['viewer', 'member', 'owner'], m.role)
    """)
async def join(conn: Conn, team_id: UUID, user_id: str, account_id: UUID, role: Role) -> None:
    """Add a member who signs in by the account, make it that of the member with exactly that name, or raise their role."""
    ...


@query("DELETE FROM team_members WHERE team_id = %(team_id)s AND user_id = %(user_id)s")
async def remove_member(conn: Conn, team_id: UUID, user_id: str) -> RowCount: ...


async def insert_invitation(
    conn: Conn,
    invitation_id: UUID,
    team_id: UUID,
    *,
    role: Role,
    makes_operator: bool,
    token_hash: str,
    note: str,
    invited_by: str,
    made_by: UUID | None,
) -> model.Invitation:
    """Conflict when there is one with that id."""
    try:
        await INSERT_INVITATION.run(
            conn,
            id=invitation_id,
            team_id=team_id,
            role=role,
            makes_operator=makes_operator,
            token_hash=token_hash,
            note=note,
            invited_by=invited_by,
            made_by=made_by,
            days=model.INVITATION_DAYS,
        )
    except errors.UniqueViolation as error:
        raise Conflict("This invitation was made already. Reload the page to make another one.") from error
    return await INVITATION.one(conn, id=invitation_id, team_id=team_id)


@query(f"""
    SELECT {_INVITATION}
      FROM invitations i JOIN teams t ON t.id = i.team_id
     WHERE i.token_hash = %(token_hash)s AND i.used_at IS NULL AND i.expires_at > now() AND t.archived_at IS NULL
       FOR UPDATE OF i
    """)
async def by_token(conn: Conn, token_hash: str) -> model.Invitation | None:
    """The invitation, locked; None when it is used or expired."""
    ...


@query(f"""
    SELECT {_INVITATION}
      FROM invitations i JOIN teams t ON t.id = i.team_id
     WHERE i.team_id = %(team_id)s AND i.used_at IS NULL
     ORDER BY i.created_at DESC, i.id DESC LIMIT 200
    """)
async def invitations(conn: Conn, team_id: UUID) -> list[model.Invitation]:
    """Invitations that nobody has used, newest first, expired ones too."""
    ...


@query("UPDATE invitations SET used_at = now(), used_by = %(user_id)s WHERE id = %(invitation_id)s")
async def use_invitation(conn: Conn, invitation_id: UUID, user_id: UUID) -> None: ...


async def delete_invitation(conn: Conn, team_id: UUID, invitation_id: UUID) -> bool:
    """Whether there was one to delete."""
    return await DELETE_INVITATION.run(conn, id=invitation_id, team_id=team_id) > 0


# All of a team, or only those that make an operator, in any.
@unprepared_query("""
    DELETE FROM invitations
     WHERE made_by = %(user_id)s AND used_at IS NULL
       AND CASE WHEN %(team_id)s::uuid IS NULL THEN makes_operator ELSE team_id = %(team_id)s END
    RETURNING id, team_id
    """)
async def withdraw_of_maker(conn: Conn, user_id: UUID, team_id: UUID | None) -> list[model.WithdrawnInvitation]:
    """Delete the unused invitations that a person made in the team; for None those of any team that make an operator."""
    ...


async def insert_session(
    conn: Conn,
    session_id: UUID,
    token_hash: str,
    client: model.Client,
    *,
    user_id: UUID | None = None,
    api_key_id: UUID | None = None,
    team_id: UUID | None = None,
) -> model.WebSession:
    """Also deletes sessions that have ended, and of the person or key those above MAX_SESSIONS. One of that token goes on."""
    await FORGET_ENDED.run(conn, idle_days=model.IDLE_DAYS)
    await FORGET_LEFT.run(conn)
    await FORGET_SURPLUS.run(conn, user_id=user_id, api_key_id=api_key_id, kept=model.MAX_SESSIONS - 1)
    return await INSERT_SESSION.one(
        conn,
        id=session_id,
        token_hash=token_hash,
        user_id=user_id,
        api_key_id=api_key_id,
        current_team_id=team_id,
        address=client.address,
        browser=client.browser,
    )


async def session(conn: Conn, token_hash: str) -> model.WebSession | None:
    """The session, if it has not ended."""
    return await SESSION.first(conn, token_hash=token_hash, idle_days=model.IDLE_DAYS)


@query("UPDATE web_sessions SET last_seen_at = now() WHERE id = %(session_id)s AND last_seen_at < now() - interval '1 minute'")
async def touch_session(conn: Conn, session_id: UUID) -> None:
    """Note that the session is in use, once a minute."""
    ...


@query("UPDATE web_sessions SET current_team_id = %(team_id)s WHERE id = %(session_id)s")
async def set_team(conn: Conn, session_id: UUID, team_id: UUID) -> None:
    """Make it the session's current team."""
    ...


async def sessions_of(conn: Conn, user_id: UUID) -> list[model.WebSession]:
    """The person's sessions, the one that was used last first."""
    return await SESSIONS_OF.all(conn, user_id=user_id, idle_days=model.IDLE_DAYS)


@query("DELETE FROM web_sessions WHERE token_hash = %(token_hash)s")
async def end_session(conn: Conn, token_hash: str) -> None: ...


async def end_session_of(conn: Conn, user_id: UUID, session_id: UUID) -> bool:
    """Whether the person had that session."""
    return await END_SESSION_OF.run(conn, id=session_id, user_id=user_id) > 0


@query("DELETE FROM web_sessions WHERE user_id = %(user_id)s AND token_hash <> %(but_token_hash)s")
async def end_sessions_of(conn: Conn, user_id: UUID, *, but_token_hash: str = "") -> RowCount:
    """End the person's sessions but that one; returns how many."""
    ...


@query("""
    SELECT r.*
      FROM jsonb_to_record(personal_memory(%(team_id)s, %(user_id)s)) AS r(personal jsonb, sessions jsonb, observations jsonb)
    """)
async def personal_memory(conn: Conn, team_id: UUID, user_id: UUID) -> model.PersonalMemory:
    """What is the person's alone in the team, and their private sessions there."""
    ...


@query("""
    SELECT l.id, l.left_team AS team_id, t.name AS team_name, l.names, l.created_at, l.expires_at
      FROM left_memories l JOIN teams t ON t.id = l.left_team
     WHERE l.user_id = %(user_id)s AND l.expires_at > now() ORDER BY l.created_at DESC, l.id
    """)
async def left_memories(conn: Conn, user_id: UUID) -> list[model.LeftMemory]:
    """What the person has left in teams, newest first."""
    ...


@query("""
    SELECT r.* FROM left_memories l
     CROSS JOIN LATERAL jsonb_to_record(l.content) AS r(personal jsonb, sessions jsonb, observations jsonb)
     WHERE l.id = %(left_id)s AND l.user_id = %(user_id)s AND l.expires_at > now()
    """)
async def left_content(conn: Conn, user_id: UUID, left_id: UUID) -> model.PersonalMemory | None:
    """What the person had for themselves in the team that they left."""
    ...


@query("DELETE FROM left_memories WHERE id = %(left_id)s AND user_id = %(user_id)s")
async def delete_left(conn: Conn, user_id: UUID, left_id: UUID) -> RowCount: ...


@query("SELECT rename_actor(%(team_id)s, %(names)s, %(new_name)s)::text")
async def rename_actor(conn: Conn, team_id: UUID, names: Sequence[str], new_name: str) -> str:
    """Let what these names gave the team stand under another one."""
    ...
