"""The key of an agent's calls, and the server they go to: chosen, made, checked and revoked through the API."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import httpx
import msgspec

from cmserver.base.configuration import BadSetting
from cmserver.base.credentials import parse_key_id
from cmserver.base.errors import CmserverError, Forbidden, Invalid, Misdirected, Unauthenticated
from cmserver.base.http.wire import STATUS
from cmserver.base.settings import Settings
from cmserver.client import server_api
from cmserver.client.client_folder import ClientFolder, Connection, check_key
from cmserver.client.dialog import Report
from cmserver.client.server_api import Api, ApiAnswer, MissingKey, ServerUnreachable, is_local, refusal

SCOPES = ("events:write", "sessions:write", "observations:read")
"""What hooks need: to send events, to start and end sessions, to get context."""

READING_SCOPES = ("observations:read",)
"""What an agent without hooks needs."""

WRITING_SCOPE = "observations:write"
"""With --allow-writing: the agent may also store observations, by the MCP tool for it."""

CALLS_PER_MINUTE = 6_000
"""The limit of the hooks' key: several agents at work, and what the spool held while the server was away."""

_NO_SERVER = (
    "No server has been started here yet: run `cmserver start`. For a server on another machine pass --server URL, and name a file "
    "with its key in CMSERVER_KEY_FILE."
)


class ConnectTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The server that an agent is connected to, the user's key there, and the key that the agent has for it already."""

    url: str
    user_key: str
    agent_key: str | None

    def __repr__(self) -> str:
        return f"ConnectTarget(url={self.url!r}, user_key='...', agent_key=...)"


class HookKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key for an agent's calls. Without a text it has to be made, with these scopes."""

    text: str | None
    is_ours: bool
    scopes: tuple[str, ...] = SCOPES

    def __repr__(self) -> str:
        return f"HookKey(text=..., is_ours={self.is_ours!r})"

    @property
    def id(self) -> str | None:
        key_id = None if self.text is None else parse_key_id(self.text)
        return None if key_id is None else str(key_id)


class McpEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server answers at /mcp, or the problem that its user can solve."""

    is_open: bool
    problem: str | None = None


class ServerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says of the keys and of itself."""

    team: str
    key: HookKey
    mcp: McpEndpoint
    words: str = "members"
    """Who of the team reads what others said: `members`, `owners` or `nobody`."""


