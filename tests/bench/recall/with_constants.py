"""`python -m tests.bench.recall.with_constants NAME=VALUE … -- run`: cmserver with other constants in its search."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType

from tests.bench.load import ROOT

FOLDER = ROOT / "cmserver" / "recall" / "search"
_PACKAGE = "cmserver.recall.search."


def is_constant(name: str) -> bool:
    """Whether a module of the search has a number of that name."""
    return any(
        _constant_name(node) == name for path in FOLDER.glob("*.py") for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def change(constants: Mapping[str, float]) -> None:
    """Give the constants other values in the modules of the search that are imported from now on."""
    sys.meta_path.insert(0, _Finder(constants))


class _Finder(MetaPathFinder):
    def __init__(self, constants: Mapping[str, float]) -> None:
        self._constants = constants

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(_PACKAGE):
            return None
        spec = PathFinder.find_spec(fullname, [str(FOLDER)])
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._constants)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, constants: Mapping[str, float]) -> None:
        super().__init__(fullname, path)
        self._constants = constants

    def get_code(self, fullname: str) -> CodeType:
        """Of the source, never of a cache, with the values in place of those that are assigned there."""
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path))
        for node in tree.body:
            name = _constant_name(node)
            if isinstance(node, ast.Assign) and name in self._constants:
                value = self._constants[name]
                node.value = ast.copy_location(ast.Constant(int(value) if value.is_integer() else value), node.value)
        return compile(tree, path, "exec")


def _constant_name(node: ast.stmt) -> str:
    """The name that the statement gives a number; empty when it does something else."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant) or len(node.targets) != 1:
        return ""
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) and isinstance(node.value.value, (int, float)) else ""


def main() -> None:
    """As `cmserver` with the words after `--`."""
    pairs = sys.argv[1 : sys.argv.index("--")]
    change({name: float(value) for name, _, value in (pair.partition("=") for pair in pairs)})
    from cmserver.cli.main import main as cmserver  # noqa: PLC0415 - after the change: what is imported now reads it

    sys.argv = ["cmserver", *sys.argv[sys.argv.index("--") + 1 :]]
    cmserver()


if __name__ == "__main__":
    main()
