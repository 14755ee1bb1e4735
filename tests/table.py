"""One test for a table of rows, which lists every row that failed."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])


def try_rows(
    names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but a single test: all rows share its fixtures, so none may change what another one sees."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [(row,) if len(arguments) == 1 else tuple(row) for row in rows]
    name = ids if callable(ids) else str
    labels = [", ".join(str(name(one)) for one in row) for row in values] if ids is None or callable(ids) else list(ids)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            failures = Failures()
            for label, row in zip(labels, values, strict=True):
                with failures.of(label):
                    test(*args, **fixtures, **dict(zip(arguments, row, strict=True)))
            failures.report()

        @functools.wraps(test)
        async def run_async(*args: Any, **fixtures: Any) -> None:
            failures = Failures()
            for label, row in zip(labels, values, strict=True):
                with failures.of(label):
                    await test(*args, **fixtures, **dict(zip(arguments, row, strict=True)))
            failures.report()

        made: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        made.__signature__ = signature.replace(
            parameters=[each for each in signature.parameters.values() if each.name not in arguments]
        )
        return cast("Test", made)

    return decorate


class Failures:
    """Collects the rows that failed."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    @contextmanager
    def of(self, label: object) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a row fails with
            last = traceback.extract_tb(error.__traceback__)[-1]
            self._texts.append(f"{ascii(label)[:120]}: {type(error).__name__} ({last.name}:{last.lineno}): {error}")

    def report(self) -> None:
        assert not self._texts, f"{len(self._texts)} rows failed\n\n" + "\n\n".join(self._texts)
