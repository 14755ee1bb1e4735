"""Begins replays, stops, resumes and removes them. What cannot be run is refused before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec

from cmserver import __version__
from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.models.calls.complete import ANSWER_TOKENS
from cmserver.models.providers import registry
from cmserver.models.providers.model import Completion, Prompt
from cmserver.models.providers.prices import compute_cost
from cmserver.models.providers.prompts.render import estimate_tokens
from cmserver.models.providers.table import PROVIDERS
from cmserver.observations.past import repository as past
from cmserver.observations.past.model import Moment, check_moment, read_moment
from cmserver.replays import repository
from cmserver.replays.model import MODEL_CHARS, MODEL_EVENTS, RULES, Replay, ReplayScope

MAX_REPLAYS = 100
_CHARS_A_TOKEN = 4
_AT = ("$.since", "$.since")


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would run, and what that would cost; None where no price is known."""

    provider: str
    model: str | None
    scope: ReplayScope
    since: datetime | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


def check_provider(settings: Settings, principal: Principal, name: str | None) -> str:
    """Who words the events, without a name the rules. Invalid for an unknown provider, Forbidden for one that is not in use."""
    if name in {None, RULES}:
        return RULES
    assert name is not None
    in_use = [entry.name for entry in registry.chain_models(settings) if entry.name != RULES]
    if name not in {*PROVIDERS, *in_use}:
        raise Invalid.at(
            "$.provider", f"There is no provider {name!r}. There are {', '.join(sorted({RULES, *PROVIDERS, *in_use}))}."
        )
    if name not in in_use and not principal.may("*"):
        raise Forbidden(f"This server does not send anything to {name}: only its operator's key, with the scope *, may begin that.")
    return name


async def estimate(
    conn: Conn, settings: Settings, principal: Principal, project_id: UUID | None, since: str | None, provider: str
) -> Estimate:
    """What a replay of the sessions that began since then would run. Invalid for a time that is none."""
    _require_team(principal)
    await require_all_words(conn)
    moment = read_moment(since, None, _AT)
    clock = await past.clock(conn, principal.team_id, None if project_id is None else [project_id])
    if moment is not None:
        check_moment(Moment(as_of=moment.as_of, at=_AT), clock)
    since_at = moment and moment.as_of
    scope = await repository.measure(conn, principal.team_id, project_id, since_at, clock.now, MODEL_EVENTS, MODEL_CHARS)
    if provider == RULES:
        return Estimate(
            provider=RULES, model=None, scope=scope, since=since_at, calls=0, input_tokens=0, output_tokens=0, cost_usd=Decimal(0)
        )
    entry = registry.settings_of(settings, provider)
    model = entry.model or registry.DEFAULT_MODELS.get(provider) or ""
    beside = estimate_tokens(Prompt(kind="observations", project=""))
    used = Completion(
        text="",
        model=model,
        input_tokens=scope.calls * beside + scope.chars // _CHARS_A_TOKEN,
        output_tokens=scope.calls * ANSWER_TOKENS,
    )
    return Estimate(
        provider=provider,
        model=model or None,
        scope=scope,
        since=since_at,
        calls=scope.calls,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cost_usd=compute_cost(provider, used),
    )


async def begin_replay(conn: Conn, principal: Principal, project_id: UUID | None, measured: Estimate) -> Replay:
    """Begin a replay, which a worker runs. Conflict where there is nothing to be run."""
    scope = measured.scope
    await require_all_words(conn)
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    if scope.sessions == 0:
        raise Conflict(_say_nothing(scope))
    if await repository.count(conn, principal.team_id) >= MAX_REPLAYS:
        raise Conflict(f"A team has at most {MAX_REPLAYS} replays. Remove some first: `cmserver replays remove NUMBER`.")
    replay = await repository.insert(
        conn,
        new_id(),
        principal.team_id,
        project_id=project_id,
        since=measured.since,
        provider=measured.provider,
        program=__version__,
        session_count=scope.sessions,
        event_count=scope.events,
        purged_count=scope.purged,
    )
    details = {"number": replay.number, "provider": replay.provider}
    await audit.record(conn, principal, "replay.begun", "replay", replay.id, project_id=project_id, **details)
    await announce.notify_stream(conn)
    return replay


