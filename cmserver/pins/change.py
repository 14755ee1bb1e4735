"""Writes pins down, changes and removes them. What contradicts another pin is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.pins import repository
from cmserver.pins.check import has_word
from cmserver.pins.model import MAX_PINS, NewPin, Pin


async def add_pin(conn: Conn, principal: Principal, project: Project, new: NewPin) -> Pin:
    """Write a pin down. Invalid where it contradicts another one, or the team has too many."""
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pins = await repository.of_team(conn, principal.team_id, None)
    _require_room(len(pins) + 1, "$")
    _require_agreement(new, [pin for pin in pins if pin.project_id == project.id], "$")
    pin = await _insert(conn, principal, project, new, from_file=False)
    await audit.record(conn, principal, "pin.added", "pin", pin.id, project_id=project.id, number=pin.number)
    return pin


async def edit_pin(conn: Conn, principal: Principal, id_: str, changed: dict[str, Any]) -> Pin:
    """Change fields of a pin. Invalid where it would contradict another one, or stands in the repository's file."""
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pin = await find_pin(conn, principal, id_)
    if pin.from_file:
        raise Invalid.at("$.id", f"Pin {pin.number} stands in .cmserver/pins.toml: change it there, then `cmserver pins load`.")
    new = msgspec.structs.replace(reshape(pin, NewPin), **changed)
    if not new.must and not new.must_not:
        raise Invalid.at("$.must", NO_WORDS)
    others = [it for it in await repository.of_team(conn, principal.team_id, pin.project_id) if it.id != pin.id]
    _require_agreement(new, others, "$")
    edited = await repository.update(
        conn,
        pin.id,
        principal.team_id,
        question=new.question,
        must=new.must,
        must_not=new.must_not,
        lines=new.lines,
        on_break=new.on_break,
    )
    await audit.record(conn, principal, "pin.edited", "pin", pin.id, project_id=pin.project_id, number=pin.number)
    return edited


async def remove_pin(conn: Conn, principal: Principal, id_: str) -> Pin:
    """Remove a pin. One of the repository's file comes back with the next `cmserver pins load`."""
    pin = await find_pin(conn, principal, id_)
    await repository.delete(conn, principal.team_id, [pin.id])
    await audit.record(conn, principal, "pin.removed", "pin", pin.id, project_id=pin.project_id, number=pin.number)
    return pin


async def load_pins(conn: Conn, principal: Principal, project: Project, new_pins: Sequence[NewPin]) -> list[Pin]:
    """Make the project's pins of the file those given; its others stay. One that is the same keeps its number.

    Invalid, and nothing is changed, where one contradicts another.
    """
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pins = await repository.of_team(conn, principal.team_id, None)
    by_hand = [pin for pin in pins if pin.project_id == project.id and not pin.from_file]
    before = {_key(pin): pin for pin in pins if pin.project_id == project.id and pin.from_file}
    wanted = list({_key(new): new for new in new_pins}.values())
    _require_room(len(pins) - len(before) + len(wanted), "$.pins")
    others: list[NewPin | Pin] = [*by_hand]
    for place, new in enumerate(new_pins):
        _require_agreement(new, others, f"$.pins[{place}]")
        others.append(new)
    kept = {key: before.pop(key) for key in map(_key, wanted) if key in before}
    await repository.delete(conn, principal.team_id, [pin.id for pin in before.values()])
    loaded = [kept.get(_key(new)) or await _insert(conn, principal, project, new, from_file=True) for new in wanted]
    await audit.record(conn, principal, "pins.loaded", "project", project.id, project_id=project.id, count=len(loaded))
    return loaded


async def find_pin(conn: Conn, principal: Principal, id_: str) -> Pin:
    """The pin of that number or id; NotFound also for one of a project that the key may not see."""
    number = int(id_) if id_.isascii() and id_.isdigit() and len(id_) < 19 else None
    try:
        pin = await repository.find(conn, principal.team_id, number=number, id_=None if number is not None else UUID(id_))
    except ValueError:
        pin = None
    if pin is None or not principal.sees(pin.project_id):
        raise NotFound("Pin not found. `cmserver pins list` shows those of the team.")
    return pin


NO_WORDS = "A pin needs words that must come, or words that must not."


def _key(pin: NewPin | Pin) -> tuple[object, ...]:
    return (pin.question, tuple(pin.must), tuple(pin.must_not), pin.lines, pin.on_break)


def _require_room(count: int, path: str) -> None:
    if count > MAX_PINS:
        raise Invalid.at(path, f"A team has at most {MAX_PINS:,} pins. Remove some first.")


def _require_agreement(new: NewPin, others: Sequence[NewPin | Pin], path: str) -> None:
    """Raise Invalid where the same question must bring a word, and must not bring it, in the same lines."""
    for other in (new, *others):
        if _fold(other.question) != _fold(new.question):
            continue
        name = "the same pin" if other is new else _name(other)
        if (clash := _find_clash(new, other)) is not None:
            word, unwanted = new.must[clash[0]], other.must_not[clash[1]]
            raise Invalid.at(
                f"{path}.must[{clash[0]}]", f"Pins contradict each other: {word!r} must come, and {unwanted!r} must not, by {name}."
            )
        if (clash := _find_clash(other, new)) is not None:
            word, unwanted = other.must[clash[0]], new.must_not[clash[1]]
            raise Invalid.at(
                f"{path}.mustNot[{clash[1]}]",
                f"Pins contradict each other: {unwanted!r} must not come, and {word!r} must, by {name}.",
            )


def _find_clash(wants: NewPin | Pin, forbids: NewPin | Pin) -> tuple[int, int] | None:
    """The places of a word that must come, and of one in it that must not come in as many lines."""
    if wants.lines > forbids.lines:  # it may come behind the lines in which it must not
        return None
    pairs = ((place, at) for place, word in enumerate(wants.must) for at, it in enumerate(forbids.must_not) if has_word(word, it))
    return next(pairs, None)


def _name(pin: NewPin | Pin) -> str:
    return f"pin {pin.number}" if isinstance(pin, Pin) else "another pin of the file"


def _fold(question: str) -> str:
    return " ".join(question.casefold().split())


async def _insert(conn: Conn, principal: Principal, project: Project, new: NewPin, *, from_file: bool) -> Pin:
    return await repository.insert(
        conn,
        new_id(),
        principal.team_id,
        project.id,
        question=new.question,
        must=new.must,
        must_not=new.must_not,
        lines=new.lines,
        on_break=new.on_break,
        from_file=from_file,
        actor_id=principal.actor_id,
    )
