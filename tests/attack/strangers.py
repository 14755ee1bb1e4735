"""Random requests by people who may not see what is Alice's, with what each answer must not tell them.

The routes come from the router, the tools from the MCP server: a new one is attacked without anybody adding it here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec

from cmserver.access.keys import manage as manage_keys
from cmserver.access.model import SCOPES
from cmserver.app import ROUTES
from cmserver.base.db import Db
from cmserver.doors.mcp.resources import CONTEXT, OBSERVATION, SUMMARY
from tests.conftest import mint
from tests.doors.mcp.tools import SENT
from tests.house import walk
from tests.house.walk import Answered, Kind, Slot, Stop, Things, Walker, Way

REFUSED = {401, 403, 429}
MADE_KINDS = {"project", "user"}
"""What a write may make anew in the attacker's own team, under a name that Alice has given too. There only ids are tried;
tests/house/walk.py tries the names, one at a time."""
READING_POSTS = {"POST /v1/search", "POST /v1/timeline"}
_URIS: Mapping[str, Kind] = {OBSERVATION: "observation", SUMMARY: "session", CONTEXT: "project"}


class Attacker(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody with a key that must not open what is Alice's."""

    name: str
    key: str | None
    own: Mapping[Kind, str]
    is_valid: bool = True
    """Whether the key opens anything at all."""


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """A name of a thing of hers, and one of the same form that nobody has given."""

    hers: str
    nobodys: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request: a route, a tool or a message of MCP, with what stands in some of its slots."""

    stop: Stop
    values: Mapping[Slot, Naming]
    message: Mapping[str, object] | None = None
    """Of MCP, beside tools: method and parameters, with `{}` where the value goes."""

    @property
    def name(self) -> str:
        named = ", ".join(f"{slot.name}={naming.hers}" for slot, naming in self.values.items())
        what = str(self.message["method"]) if self.message else self.stop.name
        return f"{what} with {named or 'nothing of hers'}"


class Report(msgspec.Struct, kw_only=True):
    """What a walk has done and found."""

    requests: int = 0
    complaints: list[str] = msgspec.field(default_factory=list[str])
    statuses: Counter[int] = msgspec.field(default_factory=Counter[int])
    stops: set[str] = msgspec.field(default_factory=set[str])

    @property
    def summary(self) -> str:
        return f"{self.requests} requests at {len(self.stops)} places, answered {dict(sorted(self.statuses.items()))}"


# ---- who


async def keys_of_strangers(db: Db, charlie: Attacker, charlies_team: UUID, alices_team: UUID, alices_key: str) -> list[Attacker]:
    """The other team with all scopes and with each single one; keys of Alice's team that are over; what is no key; and no key."""
    attackers = [charlie]
    for scope in SCOPES:
        _, key = await mint(db, charlies_team, f"only {scope}", scopes=[scope])
        attackers.append(Attacker(name=f"the other team, {scope} only", key=key, own=charlie.own))
    async with db.system() as conn:
        revoked = await manage_keys.mint(conn, alices_team, scopes=["*"], actor_id="revoked")
        expired = await manage_keys.mint(
            conn, alices_team, scopes=["*"], actor_id="expired", expires_at=datetime.now(UTC) - timedelta(days=1)
        )
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [revoked.id])
    prefix, key_id, secret = alices_key.split("_")
    dead: dict[str, str | None] = {
        "a revoked key of hers": revoked.text,
        "an expired key of hers": expired.text,
        "no key": None,
        "an empty key": "",
        "her key with another secret": f"{prefix}_{key_id}_{secret[::-1]}",
        "her key without its end": alices_key[:-1],
        "her key's id": key_id,
        "her key with more behind it": f"{alices_key}x",
        "a key of another form": "sk-ant-api03-nothing",
        "a key with spaces": f"{prefix} {key_id} {secret}",
        "SQL": "cms_' OR '1'='1_x",
        "a long key": f"cms_{'a' * 4000}",
    }
    return [*attackers, *(Attacker(name=name, key=key, own=charlie.own, is_valid=False) for name, key in dead.items())]


async def keys_of_the_other_project(db: Db, bound: Attacker, team_id: UUID, project_id: UUID) -> list[Attacker]:
    """Of Alice's team, for another project: with all scopes, and with each single one."""
    attackers = [bound]
    for scope in SCOPES:
        _, key = await mint(db, team_id, f"bound, {scope}", scopes=[scope], project_id=project_id)
        attackers.append(Attacker(name=f"the other project, {scope} only", key=key, own=bound.own))
    return attackers


# ---- what


def attempts(theirs: Things, random: Random) -> Iterator[Attempt]:
    """Without end: a random place, and what is theirs in a random choice of its slots."""
    every = [stop for stop in walk.stops() if stop.path not in walk.ENDLESS]
    while True:
        if random.random() < 0.1:
            yield message(theirs, random)
            continue
        stop = random.choice(every)
        slots = [slot for slot in stop.slots if ways(stop, slot, theirs)]
        if slots:
            chosen = random.sample(slots, random.randint(1, min(3, len(slots))))
            yield Attempt(
                stop=stop, values={slot: naming(slot.kind, random.choice(ways(stop, slot, theirs)), random) for slot in chosen}
            )
        elif stop.reads:
            yield Attempt(stop=stop, values={})


def ways(stop: Stop, slot: Slot, theirs: Things) -> Sequence[Way]:
    """How a thing of theirs can be named there without making a new one of that name."""
    every = theirs.ways[slot.kind]
    if stop.reads or slot.kind not in MADE_KINDS:
        return every
    return [way for way in every if not way.is_made_up]


