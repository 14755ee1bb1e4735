"""Every class that a handler or an MCP tool asks for is provided by `create_app`, and nothing is provided for nobody."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from cmserver.app import create_app
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.http.wire import Dependencies
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from tests.house.house import Source, source, sources


def requested_names(file: Source) -> Iterator[str]:
    """The names in `dependency(request, Name)`, `call.dependency(Name)` and `dependencies.get(Name)`."""
    for call in ast.walk(file.tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        function, class_ = ast.unparse(call.func), call.args[-1]
        is_request = function.rpartition(".")[2] == "dependency" or function.endswith("dependencies.get")
        if is_request and isinstance(class_, ast.Name) and class_.id != "class_":
            yield class_.id


def requested_classes() -> dict[type, str]:
    """Each class that is asked for, with a module that asks for it."""
    return {vars(importlib.import_module(file.module))[name]: file.module for file in sources() for name in requested_names(file)}


@pytest.fixture(scope="module")
def provided(tmp_path_factory: pytest.TempPathFactory) -> set[type]:
    db, hub = Db(DatabaseUrls(owner="")), NotificationListener("")
    return create_app(
        Settings(data_dir=tmp_path_factory.mktemp("data")), db, hub, JobNotifier(db, hub), secret=b"x" * 32
    ).dependencies.classes


def test_every_class_that_is_asked_for_is_provided(provided: set[type]):
    missing = {f"{module} asks for {class_.__name__}" for class_, module in requested_classes().items() if class_ not in provided}

    assert not missing, missing


def test_every_class_that_is_provided_is_asked_for(provided: set[type]):
    assert provided <= requested_classes().keys()


def test_each_way_to_ask_is_seen():
    asks = source(
        "a = dependency(request, Searcher)\nb = call.dependency(Db)\nc = app.dependencies.get(Meter)\nd = other(request, No)"
    )

    assert list(requested_names(asks)) == ["Searcher", "Db", "Meter"]


def test_a_class_that_is_missing_is_named():
    with pytest.raises(LookupError, match="Settings"):
        Dependencies(1, "two").get(Settings)


def test_only_what_is_provided_can_be_replaced():
    dependencies = Dependencies(1)

    dependencies.replace(2)

    assert dependencies.get(int) == 2
    with pytest.raises(LookupError, match="str"):
        dependencies.replace("two")
