"""What a month of ordinary use costs on a project of 10,000 observations, while a model is asked."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cmserver.access.model import Project
from cmserver.base.ids import new_id
from cmserver.models.providers.model import Completion, Prompt
from cmserver.models.providers.prompts.render import render
from cmserver.observations import repository as observations
from cmserver.observations.model import NewObservation, compose, estimate_tokens
from tests.conftest import Cast
from tests.rows import rows
from tests.steward import tools
from tests.steward.corpus import Note
from tests.steward.tools import Keeper, Model, suggest, write_note

DAYS, KNOWN = 30, 10_000
NOTES_A_DAY, SESSIONS_A_DAY, PAIRS_A_DAY = 24, 4, 6
"""A busy day of one person: what four sessions leave, and pairs so alike that a model has to judge them."""
NOUNS = ("invoice", "upload", "session", "cache", "parser", "queue", "ledger", "login", "export", "webhook", "index", "scheduler")
VERBS = ("retries", "validates", "renames", "batches", "locks", "streams", "hashes", "rounds", "escapes", "waits")


class MeteredModel(Model):
    """Answers as a model that is unsure, and counts the tokens of what it is really sent."""

    async def complete(self, prompt: Prompt) -> Completion:
        rendered = render(prompt, "json")
        self.tokens = estimate_tokens(rendered.system + rendered.user), 60
        answers: dict[str, dict[str, object]] = {
            "guard": {"same": False, "conflict": False, "confidence": 0.9, "reason": "they differ"},
            "derive": {"common": False, "title": "", "narrative": "", "facts": [], "sources": [], "confidence": 0.9},
        }
        self.reply = json.dumps(answers[prompt.kind])
        return await super().complete(prompt)


def make_note(chance: random.Random, place: int) -> Note:
    noun, other, verb = chance.choice(NOUNS), chance.choice(NOUNS), chance.choice(VERBS)
    return Note(
        title=f"The {noun} {verb} {place} rows before the {other} starts",
        narrative=f"While the {other} was away, the {noun} kept what it had and {verb} it later, in the order of arrival. " * 2,
        facts=(f"src/{noun}/{other}.py reads the {noun} in batches", f"The limit of the {noun} is {place % 97}"),
        files=(f"src/{noun}/{other}.py",),
    )


async def fill(keeper: Keeper, project: Project, chance: random.Random) -> None:
    """What the project knows from before."""
    before = datetime.now(UTC) - timedelta(days=60)
    for first in range(0, KNOWN, 500):
        async with keeper.db.tenant(keeper.team_id) as conn:
            numbers = await observations.take_numbers(conn, keeper.team_id, 500)
            new: list[NewObservation] = []
            for number in numbers:
                note = make_note(chance, number)
                content = compose(note.title, None, note.narrative, note.facts)
                new.append(
                    NewObservation(
                        id=new_id(),
                        number=number,
                        kind="observation",
                        type="discovery",
                        origin="rules",
                        title=note.title,
                        narrative=note.narrative,
                        facts=list(note.facts),
                        files_modified=list(note.files),
                        content=content,
                        read_tokens=estimate_tokens(content),
                        created_at=before - timedelta(minutes=first + number),
                    )
                )
            await observations.insert(conn, keeper.team_id, project.id, new)


@pytest.mark.slow
async def test_a_month_on_a_project_of_ten_thousand_stays_under_100_000_input_tokens(asking: Keeper, cast: Cast):
    chance, project = random.Random(5), cast.alice.project
    tools.MODEL = model = MeteredModel()
    await fill(asking, project, chance)
    await asking.switch("write")

    for day in range(DAYS):
        sessions = [new_id() for _ in range(SESSIONS_A_DAY)]
        for session_id in sessions:
            await rows(
                asking.db,
                "INSERT INTO server_sessions (id, project_id, team_id) VALUES (%s, %s, %s)",
                *(session_id, project.id, asking.team_id),
            )
        notes = [make_note(chance, KNOWN + day * 100 + place) for place in range(NOTES_A_DAY - PAIRS_A_DAY)]
        twins = [msgspec.structs.replace(note, title=f"{note.title}, as its owner wanted") for note in notes[:PAIRS_A_DAY]]
        made = [
            await write_note(asking.db, project, msgspec.structs.replace(note, day=30), sessions[place % SESSIONS_A_DAY])
            for place, note in enumerate([*notes, *twins])
        ]
        for left, right in zip(made[:PAIRS_A_DAY], made[-PAIRS_A_DAY:], strict=True):
            await suggest(asking.db, project, left, right)
        await asking.work()
        # It is a day later.
        await rows(
            asking.db,
            "UPDATE observation_generation_jobs SET created_at = created_at - interval '1 day',"
            " completed_at = completed_at - interval '1 day'",
        )
        await rows(asking.db, "UPDATE steward_runs SET created_at = created_at - interval '1 day'")
        await rows(asking.db, "UPDATE generation_runs SET created_at = created_at - interval '1 day'")

    (spent,) = await rows(
        asking.db,
        "SELECT sum(input_tokens)::int AS input, count(*) AS calls FROM generation_runs WHERE kind IN ('guard', 'derive')",
    )
    print(f"{len(model.prompts)} calls, {spent['input']:,} input tokens in {DAYS} days")  # noqa: T201 - the figure for the page
    assert spent["calls"] == len(model.prompts)
    assert {prompt.kind for prompt in model.prompts} == {"guard", "derive"}
    assert spent["input"] < 100_000
