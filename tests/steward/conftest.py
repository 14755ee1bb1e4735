from __future__ import annotations

from collections.abc import Generator

import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.base.settings import Settings
from tests.conftest import Cast
from tests.steward import tools
from tests.steward.tools import Keeper, Model


@pytest.fixture
def keeper(db: Db, settings: Settings, cast: Cast) -> Keeper:
    """The steward of Alice's team, without a model."""
    return Keeper(db, msgspec.structs.replace(settings, provider="offline"), cast.alice.principal)


@pytest.fixture
def model() -> Generator[Model]:
    """The model that `asking` asks."""
    tools.MODEL = Model()
    yield tools.MODEL
    tools.MODEL = Model()


@pytest.fixture
def asking(db: Db, settings: Settings, cast: Cast, model: Model) -> Keeper:
    """The steward of Alice's team, with a model."""
    return Keeper(db, msgspec.structs.replace(settings, provider=f"{tools.__name__}:make_model"), cast.alice.principal)
