"""What is a person's alone, over HTTP and on the command line: read, edited, forgotten, and moved to the team or from it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cmserver.access import verb
from cmserver.access.people import repository as people
from cmserver.access.people.model import PersonalMemory
from cmserver.access.projects import Projects
from cmserver.access.verb import Typed, VerbCall, command, option
from cmserver.base.columns import Columns
from cmserver.base.db import Db
from cmserver.observations.plain import one_line
from cmserver.personal.keep import (
    clean_text,
    edit_personal,
    forget_personal,
    give_to_team,
    list_personal,
    read_personal,
    require_person,
    take_from_team,
    undo_personal,
)
from cmserver.personal.plain import render_one_personal
from cmserver.personal.wire import (
    LINE_CHARS,
    MoveIn,
    OnePersonalObservationOut,
    PersonalDeletionOut,
    PersonalEditIn,
    PersonalObservationOut,
    PersonalObservationsOut,
    PersonalObservationsQuery,
    personal_out,
    render_personal_line,
    render_personal_whole,
)


def _after(done: str) -> Callable[[OnePersonalObservationOut, Typed], str]:
    return lambda result, _: f"{done}{render_personal_line(result.personal)}"


_TABLE = Columns(
    PersonalObservationOut,
    "name, type, created, text",
    text=lambda row: one_line(row.content, LINE_CHARS),
)


@command(
    "mine list",
    _TABLE.page("personal", "Nothing is remembered for you alone. `cmserver remember --for me TEXT` begins it.", shrink=("text",)),
    text="List what is remembered for you alone, newest first.",
)
@option("--state", "What holds, what you forgot, or what you gave to the team.")
@option("--type", "Only notes, or only rules for agents.")
@option("--query", "Only those with most of these words, the best first.", metavar="WORDS")
@verb.get("/v1/personal-observations", "observations:read")
async def get_personal_observations(call: VerbCall, given: PersonalObservationsQuery) -> PersonalObservationsOut:
    """A page of what is the caller's alone in the team, newest first. NO_PERSON for a key that is nobody's."""
    async with call.read() as conn:
        rows, next_cursor = await list_personal(
            conn,
            call.principal,
            state=given.state,
            type_=given.type,
            words=given.query,
            limit=given.limit,
            cursor=given.cursor,
        )
    return PersonalObservationsOut(personal=[*map(personal_out, rows)], next_cursor=next_cursor)


@command("mine show", lambda result, _: render_personal_whole(result), text="Show one of your own whole, by its name (m12).")
@option("NAME", field="id")
@verb.get("/v1/personal-observations/{id}", "observations:read", plain=render_one_personal)
async def get_personal_observation(call: VerbCall, given: str) -> OnePersonalObservationOut:
    """One of the caller's own, by its name (`m12`) or id; as an agent reads it when only text/plain is accepted."""
    async with call.read() as conn:
        return OnePersonalObservationOut(personal=personal_out(await read_personal(conn, call.principal, given)))


@command("mine edit", _after("Changed: "), text="Change the text of one of your own, or what it is.")
@option("NAME", field="id")
@option("--content", "The new text, whole.", metavar="TEXT")
@option("--type", "A note, or a rule for agents.")
@verb.patch("/v1/personal-observations/{id}", "observations:write")
async def patch_personal_observation(call: VerbCall, given: PersonalEditIn) -> OnePersonalObservationOut:
    """Change one of the caller's own. What it was before can be undone, unless it was the words of a turn."""
    require_person(call.principal, "$.id")
    content = None if given.content is None else await clean_text(given.content, size_bytes=call.size_bytes)
    edited = await call.write(lambda conn: edit_personal(conn, call.principal, given.id, content=content, type_=given.type))
    return OnePersonalObservationOut(personal=personal_out(edited))


