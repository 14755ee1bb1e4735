"""Points from what users laid down to what they laid down later of the same matter, as sentences of turns point: it claims nothing.

What is remembered by hand is in no turn, so no turn points from it. The rules of a project are few: they are compared when one is
found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.observations.model import MIN_INSTRUCTION_IMPORTANCE, Observation
from cmserver.recall import repository
from cmserver.recall.model import RuleText
from cmserver.sessions.turns.sentences.model import CHAIN_NEARNESS, PlacedTurn
from cmserver.sessions.turns.sentences.pointers import point
from cmserver.sessions.turns.sentences.vectors import pack

_LOOKED_AT = 500
"""Of so many newest observations of a project those are compared that users laid down."""
_MOST_RULES = 100


def is_laid_down(row: Observation) -> bool:
    return row.type == "decision" and (row.importance or 0.0) > MIN_INSTRUCTION_IMPORTANCE and row.scope == "project"


async def find_later_rules(conn: Conn, team_id: UUID, rows: Sequence[Observation]) -> dict[int, int]:
    """Of these observations that users laid down by hand: the number of what was laid down later, by their own."""
    by_hand = [row for row in rows if is_laid_down(row) and row.turn_number is None]
    if not by_hand:
        return {}
    project_ids = list({row.project_id for row in by_hand})
    rules = await repository.rules(conn, team_id, project_ids, [row.id for row in by_hand], _LOOKED_AT)
    later = await asyncio.to_thread(_point, rules)
    return {row.number: later[row.number] for row in by_hand if row.number in later}


def _point(rules: Sequence[RuleText]) -> Mapping[int, int]:
    """The end of the chain that each rule begins, by its number."""
    following: dict[int, tuple[int, float]] = {}
    for _, group in groupby(rules, key=lambda rule: rule.project_id):
        placed = [_place(rule) for rule in islice(group, _MOST_RULES)]
        numbers = {rule.turn_id: rule.number for rule in placed}
        for words in point(placed, numbers.keys()):
            if (later_id := words.later_ids[0]) is not None:
                following[numbers[words.turn_id]] = numbers[later_id], words.nearness[0] or 0.0
    return {number: _find_end(number, following) for number in following}


def _find_end(number: int, following: Mapping[int, tuple[int, float]]) -> int:
    end, _ = following[number]
    while end in following and following[end][1] >= CHAIN_NEARNESS:
        end, _ = following[end]
    return end


def _place(rule: RuleText) -> PlacedTurn:
    return PlacedTurn(
        turn_id=rule.id,
        created_at=rule.created_at,
        number=rule.number,
        texts=[rule.title],
        model_id=rule.model_id,
        vectors=pack([rule.vector]) if rule.vector else None,
        later_ids=[],
        later_places=[],
        nearness=[],
    )
