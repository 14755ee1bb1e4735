"""Renders what is a person's alone for their agents, as observations are rendered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cmserver.base.ids import from_epoch_ms
from cmserver.observations.model import estimate_tokens
from cmserver.observations.plain import block, fence, one_line
from cmserver.personal.wire import LINE_CHARS, OnePersonalObservationOut, PersonalObservationOut


def personal_line(row: PersonalObservationOut) -> str:
    """It in one line: its name, day and type, its text, and about how many tokens the whole takes."""
    day = f"{from_epoch_ms(row.created_at_epoch):%Y-%m-%d}"
    state = "" if row.state == "holds" else f" ({row.state})"
    return f"{row.name} {day} {row.type} (yours) {one_line(row.content, LINE_CHARS)}{state} ~{estimate_tokens(row.content)}"


def personal_lines(row: PersonalObservationOut) -> Iterator[str]:
    """The whole in lines, of which the first is as in a list."""
    yield personal_line(row)
    yield f"  {block(row.content)}"
    if row.turn_number is not None:
        yield f"Turn #{row.turn_number}"


def render_personal(rows: Iterable[PersonalObservationOut]) -> str:
    """Several in one block, with an empty line between them."""
    return fence(["\n".join("".join(f"{line}\n" for line in personal_lines(row)) for row in rows)])


def render_one_personal(result: OnePersonalObservationOut) -> str:
    """One as an agent reads it."""
    return render_personal([result.personal])
