"""The gate of a prompt, on projects of two to 23 turns and on one of all these turns: prompts of other projects are left alone, and
what belongs to one is told.

`pytest -s` prints how near the nearest sentence of each project is to prompts of others: where the threshold comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import numpy as np

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.embeddings.model import QueryVector, TurnText, turn_document
from cmserver.embeddings.turn_sentences import write_due_sentences
from cmserver.models.providers.embedding.model import EmbedderSettings
from cmserver.models.providers.embedding.registry import make as make_embedder
from cmserver.recall.prompt_context import BY_MEANING, find_near, select_told, threshold
from tests.conftest import Cast, bound_to
from tests.evaluation.usefulness.corpus import CorpusProject, load_projects
from tests.make import Make
from tests.recall.search.conftest import vectors
from tests.recall.search.tools import Vectors

__all__ = ["vectors"]  # a fixture

SAMPLED = 4
"""One of so many prompts of other projects is typed."""


def turns_of(project: CorpusProject) -> Iterator[tuple[str, str, str]]:
    """Session, prompt and reply of each turn that was answered."""
    for session in project.sessions:
        prompt = ""
        for event in session.events:
            prompt = event.prompt or prompt
            if event.reply and prompt:
                yield session.id, prompt.strip(), event.reply.strip()
                prompt = ""


def prompts_of(project: CorpusProject) -> list[tuple[str, bool]]:
    """What is typed and asked later, and whether it is about something that was said."""
    typed = [(prompt.prompt, bool(prompt.fact)) for session in project.sessions for prompt in session.later_prompts]
    return typed + [(question.ask, True) for session in project.sessions for question in session.questions]


def document(prompt: str, reply: str) -> str:
    return turn_document(TurnText(turn_id=uuid4(), prompt=prompt, reply=reply))


async def test_prompts_of_other_projects_are_left_alone_and_own_ones_are_told_something(
    db: Db, cast: Cast, make: Make, vectors: Vectors
):
    embedder = make_embedder(EmbedderSettings(provider="local"))
    corpus = [*load_projects("dev"), *load_projects("stranger")]
    stored: dict[str, Project] = {}
    large = (await bound_to(db, cast.alice, "all of them")).project
    for project in corpus:
        stored[project.name] = (await bound_to(db, cast.alice, project.name)).project
        for session, prompt, reply in turns_of(project):
            (vector,) = await embedder.embed([document(prompt, reply)], "document")
            for place in (stored[project.name], large):
                vectors.give(await make.turn(project=place, prompt=prompt, reply=reply, session=f"{place.name}-{session}"), vector)
    while await write_due_sentences(db, embedder, vectors.model_id):
        pass

    others: dict[str, list[float]] = {project.name: [] for project in corpus}
    left_alone: list[bool] = []
    told: list[bool] = []
    told_in_large: list[bool] = []
    for home in corpus:
        for place, (text, is_related) in enumerate(prompts_of(home)):
            (numbers,) = await embedder.embed([text], "query")
            vector = QueryVector(model_id=vectors.model_id, provider="local", dimensions=256, vector=str(numbers))
            if is_related:
                async with db.tenant(cast.alice.team_id) as conn:
                    near = await find_near(conn, cast.alice.team_id, large.id, None, text, vector)
                told_in_large.append(bool(select_told(near)))
            for at, project in enumerate(corpus):
                is_own = project is home
                if (place + at) % SAMPLED if not is_own else not is_related:
                    continue
                async with db.tenant(cast.alice.team_id) as conn:
                    near = await find_near(conn, cast.alice.team_id, stored[project.name].id, None, text, vector)
                if is_own:
                    told.append(bool(select_told(near)))
                else:
                    others[project.name].append(near[0].margin if near else -1.0)
                    left_alone.append(not select_told(near))
    for name, margins in others.items():
        print(f"{name:14} {np.round(np.quantile(margins, [0.5, 0.8, 0.9, 0.95]), 2)}")  # noqa: T201 - shown by pytest -s
    print(f"left alone {np.mean(left_alone):.3f}, told {np.mean(told):.3f}, among all {np.mean(told_in_large):.3f}")  # noqa: T201

    assert np.mean(left_alone) >= 0.95
    assert np.mean(told) >= 0.65
    assert np.mean(told_in_large) >= 0.85 * np.mean(told)


def test_the_threshold_grows_with_the_project_and_ends():
    thresholds = [threshold(BY_MEANING, count) for count in (0, 10, 100, 2_000, 1_000_000)]

    assert thresholds == sorted(thresholds)
    assert thresholds[0] == thresholds[1] > 0.4
    assert thresholds[3] == thresholds[4] < 0.9
