"""From rows of the two logs to the events of the stream, in an order in which a cause comes before what follows from it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from cmserver.base.ids import parse_id
from cmserver.ops.stream.model import TOLD, Act, Glimpse, Position, Step, Told
from cmserver.ops.stream.wire import DeletedTold, ObservationTold, SessionTold, Tickets, event, job_told, observation_told


def to_look_up(acts: Iterable[Act]) -> list[UUID]:
    """The observations of which the stream tells more than their ids."""
    shown = ("observation.created", "observation.updated")
    return [one for act in acts if TOLD[act.action] in shown for one in _subjects(act) if one]


def tell(
    after: Position, acts: Sequence[Act], steps: Sequence[Step], glimpses: Mapping[UUID, Glimpse], tickets: Tickets
) -> Iterator[Told]:
    """What the rows behind `after` say. Of an observation that is gone nothing is told but that it was deleted."""
    at = after
    # Each log keeps its own order, which is that of the positions; between the two, the clock decides.
    for row in heapq.merge(acts, steps, key=_when):
        if isinstance(row, Step):
            at = Position(audit=at.audit, jobs=row.id, part=at.part)
            text = event("job.updated", tickets.write(at), job_told(row))
            yield Told(team_id=row.team_id, project_id=row.project_id, name="job.updated", after=at, is_step=True, text=text)
            continue
        subjects = _subjects(row)
        heard = after.part if row.id == after.audit + 1 else 0
        for place, subject in enumerate(subjects[heard:], heard + 1):
            is_last = place == len(subjects)
            at = Position(audit=row.id if is_last else row.id - 1, jobs=at.jobs, part=0 if is_last else place)
            told = _of(row, subject, glimpses) if subject else None
            if told:
                name = TOLD[row.action]
                text = event(name, tickets.write(at), told)
                project_id = told.project_id
                yield Told(team_id=row.team_id, project_id=project_id, name=name, after=at, is_step=False, text=text)
        at = Position(audit=row.id, jobs=at.jobs)


def _when(row: Act | Step) -> datetime:
    return row.created_at


def _subjects(act: Act) -> list[UUID | None]:
    """What the act was done to: the observations that its details name, else its resource."""
    named = [act.resource_id] if act.observations is None else act.observations
    return [parse_id(one) if isinstance(one, str) else None for one in named]


def _of(act: Act, subject: UUID, glimpses: Mapping[UUID, Glimpse]) -> SessionTold | DeletedTold | ObservationTold | None:
    name = TOLD[act.action]
    if name == "session.updated":
        return SessionTold(id=subject, project_id=act.project_id, action=act.action.removeprefix("session."))
    if name == "observation.deleted":
        return DeletedTold(id=subject, project_id=act.project_id)
    one = glimpses.get(subject)
    return observation_told(one) if one and one.team_id == act.team_id else None
