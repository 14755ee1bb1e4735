"""Words that several rooms write down, because none may import them from the other, are the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import psycopg

from cmserver.answers.vocabulary import TAG_ROLES, canonical_name
from cmserver.events.model import IS_WORK
from cmserver.models.providers.model import KINDS, ObservationType, PromptKind
from cmserver.models.providers.prompts.fence import ANSWERS, FENCES
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE
from cmserver.recall.index.relevance import WEIGHTS

PAGE = Path(__file__).parents[2] / "docs" / "why" / "context.md"
CHECK = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'observations_type_check'"


def test_the_types_of_observations_are_the_same_in_their_table_the_database_and_the_page_of_weights(database: str):
    with psycopg.connect(database) as conn:
        check = conn.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'observations_type_check'"
        ).fetchone()
    assert check is not None
    row = re.search(r"\| type \|[^|]*\| (.*) \|", PAGE.read_text())
    assert row is not None

    assert set(KINDS) == set(get_args(ObservationType)) == set(re.findall(r"'(\w+)'", check[0]))
    weights = {
        name: float(weight) for names, weight in re.findall(r"([^;]+?) ([\d.]+)(?:; |$)", row[1]) for name in names.split(", ")
    }
    assert weights == {name.replace("_", " "): weight for name, weight in WEIGHTS.type.items()}


def test_each_kind_of_prompt_has_a_schema():
    assert set(SCHEMAS) == set(get_args(PromptKind))


def test_what_answers_are_read_by_is_escaped_in_prompts():
    spoken = {name.replace("_", "") for name, role in TAG_ROLES.items() if role != "think"}

    assert spoken - {*ANSWERS, *FENCES} == set()
    assert [name for name in ANSWERS if canonical_name(name) is None] == []


def test_the_sql_for_more_than_words_names_what_the_code_does():
    assert set(re.findall(r"'(\w+)'", IS_WORK)) == {*PROMPT_TYPES, REPLY_TYPE}
