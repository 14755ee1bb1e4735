"""Signs people in and out, and finds who is signed in, by tables that only the owner reads."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID, uuid5

import msgspec

from cmserver.access import audit
from cmserver.access import repository as access
from cmserver.access.authenticate import find_refusal, key_principal
from cmserver.access.keys import repository as keys
from cmserver.access.keys.manage import USUAL_REQUESTS_PER_MINUTE
from cmserver.access.limits.meter import Meter
from cmserver.access.model import SCOPES_BY_ROLE, Limits, Principal
from cmserver.access.people import repository
from cmserver.access.people.attempts import ACCOUNT, ADDRESS, ONE, SignInAttempts
from cmserver.access.people.manage import ROLES
from cmserver.access.people.model import Client, Invitation, Login, StoredPassword, User, UserTeam, WebSession
from cmserver.access.people.passwords import KNOWN, Passwords, hash_token, new_token
from cmserver.access.private import go_inside
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, NotFound, Unauthenticated
from cmserver.base.http.address import network_of
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn

T = TypeVar("T")

WRONG = "The name or the password is wrong. An operator of the server can send a new link: `cmserver users reset NAME`."
NO_LINK = "This link is used, expired or wrong. Ask for a new one."


class Accounts:
    """People's accounts and sessions; one instance per process."""

    def __init__(self, db: Db, meter: Meter, secret: bytes) -> None:
        self._db = db
        self._meter = meter
        self._csrf_key = hashlib.blake2b(secret, person=b"csrf").digest()
        self._proxy_key = hashlib.blake2b(secret, person=b"proxy").digest()
        self._browser_key = hashlib.blake2b(secret, person=b"browser").digest()
        self._passwords = Passwords()
        self._attempts = SignInAttempts()

    async def run(self, act: Callable[[Conn], Awaitable[T]]) -> T:
        """Run a verb of this room in a transaction of the owner."""
        return await self._db.in_system(act)

    # ---- signing in; each returns the token of a new session

    async def sign_in(self, name: str, password: str, client: Client, *, browser_token: str = "") -> str:
        """By name and password. Forbidden when one is wrong; RateLimited after too many failures, or while too many are checked.

        With the `browser_token` of an earlier sign-in of the account only failures of that browser count.
        """
        name = name.strip()
        known_as = self._find_browser(name, browser_token)
        stored = await self._check_password(
            lambda conn: repository.password(conn, name), password, name, client, WRONG, known_as=known_as
        )
        return await self.start_session(client, user_id=stored.id)

    def new_browser_token(self, name: str) -> str:
        """For the browser in which the person of that name has signed in: it tells this one from those of strangers."""
        number = new_token()
        return f"{number}.{self._browser_signature(name, number)}"

    def _find_browser(self, name: str, browser_token: str) -> str:
        """The number of a browser that knows the account; empty for any other."""
        number, _, signature = browser_token.partition(".")
        expected = self._browser_signature(name, number)
        return number if hmac.compare_digest(expected.encode(), signature.encode(errors="replace")) else ""

    def _browser_signature(self, name: str, number: str) -> str:
        text = f"{number} {name.strip().lower()}".encode(errors="replace")
        return hmac.new(self._browser_key, text, hashlib.sha256).hexdigest()

    async def _check_password(
        self,
        find: Callable[[Conn], Awaitable[StoredPassword | None]],
        password: str,
        name: str,
        client: Client,
        refusal: str,
        *,
        known_as: str = "",
    ) -> StoredPassword:
        """The account whose password it is; Forbidden, with that refusal, when it is wrong."""
        account, network = f"account {name.lower()}", network_of(client.address)
        own = f"{account} at {KNOWN}{known_as}" if known_as else f"{account} at {network}"
        paces = {own: ONE} if known_as else {own: ONE, f"address {network}": ADDRESS, account: ACCOUNT}
        self._attempts.begin(paces)
        try:
            holder = f"{KNOWN}{known_as}" if known_as else network
            stored = await self.run(find)
            is_right = await self._passwords.verify(stored.password_hash if stored else None, password, holder=holder)
        except Exception:  # it was not tried
            self._attempts.take_back(paces)
            raise
        if stored is None or not is_right:
            raise Forbidden(refusal)
        self._attempts.take_back(paces)
        self._attempts.forget(own)
        return stored

    async def sign_in_with_key(self, principal: Principal, client: Client) -> str:
        """By a key that was authenticated."""
        return await self.start_session(client, api_key_id=principal.key_id, team_id=principal.team_id)

    async def find_by_proxy(self, name: str, client: Client) -> Login | None:
        """Who is named by a trusted proxy; None when no account has the name.

        A person has one session behind proxies, whose token no browser gets: without the proxy's word it lets nobody in.
        """
        user = await self.run(lambda conn: repository.user_named(conn, name))
        if user is None:
            return None
        token = hmac.new(self._proxy_key, str(user.id).encode(), hashlib.sha256).hexdigest()
        return await self.find(token) or await self.find(await self.start_session(client, user_id=user.id, token=token))

    async def start_session(
        self,
        client: Client,
        *,
        user_id: UUID | None = None,
        api_key_id: UUID | None = None,
        team_id: UUID | None = None,
        token: str = "",
    ) -> str:
        """A session of a person or a key, and its token: a new one, or the given one."""
        token = token or new_token()

        async def insert(conn: Conn) -> WebSession:
            return await repository.insert_session(
                conn, new_id(), hash_token(token), client, user_id=user_id, api_key_id=api_key_id, team_id=team_id
            )

        await self.run(insert)
        return token

    async def end_session(self, token: str) -> None:
        """Sign out."""
        await self.run(lambda conn: repository.end_session(conn, hash_token(token)))

    async def switch_team(self, signed_in: Login, team_id: UUID) -> None:
        """Make one of the person's teams the current one of the session."""
        await self.run(lambda conn: repository.set_team(conn, signed_in.session.id, team_id))

    # ---- links

    async def find_invitation(self, token: str) -> Invitation:
        """NotFound when the link is used, expired or wrong."""
        invitation = await self.run(lambda conn: repository.by_token(conn, hash_token(token)))
        if invitation is None:
            raise NotFound(NO_LINK)
        return invitation

    async def accept_as_new(self, token: str, name: str, password: str) -> User:
        """Make an account and use the invitation for it; Conflict when the name is taken."""
        await self.find_invitation(token)  # before the work of hashing
        password_hash = await self._passwords.hash(password)

        async def accept(conn: Conn) -> User:
            invitation = await _require_invitation(conn, token)
            user = await repository.insert_user(
                conn, new_id(), name, password_hash=password_hash, is_operator=invitation.makes_operator
            )
            await _join(conn, invitation, user)
            return user

        return await self.run(accept)

    async def accept(self, token: str, user: User) -> Invitation:
        """Use the invitation for an account that exists; the person has at least its role afterwards."""

        async def accept(conn: Conn) -> Invitation:
            invitation = await _require_invitation(conn, token)
            if invitation.makes_operator:
                await repository.set_operator(conn, user.id, is_operator=True)
            await _join(conn, invitation, user)
            return invitation

        return await self.run(accept)

    async def find_reset(self, token: str) -> User:
        """Whom a link for a new password is for; NotFound when it is used, expired or wrong."""
        user = await self.run(lambda conn: repository.by_reset(conn, hash_token(token)))
        if user is None:
            raise NotFound(NO_LINK)
        return user

    async def reset_password(self, token: str, password: str) -> User:
        """Set the password by a link, once; the person's sessions end."""
        await self.find_reset(token)
        password_hash = await self._passwords.hash(password)

        async def reset(conn: Conn) -> User:
            user = await repository.by_reset(conn, hash_token(token))
            if user is None:
                raise NotFound(NO_LINK)
            await repository.set_password(conn, user.id, password_hash)
            await repository.end_sessions_of(conn, user.id)
            return user

        return await self.run(reset)

    async def change_password(self, user: User, current: str, password: str, client: Client) -> None:
        """Set another password. Forbidden when `current` is wrong. The person's sessions end: start a new one."""
        wrong = "The current password is wrong."
        await self._check_password(lambda conn: repository.password_of(conn, user.id), current, user.name, client, wrong)
        password_hash = await self._passwords.hash(password, holder=network_of(client.address))

        async def change(conn: Conn) -> None:
            await repository.set_password(conn, user.id, password_hash)
            await repository.end_sessions_of(conn, user.id)

        await self.run(change)

    # ---- who is signed in

    async def find(self, token: str) -> Login | None:
        """Who is signed in by that token, in their current team; None for an ended session."""

        async def find(conn: Conn) -> Login | None:
            session = await repository.session(conn, hash_token(token))
            if session is None:
                return None
            await repository.touch_session(conn, session.id)
            if session.api_key_id is not None:
                return await self._find_key(conn, session, token)
            user = await repository.user(conn, session.user_id) if session.user_id else None
            if user is None:
                return None
            teams = await repository.teams_of(conn, user.id)
            current = next((team for team in teams if team.team_id == session.current_team_id), teams[0] if teams else None)
            principal = self._find_principal(user, teams, current) if current else None
            return self._signed_in(session, token, user, teams, principal)

        return await self.run(find)

    async def admit(self, signed_in: Login, scope: str) -> Principal:
        """Count the request, check the scope ("" requires none). Errors as for a key; Unauthenticated without a team."""
        principal = signed_in.principal
        if principal is None:
            raise Unauthenticated("You do not belong to a team yet. Ask an owner of one for an invitation.")
        await self._meter.admit(principal, scope)
        if scope:
            await self._meter.denials.require(principal, scope)
        return principal

    def _find_principal(self, user: User, teams: list[UserTeam], current: UserTeam) -> Principal:
        """The person in the current team, which may be their private place."""
        home = next(team for team in teams if team.team_id == (current.private_of or current.team_id))
        private = next((team for team in teams if team.private_of == home.team_id), None)
        principal = self.person_principal(user, home)
        if private is not None:
            principal = msgspec.structs.replace(principal, private_id=private.team_id, private_to=private.private_to)
        return principal if current.private_of is None else go_inside(principal)

    def person_principal(self, user: User, team: UserTeam) -> Principal:
        """The person in one of their teams."""
        scopes = SCOPES_BY_ROLE[team.role]
        return Principal(
            kind="person",
            team_id=team.team_id,
            team_name=team.team_name,
            project_id=None,
            key_id=None,
            user_id=user.id,
            counts_as=uuid5(team.team_id, str(user.id)),  # a bucket belongs to one team
            actor_id=user.name,
            names=team.names,
            scopes=scopes | {"*"} if user.is_operator else scopes,
            limits=Limits(
                requests_per_minute=USUAL_REQUESTS_PER_MINUTE,
                team_requests_per_minute=team.requests_per_minute,
                team_events_per_month=team.events_per_month,
            ),
        )

    async def _find_key(self, conn: Conn, session: WebSession, token: str) -> Login | None:
        assert session.api_key_id is not None
        keys = await access.find_keys(conn, [session.api_key_id], [])
        if not keys or find_refusal(keys[0]) is not None:
            return None
        return self._signed_in(session, token, None, [], key_principal(keys[0]))

    def _signed_in(
        self, session: WebSession, token: str, user: User | None, teams: list[UserTeam], principal: Principal | None
    ) -> Login:
        csrf_token = hmac.new(self._csrf_key, hash_token(token).encode(), hashlib.sha256).hexdigest()
        return Login(session=session, user=user, teams=teams, principal=principal, csrf_token=csrf_token)


