"""`cmserver licenses`: what the installation consists of."""

from __future__ import annotations

from tests.cli.conftest import Cms


async def test_parts_of_the_installation_are_listed_with_their_licences(cms: Cms):
    listed = (await cms("licenses", "--json")).read(list[dict[str, str]])

    licences = {part["name"].lower(): part["license"] for part in listed}
    assert {"cmserver", "htmx", "postgresql", "pgvector", "psycopg", "psycopg-binary", "starlette"} <= licences.keys()
    assert (licences["cmserver"], licences["psycopg"], licences["postgresql"]) == ("Apache-2.0", "LGPL-3.0-only", "PostgreSQL")
    assert not {"pytest", "ruff", "pyright"} & licences.keys()
    assert [name for name, licence in licences.items() if licence.startswith("not stated")] == []


async def test_the_texts_are_printed(cms: Cms):
    printed = (await cms("licenses", "--texts")).out

    assert "GNU LESSER GENERAL PUBLIC LICENSE" in printed
