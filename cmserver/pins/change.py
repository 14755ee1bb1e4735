"""Writes pins down, changes and removes them. What contradicts another pin is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Forbidden, Invalid, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.pins import repository
from cmserver.pins.check import fold_text, has_word
from cmserver.pins.model import MAX_OF_QUESTION, MAX_PINS, NewPin, Pin
from cmserver.redaction.redact import redact


async def add_pin(conn: Conn, principal: Principal, project: Project, new: NewPin) -> Pin:
    """Write a pin down. Invalid where it contradicts another one, or the team has too many."""
    _require_team(principal)
    new = _clean(new, "$")
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pins = await repository.of_team(conn, principal.team_id, None)
    _require_room(len(pins) + 1, "$")
    _Agreement(pin for pin in pins if pin.project_id == project.id).add(new, "$")
    pin = await _insert(conn, principal, project, new, from_file=False)
    await audit.record(conn, principal, "pin.added", "pin", pin.id, project_id=project.id, number=pin.number)
    return pin


async def edit_pin(conn: Conn, principal: Principal, id_: str, changed: dict[str, Any]) -> Pin:
    """Change fields of a pin. Invalid where it would contradict another one, or stands in the repository's file."""
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pin = await find_pin(conn, principal, id_)
    if pin.from_file:
        raise Invalid.at("$.id", f"Pin {pin.number} stands in .cmserver/pins.toml: change it there, then `cmserver pins load`.")
    new = _clean(msgspec.structs.replace(reshape(pin, NewPin), **changed), "$")
    others = await repository.of_team(conn, principal.team_id, pin.project_id)
    _Agreement(other for other in others if other.id != pin.id).add(new, "$")
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
    _require_team(principal)
    new_pins = [_clean(new, f"$.pins[{place}]") for place, new in enumerate(new_pins)]
    await repository.LOCK_TEAM.run(conn, team_id=principal.team_id)
    pins = await repository.of_team(conn, principal.team_id, None)
    by_hand = [pin for pin in pins if pin.project_id == project.id and not pin.from_file]
    before = {_key(pin): pin for pin in pins if pin.project_id == project.id and pin.from_file}
    places = {_key(new): place for place, new in reversed([*enumerate(new_pins)])}
    wanted = [new_pins[place] for place in sorted(places.values())]
    _require_room(len(pins) - len(before) + len(wanted), "$.pins")
    agreement = _Agreement(by_hand)
    for new in wanted:
        agreement.add(new, f"$.pins[{places[_key(new)]}]")
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


def _require_team(principal: Principal) -> None:
    if principal.home is not None:
        raise Forbidden("Pins are the team's: nothing is pinned in what is private to you.")


def _clean(new: NewPin, path: str) -> NewPin:
    """With each text on one line; Invalid where one is empty or has a secret, and where no word is there."""
    cleaned = msgspec.structs.replace(
        new,
        question=_clean_text(new.question, f"{path}.question"),
        must=[_clean_text(word, f"{path}.must[{place}]") for place, word in enumerate(new.must)],
        must_not=[_clean_text(word, f"{path}.mustNot[{place}]") for place, word in enumerate(new.must_not)],
    )
    if not cleaned.must and not cleaned.must_not:
        raise Invalid.at(f"{path}.must", "A pin needs words that must come, or words that must not.")
    return cleaned


def _clean_text(text: str, path: str) -> str:
    cleaned, secrets = redact(text)
    if secrets:
        raise Invalid.at(path, "It has a secret or something private in it, which the memory never has.")
    if not (line := " ".join(cleaned.split())):
        raise Invalid.at(path, "Text is expected, not white space alone.")
    return line


def _key(pin: NewPin | Pin) -> tuple[object, ...]:
    return (pin.question, tuple(pin.must), tuple(pin.must_not), pin.lines, pin.on_break)


def _require_room(count: int, path: str) -> None:
    if count > MAX_PINS:
        raise Invalid.at(path, f"A team has at most {MAX_PINS:,} pins. Remove some first.")


class _Folded(msgspec.Struct):
    """A pin with its words as they are compared."""

    pin: NewPin | Pin
    must: list[str]
    must_not: list[str]


class _Agreement:
    """The pins of a project by their question, none of which contradicts another one."""

    def __init__(self, pins: Iterable[Pin]) -> None:
        self._by_question: dict[str, list[_Folded]] = {}
        for pin in pins:
            self._by_question.setdefault(fold_text(pin.question), []).append(_fold(pin))

    def add(self, new: NewPin, path: str) -> None:
        """Raise Invalid where the same question must bring a word, and must not bring it, in the same lines."""
        added = _fold(new)
        others = self._by_question.setdefault(fold_text(new.question), [])
        if len(others) >= MAX_OF_QUESTION:
            raise Invalid.at(f"{path}.question", f"At most {MAX_OF_QUESTION} pins of a project ask the same.")
        for other in (added, *others):
            name = "the same pin" if other is added else _name(other.pin)
            if (clash := _find_clash(added, other)) is not None:
                word, unwanted = new.must[clash[0]], other.pin.must_not[clash[1]]
                raise Invalid.at(
                    f"{path}.must[{clash[0]}]",
                    f"Pins contradict each other: {word!r} must come, and {unwanted!r} must not, by {name}.",
                )
            if (clash := _find_clash(other, added)) is not None:
                word, unwanted = other.pin.must[clash[0]], new.must_not[clash[1]]
                raise Invalid.at(
                    f"{path}.mustNot[{clash[1]}]",
                    f"Pins contradict each other: {unwanted!r} must not come, and {word!r} must, by {name}.",
                )
        others.append(added)


def _fold(pin: NewPin | Pin) -> _Folded:
    return _Folded(pin=pin, must=[*map(fold_text, pin.must)], must_not=[*map(fold_text, pin.must_not)])


def _find_clash(wants: _Folded, forbids: _Folded) -> tuple[int, int] | None:
    """The places of a word that must come, and of one in it that must not come in as many lines."""
    if wants.pin.lines > forbids.pin.lines:  # it may come behind the lines in which it must not
        return None
    pairs = ((place, at) for place, word in enumerate(wants.must) for at, it in enumerate(forbids.must_not) if has_word(word, it))
    return next(pairs, None)


def _name(pin: NewPin | Pin) -> str:
    return f"pin {pin.number}" if isinstance(pin, Pin) else "another pin of the file"


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
    )
