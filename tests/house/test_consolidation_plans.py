"""Looking for what says the same uses its indexes, as the tenant's role."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.consolidation.comparison import repository as comparison
from tests.conftest import Cast
from tests.house.test_plans import cast, crowd, crowded, database, plan

__all__ = ["cast", "crowd", "crowded", "database"]  # fixtures


def parameters_for(cast: Cast) -> dict[str, object]:
    text = {"title": "word7", "subtitle": None, "narrative": "word7 word8", "facts": None, "content": "word7"}
    kind = {"scope": "project", "type": "change", "caller_type": None}
    return {"team_id": cast.alice.team_id, "project_id": cast.alice.project.id, **text, **kind}


def exact_parameters_for(crowd: Cast) -> dict[str, object]:
    return {**parameters_for(crowd), "hash": b"x" * 32, "scopes": ["project", "team"]}


async def test_an_exact_repeat_is_found_by_its_hash(db: Db, crowd: Cast):
    found = await plan(db, crowd.alice.team_id, comparison.EXACT.text, exact_parameters_for(crowd))

    assert "Index Scan using observations_hash" in found
    assert "observation_hash(" in found.partition("Index Cond")[2].partition("\n")[0]


async def test_that_test_bites_where_the_policy_stands_before_the_index(db: Db, crowd: Cast):
    text = comparison.EXACT.text.replace("observations_in_team", "observations")

    found = await plan(db, crowd.alice.team_id, text, exact_parameters_for(crowd))

    assert "observation_hash(" not in found.partition("Index Cond")[2].partition("\n")[0]


async def test_without_vectors_candidates_are_found_by_their_words(db: Db, crowd: Cast):
    values = {**parameters_for(crowd), "text": "wombat", "types": ["change"], "max_words": 12, "limit": 5}

    found = await plan(db, crowd.alice.team_id, comparison.BY_WORDS.text, values)

    assert "Bitmap Index Scan on observations_content_search" in found