@command(
    "mine forget",
    lambda result, _: (
        f"Deleted {result.name} for ever."
        if result.deleted
        else f"Forgot {result.name}. `cmserver mine undo {result.name}` brings it back; forgotten again, it is deleted for ever."
    ),
    text="Forget one of your own. It can be undone; what is forgotten twice is deleted for ever.",
)
@option("NAME", field="id")
@verb.delete("/v1/personal-observations/{id}", "observations:write")
async def delete_personal_observation(call: VerbCall, given: str) -> PersonalDeletionOut:
    """Drop one of the caller's own, which can be undone; one that was dropped before is deleted for ever."""
    row, is_deleted = await call.write(lambda conn: forget_personal(conn, call.principal, given))
    return PersonalDeletionOut(name=row.name, deleted=is_deleted)


@command("mine undo", _after("As it was before: "), text="Undo the last change of one of your own.")
@option("NAME", field="id")
@verb.post("/v1/personal-observations/{id}/undo", "observations:write")
async def post_personal_undo(call: VerbCall, given: str) -> OnePersonalObservationOut:
    """Undo the last change of one of the caller's own: an edit, that it was dropped, or a move to the team or from it."""
    undone = await call.write(lambda conn: undo_personal(conn, call.principal, given))
    return OnePersonalObservationOut(personal=personal_out(undone))


@command(
    "mine give",
    lambda result, _: f"The team's as #{result.personal.observation_number}: {render_personal_line(result.personal)}",
    text="Give one of your own to the team: it is a project's observation from then on.",
)
@option("NAME", field="id")
@option("--project", "The project that gets it. [default: that of its turn, or of the key]", field="project_id", metavar="PROJECT")
@verb.post("/v1/personal-observations/{id}/move", "observations:write")
async def post_personal_move(call: VerbCall, given: MoveIn) -> OnePersonalObservationOut:
    """Move one of the caller's own to the team, as an observation of a project."""
    async with call.read() as conn:
        row = await read_personal(conn, call.principal, given.id)
    name = given.project_id or (str(row.project_id) if row.project_id else None)
    project = await call.dependency(Projects).named_or_own(call.principal, name, at="$.projectId")
    moved, _ = await call.write(lambda conn: give_to_team(conn, call.principal, given.id, project))
    return OnePersonalObservationOut(personal=personal_out(moved))


@command("mine take", _after("Yours: "), text="Take an observation of the team to yourself: the team is shown it no longer.")
@option("NUMBER", field="id")
@verb.post("/v1/observations/{id}/personal", "observations:write")
async def post_observation_personal(call: VerbCall, given: str) -> tuple[OnePersonalObservationOut, bool]:
    """Make an observation of the team the caller's alone: its time ends for the team.

    For what was written by hand, or drawn from a turn.
    """
    taken, is_new = await call.write(lambda conn: take_from_team(conn, call.principal, given))
    return OnePersonalObservationOut(personal=personal_out(taken)), is_new


@command(
    "mine export",
    lambda result, _: msgspec.json.format(msgspec.json.encode(result), indent=2).decode(),
    text="Print all that is yours alone as JSON: what is remembered for you, and your private sessions.",
)
@verb.get("/v1/personal-memory", "observations:read")
async def get_personal_memory(call: VerbCall) -> PersonalMemory:
    """All that is the caller's alone in the team: what is remembered for them, and their private sessions.

    A key that is bound to a project gets the sessions of that one.
    """
    home = call.principal.at_home
    user_id = require_person(home, "$")
    memory = await call.dependency(Db).in_system(lambda conn: people.personal_memory(conn, home.team_id, user_id))
    if home.project_id is None:
        return memory
    project = await call.dependency(Projects).find(home, str(home.project_id))
    return memory.of_project(project.canonical_id)


routes = [
    get_personal_memory,
    get_personal_observations,
    get_personal_observation,
    patch_personal_observation,
    delete_personal_observation,
    post_personal_undo,
    post_personal_move,
    post_observation_personal,
]