def _say_nothing(scope: ReplayScope) -> str:
    if scope.purged:
        return (
            f"Nothing can be replayed: of the {scope.purged:,} sessions retention has taken what was said in them. "
            "`cmserver retention show` says how long that is kept."
        )
    if scope.waiting:
        return "Nothing can be replayed yet: what was said in these sessions still waits for a worker. Try again when that is done."
    return "Nothing can be replayed: no session with events of an agent began there."


async def find_replay(conn: Conn, principal: Principal, id_: str) -> Replay:
    """The replay of that number or id; NotFound also for one that tells of more than the key may see."""
    number = int(id_) if id_.isascii() and id_.isdigit() and len(id_) < 19 else None
    try:
        replay = await repository.find(conn, principal.team_id, number=number, id_=None if number is not None else UUID(id_))
    except ValueError:
        replay = None
    if replay is None or not principal.sees(replay.project_id):
        raise NotFound("Replay not found. `cmserver replays list` shows those of the team.")
    return replay


async def stop_replay(conn: Conn, principal: Principal, id_: str) -> Replay:
    """Stop it after the session that is under way. Conflict for one that does not run."""
    return await _turn(conn, principal, id_, "running", "stopped")


async def resume_replay(conn: Conn, principal: Principal, id_: str) -> Replay:
    """Let it go on behind the last session that is done. Conflict for one that is not stopped, or of another version's rules."""
    replay = await find_replay(conn, principal, id_)
    if replay.program != __version__:
        raise Conflict(
            f"Replay {replay.number} was begun by cmserver {replay.program}, and this is {__version__}: its lines would be of two "
            "kinds of rules. Remove it and begin another one."
        )
    return await _turn(conn, principal, id_, "stopped", "running")


async def remove_replay(conn: Conn, principal: Principal, id_: str) -> Replay:
    """Throw it away with its lines; what was taken over of it stays, and cannot be undone any more."""
    replay = await find_replay(conn, principal, id_)
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    await repository.delete(conn, principal.team_id, replay.id)
    await audit.record(conn, principal, "replay.removed", "replay", replay.id, project_id=replay.project_id, number=replay.number)
    return replay


async def _turn(conn: Conn, principal: Principal, id_: str, from_state: str, state: str) -> Replay:
    replay = await find_replay(conn, principal, id_)
    if not await repository.set_state(conn, principal.team_id, replay.id, state, [from_state]):
        raise Conflict(f"Replay {replay.number} is {say_state(replay)}: only one that is {from_state} can be {_ACTS[state]}.")
    action = f"replay.{_ACTS[state]}"
    await audit.record(conn, principal, action, "replay", replay.id, project_id=replay.project_id, number=replay.number)
    await announce.notify_stream(conn)
    return await find_replay(conn, principal, id_)


_ACTS = {"stopped": "stopped", "running": "resumed"}


def say_state(replay: Replay) -> str:
    """Its state in words."""
    return replay.state.replace("_", " ")


def _require_team(principal: Principal) -> None:
    if principal.home is not None:
        raise Forbidden("Replays are the team's: what is private to you is not replayed.")


async def require_all_words(conn: Conn) -> None:
    """Forbidden for who may not read all words of the team: a replay runs them all, and a part of its lines is no take-over."""
    if not await repository.READS_ALL.one(conn):
        raise Forbidden(
            "A replay is of what all people of the team said, and this team does not let you read all of it: only who reads all "
            "may estimate, begin, take over or undo one. An owner of the team says who may: `cmserver teams words`."
        )


def utc(moment: datetime) -> str:
    """The moment as it is shown."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
