"""What a model names in a turn: what it is asked, how its answer is read, and that it is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.graph import repository
from cmserver.graph.find_names import read_names
from cmserver.graph.model import NOTES_MOST, EntityName
from cmserver.graph.read_observations import keep_names
from cmserver.providers.model import Prompt
from cmserver.redaction.redact import redact
from cmserver.sessions.turns.model import SessionTurn

ANSWER_TOKENS = 200
TEMPERATURE = 0.1
_KNOWN = 20
"""So many entities of before are shown, so that one thing keeps one name."""
_MAX_NAMES = 20
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


async def build_turn_prompt(conn: Conn, team_id: UUID, project: str, turn: SessionTurn) -> Prompt:
    """What a model is asked about the turn."""
    known = await repository.list_latest(conn, team_id, turn.project_id, _KNOWN)
    return Prompt(
        kind="entities",
        project=project,
        stored=[side for side in (turn.prompt, turn.reply) if side],
        keep=[f"{entity.name} ({entity.type})" for entity in known],
        answer_tokens=ANSWER_TOKENS,
        temperature=TEMPERATURE,
    )


def read_answer(answer: str) -> list[EntityName]:
    """The entities in an answer, whatever stands around its JSON; none of another type, and none that says nothing."""
    found = _OBJECT.search(answer)
    try:
        value: object = json.loads(found[0], strict=False) if found else None
    except (ValueError, RecursionError):
        return []
    rows = cast("dict[str, object]", value).get("entities") if isinstance(value, dict) else None
    names: list[EntityName] = []
    for row in cast("list[object]", rows)[:_MAX_NAMES] if isinstance(rows, list) else []:
        fields = cast("dict[str, object]", row) if isinstance(row, dict) else {}
        notes = fields.get("notes")
        cleaned = redact(notes)[0].strip()[:NOTES_MOST] if isinstance(notes, str) else ""
        named = read_names([f"{fields.get('type')}: {redact(str(fields.get('name') or ''))[0]}"])
        names += [EntityName(name.type, name.name, cleaned or None) for name in named]
    return names


async def keep_turn_names(conn: Conn, team_id: UUID, turn: SessionTurn, named: Sequence[EntityName]) -> None:
    """Store what a model names in the turn as entities of its project and their mentions."""
    await repository.wait_for_team(conn, team_id)
    await keep_names(conn, team_id, {turn.id: turn.project_id}, {turn.id: named}, "model")