def naming(kind: Kind, way: Way, random: Random) -> Naming:
    """An id is now and then written in another way; not that of a project, which would be the name of a new project then."""
    is_id = kind != "project" and re.fullmatch(r"[0-9a-f-]{36}", way.hers)
    write = random.choice(_SPELLINGS) if is_id else str
    return Naming(hers=write(way.hers), nobodys=write(way.nobodys()))


def _without_hyphens(text: str) -> str:
    return text.replace("-", "")


def _with_a_space(text: str) -> str:
    return f" {text}"


_SPELLINGS: list[Callable[[str], str]] = [str, str, str, str.upper, _without_hyphens, _with_a_space]


def message(theirs: Things, random: Random) -> Attempt:
    """A message of MCP that is no call of a tool, with the slot that it names something in."""
    if random.random() < 0.3:
        method = random.choice(["resources/list", "prompts/list", "tools/list", "resources/templates/list"])
        return Attempt(stop=_MCP, values={}, message={"method": method, "params": {}})
    uri, kind = random.choice(list(_URIS.items()))
    named = naming(kind, random.choice(theirs.ways[kind]), random)
    slot = Slot("message", kind, kind)
    params = {"uri": re.sub(r"\{\w+\}", "{}", uri)}
    return Attempt(stop=_MCP, values={slot: named}, message={"method": "resources/read", "params": params})


_MCP = Stop("POST", "/mcp", [], None)


# ---- how


class Attack:
    """Sends attempts and their twins, in which a thing that nobody has stands for each of hers."""

    def __init__(self, client: httpx.AsyncClient, theirs: Things, random: Random) -> None:
        self._client = client
        self._theirs = theirs
        self._random = random
        self.report = Report()

    async def send_many(self, attackers: Sequence[Attacker], requests: int) -> None:
        """At least so many, by random attackers."""
        end = self.report.requests + requests
        for attempt in attempts(self._theirs, self._random):
            if self.report.requests >= end or len(self.report.complaints) > 20:
                return
            await self.send(self._random.choice(attackers), attempt)

    async def send(self, attacker: Attacker, attempt: Attempt) -> None:
        values = {slot: naming.hers for slot, naming in attempt.values.items()}
        nobodys = {slot: naming.nobodys for slot, naming in attempt.values.items()}
        first, second = await self._ask(attacker, attempt, nobodys), await self._ask(attacker, attempt, values)
        sent = [spelling for text in (*values.values(), *nobodys.values()) for spelling in _spellings(text)]
        missing, hers = first.without(*sent), second.without(*sent)
        what = f"{attacker.name}: {attempt.name}"
        self.report.stops.add(str(attempt.message["method"]) if attempt.message else attempt.stop.name)
        self.report.complaints += [f"{what} shows {name}" for name in self._shown(hers)]
        if hers.status >= 500:
            self.report.complaints.append(f"{what} breaks: {hers.status} {hers.body[:300]}")
        if not attacker.is_valid and _needs_key(attempt.stop) and hers.status not in REFUSED:
            self.report.complaints.append(f"{what} is answered {hers.status} {hers.body[:300]}")
        if self._is_comparable(attempt, missing, hers) and missing != hers:
            self.report.complaints.append(
                f"{what} answers {hers.status} {hers.body[:300]}, but for what does not exist {missing.status} {missing.body[:300]}"
            )

    def _is_comparable(self, attempt: Attempt, missing: Answered, hers: Answered) -> bool:
        """Not what changes by itself, what is made anew each time, and what is refused for coming too often."""
        if 429 in {missing.status, hers.status} or attempt.stop.name in walk.UNREAD:
            return False
        makes = not attempt.stop.reads and attempt.stop.name not in READING_POSTS and attempt.message is None
        return not (makes and missing.status == hers.status < 300)

    def _shown(self, answered: Answered) -> list[str]:
        return walk.shown(answered, self._theirs)

    async def _ask(self, attacker: Attacker, attempt: Attempt, values: Mapping[Slot, str]) -> Answered:
        self.report.requests += 1
        if attempt.message is None:
            answered = await Walker(self._client, attacker.key, attacker.own).send_values(attempt.stop, values)
        else:
            answered = await self._say(attacker, attempt.message, next(iter(values.values()), ""))
        self.report.statuses[answered.status] += 1
        return answered

    async def _say(self, attacker: Attacker, message: Mapping[str, object], value: str) -> Answered:
        text = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, **message}).decode()
        is_uri = message["method"] == "resources/read"
        text = text.replace('"{}"', msgspec.json.encode(value).decode()).replace("{}", quote(value, safe="")) if value else text
        headers = {**SENT, **({} if attacker.key is None else {"Authorization": f"Bearer {attacker.key}"})}
        answered = await self._client.post("/mcp", content=text, headers=headers)
        return Answered(answered.status_code, answered.text.replace(quote(value, safe=""), value) if is_uri else answered.text)


def _spellings(text: str) -> list[str]:
    """How an answer may repeat what was sent."""
    spellings = {text, text.strip(), text.strip().lower(), text.lstrip(" #")}
    if re.fullmatch(r"[0-9a-f]{32}", text):
        spellings.add(str(UUID(hex=text)))
    return sorted(spellings, key=len, reverse=True)


_OPEN = {f"{route.method} {route.path}" for route in ROUTES if route.scope is None or route.key_optional}


def _needs_key(stop: Stop) -> bool:
    return f"{stop.method} {stop.path}" not in _OPEN
