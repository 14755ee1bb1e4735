"""The server's side of attaching an agent: whom its hooks will ask, and with which key."""

from __future__ import annotations

import socket

import httpx
import msgspec

from cmserver.access import keys
from cmserver.base.configuration import BadSetting
from cmserver.base.errors import CmserverError, Forbidden, Invalid, Misdirected, Unauthenticated
from cmserver.base.http.wire import STATUS
from cmserver.base.settings import Settings
from cmserver.cli import talk
from cmserver.cli.client import Api, refusal
from cmserver.cli.exits import Unreachable
from cmserver.cli.keys import NewKey
from cmserver.hooks.attach.folder import ClientFolder, check_key
from cmserver.hooks.attach.model import SCOPES, Connection

CALLS_PER_MINUTE = 6_000
"""What the hooks' key may do: several agents at work, and what waited while the server was away."""


_NO_SERVER = (
    "No server has been started here yet: `cmserver start` does. For one on another machine say --server URL, and name a file "
    "with its key in CMSERVER_KEY_FILE."
)


class Whom(msgspec.Struct, frozen=True, kw_only=True):
    """The server, the key of whoever runs the command, and the key that the hooks have already, if it may go to that server."""

    url: str
    asking: str
    kept: str | None

    def __repr__(self) -> str:
        return f"Whom(url={self.url!r}, asking='...', kept=...)"


class HookKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key for the hooks. Without a text it is yet to be made."""

    text: str | None
    is_ours: bool

    def __repr__(self) -> str:
        return f"HookKey(text=..., is_ours={self.is_ours!r})"

    @property
    def id(self) -> str | None:
        key_id = None if self.text is None else keys.parse(self.text)[0]
        return None if key_id is None else str(key_id)


class Mcp(msgspec.Struct, frozen=True, kw_only=True):
    """The server's MCP door; what the server says of it, where that is something to be mended."""

    is_open: bool
    why_not: str | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the server has said of itself and of the keys."""

    team: str
    key: HookKey
    mcp: Mcp


class _TeamName(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of GET /v1/info; the team is told only to those who have a key of it."""

    runtime: str | None = None
    team: _TeamName | None = None


def is_here(url: str) -> bool:
    """Whether the server is on this machine."""
    return (httpx.URL(url).host or "") in talk.LOOPBACK


def whom(settings: Settings, url: str | None, key: str | None, folder: ClientFolder, connection: Connection | None) -> Whom:
    """Where nothing is said, an agent that is attached to a server elsewhere stays attached to it."""
    key = key or talk.key_of_file()
    if url is None and connection is not None and not is_here(connection.url):
        url = connection.url
    kept = folder.key() if connection is not None else None
    try:
        address, asking = talk.server_of(settings, url, key)
    except BadSetting as error:
        if kept is None or connection is None or (url is not None and url.rstrip("/") != connection.url):
            if isinstance(error, talk.NoKey) and url is None:
                raise talk.NoKey(_NO_SERVER) from None
            raise
        address, asking = connection.url, kept
    check_key(asking)
    if connection is None or not (address == connection.url or (is_here(address) and is_here(connection.url))):
        kept = None
    return Whom(url=address, asking=asking, kept=kept)


async def look(whom: Whom, connection: Connection | None) -> Found:
    """Which key hooks will have: the one that they have, if it still opens the door; else a new one; else that of whoever asks."""
    if whom.kept is not None and connection is not None:
        async with talk.over_http(whom.url, whom.kept) as client:
            try:
                name, lacking = await _team(Api(client)), await _missing(Api(client))
            except (Unauthenticated, Forbidden):
                lacking, name = list(SCOPES), ""
            if not lacking:
                kept = HookKey(text=whom.kept, is_ours=connection.key_is_ours)
                return Found(team=name, key=kept, mcp=await _mcp(client))
    async with talk.over_http(whom.url, whom.asking) as client:
        api = Api(client)
        name, mcp = await _team(api), await _mcp(client)
        if await _may_mint(api):
            return Found(team=name, key=HookKey(text=None, is_ours=True), mcp=mcp)
        lacking = await _missing(api)
    if lacking:
        raise Forbidden(
            f"This key may neither make keys nor be the hooks' own: it does not have {', '.join(lacking)}. "
            "Ask an owner of the team for a key with these scopes, or with keys:write."
        )
    return Found(team=name, key=HookKey(text=whom.asking, is_ours=False), mcp=mcp)