class _Team(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of GET /v1/info, which names the team only to its keys."""

    runtime: str | None = None
    team: _Team | None = None


class _TeamWords(msgspec.Struct, frozen=True, kw_only=True):
    words: str = "members"


class _Teams(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of GET /v1/teams. A server of before has no `words`: every member reads."""

    teams: list[_TeamWords] = []


class _NewKey(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    api_key: str


class _Project(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class _ProjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    project: _Project


def resolve_target(
    settings: Settings, url: str | None, key: str | None, folder: ClientFolder, connection: Connection | None
) -> ConnectTarget:
    """The server and the keys for it. Without a URL an agent stays connected to a server on another machine."""
    key = key or server_api.read_key_file()
    if url is None and connection is not None and not is_local(connection.url):
        url = connection.url
    agent_key = folder.key() if connection is not None else None
    try:
        address, user_key = server_api.resolve_server(settings, url, key)
    except BadSetting as error:
        if agent_key is None or connection is None or (url is not None and url.rstrip("/") != connection.url):
            if isinstance(error, MissingKey) and url is None:
                raise MissingKey(_NO_SERVER) from None
            raise
        address, user_key = connection.url, agent_key
    check_key(user_key)
    if connection is None or not (address == connection.url or (is_local(address) and is_local(connection.url))):
        agent_key = None
    return ConnectTarget(url=address, user_key=user_key, agent_key=agent_key)


async def check_server(target: ConnectTarget, connection: Connection | None, scopes: Sequence[str] = SCOPES) -> ServerCheck:
    """The key that the agent will have: its own while that has the scopes, else a new one, else the user's."""
    if target.agent_key is not None and connection is not None:
        async with server_api.open_http_client(target.url, target.agent_key) as http:
            try:
                team, missing = await _read_team(Api(http)), await _find_missing_scopes(Api(http), scopes)
            except (Unauthenticated, Forbidden):
                team, missing = "", list(scopes)
            if not missing:
                key = HookKey(text=target.agent_key, is_ours=connection.key_is_ours)
                return ServerCheck(team=team, key=key, mcp=await _check_mcp(http), words=await _read_words(Api(http)))
    async with server_api.open_http_client(target.url, target.user_key) as http:
        api = Api(http)
        team, mcp, words = await _read_team(api), await _check_mcp(http), await _read_words(api)
        if await _can_make_keys(api):
            return ServerCheck(team=team, key=HookKey(text=None, is_ours=True, scopes=tuple(scopes)), mcp=mcp, words=words)
        missing = await _find_missing_scopes(api, scopes)
    if missing:
        raise Forbidden(
            f"This key can neither make keys nor be the agent's own: it does not have {', '.join(missing)}. "
            "Ask an owner of the team for a key with these scopes, or with keys:write."
        )
    return ServerCheck(team=team, key=HookKey(text=target.user_key, is_ours=False), mcp=mcp, words=words)


async def make_key(target: ConnectTarget, agent: str, scopes: Sequence[str] = SCOPES) -> HookKey:
    """A new key with these scopes, checked."""
    body: dict[str, object] = {"name": key_name(agent, scopes), "scopes": list(scopes)}
    async with server_api.open_http_client(target.url, target.user_key) as http:
        try:
            answer = await Api(http).post("/v1/keys", {**body, "requestsPerMinute": CALLS_PER_MINUTE})
        except Forbidden:  # the user's key has a lower limit itself
            answer = await Api(http).post("/v1/keys", body)
    key = HookKey(text=answer.read(_NewKey).api_key, is_ours=True)
    async with server_api.open_http_client(target.url, key.text or "") as http:
        await _read_team(Api(http))
        missing = await _find_missing_scopes(Api(http), scopes)
    if missing:
        raise CmserverError(f"The new key {key.id} does not have {', '.join(missing)}; nothing is written.")
    return key


def key_name(agent: str, scopes: Sequence[str] = SCOPES) -> str:
    """The name of the key in the team's list of keys."""
    use = "Hooks" if SCOPES[0] in scopes else "Tools"
    host = "".join(char for char in socket.gethostname() if char.isprintable())
    return f"{use} of {agent} on {host or 'a machine'}"[:120]


async def revoke_key(url: str, key: str, *, only: bool = False) -> str | None:
    """Revoke a key with itself, and its chain of rotations unless `only`. Returns a sentence when that was not possible."""
    key_id = parse_key_id(key)
    try:
        async with server_api.open_http_client(url, key) as http:
            await Api(http).delete(f"/v1/keys/{key_id}", {"only": only or None})
    except ServerUnreachable:
        return (
            f"The server at {url} does not answer, so the key {key_id} is still valid there. "
            f"Later, run `cmserver keys revoke {key_id}`."
        )
    except (Unauthenticated, Forbidden):
        return None  # it is revoked or expired already
    except CmserverError as error:
        return f"The key {key_id} could not be revoked: {error}"
    return None


async def end_key(url: str, key: str, *, only: bool = False) -> str | None:
    """End a key with itself, so that what was sent with it is still worked. Returns a sentence when that was not possible.

    Jobs of a revoked key fail, those of a rotated one go on: it is rotated at once, and its successor, which nobody has, revoked.
    One that somebody else has rotated is revoked with its chain, or alone with `only`.
    """
    try:
        async with server_api.open_http_client(url, key) as http:
            answer = await Api(http).post(f"/v1/keys/{parse_key_id(key)}/rotate", {"overlapSeconds": 0})
            successor = answer.read(_NewKey).api_key
    except CmserverError:
        return await revoke_key(url, key, only=only)
    return await revoke_key(url, successor, only=True)


def end_own_key(connection: Connection, key: str | None, report: Report, *, only: bool = False) -> None:
    """End the key of a connection, if `cmserver connect` made it."""
    if connection.key_is_ours and key is not None:
        problem = asyncio.run(end_key(connection.url, key, only=only))
        if problem is not None:
            report(problem, err=True)


async def ensure_project(target: ConnectTarget, name: str) -> str:
    """The id of the project of that name, made if there is none."""
    async with server_api.open_http_client(target.url, target.user_key) as http:
        return (await Api(http).post("/v1/projects", {"canonicalId": name})).read(_ProjectAnswer).project.id


async def _read_team(api: Api) -> str:
    """The name of the key's team. Raises what the server refuses."""
    info = (await api.get("/v1/info")).read(_Info)
    if info.runtime != "cmserver":
        raise CmserverError("The server at this address is not cmserver: is CMSERVER_URL or --server right?")
    if info.team is None:
        raise Unauthenticated(
            "The server does not know this key: it is of another server, or was revoked. Pass another with --key."
        )
    return info.team.name


async def _read_words(api: Api) -> str:
    """Who of the key's team reads what others said."""
    return next((team.words for team in (await api.get("/v1/teams")).read(_Teams).teams), "members")


async def _find_missing_scopes(api: Api, scopes: Sequence[str]) -> list[str]:
    """The scopes that the key does not have, found by invalid requests, which change nothing."""
    probes: dict[str, Callable[[], Awaitable[ApiAnswer]]] = {
        "events:write": lambda: api.post("/v1/events", {"metadata": None}),
        "sessions:write": lambda: api.post("/v1/sessions/start", {"metadata": None}),
        "observations:read": lambda: api.get("/v1/observations", {"limit": 1}),
        WRITING_SCOPE: lambda: api.post("/v1/observations", {"title": 0}),
    }
    missing: list[str] = []
    for scope in scopes:
        try:
            await probes[scope]()
        except Forbidden:
            missing.append(scope)
        except Invalid:
            continue
    return missing


async def _can_make_keys(api: Api) -> bool:
    try:
        await api.get("/v1/keys", {"limit": 1})
    except Forbidden:
        return False
    return True


async def _check_mcp(http: httpx.AsyncClient) -> McpEndpoint:
    """Whether the server has MCP under this name. An agent would show a dead MCP server to its user at each start."""
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        response = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, timeout=5.0, headers=headers)
    except httpx.HTTPError:
        return McpEndpoint(is_open=False)
    if response.status_code == STATUS[Misdirected][0]:
        return McpEndpoint(is_open=False, problem=str(refusal(response)))
    return McpEndpoint(is_open=response.is_success)
