"""Pins, over HTTP and on the command line."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, command, option
from cmserver.base import paging
from cmserver.base.columns import Columns
from cmserver.base.sql import Conn
from cmserver.observations.plain import one_line
from cmserver.pins import repository
from cmserver.pins.change import add_pin, edit_pin, load_pins, remove_pin
from cmserver.pins.check import check_pins, check_pins_of
from cmserver.pins.model import Pin, PinResult
from cmserver.pins.wire import (
    PinCheckIn,
    PinChecksOut,
    PinEditIn,
    PinIn,
    PinOut,
    PinResultOut,
    PinsIn,
    PinsOut,
    PinsQuery,
    checks_out,
    new_pin,
    pin_out,
    result_out,
)
from cmserver.recall.search.model import Ranking

_CHARS = 80


def render_result(result: PinResultOut) -> str:
    """A line about one pin."""
    state = "holds" if result.holds else f"does not hold: {one_line(result.reason, _CHARS * 4)}"
    return f"Pin {result.pin.number} {state}. {one_line(result.pin.question, _CHARS)}"


_TABLE = Columns(
    PinOut,
    "number, holds, question, must, must not, lines",
    holds=lambda pin: "" if pin.holds is None else "yes" if pin.holds else "no",
    question=lambda pin: one_line(pin.question, _CHARS),
)


@command(
    "pins list", _TABLE.page("pins", "Nothing is pinned. `cmserver pins add QUESTION --must WORD` begins it.", shrink=("question",))
)
@option("--project", "Only those of this project.", metavar="PROJECT")
@verb.get("/v1/pins", "observations:read")
async def get_pins(call: VerbCall, given: PinsQuery) -> PinsOut:
    """List what the team's memory must answer, newest first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    before, before_id = paging.place(given.cursor)
    async with call.read() as conn:
        rows = await repository.page(
            conn, call.principal.team_id, project_id, before=before, before_id=before_id, limit=given.limit + 1
        )
    pins, next_cursor = paging.page(rows, given.limit, lambda pin: (pin.created_at, pin.id))
    return PinsOut(pins=[*map(pin_out, pins)], next_cursor=next_cursor)


@command("pins add", lambda result, _: render_result(result))
@option("QUESTION")
@option("--must", "Words that must come; give it several times.", metavar="WORDS")
@option("--must-not", "Words that must not come; give it several times.", metavar="WORDS")
@option("--lines", "Look at so many of the first hits.")
@option("--on-break", "Refuse an upgrade, or a merge of the steward, that would lose the answer, or report it.")
@option(
    "--project",
    "The project that is asked. [default: the key's, else the folder's]",
    field="project_id",
    metavar="PROJECT",
)
@verb.post("/v1/pins", "observations:write", status=201)
async def post_pin(call: VerbCall, given: PinIn) -> PinResultOut:
    """Write down what the memory must answer, and say whether it does."""
    project = await call.dependency(Projects).named_or_own(call.principal, given.project_id, at="$.projectId")
    ranking = call.dependency(Ranking)

    async def act(conn: Conn) -> PinResult:
        return await _check_one(conn, call, await add_pin(conn, call.principal, project, new_pin(given)), ranking)

    return result_out(await call.write(act))


@command("pins edit", lambda result, _: render_result(result))
@option("NUMBER", field="id")
@option("--question", "The new question.", metavar="TEXT")
@option("--must", "All words that must come; give it several times.", metavar="WORDS")
@option("--must-not", "All words that must not come; give it several times.", metavar="WORDS")
@option("--lines", "Look at so many of the first hits.")
@option("--on-break", "Refuse an upgrade, or a merge of the steward, that would lose the answer, or report it.")
@verb.patch("/v1/pins/{id}", "observations:write")
async def patch_pin(call: VerbCall, given: PinEditIn) -> PinResultOut:
    """Change what the memory must answer, and say whether it does."""
    fields = {name: value for name, value in msgspec.structs.asdict(given).items() if name != "id" and value is not UNSET}
    ranking = call.dependency(Ranking)

    async def act(conn: Conn) -> PinResult:
        return await _check_one(conn, call, await edit_pin(conn, call.principal, given.id, fields), ranking)

    return result_out(await call.write(act))


@command("pins remove", lambda pin, _: f"Removed pin {pin.number}.")
@option("NUMBER", field="id")
@verb.delete("/v1/pins/{id}", "observations:write")
async def delete_pin(call: VerbCall, given: str) -> PinOut:
    """Remove a pin. One of the repository's file comes back when the file is loaded again."""
    return pin_out(await call.write(lambda conn: remove_pin(conn, call.principal, given)))


@verb.put("/v1/pins", "observations:write")
async def put_pins(call: VerbCall, given: PinsIn) -> PinChecksOut:
    """Make the project's pins of `.cmserver/pins.toml` those that are sent, all or none, and check them.

    Pins that were added by hand stay.
    """
    project = await call.dependency(Projects).named_or_own(call.principal, given.project_id, at="$.projectId", make=True)
    ranking = call.dependency(Ranking)

    async def act(conn: Conn) -> list[PinResult]:
        loaded = await load_pins(conn, call.principal, project, [*map(new_pin, given.pins)])
        return await check_pins(conn, call.principal, loaded, ranking)

    return checks_out(await call.write(act))


@verb.post("/v1/pins/check", "observations:read")
async def post_pin_check(call: VerbCall, given: PinCheckIn) -> PinChecksOut:
    """Check whether the memory answers what is pinned, by searches for words, without a model."""
    project_id = await call.dependency(Projects).within(call.principal, given.project_id)
    ranking = call.dependency(Ranking)

    return checks_out(await call.write(lambda conn: check_pins_of(conn, call.principal, project_id, ranking)))


async def _check_one(conn: Conn, call: VerbCall, pin: Pin, ranking: Ranking) -> PinResult:
    (result,) = await check_pins(conn, call.principal, [pin], ranking)
    return result


routes = [post_pin_check, get_pins, post_pin, put_pins, patch_pin, delete_pin]