async def mint(whom: Whom, agent: str) -> HookKey:
    """A new key with the least scopes, seen to work."""
    wanted: dict[str, object] = {"name": label(agent), "scopes": list(SCOPES)}
    async with talk.over_http(whom.url, whom.asking) as client:
        try:
            answer = await Api(client).post("/v1/keys", {**wanted, "requestsPerMinute": CALLS_PER_MINUTE})
        except Forbidden:  # more than the asking key has itself
            answer = await Api(client).post("/v1/keys", wanted)
    text = answer.read(NewKey).api_key
    made = HookKey(text=text, is_ours=True)
    async with talk.over_http(whom.url, text) as client:
        await _team(Api(client))
        lacking = await _missing(Api(client))
    if lacking:
        raise CmserverError(f"The new key {made.id} may not do what hooks do ({', '.join(lacking)}); nothing is written.")
    return made


def label(agent: str) -> str:
    """What the key is called in lists of keys."""
    host = "".join(one for one in socket.gethostname() if one.isprintable())
    return f"Hooks of {agent} on {host or 'a machine'}"[:120]


async def revoke(url: str, key: str) -> str | None:
    """End a key, with itself. A sentence when that could not be done."""
    key_id = keys.parse(key)[0]
    try:
        async with talk.over_http(url, key) as client:
            await Api(client).delete(f"/v1/keys/{key_id}")
    except Unreachable:
        return (
            f"The server at {url} does not answer, so that the key {key_id} goes on working there. "
            f"When it is back: cmserver keys revoke {key_id}"
        )
    except (Unauthenticated, Forbidden):
        return None  # it is over already
    except CmserverError as error:
        return f"The key {key_id} could not be revoked: {error}"
    return None


async def project_id(whom: Whom, name: str) -> str:
    """The id of that project, which is made if there is none."""
    async with talk.over_http(whom.url, whom.asking) as client:
        return (await Api(client).post("/v1/projects", {"canonicalId": name})).read(_OneProject).project.id


class _Project(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class _OneProject(msgspec.Struct, frozen=True, kw_only=True):
    project: _Project


async def _team(api: Api) -> str:
    """The team that the key opens, as the server says. Raises what the server refuses."""
    info = (await api.get("/v1/info")).read(_Info)
    if info.runtime != "cmserver":
        raise CmserverError("What answers there is no cmserver: is CMSERVER_URL or --server right?")
    if info.team is None:
        raise Unauthenticated("The server does not know the key.")
    return info.team.name


async def _missing(api: Api) -> list[str]:
    """The scopes that hooks need and the key has not. Asked by requests that do nothing: what is in them is wrong."""
    found: list[str] = []
    for scope, ask in (
        (SCOPES[0], lambda: api.post("/v1/events", {"metadata": None})),
        (SCOPES[1], lambda: api.post("/v1/sessions/start", {"metadata": None})),
        (SCOPES[2], lambda: api.get("/v1/observations", {"limit": 1})),
    ):
        try:
            await ask()
        except Forbidden:
            found.append(scope)
        except Invalid:
            continue
    return found


async def _may_mint(api: Api) -> bool:
    try:
        await api.get("/v1/keys", {"limit": 1})
    except Forbidden:
        return False
    return True


async def _mcp(client: httpx.AsyncClient) -> Mcp:
    """Whether the server has an MCP door, and opens it under this name; a dead one would be shown to the user at each start."""
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, timeout=5.0, headers=headers)
    except httpx.HTTPError:
        return Mcp(is_open=False)
    if answer.status_code == STATUS[Misdirected][0]:
        return Mcp(is_open=False, why_not=str(refusal(answer)))
    return Mcp(is_open=answer.is_success)