async def _require_invitation(conn: Conn, token: str) -> Invitation:
    invitation = await repository.by_token(conn, hash_token(token))
    if invitation is None:
        raise NotFound(NO_LINK)
    return invitation


async def _join(conn: Conn, invitation: Invitation, user: User) -> None:
    """Make the person a member, and use the invitation. A member without an account who has the name gets this one.

    Conflict when that member is more than the invitation makes: a name alone gives no role. And when work of another member stands
    under that name, by a key that they have bound since.
    """
    if await keys.was_name_of_another(conn, invitation.team_id, user.name, user.id):
        raise Conflict(f"In this team {user.name} was the name of another member's key. Choose another name.")
    member = await repository.lock_member(conn, invitation.team_id, user.name)
    if member and member.account_id not in (None, user.id):
        raise Conflict(f"In this team {member.user_id} is another person. Ask its owner to remove that member first.")
    if member and member.account_id is None and ROLES.index(member.role) > ROLES.index(invitation.role):
        raise Conflict(
            f"In this team {member.user_id} is the name of its {member.role}, and the invitation is for a {invitation.role}. "
            f"Choose another name, or ask for an invitation as {member.role}."
        )
    await repository.join(conn, invitation.team_id, member.user_id if member else user.name, user.id, invitation.role)
    await repository.use_invitation(conn, invitation.id, user.id)
    actor = Principal(
        kind="person",
        team_id=invitation.team_id,
        project_id=None,
        key_id=None,
        user_id=user.id,
        actor_id=user.name,
        scopes=SCOPES_BY_ROLE[invitation.role],
    )
    await audit.record(
        conn, actor, "person.joined", "user", user.id, role=invitation.role, invited_by=invitation.invited_by, name=user.name
    )
